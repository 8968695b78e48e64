"""SOAP over JMS 1.0 for Python: call, serve, capture, and replay for conformance.

The names here are the public ones. `soapjms.replay` replays captured logs; `soapjms.protocol` is the binding itself.
"""

import sys
from typing import TYPE_CHECKING

try:
    from brokers.moved_modules import MovedModules
    from brokers.public_names import import_when_used
except ImportError:
    import brokers

    # A user's own folder called `brokers` easily shadows ours: say so here, where its path can be named.
    raise ImportError(
        f"soapjms needs its own package `brokers`, but Python found another at "
        f"{brokers.__file__ or brokers.__path__}; rename that one, or start Python from another folder"
    ) from None

if TYPE_CHECKING:
    from brokers import connect
    from brokers.connection import Connection
    from brokers.errors import (
        BrokerError,
        ClosedError,
        ConnectionFailedError,
        ConnectionLostError,
        DestinationGoneError,
        InvalidSelectorError,
        LoginRefusedError,
        NoAnswerError,
        NoDestinationError,
        NotInstalledError,
        NotSentError,
        SendFailedError,
        SoapJmsError,
        StaleDestinationError,
        TlsError,
        UnknownSchemeError,
        UnreachableError,
        UnsentError,
        UnsupportedError,
        UsageError,
    )
    from brokers.message import MessageType
    from brokers.naming import NameNotFoundError, Names, NamingError
    from soapjms.capture.recorder import Recorder, Tap
    from soapjms.client.async_client import AsyncClient
    from soapjms.client.call import OutgoingCall, Response
    from soapjms.client.client import Client
    from soapjms.destinations import connect_uri
    from soapjms.event_loop import connect_async
    from soapjms.protocol.attachments import Attachment, Attachments, Part, optimize
    from soapjms.protocol.envelope import envelope
    from soapjms.protocol.errors import (
        CallFailedError,
        CallTimeoutError,
        CallTrace,
        InvalidAttachmentError,
        InvalidEnvelopeError,
        InvalidPropertyError,
        InvalidRecordError,
        InvalidUriError,
        InvalidWsdlError,
        PingFailedError,
        RequestExpiredError,
        SendOutcome,
        SoapFaultError,
        StoreError,
    )
    from soapjms.protocol.limits import Limits
    from soapjms.protocol.names import CR_2009, REC_2012, Profile, SoapVersion, Subcode
    from soapjms.reply import Prepared, Reply
    from soapjms.service.async_dispatcher import AsyncDispatcher
    from soapjms.service.dispatcher import Dispatcher
    from soapjms.service.multiplex import Services
    from soapjms.service.request import Policy, Request
    from soapjms.service.service import Service
    from soapjms.service.store.sqlite import SqliteStore
    from soapjms.wsdl import read_wsdl
else:
    __getattr__, __dir__ = import_when_used(
        __name__,
        {
            "brokers": "connect",
            "brokers.connection": "Connection",
            "brokers.errors": (
                "BrokerError ClosedError ConnectionFailedError ConnectionLostError DestinationGoneError "
                "InvalidSelectorError LoginRefusedError NoAnswerError NoDestinationError NotInstalledError "
                "NotSentError SendFailedError SoapJmsError StaleDestinationError TlsError UnknownSchemeError "
                "UnreachableError UnsentError UnsupportedError UsageError"
            ),
            "brokers.message": "MessageType",
            "brokers.naming": "NameNotFoundError Names NamingError",
            "soapjms.capture.recorder": "Recorder Tap",
            "soapjms.client.async_client": "AsyncClient",
            "soapjms.client.call": "OutgoingCall Response",
            "soapjms.client.client": "Client",
            "soapjms.destinations": "connect_uri",
            "soapjms.event_loop": "connect_async",
            "soapjms.protocol.attachments": "Attachment Attachments Part optimize",
            "soapjms.protocol.envelope": "envelope",
            "soapjms.protocol.errors": (
                "CallFailedError CallTimeoutError CallTrace InvalidAttachmentError InvalidEnvelopeError "
                "InvalidPropertyError InvalidRecordError InvalidUriError InvalidWsdlError PingFailedError "
                "RequestExpiredError SendOutcome SoapFaultError StoreError"
            ),
            "soapjms.protocol.limits": "Limits",
            "soapjms.protocol.names": "CR_2009 REC_2012 Profile SoapVersion Subcode",
            "soapjms.reply": "Prepared Reply",
            "soapjms.service.async_dispatcher": "AsyncDispatcher",
            "soapjms.service.dispatcher": "Dispatcher",
            "soapjms.service.multiplex": "Services",
            "soapjms.service.request": "Policy Request",
            "soapjms.service.service": "Service",
            "soapjms.service.store.sqlite": "SqliteStore",
            "soapjms.wsdl": "read_wsdl",
        },
    )

__version__ = "0.1.0"

__all__ = [
    "CR_2009",
    "REC_2012",
    "AsyncClient",
    "AsyncDispatcher",
    "Attachment",
    "Attachments",
    "BrokerError",
    "CallFailedError",
    "CallTimeoutError",
    "CallTrace",
    "Client",
    "ClosedError",
    "Connection",
    "ConnectionFailedError",
    "ConnectionLostError",
    "DestinationGoneError",
    "Dispatcher",
    "InvalidAttachmentError",
    "InvalidEnvelopeError",
    "InvalidPropertyError",
    "InvalidRecordError",
    "InvalidSelectorError",
    "InvalidUriError",
    "InvalidWsdlError",
    "Limits",
    "LoginRefusedError",
    "MessageType",
    "NameNotFoundError",
    "Names",
    "NamingError",
    "NoAnswerError",
    "NoDestinationError",
    "NotInstalledError",
    "NotSentError",
    "OutgoingCall",
    "Part",
    "PingFailedError",
    "Policy",
    "Prepared",
    "Profile",
    "Recorder",
    "Reply",
    "Request",
    "RequestExpiredError",
    "Response",
    "SendFailedError",
    "SendOutcome",
    "Service",
    "Services",
    "SoapFaultError",
    "SoapJmsError",
    "SoapVersion",
    "SqliteStore",
    "StaleDestinationError",
    "StoreError",
    "Subcode",
    "Tap",
    "TlsError",
    "UnknownSchemeError",
    "UnreachableError",
    "UnsentError",
    "UnsupportedError",
    "UsageError",
    "connect",
    "connect_async",
    "connect_uri",
    "envelope",
    "optimize",
    "read_wsdl",
]

sys.meta_path.append(
    MovedModules(
        {
            "soapjms.bridge.calling": "soapjms.bridge.backend",
            "soapjms.bridge.listening": "soapjms.bridge.listener",
            "soapjms.idempotency": "soapjms.service.store",
            "soapjms.masking": "soapjms.capture",
            "soapjms.taps": "soapjms.capture",
            "soapjms.typed": "soapjms.service.typed",
        }
    )
)
