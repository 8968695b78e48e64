"""Where a STOMP broker is and who asks: the URL, the environment, and what the program says."""

from __future__ import annotations

import pickle
import socket
import ssl
import traceback
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

import brokers
from brokers.errors import ConnectionFailedError, UsageError
from brokers.stomp.dialect import ARTEMIS
from brokers.stomp.url import StompLogin, StompOptions, login_of
from brokers.tls import Tls, TlsFileError
from brokers.url import Credentials

SECRET = "tops3cret"


def login(url: str, environment: dict[str, str] | None = None, **given: object) -> StompLogin:
    """Read a URL with nothing else around it but what is said."""
    return login_of(url, environment or {}, StompOptions(**given))  # type: ignore[arg-type]


def who(url: str, environment: dict[str, str] | None = None, **given: object) -> tuple[str | None, str | None]:
    """Return the user and password that would be sent."""
    headers = login(url, environment, **given).headers()
    return headers.get("login"), headers.get("passcode")


def test_url_is_read() -> None:
    """User and password are percent-encoded there; the port has a default by scheme."""
    full = login("stomp://us%40er:p%3Aw%2F@broker.example:61000")
    assert (full.host, full.port, full.tls, full.heartbeat) == ("broker.example", 61000, None, 10_000)
    assert who("stomp://us%40er:p%3Aw%2F@broker.example:61000") == ("us@er", "p:w/")
    plain = login("stomp://[::1]", heartbeat=0)
    assert (plain.host, plain.port, plain.heartbeat, f"{plain}") == ("::1", 61613, 0, "stomp://[::1]:61613")
    assert who("stomp://host") == (None, None)
    safe = login("stomp+ssl://host")
    assert (safe.port, safe.tls, f"{safe}") == (61612, Tls(), "stomp+ssl://host:61612")


def test_parameters_are_read() -> None:
    """Each option of `connect` has its parameter."""
    url = (
        "stomp+ssl://host?caFile=%2Fca.pem&certFile=c.pem&keyFile=k.pem&keyPasswordFile=p&serverName=other&verify=false"
    )
    found = login(f"{url}&clientId=me&dialect=artemis&deadLetters=DLQ.&heartbeat=500")
    assert found.tls == Tls(
        ca_file=Path("/ca.pem"),
        cert_file=Path("c.pem"),
        key_file=Path("k.pem"),
        key_password_file=Path("p"),
        server_name="other",
        verify=False,
    )
    assert (found.client_id, found.dialect, found.dead_letters, found.heartbeat) == ("me", ARTEMIS, "DLQ.", 500)
    assert found.headers()["client-id"] == "me"


def test_program_wins_over_url_over_environment() -> None:
    """In that order; the environment is asked for files too."""
    variables = {"SOAPJMS_CA_FILE": "e.pem", "SOAPJMS_CERT_FILE": "ec.pem", "SOAPJMS_USER": "eve"}
    assert login("stomp+ssl://host", variables).tls == Tls(ca_file=Path("e.pem"), cert_file=Path("ec.pem"))
    assert login("stomp+ssl://host?caFile=u.pem", variables).tls == Tls(ca_file=Path("u.pem"), cert_file=Path("ec.pem"))
    assert login("stomp+ssl://host", variables, tls=Tls()).tls == Tls()
    url = "stomp+ssl://host?clientId=url&heartbeat=500&maxMessage=5&caFile=u.pem&serverName=url"
    found = login(url, client_id="program", heartbeat=10.0, max_message=100 << 20, tls=Tls(ca_file=Path("program.pem")))
    assert (found.client_id, found.heartbeat, found.max_message) == ("program", 10_000, 100 << 20)
    assert found.tls == Tls(ca_file=Path("program.pem"), server_name="url")
    assert login(url).max_message == 5
    assert who("stomp://host", variables | {"SOAPJMS_PASSWORD": SECRET}) == ("eve", SECRET)
    assert who("stomp://u:p@host", variables | {"SOAPJMS_PASSWORD": SECRET}) == ("u", "p")
    assert who("stomp://host", variables, credentials=Credentials("a", "b")) == ("a", "b")


def test_password_from_a_file(tmp_path: Path) -> None:
    """Read at every attempt, without the line end that editors add; by parameter and by variable."""
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    from_url = login(f"stomp://user@host?passwordFile={file}")
    from_environment = login("stomp://host", {"SOAPJMS_USER": "user", "SOAPJMS_PASSWORD_FILE": str(file)})
    for each in (from_url, from_environment):
        assert each.headers()["passcode"] == SECRET
        assert each.headers()["login"] == "user"
    file.write_text("another \r\n")
    assert from_url.headers()["passcode"] == "another "
    file.unlink()
    with pytest.raises(ConnectionFailedError, match=r"the password .* cannot be read: No such file"):
        from_url.headers()


def test_password_from_a_callable() -> None:
    """Asked at every attempt, so that secrets may rotate."""
    passwords = iter(["first", "second"])
    found = login("stomp://host", credentials=lambda: Credentials("me", next(passwords)))
    assert [found.headers()["passcode"] for _ in range(2)] == ["first", "second"]
    with pytest.raises(ConnectionFailedError, match="must return Credentials, got tuple"):
        login("stomp://host", credentials=lambda: ("me", "pw")).headers()


def test_secrets_are_not_shown() -> None:
    """Neither in repr nor in str, and nothing that holds them is pickled."""
    for url, given in (
        (f"stomp://{SECRET}:{SECRET}@host", {}),
        ("stomp://host", {"credentials": Credentials(SECRET, SECRET)}),
    ):
        found = login(url, **given)
        for shown in (found, found.ask(), found.ask, found.tls):
            assert SECRET not in f"{shown} {shown!r}"
        for held in (found, found.ask()):
            with pytest.raises(TypeError, match="cannot be pickled"):
                pickle.dumps(held)


@pytest.mark.parametrize(
    "url",
    [
        f"stomp://user:{SECRET}/rest@host",
        f"stomp://user:{SECRET}?rest@host",
        f"stomp://user:{SECRET}#rest@host",
        f"stomp://user:{SECRET}@[host",
        f"stomp://user:{SECRET}@host:no",
        f"stomp://user:{SECRET}@host:99999",
        f"stomp://user:{SECRET}@host:0",
        f"stomp://user:{SECRET}@ho\u2100st",
        f"stomp://user:{SECRET}@",
        f"stomp://host?passwordFile=x&{SECRET}=1",
        f"failover:(stomp://user:{SECRET}@[host)",
        f"failover:(stomp://user:{SECRET}@ho\u2100st)",
    ],
)
def test_bad_url_does_not_give_the_password_away(url: str) -> None:
    """Whatever is wrong with it: not in the message, nor in what a traceback would show beside it."""
    with pytest.raises(ValueError, match=r"URL") as caught:
        brokers.connect(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None or SECRET not in str(caught.value.__context__)


@pytest.mark.parametrize("scheme", ["stomp", "amqp", "amqp+ws", "smqp"])
def test_a_login_that_cannot_be_encoded(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a password in another encoding: refused without being repeated, wherever it comes from."""
    file = tmp_path / "password"
    file.write_bytes(f"{SECRET}é".encode("latin-1"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        cases = [(url, {"credentials": Credentials("me", f"{SECRET}{end}")}) for end in ("\udce9", "\0")]
        cases.append((f"{url}?passwordFile={file}".replace("//", "//me@"), {}))
        for each, given in cases:
            with pytest.raises(UsageError, match="the login cannot be encoded: user and password must be") as caught:
                brokers.connect(each, timeout=5, **given)
            assert_no_secret(caught.value)
        monkeypatch.setenv("SOAPJMS_USER", "me")
        monkeypatch.setenv("SOAPJMS_PASSWORD", f"{SECRET}\udce9")
        with pytest.raises(UsageError, match="the login cannot be encoded") as caught:
            brokers.connect(url, timeout=5)
        assert_no_secret(caught.value)


def assert_no_secret(error: BaseException | None) -> None:
    """Neither an error nor what led to it has the password, not even as an attribute."""
    while error is not None:
        assert SECRET not in "".join(traceback.format_exception(error))
        assert SECRET not in f"{error.args} {vars(error)} {getattr(error, 'object', '')}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("scheme", ["stomp", "amqp", "amqp+ws"])
@pytest.mark.parametrize("client_id", ["a\udce9", "a\0b"])
def test_a_client_id_that_cannot_be_encoded(scheme: str, client_id: str) -> None:
    """Likewise, before anything is sent; AMQP's library would cut it off at NUL."""
    with pytest.raises(UsageError, match="the login cannot be encoded: host and client id must be"):
        brokers.connect(f"{scheme}://127.0.0.1:1", timeout=5, client_id=client_id)


@pytest.mark.parametrize(
    ("url", "given", "complaint"),
    [
        ("stomp://", {}, "must name a host"),
        ("stomp://host/queue", {}, "must end with the port"),
        ("stomp://host#f", {}, "must end with the port"),
        ("stomp://host?a=b", {}, "known are: passwordFile"),
        ("stomp://host?clientId=", {}, "has no value for clientId; known are: passwordFile"),
        ("stomp://host?caFile=x", {}, "known are"),
        ("stomp+ssl://host?verify=no", {}, "true or false"),
        ("stomp://host?heartbeat=soon", {}, "milliseconds"),
        (
            "stomp://host?deadLetters=jms:queue:dl",
            {},
            "deadLetters must be the name of a queue, such as 'dl', not a URI",
        ),
        ("stomp://host?dialect=rabbit", {}, "dialect must be one of activemq, artemis"),
        ("stomp://host", {"tls": ssl.create_default_context()}, r"stomp\+ssl"),
        ("stomp://u:p@host", {"credentials": Credentials()}, "got both"),
        ("stomp://u:p@host?passwordFile=f", {}, "got both"),
        ("stomp://host", {"credentials": ("ann", "secret")}, "credentials must be .*, got .* class tuple$"),
        ("stomp+ssl://host", {"tls": 5}, "tls must be brokers.stomp.Tls.*, got 5"),
        ("stomp+ssl://host", {"tls": True}, "tls must be brokers.stomp.Tls.*, got True"),
        ("stomp://host", {"tls": 5}, "tls must be brokers.stomp.Tls.*, got 5"),
    ],
)
def test_bad_address_is_the_callers_mistake(url: str, given: dict[str, object], complaint: str) -> None:
    """What would be ignored is better refused, and the message says what is known."""
    with pytest.raises(ValueError, match=complaint):
        brokers.connect(url, **given)


def test_files_of_tls_that_are_missing(tmp_path: Path) -> None:
    """An error with the cause, before anything is sent."""
    with pytest.raises(ConnectionFailedError, match="No such file"):
        brokers.connect(f"stomp+ssl://127.0.0.1:1?caFile={tmp_path}/none.pem", timeout=5)


def test_a_key_whose_password_is_not_in_utf8(tmp_path: Path) -> None:
    """It is taken as the file has it, as `openssl` does."""
    certificate = trustme.CA().issue_cert("localhost")
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    locked = BestAvailableEncryption(b"caf\xe9")
    (tmp_path / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    (tmp_path / "password").write_bytes(b"caf\xe9\r\n")
    tls = Tls(cert_file=tmp_path / "cert.pem", key_file=tmp_path / "key.pem", key_password_file=tmp_path / "password")
    tls.prepare("localhost")
    (tmp_path / "password").write_bytes(b"caf\xe8\r\n")
    with pytest.raises(TlsFileError, match="wrong password"):
        tls.prepare("localhost")


def test_no_file_of_the_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise, over each protocol, wherever the file was named."""
    monkeypatch.setenv("SOAPJMS_PASSWORD_FILE", f"{tmp_path}/none")
    for url in ("stomp://127.0.0.1:1", f"stomp://me@127.0.0.1:1?passwordFile={tmp_path}/none", "smqp://127.0.0.1:1"):
        with pytest.raises(ConnectionFailedError) as caught:
            brokers.connect(url, timeout=5)
        assert str(caught.value).endswith(
            "127.0.0.1:1: the file of the password (passwordFile, SOAPJMS_PASSWORD_FILE) cannot be read: "
            f"No such file or directory: '{tmp_path}/none'"
        )


def test_a_missing_file_is_named_by_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """As is the variable that names it; no number of the operating system stands there."""
    monkeypatch.setenv("SOAPJMS_CA_FILE", "/nowhere/ca.pem")
    with pytest.raises(ConnectionFailedError) as caught:
        brokers.connect("stomp+ssl://localhost:1", timeout=5)
    said = "the file of the authority (caFile, SOAPJMS_CA_FILE) cannot be read: No such file or directory"
    assert f"{said}: '/nowhere/ca.pem'" in str(caught.value)
    assert "Errno" not in str(caught.value)
