"""The real browser of the action tests, and the experience of runs in it."""

from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from hansard import testing
from tests.actions.conftest import chromium, page, seldom_looked_at, site
from tests.experience.parties import FORM, learned
from tests.projections.query_cache import tables_stay_open

__all__ = ["chromium", "page", "seldom_looked_at", "site", "tables_stay_open"]  # fmt: skip


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def taught(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Learn from five runs once, in a record that is closed before the result is used."""
    form = tmp_path_factory.mktemp("form") / "page.html"
    form.write_text(f"<!doctype html><meta charset=utf-8><title>t</title>{FORM}")
    context = await chromium.new_context()
    async with testing.record_async() as record:
        experience = await learned(record, await context.new_page(), form.as_uri())
    await context.close()
    return experience
