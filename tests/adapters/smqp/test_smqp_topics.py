"""The server: topics, what clients ask about them and do to them, and who may."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from smqp_kit import Clock, Running, attribute, connected, running

from brokers.errors import UsageError
from brokers.smqp.protocol.replies import RefusedError, ReplyCode
from brokers.smqp.server import Right


@pytest.fixture
def server() -> Iterator[Running]:
    """Run a server with two accounts that may do everything."""
    with running() as server:
        server.accounts("alice", "bob")
        yield server


def test_SM_034_case_does_not_count(server: Running) -> None:
    """A topic is found in any case, and is there once; it is listed as it was created."""
    client = server.client("alice", listen=False)
    assert client.code("CREATE TOPIC /News/US") == 200
    client.publish("/news/us", "1")
    assert client.code("CREATE TOPIC /NEWS/us") == 409
    assert client.data("LIST TOPIC /news") == ["/News/US"]
    assert client.code("CREATE TOPIC /news/de") == 200
    assert client.data("LIST TOPIC /NEWS") == ["/News/de", "/News/US"]


def test_SM_036_there_is_no_limit_of_depth(server: Running) -> None:
    """Fifty levels are fine."""
    deep = "".join(f"/l{number}" for number in range(50))
    client = server.client("alice", listen=False)
    assert client.code(f"CREATE TOPIC {deep}") == 200
    assert client.data("COUNT TOPIC /l0/*") == ["49"]
    assert client.publish(deep, "1") == 1


def test_SM_037_the_root_is_no_topic(server: Running) -> None:
    """It is where to list, count and find from, and nothing else."""
    client = server.client("alice", listen=False)
    server.topics("/a", "/b")
    assert client.data("LIST TOPIC /") == ["/a", "/b"]
    assert client.data("COUNT TOPIC /") == ["2"]
    for command in ("CREATE TOPIC /", "REMOVE TOPIC /", "SUB MESSAGE /", "LIST MESSAGE /", "GET TOPIC KEY /"):
        assert client.code(command) == 400
    assert client.code("FIND TOPIC /") == 404


def test_SM_038_SM_082_every_topic_has_its_own_messages(server: Running) -> None:
    """Counts are independent, and those of what is kept now."""
    server.topics("/a", "/b")
    client = server.client("alice", listen=False)
    for number in range(3):
        client.publish("/a", str(number))
    client.publish("/b", "b")
    assert client.data("COUNT MESSAGE /a") == ["3"]
    assert client.data("COUNT MESS /b") == ["1"]
    assert client.data("COUNT MESSAGE /*") == ["4"]


def test_SM_041_SM_088_SM_089_topics_are_found_by_keywords(server: Running) -> None:
    """Any part of a keyword will do, in any case; any of several."""
    client = server.client("alice", listen=False)
    for line in (
        "/stocks (STOCKS,TICKERS)",
        "/stocks/ibm (IBM,STOCKS,BIG BLUE)",
        "/stocks/us/floral (BLUE CARNATIONS)",
    ):
        assert client.code(f"CREATE TOPIC {line}") == 200
    assert client.data("FIND TOPIC /stocks") == ["/stocks (STOCKS,TICKERS)"]
    assert client.data("FIND TOPIC /stocks (blue)") == ["/stocks/ibm (IBM,STOCKS,BIG BLUE)"]
    assert client.data("FIND TOPIC /stocks (STOCK)") == [
        "/stocks (STOCKS,TICKERS)",
        "/stocks/ibm (IBM,STOCKS,BIG BLUE)",
    ]
    both = ["/stocks/ibm (IBM,STOCKS,BIG BLUE)", "/stocks/us/floral (BLUE CARNATIONS)"]
    assert client.data("FIND TOPICS /stocks/* (BLUE)") == both  # SM-051
    assert client.data("FIND TOPIC /stocks/* (carna,ibm)") == both
    assert client.data("FIND TOPIC /stocks (nothing)") == []
    assert client.data("FIND TOPIC / (ticker)") == ["/stocks (STOCKS,TICKERS)"]
    assert client.data("FIND TOPIC /stocks/us") == ["/stocks/us"]


def test_SM_051_find_with_a_wildcard(server: Running) -> None:
    """Without keywords it lists all that are below."""
    server.topics("/a/b/c")
    assert server.client("alice", listen=False).data("FIND TOPIC /a/*") == ["/a/b", "/a/b/c"]


def test_SM_090_find_without_keywords_says_whether_a_topic_exists(server: Running) -> None:
    """404 if it does not."""
    assert server.client("alice", listen=False).code("FIND TOPIC /none") == 404


def test_SM_042_SM_086_SM_102_SM_103_virtual_topics(server: Running) -> None:
    """One leads to a topic that is there, is not itself virtual, and is another than itself."""
    server.topics("/real")
    client = server.client("alice", listen=False)
    assert client.code("CREATE TOPIC /one > /real") == 200
    assert client.code("CREATE TOPIC /two > /real") == 200
    assert client.code("CREATE TOPIC /three > /one") == 405
    assert client.code("CREATE TOPIC /three > /none") == 404
    assert client.code("CREATE TOPIC /three > /Three") == 409
    assert client.code("CREATE TOPIC /three > /real/Trash") == 405
    assert client.code("CREATE TOPIC /three > /accounts/bob") == 405
    assert client.code("CREATE TOPIC /one/below") == 405
    assert client.data("LIST TOPIC /") == ["/one > /real", "/real", "/two > /real"]


def test_SM_043_a_virtual_topic_is_like_the_actual_one(server: Running) -> None:
    """What is published to either reaches the subscribers of both, under the name that they know; once."""
    server.topics("/real")
    alice, bob = server.client("alice"), server.client("bob")
    alice.data("CREATE TOPIC /virtual > /real")
    alice.data("SUB MESSAGE /virtual")
    bob.data("SUB MESSAGE /real")
    bob.data("SUB MESSAGE /virtual")
    for topic in ("/virtual", "/real"):
        alice.publish(topic, topic.strip("/"))
        assert alice.received()[0] == "NOTIFY MESSAGE /virtual"
        assert bob.received()[0] == "NOTIFY MESSAGE /real"
    assert bob.notify.is_silent()
    assert [alice.data(f"COUNT MESSAGE {topic}") for topic in ("/real", "/virtual")] == [["2"], ["2"]]
    assert alice.data("LIST MESSAGE /virtual") == ["1-2"]
    assert [alice.data(f"COUNT SUB {topic}") for topic in ("/real", "/virtual")] == [["2"], ["2"]]


def test_SM_044_trash_is_reserved(server: Running) -> None:
    """No topic is created, renamed, linked or removed with that name; nothing is published or subscribed to there."""
    server.topics("/t")
    client = server.client("alice", listen=False)
    for command in (
        "CREATE TOPIC /t/trash",
        "CREATE TOPIC /TRASH/x",
        "SET TOPIC NAME /t /t2/Trash",
        "SUB MESSAGE /t/Trash",
    ):
        assert client.code(command) == 405
    for command in (
        "SET TOPIC NAME /t/Trash /x",
        "REMOVE TOPIC /t/Trash",
        "COUNT TOPIC /t/Trash",
        "COUNT SUB /t/Trash",
    ):
        assert client.code(command) == 405
    assert client.code("SET TOPIC KEYWORD /t/Trash (A)") == 405
    assert client.code("PUB MESSAGE /t/Trash 1", "Created: D01012001T000000Z", "", ".") == 405
    assert client.data("COUNT MESSAGE /t/TRASH") == ["0"]
    assert client.data("LIST TOPIC /t") == []


def test_SM_045_SM_046_dead_messages_lie_in_trash() -> None:
    """When a message's time is over it is in Trash, and later nowhere (SM-140: then it cannot be published again)."""
    clock = Clock()
    with running(clock=clock, trash_lifetime=1000.0) as server:
        server.accounts("alice")
        server.topics("/t")
        client = server.client("alice")
        client.data("SUB MESSAGE /t")
        assert client.publish("/t", "1", "Timeout: 00:01:00") == client.smuid()
        assert client.data("COUNT MESSAGE /t") == ["1"]
        clock.now += 61
        server.sweep()
        assert [client.data(f"COUNT MESSAGE {topic}") for topic in ("/t", "/t/Trash")] == [["0"], ["1"]]
        assert client.data("LIST MESSAGE /t/Trash") == ["1"]
        client.send("GET MESSAGE /t/Trash 1\r\n")
        assert client.reply() == ["200 OK"]
        assert attribute(client.until(b".\r\n\r\n").decode().split("\r\n"), "Topic") == "/t/Trash"
        clock.now += 1001
        server.sweep()
        assert client.data("COUNT MESSAGE /t/Trash") == ["0"]
        assert client.code("REPUB MESSAGE /t 1") == 406


def test_SM_047_SM_101_login_topics_come_with_accounts(server: Running) -> None:
    """They are there, their owner may subscribe, and nobody creates, renames or removes them or what is below."""
    client = server.client("alice", listen=False)
    assert client.data("SUB MESSAGE /accounts/alice") == ["/accounts/alice"]
    for command in (
        "CREATE TOPIC /accounts/carol",
        "CREATE TOPIC /accounts/alice/x",
        "CREATE TOPIC /accounts/alice",
        "SET TOPIC NAME /accounts/alice /x",
        "SET TOPIC NAME /accounts /x",
        "REMOVE TOPIC /accounts/alice",
    ):
        assert client.code(command) in (401, 405), command
    server.accounts("root", is_admin=True)
    admin = server.client("root", listen=False)
    assert admin.code("CREATE TOPIC /accounts/carol") == 405
    assert admin.code("CREATE TOPIC /accounts/alice") == 405
    assert admin.code("CREATE TOPIC /accounts/alice/x") == 405
    assert admin.code("SET TOPIC NAME /accounts/alice /x") == 405  # SM-110
    assert admin.code("REMOVE TOPIC /accounts/alice") == 405
    assert admin.code("SET TOPIC NAME /accounts /x") == 405
    assert admin.code("SET TOPIC KEYWORD /accounts/alice (X)") == 405


def test_a_login_topic_is_its_owners(server: Running) -> None:
    """Others do not see it, nor subscribe to it, whatever they may do at the root; an administrator may."""
    bob = server.client("bob", listen=False)
    assert bob.code("SUB MESSAGE /accounts/alice") == 401
    assert bob.code("LIST TOPIC /accounts") == 404
    assert bob.data("LIST TOPIC /") == []
    assert bob.code("COUNT MESSAGE /accounts/alice") == 401
    server.accounts("root", is_admin=True)
    assert server.client("root", listen=False).data("LIST TOPIC /accounts") == [
        "/accounts/alice",
        "/accounts/bob",
        "/accounts/root",
    ]


def test_SM_049_SM_243_rights_are_inherited(server: Running) -> None:
    """A topic without an entry has its parent's, up to the root; without any nothing is allowed."""
    server.accounts("carol", rights=Right.NONE)
    server.topics("/a/b/c", "/z")
    server.grant("carol", "/a", Right.PUBLISH)
    server.grant("carol", "/a/b/c", Right.SUBSCRIBE)
    client = server.client("carol", listen=False)
    assert client.publish("/a/b", "1") == 1
    assert client.code("SUB MESSAGE /a/b") == 401
    assert client.code("SUB MESSAGE /a/b/c") == 200
    assert client.code("PUB MESSAGE /a/b/c 1", "Created: D01012001T000000Z", "", ".") == 401
    assert client.code("COUNT TOPIC /z") == 401
    server.topics("/a/b/new")
    assert client.publish("/a/b/new", "2") == 2
    server.grant(None, "/z", Right.SUBSCRIBE)
    assert client.code("SUB MESSAGE /z") == 200


@pytest.mark.parametrize(
    ("right", "allowed"),
    [
        (Right.PUBLISH, {"PUB MESSAGE /t 1", "REPUB MESSAGE /t 9"}),
        (Right.SUBSCRIBE, {"SUB MESSAGE /t", "SUB TOPIC /t", "SUB SUB /t", "GET MESSAGE /t 9"}),
        (
            Right.TOPICS,
            {"CREATE TOPIC /t/new", "SET TOPIC NAME /t/x /t/y", "SET TOPIC KEYWORD /t (X)", "REMOVE TOPIC /t/x"},
        ),
        (Right.REPLY, {"PUB REPLY /t 1"}),
        (Right.REMOTE, set()),
        (Right.PARAMETERS, set()),
    ],
)
def test_SM_106_SM_157_SM_241_SM_242_each_right_alone(server: Running, right: Right, allowed: set[str]) -> None:
    """Each right allows what it is for, and nothing else: the rest is 401."""
    server.accounts("carol", rights=right)
    server.topics("/t/x")
    client = server.client("carol", listen=False)
    commands = ["PUB MESSAGE /t 1", "REPUB MESSAGE /t 9", "SUB MESSAGE /t", "SUB TOPIC /t", "SUB SUB /t"]
    commands += ["GET MESSAGE /t 9", "CREATE TOPIC /t/new", "SET TOPIC KEYWORD /t (X)", "SET TOPIC NAME /t/x /t/y"]
    commands += ["PUB REPLY /t 1"]
    ids = ["Smuid: mq.example/1", "Cmuid: alice/alice0001/1"]
    for command in commands:
        message = ["Created: D01012001T000000Z", *(ids if "REPLY" in command else ()), "", "."]
        code = client.code(command, *(message if command.startswith("PUB") else ()))
        assert (code != 401) is (command in allowed), (command, code)
    assert (client.code("REMOVE TOPIC /t/x") != 401) is (right is Right.TOPICS)


def test_SM_234_SM_242_the_right_to_remote_servers(server: Running) -> None:
    """A Depth other than 0 needs it."""
    server.accounts("carol", rights=Right.PUBLISH)
    server.topics("/t")
    client = server.client("carol", listen=False)
    created = "Created: D01012001T000000Z"
    assert client.code("PUB MESSAGE /t 1", created, "Depth: 1", "", ".") == 401
    assert client.code("PUB MESSAGE /t 1", created, "Depth: 0", "", ".") == 200
    server.grant("carol", "/", Right.PUBLISH | Right.REMOTE)
    assert client.code("PUB MESSAGE /t 2", created, "Depth: -1", "", ".") == 200


def test_SM_242_the_right_to_queue_parameters(server: Running) -> None:
    """Who has it may have parameters set: those of retries, of time, and of size, which are then kept to."""
    server.accounts("carol", rights=Right.PARAMETERS)
    server.topics("/t")
    with pytest.raises(RefusedError) as found:
        server.server.administer(lambda admin: admin.set_parameters("/t", by="alice2", max_messages=1))
    assert found.value.code is ReplyCode.NOT_FOUND
    server.grant("bob", "/", Right.PUBLISH)
    with pytest.raises(RefusedError) as found:
        server.server.administer(lambda admin: admin.set_parameters("/t", by="bob", max_messages=1))
    assert found.value.code is ReplyCode.UNAUTHORIZED
    with pytest.raises(ValueError, match="max_messages"):
        server.server.administer(lambda admin: admin.set_parameters("/t", color="red"))
    for wrong in ({"kind": "queue"}, {"timeout": -1}, {"max_messages": "1"}):
        with pytest.raises(UsageError, match=f"{next(iter(wrong))} must be"):
            server.server.administer(lambda admin, wrong=wrong: admin.set_parameters("/t", **wrong))  # type: ignore[misc]
    server.server.administer(
        lambda admin: admin.set_parameters("/t", by="carol", max_messages=2, max_message=5, max_octets=700)
    )
    client = server.client("alice", listen=False)
    message = ["Created: D01012001T000000Z", "", "Content-Type: text/plain", "Content-Length: 6", "", "123456", "."]
    assert client.code("PUB MESSAGE /t 1", *message) == 413
    client.publish("/t", "2")
    client.publish("/t", "3", data="1")
    assert client.code("PUB MESSAGE /t 4", "Created: D01012001T000000Z", "", ".") == 414


def test_SM_050_SM_081_topics_are_counted(server: Running) -> None:
    """Directly below; with a wildcard at any depth; Trash is not counted."""
    server.topics("/a/b/c", "/a/d")
    client = server.client("alice", listen=False)
    assert client.data("COUNT TOPIC /a") == ["2"]
    assert client.data("COUNT TOPIC /a/*") == ["3"]
    assert client.data("COUNT TOPIC /a/*/c") == ["1"]
    assert client.code("COUNT TOPIC /none") == 404
    assert client.code("COUNT TOPIC /none/*") == 404


def test_SM_080_SM_085_SM_087_resource_and_topic_are_needed(server: Running) -> None:
    """Without them the command is refused."""
    client = server.client("alice", listen=False)
    for command in ("COUNT TOPIC", "COUNT", "LIST TOPIC", "LIST MESSAGE", "FIND TOPIC", "REMOVE TOPIC"):
        assert client.code(command) == 400
    assert client.code("COUNT /a") == 501


def test_SM_083_subscribers_are_counted(server: Running) -> None:
    """Accounts, whether they are there or not."""
    server.topics("/a/b", "/a/c")
    client, other = server.client("alice", listen=False), server.client("bob", listen=False)
    client.data("SUB MESSAGE /a/*")
    other.data("SUB MESSAGE /a/b")
    other.data("SUB TOPIC /a/c")
    other.data("QUIT")
    assert [client.data(f"COUNT SUB {topic}") for topic in ("/a/b", "/a/c", "/a/*")] == [["2"], ["1"], ["2"]]


def test_SM_084_SM_233_what_a_login_may_not_see_is_not_there(server: Running) -> None:
    """It is missing from lists, and cannot be listed."""
    server.accounts("carol", rights=Right.NONE)
    server.topics("/open/x", "/closed/x")
    server.grant("carol", "/open", Right.SUBSCRIBE)
    client = server.client("carol", listen=False)
    assert client.data("LIST TOPIC /") == ["/open"]
    assert client.code("LIST TOPIC /closed") == 404
    assert client.code("LIST MESSAGE /closed/x") == 404
    assert client.code("FIND TOPIC /closed") == 404
    assert client.code("COUNT TOPIC /closed") == 401
    assert client.data("COUNT TOPIC /open/*") == ["1"]
    assert client.data("COUNT TOPIC /*") == ["3"]  # with /accounts/carol
    for command in ("TOPIC /*", "SUB /*", "MESSAGE /*/*"):
        seen = client.data(f"SUB {command}")
        kind = command.partition(" ")[0]
        assert client.data(f"UNSUB {command}") == [f"{kind} {topic}" for topic in seen]
        client.data(f"SUB {command}")
    ended = client.data("UNSUB *")
    assert ended
    assert not [line for line in ended if "closed" in line or "alice" in line]


def test_SM_087_messages_are_listed_as_ranges(server: Running) -> None:
    """Numbers and ranges, on one line if they are few."""
    server.topics("/a", "/b")
    client = server.client("alice", listen=False)
    for cmuid, topic in enumerate(("/a", "/a", "/b", "/a", "/a")):
        client.publish(topic, str(cmuid))
    assert client.data("LIST MESSAGES /a") == ["1-2,4-5"]
    assert client.data("LIST MESS /b") == ["3"]
    server.topics("/c")
    assert client.data("LIST MESSAGE /c") == []


def test_many_ranges_of_messages_are_listed_on_several_lines(server: Running) -> None:
    """Each line has so many that a client can read it, however large the numbers are."""
    server.server.administer(lambda admin: admin.number_messages_from(10**16))
    server.topics("/a", "/b")
    client = server.client("alice", listen=False)
    for cmuid in range(900):
        client.publish(("/a", "/b")[cmuid % 2], str(cmuid))
    lines = client.data("LIST MESSAGE /a")
    assert [line.count(",") + 1 for line in lines] == [200, 200, 50]
    with connected(server.address) as other:
        assert other.list_messages("/b") == tuple((number, number) for number in range(10**16 + 1, 10**16 + 900, 2))


def test_SM_091_SM_092_SM_093_SM_200_messages_are_got(server: Running) -> None:
    """One, several or all that are kept, with their topic and all attributes; that changes nothing about them."""
    server.topics("/a", "/b")
    client = server.client("alice")
    client.data("SUB MESSAGE /a")
    for number in range(3):
        client.publish("/a", f"m{number}", "X-Number: " + str(number), data=f"data {number}")
        client.received()
    for _ in range(2):
        client.send("GET MESSAGE /a mq.example/2\r\nGET MESSAGE /a 1 , 3\r\nGET MESSAGE /a *\r\n")
        assert client.reply() == ["200 OK"]
        one = client.until(b"\r\n.\r\n\r\n").decode().split("\r\n")
        assert one[:6] == [
            "Topic: /a",
            "Created: D09092001T10160000Z",
            "Smuid: mq.example/2",
            "Cmuid: alice/alice0001/m1",
            "X-Number: 1",
            "",
        ]
        for expected in (["1", "3"], ["1", "2", "3"]):
            assert client.reply() == ["200-OK", f"200 {len(expected)}"]
            found = [client.until(b"\r\n.\r\n").decode().split("\r\n") for _ in expected]
            assert [attribute(each, "Smuid") for each in found] == [f"mq.example/{each}" for each in expected]
    for command in ("GET MESSAGE /a 9", "GET MESSAGE /b *"):
        assert client.code(command) == 406
    assert client.code("GET MESSAGE /none 1") == 404
    assert [client.code(f"GET MESSAGE /a {wrong}") for wrong in ("x", "1 2", "1 - 2 3")] == [400, 400, 400]
    server.server.administer(lambda admin: admin.set_options(max_in_answer=2))
    assert client.code("GET MESSAGE /a *") == 414


def test_SM_094_keywords_are_got(server: Running) -> None:
    """Without parentheses; a topic without any has none."""
    client = server.client("alice", listen=False)
    client.data("CREATE TOPIC /a (IBM,BIG BLUE)")
    client.data("CREATE TOPIC /b")
    assert client.data("GET TOPIC KEYWORDS /a") == ["IBM,BIG BLUE"]
    assert client.data("GET TOPIC KEY /b") == []
    assert client.code("GET TOPIC KEY /c") == 404


def test_SM_100_SM_104_topics_are_created_once(server: Running) -> None:
    """A second time is a conflict; parents come with it; keywords must be legal."""
    client = server.client("alice", listen=False)
    assert client.ask("CREATE TOPIC /a/b/c (X)") == ["200 OK"]
    assert client.code("CREATE TOPIC /a/b/c") == 409
    assert client.code("CREATE TOPIC /a/b") == 409
    assert client.code('CREATE TOPIC /q (" BIG BLUE ",RED)') == 200
    assert client.data("GET TOPIC KEY /q") == ["BIG BLUE,RED"]
    assert client.data('FIND TOPIC /q ("blue")') == ["/q (BIG BLUE,RED)"]
    for bad in ("(A/B)", "(A\\B)", "(A(B)", "(A", '("A,B")', '("A)', '("")', '("  ")'):
        assert client.code(f"CREATE TOPIC /x {bad}") == 400
    assert client.data("LIST TOPIC /a") == ["/a/b"]


def test_SM_105_a_topic_has_so_many_children(server: Running) -> None:
    """One more than allowed is refused."""
    server.server.administer(lambda admin: admin.set_options(max_children=2))
    client = server.client("alice", listen=False)
    assert [client.code(f"CREATE TOPIC /a/{name}") for name in "bcd"] == [200, 200, 414]


def test_a_server_has_so_many_topics(server: Running) -> None:
    """However deep they are; one that is removed makes room for another."""
    client = server.client("alice", listen=False)
    assert client.code("CREATE TOPIC /a") == 200

    def create(path: str, limit: int) -> int:
        server.server.administer(lambda admin: admin.set_options(max_topics=limit))
        return client.code(f"CREATE TOPIC {path}")

    limit = next(limit for limit in range(100) if create("/a/b", limit) == 200)
    assert [create(path, limit) for path in ("/a/b/c", "/d")] == [414, 414]
    assert client.code("REMOVE TOPIC /a/b") == 200
    assert create("/d", limit) == 200


def test_SM_107_a_topic_is_removed_once_its_messages_are_delivered(server: Running) -> None:
    """Until then its subscribers get them, and nothing new is taken."""
    server.topics("/t/x")
    client = server.client("alice")
    client.data("SUB MESSAGE /t/x")
    client.data("SUB TOPIC /t/*")
    smuids = [client.publish("/t/x", "1"), client.publish("/t/x", "2")]
    assert client.notified()[0] == "NOTIFY MESSAGE /t/x"
    assert client.code("REMOVE TOPIC /t") == 409
    assert client.data("REMOVE TOPIC /t/x") == ["2 messages pending"]
    assert client.code("PUB MESSAGE /t/x 3", "Created: D01012001T000000Z", "", ".") == 404
    assert client.code("SUB MESSAGE /t/x") == 404
    assert client.code("REMOVE TOPIC /t/x") == 404
    client.acknowledge()
    assert client.smuid() == smuids[1]
    assert client.notified() == ["NOTIFY TOPIC /t/x", "Action: DELETED"]
    assert client.data("LIST TOPIC /t") == []
    assert client.data("REMOVE TOPIC /t") == ["0 messages pending"]
    assert client.code("UNSUB MESSAGE /t/x") == 404


def test_what_stands_in_the_way_of_a_removal(server: Running) -> None:
    """Topics below, and virtual ones that lead to it."""
    server.topics("/t")
    client = server.client("alice", listen=False)
    client.data("CREATE TOPIC /v > /t")
    assert client.code("REMOVE TOPIC /t") == 409
    assert client.data("REM TOPIC /v") == ["0 messages pending"]
    assert client.data("REM TOPIC /t") == ["0 messages pending"]
    assert client.code("REM TOPIC /t") == 404


def test_SM_108_SM_109_a_topic_gets_another_name(server: Running) -> None:
    """Not its own, nor that of another; what waits is delivered, the old name is gone, the new one there at once."""
    server.topics("/a/x", "/b")
    client = server.client("alice")
    client.data("SUB MESSAGE /a/*")
    client.data("CREATE TOPIC /v > /a/x")
    client.data("SET NOTIFY SUSPEND")
    smuid = client.publish("/a/x", "1")
    assert client.code("SET TOPIC NAME /a/x /a/X") == 409
    assert client.code("SET TOPIC NAME /a/x /b") == 409
    assert client.code("SET TOPIC NAME /a /a/x/y") == 409
    assert client.code("SET TOPIC NAME /none /c") == 404
    assert client.code("SET TOPIC NAME /a") == 400
    assert client.code("SET TOPIC NAME /a /c/d") == 200
    client.data("SET NOTIFY RESUME")
    lines = client.received()
    assert (lines[0], attribute(lines, "Smuid")) == ("NOTIFY MESSAGE /c/d/x", f"mq.example/{smuid}")
    assert client.code("PUB MESSAGE /a/x 2", "Created: D01012001T000000Z", "", ".") == 404
    assert client.publish("/c/d/x", "3") == client.smuid()
    assert client.publish("/v", "4") == client.smuid()
    assert client.data("LIST TOPIC /") == ["/b", "/c", "/v > /c/d/x"]


def test_consumers_follow_a_queue_to_another_name(server: Running) -> None:
    """Their subscriptions, with and without wildcards, move with it; what waits goes to subscribers of the new name."""
    server.server.administer(lambda admin: admin.prepare_for_jms())
    consumers, operator = [server.client("alice") for _ in range(3)], server.client("bob", listen=False)
    operator.data("CREATE TOPIC /queue/a")
    operator.data("CREATE TOPIC /queue/c/d")
    operator.data("CREATE TOPIC /queue/e")
    for consumer, pattern in zip(consumers, ("/queue/a", "/queue/c/*", "/queue/e/*"), strict=True):
        consumer.data(f"SUB MESSAGE {pattern}")
    for old, new in (("a", "b"), ("c", "C2")):
        operator.data(f"SET TOPIC NAME /queue/{old} /queue/{new}")
    operator.data("CREATE TOPIC /queue/w")
    waiting = operator.publish("/queue/w", "1")
    operator.data("SET TOPIC NAME /queue/w /queue/e/f")
    assert consumers[2].smuid() == waiting
    for consumer, topic in zip(consumers, ("/queue/b", "/queue/c2/d", "/queue/e/f"), strict=True):
        assert operator.data(f"COUNT SUB {topic}") == ["1"]
        assert operator.publish(topic, "2") == consumer.smuid()
    assert consumers[0].data("UNSUB *") == ["MESSAGE /queue/b"]


def test_only_the_operator_moves_topics_to_another_kind(server: Running) -> None:
    """A client moves a queue to where it could create one, and an ordinary topic likewise."""
    server.accounts("operator", is_admin=True)
    server.server.administer(lambda admin: admin.prepare_for_jms())
    client, operator = server.client("alice", listen=False), server.client("operator", listen=False)
    for topic in ("/queue/a", "/t"):
        client.data(f"CREATE TOPIC {topic}")
    for old, new in (("/queue/a", "/topic/a"), ("/queue/a", "/a"), ("/t", "/queue/t")):
        assert client.code(f"SET TOPIC NAME {old} {new}") == 405
    assert client.code("SET TOPIC NAME /queue/a /queue/b/c") == 200
    assert operator.code("SET TOPIC NAME /queue/b/c /a") == 200


def test_SM_111_keywords_are_replaced(server: Running) -> None:
    """All of them."""
    server.topics("/a", keywords=("OLD", "OLDER"))
    client = server.client("alice", listen=False)
    assert client.code("SET TOPIC KEYWORD /a (NEW)") == 200
    assert client.data("GET TOPIC KEYWORDS /a") == ["NEW"]
    assert client.code("SET TOPIC KEYWORD /a ()") == 200
    assert client.data("GET TOPIC KEYWORDS /a") == []
    assert client.code("SET TOPIC KEYWORD /a") == 400
    assert client.code("SET TOPIC KEYWORD /b (X)") == 404
