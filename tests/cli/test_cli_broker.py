"""`soapjms broker`: an SMQP server from the command line, as a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
import trustme
from places import ROOT

import soapjms
from brokers import Message, MessageType, queue
from brokers.amqp.listener import Action
from brokers.smqp.client import Client, ClientOptions
from brokers.smqp.protocol.replies import RefusedError
from brokers.smqp.server.setup import Setup, SetupError
from soapjms.cli.broker import read_rights, read_users

SETUP = """
context = "mq.example"
[accounts.alice]
password = "pa55"
rights = { "/" = ["all"] }
[accounts.bob]
password_file = "bob.password"
rights = { "/news" = ["subscribe", "reply"], "/queue" = ["publish", "topics", "subscribe"] }
[accounts.peer]
password = "x"
peer = true
[accounts.root]
password = "y"
admin = true
[topics."/news/world"]
keywords = ["WORLD", "TOP HEADLINES"]
timeout = inf
max_messages = 10
[topics."/lists"]
[anyone]
"/lists" = ["subscribe"]
[links."b.example"]
host = "127.0.0.1"
port = 1
account = "peer-a"
password = "z"
topics = ["/news/*"]
"""


@pytest.fixture
def setup(tmp_path: Path) -> Path:
    """Write a file for --setup."""
    file = tmp_path / "smqp.toml"
    file.write_text(SETUP)
    (tmp_path / "bob.password").write_text("s3cret\n")
    return file


@contextmanager
def broker(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], list[tuple[str, int]]]]:
    """Run the command; give the process and where it listens."""
    command = [sys.executable, "-m", "soapjms.cli", "broker", *map(str, arguments)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        addresses = []
        for _ in range(sum(str(each).startswith("--smqp") for each in arguments)):
            line = process.stdout.readline()
            found = re.fullmatch(r"(\S+) listens at smqps?://(\S+):(\d+)\n", line)
            assert found, line + process.stderr.read()
            addresses.append((found[2], int(found[3])))
        yield process, addresses
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_a_server_without_accounts_says_so(setup: Path) -> None:
    """Nobody can use it, and the option that adds accounts is named; a server with accounts warns of nothing."""
    for arguments, said in (((), "has no account, so nobody can log in; --setup FILE adds"), (("--setup", setup), "")):
        with broker("--smqp", "127.0.0.1:0", *arguments) as (process, _):
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
            assert process.stderr is not None
            written = process.stderr.read()
        assert said in written
        assert ("Warning" in written) is bool(said)


def test_what_was_answered_survives_sigkill(setup: Path, tmp_path: Path) -> None:
    """Accounts, topics and messages are there after it; SIGTERM ends it with 0, and its clients are told."""
    arguments = ("--smqp", "127.0.0.1:0", "--setup", setup, "--store", tmp_path / "store")
    once = ClientOptions(renew=None)
    with (
        broker(*arguments) as (process, [address]),
        Client(*address, account="alice", password="pa55", options=once) as alice,
    ):
        assert alice.welcome.context == "mq.example"
        smuid = alice.publish("/news/world", "hello").smuid
        process.kill()
        process.wait()
    with (
        broker(*arguments) as (process, [address]),
        Client(*address, account="bob", password="s3cret", options=once) as bob,
    ):
        assert bob.keywords("/news/world") == ("WORLD", "TOP HEADLINES")
        assert bob.message("/news/world", smuid).sections[0].data == b"hello"
        assert bob.subscribe("/lists", print) == ["/lists"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_how_much_a_topic_has(setup: Path) -> None:
    """`--max-octets` is the size of its messages; the error of the client says how much there was."""
    with (
        broker("--smqp", "127.0.0.1:0", "--setup", setup, "--max-octets", "1000") as (_, [address]),
        Client(*address, account="alice", password="pa55", options=ClientOptions(renew=None)) as alice,
    ):
        alice.publish("/news/world", "a" * 500)
        with pytest.raises(
            RefusedError, match=r"414.*/news/world is full: max_octets is 1000, there are 8.. and 8.. more"
        ):
            alice.publish("/news/world", "b" * 500)


def test_queues_over_smqps(setup: Path, tmp_path: Path) -> None:
    """It is prepared for smqp:// URLs, and for TLS."""
    authority = trustme.CA()
    certificate, trusted = tmp_path / "cert.pem", tmp_path / "ca.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    authority.cert_pem.write_to_path(trusted)
    with (
        broker("--smqps", "localhost:0", "--cert", certificate, "--setup", setup) as (_, [(_, port)]),
        soapjms.connect(f"smqps://bob:s3cret@localhost:{port}?caFile={trusted}") as connection,
    ):
        message = Message(message_type=MessageType.TEXT, body="x", destination=queue("orders"))
        assert connection.send(message).result(20).message_id == "ID:mq.example/1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--smqp localhost"),
        (("--smqp", "here"), "HOST:PORT, such as localhost:7200 (port 0"),
        (("--amqp", "99"), "HOST:PORT, such as localhost:5672 (port 0"),
        (("--wss", "99"), "HOST:PORT, such as localhost:8443 (port 0"),
        (("--smqps", "localhost:0"), "--cert"),
        (("--smqps", "localhost:0", "--cert", __file__), "the file of the certificate has no certificate in PEM"),
        (("--amqp", "localhost:0", "--key", __file__), "--key must come with its certificate: --cert FILE"),
        (("--smqp", "localhost:0", "--cert", __file__), "--cert is for TLS: give an address to listen at"),
        (("--smqp", "localhost:0", "--setup", "none.toml"), "none.toml"),
        (("--smqp", "localhost:0", "--context", "a b"), "context must be a name without blanks"),
        (("--smqp", "localhost:0", "--context", ""), "context must be a name without blanks"),
        (("--amqp", "localhost:0", "--store", "new.db"), "--store is for SMQP: give an address to listen at"),
        (("--amqp", "localhost:0", "--queue", "jms:queue:a"), "must be the name of a queue, such as 'a', not a URI"),
        (("--smqp", "localhost:0", "--max-transactions", "9"), "--amqp localhost"),
    ],
)
def test_usage(arguments: tuple[str, ...], said: str) -> None:
    """What cannot be is said at once, with status 2."""
    command = [sys.executable, "-m", "soapjms.cli", "broker", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert said in done.stderr


def test_two_servers_on_one_store(setup: Path, tmp_path: Path) -> None:
    """The second says why it ends."""
    arguments = ("--smqp", "127.0.0.1:0", "--store", tmp_path / "store")
    with broker(*arguments):
        command = [sys.executable, "-m", "soapjms.cli", "broker", *map(str, arguments)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert "cannot be used as the store" in done.stderr


LINK = "[links.b]\nhost = 'h'\naccount = 'a'\npassword = 's3cret'\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("color = 1", "must be accounts"),
        ("accounts = 1", r"\[accounts.NAME\]"),
        ("[accounts.a]", "password"),
        ("[accounts.a]\npassword = 's3cret'\npassword_file = 'x'", "password"),
        ("[accounts.a]\npassword_file = 'none'", "cannot be read"),
        ("[accounts.a]\npassword_file = 'latin'", r"\[accounts.a\]: the password_file must be text in UTF-8"),
        ("[accounts.a]\npassword = 's3cret'\nrights = { '/' = ['fly'] }", "publish, subscribe"),
        ("[accounts.a]\npassword = 's3cret'\nrights = ['publish']", "table of topics"),
        ("[accounts.a]\npassword = 's3cret'\nsize = 1", "must be admin"),
        ("[topics.'/a']\ncolor = 1", "must be keywords"),
        ("[links.b]\npassword = 's3cret'", "host and an account"),
        ("[", "is not TOML"),
        ("context = 1", "context must be a text"),
        ("context = ''", "context must be a text"),
        ("[accounts.a]\npassword = 5", r"\[accounts.a\] password must be a text"),
        ("[accounts.a]\npassword = 's3cret'\nadmin = 'no'", r"\[accounts.a\] admin must be true or false, got 'no'"),
        ("[accounts.a]\npassword = 's3cret'\npeer = 0", "peer must be true or false, got 0"),
        ("[topics.a]", r"\[topics.'a'\]: a topic must begin with '/'"),
        ("[topics.'/a/*']", "a part of a topic must be a letter"),
        ("[topics.'/a']\nkeywords = 'WORLD'", r"keywords must be a list of strings, got 'WORLD'; write \['WORLD'\]"),
        ("[topics.'/a']\nkeywords = [1]", "keywords must be a list of strings"),
        ("[topics.'/a']\nkeywords = ['a/b']", "a keyword must not have slashes"),
        ("[topics.'/a']\ntimeout = 'an hour'", r"\[topics.'/a'\]: timeout must be a number of seconds, at least 0"),
        ("[topics.'/a']\ntimeout = -1", "timeout must be a number of seconds, at least 0, got -1"),
        ("[topics.'/a']\ntimeout = nan", "timeout must be a number of seconds"),
        ("[topics.'/a']\nretry_timeout = 0", "retry_timeout must be a number of seconds above 0, got 0"),
        ("[topics.'/a']\nmax_retries = 1.5", "max_retries must be a whole number of at least 0, got 1.5"),
        ("[topics.'/a']\nmax_messages = true", "max_messages must be a whole number of at least 1, got True"),
        ("[topics.'/a']\nmax_octets = 99999999999999999999", "max_octets must be a whole number"),
        (f"{LINK}topics = '/a'", r"\[links.'b'\]: topics must be a list of topics, got '/a'; write \['/a'\]"),
        (f"{LINK}topics = ['a']", "a topic must begin with '/'"),
        (f"{LINK}port = '720'", "port must be a number from 1 to 65535, got '720'"),
        (f"{LINK}port = 65536", "port must be a number from 1 to 65535, got 65536"),
    ],
)
def test_setup_that_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    """The error says where and what would be right, and repeats no password."""
    file = tmp_path / "setup.toml"
    file.write_text(text)
    (tmp_path / "latin").write_bytes("sécret".encode("latin-1"))
    with pytest.raises(SetupError, match=said) as found:
        Setup.read(file)
    assert "s3cret" not in str(found.value)


BOM = b"\xef\xbb\xbf"
"""What some editors write at the beginning of a file."""


def test_files_with_a_byte_order_mark(tmp_path: Path) -> None:
    """It is no part of the first name, or of the password."""
    users, rights, setup = tmp_path / "users", tmp_path / "rights", tmp_path / "setup.toml"
    users.write_bytes(BOM + "ann:sécret\nbob:b\n".encode())
    rights.write_bytes(BOM + b"ann send queue:a\n")
    (tmp_path / "password").write_bytes(BOM + b"s3cret\n")
    setup.write_bytes(BOM + b"[accounts.ann]\npassword_file = 'password'")
    assert read_users(users) == {"ann": "sécret", "bob": "b"}
    assert read_rights(rights)("ann", Action.SEND, queue("a"))
    assert Setup.read(setup).accounts[0].password == "s3cret"


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        ("ann:sécret".encode("latin-1"), "users must be text in UTF-8, got an octet that is not, at 5"),
        (b"ann:sa\nbob:b\nann:sb", "line 3 of .*users must be for another user than those before"),
    ],
)
def test_users_that_cannot_be(tmp_path: Path, octets: bytes, said: str) -> None:
    """The error names the file, and no password."""
    users = tmp_path / "users"
    users.write_bytes(octets)
    with pytest.raises(click.UsageError, match=said) as found:
        read_users(users)
    assert "sb" not in found.value.message


def test_passwords_are_not_shown(setup: Path) -> None:
    """Nor by the object that was read."""
    assert "s3cret" not in repr(Setup.read(setup).accounts)
