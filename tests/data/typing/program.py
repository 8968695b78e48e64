"""A program that uses the public names as the documentation shows them, for type checkers; nobody runs it.

`# error` stands on the lines that a checker must refuse, `# TYPE` after a `reveal_type` is what it must say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import reveal_type

from lxml import etree

import brokers
import soapjms
import soapjms.codegen
import soapjms.zeep

ENVELOPE = (
    "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><e:Body><a xmlns='urn:a'/></e:Body></e:Envelope>"
)

service = soapjms.Service(policy=soapjms.Policy())


@service.operation("{urn:a}a", action="urn:a")
def greet(request: soapjms.Request) -> etree._Element:
    """Look at a request."""
    reveal_type(request.element)  # _Element
    reveal_type(request.soap_action)  # str | None
    reveal_type(request.delivery_count)  # int | None
    reveal_type(request.one_way)  # bool
    reveal_type(request.findtext("{urn:a}b"))  # str | None
    request.element = request.element  # error: a request is frozen
    return request.element


reveal_type(greet(soapjms.Request()))  # error: a request has no defaults


@service.operation("{urn:a}b")
async def later(request: soapjms.Request) -> soapjms.Reply:
    """Answer from a coroutine, with attachments."""
    photo = soapjms.Attachment(b"\x89PNG", "image/png", "photo@example")
    reveal_type(request.attachments.octets_of(request.element))  # bytes | memoryview[int]
    return soapjms.Reply(etree.Element("{urn:a}b"), [photo])


service.operation(1)  # error: a name is text
soapjms.Service.from_wsdl("a.wsdl", port="a")
soapjms.Service.from_wsdl("a.wsdl", 5)  # error: not of a generated class
soapjms.Service.from_wsdl("a.wsdl", "a")  # error: a port is named
soapjms.Service(polcy=soapjms.Policy())  # error: no such argument


def call(connection: brokers.Connection) -> None:
    """Call in every way."""
    with soapjms.Client(connection, "jms:queue:a", timeout=10) as client:
        response = client.call(ENVELOPE, soap_action="urn:a", timeout=1)
        reveal_type(response)  # Response
        reveal_type(response.element)  # _Element | None
        reveal_type(response.raise_for_fault())  # Response
        reveal_type(response.message.properties.lookup("a"))  # Property | None
        reveal_type(response.findings())  # tuple[Verdict, ...]
        reveal_type(client.submit(ENVELOPE))  # Completion[Response]
        reveal_type(client.submit(ENVELOPE).result(1))  # Response
        reveal_type(client.counts)  # Counter[str]
        client.call(7)  # error: not an envelope
        client.call(ENVELOPE, "urn:a")  # error: arguments are named
        client.call(ENVELOPE, timeout="1")  # error: seconds are a number
        print(response.element.text)  # error: a body may be empty
        print(client.send(ENVELOPE).element)  # error: a one-way message has no answer


async def call_later(client: soapjms.Client) -> None:
    """Call from asyncio."""
    reveal_type(await client.submit(ENVELOPE))  # Response
    async with (
        soapjms.connect_async("embedded:") as connection,
        soapjms.AsyncClient(connection, "jms:queue:a", max_calls=10, timeout=3) as caller,
        soapjms.AsyncDispatcher(connection, "jms:queue:a", service, workers=2) as serving,
    ):
        reveal_type(connection)  # Connection
        reveal_type(await caller.call(ENVELOPE, expires=None))  # Response
        reveal_type(await serving.aclose())  # bool
        soapjms.AsyncClient(connection, "jms:queue:a", tiemout=3)  # error: no such option
        soapjms.AsyncClient.from_wsdl(connection, "a.wsdl", max_calls="3")  # error: a number
        soapjms.AsyncDispatcher(connection, "jms:queue:a", service, workers="2")  # error: a number


def choose(connection: brokers.Connection) -> None:
    """Choose by words."""
    soapjms.Client(connection, "jms:queue:a", profile="cr-2009", replies="exclusive", message_type="text")
    soapjms.Client(connection, "jms:queue:a", profile="cr2009")  # error: no such edition
    soapjms.Client(connection, "jms:queue:a", replies="exclsive")  # error: no such strategy
    soapjms.Client(connection, "jms:queue:a").call(ENVELOPE, expires="never")  # error: None is never
    soapjms.Policy(then="dead-leter")  # error: no such rule


def generate(connection: brokers.Connection) -> None:
    """Call by a WSDL."""
    soapjms.codegen.ContractClient(connection, timeout=3, middleware=[middleware])
    soapjms.codegen.ContractClient(connection, timeot=3)  # error: no such option
    soapjms.codegen.AsyncContractClient(connection, max_calls=3)
    soapjms.codegen.AsyncContractClient(connection, "jms:queue:a", timeot=3)  # error: no such option
    soapjms.zeep.Client("a.wsdl", connection=connection, operation_timeout=3, allow=["."])
    soapjms.zeep.Client("a.wsdl", connection=connection, timeout=3)  # error: it is operation_timeout
    soapjms.Client.from_wsdl(connection, "a.wsdl", timeout=3, middleware=[middleware])
    soapjms.Client.from_wsdl(connection, "a.wsdl", max_calls=3)  # error: that is of AsyncClient


def catch() -> None:
    """Catch all that soapjms raises."""
    try:
        soapjms.connect("stomp://localhost:61613", heartbeat=4, reconnect=False)
        soapjms.connect("embedded:", heartbeet=4)  # error: no such option
        soapjms.connect("embedded:", client_id=4)  # error: a name
    except soapjms.LoginRefusedError as refused:
        reveal_type(refused)  # LoginRefusedError
    except soapjms.SoapJmsError as error:
        reveal_type(error)  # SoapJmsError


def fail(client: soapjms.Client) -> None:
    """Read an error."""
    try:
        client.call(ENVELOPE).raise_for_fault()
    except soapjms.SoapFaultError as fault:
        reveal_type(fault.reason)  # str
    except soapjms.CallTimeoutError as error:
        reveal_type(error.outcome)  # SendOutcome
        client.send(ENVELOPE, retry_of=error)
    except soapjms.CallFailedError as error:
        reveal_type(error.is_known)  # bool
        reveal_type(error.correlation_id)  # str | None
        error.waited = 1.0  # error: read only
        client.call(ENVELOPE, retry_of=str(error))  # error: the error itself


def middleware(
    call: soapjms.OutgoingCall, call_next: Callable[[soapjms.OutgoingCall], soapjms.Response]
) -> soapjms.Response:
    """Add a property."""
    return call_next(call)


def serve(url: str, folder: Path) -> None:
    """Serve and capture."""
    with (
        soapjms.connect(url, timeout=3) as connection,
        soapjms.Recorder(folder / "capture.jsonl") as recorder,
        soapjms.Dispatcher(
            connection, "jms:queue:a", service, workers=8, store="requests.db", recorder=recorder
        ) as serving,
    ):
        reveal_type(connection)  # Connection
        reveal_type(connection.capabilities.broker)  # str
        reveal_type(serving.counts)  # Counter[str]
        reveal_type(recorder.written)  # int
        soapjms.Dispatcher(connection, "jms:queue:a", greet)  # error: not a service
        soapjms.Dispatcher(connection, "jms:queue:a", service, workers="8")  # error: a number


def send(connection: brokers.Connection) -> None:
    """Use the broker without SOAP."""
    message = brokers.Message(destination=brokers.queue("a"), body=b"a", message_type=brokers.MessageType.BYTES)
    reveal_type(connection.send(message))  # Completion[SendResult]
    reveal_type(connection.begin().commit())  # Completion[tuple[RefusedSend, ...]]
    reveal_type(connection.temporary())  # Destination

    def on_delivery(delivery: brokers.Delivery) -> None:
        reveal_type(delivery.message.body)  # bytes | memoryview[int] | str | Properties | tuple[Element, ...] | None
        delivery.accept()

    reveal_type(connection.consume(brokers.queue("a"), on_delivery))  # Consumer
    connection.consume("a", on_delivery)  # error: a destination, not its name
    message.body = b"b"  # error: a message is frozen


def read(path: Path) -> None:
    """Read a WSDL."""
    reveal_type(soapjms.read_wsdl(path))  # Description


asyncio.run(call_later(soapjms.Client(soapjms.connect("embedded:"), "jms:queue:a", middleware=[middleware])))
