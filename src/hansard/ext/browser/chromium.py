"""Pages of chromium: the browser of HANSARD_BROWSER, else that on PATH, else playwright's own."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from hansard.domain.errors import CallerError, install

HEADLESS = "chromium-headless-shell"
"""Names of the headless build of chromium.

It needs half the work or less for a page without a window, and is playwright's own choice.
"""

PROGRAMS = ("chromium", "google-chrome", "chromium-browser", "google-chrome-stable")


def program(*, window: bool = False) -> str | None:
    """Return the browser's program; None for the one that playwright installed.

    With `window`, it is one that can open a window.
    """
    setting = os.environ.get("HANSARD_BROWSER")
    names = PROGRAMS if window else (HEADLESS, *PROGRAMS)
    return setting or next((path for name in names if (path := shutil.which(name))), None)


@contextlib.asynccontextmanager
async def page(*, window: bool = False, arguments: Sequence[str] = ()) -> AsyncGenerator[Any]:
    """Open a page of a browser that is closed at the end of the block. Raises CallerError.

    Args:
        window: Whether a person sees and uses it; Ctrl-C then does not reach the browser.
        arguments: Additional arguments of the browser.
    """
    try:
        from playwright.async_api import Error, async_playwright  # noqa: PLC0415 -- an extra, which only this command needs
    except ImportError:
        message = f"playwright is not installed: {install('browser')}"
        raise CallerError(message) from None
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
            raise CallerError(message) from error
        try:
            yield await browser.new_page(no_viewport=window)
        finally:
            await browser.close()
