"""A greeter as spyne has it: a WSGI application for SOAP over HTTP, which knows nothing of JMS."""

from __future__ import annotations

from typing import Any

from spyne import Application, Fault, Integer, ServiceBase, Unicode, rpc
from spyne.protocol.soap import Soap11
from spyne.server.wsgi import WsgiApplication


class Greeter(ServiceBase):  # type: ignore[misc]
    """The operations."""

    @rpc(Unicode, Integer, _returns=Unicode)  # type: ignore[untyped-decorator]
    def greetMe(ctx: Any, name: str | None, times: int | None) -> str:  # noqa: N805 - spyne gives it no self
        """Say hello to the name in the request, so many times."""
        if not name:
            raise Fault("Client.Nobody", "whom shall I greet?")
        if name == "nobody":
            raise ValueError("a secret of the inside")
        return ", ".join([f"Hello {name}"] * (times or 1))


application = WsgiApplication(
    Application([Greeter], "urn:greeter", in_protocol=Soap11(validator="lxml"), out_protocol=Soap11())
)
