"""A WSGI application as a service over JMS: any that speaks SOAP, and what becomes of those that do not.

Applications of others are in tests/cli/test_cli_bridge.py, in processes of their own: spyne changes how Python imports.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from calling_kit import PATIENCE, SOAP_11, SOAP_12, element, envelope, eventually, text_of
from lxml import etree

import soapjms
from brokers import Connection
from brokers.embedded import Broker
from soapjms import Client, Dispatcher, SoapVersion, UsageError
from soapjms.bridge.message import written
from soapjms.bridge.wsgi import Application, WsgiService
from soapjms.protocol.attachments import read_multipart
from soapjms.protocol.content import parse_content_type

URI = "jms:queue:greeter"
HEADERS = [("Content-Type", "text/xml; charset=utf-8")]
StartResponse = Callable[..., Any]


@pytest.fixture
def connection() -> Iterator[Connection]:
    """A connection to a broker of the test's own."""
    with Broker().connect() as made:
        yield made


def called(connection: Connection, app: Application, asked: Any = None, **call: Any) -> soapjms.Response:
    """Serve an application, and call it once."""
    service = call.pop("service", None) or WsgiService(app)
    with Dispatcher(connection, URI, service, workers=1), Client(connection, URI, timeout=PATIENCE) as client:
        return client.call(envelope() if asked is None else asked, **call)


def saying(text: str, status: str = "200 OK", headers: Iterable[tuple[str, str]] = HEADERS) -> Application:
    """Make an application that always says the same."""

    def app(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        start_response(status, list(headers))
        return [text.encode()]

    return app


HELLO = envelope("Hello", operation="greetMeResponse").decode()

# What an application gets


def test_an_environ_beyond_ascii(connection: Connection) -> None:
    """Each character is an octet of UTF-8, as frameworks read them; a euro sign would be no octet at all."""
    seen: dict[str, Any] = {}

    def app(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        seen.update(environ)
        start_response("200 OK", [("Content-Type", "text/xml")])
        return [HELLO.encode()]

    service = WsgiService(app, path="/größe")
    with Dispatcher(connection, URI, service), Client(connection, URI, timeout=PATIENCE) as client:
        client.call(envelope(), soap_action="urn:€")
    assert seen["PATH_INFO"].encode("latin-1").decode() == "/größe"
    assert seen["HTTP_SOAPACTION"].encode("latin-1").decode() == '"urn:€"'


@pytest.mark.parametrize("version", list(SoapVersion))
@pytest.mark.parametrize("kind", ["bytes", "text"])
def test_the_environ(connection: Connection, version: SoapVersion, kind: Any) -> None:
    """A POST of SOAP over HTTP, with the request itself beside it; whatever the message type."""
    seen: dict[str, Any] = {}

    def app(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        seen.update(environ, body=environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        start_response("200 OK", [("Content-Type", f"{version.media_type}; charset=utf-8")])
        return [envelope("Hello", version, "greetMeResponse")]

    service = WsgiService(app, path="/soap", environ={"SERVER_NAME": "bank.example"})
    with (
        Dispatcher(connection, URI, service),
        Client(connection, URI, timeout=PATIENCE, message_type=kind) as client,
    ):
        assert text_of(client.call(envelope("Jürgen", version), soap_action="urn:a")) == "Hello"
    assert (seen["REQUEST_METHOD"], seen["PATH_INFO"], seen["SERVER_NAME"]) == ("POST", "/soap", "bank.example")
    assert seen["HTTP_SOAPACTION"] == '"urn:a"'
    content_type = parse_content_type(seen["CONTENT_TYPE"])
    assert (content_type.media_type, content_type.charset) == (version.media_type, "utf-8")
    assert content_type.parameters.get("action") == (None if version is SOAP_11 else "urn:a")
    assert "Jürgen" in seen["body"].decode()
    assert seen["soapjms.request"].soap_action == "urn:a"


def test_attachments_both_ways(connection: Connection) -> None:
    """A multipart body is a multipart body."""

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterator[bytes]:
        kind = parse_content_type(environ["CONTENT_TYPE"])
        (came,) = read_multipart(environ["wsgi.input"].read(), kind).attachments
        photo = soapjms.Attachment(b"[" + bytes(came.content) + b"]", "image/png", "framed@app")
        body = element("framed")
        body.append(photo.include())
        root = etree.fromstring(HELLO.encode())
        root[0].append(body)
        octets, content_type = written(root, [photo])
        start_response("200 OK", [("Content-Type", content_type)])
        yield octets[:10]
        yield octets[10:]

    photo = soapjms.Attachment(b"\x89PNG\x00\r\n", "image/png", "photo@test")
    asked = etree.fromstring(envelope(""))
    asked[0][0].append(photo.include())
    answer = called(connection, app, asked, attachments=[photo])
    assert [bytes(each.content) for each in answer.attachments] == [b"[\x89PNG\x00\r\n]"]


def test_a_header_that_must_be_understood_is_the_application_s(connection: Connection) -> None:
    """It gets it, and says itself what it thinks of it."""
    head = '<e:Header><x:y xmlns:x="urn:x" e:mustUnderstand="1"/></e:Header><e:Body>'
    asked = envelope().decode().replace("<e:Body>", head)
    assert text_of(called(connection, saying(HELLO), asked)) == "Hello"


# What an application answers


def test_a_fault(connection: Connection) -> None:
    """The status is HTTP's; what counts is the envelope."""
    fault = (
        f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><e:Body><e:Fault><faultcode>e:Client</faultcode>'
        "<faultstring>no such person</faultstring></e:Fault></e:Body></e:Envelope>"
    )
    answer = called(connection, saying(fault, "500 Internal Server Error"))
    assert answer.fault is not None
    assert answer.fault.reason == "no such person"
    assert answer.findings() == ()


def test_gzip_and_write(connection: Connection) -> None:
    """A compressed body, given to `write`, with the headers set twice: the second time because of an error."""

    def app(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/html")])(b"<html>")
        try:
            raise ValueError("not yet")
        except ValueError:
            write = start_response("200 OK", [*HEADERS, ("Content-Encoding", "gzip")], sys.exc_info())
        write(gzip.compress(HELLO.encode()))
        return []

    assert text_of(called(connection, app)) == "Hello"


@pytest.mark.parametrize("status", ["202 Accepted", "204 No Content"])
def test_nothing_to_answer(connection: Connection, status: str) -> None:
    """An empty body, for who waits for an answer nevertheless."""
    assert called(connection, saying("", status)).element is None


def test_one_way(connection: Connection) -> None:
    """Whatever it says goes to nobody."""
    seen: list[bytes] = []

    def app(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        seen.append(environ["wsgi.input"].read())
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"thank you"]

    with Dispatcher(connection, URI, WsgiService(app)) as dispatcher, Client(connection, URI) as client:
        client.send(envelope("Bob"))
        eventually(lambda: dispatcher.counts["one-way"] == 1, "it was taken")
    assert b"Bob" in seen[0]


@pytest.mark.parametrize("status", ["302 Found", "401 Unauthorized", "503 Busy"])
def test_a_one_way_message_that_is_not_taken(connection: Connection, status: str) -> None:
    """A redirection to a login page, or an error: the policy decides, so here it is delivered again."""
    statuses = ["202 Accepted", status]

    def app(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        start_response(statuses.pop(), [("Location", "/login"), ("Content-Length", "0")])
        return []

    service = WsgiService(app, policy=soapjms.Policy(retries=2, pause=0))
    with Dispatcher(connection, URI, service), Client(connection, URI) as client:
        client.send(envelope("Bob"))
        eventually(lambda: not statuses, "it was delivered twice")


class Body:
    """A body that says whether it was closed."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self.pieces = pieces
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        for each in self.pieces:
            if isinstance(each, Exception):
                raise each
            yield each

    def close(self) -> None:
        """Note it."""
        self.is_closed = True


def raising(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
    """Be an application that fails."""
    raise ValueError("a secret of the inside")


def silent(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
    """Be an application that is none."""
    return [b""]


def twice(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
    """Be an application that starts two responses."""
    start_response("200 OK", HEADERS)
    start_response("200 OK", HEADERS)
    return [b""]


@pytest.mark.parametrize(
    ("app", "text"),
    [
        (raising, "a secret of the inside"),
        (silent, "did not call start_response"),
        (twice, "called start_response twice"),
        (saying("<html/>", "404 Not Found", [("Content-Type", "text/html")]), "404, Content-Type 'text/html'"),
        (saying("<html/>"), "did not answer with SOAP"),
        (saying(envelope("", SOAP_12).decode()), "an envelope of the request's version"),
        (saying(HELLO, headers=[*HEADERS, ("Content-Encoding", "gzip")]), "no gzip"),
        (
            saying(HELLO, headers=[*HEADERS, ("Content-Encoding", "deflate")]),
            "Content-Encoding 'deflate'; gzip is read",
        ),
        (saying(HELLO, headers=[*HEADERS, ("Content-Encoding", "br"), ("Content-Encoding", "gzip")]), "'br, gzip'"),
        (saying(HELLO, headers=[*HEADERS, ("Content-Length", "9999")]), f"9999 octets and answered with {len(HELLO)}"),
    ],
)
def test_nonsense(connection: Connection, app: Application, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """The caller is told that the service failed and nothing of its insides; the log says what it was."""
    answer = called(connection, app)
    assert answer.fault is not None
    assert answer.fault.reason == "the service failed"
    assert text in caplog.text


def test_the_body_is_closed(connection: Connection) -> None:
    """Also if it fails on the way; and an endless one is not read for ever."""
    for pieces, limits in [
        ([HELLO.encode()], soapjms.Limits()),
        ([b"<", ValueError("gone")], soapjms.Limits()),
        ([b"x" * 1000] * 5, soapjms.Limits(size=2000)),
    ]:
        body = Body(*pieces)

        def app(environ: dict[str, Any], start_response: StartResponse, body: Body = body) -> Iterable[bytes]:
            start_response("200 OK", HEADERS)
            return body

        called(connection, app, service=WsgiService(app, limits=limits))
        assert body.is_closed


def test_a_failure_is_what_the_policy_says(connection: Connection) -> None:
    """A page that says 503 has the request delivered again, if that is what the policy says."""
    statuses = iter(["503 Busy", "200 OK"])

    def app(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        status = next(statuses)
        start_response(status, HEADERS)
        return [HELLO.encode() if status == "200 OK" else b"busy"]

    service = WsgiService(app, policy=soapjms.Policy(retries=2))
    assert text_of(called(connection, app, service=service)) == "Hello"


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    """An application of the other kind."""


def test_wrong_arguments() -> None:
    """Said at once."""
    with pytest.raises(UsageError, match="WSGI application"):
        WsgiService("app")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="got the ASGI application <function asgi"):
        WsgiService(asgi)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="slash"):
        WsgiService(silent, path="soap")
