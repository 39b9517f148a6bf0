"""Tabs of one browser share a stream, and each gets every event once."""

from __future__ import annotations

from pathlib import Path

import pytest

import hansard
from tests.cli.support import WORKSPACE, Runs
from tests.web.support import Tab, Tabs

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

SIZE = "document.querySelector('#where')?.textContent.match(/of ([\\d,]+)/)?.[1]"


async def test_tabs_share_one_stream_and_go_on_when_the_reading_one_closes(
    tabs: Tabs, runs: Runs, home: Path
):
    """Of three tabs at one run one reads its stream; without that tab another one reads on."""
    del runs
    readers: list[int] = []
    messages = 0

    async def opened(number: int) -> Tab:
        tab = await tabs.open()
        tab.page.on("request", lambda it: readers.append(number) if "/live" in it.url else None)
        await tab.open("/runs/in-tabs")
        await tab.page.wait_for_selector(".live.live")
        await tab.page.keyboard.press("f")
        return tab

    async def check(those: list[Tab]) -> None:
        size = len((await those[0].api("/runs/in-tabs/outline"))["rows"]["position"])
        for tab in those:
            await tab.until(f"{SIZE} === '{size}'")
            assert await tab.page.locator("#tree .row.message").count() == messages

    async with (
        hansard.connect_async(WORKSPACE, data_dir=home) as record,
        record.run("tabs", run="in-tabs", agent="ada", role="r") as session,
    ):
        await session.message("user", f"message {messages}")
        three = [await opened(number) for number in range(3)]
        assert readers == [0]
        for messages in (2, 3):
            await session.message("user", f"message {messages}")
            await check(three)
            await three.pop(0).close()
        await session.message("user", "the last one")
        messages += 1
        await check(three)
        assert readers == [0, 1, 2]
    for tab in three:
        assert tab.console == []
        await tab.close()
