"""Loops over python-qpid-proton as its documentation shows it, and clients that only move messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from proton import Message
from proton.handlers import IncomingMessageHandler, MessagingHandler, OutgoingMessageHandler
from proton.reactor import Container

from sides import WARM_UP, Caller, Setting, envelope

BINDING = {"SOAPJMS_bindingVersion": "1.0", "SOAPJMS_contentType": "text/xml; charset=utf-8"}
WINDOW = 1000
"""Messages on their way to or from a listener."""


class Echo(MessagingHandler):  # type: ignore[misc]  # proton has no types
    """Answers through one sender; accepts a request, and asks for the next, once its answer was accepted."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._setting = setting
        self._sender: Any = None
        self._requests: dict[str, Any] = {}

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._setting.url, allowed_mechs="PLAIN", reconnect=False)
        self._sender = event.container.create_sender(connection, None)
        for number in range(self._setting.in_flight):
            event.container.create_receiver(connection, self._setting.queue, name=f"requests-{number}").flow(1)

    def on_message(self, event: Any) -> None:
        request = event.message
        answer = Message(
            address=request.reply_to,
            correlation_id=request.correlation_id,
            body=request.body,
            durable=request.durable,
            inferred=True,
            properties=BINDING
            | {"SOAPJMS_requestURI": request.properties["SOAPJMS_requestURI"], "SOAPJMS_isFault": False},
        )
        self._requests[self._sender.send(answer).tag] = event.delivery

    def on_accepted(self, event: Any) -> None:
        request = self._requests.pop(event.delivery.tag)
        self.accept(request)
        request.link.flow(1)


@contextmanager
def service(setting: Setting) -> Iterator[None]:
    """Serve while the process lasts."""
    Thread(target=Container(Echo(setting)).run, daemon=True).start()
    yield


class Loop(MessagingHandler, Caller):  # type: ignore[misc]  # proton has no types
    """A client whose loop runs while it waits."""

    def __init__(self, setting: Setting, **options: Any) -> None:
        MessagingHandler.__init__(self, **options)
        self.setting = setting
        self.taken: deque[int] = deque()
        self.container = Container(self)
        self.container.timeout = 60.0
        self.container.start()

    def wait_for(self, condition: Any) -> None:
        """Run the loop until the condition holds."""
        while not condition():
            self.container.process()

    async def take(self) -> int:
        while not self.taken:
            self.container.process()
        return self.taken.popleft()

    def connect(self, event: Any) -> Any:
        """Connect, with the user of the URL or anonymously."""
        mechanisms = "PLAIN" if "@" in self.setting.url else "ANONYMOUS"
        return event.container.connect(self.setting.url, allowed_mechs=mechanisms, reconnect=False)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Client(Loop):
    """Sends requests and accepts the replies of a dynamic node."""

    def __init__(self, setting: Setting) -> None:
        self._body = envelope(setting.octets)
        self._sender: Any = None
        self._receiver: Any = None
        super().__init__(setting, prefetch=1000)
        self.wait_for(lambda: self._receiver and self._receiver.remote_source.address and self._sender.credit)

    def on_start(self, event: Any) -> None:
        connection = self.connect(event)
        self._sender = event.container.create_sender(connection, self.setting.queue)
        self._receiver = event.container.create_receiver(connection, None, dynamic=True)

    def submit(self, number: int) -> None:
        request = Message(
            body=self._body,
            durable=self.setting.persistent,
            inferred=True,
            reply_to=self._receiver.remote_source.address,
            correlation_id=f"c-{number}",
            properties=BINDING | {"SOAPJMS_requestURI": f"jms:queue:{self.setting.queue}"},
        )
        self._sender.send(request)

    def on_message(self, event: Any) -> None:
        self.taken.append(int(event.message.correlation_id[2:]))


class Into(Loop):
    """Sends messages that were encoded once; a call is one that the broker accepted."""

    def __init__(self, setting: Setting) -> None:
        self._octets = Message(body=envelope(setting.octets), inferred=True).encode()
        self.sender: Any = None
        super().__init__(setting, prefetch=0)
        self.wait_for(lambda: self.sender and self.sender.credit)

    def on_start(self, event: Any) -> None:
        self.sender = event.container.create_sender(self.connect(event), self.setting.queue)

    def submit(self, number: int) -> None:
        self.sender.delivery(str(number))
        self.sender.stream(self._octets)
        self.sender.advance()

    def on_accepted(self, event: Any) -> None:
        self.taken.append(int(event.delivery.tag))


class OutOf(Into):
    """Fills a queue, then takes its messages and accepts each, without decoding them; a call is one of them."""

    most = 20_000

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.handlers = [each for each in self.handlers if not isinstance(each, IncomingMessageHandler)]
        for number in range(self.most + WARM_UP + setting.in_flight):
            super().submit(number)
            self.wait_for(lambda sent=number: len(self.taken) > sent - WINDOW)
        self.wait_for(lambda: len(self.taken) == self.most + WARM_UP + setting.in_flight)
        self.taken.clear()
        self._receiver = self.container.create_receiver(self.sender.connection, setting.queue)
        self._receiver.flow(WINDOW)

    def submit(self, number: int) -> None:
        pass

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if link.is_receiver and delivery.readable and not delivery.partial:
            link.recv(delivery.pending)
            link.advance()
            delivery.update(delivery.ACCEPTED)
            delivery.settle()
            self.taken.append(0)
            if link.credit < WINDOW // 2:
                link.flow(WINDOW - link.credit)


class Ends(MessagingHandler):  # type: ignore[misc]  # proton has no types
    """Listens: accepts what arrives unread, keeps nothing, and sends one message as often as there is credit.

    The limit of a listener that uses proton as its documentation shows.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(prefetch=0)
        self.handlers = [
            each for each in self.handlers if not isinstance(each, IncomingMessageHandler | OutgoingMessageHandler)
        ]
        self.is_listening = Event()
        self._setting = setting
        self._octets = Message(body=envelope(setting.octets), inferred=True).encode()

    def on_start(self, event: Any) -> None:
        event.container.listen(self._setting.url)
        self.is_listening.set()

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        if link.is_receiver:
            link.flow(WINDOW)

    def on_link_flow(self, event: Any) -> None:
        link = event.link
        while link.is_sender and link.credit > 0:
            link.delivery(link.delivery_tag())
            link.stream(self._octets)
            link.advance()

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if link.is_receiver and delivery.readable and not delivery.partial:
            link.recv(delivery.pending)
            link.advance()
            delivery.update(delivery.ACCEPTED)
            delivery.settle()
            if link.credit < WINDOW // 2:
                link.flow(WINDOW - link.credit)
        elif link.is_sender and delivery.updated:
            delivery.settle()


@contextmanager
def listener(setting: Setting) -> Iterator[None]:
    """Listen while the process lasts."""
    ends = Ends(setting)
    Thread(target=Container(ends).run, daemon=True).start()
    ends.is_listening.wait()
    yield
