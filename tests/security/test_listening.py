"""Listeners without a login begin at addresses of this machine alone, unless somebody says that they may elsewhere."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from typing import Any

import pytest
from cli_kit import run
from places import ROOT
from starlette.applications import Starlette

import brokers
from brokers.amqp.listener import Listener as AmqpListener
from brokers.amqp.listener import Options
from brokers.embedded import Broker
from brokers.listeners.reach import check_reach, is_here_only
from soapjms import UsageError, connect
from soapjms.bridge.listener import Listener
from soapjms.serving import StatusPage

EVERYWHERE = ["0.0.0.0", "", "::"]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_here_only(address: str) -> None:
    """What only this machine reaches."""
    assert is_here_only(address)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "192.0.2.7"])
def test_reached_from_elsewhere(address: str) -> None:
    """What others may reach too."""
    assert not is_here_only(address)


def test_what_is_refused_is_closed() -> None:
    """Nobody is let in meanwhile, and the port is free."""
    listening = socket.create_server(("0.0.0.0", 0))
    with pytest.raises(
        ValueError, match=r"other machines reach 0\.0\.0\.0, and every client is let in there; accepted are"
    ):
        check_reach(listening, "or more")
    assert listening.fileno() == -1


@pytest.mark.parametrize("host", EVERYWHERE)
def test_amqp(host: str) -> None:
    """Not without users, which may be any that somebody checks, or the word for it."""
    with pytest.raises(ValueError, match=r"such as 127\.0\.0\.1, users .* or the word that anybody may \(--open"):
        AmqpListener(Broker(), host, 0)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(ValueError, match="every client is let in there"):
        AmqpListener(Broker(), host, 0, Options(tls=tls))
    tls.verify_mode = ssl.CERT_REQUIRED
    for options in (Options(users={}), Options(users=lambda *_: False), Options(anonymous=True), Options(tls=tls)):
        AmqpListener(Broker(), host, 0, options).close()
    with AmqpListener(Broker(), host, 0, Options(anonymous=True)) as listener:
        brokers.connect(listener.url).close()


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "[::]:0"])
def test_the_bridge(address: str) -> None:
    """Not without the word for it."""
    with pytest.raises(UsageError, match=r"cannot listen at .*:0: other machines reach .* --open \(is_open=True\)"):
        Listener(Starlette(), address)
    with Listener(Starlette(), address, is_open=True):
        pass


def test_the_page() -> None:
    """It needs no word for it: probes of containers come from elsewhere without a login, and it tells no message."""
    with StatusPage("0.0.0.0:0", {}) as page:
        assert page.port


@pytest.mark.parametrize("option", ["--amqp", "--ws"])
def test_the_command_broker(option: str) -> None:
    """Status 2, and what would be accepted."""
    command = [sys.executable, "-m", "soapjms.cli", "broker", option, "0.0.0.0:0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "or the word that anybody may (--open" in done.stderr
    with subprocess.Popen([*command, "--open"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert "0.0.0.0:" in running.stdout.readline()
        running.terminate()


def test_the_command_bridge() -> None:
    """Likewise."""
    words: list[Any] = ["bridge", "http", "--listen", "0.0.0.0:0", "--connection", "embedded:", "--to", "jms:queue:a"]
    with connect("embedded:"):
        done = run(*words)
    assert done.exit_code == 2
    assert "other machines reach 0.0.0.0" in done.output
