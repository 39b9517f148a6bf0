"""What does a replay of recorded actions cost against the bare script that is exported of them?

A form of three actions (two fields, a button) is replayed in alternation: by `session.run_actions`
over a broker that syncs each commit (strict) and one that does so every 10 ms (relaxed), and by the
exported playwright script, which records nothing. Goal: relaxed at most 1.5 times the script.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from playwright.async_api import async_playwright
from playwright.sync_api import sync_playwright

import hansard
from benchmarks import _world
from benchmarks._form import PAGE, PARAMS
from benchmarks._report import Findings, sized, summary
from benchmarks.bench_page import ARGUMENTS
from hansard.ext.browser import chromium
from hansard.ext.browser.scripts import ScriptFormat, script

RATIO_MAX = 1.5


async def recorded(
    record: hansard.AsyncRecord, page: Any, address: str
) -> hansard.actions.ActionCache:
    """Record the form's filling and sending as an action cache."""
    async with record.run("form", agent="ada", role="agent") as session:
        web = hansard.actions.AsyncBrowser(session, page)
        await web.goto(address)
        await web.act("who", at="#who", method="fill", arguments=["Ada"])
        await web.act("what", at="#what", method="fill", arguments=["a letter"])
        await web.act("send", at="button", effects="idempotent")
        run = session.run
    return await record.actions.of_run(run, params=PARAMS)


class Bare:
    """The exported script on a page of its own, in the thread that playwright's sync API wants."""

    def __init__(self, program: str) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(self._open, program).result()

    def _open(self, program: str) -> None:
        self._player = sync_playwright().start()
        told = list(ARGUMENTS)
        self._browser = self._player.chromium.launch(executable_path=program, args=told)
        self._page = self._browser.new_page()

    def took_ms(self, cache: hansard.actions.ActionCache) -> float:
        """Return the time of a run of the script, in ms."""
        names: dict[str, Any] = {"__name__": "made"}
        exec(script(cache, ScriptFormat.PLAYWRIGHT_PY), names)  # noqa: S102 -- what is measured
        return self._thread.submit(self._timed, names["run"]).result()

    def _timed(self, run: Any) -> float:
        begin = time.perf_counter()
        run(self._page, PARAMS)
        return (time.perf_counter() - begin) * 1_000

    def close(self) -> None:
        """End the browser."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _close(self) -> None:
        self._browser.close()
        self._player.stop()


async def replays(durability: Any, bare: Bare, program: str, rounds: int) -> Any:
    """Return the times of replays and of the script, in alternation, in ms."""
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "form.html"
        path.write_text(PAGE)
        async with (
            _world.world(durability) as place,
            async_playwright() as player,
            hansard.connect_async("bench", data_dir=place.folder) as record,
        ):
            told = list(ARGUMENTS)
            web = await player.chromium.launch(executable_path=program, args=told)
            page = await web.new_page()
            cache = await recorded(record, page, path.as_uri())
            async with record.run("again", agent="ada", role="agent") as session:
                browser = hansard.actions.AsyncBrowser(session, page)
                for _ in range(rounds + 1):
                    begin = time.perf_counter()
                    done = await browser.run_actions(cache, params=PARAMS)
                    ours.append((time.perf_counter() - begin) * 1_000)
                    assert done.success, done.error
                    assert await page.inner_text("#said") == "Ada"
                    theirs.append(await asyncio.to_thread(bare.took_ms, cache))
            await web.close()
    return ours[1:], theirs[1:]


def main() -> int:
    """Measure and report."""
    found = Findings()
    program = chromium.program()
    if program is None:
        print("no browser: nothing was measured", file=sys.stderr)
        return 1
    bare = Bare(program)
    try:
        for durability in ("relaxed", "strict"):
            times = asyncio.run(replays(durability, bare, program, sized(50, 3)))
            ours, theirs = times
            found.results[f"a replay, {durability}"] = summary(ours)
            found.results[f"the script beside {durability}"] = summary(theirs)
            found.ratios[f"a replay, {durability}, against the script"] = median(ours) / median(
                theirs
            )
    finally:
        bare.close()
    ratio = found.ratios["a replay, relaxed, against the script"]
    found.goals[f"a replay, relaxed, <= {RATIO_MAX} times the script"] = ratio <= RATIO_MAX
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
