"""What does an action cost that check functions guard, against the same action without them?

A form of two fields and a button is filled in and sent in alternation, over a broker that syncs
each commit every 10 ms: by `session.run_actions`, which asks no check, and by
`session.run_experience` with all checks that are proposed, and with one in Python besides.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from playwright.async_api import async_playwright

import hansard
from benchmarks import _world
from benchmarks._form import PAGE
from benchmarks._report import Findings, sized, summary
from benchmarks.bench_page import ARGUMENTS
from hansard.ext.browser import chromium

ACTIONS = 3
RATIO_MAX = 2.0
PEOPLE = (("Ada", "a letter"), ("Alan", "a parcel"))
TASK = 'Send "Ada" the thing "a letter".'


@hansard.actions.check_function("argument")
def few_words(step: hansard.actions.CheckedStep) -> bool:
    """Return whether a text has few words, as a check that people would write."""
    return all(len(each) < 100 for each in step.arguments)


async def recorded(record: hansard.AsyncRecord, page: Any, address: str) -> list[str]:
    """Two runs that send the form."""
    runs = []
    for who, what in PEOPLE:
        await page.goto(address)
        async with record.run("form", agent="ada", role="agent") as session:
            await session.message("user", f'Send "{who}" the thing "{what}".')
            web = hansard.actions.AsyncBrowser(session, page)
            await web.act("who", at="#who", method="fill", arguments=[who])
            await web.act("what", at="#what", method="fill", arguments=[what])
            await web.act("send", at="button", effects="idempotent")
            runs.append(session.run)
    return runs


async def doings(program: str, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each action, by how it was guarded."""
    took: dict[str, list[float]] = {"no check": [], "data checks": [], "one in Python, too": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "form.html"
        path.write_text(PAGE)
        async with (
            _world.world("relaxed") as place,
            async_playwright() as player,
            hansard.connect_async("bench", data_dir=place.folder) as record,
        ):
            web = await player.chromium.launch(executable_path=program, args=list(ARGUMENTS))
            page = await web.new_page()
            runs = await recorded(record, page, path.as_uri())
            learned = (await record.experiences.learn("send", runs)).confirmed()
            params = learned.params(TASK) or {}
            async with record.run("again", agent="ada", role="agent") as session:
                browser = hansard.actions.AsyncBrowser(session, page)
                for _ in range(rounds + 1):
                    for how, times in took.items():
                        await page.goto(path.as_uri())
                        begin = time.perf_counter()
                        if how == "no check":
                            success = (
                                await browser.run_actions(learned.script, params=params)
                            ).success
                        else:
                            checks = [few_words] if "Python" in how else []
                            success = (
                                await browser.run_experience(learned, params, checks=checks)
                            ).success
                        times.append((time.perf_counter() - begin) * 1_000 / ACTIONS)
                        assert success
                        assert await page.inner_text("#said") == "Ada"
            await web.close()
    return {how: times[1:] for how, times in took.items()}


def main() -> int:
    """Measure and report."""
    found = Findings()
    program = chromium.program()
    if program is None:
        print("no browser: nothing was measured", file=sys.stderr)
        return 1
    took = asyncio.run(doings(program, sized(30, 2)))
    for how, times in took.items():
        found.results[f"an action, {how}"] = summary(times)
    bare = median(took["no check"])
    for how in ("data checks", "one in Python, too"):
        found.ratios[f"an action, {how}, against no check"] = median(took[how]) / bare
    ratio = found.ratios["an action, one in Python, too, against no check"]
    found.goals[f"an action under checks, <= {RATIO_MAX} times one without"] = ratio <= RATIO_MAX
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
