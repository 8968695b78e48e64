"""A service under attack: messages that somebody recorded and sends again, over a login of his own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import proton
import pytest
from calling_kit import NS, PATIENCE, arrivals, element, envelope, eventually
from faulty_sqlite_kit import LosesCommits
from lxml import etree
from proton.utils import BlockingConnection
from security_kit import NOW, PASSWORDS, digested, secured, tokens
from signature_kit import ANN, signatures

import soapjms
from brokers import queue
from brokers.amqp.listener import Listener, Options
from brokers.embedded import Broker
from soapjms import Dispatcher, Request, Service, Services, SoapFaultError, SqliteStore
from soapjms.security import UsernameTokens
from soapjms.service.store.base import KEY_OCTETS, Claim, FinishedBefore

URI = "jms:queue:bank"
USERS = {"ann": "secret-of-ann", "eve": "secret-of-eve"}
BALANCE = f"{{{NS}}}greetMe"
BOTH = pytest.mark.parametrize("transactional", [True, False])


@dataclass
class Bank:
    """A service behind an AMQP listener, and how often its function ran."""

    broker: Broker
    listener: Listener
    runs: list[Any]
    counts: Callable[[], Any]

    def send(self, message: proton.Message, times: int = 1, user: str = "") -> None:
        """Send over a connection of one's own, of a user who says so in the message."""
        url = self.listener.url.replace("://", f"://{user}:{USERS[user]}@") if user else self.listener.url
        message.user_id = user.encode()
        with closing(BlockingConnection(url, timeout=PATIENCE)) as somebody:
            sender = somebody.create_sender("bank")
            for _ in range(times):
                sender.send(message)


def account(runs: list[Any], **options: Any) -> Service:
    """Make a service that tells a balance."""
    service = Service(**options)

    @service.operation(BALANCE)
    def balance(request: Request) -> etree._Element:
        runs.append(request.identity)
        return element("said", f"BALANCE 4711 of {request.identity}")

    return service


@contextmanager
def serving(path: Path, made: Callable[[list[Any]], Service], *, transactional: bool = True) -> Iterator[Bank]:
    broker, runs = Broker(), list[Any]()
    with (
        Listener(broker, port=0, options=Options(users=USERS, anonymous=True)) as listener,
        soapjms.connect(listener.url) as connection,
        Dispatcher(connection, URI, made(runs), store=path, transactional=transactional) as dispatcher,
    ):
        yield Bank(broker, listener, runs, lambda: dispatcher.counts)


def recorded(body: bytes = b"", reply_to: str = "victim", **changes: Any) -> proton.Message:
    """Make the message that somebody recorded; `changes` are properties of the message."""
    values = {"requestURI": URI, "bindingVersion": "1.0", "contentType": "text/xml"}
    return proton.Message(
        id="ID:recorded",
        correlation_id=changes.pop("correlation_id", "call-1"),
        body=body or secured(digested()),
        inferred=True,
        content_type="application/octet-stream",
        reply_to=reply_to,
        properties={f"SOAPJMS_{name}": value for name, value in values.items()} | changes,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.db"


@BOTH
class TestReplayed:
    """A copy of a request that was finished, with the same JMSMessageID, to a queue of the attacker's."""

    @pytest.mark.parametrize(
        "elsewhere",
        [
            pytest.param({"reply_to": "attacker"}, id="JMSReplyTo"),
            pytest.param({"correlation_id": "mine"}, id="JMSCorrelationID"),
            pytest.param({"SOAPJMS_targetService": "other"}, id="targetService"),
            pytest.param({"SOAPJMS_soapAction": "urn:other"}, id="soapAction"),
            pytest.param({"user": "eve"}, id="JMSXUserID"),
        ],
    )
    def test_username_token(self, path: Path, transactional: bool, elsewhere: dict[str, Any]) -> None:
        """It is verified, and refused: its nonce was used; the function runs once, and its answer goes to one place."""
        with (
            serving(path, lambda runs: account(runs, verify=tokens()), transactional=transactional) as bank,
            bank.broker.connect() as other,
            arrivals(other, queue("victim")) as victim,
            arrivals(other, queue("attacker")) as attacker,
        ):
            more = {name: value for name, value in elsewhere.items() if name != "user"}
            bank.send(recorded(), user="ann")
            assert b"BALANCE 4711" in (victim.take(1)[0].body or b"")
            bank.send(recorded(**more), user=elsewhere.get("user", "ann"))
            (answer,) = (attacker if "reply_to" in elsewhere else victim).take(1)
            assert b"BALANCE" not in (answer.body or b"")
            assert b"the nonce was used before" in (answer.body or b"")
            assert bank.runs == ["ann"]

    def test_old_token(self, path: Path, transactional: bool) -> None:
        """A token that is too old is refused, though the store has the answer."""
        now = [1_700_000_000.0]
        with (
            serving(
                path, lambda runs: account(runs, verify=tokens(clock=lambda: now[0])), transactional=transactional
            ) as bank,
            bank.broker.connect() as other,
            arrivals(other, queue("victim")) as victim,
            arrivals(other, queue("attacker")) as attacker,
        ):
            bank.send(recorded())
            assert b"BALANCE 4711" in (victim.take(1)[0].body or b"")
            now[0] += 10_000
            bank.send(recorded(reply_to="attacker"))
            assert b"too old" in (attacker.take(1)[0].body or b"")
            assert bank.runs == ["ann"]

    def test_signature(self, path: Path, transactional: bool) -> None:
        """So it is with signatures."""
        message, verify = etree.tostring(ANN.sign(envelope())), signatures()
        with (
            serving(path, lambda runs: account(runs, verify=verify), transactional=transactional) as bank,
            bank.broker.connect() as other,
            arrivals(other, queue("victim")) as victim,
            arrivals(other, queue("attacker")) as attacker,
        ):
            bank.send(recorded(message))
            assert b"BALANCE 4711" in (victim.take(1)[0].body or b"")
            bank.send(recorded(message, "attacker"))
            assert b"the signature was used before" in (attacker.take(1)[0].body or b"")
            assert bank.runs == ["ann"]

    def test_old_signature(self, path: Path, transactional: bool) -> None:
        """With a Timestamp that has expired by now it is refused, though the store has the answer."""
        message, now = etree.tostring(ANN.sign(envelope())), [NOW]
        verify = signatures(clock=lambda: now[0])
        with (
            serving(path, lambda runs: account(runs, verify=verify), transactional=transactional) as bank,
            bank.broker.connect() as other,
            arrivals(other, queue("victim")) as victim,
            arrivals(other, queue("attacker")) as attacker,
        ):
            bank.send(recorded(message))
            assert b"BALANCE 4711" in (victim.take(1)[0].body or b"")
            now[0] += 10_000
            bank.send(recorded(message, "attacker"))
            (answer,) = attacker.take(1)
            assert b"the message has expired" in (answer.body or b"")
            assert bank.runs == ["ann"]

    def test_bearer(self, path: Path, transactional: bool) -> None:
        """A hook that knows of no replays is helped by the store: who was verified is not run for a copy."""
        with (
            serving(
                path, lambda runs: account(runs, verify=lambda request, security: "ann"), transactional=transactional
            ) as bank,
            bank.broker.connect() as other,
            arrivals(other, queue("victim")) as victim,
            arrivals(other, queue("attacker")) as attacker,
        ):
            bank.send(recorded())
            assert b"BALANCE 4711" in (victim.take(1)[0].body or b"")
            bank.send(recorded(reply_to="attacker"), 2)
            for each in attacker.take(2):
                assert b"the message was received before, with another reply destination" in (each.body or b"")
            assert bank.runs == ["ann"]

    @pytest.mark.parametrize("around", ["service", "services"])
    def test_middleware_that_authorises(self, path: Path, transactional: bool, around: str) -> None:
        """Middleware is asked before the store: who may not ask any more gets nothing, also to the same place."""
        allowed = [True]

        def guarded(request: Request, call_next: Any) -> Any:
            if not allowed[0]:
                raise SoapFaultError("not for you", blame="Sender")
            return call_next(request)

        def made(runs: list[Any]) -> Service:
            if around == "service":
                return account(runs, middleware=[guarded])
            return Services({"bank": account(runs)}, middleware=[guarded])

        with (
            serving(path, made, transactional=transactional) as bank,
            bank.broker.connect() as other,
            arrivals(other, queue("victim")) as victim,
        ):
            bank.send(recorded(envelope("Ann")))
            assert b"BALANCE 4711" in (victim.take(1)[0].body or b"")
            bank.send(recorded(envelope("Ann")))
            assert b"BALANCE 4711" in (victim.take(1)[0].body or b"")
            allowed[0] = False
            bank.send(recorded(envelope("Ann")))
            assert b"not for you" in (victim.take(1)[0].body or b"")
            assert len(bank.runs) == 1
            eventually(lambda: bank.counts()["repeat refused"] == 1, "it was counted")
            assert bank.counts()["repeated"] == 1

    def test_refused_to_nobody(self, path: Path, transactional: bool) -> None:
        """If the refusal is for nobody, by a FaultTo of `none`, the request is settled all the same."""

        def guarded(request: Request, call_next: Any) -> Any:
            if request.finished:
                raise SoapFaultError("not again")
            return call_next(request)

        wsa = "http://www.w3.org/2005/08/addressing"
        headers = (
            "".join(
                f'<{name} xmlns="{wsa}">{text}</{name}>' for name, text in (("MessageID", "urn:1"), ("Action", "urn:a"))
            )
            + f'<FaultTo xmlns="{wsa}"><Address>{wsa}/none</Address></FaultTo>'
        )
        body = envelope("Ann").replace(b"Body>", b"Header>" + headers.encode() + b"</e:Header><e:Body>", 1)
        with (
            serving(
                path, lambda runs: account(runs, middleware=[guarded], addressing=True), transactional=transactional
            ) as bank,
            bank.broker.connect() as other,
            arrivals(other, queue("victim")) as victim,
        ):
            bank.send(recorded(body))
            assert b"BALANCE 4711" in (victim.take(1)[0].body or b"")
            bank.send(recorded(body))
            eventually(lambda: bank.counts()["repeat refused"] == 1, "it was refused")
            eventually(lambda: bank.broker.depth(queue("bank")) == 0, "it was settled")
            assert bank.counts()["accepted"] == 2

    def test_without_verification(self, path: Path, transactional: bool) -> None:
        """Nobody is told what another was answered: for a service that knows no identities it is another request."""
        with (
            serving(path, lambda runs: account(runs), transactional=transactional) as bank,
            bank.broker.connect() as other,
            arrivals(other, queue("victim")) as victim,
            arrivals(other, queue("attacker")) as attacker,
        ):
            bank.send(recorded(envelope("Ann")))
            victim.take(1)
            bank.send(recorded(envelope("Ann"), "attacker"))
            attacker.take(1)
            assert len(bank.runs) == 2
            assert "repeated" not in bank.counts()


class TestDeliveredAgain:
    """What the broker delivers again is answered from the store, as before."""

    @BOTH
    @pytest.mark.parametrize("later", [0.0, 10_000.0])
    def test_verified(self, path: Path, later: float, transactional: bool) -> None:
        """The hook of another process lets it pass, also after the age at which a token is refused; it does not run."""
        broker, runs = Broker(), list[Any]()
        body = secured(digested())
        with broker.connect() as asking, arrivals(asking, queue("victim")) as victim:
            with Listener(broker, port=0) as listener:
                bank = Bank(broker, listener, runs, dict)
                with Dispatcher(
                    LosesCommits(broker.connect()),
                    URI,
                    account(runs, verify=tokens()),
                    workers=1,
                    store=path,
                    transactional=transactional,
                ) as first:
                    bank.send(recorded(body))
                    eventually(lambda: first.counts["lost"] == 1, "the commit was lost")
            late = UsernameTokens(PASSWORDS, clock=lambda: 1_700_000_000.0 + later)
            with (
                broker.connect() as connection,
                Dispatcher(
                    connection, URI, account(runs, verify=late), store=path, transactional=transactional
                ) as second,
            ):
                assert b"BALANCE 4711 of ann" in (victim.take(1)[0].body or b"")
                eventually(lambda: second.counts["answered"] == 1, "it was counted")
                assert second.counts["repeated"] == 1
        assert runs == ["ann"]

    @BOTH
    def test_transaction_of_middleware(self, path: Path, transactional: bool) -> None:
        """What middleware writes then is undone: it was written when the request was carried out."""
        seen: list[int] = []

        def audited(request: Request, call_next: Any) -> Any:
            database = request.transaction
            database.execute("CREATE TABLE IF NOT EXISTS audit (who TEXT)")
            database.execute("INSERT INTO audit VALUES ('x')")
            seen.append(database.execute("SELECT count(*) FROM audit").fetchone()[0])
            return call_next(request)

        with (
            serving(path, lambda runs: account(runs, middleware=[audited]), transactional=transactional) as bank,
            bank.broker.connect() as other,
            arrivals(other, queue("victim")) as victim,
        ):
            for _ in range(3):
                bank.send(recorded(envelope("Ann")))
                assert b"BALANCE 4711" in (victim.take(1)[0].body or b"")
            assert (len(bank.runs), seen) == (1, [1, 2, 2])


class TestStore:
    """What the store makes of names and places."""

    NAME = b"n" * KEY_OCTETS
    HERE, THERE = NAME + b"h" * KEY_OCTETS, NAME + b"t" * KEY_OCTETS

    def test_copies(self, path: Path) -> None:
        """Of two requests of one name the later is a copy, whichever is begun again, or finished with a transaction."""
        with SqliteStore(path) as store:
            first, second = store.begin(self.HERE), store.begin(self.THERE)
            assert isinstance(first, Claim)
            assert isinstance(second, Claim)
            assert (first.copied, second.copied) == (False, True)
            for each in (first, second):
                each.abandon()
            first, second = store.begin(self.HERE), store.begin(self.THERE)
            assert isinstance(first, Claim)
            assert isinstance(second, Claim)
            assert (first.copied, second.copied) == (False, True)

    def test_retry(self, path: Path) -> None:
        """A name alone is the first request of that name, begun, finished, or finished with a transaction."""
        with SqliteStore(path) as store:
            first = store.begin(self.HERE)
            assert isinstance(first, Claim)
            assert store.begin(self.NAME) is None
            first.transaction.execute("CREATE TABLE x (y)")
            first.finish(None)
            assert isinstance(store.begin(self.NAME), FinishedBefore)
            other = store.begin(self.THERE)
            assert isinstance(other, Claim)
            assert other.copied

    @pytest.mark.parametrize("later", [b"10", b"1" * KEY_OCTETS, b"1" + bytes(KEY_OCTETS - 1)])
    def test_longer_name(self, path: Path, later: bytes) -> None:
        """A name that begins with another one is another request, also if it came first."""
        with SqliteStore(path) as store:
            longer, shorter = store.begin(later), store.begin(b"1")
            assert isinstance(longer, Claim)
            assert isinstance(shorter, Claim)
            assert (longer.copied, shorter.copied) == (False, False)
            shorter.transaction.execute("CREATE TABLE x (y)")
            shorter.finish(None)
            assert store.begin(later) is None

    def test_older_file(self, path: Path) -> None:
        """What an older version wrote, a name without place, is found by any place."""
        with SqliteStore(path) as store:
            old = store.begin(self.NAME)
            assert isinstance(old, Claim)
            assert store.begin(self.HERE) is None
            old.finish(None)
            assert isinstance(store.begin(self.HERE), FinishedBefore)
