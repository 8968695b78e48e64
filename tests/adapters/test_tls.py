"""Files for TLS that are missing or unsuitable: what is said of them is the same over every protocol."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from cli_kit import environment
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from stomp_kit import PATIENCE

import brokers
from brokers import TlsError
from brokers.tls import TlsFileError, server_context

SCHEMES = ("stomp+ssl", "amqps", "amqp+wss", "smqps")
CERTIFICATE = "the file of the certificate (certFile, SOAPJMS_CERT_FILE)"
KEY = "the file of the key (keyFile, SOAPJMS_KEY_FILE)"
PASSWORD = "the file of the key's password (keyPasswordFile, SOAPJMS_KEY_PASSWORD_FILE)"  # a title


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that fit together, and files that do not."""
    made = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    server, other = authority.issue_cert("localhost"), authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(made / "ca.pem")
    server.cert_chain_pems[0].write_to_path(made / "cert.pem")
    server.private_key_pem.write_to_path(made / "key.pem")
    server.private_key_and_cert_chain_pem.write_to_path(made / "both.pem")
    other.private_key_pem.write_to_path(made / "other.pem")
    key, password = load_pem_private_key(server.private_key_pem.bytes(), None), BestAvailableEncryption(b"tops3cret")
    (made / "locked.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, password))
    (made / "both-locked.pem").write_bytes((made / "locked.pem").read_bytes() + (made / "cert.pem").read_bytes())
    (made / "right").write_text("tops3cret\n")
    (made / "wrong").write_text("another\n")
    (made / "long").write_text("x" * 2000)
    (made / "text.pem").write_text("not PEM\n")
    return made


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            "caFile=text.pem",
            "the file of the authority (caFile, SOAPJMS_CA_FILE) has no certificate in PEM: 'text.pem'",
        ),
        ("caFile=key.pem", "the file of the authority (caFile, SOAPJMS_CA_FILE) has no certificate in PEM: 'key.pem'"),
        ("certFile=none.pem", f"{CERTIFICATE} cannot be read: No such file or directory: 'none.pem'"),
        ("certFile=text.pem", f"{CERTIFICATE} has no certificate in PEM: 'text.pem'"),
        ("certFile=key.pem&keyFile=key.pem", f"{CERTIFICATE} has no certificate in PEM: 'key.pem'"),
        ("certFile=cert.pem", f"{KEY} is missing; that of the certificate has no key: 'cert.pem'"),
        ("certFile=cert.pem&keyFile=text.pem", f"{KEY} has no private key in PEM: 'text.pem'"),
        ("certFile=cert.pem&keyFile=other.pem", f"{KEY} has another key than that of the certificate: 'other.pem'"),
        ("certFile=cert.pem&keyFile=locked.pem", f"{PASSWORD} is missing; the key has a password: 'locked.pem'"),
        ("certFile=both-locked.pem", f"{PASSWORD} is missing; the key has a password: 'both-locked.pem'"),
        (
            "certFile=cert.pem&keyFile=locked.pem&keyPasswordFile=wrong",
            f"{PASSWORD} has the wrong password for the key in 'locked.pem': 'wrong'",
        ),
        (
            "certFile=cert.pem&keyFile=locked.pem&keyPasswordFile=long",
            f"{PASSWORD} has the wrong password for the key in 'locked.pem': 'long'",
        ),
        ("keyFile=key.pem", f"{CERTIFICATE} is missing; there is only {KEY}: 'key.pem'"),
        ("keyPasswordFile=right", f"{CERTIFICATE} is missing; there is only {PASSWORD}: 'right'"),
    ],
)
def test_files_of_a_client(
    folder: Path, scheme: str, parameters: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the file, what it is for, and the parameter; nothing is sent."""
    monkeypatch.chdir(folder)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(TlsError) as caught:
            brokers.connect(f"{scheme}://me:pw@127.0.0.1:{port}?{parameters}", timeout=PATIENCE)
    assert str(caught.value) == f"no connection to {scheme}://127.0.0.1:{port}: {said}"


@pytest.mark.parametrize(
    ("certificate", "key", "said"),
    [
        ("none.pem", None, "the file of the certificate cannot be read: No such file or directory: 'none.pem'"),
        ("text.pem", None, "the file of the certificate has no certificate in PEM: 'text.pem'"),
        ("cert.pem", None, "the file of the key is missing; that of the certificate has no key: 'cert.pem'"),
        ("cert.pem", "text.pem", "the file of the key has no private key in PEM: 'text.pem'"),
        ("cert.pem", "other.pem", "the file of the key has another key than that of the certificate: 'other.pem'"),
    ],
)
def test_files_of_a_listener(
    folder: Path, certificate: str, key: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Likewise."""
    monkeypatch.chdir(folder)
    with pytest.raises(TlsFileError) as caught:
        server_context(certificate, key)
    assert str(caught.value) == said


def test_a_key_of_a_listener_with_a_password(folder: Path) -> None:
    """OpenSSL asks for it at the terminal; there is none here."""
    program = f"from brokers.tls import server_context; server_context('cert.pem', '{folder}/locked.pem')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        timeout=PATIENCE,
        check=False,
        text=True,
    )
    assert (
        f"the file of the key has a password that was not given at the terminal: '{folder}/locked.pem'" in done.stderr
    )
