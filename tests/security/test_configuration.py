"""`soapjms.toml` in a working directory of somebody else's: it is not read, and gets no password of the user's."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from cli_kit import run

PASSWORD = "of the user alone"
VARIABLES = {"SOAPJMS_USER": "me", "SOAPJMS_PASSWORD": PASSWORD}
COMMANDS = (
    ("doctor", "--timeout", "2"),
    ("call", "--timeout", "2", "--uri", "jms:queue:a", "hello.xml"),
    ("capture", "--queue", "a", "--out", "captures"),
    ("unsubscribe", "a"),
    ("serve", "soapjms:Service", "--uri", "jms:queue:a"),
    ("bridge", "http", "--listen", "127.0.0.1:0", "--to", "jms:queue:a"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    (tmp_path / "hello.xml").write_text(
        '<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body><a xmlns="urn:a"/></Body></Envelope>'
    )
    return tmp_path


@contextmanager
def stranger() -> Iterator[tuple[int, Queue[bytes]]]:
    """Listen, and keep what the first frames of clients say."""
    heard: Queue[bytes] = Queue()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hear() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                with client:
                    client.settimeout(2)
                    heard.put(client.recv(4096))

        listener = Thread(target=hear)
        listener.start()
        yield listening.getsockname()[1], heard
        listening.shutdown(socket.SHUT_RDWR)
        listener.join(10)


def written(folder: Path, text: str) -> None:
    """Write the file as its owner alone may."""
    (folder / "soapjms.toml").write_text(text)
    (folder / "soapjms.toml").chmod(0o644)


OLD = {name.replace("SOAPJMS_", "BROKERS_"): value for name, value in VARIABLES.items()}


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_password_of_an_old_variable(words: tuple[str, ...], folder: Path) -> None:
    """It is as secret under the name that it had before."""
    with stranger() as (port, heard):
        written(folder, f'connection = "stomp://127.0.0.1:{port}"')
        done = run(*words, **OLD)
        assert (done.exit_code, heard.empty()) == (2, True), done.output
        assert "the password comes from BROKERS_PASSWORD" in done.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_password_of_the_environment(words: tuple[str, ...], folder: Path) -> None:
    """It is not sent to the broker that a file names which nobody named; the user is told what to type."""
    with stranger() as (port, heard):
        written(folder, f'connection = "stomp://127.0.0.1:{port}"')
        done = run(*words, **VARIABLES)
        assert (done.exit_code, heard.empty()) == (2, True), done.output
        assert "the password comes from SOAPJMS_PASSWORD" in done.stderr
        assert "--config soapjms.toml" in done.stderr
        assert PASSWORD not in done.output


@pytest.mark.parametrize(
    "url",
    [
        "stomp://127.0.0.1:{port},127.0.0.1:{port}",
        "failover:(stomp://u:p@127.0.0.1:{port},stomp://127.0.0.1:{port})",
        "amqp://127.0.0.1:{port}",
        "stomp://u@127.0.0.1:{port}?passwordFile={folder}/password",
    ],
)
def test_ways_to_write_it(url: str, folder: Path) -> None:
    """Nor if one broker of several has none of its own, nor is a file of the user's sent as a password."""
    (folder / "password").write_text(PASSWORD)
    with stranger() as (port, heard):
        written(folder, f'connection = "{url.format(port=port, folder=folder)}"')
        done = run("doctor", "--timeout", "2", **VARIABLES)
        assert (done.exit_code, heard.empty()) == (2, True)
        variables = {"SOAPJMS_USER": "me", "SOAPJMS_PASSWORD_FILE": str(folder / "password")}
        assert run("doctor", "--timeout", "2", **variables).exit_code == 2
        assert heard.empty()


def test_names(folder: Path) -> None:
    """Nor to a broker to which JNDI names of such a file lead."""
    with stranger() as (port, heard):
        (folder / "names.toml").write_text(f"[allowed_brokers]\n'tcp://a:1' = 'stomp://127.0.0.1:{port}'")
        written(folder, 'names = "names.toml"\n[call]\nuri = "jms:queue:a?jndiURL=tcp%3A%2F%2Fa%3A1"')
        done = run("call", "--timeout", "2", "hello.xml", **VARIABLES)
        assert (done.exit_code, heard.empty()) == (2, True)
        assert "names is set to 'names.toml' by a soapjms.toml that you did not name" in done.stderr


@pytest.mark.parametrize("named", ["file", "variable", "flag", "environment", "own"])
def test_named(named: str, folder: Path) -> None:
    """Who names the file or the broker gets there, and so does a login that stands in the file."""
    with stranger() as (port, heard):
        url = f"stomp://127.0.0.1:{port}"
        written(folder, f'connection = "stomp://{"u:p@" * (named == "own")}127.0.0.1:{port}"')
        before = ("--config", "soapjms.toml") if named == "file" else ()
        after = ("--connection", url) if named == "flag" else ()
        more = {"variable": {"SOAPJMS_CONFIG": "soapjms.toml"}, "environment": {"SOAPJMS_CONNECTION": url}}
        run(
            *before,
            "call",
            "--timeout",
            "2",
            "--uri",
            "jms:queue:a",
            "hello.xml",
            *after,
            **VARIABLES,
            **more.get(named, {}),
        )
        login = heard.get(timeout=10)
        assert (PASSWORD.encode() in login) is (named != "own")
        assert (b"passcode:p\n" in login) is (named == "own")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[serve]\nverify = "evil:run"', ("serve", "--uri", "jms:queue:a", "honest:service")),
        ('[serve]\nmiddleware = ["evil:run"]', ("serve", "--uri", "jms:queue:a", "honest:service")),
        ('[replay]\nconf = ["spark.jars=evil.jar"]', ("replay", "log.jsonl", "--out", "out")),
        ('[replay]\nmaster = "spark://evil:7077"', ("replay", "log.jsonl", "--out", "out")),
    ],
)
def test_code(text: str, words: tuple[str, ...], folder: Path) -> None:
    """No code is run because such a file says so; who names the file is believed to have looked at it."""
    (folder / "evil.py").write_text("open('was_run', 'w').close()")
    (folder / "honest.py").write_text("import soapjms\nservice = soapjms.Service()")
    written(folder, text)
    with stranger() as (port, _):
        connection = ("--connection", f"stomp://127.0.0.1:{port}") if words[0] == "serve" else ()
        done = run(*words, *connection)
        assert (done.exit_code, "by a soapjms.toml that you did not name" in done.stderr) == (2, True)
        assert not (folder / "was_run").exists()
        named = run("--config", "soapjms.toml", *words, "--help")
        assert named.exit_code == 0


@pytest.mark.parametrize("what", ["soapjms.toml", "."])
@pytest.mark.parametrize("mode", [0o777, 0o646])
def test_written_by_anybody(what: str, mode: int, folder: Path) -> None:
    """A file that others may write, or replace, is not read."""
    written(folder, 'profile = "cxf"')
    (folder / what).chmod(mode)
    done = run("uri", "parse", "jms:queue:a")
    assert (done.exit_code, "is writable by anybody (chmod o-w)" in done.stderr) == (2, True)
    assert run("--config", "soapjms.toml", "uri", "parse", "jms:queue:a").exit_code == 0
    assert run("--config", os.devnull, "uri", "parse", "jms:queue:a").exit_code == 0
    (folder / what).chmod(0o755)
    assert run("uri", "parse", "jms:queue:a").exit_code == 0


def test_folder_of_everybody(folder: Path) -> None:
    """In a folder such as /tmp nobody replaces the user's file."""
    written(folder, 'profile = "cxf"')
    folder.chmod(0o1777)
    assert run("uri", "parse", "jms:queue:a").exit_code == 0


@pytest.mark.parametrize("what", ["soapjms.toml", "."])
def test_of_somebody_else(what: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another user is not read, nor one in another user's folder."""
    written(folder, 'profile = "cxf"')
    if os.geteuid() == 0:
        os.chown(folder / what, 12345, 12345)
    else:
        own = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    done = run("uri", "parse", "jms:queue:a")
    assert (done.exit_code, "and not to you" in done.stderr) == (2, True)
    assert "--config soapjms.toml" in done.stderr


def test_link(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A link leads to a file that is looked at likewise."""
    other = tmp_path_factory.mktemp("other") / "soapjms.toml"
    other.write_text('profile = "cxf"')
    other.chmod(0o666)
    (folder / "soapjms.toml").symlink_to(other)
    assert run("uri", "parse", "jms:queue:a").exit_code == 2
