"""What the tests of replay share: a browser for reports."""

from __future__ import annotations

from browser_kit import browser, opens

__all__ = ["browser", "opens"]
