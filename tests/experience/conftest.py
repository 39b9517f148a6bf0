"""The real browser of the tests of actions."""

from __future__ import annotations

from tests.actions.conftest import chromium, page, site

__all__ = ["chromium", "page", "site"]
