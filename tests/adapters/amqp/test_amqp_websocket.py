"""brokers.amqp over WebSocket, as a client, against servers that do as they are told.

The names WS-xx are those of `docs/conformance-amqp.md`.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trustme
from amqp_kit import PATIENCE, Peer, text, wait_until
from hypothesis import given
from hypothesis import strategies as st
from proton import Condition, symbol
from websocket_kit import AMQP, SASL, Script, frames_of, response, upgraded
from websockets.frames import Opcode
from websockets.http11 import Request, Response

import brokers
from brokers import ConnectionFailedError, ConnectionLostError, ConnectionState, LoginRefusedError, TlsError, queue
from brokers.amqp import sasl
from brokers.amqp.endpoints import DetourError
from brokers.amqp.url import AmqpOptions, login_of
from brokers.amqp.websocket import WebSocketClient
from brokers.amqp.websocket_stream import MAX_MESSAGE_OCTETS, is_unit, units


@contextmanager
def serving(script: Script, **options: Any) -> Iterator[tuple[Peer, str]]:
    """Run a broker behind a WebSocket server; yield it and its URL."""
    with Peer(carrier=script, **options) as peer:
        yield peer, peer.url.replace("amqp://", "amqp+ws://")


def call(url: str, **options: Any) -> None:
    """Connect, send a message, and close."""
    with brokers.connect(url, timeout=PATIENCE, reconnect=False, **options) as connection:
        connection.send(text()).result(PATIENCE)


def test_ws01_to_ws05_the_handshake() -> None:
    """WS-01, WS-02, WS-03, WS-05, WS-35: an upgrade as RFC 6455 has it, to the path that was asked for."""
    script = Script()
    with serving(script) as (peer, url):
        call(f"{url}/a/b")
    (request,) = script.requests
    assert request.path == "/a/b"
    assert request.headers["Upgrade"] == "websocket"
    assert request.headers["Connection"] == "Upgrade"
    assert request.headers["Sec-WebSocket-Version"] == "13"
    assert len(base64.b64decode(request.headers["Sec-WebSocket-Key"])) == 16
    assert request.headers["Host"] == f"127.0.0.1:{peer.port}"
    assert request.headers["Sec-WebSocket-Protocol"] == "amqp"
    assert "Sec-WebSocket-Extensions" not in request.headers
    assert "Origin" not in request.headers


def test_ws03_one_name_for_http_sasl_and_amqp() -> None:
    """WS-03: Host, the hostname of sasl-init and that of open are the same."""
    script = Script()
    with serving(script) as (_, url):
        call(url)
    assert sasl.unpack(script.messages[1])[1][2] == "127.0.0.1"
    opened = next(each for each in script.messages if each[8:11] == b"\x00\x53\x10")
    assert b"127.0.0.1" in opened
    assert script.requests[0].headers["Host"].partition(":")[0] == "127.0.0.1"


@pytest.mark.parametrize(("binding", "token"), [("csprd01", "AMQPWSB10"), ("cs01", "amqp"), ("lenient", "amqp")])
def test_ws04_the_sub_protocol_by_edition(binding: str, token: str) -> None:
    """WS-04: each edition's own, alone and in its own case."""
    script = Script(tokens=(token,))
    with serving(script) as (_, url):
        call(f"{url}?binding={binding}")
    assert [each.headers["Sec-WebSocket-Protocol"] for each in script.requests] == [token]


def test_ws04_lenient_tries_the_other_sub_protocol() -> None:
    """A server that knows only the draft's is reached in a second attempt; never with a list."""
    script = Script(tokens=("AMQPWSB10",))
    with serving(script) as (_, url):
        call(url)
    assert [each.headers["Sec-WebSocket-Protocol"] for each in script.requests] == ["amqp", "AMQPWSB10"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda request: response(200), "HTTP 200"),
        (lambda request: response(404), "HTTP 404 Because"),
        (lambda request: response(500), "HTTP 500"),
    ],
)
def test_ws05_ws07_any_other_answer_ends_it(answer: Callable[[Request], Response], why: str) -> None:
    """WS-05, WS-07: without status 101 there is no WebSocket, so not one frame is sent."""
    script = Script(answer=answer)
    with serving(script) as (_, url), pytest.raises(ConnectionFailedError, match=why):
        call(f"{url}?binding=cs01")
    assert len(script.requests) == 1
    assert script.frames == []


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ((), "sub-protocol None, not amqp"),
        (("stomp",), "sub-protocol 'stomp', not amqp"),
        (("AMQP",), "sub-protocol 'AMQP', not amqp"),
        (("AMQPWSB10",), "sub-protocol 'AMQPWSB10', not amqp"),
        (("amqp, stomp",), "sub-protocol 'amqp, stomp', not amqp"),
        (("a b",), "sub-protocol 'a b', not amqp"),
        (("amqp", "amqp"), "sub-protocol 'amqp' and 'amqp', not amqp"),
        (("amqp", "stomp"), "sub-protocol 'amqp' and 'stomp', not amqp"),
    ],
)
def test_ws07_another_sub_protocol_is_answered_with_a_close_frame(tokens: tuple[str, ...], why: str) -> None:
    """WS-07: the WebSocket is open, so it is closed with 1002, and not one octet of AMQP is sent."""
    script = Script(answer=lambda request: upgraded(request, *tokens))
    with serving(script) as (_, url):
        with pytest.raises(ConnectionFailedError, match=why):
            call(f"{url}?binding=cs01")
        wait_until(lambda: script.frames)
    assert len(script.requests) == 1
    (frame,) = script.frames
    assert (frame.opcode, frame.data[:2]) == (Opcode.CLOSE, (1002).to_bytes(2, "big"))


def test_ws06_ws08_http_redirects_are_followed() -> None:
    """WS-06, WS-08: to another server, path and query; not in a circle, and never out of TLS or into it."""
    goal = Script()
    with serving(goal) as (peer, _):
        location = f"ws://127.0.0.1:{peer.port}/x?a=b"
        script = Script(answer=lambda request: response(302, Location=location))
        with serving(script) as (_, url):
            call(url)
    assert [each.path for each in goal.requests] == ["/x?a=b"]

    script = Script(answer=lambda request: response(307, Location="/again"))
    with serving(script) as (_, url), pytest.raises(ConnectionFailedError, match="redirected 6 times"):
        call(url)
    for location, why in (
        ("wss://127.0.0.1/", "a redirect must neither leave nor begin TLS"),
        ("ftp://x", "not a valid target"),
    ):
        script = Script(answer=lambda request, location=location: response(302, Location=location))
        with serving(script) as (_, url), pytest.raises(ConnectionFailedError, match=why):
            call(url)


def test_ws08_a_redirect_within_an_ipv6_address() -> None:
    """WS-08: a path alone keeps host and port."""
    client = WebSocketClient(login_of("amqp+ws://[::1]:8080/a", {}, AmqpOptions()))
    client.begin()
    with pytest.raises(DetourError) as found:
        client.receive(b"HTTP/1.1 307 Because\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n")
    goal = found.value.login
    assert (goal.host, goal.port, goal.path) == ("::1", 8080, "/b")


def test_ws09_ws10_http_may_ask_for_a_login() -> None:
    """WS-06, WS-09, WS-10: it gets user and password when it asks; SASL has its own part of the login."""

    def answer(request: Request) -> Response | None:
        known = f"Basic {base64.b64encode(b'u:p').decode()}"
        is_known = request.headers.get("Authorization") == known
        return None if is_known else response(401, WWW_Authenticate="Basic")

    script = Script(answer=answer)
    with serving(script) as (peer, url):
        call(url.replace("amqp+ws://", "amqp+ws://u:p@"), mechanism="ANONYMOUS")
        assert len(peer.containers) == 1
    assert ["Authorization" in each.headers for each in script.requests] == [False, True]
    for credentials in ("", "u:wrong@"):
        with serving(Script(answer=answer)) as (_, url), pytest.raises(LoginRefusedError, match="over HTTP") as caught:
            call(url.replace("amqp+ws://", f"amqp+ws://{credentials}"))
        assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "none"])
def test_ws11_to_ws21_one_header_or_frame_a_message(mechanism: str) -> None:
    """WS-11, WS-13 to WS-18, WS-20, WS-21: headers alone, each SASL and each AMQP frame a binary message."""
    script = Script()
    with serving(script) as (_, url):
        call(f"{url}?mechanism={mechanism}")
    messages = script.messages
    assert all(is_unit(each) for each in messages)
    assert messages[0] == (SASL if mechanism == "ANONYMOUS" else AMQP)
    if mechanism == "ANONYMOUS":
        assert messages[1][5] == 1
        assert messages[2] == AMQP
    assert {each.opcode for each in script.frames} <= {Opcode.BINARY, Opcode.CONT, Opcode.CLOSE, Opcode.PONG}


def test_ws12_no_mechanism_with_a_layer_of_its_own() -> None:
    """WS-12: of what servers offer none is ever chosen that would encrypt."""
    with pytest.raises(ValueError, match=r"mechanism must be one of .*, got 'GSSAPI'"):
        login_of("amqp+ws://host?mechanism=GSSAPI", {}, AmqpOptions())


def test_ws16_after_a_refused_login_the_socket_is_closed() -> None:
    """WS-16: no AMQP header follows."""
    script = Script()
    with (
        serving(script, sasl="EXTERNAL") as (_, url),
        pytest.raises(LoginRefusedError, match="does not offer ANONYMOUS"),
    ):
        call(url)
    assert AMQP not in script.messages


def test_ws19_another_version_ends_it() -> None:
    """WS-19: a server that answers with a version of AMQP that we do not speak is told so, and left."""
    script = Script(cut=lambda octets: frames_of(octets.replace(AMQP, b"AMQP\x00\x02\x00\x00")))
    with serving(script) as (_, url), pytest.raises(ConnectionFailedError, match="Expected AMQP protocol header"):
        call(url)


def test_ws20_text_messages_fail_the_connection() -> None:
    """WS-20: AMQP is binary; a text message is answered with 1003."""
    script = Script(opcode=Opcode.TEXT)
    with serving(script) as (_, url):
        with pytest.raises(ConnectionFailedError, match="a text message, but AMQP is binary"):
            call(url)
        wait_until(lambda: script.frames[-1].opcode is Opcode.CLOSE)
    assert script.frames[-1].data[:2] == (1003).to_bytes(2, "big")


CUTS: dict[str, Callable[[bytes], list[bytes]]] = {
    "joined": lambda octets: [octets],
    "octet by octet": lambda octets: [octets[at : at + 1] for at in range(len(octets))],
    "threes": lambda octets: [octets[at : at + 3] for at in range(0, len(octets), 3)],
    "with empty ones": lambda octets: [b"", octets, b""],
}


@pytest.mark.parametrize("cut", CUTS)
def test_ws21_messages_are_a_stream_but_for_the_draft(cut: str) -> None:
    """WS-21: what CS01 allows is read however it is cut; the draft's readers end at the first such message."""
    for binding in ("cs01", "lenient"):
        with serving(Script(cut=CUTS[cut])) as (_, url):
            call(f"{url}?binding={binding}")
    script = Script(tokens=("AMQPWSB10",), cut=CUTS[cut])
    with serving(script) as (_, url), pytest.raises(ConnectionFailedError, match="not one AMQP frame"):
        call(f"{url}?binding=csprd01")


@pytest.mark.parametrize("binding", ["csprd01", "cs01"])
def test_ws22_ws38_messages_in_fragments_with_pings_between(binding: str) -> None:
    """WS-22, WS-38: WebSocket may cut messages; pings are answered at any time, and are nothing to AMQP."""
    script = Script(tokens=("amqp", "AMQPWSB10"), fragment=5, ping=True)
    with serving(script) as (_, url):
        call(f"{url}?binding={binding}")
    assert Opcode.PONG in {each.opcode for each in script.frames}


def test_ws22_large_frames_go_out_in_fragments() -> None:
    """WS-22: no WebSocket frame of ours has more than 32 KiB, as some servers take no larger ones."""
    script = Script()
    with serving(script) as (_, url), brokers.connect(url, timeout=PATIENCE, reconnect=False) as connection:
        connection.send(text(queue("q"), "x" * 300_000)).result(PATIENCE)
    assert max(len(each.data) for each in script.frames) <= 1 << 15
    assert all(is_unit(each) for each in script.messages)


def test_ws23_to_ws25_redirects_stay_on_websocket() -> None:
    """WS-23, WS-24, WS-25: to the network-host and port, with the hostname for HTTP and AMQP, and to the path."""
    goal = Script()
    with serving(goal) as (there, _):
        info = {
            symbol("network-host"): "127.0.0.1",
            symbol("hostname"): "other.example",
            symbol("port"): there.port,
            symbol("path"): "x",
        }
        with serving(Script(), closes_with=Condition("amqp:connection:redirect", "busy", info)) as (_, url):
            call(url)
    (request,) = goal.requests
    assert (request.path, request.headers["Host"]) == ("/x", f"other.example:{there.port}")
    opened = next(each for each in goal.messages if each[8:11] == b"\x00\x53\x10")
    assert b"other.example" in opened


def test_ws26_ws27_redirected_links_stay_on_websocket() -> None:
    """WS-23, WS-26, WS-27: to the path, with the hostname, and to the address; the first connection stays."""
    goal, first = Script(), Script()
    with serving(goal, offers=()) as (there, _):
        info = {
            symbol("network-host"): "127.0.0.1",
            symbol("hostname"): "other.example",
            symbol("port"): there.port,
            symbol("path"): "/x?y",
            symbol("address"): "q2",
        }
        moved = Condition("amqp:link:redirect", "busy", info)
        with (
            serving(first, offers=(), refuses={"q": moved}) as (peer, url),
            brokers.connect(url, timeout=PATIENCE, reconnect=False) as connection,
        ):
            connection.send(text(queue("q"))).result(PATIENCE)
            connection.send(text(queue("stays"))).result(PATIENCE)
        assert [link.address for link in there.attached] == ["q2"]
        assert [link.address for link in peer.attached] == ["q", "stays"]
    (request,) = goal.requests
    assert (request.path, request.headers["Host"]) == ("/x?y", f"other.example:{there.port}")
    assert len(first.requests) == 1


def test_ws26_ws27_consumers_that_are_redirected_late() -> None:
    """WS-26, WS-27: a consumer that the broker had let in goes to the path and address that it names afterwards."""
    goal, first = Script(), Script()
    with serving(goal) as (there, _), serving(first) as (peer, url):
        info = {
            symbol("network-host"): "127.0.0.1",
            symbol("port"): there.port,
            symbol("path"): "/x?y",
            symbol("address"): "q2",
        }
        with brokers.connect(url, timeout=PATIENCE, reconnect=False) as connection:
            connection.consume(queue("q"), lambda delivery: None)

            def end() -> None:
                (link,) = peer.links.values()
                link.condition = Condition("amqp:link:redirect", "busy", info)
                link.close()

            peer.do(end)
            wait_until(lambda: [link.address for link in there.attached] == ["q2"])
    assert [request.path for request in goal.requests] == ["/x?y"]
    assert len(first.requests) == 1


def test_ws28_ws29_ws30_amqp_is_closed_before_the_websocket() -> None:
    """WS-28, WS-29: close goes out before the WebSocket's Close with code 1000, and nothing after it."""
    script = Script()
    with serving(script) as (_, url):
        call(url)
        wait_until(lambda: script.frames[-1].opcode is Opcode.CLOSE)
    kinds = [(each.opcode, each.data[8:11]) for each in script.frames]
    assert kinds[-2:] == [(Opcode.BINARY, b"\x00\x53\x18"), (Opcode.CLOSE, b"")] or kinds[-2][1] == b"\x00\x53\x18"
    assert script.frames[-1].data[:2] == (1000).to_bytes(2, "big")


def test_ws30_a_close_is_answered() -> None:
    """WS-30, WS-40: a server's Close is echoed; without AMQP's own close before it the connection is lost."""
    script = Script()
    with serving(script) as (peer, url):
        with brokers.connect(url, timeout=PATIENCE, reconnect=False) as connection:
            peer.do(lambda: script.carriers[0]._socket.send_close(1001))
            wait_until(lambda: connection.state is ConnectionState.LOST)
            with pytest.raises(ConnectionLostError):
                connection.begin()
        wait_until(lambda: [each.opcode for each in script.frames].count(Opcode.CLOSE) == 1)


def test_ws30_the_reason_of_a_close_is_told() -> None:
    """WS-30: gateways say why in it, as there is no AMQP to say it in."""
    script, why = Script(), r"was lost: the WebSocket was closed with 1008 \(policy violation\) not today$"
    with serving(script) as (peer, url), brokers.connect(url, timeout=PATIENCE, reconnect=False) as connection:
        peer.do(lambda: script.carriers[0]._socket.send_close(1008, "not today\nor tomorrow"))
        wait_until(lambda: connection.state is ConnectionState.LOST)
        with pytest.raises(ConnectionLostError, match=why):
            connection.begin()


def test_ws40_a_lost_socket_is_a_lost_connection() -> None:
    """WS-40: nobody said close."""
    with serving(Script()) as (peer, url), brokers.connect(url, timeout=PATIENCE, reconnect=False) as connection:
        peer.cut()
        wait_until(lambda: connection.state is ConnectionState.LOST)


@pytest.mark.parametrize(
    ("url", "port", "has_tls"),
    [("amqp+ws://host", 80, False), ("amqp+wss://host", 443, True), ("amqp+ws://h:1", 1, False)],
)
def test_ws31_to_ws33_schemes_and_ports(url: str, port: int, has_tls: bool) -> None:
    """WS-31, WS-32, WS-33: the ports are those of HTTP unless given; with wss there is TLS below WebSocket."""
    login = login_of(url, {}, AmqpOptions())
    assert (login.port, login.tls is not None) == (port, has_tls)


@pytest.mark.parametrize(("scheme", "carrier"), [("amqps", None), ("amqp+wss", Script())])
def test_ws31_the_same_over_tls(scheme: str, carrier: Script | None, tmp_path: Path) -> None:
    """WS-31: below AMQP and below WebSocket alike; the certificate is checked."""
    authority, context, trusted = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tmp_path / "ca.pem"
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(trusted)
    with Peer(carrier=carrier, tls=context) as peer:
        url = f"{scheme}://localhost:{peer.port}"
        call(f"{url}?caFile={trusted}")
        with pytest.raises(TlsError, match="authority that is not trusted here"):
            call(url)
        with pytest.raises(TlsError, match="another name than 127"):
            call(f"{url.replace('localhost', '127.0.0.1')}?caFile={trusted}")


def test_ws34_no_tls_within_amqp() -> None:
    """WS-34: the header of AMQP's own TLS is never sent."""
    script = Script()
    with serving(script) as (_, url):
        call(url)
    assert not any(each.startswith(b"AMQP\x02") for each in script.messages)


def test_ws37_what_clients_send_is_masked() -> None:
    """WS-37: every frame after the handshake has the mask bit."""
    script = Script()
    with serving(script) as (_, url):
        call(url)
    stream = b"".join(script.octets)
    at = stream.index(b"\r\n\r\n") + 4
    while at < len(stream):
        assert stream[at + 1] & 0x80
        length = stream[at + 1] & 0x7F
        extra = {126: 2, 127: 8}.get(length, 0)
        length = int.from_bytes(stream[at + 2 : at + 2 + extra], "big") if extra else length
        at += 2 + extra + 4 + length


def test_ws39_signs_of_life_are_amqps() -> None:
    """WS-39: empty frames of eight octets keep the connection, each a message of its own."""
    script = Script()
    with (
        serving(script, idle=0.2, notices_silence=False) as (_, url),
        brokers.connect(url, timeout=PATIENCE, reconnect=False) as connection,
    ):
        wait_until(lambda: script.messages.count(b"\0\0\0\x08\x02\0\0\0") >= 2)
        connection.send(text()).result(PATIENCE)


def test_ws41_messages_larger_than_any_limit_are_refused() -> None:
    """WS-41: a message may be larger than an AMQP frame, and has an end nevertheless."""
    script = Script(cut=lambda octets: [b"\0" * (MAX_MESSAGE_OCTETS + 1001)])
    with serving(script) as (_, url), pytest.raises(ConnectionFailedError):
        call(url, max_message=1000)


def test_bindings_are_for_websocket() -> None:
    """The caller's mistakes are told at once."""
    for url, why in (
        ("amqp://host?binding=cs01", "must begin with amqp\\+ws://"),
        ("amqp+ws://host?binding=rfc", "binding must be one of csprd01, cs01, lenient"),
    ):
        with pytest.raises(ValueError, match=why):
            brokers.connect(url)


@given(st.lists(st.binary(max_size=40).map(lambda body: (8 + len(body)).to_bytes(4, "big") + b"\2\0\0\0" + body)))
def test_octets_are_cut_where_frames_end(frames: list[bytes]) -> None:
    """Whatever proton joins, and however little of the last frame is there."""
    octets = SASL + AMQP + b"".join(frames)
    assert list(units(octets)) == [SASL, AMQP, *frames] == frames_of(octets)
    for end, _ in zip(range(len(octets)), pairwise(octets), strict=False):
        assert b"".join(units(octets[:end])) == octets[:end]
        assert all(is_unit(each) for each in list(units(octets[:end]))[:-1])
