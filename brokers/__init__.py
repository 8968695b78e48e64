"""A small JMS for Python: messages, destinations, connections. It knows nothing of SOAP."""

import sys
from typing import TYPE_CHECKING

from brokers.moved_modules import MovedModules
from brokers.public_names import import_when_used

if TYPE_CHECKING:
    from brokers.connection import (
        Capabilities,
        Connection,
        ConnectionState,
        Consumer,
        Delivery,
        RefusedSend,
        SendResult,
        Transaction,
    )
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
        StaleDestinationError,
        TlsError,
        UnknownSchemeError,
        UnreachableError,
        UnsentError,
        UnsupportedError,
        UsageError,
    )
    from brokers.message import (
        DeliveryMode,
        Destination,
        DestinationKind,
        Element,
        Message,
        MessageType,
        Properties,
        Property,
        PropertyType,
        properties,
        queue,
        topic,
        typed,
    )
    from brokers.schemes import connect
    from brokers.threads.futures import Completion
else:
    __getattr__, __dir__ = import_when_used(
        __name__,
        {
            "brokers.connection": (
                "Capabilities Connection ConnectionState Consumer Delivery RefusedSend SendResult Transaction"
            ),
            "brokers.errors": (
                "BrokerError ClosedError ConnectionFailedError ConnectionLostError DestinationGoneError "
                "InvalidSelectorError LoginRefusedError NoAnswerError NoDestinationError "
                "NotInstalledError NotSentError SendFailedError StaleDestinationError TlsError "
                "UnknownSchemeError UnreachableError UnsentError UnsupportedError UsageError"
            ),
            "brokers.message": (
                "DeliveryMode Destination DestinationKind Element Message MessageType Properties Property "
                "PropertyType properties queue topic typed"
            ),
            "brokers.schemes": "connect",
            "brokers.threads.futures": "Completion",
        },
    )

__all__ = [
    "BrokerError",
    "Capabilities",
    "ClosedError",
    "Completion",
    "Connection",
    "ConnectionFailedError",
    "ConnectionLostError",
    "ConnectionState",
    "Consumer",
    "Delivery",
    "DeliveryMode",
    "Destination",
    "DestinationGoneError",
    "DestinationKind",
    "Element",
    "InvalidSelectorError",
    "LoginRefusedError",
    "Message",
    "MessageType",
    "NoAnswerError",
    "NoDestinationError",
    "NotInstalledError",
    "NotSentError",
    "Properties",
    "Property",
    "PropertyType",
    "RefusedSend",
    "SendFailedError",
    "SendResult",
    "StaleDestinationError",
    "TlsError",
    "Transaction",
    "UnknownSchemeError",
    "UnreachableError",
    "UnsentError",
    "UnsupportedError",
    "UsageError",
    "connect",
    "properties",
    "queue",
    "topic",
    "typed",
]

sys.meta_path.append(MovedModules({"brokers.amqp.provider": "brokers.amqp.listener"}))
