"""WS-Security at a service: the verify hook, and UsernameTokens as zeep writes them and as somebody hostile would."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import proton
import pytest
import trustme
from calling_kit import NS, PATIENCE, SOAP_11, OnEachBroker, arrivals, element, envelope, text_of
from click.testing import CliRunner
from lxml import etree
from proton.utils import BlockingConnection
from security_kit import NOW, PASSWORDS, ask, at, digest, digested, refusal, secured, service, token, tokens
from service_kit import accepted
from serving_kit import serving
from zeep.exceptions import SignatureVerificationFailed
from zeep.wsse import BinarySignature, UsernameToken
from zeep.wsse.compose import Compose
from zeep_kit import ECHO, echo

import soapjms
import soapjms.zeep
from brokers import Connection, queue
from brokers.amqp.listener import Listener
from brokers.embedded import Broker
from soapjms import Client, Dispatcher, Policy, Prepared, Request, Service, Services, SoapFaultError, SoapVersion
from soapjms.cli.commands import soapjms as command
from soapjms.protocol.envelope import Fault, as_envelope, read_fault
from soapjms.security import DIGEST, TEXT, WSSE, WSU, Nonces, UsernameTokens, refused

URI = "jms:queue:greeter"


async def asleep(*_: Any) -> bool:
    """Stand for a function that would have to be awaited."""
    return False


class Later:
    """What such a function returns, without the warning that nobody awaits it."""

    def __await__(self) -> Generator[Any, None, bool]:
        yield
        return False


class TestHook:
    """`verify`."""

    @pytest.mark.parametrize("version", SoapVersion)
    def test_what_it_gets(self, version: SoapVersion) -> None:
        """The request and the header; what it returns is the identity, and the header is understood."""
        seen: list[Any] = []

        def verify(request: Request, security: etree._Element | None) -> object:
            assert security is not None
            seen.append((request.name, request.identity, security.tag))
            return {"who": "ann"}

        assert ask(service(verify), secured("", version), version) == "{'who': 'ann'}"
        assert seen == [(f"{{{NS}}}greetMe", None, f"{{{WSSE}}}Security")]

    def test_no_header(self) -> None:
        """It decides about requests without one, too."""
        assert ask(service(lambda request, security: security is None or "?"), envelope()) == "True"

    @pytest.mark.parametrize("nobody", [None, False])
    def test_nobody(self, nobody: Any) -> None:
        """One that names nobody lets nobody in."""
        assert refusal(service(lambda request, security: nobody), secured(""))[0] == "FailedAuthentication"

    @pytest.mark.parametrize("version", SoapVersion)
    def test_its_faults(self, version: SoapVersion) -> None:
        """A fault that it raises is the answer, with the code where each SOAP version has it."""

        def verify(request: Request, security: object) -> object:
            raise refused("FailedCheck", "no such signature")

        assert refusal(service(verify), secured("", version), version) == ("FailedCheck", "no such signature")
        with pytest.raises(soapjms.UsageError, match="code must be one of InvalidSecurity"):
            refused("Nonsense")

    def test_its_failures(self, caplog: pytest.LogCaptureFixture) -> None:
        """One that fails lets nobody in, and tells the caller nothing."""

        def verify(request: Request, security: object) -> object:
            raise ConnectionError("ldap://inside is down")

        fault = ask(service(verify), secured(""))
        assert isinstance(fault, Fault)
        assert fault.reason == "the service failed"
        assert "ldap://inside" in caplog.text

    @pytest.mark.parametrize("version", SoapVersion)
    def test_whose_header(self, version: SoapVersion) -> None:
        """Headers for others are not looked at, those of a role of the service are; two for it are refused."""
        role = "e:actor" if version is SOAP_11 else "e:role"
        made = service(lambda request, security: security is not None or "none", roles=["urn:me"])
        assert ask(made, secured("", version, f'{role}="urn:somebody"'), version) == "none"
        assert ask(made, secured("", version, f'{role}="urn:me"'), version) == "True"
        one = re.search(rb"<s:Security.*</s:Security>", secured("", version))
        assert one is not None
        twice = secured("", version).replace(one[0], one[0] * 2)
        assert refusal(made, twice, version)[0] == "InvalidSecurity"

    def test_before_middleware(self) -> None:
        """Middleware and functions are not run for those who are refused; the dispatcher's hook comes first."""
        seen: list[Any] = []

        def noting(request: Request, call_next: Callable[[Request], Prepared]) -> Prepared:
            seen.append(request.identity)
            return call_next(request)

        made = service(tokens(), middleware=[noting])
        assert refusal(made, secured(token(password="wrong")))[0] == "FailedAuthentication"
        assert seen == []
        assert ask(made, secured(token())) == "ann"
        assert seen == ["ann"]
        many = Services({"a": made}, verify=lambda request, security: "all", middleware=[noting])
        assert ask(many, secured(token())) == "ann"
        assert seen == ["ann", "all", "ann"]

    def test_without(self) -> None:
        """Without a hook a Security header that must be understood is not."""
        made = Service()
        made.operation(f"{{{NS}}}greetMe")(lambda request: element("said", str(request.identity)))
        fault = ask(made, secured(token()))
        assert isinstance(fault, Fault)
        assert fault.code.endswith("MustUnderstand")

    def test_a_hook_that_nobody_awaits(self) -> None:
        """A hook that returns an awaitable lets nobody in."""
        fault = ask(service(lambda request, security: Later()), envelope())
        assert isinstance(fault, Fault)
        assert fault.reason == "the service failed"

    async def _coroutine(self, request: Any, security: Any) -> Any: ...

    def test_no_function(self) -> None:
        for wrong in ("x", UsernameTokens, self._coroutine, lambda request: 1):
            with pytest.raises(soapjms.UsageError, match="verify must be a plain function"):
                Service(verify=wrong)  # type: ignore[arg-type]


class TestText:
    """UsernameTokens with passwords in plain text."""

    @pytest.mark.parametrize("version", SoapVersion)
    def test_right(self, version: SoapVersion) -> None:
        assert ask(service(tokens()), secured(token(), version), version) == "ann"
        assert ask(service(tokens()), secured(token("bob", "Grüße"), version), version) == "bob"
        untyped = token().replace(f' Type="{TEXT}"', "")
        assert ask(service(tokens()), secured(untyped, version), version) == "ann"

    @pytest.mark.parametrize(
        "given",
        [
            token(password="Secret"),
            token(password="secret "),
            token("eve"),
            token("eve", ""),
            token("empty", ""),
            token("", ""),
            token(password=""),
            "<s:UsernameToken><s:Username>ann</s:Username></s:UsernameToken>",
            "<s:UsernameToken><s:Password>secret</s:Password></s:UsernameToken>",
        ],
    )
    def test_wrong(self, given: str) -> None:
        """Whatever is wrong of user and password, the fault is the same."""
        assert refusal(service(tokens()), secured(given)) == (
            "FailedAuthentication",
            "the security token could not be authenticated",
        )

    @pytest.mark.parametrize(
        ("given", "code"),
        [
            ("", "InvalidSecurityToken"),
            (token() * 2, "InvalidSecurityToken"),
            (token(more="<s:Username>eve</s:Username>"), "InvalidSecurityToken"),
            (token(more="<s:Password>x</s:Password>"), "InvalidSecurityToken"),
            (token("an<!-- -->n"), "InvalidSecurityToken"),
            (token("<b>ann</b>"), "InvalidSecurityToken"),
            (token("a" * 2000), "InvalidSecurityToken"),
            (token(kind="urn:other"), "UnsupportedSecurityToken"),
            (token(more="<s:Nonce>%%%</s:Nonce>"), "InvalidSecurityToken"),
            (token(more="<u:Created>yesterday</u:Created>"), "InvalidSecurityToken"),
            (token(more="<u:Created>2023-11-14T22:13:20</u:Created>"), "InvalidSecurityToken"),
            (token(more="<u:Created>0000-13-99T99:99:99Z</u:Created>"), "InvalidSecurityToken"),
            (token(more=f"<u:Created>{at(-400)}</u:Created>"), "FailedAuthentication"),
            (token(more=f"<u:Created>{at(400)}</u:Created>"), "FailedAuthentication"),
            (f"<u:Timestamp><u:Expires>{at(-61)}</u:Expires></u:Timestamp>{token()}", "MessageExpired"),
            (f"<u:Timestamp><u:Created>{at(61)}</u:Created></u:Timestamp>{token()}", "InvalidSecurity"),
        ],
    )
    def test_not_as_it_must_be(self, given: str, code: str) -> None:
        assert refusal(service(tokens()), secured(given))[0] == code

    def test_missing(self) -> None:
        assert refusal(service(tokens()), envelope())[0] == "InvalidSecurity"

    def test_times_within_the_window(self) -> None:
        stamp = f"<u:Timestamp><u:Created>{at(-9)}</u:Created><u:Expires>{at(9)}</u:Expires></u:Timestamp>"
        assert ask(service(tokens()), secured(stamp + token())) == "ann"
        other = at(-100).replace("Z", ".5+00:00")
        assert ask(service(tokens()), secured(token(more=f"<u:Created>{other}</u:Created>"))) == "ann"

    def test_check(self) -> None:
        """Passwords that nobody can read are checked by a function; digests cannot be then."""
        made = service(
            UsernameTokens(check=lambda user, password: (user, password) == ("ann", "secret"), clock=lambda: NOW)
        )
        assert ask(made, secured(token())) == "ann"
        assert refusal(made, secured(token("eve")))[0] == "FailedAuthentication"
        assert refusal(made, secured(digested()))[0] == "UnsupportedSecurityToken"

    def test_a_check_that_nobody_awaits(self) -> None:
        """A function that returns an awaitable lets nobody in: an awaitable would count as true."""
        made = service(UsernameTokens(check=lambda user, password: Later(), clock=lambda: NOW))
        fault = ask(made, secured(token(password="wrong")))
        assert isinstance(fault, Fault)
        assert fault.reason == "the service failed"

    @pytest.mark.parametrize(
        "given", [token(password=""), "<s:UsernameToken><s:Username>ann</s:Username></s:UsernameToken>"]
    )
    def test_no_password(self, given: str) -> None:
        """The function is not asked: a directory lets anybody log in, as nobody, with an empty password."""
        made = service(UsernameTokens(check=lambda user, password: True, clock=lambda: NOW))
        assert refusal(made, secured(given))[0] == "FailedAuthentication"

    def test_only_digests(self) -> None:
        made = service(tokens(digest_only=True))
        assert refusal(made, secured(token()))[0] == "UnsupportedSecurityToken"
        assert ask(made, secured(digested())) == "ann"


class TestDigest:
    """UsernameTokens with digests, and nonces that are used again."""

    @pytest.mark.parametrize("version", SoapVersion)
    def test_right(self, version: SoapVersion) -> None:
        assert ask(service(tokens()), secured(digested("bob", "Grüße"), version), version) == "bob"

    @pytest.mark.parametrize("given", [digested(password="x"), digested("eve", ""), digested("empty", "")])
    def test_wrong(self, given: str) -> None:
        assert refusal(service(tokens()), secured(given))[0] == "FailedAuthentication"

    def test_incomplete(self) -> None:
        """Without Nonce and Created a digest could be used by anybody for ever."""
        assert refusal(service(tokens()), secured(token(password=digest("secret"), kind=DIGEST)))[0] == (
            "InvalidSecurityToken"
        )

    def test_used_again(self) -> None:
        """A nonce is one request's; a token that was refused uses none up."""
        made = service(tokens())
        assert refusal(made, secured(digested(password="x")))[0] == "FailedAuthentication"
        assert ask(made, secured(digested())) == "ann"
        assert refusal(made, secured(digested())) == ("FailedAuthentication", "the nonce was used before")
        assert ask(made, secured(digested("bob", "Grüße"))) == "bob"
        assert ask(made, secured(digested(nonce=b"other"))) == "ann"

    def test_delivered_again(self) -> None:
        """The same message delivered again is no replay; a copy is, whatever name its sender gave it."""
        made = service(tokens())
        for named, redelivered, taken in (
            (lambda: b"1", False, True),
            (lambda: b"1", True, True),
            (lambda: b"1", False, False),
            (lambda: b"2", True, False),
            (lambda: None, True, False),
        ):
            answer = ask(made, secured(digested()), named=named, redelivered=redelivered)
            assert (answer == "ann") is taken

    @pytest.mark.parametrize("transactional", [True, False])
    def test_copied(self, transactional: bool) -> None:
        """What was recorded runs once, also if whoever sends it again gives it the JMSMessageID that it had."""
        broker = Broker()
        values = {"requestURI": URI, "bindingVersion": "1.0", "contentType": "text/xml"}
        recorded = proton.Message(
            id="ID:recorded",
            body=secured(digested()),
            inferred=True,
            content_type="application/octet-stream",
            reply_to="answers",
            properties={f"SOAPJMS_{name}": value for name, value in values.items()},
        )
        with (
            Listener(broker, port=0) as listener,
            soapjms.connect(listener.url) as connection,
            Dispatcher(connection, URI, service(tokens()), transactional=transactional),
            broker.connect() as other,
            arrivals(other, queue("answers")) as answers,
            closing(BlockingConnection(listener.url, timeout=PATIENCE)) as somebody,
        ):
            sender = somebody.create_sender("greeter")
            for _ in range(2):
                sender.send(recorded)
            bodies = [each.body for each in answers.take(2)]
        # Both are under way at once: which is answered first, and which ran, nobody knows.
        assert sorted(b"the nonce was used before" in (each or b"") for each in bodies) == [False, True]

    def test_run_again(self) -> None:
        """A request that its policy runs again is verified once."""
        calls: list[int] = []

        def verify(request: Request, security: object) -> str:
            calls.append(1)
            return "ann"

        made = Service(verify=verify, policy=Policy(retries=2, pause=0.001))

        @made.operation(f"{{{NS}}}greetMe")
        def greet(request: Request) -> etree._Element:
            tries.append(request.identity)
            if len(tries) < 3:
                raise ConnectionError
            return element("said", "at last")

        tries: list[Any] = []
        with (
            Broker().connect() as connection,
            Dispatcher(connection, URI, made),
            Client(connection, URI, timeout=PATIENCE) as client,
        ):
            assert text_of(client.call(secured(""))) == "at last"
        assert (len(calls), tries) == (1, ["ann"] * 3)

    def test_nonces_are_bounded(self) -> None:
        """Where there is no room the oldest go, and whatever is as old is refused from then on: no replay passes."""
        nonces = Nonces(2)
        assert nonces.take(b"a", 10, 0, None)
        assert nonces.take(b"b", 20, 0, None)
        assert nonces.take(b"c", 30, 0, None)
        assert len(nonces) == 2
        assert not nonces.take(b"a", 10, 0, None)
        assert not nonces.take(b"d", 5, 0, None)
        assert not nonces.take(b"d", 15, 0, None)
        assert not nonces.take(b"b", 20, 0, None)
        assert len(nonces) == 2
        assert nonces.take(b"e", 40, 35, None)
        assert len(nonces) == 1

    def test_clock_set_back(self) -> None:
        """What was forgotten while the clock was ahead is not taken again once it is set back; newer ones are."""
        nonces = Nonces(10)
        assert nonces.take(b"a", 10, 0, None)
        assert nonces.take(b"b", 3610, 3600, None)
        assert not nonces.take(b"a", 10, 0, None)
        assert nonces.take(b"c", 11, 0, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "must get either passwords or check="),
        ({"passwords": {}, "check": print}, "must get either passwords or check="),
        ({"check": print, "digest_only": True}, "needs passwords"),
        ({"passwords": {}, "digest_only": "no"}, "digest_only must be"),
        ({"passwords": 7}, r"passwords must be a mapping or a plain function \(user\), got int"),
        ({"passwords": asleep}, r"passwords must be a mapping or a plain function \(user\), got function"),
        ({"check": "ann"}, r"check must be a plain function \(user, password\), got str"),
        ({"check": asleep}, r"check must be a plain function \(user, password\), got function"),
        ({"passwords": {}, "max_age": 0}, "max_age must be a positive number, got 0"),
        ({"passwords": {}, "skew": True}, "skew must be a positive number, got True"),
        ({"passwords": {}, "max_nonces": float("inf")}, "max_nonces must be a positive number, got inf"),
    ],
)
def test_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(soapjms.UsageError, match=said):
        UsernameTokens(**options)


def test_no_secret_is_shown() -> None:
    """No password is in a repr."""
    assert "secret" not in repr(tokens())


class TestZeep(OnEachBroker):
    """zeep's own WS-Security, over JMS."""

    @pytest.fixture
    def client(self, connection: Connection) -> Iterator[Callable[[Any], Any]]:
        made: list[Any] = []

        def client(wsse: Any, uri: str) -> Any:
            made.append(
                soapjms.zeep.Client(ECHO[SOAP_11], connection=connection, wsse=wsse, operation_timeout=PATIENCE)
            )
            return made[-1].create_service(next(iter(made[-1].wsdl.bindings)), uri)

        yield client
        for each in made:
            each.close()

    def test_tokens(self, client: Any, other: Connection, uri: str) -> None:
        """Text and digest, alone and composed with a Timestamp; a wrong password is a fault."""
        stamp = etree.Element(f"{{{WSU}}}Timestamp")
        now = datetime.now(UTC)
        etree.SubElement(stamp, f"{{{WSU}}}Created").text = now.isoformat()
        etree.SubElement(stamp, f"{{{WSU}}}Expires").text = (now + timedelta(minutes=5)).isoformat()
        verify = UsernameTokens(PASSWORDS)
        with Dispatcher(other, uri, echo(), verify=verify):
            for wsse in (
                UsernameToken("ann", "secret"),
                UsernameToken("bob", "Grüße", use_digest=True, timestamp_token=stamp),
                Compose([UsernameToken("ann", "secret", use_digest=True, zulu_timestamp=True)]),
            ):
                greet = client(wsse, uri).greetMe
                assert [greet("World"), greet("again")] == ["Hello World", "Hello again"]
            with pytest.raises(soapjms.zeep.JmsFaultError, match="could not be authenticated") as caught:
                client(UsernameToken("ann", "x", use_digest=True), uri).greetMe("World")
            assert caught.value.code.endswith(":FailedAuthentication")


def test_signatures(tmp_path: Path) -> None:
    """A request that zeep signs is checked by a hook that asks zeep; one that was changed on the way is refused."""
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    mine = authority.issue_cert("client.example", key_type=trustme.KeyType.RSA)
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    key.write_bytes(mine.private_key_pem.bytes())
    certificate.write_bytes(mine.cert_chain_pems[0].bytes())
    signing = BinarySignature(str(key), str(certificate))

    class Signing:
        """Signs what goes out, and asks nothing of what comes."""

        def apply(self, root: etree._Element, headers: Any) -> Any:
            return signing.apply(root, headers)

        def verify(self, root: etree._Element) -> None: ...

    def verify(request: Request, security: etree._Element | None) -> str:
        try:
            signing.verify(request.envelope.root)
        except (SignatureVerificationFailed, AttributeError, LookupError):
            raise refused("FailedCheck") from None
        return "client.example"

    def changing(call: soapjms.OutgoingCall, call_next: Any) -> Any:
        assert call.element is not None
        if call.element[0].text == "Eve":
            call.element[0].text = "Ann"
        return call_next(call)

    with (
        Broker().connect() as connection,
        Dispatcher(connection, "jms:queue:echo", echo(), verify=verify),
        soapjms.zeep.Client(ECHO[SOAP_11], connection=connection, wsse=Signing(), middleware=[changing]) as client,
    ):
        served = client.create_service(next(iter(client.wsdl.bindings)), "jms:queue:echo")
        assert served.greetMe("World") == "Hello World"
        with pytest.raises(soapjms.zeep.JmsFaultError, match="the signature or decryption was invalid"):
            served.greetMe("Eve")


def test_served(tmp_path: Path, shared_url: str) -> None:
    """`soapjms serve --verify` has a hook; one that is not there is a matter of usage."""
    options = ["--connection", shared_url, "--uri", "jms:queue:q"]
    with serving("bank:service", *options, "--verify", "bank:verified", marks=tmp_path) as served:
        served.until_serving()
        served.process.terminate()
        assert served.ended() == 0
    done = CliRunner().invoke(command, ["serve", "os:environ", *options, "--verify", "os:nothing"])
    assert done.exit_code == 2


def test_raised_again() -> None:
    """A fault with such a code that a service got itself, and passes on, keeps it."""
    for version in SoapVersion:
        body = secured(token(password="x"), version)
        found = as_envelope(service(tokens()).answer(accepted(version, body=body)).envelope)
        fault = read_fault(found)
        assert fault is not None
        passing = Service()
        error = fault.as_error()
        passing.operation(f"{{{NS}}}greetMe")(lambda request, error=error: error)
        passed = ask(passing, envelope("x", version), version)
        assert isinstance(passed, Fault)
        assert passed.subcodes == (f"{{{WSSE}}}FailedAuthentication",)
        assert isinstance(error, SoapFaultError)
        assert replace(fault).subcodes == error.subcodes
