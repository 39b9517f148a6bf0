"""A page of chromium: the one of HANSARD_BROWSER, else the one on PATH, else playwright's own."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from hansard.domain.errors import CallerError

HEADLESS = "chromium-headless-shell"
"""chromium without what windows take: half the work and more for a page that nobody sees. It is
what playwright itself takes for one.
"""

PROGRAMS = ("chromium", "google-chrome", "chromium-browser", "google-chrome-stable")


class NoBrowser(CallerError):
    """There is no playwright, or no browser that it can start; nothing was done."""


def program(*, window: bool = False) -> str | None:
    """The browser's program, with which a window can be opened if that is asked for; None for the
    one that playwright installed.
    """
    setting = os.environ.get("HANSARD_BROWSER")
    names = PROGRAMS if window else (HEADLESS, *PROGRAMS)
    return setting or next((found for name in names if (found := shutil.which(name))), None)


@contextlib.asynccontextmanager
async def page(*, window: bool = False, arguments: Sequence[str] = ()) -> AsyncGenerator[Any]:
    """A page of a browser that is closed with the block, however it ends. Raises NoBrowser.

    Args:
        window: Whether a person is to see it, and use it; a Ctrl-C is then not the browser's.
        arguments: What the browser is started with besides.
    """
    try:
        from playwright.async_api import Error, async_playwright  # noqa: PLC0415 -- an extra, which only this command needs
    except ImportError:
        message = "playwright is not installed: pip install 'hansard[browser]'"
        raise NoBrowser(message) from None
    async with async_playwright() as player:
        try:
            browser = await player.chromium.launch(
                executable_path=program(window=window),
                headless=not window,
                args=[*arguments],
                handle_sigint=not window,
            )
        except Error as error:
            text = str(error)
            remedy = "install chromium, or name one in HANSARD_BROWSER"
            if window and "DISPLAY" in text:
                remedy = "a window needs a display: set DISPLAY, or start it under xvfb-run"
            message = f"no browser starts: {text.splitlines()[0][:200]}; {remedy}"
            raise NoBrowser(message) from error
        try:
            yield await browser.new_page(no_viewport=window)
        finally:
            await browser.close()
