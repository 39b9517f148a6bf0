"""The served page has no violation of the accessibility rules of axe-core."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.test_axe import axe, checked
from tests.cli.support import Runs
from tests.web.data import Examples
from tests.web.support import DESK, PHONE, PICTURES, Tabs
from tests.web.test_views import CHECKED, FAILED, fork, views

__all__ = ["axe", "fork"]

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

Addresses = dict[str, tuple[str, dict[str, str]]]


async def check_views(
    tabs: Tabs, axe: str, addresses: Addresses, *, dark: bool, width: int
) -> None:
    """Open each view, and check the rules; with PICTURES, also write its picture."""
    tab = await tabs.open(width, dark=dark, bypass_csp=True)
    broken = {}
    for name, (address, query) in addresses.items():
        await tab.open(address, **query)
        violations = await checked(tab.page, axe)
        if violations:
            broken[name] = violations
        if PICTURES:
            picture = f"{name} {width} {'dark' if dark else 'light'}.png".replace(" ", "-")
            await tab.page.screenshot(path=Path(PICTURES) / picture)
    await tab.close()
    assert broken == {}


async def test_some_views_break_no_rule(tabs: Tabs, axe: str, runs: Runs, fork: str):
    """Views on a dark phone, a refusal among them."""
    every = views(runs, Examples(), fork) | FAILED
    some = {name: every[name] for name in (*CHECKED[::2], "no SQL")}
    await check_views(tabs, axe, some, dark=True, width=PHONE)


@pytest.mark.thorough(quick="web/test_axe_views.py::test_some_views_break_no_rule")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE])
async def test_no_view_breaks_a_rule(
    tabs: Tabs, axe: str, runs: Runs, examples: Examples, fork: str, width: int, dark: bool
):
    """Every view, full, empty and refused."""
    await check_views(tabs, axe, views(runs, examples, fork) | FAILED, dark=dark, width=width)
