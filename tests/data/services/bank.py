"""A bank for tests of `soapjms serve`: it books once what it is told, and dies where a test wants it to.

BANK_MARKS is a folder: a file there says that something was begun, so that the test can wait for it, or has happened.
BANK_WORK is how many seconds work takes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lxml import etree

import soapjms

MARKS = Path(os.environ.get("BANK_MARKS", "."))
NS = "urn:greeter"

service = soapjms.Service()


def answer(text: str) -> etree._Element:
    """Make an answer."""
    made = etree.Element(f"{{{NS}}}answer")
    made.text = text
    return made


def is_first(what: str) -> bool:
    """Say whether nothing of that name was begun before, and note that it is now."""
    try:
        (MARKS / what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def verified(request: soapjms.Request, security: etree._Element | None) -> str:
    """Let everybody in."""
    return "anybody"


class Audit:
    """Middleware."""

    @staticmethod
    def passed(request: soapjms.Request, call_next: Callable[[soapjms.Request], Any]) -> Any:
        """Pass the request on."""
        return call_next(request)


@service.operation(f"{{{NS}}}book")
def book(request: soapjms.Request) -> etree._Element:
    """Book what the request says; of `... fatal` the first run is killed before it returns."""
    text = request.element.text or ""
    database = request.transaction
    database.execute("CREATE TABLE IF NOT EXISTS booked (text TEXT)")
    database.execute("INSERT INTO booked VALUES (?)", (text,))
    if text.endswith("fatal") and is_first(text):
        os.kill(os.getpid(), signal.SIGKILL)
    return answer(f"booked {text}")


@service.operation(f"{{{NS}}}die")
def die(request: soapjms.Request) -> None:
    """Take the process along, each time."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_together(request: soapjms.Request) -> etree._Element:
    """Note the run, and be killed once both were begun; a later run writes a row, and says what it knows."""
    name = etree.QName(request.element).localname
    with (MARKS / f"runs-{name}").open("a", encoding="utf-8") as runs:
        runs.write("run\n")
    if is_first(name):
        while not all((MARKS / each).exists() for each in ("again", "once")):
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGKILL)
    request.transaction.execute("CREATE TABLE IF NOT EXISTS booked (text TEXT)")
    request.transaction.execute("INSERT INTO booked VALUES (?)", (name,))
    return answer(f"redelivered {request.redelivered}, delivery {request.delivery_count}")


service.operation(f"{{{NS}}}again")(die_together)
service.operation(f"{{{NS}}}once", policy=soapjms.Policy(unfinished="fault"))(die_together)


@service.operation(f"{{{NS}}}work")
def work(request: soapjms.Request) -> etree._Element:
    """Work for a while, and say which process did."""
    is_first(f"work-{request.element.text}")
    time.sleep(float(os.environ.get("BANK_WORK", "0.3")))
    return answer(str(os.getpid()))


@service.operation(f"{{{NS}}}hold")
def hold(request: soapjms.Request) -> etree._Element:
    """Book twice what the request says; the first run says which process it is, and holds its transaction for long."""
    name = f"hold-{request.element.text}"
    request.transaction.execute("CREATE TABLE IF NOT EXISTS booked (text TEXT)")
    request.transaction.execute("INSERT INTO booked VALUES (?)", (request.element.text,))
    if is_first(name):
        (MARKS / "holder").write_text(str(os.getpid()), encoding="utf-8")
        while not (MARKS / "go-on").exists():
            time.sleep(0.01)
    request.transaction.execute("INSERT INTO booked VALUES (?)", (request.element.text,))
    return answer(f"held {request.element.text}")
