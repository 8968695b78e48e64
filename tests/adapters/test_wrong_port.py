"""brokers.adapter.wrong_port: a URL that leads to the port of something else, over every transport."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

import pytest
import trustme
from real_brokers import RealBroker

import brokers
from brokers import ConnectionFailedError, ConnectionState
from brokers.adapter.wrong_port import HEAD_OCTETS, SPEAKERS, seen
from brokers.network_schemes import NETWORK_SCHEMES

PATIENCE = 30.0
MAX_CHARACTERS = 400


@contextmanager
def speaking(words: bytes, *, first: bool, tls: ssl.SSLContext | None = None, stays: bool = True) -> Iterator[int]:
    """Write these octets to each client, at once or in answer to its first ones; then keep the connection, or not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = []

        def serve(client: socket.socket) -> None:
            with suppress(OSError), client if tls is None else tls.wrap_socket(client, True) as served:
                served.settimeout(PATIENCE)
                if not first:
                    served.recv(4096)
                served.sendall(words)
                while stays and served.recv(4096):
                    pass

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threads.append(threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True))
                    threads[-1].start()

        threads.append(threading.Thread(target=accept, daemon=True))
        threads[0].start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for each in threads:
                each.join(PATIENCE)
                assert not each.is_alive()


def refusal(url: str, timeout: float = PATIENCE, **options: Any) -> str:
    """Return the error of a connection to a URL: one line, that a terminal shows as it is, without the password."""
    with pytest.raises(ConnectionFailedError) as caught:
        brokers.connect(url, timeout=timeout, **options)
    text = str(caught.value)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) < MAX_CHARACTERS
    assert "s3cret" not in text
    return text


OPENWIRE = b"\x00\x00\x01\x51\x01ActiveMQ\x00\x00\x00\x0c\x01\x00\x00\x01\x3f\x00\x00\x00\x0d"
TALKERS = {
    "OpenWire": OPENWIRE,
    "SSH": b"SSH-2.0-OpenSSH_9.9\r\n",
    "SMTP": b"220 mail.example ESMTP Postfix\r\n",
    "SMTP or FTP": b"220 (vsFTPd 3.0.5)\r\n",
    "POP3": b"+OK Dovecot ready.\r\n",
    "IMAP": b"* OK [CAPABILITY IMAP4rev1] ready\r\n",
    "MySQL": b"\x4a\x00\x00\x00\x0a8.0.40\x00\x0b\x00\x00\x00\x1b\x5b\x32\x4a",
    "NATS": b'INFO {"server_id":"x"}\r\n',
    "Telnet": b"\xff\xfd\x18\xff\xfd\x20",
    "HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80",
}
"""What speaks first, whoever comes."""

ANSWERS = {
    "HTTP": b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html>",
    "TLS": b"\x15\x03\x03\x00\x02\x02\x0a",
    "AMQP with a login": b"AMQP\x03\x01\x00\x00",
    "AMQP without a login": b"AMQP\x00\x01\x00\x00",
    "AMQP 0-9-1 or older": b"AMQP\x00\x00\x09\x01",
    "Redis": b"-ERR unknown command 'CONNECT'\r\n",
}
"""What speaks when it was spoken to."""

TITLES = {scheme: way.title for scheme, way in NETWORK_SCHEMES.items()}
PLAIN = [scheme for scheme, way in NETWORK_SCHEMES.items() if not way.is_secure]
SECURE = [scheme for scheme, way in NETWORK_SCHEMES.items() if way.is_secure]


def url_of(scheme: str, port: int) -> str:
    return f"{scheme}://me:s3cret@127.0.0.1:{port}"


@pytest.mark.parametrize("scheme", PLAIN)
@pytest.mark.parametrize("who", TALKERS)
def test_who_speaks_first(scheme: str, who: str) -> None:
    """It is named at once, with what was expected and the URL with the usual port."""
    with speaking(TALKERS[who], first=True) as port:
        begun = monotonic()
        said = refusal(url_of(scheme, port))
        assert monotonic() - begun < PATIENCE
    way = NETWORK_SCHEMES[scheme]
    assert said.startswith(f"{scheme}://127.0.0.1:{port} speaks {who}")
    assert f", not {way.title}; " in said
    if scheme != "amqp+ws":
        assert said.endswith(f"write {scheme}://127.0.0.1:{way.port}, the usual port for {way.title}")


@pytest.mark.parametrize("scheme", ["stomp", "amqp+ws"])
@pytest.mark.parametrize("who", ANSWERS)
@pytest.mark.parametrize("stays", [True, False])
def test_who_answers(scheme: str, who: str, stays: bool) -> None:
    """It is named, whether it keeps the connection or not."""
    if (scheme, who) == ("amqp+ws", "HTTP"):
        return  # that is what was expected
    with speaking(ANSWERS[who], first=False, stays=stays) as port:
        assert f" speaks {who}" in refusal(url_of(scheme, port))


@pytest.mark.parametrize(
    ("who", "other"),
    [("HTTP", "amqp+ws"), ("TLS", "stomp+ssl"), ("AMQP with a login", "amqp"), ("AMQP without a login", "amqp")],
)
def test_the_url_that_would_reach_it(who: str, other: str) -> None:
    """Where one of our schemes speaks what the port speaks, it is said first."""
    with speaking(ANSWERS[who], first=False) as port:
        said = refusal(url_of("stomp", port))
    assert (
        f"; write {other}://127.0.0.1:{port} for {NETWORK_SCHEMES[other].title}, or stomp://127.0.0.1:61613, the usual"
        in said
    )


def test_other_protocols_of_ours() -> None:
    """STOMP and SMQP are known to each other and to AMQP."""
    with speaking(b"SMQP/1.0 Ready.\r\n", first=True) as port:
        for scheme in ("stomp", "amqp"):
            assert f"speaks SMQP ('SMQP/1.0 Ready.'), not {TITLES[scheme]}; write smqp://127.0.0.1:{port}" in (
                refusal(url_of(scheme, port))
            )
    with speaking(b"ERROR\nmessage:what?\n\n\0", first=False) as port:
        assert f"; write stomp://127.0.0.1:{port} for STOMP" in refusal(url_of("amqp", port))


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("who", ["OpenWire", "SSH", "MySQL"])
def test_a_port_without_tls(scheme: str, who: str) -> None:
    """What speaks without TLS is named too, though OpenSSL would only say that the version is wrong."""
    with speaking(TALKERS[who], first=True) as port:
        said = refusal(url_of(scheme, port))
    assert f" speaks {who}" in said
    assert f", not {NETWORK_SCHEMES[scheme].title}" in said


@pytest.mark.parametrize("scheme", SECURE)
def test_who_resets_at_a_greeting(scheme: str) -> None:
    """A peer that speaks first, and resets the connection at our greeting, is asked once more, and named."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                for number in range(2):
                    client, _ = listener.accept()
                    with client:
                        if number:
                            client.sendall(OPENWIRE)
                        client.settimeout(PATIENCE)
                        client.recv(1)  # the rest stays unread, so that the end is a reset

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        said = refusal(url_of(scheme, listener.getsockname()[1]))
        thread.join(PATIENCE)
    assert " speaks OpenWire" in said


def test_our_own_protocol_without_tls() -> None:
    """The URL without TLS is the one to write."""
    with speaking(b"SMQP/1.0 Ready.\r\n", first=True) as port:
        assert f", not SMQP over TLS; write smqp://127.0.0.1:{port} for SMQP" in refusal(url_of("smqps", port))
    with speaking(b"AMQP\x03\x01\x00\x00", first=False) as port:
        assert f"; write amqp://127.0.0.1:{port} for AMQP 1.0, or amqps://" in refusal(url_of("amqps", port))
        assert f"; write amqp://127.0.0.1:{port} for AMQP 1.0" in refusal(url_of("amqp+wss", port))


def test_within_tls() -> None:
    """What speaks another protocol over TLS has a URL with TLS."""
    made = trustme.CA()
    server, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    made.issue_cert("localhost").configure_cert(server)
    made.configure_trust(trusting)
    with speaking(ANSWERS["AMQP with a login"], first=False, tls=server) as port:
        said = refusal(f"stomp+ssl://localhost:{port}", tls=trusting)
    assert f"speaks AMQP with a login, not STOMP over TLS; write amqps://localhost:{port} for AMQP over TLS" in said


@pytest.mark.parametrize("scheme", [*PLAIN, *SECURE])
def test_who_says_nothing(scheme: str) -> None:
    """The error of the time-out names the schemes that the port may be for."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = refusal(url_of(scheme, silent.getsockname()[1]), timeout=0.5)
    assert f"; perhaps its port is not for {scheme}://" in said
    assert all(f" {each}://" in said for each in NETWORK_SCHEMES)


@pytest.mark.parametrize("scheme", PLAIN)
def test_who_leaves_without_a_word(scheme: str) -> None:
    """The same, at once."""
    with speaking(b"", first=scheme == "smqp", stays=False) as port:
        said = refusal(url_of(scheme, port))
    assert f"perhaps its port is not for {scheme}://" in said or scheme == "amqp"


def test_unknown_noise() -> None:
    """Octets are shown in hexadecimal, text in quotes; neither has more than a line, nor characters of control."""
    with speaking(b"\x1b[2J\x07\xfe" + bytes(range(256)) * 40, first=True) as port:
        assert " answered 1b 5b 32 4a 07 fe 00 01, which is not STOMP; write stomp://" in refusal(url_of("stomp", port))
    with speaking(b"hello " * 1000, first=True) as port:
        assert re.search(r" answered 'hello hello [hello ]{,60}', which is not STOMP", refusal(url_of("stomp", port)))
    assert seen(b"\r\nabc") == "0d 0a 61 62 63"
    assert len(seen(b"a" * 4096)) == HEAD_OCTETS + 2


def test_a_wrong_protocol_is_final() -> None:
    """`connect` comes once, though it would reconnect; another broker of a list is tried."""
    came = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            nonlocal came
            with suppress(OSError):
                while True:
                    with listener.accept()[0] as client:
                        came += 1
                        client.sendall(OPENWIRE)

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        assert "OpenWire" in refusal(url_of("stomp", port))
        assert came == 1
        listed = refusal(f"failover:(stomp://127.0.0.1:{port},stomp://localhost:{port})")
        assert listed.count("speaks OpenWire") == 2
        assert came == 3
        listener.shutdown(socket.SHUT_RDWR)


def test_line_ends_before_the_greeting() -> None:
    """They are heart-beats of STOMP: what comes after them counts."""
    with speaking(b"\n\r\n\nCONNECTED\nversion:1.2\nserver:ActiveMQ/6\n\n\0", first=False) as port:
        connection = brokers.connect(url_of("stomp", port), timeout=PATIENCE)
        assert connection.state is ConnectionState.CONNECTED
        connection.close(0.1)


def test_the_table_names_each_once() -> None:
    """One row for each protocol; each family is one of ours."""
    titles = [each.title for each in SPEAKERS]
    assert len(set(titles)) == len(titles)
    assert {each.family for each in SPEAKERS} - {""} <= {each.family for each in NETWORK_SCHEMES.values()}


@pytest.mark.broker
def test_ports_of_activemq(activemq: RealBroker) -> None:
    """Over STOMP each other port is named; nothing is binary."""
    ports = activemq.ports
    for url, why in {
        f"stomp://localhost:{ports.openwire}": "speaks OpenWire, the protocol of ActiveMQ's Java clients, not STOMP; "
        "write stomp://localhost:61613, the usual port for STOMP",
        f"stomp://localhost:{ports.amqp}": f"speaks AMQP .*; write amqp://localhost:{ports.amqp} for AMQP 1.0",
        f"stomp://localhost:{ports.ws}": f"speaks HTTP .*; write amqp[+]ws://localhost:{ports.ws} for AMQP over Web",
        f"stomp://localhost:{ports.tls}": f"speaks TLS, .*; write stomp[+]ssl://localhost:{ports.tls} for STOMP over",
        f"stomp+ssl://localhost:{ports.openwire}": "speaks OpenWire",
        f"stomp+ssl://localhost:{ports.amqp}": f"; write amqp://localhost:{ports.amqp} for AMQP 1.0",
        f"smqp://me:s3cret@localhost:{ports.openwire}": "speaks OpenWire, .* not SMQP; write smqp://localhost:720",
        f"stomp+ssl://localhost:{ports.stomp}": f"speaks STOMP .*; write stomp://localhost:{ports.stomp} for STOMP",
        f"amqp://localhost:{ports.stomp}": f"speaks STOMP .*; write stomp://localhost:{ports.stomp} for STOMP",
        f"amqp+ws://localhost:{ports.stomp}": "speaks STOMP",
        f"smqp://me:s3cret@localhost:{ports.stomp}": "speaks STOMP",
        f"smqp://me:s3cret@localhost:{ports.amqp}": "speaks AMQP",
        f"smqp://me:s3cret@localhost:{ports.ws}": "speaks HTTP",
        f"smqp://me:s3cret@localhost:{ports.tls}": "speaks TLS",
    }.items():
        begun = monotonic()
        assert re.search(why, refusal(url)), url
        assert monotonic() - begun < PATIENCE / 2, url


@pytest.mark.broker
def test_ports_of_artemis(artemis: RealBroker) -> None:
    """They stay silent, or end the connection, where an acceptor has one protocol; greeted in that, they answer."""
    ports = artemis.ports
    for url, why in {
        f"stomp://localhost:{ports.openwire}": "perhaps its port is not for",
        f"stomp://localhost:{ports.amqp}": "speaks AMQP",
        f"stomp://localhost:{ports.tls}": "speaks TLS",
        f"stomp+ssl://localhost:{ports.stomp}": "speaks STOMP",
        f"amqp://localhost:{ports.stomp}": "speaks STOMP",
        f"smqp://me:s3cret@localhost:{ports.stomp}": "speaks STOMP",
    }.items():
        assert why in refusal(url, timeout=5), url
