"""Make docs/architecture.md: the rooms and their arrows, drawn from the imports, and three paths through them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from imports import ROOT, graph

TEXT: Final = Path(__file__).with_suffix(".md")
"""The handwritten part; `{diagram}` stands for the diagram."""

ROOMS: Final = {
    "soapjms/cli": "the command line",
    "soapjms/client": "calls, replies",
    "soapjms/serving": "long-running services: processes, status pages",
    "soapjms/service": "dispatcher, worker, store, typed services; security",
    "soapjms/capture": "recorder, taps, masks",
    "soapjms/replay": "judging captured logs, with and without Spark; the report",
    "soapjms/zeep": "zeep over JMS",
    "soapjms/codegen": "typed clients and services, generated from a WSDL",
    "soapjms/bridge": "HTTP and WSGI",
    "soapjms/testing": "pytest plugin, stub",
    "soapjms/doctor": "finds problems of a setup",
    "soapjms/generate": "writes logs of any size",
    "soapjms": "shared by all rooms: destinations, middleware, observers",
    "soapjms/protocol": "the specification: pure, no I/O",
    "brokers": "the contract: message, connection, errors, URLs",
    "brokers/adapter": "shared by adapters",
    "brokers/threads": "pools, futures, timers",
    "brokers/events": "what is logged",
    "brokers/listeners": "shared by servers",
    "brokers/naming": "JNDI names",
    "brokers/embedded": "the in-process broker",
    "brokers/stomp": "STOMP",
    "brokers/amqp": "AMQP 1.0: client and listener",
    "brokers/smqp": "SMQP: protocol, client, server",
}
"""The content of each room; `soapjms` and `brokers` stand for the files directly in these folders."""


ELSEWHERE: Final = {"soapjms.security": "soapjms/service", "soapjms.signatures": "soapjms/service"}
"""Modules that belong to a room but lie directly in the package, as users import them by that name."""


def room_of(module: str) -> str:
    """Return the room of a module, or "" for the package itself, which only collects names."""
    if module in ELSEWHERE:
        return ELSEWHERE[module]
    parts = module.split(".")
    if len(parts) == 1:
        return ""
    folder = "/".join(parts[:2])
    return folder if (ROOT / folder).is_dir() else parts[0]


def arrows() -> set[tuple[str, str]]:
    """Return the imports between rooms."""
    found = {(room_of(one), room_of(other)) for one, others in graph().items() for other in others if is_imported(one)}
    return {(one, other) for one, other in found if one and other and one != other}


def is_imported(module: str) -> bool:
    """Say whether a module is for others to import; `__main__` is only run."""
    return not module.endswith(".__main__")


def reached(arrows: set[tuple[str, str]], start: str) -> set[str]:
    """Return the rooms that can be reached from a room."""
    found, todo = set[str](), [start]
    while todo:
        new = {other for one, other in arrows if one == todo[-1]} - found
        todo.pop()
        found |= new
        todo += new
    return found


def drawn(arrows: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out arrows that a longer path implies, so that few lines remain."""
    kept = set(arrows)
    for one, other in sorted(arrows):
        if other in reached(kept - {(one, other)}, one):
            kept.discard((one, other))
    return sorted(kept)


def diagram() -> str:
    """Draw the rooms: an arrow leads from the importing room to the imported one."""
    found = arrows()
    unknown = {room for arrow in found for room in arrow} - ROOMS.keys()
    assert not unknown, f"ROOMS must describe these rooms: {sorted(unknown)}"
    names = {room: room.replace("/", "_") for room in ROOMS}
    boxes = [f'    {names[room]}["{room}<br>{text}"]' for room, text in ROOMS.items()]
    lines = [f"    {names[one]} --> {names[other]}" for one, other in drawn(found)]
    return "\n".join(["```mermaid", "flowchart TD", *boxes, *lines, "```"])


def page() -> str:
    """Write the page."""
    return TEXT.read_text("utf-8").replace("{diagram}", diagram())
