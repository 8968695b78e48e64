"""Both bridges in a row: an HTTP client, HTTP to JMS, a queue, JMS to WSGI, and a SOAP application written for HTTP.

python examples/bridge.py [stomp://admin:admin@localhost:61613]

Without a URL it runs on the embedded broker. It needs: pip install 'soapjms[bridge]'

The same from the command line, in this folder, each in a separate terminal:

soapjms bridge wsgi bridge:application --uri jms:queue:greeter --connection stomp://admin:admin@localhost:61613
soapjms bridge http --listen localhost:8080 --to jms:queue:greeter --connection stomp://admin:admin@localhost:61613
"""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any

from lxml import etree

import soapjms
from soapjms.protocol import xml

try:
    from soapjms.bridge.http import HttpBridge
    from soapjms.bridge.listener import Listener
    from soapjms.bridge.wsgi import WsgiService
except ImportError as error:  # it says what to type
    sys.exit(f"{error}")

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
URI = "jms:queue:greeter"


def application(environ: MutableMapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Greet over HTTP as usual: a WSGI application, by spyne or by hand, that knows nothing of JMS."""
    asked = xml.parse(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    answer = xml.parse(
        f'<e:Envelope xmlns:e="{SOAP}"><e:Body><greeting xmlns="urn:greeter"/></e:Body></e:Envelope>'.encode()
    )
    answer[0][0].text = f"Hello {asked.findtext('.//{*}name')}"
    start_response("200 OK", [("Content-Type", "text/xml; charset=utf-8")])
    return [etree.tostring(answer)]


def ask(url: str, name: str) -> str:
    """Call as an HTTP client that knows nothing of JMS either."""
    body = (
        f'<e:Envelope xmlns:e="{SOAP}"><e:Body><greetMe xmlns="urn:greeter"><name>{name}</name></greetMe></e:Body>'
        "</e:Envelope>"
    )
    request = urllib.request.Request(
        url, body.encode(), {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": '""'}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return xml.parse(response.read()).findtext(".//{*}greeting") or ""


def main(arguments: Sequence[str]) -> int:
    """Greet through both bridges at the broker whose URL is given, else at the embedded one."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    with (
        soapjms.connect(*arguments or ["embedded:"]) as connection,
        soapjms.Dispatcher(connection, URI, WsgiService(application)),
        HttpBridge(connection, URI, timeout=10) as bridge,  # an ASGI application: FastAPI and others can mount it
        Listener(bridge, "127.0.0.1:0") as listener,
    ):
        for name in ("Ann", "Bob"):
            print(ask(listener.url, name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
