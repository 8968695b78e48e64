"""Makes docs/architecture.md: the rooms and their arrows, drawn from the imports, and three ways through them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from imports import ROOT, graph

TEXT: Final = Path(__file__).with_suffix(".md")
"""What is written by hand; `{diagram}` stands for the diagram."""

ROOMS: Final = {
    "soapjms/cli": "the command line",
    "soapjms/client": "calls, replies",
    "soapjms/serving": "services that run until told to end: processes, pages on their health",
    "soapjms/service": "dispatcher, worker, store, typed services; security",
    "soapjms/capture": "recorder, taps, masks",
    "soapjms/replay": "captured logs judged, with and without Spark; the report",
    "soapjms/zeep": "zeep over JMS",
    "soapjms/bridge": "HTTP and WSGI",
    "soapjms/testing": "pytest plugin, stub",
    "soapjms/doctor": "what is wrong here",
    "soapjms/generate": "logs of any size",
    "soapjms": "what all rooms share: destinations, middleware, observers",
    "soapjms/protocol": "the specification: pure, no I/O",
    "brokers": "the contract: message, connection, errors, URLs",
    "brokers/adapter": "what adapters share; no adapter itself",
    "brokers/threads": "pools, futures, timers",
    "brokers/listeners": "what servers share",
    "brokers/naming": "JNDI names",
    "brokers/embedded": "the broker in the process",
    "brokers/stomp": "STOMP",
    "brokers/amqp": "AMQP 1.0: client and listener",
    "brokers/smqp": "SMQP: protocol, client, server",
}
"""Each room with what is in it; `soapjms` and `brokers` are the files that lie flat there."""


ELSEWHERE: Final = {"soapjms.security": "soapjms/service", "soapjms.signatures": "soapjms/service"}
"""Modules that belong to a room and lie flat, as users import them by that name."""


def room_of(module: str) -> str:
    """Return the room of a module; the package itself, which only gathers names, is in none."""
    if module in ELSEWHERE:
        return ELSEWHERE[module]
    parts = module.split(".")
    if len(parts) == 1:
        return ""
    folder = "/".join(parts[:2])
    return folder if (ROOT / folder).is_dir() else parts[0]


def arrows() -> set[tuple[str, str]]:
    """Return which room imports which."""
    found = {(room_of(one), room_of(other)) for one, others in graph().items() for other in others}
    return {(one, other) for one, other in found if one and other and one != other}


def reached(arrows: set[tuple[str, str]], start: str) -> set[str]:
    """Return the rooms that a room leads to."""
    found, todo = set[str](), [start]
    while todo:
        new = {other for one, other in arrows if one == todo[-1]} - found
        todo.pop()
        found |= new
        todo += new
    return found


def drawn(arrows: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out what a longer way says too, so that few lines are left to look at."""
    kept = set(arrows)
    for one, other in sorted(arrows):
        if other in reached(kept - {(one, other)}, one):
            kept.discard((one, other))
    return sorted(kept)


def diagram() -> str:
    """Draw the rooms: an arrow leads from who imports to what is imported."""
    found = arrows()
    unknown = {room for arrow in found for room in arrow} - ROOMS.keys()
    assert not unknown, f"say in ROOMS what these are for: {sorted(unknown)}"
    names = {room: room.replace("/", "_") for room in ROOMS}
    boxes = [f'    {names[room]}["{room}<br>{text}"]' for room, text in ROOMS.items()]
    lines = [f"    {names[one]} --> {names[other]}" for one, other in drawn(found)]
    return "\n".join(["```mermaid", "flowchart TD", *boxes, *lines, "```"])


def page() -> str:
    """Write the page."""
    return TEXT.read_text("utf-8").replace("{diagram}", diagram())
