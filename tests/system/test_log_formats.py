"""Log records of real calls, as formatters of others write them: each has its event and its fields, and no secret."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from calling_kit import NS, PATIENCE, URI, Peers, envelope
from places import ROOT
from ports import free_ports

import brokers
import soapjms
from brokers import Connection
from brokers.errors import ConnectionFailedError
from soapjms import Client, Dispatcher, Request, Service

STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def structured() -> logging.Formatter:
    """Make structlog's formatter, as its documentation says for records of others."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.ExtraAdder()],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
    )


def documented() -> logging.Formatter:
    """Make the formatter of docs/logging.md."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "logging.md").read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.partition("handler = ")[0], names)
    formatter: logging.Formatter = names["JsonFormatter"]()
    return formatter


@pytest.fixture(params=[structured, documented])
def written(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """Attach a formatter to both loggers, and return what it writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(request.param())
    loggers = [logging.getLogger(name) for name in ("soapjms", "brokers")]
    for each in loggers:
        each.addHandler(handler)
    yield stream
    for each in loggers:
        each.removeHandler(handler)


def lines(stream: io.StringIO) -> dict[str, dict[str, Any]]:
    """Return the written objects by the name of their event."""
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return {each["event"]: each for each in found}


class TestFormats(Peers):
    """JSON of structlog and of the standard library."""

    def test_a_function_that_fails(self, connection: Connection, client: Client, written: io.StringIO) -> None:
        """Its operation, destination and correlation id are fields, its traceback is there."""
        service = Service()

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: Request) -> Any:
            raise ConnectionError("the database is away\x1b[2J")

        with Dispatcher(connection, URI, service):
            response = client.call(envelope(), timeout=PATIENCE)
        found = lines(written)["operation.failed"]
        assert "\x1b" not in written.getvalue()
        assert found["operation"] == f"{{{NS}}}greetMe"
        assert found["destination"] == "queue:greeter"
        assert found["correlation_id"] == response.message.correlation_id
        assert "in greet" in found.get("exception", found.get("traceback", ""))


def test_a_password_is_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in a text nor in a field, of both loggers, at any level."""
    with caplog.at_level(logging.DEBUG):
        for scheme in ("stomp", "amqp", "smqp"):
            url = f"{scheme}://ann:s3cr3t-word@127.0.0.1:{free_ports(1)[0]}"
            with pytest.raises(ConnectionFailedError):
                brokers.connect(url, timeout=2.0)
            with pytest.raises(soapjms.SoapJmsError):
                soapjms.connect(f"failover:({url},{url})", timeout=0.5)
    for record in caplog.records:
        assert "s3cr3t-word" not in record.getMessage()
        assert "s3cr3t-word" not in str({name: value for name, value in vars(record).items() if name not in STANDARD})
