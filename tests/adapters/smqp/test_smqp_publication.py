"""The server: publishing, replying, receipts, priorities and timeouts; what is kept and for how long."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from smqp_kit import CREATED, Clock, Running, attribute, eventually, publication, running

import soapjms
from brokers import Message, MessageType, SendFailedError, queue
from brokers.smqp.protocol.dialect import LENIENT
from brokers.smqp.protocol.messages import SmqpLimits
from brokers.smqp.server import Right, TopicKind


@pytest.fixture
def server() -> Iterator[Running]:
    """Run a server with two accounts that may do everything."""
    with running() as server:
        server.accounts("alice", "bob")
        server.topics("/t")
        yield server


def test_SM_130_topic_and_cmuid_are_needed(server: Running) -> None:
    """Without them, and without Created, it is refused; the message is passed over."""
    client = server.client("alice", listen=False)
    for command in ("PUB MESSAGE", "PUB MESSAGE /t", "PUB MESSAGE t 1", "PUB MESSAGE /t 1 2", "PUB MESSAGE /t a,b"):
        assert client.code(*publication(command)) == 400
    assert client.code("PUB MESSAGE /t 1", "X-A: 1", "", ".") == 400  # SM-192
    assert client.code(*publication("PUB MESSAGE /none 1")) == 404
    assert client.code("NOOP") == 200


def test_SM_131_SM_145_every_subscriber_gets_every_message(server: Running) -> None:
    """Each of them, the publisher too if it subscribes."""
    server.accounts("carol")
    clients = [server.client(name) for name in ("alice", "bob", "carol")]
    for client in clients:
        client.data("SUB MESSAGE /t")
    smuids = [clients[0].publish("/t", str(number)) for number in range(3)]
    for client in clients:
        assert [client.smuid() for _ in smuids] == smuids


def test_SM_039_messages_come_first_in_first_out(server: Running) -> None:
    """Ten without a priority arrive in order."""
    subscriber, publisher = server.client("alice"), server.client("bob", listen=False)
    subscriber.data("SUB MESSAGE /t")
    subscriber.data("SET NOTIFY SUSPEND")
    smuids = [publisher.publish("/t", str(number)) for number in range(10)]
    subscriber.data("SET NOTIFY RESUME")
    assert [subscriber.smuid() for _ in smuids] == smuids


@pytest.mark.parametrize("ignored", [False, True])
def test_SM_040_SM_191_lower_numbers_of_priority_come_first(server: Running, ignored: bool) -> None:
    """By priority, those without one as if they had 10; within one in their order. A server may ignore it."""
    server.server.administer(lambda admin: admin.set_options(ignores_priority=ignored))
    subscriber, publisher = server.client("alice"), server.client("bob", listen=False)
    subscriber.data("SUB MESSAGE /t")
    subscriber.data("SET NOTIFY SUSPEND")
    priorities = ["Priority: 11", "Pri: 2", "X-None: 1", "Priority: 10", "Priority: 2"]
    smuids = [publisher.publish("/t", str(number), each) for number, each in enumerate(priorities)]
    order = smuids if ignored else [smuids[place] for place in (1, 4, 2, 3, 0)]
    subscriber.data("SET NOTIFY RESUME")
    assert [subscriber.smuid() for _ in smuids] == order


def test_SM_133_the_reply_names_the_message(server: Running) -> None:
    """The cmuid comes back, with a number of the server that grows; so does the same one for the same cmuid."""
    client = server.client("alice", listen=False)
    assert [client.publish("/t", each) for each in ("A", "B", "A")] == [1, 2, 1]
    assert client.data("COUNT MESSAGE /t") == ["2"]
    assert server.client("alice", listen=False).publish("/t", "A") == 3  # another session, another message
    server.topics("/u")
    assert [client.publish("/u", "A"), client.publish("/u", "A"), client.publish("/t", "A")] == [4, 4, 1]
    assert client.data("COUNT MESSAGE /u") == ["1"]


def test_SM_048_SM_135_SM_136_replies_go_back_and_forth(server: Running) -> None:
    """A reply reaches the login topic of who published, and nobody else; that one can reply in turn."""
    server.accounts("carol")
    alice, bob, carol = (server.client(name) for name in ("alice", "bob", "carol"))
    alice.data("SUB MESSAGE /accounts/alice")
    bob.data("SUB MESSAGE /accounts/bob")
    for client in (bob, carol):
        client.data("SUB MESSAGE /t")
    asked = alice.publish("/t", "A1", "Reply: YES")
    request = bob.received()
    assert carol.smuid() == asked
    ids = [f"{name}: {attribute(request, name)}" for name in ("Smuid", "Cmuid")]
    (line,) = bob.data(*publication("PUB REPLY /t R1", *ids, data="thanks"))
    reply = alice.received()
    assert reply[0] == "NOTIFY MESSAGE /accounts/alice"
    assert attribute(reply, "Cmuid") == "bob/bob0001/R1"
    assert attribute(reply, "X-In-Reply-To-Smuid") == f"mq.example/{asked}"
    assert attribute(reply, "X-In-Reply-To-Cmuid") == "alice/alice0001/A1"
    assert (reply[-1], line) == ("thanks", "R1 2")
    back = [f"{name}: {attribute(reply, name)}" for name in ("Smuid", "Cmuid")]
    alice.data(*publication("PUB REPLY /accounts/alice R2", *back, data="welcome"))
    assert bob.received()[-1] == "welcome"
    assert carol.publish("/t", "marker") == carol.smuid()


def test_SM_135_a_reply_needs_the_original(server: Running) -> None:
    """Its Smuid and Cmuid; an account that is there, on this server; the right to reply; the message itself."""
    client = server.client("bob", listen=False)
    server.client("alice", listen=False).publish("/t", "A1")
    smuid, cmuid = "Smuid: mq.example/1", "Cmuid: alice/alice0001/A1"
    for attributes in ((), (smuid,), (cmuid,), (smuid, "Cmuid: alice")):
        assert client.code(*publication("PUB REPLY /t R1", *attributes)) == 400
    assert client.code(*publication("PUB REPLY /t R1", smuid, "Cmuid: nobody/x/1")) == 404
    assert client.code(*publication("PUB REPLY /t R1", "Smuid: other.example/1", cmuid)) == 404
    assert client.code(*publication("PUB REPLY /none R1", smuid, cmuid)) == 404
    assert client.code(*publication("PUB REPLY /t R1", smuid, cmuid)) == 200
    assert client.code(*publication("PUB REPLY /t R1", smuid, cmuid)) == 200  # the same again
    other = server.client("alice", listen=False).publish("/t", "A2", "Reply: YES")
    ids = (f"Smuid: mq.example/{other}", "Cmuid: alice/alice0002/A2")
    assert client.code(*publication("PUB REPLY /t R1", *ids)) == 200  # to another message
    assert server.server.engine.core.database.row("SELECT COUNT(*) FROM messages")[0] == 4


def test_SM_138_SM_139_SM_141_messages_are_published_again() -> None:
    """From Trash, to all who are subscribed now; not while they are kept, not with a Sequence."""
    clock = Clock()
    with running(clock=clock) as server:
        server.accounts("alice", "bob", "carol")
        server.topics("/t", "/u")
        alice, bob, carol = (server.client(name) for name in ("alice", "bob", "carol"))
        alice.data("SUB MESSAGE /t")
        smuid = alice.publish("/t", "1", "Timeout: 00:01:00", data="again")
        sequenced = alice.publish("/t", "2", "Timeout: 00:01:00", "Seq: 1")
        assert [alice.smuid(), alice.smuid()] == [smuid, sequenced]
        assert alice.code(f"REPUB MESSAGE /t {smuid}") == 406
        clock.now += 61
        server.sweep()
        alice.data("UNSUB MESSAGE /t")
        for client in (bob, carol):
            client.data("SUB MESSAGE /t")
        for command in ("REPUB MESSAGE /t", "REPUB MESSAGE", f"REPUB MESSAGE /t {smuid} x", "REPUB MESSAGE /t x"):
            assert alice.code(command) == 400
        assert alice.code(f"REPUB MESSAGE /none {smuid}") == 404
        assert alice.code(f"REPUB MESSAGE /u {smuid}") == 406
        assert alice.code("REPUB MESSAGE /t 99") == 406
        assert alice.code(f"REPUB MESSAGE /t {sequenced}") == 406
        assert alice.ask(f"REPUBLISH MESS /t mq.example/{smuid}") == ["200 OK"]
        for client in (bob, carol):
            assert client.received()[-1] == "again"
        assert alice.data("LIST MESSAGE /t") == [str(smuid)]


def test_SM_138_a_message_of_a_queue_is_published_again() -> None:
    """It stays as long as when it was new, although its time is over."""
    clock = Clock()
    with running(clock=clock) as server:
        server.accounts("alice")
        server.topics("/queue", kind=TopicKind.QUEUE)
        server.topics("/queue/a")
        alice = server.client("alice")
        smuid = alice.publish("/queue/a", "1", "Timeout: 00:01:00", data="again")
        clock.now += 61
        server.sweep()
        assert alice.data("LIST MESSAGE /queue/a/Trash") == [str(smuid)]
        assert alice.code(f"REPUB MESSAGE /queue/a {smuid}") == 200
        clock.now += 59
        server.sweep()
        assert alice.data("LIST MESSAGE /queue/a") == [str(smuid)]
        alice.data("SUB MESSAGE /queue/a")
        assert alice.received()[-1] == "again"


def test_SM_193_a_receipt_is_sent_once(server: Running) -> None:
    """To the publisher's login topic, when the first subscriber has the message; not unless it was asked for."""
    publisher, first, second = server.client("alice"), server.client("bob"), server.client("bob")
    publisher.data("SUB MESSAGE /accounts/alice")
    first.data("SUB MESSAGE /t")
    plain = publisher.publish("/t", "0", "Receipt: NO")
    smuid = publisher.publish("/t", "1", "Receipt: YES")
    for client in (first, second):
        assert [client.smuid(), client.smuid()] == [plain, smuid]
    receipt = publisher.received()
    assert attribute(receipt, "X-Receipt-Smuid") == f"mq.example/{smuid}"
    assert attribute(receipt, "X-Receipt-Cmuid") == "alice/alice0001/1"
    assert attribute(receipt, "Cmuid") == f"server/0/R{smuid}"
    marker = publisher.publish("/t", "2", "Receipt: 1")
    assert first.smuid() == marker
    assert attribute(publisher.received(), "X-Receipt-Smuid") == f"mq.example/{marker}"


def test_SM_194_the_wish_for_a_reply_is_passed_on(server: Running) -> None:
    """As it was set, in one form; without it there is none."""
    client = server.client("alice")
    client.data("SUB MESSAGE /t")
    for number, line in enumerate(("Reply: 1", "X-None: 1")):
        client.publish("/t", str(number), line)
    assert attribute(client.received(), "Reply") == "YES"
    assert not [line for line in client.received() if line.startswith("Reply")]


def test_SM_195_SM_210_SM_213_the_time_of_a_message() -> None:
    """It begins when all who are there were informed; its length is the message's, the topic's, or the server's."""
    clock = Clock()
    with running(clock=clock, default_timeout=300.0) as server:
        server.accounts("alice", "bob")
        server.topics("/t", "/u")
        server.server.administer(lambda admin: admin.set_parameters("/u", timeout=200.0))
        client = server.client("alice")
        client.data("SUB MESSAGE /t")
        slow = client.publish("/t", "1", "Timeout: 00:01:40")
        client.notified()
        other = server.client("bob", listen=False)
        for number, (topic, lines) in enumerate([("/u", ("Timeout: 00:01:40",)), ("/u", ()), ("/u", ("X-A: 1",))]):
            other.publish(topic, str(number), *lines)
        clock.now += 101
        server.sweep()
        assert other.data("LIST MESSAGE /t") == [str(slow)]  # somebody is still to be informed
        assert other.data("LIST MESSAGE /u") == ["3-4"]
        client.acknowledge()
        clock.now += 99.5
        server.sweep()
        assert other.data("LIST MESSAGE /t") == [str(slow)]
        assert other.data("LIST MESSAGE /u") == []
        server.server.administer(lambda admin: admin.set_parameters("/u", timeout=None))
        by_default = other.publish("/u", "9")
        clock.now += 1
        server.sweep()
        assert other.data("LIST MESSAGE /t") == []
        clock.now += 298
        server.sweep()
        assert other.data("LIST MESSAGE /u") == [str(by_default)]
        clock.now += 2
        server.sweep()
        assert other.data("LIST MESSAGE /u") == []


def test_SM_195_SM_211_state_messages_stay() -> None:
    """A negative Timeout never ends; every new subscriber gets the message."""
    clock = Clock()
    with running(clock=clock, dialect=LENIENT) as server:
        server.accounts("alice", "bob")
        server.topics("/t", "/forever")
        server.server.administer(lambda admin: admin.set_parameters("/forever", timeout=float("inf")))
        publisher = server.client("alice", listen=False)
        smuid = publisher.publish("/t", "1", "Timeout: -00:00:01")
        publisher.publish("/forever", "2")
        clock.now += 10_000_000
        server.sweep()
        assert publisher.data("COUNT MESSAGE /forever") == ["1"]
        subscriber = server.client("bob")
        subscriber.data("SUB MESSAGE /t")
        assert subscriber.smuid() == smuid
        # SM-212: it is removed before the next; the command is of later revisions
        assert publisher.ask(f"REMOVE MESSAGE /t {smuid}") == ["200 OK"]
        assert publisher.code(f"REMOVE MESSAGE /t {smuid}") == 406
        assert publisher.code("REMOVE MESSAGE /t x") == 400
        assert publisher.data("COUNT MESSAGE /t") == ["0"]


def test_the_strict_dialect_has_no_remove_message(server: Running) -> None:
    """The draft of this revision has no such command."""
    assert server.client("alice", listen=False).code("REMOVE MESSAGE /t 1") == 501


def test_SM_199_identifiers_are_the_servers(server: Running) -> None:
    """A client cannot give a message a Smuid or Cmuid, nor another server's name."""
    client = server.client("alice", listen=False)
    for line in ("Smuid: mq.example/7", "Cmuid: bob/bob0001/1"):
        assert client.code(*publication("PUB MESSAGE /t 1", line)) == 400
    assert client.code(*publication("PUB MESSAGE other.example/t 1")) == 400


def test_SM_167_SM_169_SM_170_every_notification_is_identified(server: Running) -> None:
    """Created, Smuid and Cmuid are there; numbers are unique over all topics."""
    server.topics("/u")
    client = server.client("alice")
    client.data("SUB MESSAGE /t")
    client.data("SUB MESSAGE /u")
    seen = []
    for topic in ("/t", "/u", "/t"):
        client.publish(topic, f"x{len(seen)}")
        lines = client.received()
        assert attribute(lines, "Created") == CREATED.partition(" ")[2]
        assert attribute(lines, "Cmuid") == f"alice/alice0001/x{len(seen)}"
        seen.append(attribute(lines, "Smuid"))
    assert seen == ["mq.example/1", "mq.example/2", "mq.example/3"]


def test_SM_031_SM_171_data_arrives_as_it_was_sent(server: Running) -> None:
    """Octet for octet, whatever they are; without data there is no type and no length."""
    client = server.client("alice")
    client.data("SUB MESSAGE /t")
    client.publish("/t", "0")
    assert not [line for line in client.received() if line.startswith("Content-")]
    data = bytes(range(256)) * 4 + b"\r\n.\r\n"
    head = f"PUB MESSAGE /t 1\r\n{CREATED}\r\n\r\nContent-Type: x/y\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    client.send(head + data + b"\r\n.\r\n\r\n")
    assert client.reply()[0] == "200-OK"
    assert client.notify.until(b"\r\n\r\n").startswith(b"\r\nNOTIFY")
    assert client.notify.until(b"\r\n\r\n") == f"Content-Type: x/y\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    assert client.notify.read(len(data)) == data


def test_SM_201_SM_205_SM_245_extensions_pass(server: Running) -> None:
    """Of the header and of data, encryption too, in their order."""
    client = server.client("alice")
    client.data("SUB MESSAGE /t")
    client.send(
        f"PUB MESSAGE /t 1\r\nX-B: 2\r\n{CREATED}\r\nX-A: 1\r\nName: Grüße\r\n\r\nContent-Type: text/plain\r\n"
        "Encryption: PGP version=2.6.2,encoding=ascii\r\nX-Data: y\r\nContent-Length: 1\r\n\r\nx\r\n.\r\n\r\n"
    )
    assert client.reply()[0] == "200-OK"
    lines = client.received()
    assert lines[1:] == [
        CREATED,
        "Smuid: mq.example/1",
        "Cmuid: alice/alice0001/1",
        "X-B: 2",
        "X-A: 1",
        "Name: Grüße",
        "",
        "Content-Type: text/plain",
        "Content-Length: 1",
        "Encryption: PGP version=2.6.2,encoding=ascii",
        "X-Data: y",
        "",
        "x",
    ]


def test_SM_224_limits_have_codes() -> None:
    """413 for messages, 414 for lines, 415 for media types that the server does not take."""
    limits = SmqpLimits(message=10)
    with running(limits=limits, media_types=frozenset({"text/plain"})) as server:
        server.accounts("alice")
        server.topics("/t")
        client = server.client("alice", listen=False)
        assert client.code(*publication("PUB MESSAGE /t 1", data="x" * 11)) == 413
        assert client.code("x" * 9000) == 414
        head = [CREATED, "", "Content-Type: text/html; charset=utf-8", "Content-Length: 1", "", "x", "."]
        assert client.code("PUB MESSAGE /t 1", *head) == 415
        assert client.code(*publication("PUB MESSAGE /t 1", data="x" * 10)) == 200


def test_SM_134_SM_220_SM_223_what_was_answered_is_kept(tmp_path: Path) -> None:
    """A server that begins with the file of one that ended knows topics, messages, subscriptions and who had what."""
    store = tmp_path / "store"
    with running(store) as server:
        server.accounts("alice", "bob")
        server.topics("/t", keywords=("K",))
        subscriber = server.client("bob")
        subscriber.data("SUB MESSAGE /t")
        publisher = server.client("alice", listen=False)
        smuids = [publisher.publish("/t", str(number)) for number in range(3)]
        assert subscriber.smuid() == smuids[0]
        subscriber.notified()
    with running(store) as server:
        subscriber = server.client("bob")
        assert [subscriber.smuid(), subscriber.smuid()] == smuids[1:]
        assert subscriber.data("GET TOPIC KEYWORDS /t") == ["K"]
        assert subscriber.publish("/t", "x") == 4
        assert subscriber.smuid() == 4
        server.grant("bob", "/", Right.NONE)
    with running(store) as server:
        assert server.client("bob", listen=False).code("COUNT MESSAGE /t") == 401


def test_topics_are_bounded_in_octets(tmp_path: Path) -> None:
    """By the server's limit or their own; what was taken stays, over a restart too, and leaves room when it goes."""
    clock, store = Clock(), tmp_path / "store"
    with running(store, clock, max_octets=1500) as server:
        server.accounts("alice", "bob")
        server.topics("/t", "/own", "/u")
        server.server.administer(lambda admin: admin.set_parameters("/own", max_octets=3000))
        alice = server.client("alice", listen=False)
        alice.publish("/t", "1", "Timeout: 00:01:00", data="x" * 600)
        (said,) = alice.ask(*publication("PUB MESSAGE /t 2", data="y" * 600))
        assert re.fullmatch(
            r"414 Resource too large: /t is full: max_octets is 1500, there are 9\d\d and 9\d\d more were to come", said
        )
        assert alice.publish("/t", "1", data="x" * 600) == 1  # known, so it takes no room
        for cmuid, topic in enumerate(("/u", "/own", "/own"), 3):
            alice.publish(topic, str(cmuid), data="z" * 900)
    with running(store, clock, max_octets=1500) as server:
        alice = server.client("alice", listen=False)
        assert alice.code(*publication("PUB MESSAGE /t 2", data="y" * 600)) == 414
        clock.now += 61
        server.sweep()
        alice.publish("/t", "2", "Timeout: 00:00:30", data="y" * 600)
        assert alice.code("REPUB MESSAGE /t 1") == 414
        clock.now += 31
        server.sweep()
        assert alice.code("REPUB MESSAGE /t 1") == 200
        assert alice.code("REM TOPIC /u") == 200
        server.topics("/u")
        alice.publish("/u", "9", data="z" * 900)


def test_a_store_of_before_is_counted(tmp_path: Path) -> None:
    """One that was made when the octets of a topic were summed up is opened, and what is in it counts."""
    store = tmp_path / "store"
    with running(store) as server:
        server.accounts("alice")
        server.topics("/t")
        server.client("alice", listen=False).publish("/t", "1", data="x" * 600)
    with closing(sqlite3.connect(store)) as file:
        for trigger in ("added", "moved", "removed", "ended"):
            file.execute(f"DROP TRIGGER held_{trigger}")
        file.execute("DROP TABLE held")
        file.commit()
    with running(store, max_octets=1300) as server:
        alice = server.client("alice", listen=False)
        assert alice.code(*publication("PUB MESSAGE /t 2", data="y" * 600)) == 414
        alice.publish("/t", "3")


def test_a_full_queue_over_the_adapter() -> None:
    """`smqp://` raises SendFailedError for it; every message that was taken is delivered, and then there is room."""
    with running(max_octets=2000) as server:
        server.accounts("alice")
        server.server.administer(lambda admin: admin.prepare_for_jms())
        host, port = server.address
        with soapjms.connect(f"smqp://alice:pw@{host}:{port}") as connection:
            message = Message(message_type=MessageType.TEXT, body="x" * 500, destination=queue("full"))
            sent = sum(connection.send(message).exception() is None for _ in range(4))
            assert sent < 4
            with pytest.raises(SendFailedError, match="/queue/full is full: max_octets is 2000, there are 1"):
                connection.send(message).result()
            got: list[object] = []
            with connection.consume(queue("full"), lambda delivery: (got.append(1), delivery.accept())[1]):
                eventually(lambda: len(got) == sent, f"{len(got)} of {sent} came")
                octets = server.server.engine.core.messages.octets
                topic = server.server.engine.core.directory.find("/queue/full")
                eventually(lambda: topic is not None and octets(topic.number) == 0)
            connection.send(message).result()
