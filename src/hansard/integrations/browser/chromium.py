"""A page of chromium: the one of HANSARD_BROWSER, else the one on PATH, else playwright's own."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncGenerator
from typing import Any

from hansard.domain.errors import CallerError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


class NoBrowser(CallerError):
    """There is no playwright, or no browser that it can start; nothing was done."""


def program() -> str | None:
    """The browser's program; None for the one that playwright installed."""
    told = os.environ.get("HANSARD_BROWSER")
    return told or next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@contextlib.asynccontextmanager
async def page() -> AsyncGenerator[Any]:
    """A page of a browser that is closed with the block, however it ends. Raises NoBrowser."""
    try:
        from playwright.async_api import Error, async_playwright  # noqa: PLC0415 -- an extra, which only this command needs
    except ImportError:
        message = "playwright is not installed: pip install 'hansard[browser]'"
        raise NoBrowser(message) from None
    async with async_playwright() as player:
        try:
            browser = await player.chromium.launch(executable_path=program())
        except Error as error:
            message = (
                f"no browser starts: {str(error).splitlines()[0][:200]}; install chromium, or name "
                "one in HANSARD_BROWSER"
            )
            raise NoBrowser(message) from error
        try:
            yield await browser.new_page()
        finally:
            await browser.close()
