"""What the log says of a function that failed: its own frames, and which request it was."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from service_kit import GREET, accepted
from typed_kit import NS, fault_to, shop_wsdl
from zeep_kit import written

from soapjms import Service
from soapjms.protocol.envelope import as_envelope, read_fault


def fail(*_: Any, **__: Any) -> Any:
    """Fail, as a function of a service."""
    raise RuntimeError("no such account")


async def fail_later(*_: Any, **__: Any) -> Any:
    """Fail, as a coroutine of a service."""
    raise RuntimeError("no such account")


def require_logged(caplog: pytest.LogCaptureFixture, operation: str, function: str) -> None:
    """Require one record of a failure, which says the operation and ends in the function's frame."""
    (record,) = [each for each in caplog.records if getattr(each, "event", "") == "operation.failed"]
    fields = vars(record)
    assert (record.levelname, fields["operation"], record.name) == ("ERROR", operation, "soapjms.service")
    assert fields["destination"]
    assert "correlation_id" in fields
    assert record.exc_info is not None
    frames = traceback.extract_tb(record.exc_info[2])
    assert (frames[-1].name, Path(frames[-1].filename).name) == (function, Path(__file__).name)


@pytest.mark.parametrize("function", [fail, fail_later])
def test_of_a_request(function: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    service = Service()
    service.operation(GREET)(function)
    fault = read_fault(as_envelope(service.answer(accepted()).envelope))
    assert fault is not None
    require_logged(caplog, str(GREET), function.__name__)


@pytest.mark.parametrize("function", [fail, fail_later])
def test_of_typed_values(function: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = Service.from_wsdl(written(tmp_path, shop_wsdl()))
    service.operation("price")(function)
    assert fault_to(service, "<price>A1</price>").reason == "the service failed"
    require_logged(caplog, f"{{{NS}}}price", function.__name__)


def test_of_a_function_that_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    """One that still ran when its request expired is one line; one that failed by itself is not."""
    service = Service()

    async def too_slow(*_: Any) -> Any:
        await asyncio.sleep(30)

    service.operation(GREET)(too_slow)
    request = accepted(expiration=int(time.time() * 1000) + 50)
    fault = read_fault(as_envelope(service.answer(request).envelope))
    assert fault is not None
    (record,) = [each for each in caplog.records if getattr(each, "event", "").startswith("operation.")]
    assert (vars(record)["event"], record.levelname) == ("operation.expired", "WARNING")
    assert not record.exc_info
    assert vars(record)["operation"] == str(GREET)
    caplog.clear()
    service = Service()

    async def own_limit(*_: Any) -> Any:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(30)

    service.operation(GREET)(own_limit)
    service.answer(accepted())
    assert [vars(each)["event"] for each in caplog.records] == ["operation.failed"]
