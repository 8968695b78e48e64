"""Servers that are linked: how far a message goes, and that each has it once."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from threading import Thread
from time import monotonic

import pytest
from smqp_kit import CREATED, PATIENCE, Raw, Running, attribute, eventually, publication, running

from brokers.smqp.client import ClientOptions
from brokers.smqp.server import Options, Peer, Right, Server

LINKED = ClientOptions(timeout=10.0, renew=(0.02, 0.1))


class Net:
    """Servers a, b, c, ... and the links between them."""

    def __init__(self, stack: ExitStack, names: str) -> None:
        self.servers = {name: stack.enter_context(running(context=f"{name}.example")) for name in names}
        for server in self.servers.values():
            server.topics("/t", "/u")
            server.accounts("user")

    def link(self, begin: str, end: str, *topics: str, rights: Right = Right.REMOTE) -> None:
        """Let one server pass messages on to another."""
        accepting = self.servers[end]
        accepting.accounts(f"peer-{begin}", rights=Right.PUBLISH | Right.SUBSCRIBE | rights, is_peer=True)
        self.servers[begin].server.link(self.peer(begin, end, *topics))

    def peer(self, begin: str, end: str, *topics: str) -> Peer:
        host, port = self.servers[end].address
        return Peer(
            context=f"{end}.example",
            host=host,
            port=port,
            account=f"peer-{begin}",
            password="pw",
            topics=topics or ("*",),
            options=LINKED,
        )

    def subscribers(self, topic: str = "/t") -> dict[str, Raw]:
        """Subscribe at every server."""
        clients = {name: server.client("user") for name, server in self.servers.items()}
        for client in clients.values():
            client.data(f"SUB MESSAGE {topic}")
        return clients

    def settle(self) -> None:
        """Wait until nothing is to be passed on."""
        eventually(lambda: not any(self.forwards(server) for server in self.servers.values()))

    def forwards(self, server: Running) -> int:
        count: int = server.server.engine.core.database.row("SELECT COUNT(*) FROM forwards")[0]
        return count


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Close all that a test opened."""
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(("depth", "reached"), [(0, "a"), (1, "ab"), (2, "abc"), (3, "abc"), (-1, "abc")])
def test_SM_196_SM_231_SM_236_three_in_a_row(stack: ExitStack, depth: int, reached: str) -> None:
    """A message goes as many servers further as its Depth says: a to b to c."""
    net = Net(stack, "abc")
    net.link("a", "b")
    net.link("b", "c")
    clients = net.subscribers()
    clients["a"].publish("/t", "1", f"Depth: {depth}", data="x")
    for name in reached:
        lines = clients[name].received()
        assert lines[0] == ("NOTIFY MESSAGE /t" if name == "a" else "NOTIFY MESSAGE a.example/t")  # SM-237
        assert attribute(lines, "Smuid") == "a.example/1"
        assert attribute(lines, "Cmuid") == "user/user0001/1"
    net.settle()
    assert [name for name, server in net.servers.items() if server.server.engine.core.messages.count(1)] == list(
        reached
    )


def test_SM_234_a_peer_may_go_no_further_than_its_rights(stack: ExitStack) -> None:
    """What it passes on ends at a server where it has not the right to remote servers."""
    net = Net(stack, "abc")
    net.link("a", "b", rights=Right.NONE)
    net.link("b", "c")
    clients = net.subscribers()
    clients["a"].publish("/t", "1", "Depth: -1")
    assert attribute(clients["b"].received(), "Smuid") == "a.example/1"
    net.settle()
    clients["b"].publish("/t", "2", "Depth: 1")
    assert attribute(clients["c"].received(), "Smuid") == "b.example/2"


def test_SM_236_without_a_depth_a_message_stays(stack: ExitStack) -> None:
    """The default is 0."""
    net = Net(stack, "ab")
    net.link("a", "b")
    clients = net.subscribers()
    clients["a"].publish("/t", "1")
    clients["a"].publish("/t", "2", "Depth: 1")
    assert attribute(clients["b"].received(), "Smuid") == "a.example/2"


@pytest.mark.parametrize("depth", [-1, 3, 10])
def test_SM_238_a_ring(stack: ExitStack, depth: int) -> None:
    """Round and round and both ways: each server has each message once, and its subscribers too."""
    net = Net(stack, "abc")
    for begin, end in ("ab", "bc", "ca", "ba", "cb", "ac"):
        net.link(begin, end)
    clients = net.subscribers()
    for name, client in clients.items():
        client.publish("/t", f"from-{name}", f"Depth: {depth}")
    net.settle()
    for name, client in clients.items():
        seen = [attribute(client.received(), "Smuid").partition("/")[0] for _ in range(3)]
        assert sorted(seen) == ["a.example", "b.example", "c.example"], name
        assert client.data("COUNT MESSAGE /t") == ["3"]
        assert client.notify.is_silent()


def test_SM_235_without_subscribers_nothing_is_passed_on(stack: ExitStack) -> None:
    """Not to a server where nobody subscribes, when the message could go no further from there."""
    net = Net(stack, "ab")
    net.link("a", "b")
    alice, bob = net.servers["a"].client("user"), net.servers["b"].client("user")
    alice.publish("/t", "1", "Depth: 1")
    net.settle()
    assert bob.data("COUNT MESSAGE /t") == ["0"]
    bob.data("SUB MESSAGE /t")
    numbers = [1]

    def publish_one_more() -> bool:
        numbers.append(alice.publish("/t", str(len(numbers) + 1), "Depth: 1"))
        net.settle()
        return bob.data("COUNT MESSAGE /t") != ["0"]

    eventually(publish_one_more, "the news that somebody subscribes may take a moment")
    assert attribute(bob.received(), "Smuid") == f"a.example/{numbers[-1]}"
    bob.data("UNSUB *")


def test_only_what_may_go_there(stack: ExitStack) -> None:
    """SM-233: the link names its topics, and the other server decides what the peer may do."""
    net = Net(stack, "ab")
    net.link("a", "b", "/t", "/u")
    net.servers["b"].grant("peer-a", "/u", Right.SUBSCRIBE)
    for server in net.servers.values():
        server.topics("/v")
    clients = net.subscribers("/t")
    for topic in ("/u", "/v"):
        clients["b"].data(f"SUB MESSAGE {topic}")
    counts = net.servers["a"].server._links["b.example"]._interest.counts
    eventually(lambda: counts == {"/t": 1, "/u": 1}, "the link knows who subscribes there")
    for number, topic in enumerate(("/u", "/v", "/t")):
        clients["a"].publish(topic, str(number), "Depth: 1")
    assert clients["b"].received()[0] == "NOTIFY MESSAGE a.example/t"
    net.settle()


def test_what_a_peer_is_trusted_with(stack: ExitStack) -> None:
    """SM-230 SM-232: it logs in like a client; only its account may name another server, and with both identifiers."""
    net = Net(stack, "a")
    server = net.servers["a"]
    server.accounts("peer", is_peer=True, rights=Right.PUBLISH)
    peer, user = server.client("peer", listen=False), server.client("user")
    user.data("SUB MESSAGE /t")
    ids = ["Smuid: x.example/orange/7", "Cmuid: bob/bob0001/1"]
    assert user.code(*publication("PUB MESSAGE x.example/orange/t 1", *ids)) == 400
    assert peer.code(*publication("PUB MESSAGE y.example/t 1", *ids)) == 400
    assert peer.code(*publication("PUB MESSAGE x.example/orange/t 1", ids[0])) == 400
    assert peer.code(*publication("PUB MESSAGE x.example/orange/none 1", *ids)) == 404
    assert peer.data(*publication("PUB MESSAGE x.example/orange/t 1", *ids)) == ["1 1"]
    assert peer.data(*publication("PUB MESSAGE x.example/orange/t 2", *ids)) == ["2 1"]
    lines = user.received()
    assert lines[0] == "NOTIFY MESSAGE x.example/orange/t"
    assert lines[1:4] == [CREATED, *ids]
    # one's own message that comes back is known too
    assert peer.data(*publication("PUB MESSAGE a.example/t 3", "Smuid: a.example/1", ids[1])) == ["3 1"]
    user.send("GET MESSAGE /t 1\r\n")
    assert user.reply() == ["200 OK"]
    assert user.until(b"\r\n.\r\n\r\n").startswith(b"Topic: x.example/orange/t\r\n")


def test_messages_wait_for_a_server_that_is_away(stack: ExitStack) -> None:
    """They are passed on when it is there, in order, each once."""
    net = Net(stack, "ab")
    accepting = net.servers["b"]
    accepting.accounts("peer-a", rights=Right.PUBLISH | Right.SUBSCRIBE, is_peer=True)
    bob = accepting.client("user")
    bob.data("SUB MESSAGE /t")
    with socket.create_server(("127.0.0.1", 0)) as door:  # where connections end at once, until it is opened
        door.settimeout(PATIENCE)
        net.servers["a"].server.link(
            Peer(
                context="b.example",
                host="127.0.0.1",
                port=door.getsockname()[1],
                account="peer-a",
                password="pw",
                options=LINKED,
            )
        )
        alice = net.servers["a"].client("user")
        smuids = [alice.publish("/t", str(number), "Depth: 1") for number in range(5)]
        for _ in range(3):
            door.accept()[0].close()
        pipe = Thread(target=_pipe, args=(door.accept()[0], accepting.address), daemon=True)
        pipe.start()
        assert [bob.smuid() for _ in smuids] == smuids
        net.settle()


def _pipe(inner: socket.socket, address: tuple[str, int]) -> None:
    """Connect a socket to an address."""
    outer = socket.create_connection(address)

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, target):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)  # which ends what waits in another thread, as closing does not

    back = Thread(target=copy, args=(outer, inner), daemon=True)
    back.start()
    copy(inner, outer)
    back.join()
    inner.close()
    outer.close()


def test_a_link_has_a_name_of_its_own(stack: ExitStack) -> None:
    """Two links to one server would pass everything on twice."""
    net = Net(stack, "ab")
    net.link("a", "b")
    with pytest.raises(ValueError, match=r"b\.example"):
        net.servers["a"].server.link(net.peer("a", "b"))


def test_a_server_that_is_closed_while_another_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It does not wait for the other one, which may take as long as it likes; nothing is logged about the link then."""
    silent = socket.create_server(("127.0.0.1", 0))
    peer = Peer(
        context="b.example",
        host="127.0.0.1",
        port=silent.getsockname()[1],
        account="a",
        password="pw",
        options=ClientOptions(timeout=10 * PATIENCE),
    )
    server = Server(":memory:", Options())
    server.link(peer)
    other = silent.accept()[0]
    closing = Thread(target=server.close, daemon=True)
    closing.start()
    closing.join(PATIENCE)
    is_closed = not closing.is_alive()
    link = server._links["b.example"]
    other.close()
    link.join(monotonic() + PATIENCE)
    silent.close()
    closing.join(PATIENCE)
    assert is_closed
    assert not caplog.records
