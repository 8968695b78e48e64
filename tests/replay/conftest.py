"""What the tests of the report share: a browser."""

from browser_kit import browser, opens

__all__ = ["browser", "opens"]
