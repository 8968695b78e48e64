"""What is given for a file and is none: told at once, never waited for; `<(command)` of a shell is read."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling_kit import envelope
from cli_kit import command, environment, run
from places import ROOT

import brokers
from brokers.amqp.listener import Listener
from brokers.embedded import Broker
from brokers.errors import BrokerError
from brokers.files import check_files
from soapjms import UsageError
from soapjms.bridge.listener import Listener as HttpListener

ECHO = ROOT / "tests" / "data" / "wsdl" / "echo-soap11.wsdl"
ACCEPTED = "accepted are files, and <(command) of a shell"
OPTIONS = "with values for options"
NAMES = "jndi.properties, or a .toml file"
FIFO = f"got 'pipe', which is a FIFO; {ACCEPTED}"
AT = ["--uri", "jms:queue:a", "--connection", "embedded:"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a FIFO that nobody writes to. Whoever opens it is let go in the end."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    yield tmp_path
    os.close(os.open("pipe", os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config", "pipe", "uri", "parse", "jms:queue:a"], f"'--config': it must be a TOML file {OPTIONS}, {FIFO}"),
        (["call", "pipe", *AT], FIFO),
        (["call", "--attachment", "pipe", *AT, "-"], f"'--attachment': it must be a file to attach, {FIFO}"),
        (["call", ECHO, "greetMe", "--input", "pipe"], FIFO),
        (["call", ECHO, "greetMe", "requestType=@pipe"], "there is no file 'pipe'"),
        (["call", ECHO, "greetMe", "--names", "pipe"], f"'--names': it must be a file of JNDI names: {NAMES}, {FIFO}"),
        (["wsdl", "lint", "pipe"], f"'FILE': it must be a WSDL file, {FIFO}"),
        (["wsdl", "lint", "/dev/zero"], "got '/dev/zero', which is a device"),
        (["explain", "."], "it must be a WSDL file, got '.', which is a folder"),
        (["--config", ".", "explain", ECHO], "got '.', which is a folder"),
        (["--config", "/dev/zero", "explain", ECHO], "got '/dev/zero', which is a device"),
        (["replay", "pipe", "--local", "--out", "out"], "pipe: cannot be opened: it is no regular file"),
        (["broker", "--smqp", "localhost:0", "--setup", "pipe"], FIFO),
        (["broker", "--smqp", "localhost:0", "--store", "pipe"], "got 'pipe', which is not a regular file"),
        (["wsdl", "add-port", ECHO, "--to", "jms:queue:a", "-o", "pipe"], "got 'pipe', which is not a regular file"),
        (["report", ".", ".", ".", "--trend", "/dev/null"], "got '/dev/null', which is not a regular file"),
        (["broker", "--amqp", "localhost:0", "--users", "pipe"], FIFO),
        (["broker", "--amqp", "localhost:0", "--rights", "pipe"], FIFO),
        (["broker", "--amqps", "localhost:0", "--cert", "pipe"], FIFO),
        (["broker", "--amqps", "localhost:0", "--cert", ECHO, "--key", "pipe"], FIFO),
        (["bridge", "http", "--listen", "localhost:0", "--to", *AT[1:], "--cert", "pipe"], FIFO),
    ],
)  # fmt: skip
def test_what_is_no_file(folder: Path, words: list[str | Path], said: str) -> None:
    """It is usage, and said in one line."""
    done = run(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())


def test_the_password_of_an_account(folder: Path) -> None:
    """In a file that the set-up of an SMQP server names."""
    (folder / "smqp.toml").write_text('[accounts.alice]\npassword_file = "pipe"\n')
    done = run("broker", "--smqp", "localhost:0", "--setup", "smqp.toml")
    assert done.exit_code == 2
    assert "[accounts.alice]: the password_file cannot be read" in done.stderr
    assert "is a FIFO" in done.stderr


@pytest.mark.parametrize("name", ["caFile", "certFile", "keyFile", "keyPasswordFile"])
def test_files_for_tls(folder: Path, name: str) -> None:
    """A URL names them; there is somebody who listens, so that they are read."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        (folder / "a.pem").write_text("")
        others = "certFile=a.pem&" if name.startswith("key") else ""
        with pytest.raises((BrokerError, OSError), match="is a FIFO"):
            brokers.connect(f"stomp+ssl://127.0.0.1:{server.getsockname()[1]}?{others}{name}=pipe", timeout=5)


def test_a_listener_for_https(folder: Path) -> None:
    """In a program too."""
    with pytest.raises(UsageError, match="is a FIFO"):
        HttpListener(None, "127.0.0.1:0", certificate="pipe")


def test_other_things_that_are_no_files(folder: Path) -> None:
    """Sockets and folders; nothing is not there, and None is nothing."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
        with pytest.raises(OSError, match="'socket' is a socket; accepted are files"):
            check_files("socket")
    with pytest.raises(IsADirectoryError):
        check_files(folder)
    with pytest.raises(FileNotFoundError):
        check_files(None, folder / "none")
    check_files(None, ECHO, "/dev/null")


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Have Bash run a line in which `soapjms` is the command."""
    words = ["bash", "-c", line.replace("soapjms ", f"{' '.join(command())} ")]
    return subprocess.run(words, cwd=cwd, env=environment(), capture_output=True, timeout=60, check=False)


def test_what_a_shell_makes_of_a_command_is_read(tmp_path: Path) -> None:
    """Where a file is read once: a configuration, an envelope, arguments."""
    (tmp_path / "hello.xml").write_bytes(envelope())
    done = shell("soapjms --config <(echo '[uri.parse]'; echo 'json = true') uri parse jms:queue:a", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"{")
    with Listener(Broker(), "127.0.0.1", 0) as listener:
        for place in ("<(cat hello.xml)", "/dev/stdin", "-"):
            at = f"--uri jms:queue:a --connection amqp://127.0.0.1:{listener.port}"
            done = shell(f"soapjms call {place} --one-way {at} < hello.xml", tmp_path)
            assert (done.returncode, done.stderr) == (0, b""), place
    line = "soapjms --config /dev/null uri parse jms:queue:a"
    assert shell(line, tmp_path).returncode == 0
