"""Certificates for the TLS connectors of a test broker, made anew for each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate

PASSWORD: Final = b"password"
"""As the brokers' configurations say it."""


class Certificates:
    """An authority, a server called `localhost` and by no other name, and a client.

    Attributes:
        authority: PEM, for the client to check the server by.
        client: PEM, certificate and key together.
        stranger: PEM, certificate and key of a client that another authority vouches for.
        wrong_authority: PEM, that other authority.
    """

    def __init__(self, directory: Path) -> None:
        ours, other = trustme.CA(), trustme.CA()
        server, client, stranger = ours.issue_cert("localhost"), ours.issue_cert("client"), other.issue_cert("client")
        self.directory = directory
        self.authority = directory / "authority.pem"
        self.wrong_authority = directory / "wrong-authority.pem"
        self.client = directory / "client.pem"
        self.stranger = directory / "stranger.pem"
        directory.mkdir()
        ours.cert_pem.write_to_path(self.authority)
        other.cert_pem.write_to_path(self.wrong_authority)
        client.private_key_and_cert_chain_pem.write_to_path(self.client)
        stranger.private_key_and_cert_chain_pem.write_to_path(self.stranger)
        (directory / "server.p12").write_bytes(_key_store(server))
        (directory / "trust.p12").write_bytes(_trust_store(ours))
        for each in directory.iterdir():
            each.chmod(0o644)  # in a container the broker runs as another user


def _key_store(leaf: trustme.LeafCert) -> bytes:
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    certificate = load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())
    return pkcs12.serialize_key_and_certificates(b"server", key, certificate, None, BestAvailableEncryption(PASSWORD))


def _trust_store(authority: trustme.CA) -> bytes:
    certificate = load_pem_x509_certificate(authority.cert_pem.bytes())
    entry = pkcs12.PKCS12Certificate(certificate, b"authority")
    return pkcs12.serialize_java_truststore([entry], BestAvailableEncryption(PASSWORD))
