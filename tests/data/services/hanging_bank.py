"""A bank whose module hangs in the second process that imports it, and is as it should be in all others."""

from __future__ import annotations

from threading import Event

from bank import is_first, service

__all__ = ["service"]

if not is_first("imported") and is_first("hangs"):
    Event().wait()
