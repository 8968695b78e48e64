"""One-way messages on a topic: a newsroom sends news, and every desk that listens gets them.

python examples/topic_news.py [stomp://admin:admin@localhost:61613]

Without a URL it runs on the embedded broker.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from queue import SimpleQueue

from lxml import etree

import soapjms

NAMESPACE = "urn:news"
URI = "jms:topic:newsroom"


def desk(name: str, heard: SimpleQueue[str]) -> soapjms.Service:
    """Make a service that notes the news; one-way operations return nothing."""
    service = soapjms.Service()

    @service.operation(f"{{{NAMESPACE}}}news")
    def note(request: soapjms.Request) -> None:
        heard.put(f"{name}: {request.element.text}")

    return service


def news(headline: str) -> etree._Element:
    """Make an envelope."""
    body = etree.Element(f"{{{NAMESPACE}}}news", nsmap={None: NAMESPACE})
    body.text = headline
    return soapjms.envelope(body, version=soapjms.SoapVersion.SOAP_12)


def main(arguments: Sequence[str]) -> int:
    """Send the news through the broker whose URL is given, else through the embedded one."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    heard: SimpleQueue[str] = SimpleQueue()
    with ExitStack() as stack:
        connection = stack.enter_context(soapjms.connect(*arguments or ["embedded:"]))
        for name in ("paper", "radio"):  # a topic keeps nothing: desks that subscribe later miss the news
            stack.enter_context(soapjms.Dispatcher(connection, URI, desk(name, heard)))
        newsroom = stack.enter_context(soapjms.Client(connection, URI))
        newsroom.send(news("Snow in June"))  # returns when the broker has it
        for line in sorted(heard.get(timeout=10) for _ in range(2)):
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
