"""A program that does a task by an experience and is killed at a boundary: `doing.py JOB`."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
from playwright.async_api import async_playwright

import hansard
from hansard.agents.artifacts.experiences import read_folder
from hansard.bus.jetstream.log import JetStreamLog
from hansard.ext.browser import browser as browsers
from tests.actions.replaying import Boundaries


class Job(msgspec.Struct):
    """A task, its place, and the boundary at which the program is killed; 0 for none.

    Where it `heals`, the record keeps the experience, and a key by hand names the last button. The
    key is consulted once the recorded ways have timed out, and boundaries count from then on, since
    the number of earlier looks depends on the machine.
    """

    data_dir: str
    workspace: str
    run: str
    chromium: str
    folder: str
    address: str
    kill_at: int = 0
    heals: bool = False


def names_the_last(question: str) -> str:
    """Answer as a key by hand: the last of the buttons with the name."""
    lines = [each for each in question.splitlines() if each.endswith("> Send")]
    return json.dumps({"id": lines[-1].split()[0]})


async def main(job: Job) -> None:
    """Do the task and print the result."""
    report: dict[str, Any] = {}
    async with async_playwright() as player:
        chromium = await player.chromium.connect_over_cdp(job.chromium)
        page = await (await chromium.new_context()).new_page()
        boundaries = Boundaries(0 if job.heals else job.kill_at)

        def named(question: str) -> str:
            boundaries.left, boundaries.met = job.kill_at, 0
            return names_the_last(question)

        for name in ("append", "append_all", "append_groups"):
            boundaries.around(JetStreamLog, name)
        boundaries.around(browsers, "_performed")
        try:
            async with (
                hansard.connect_async(job.workspace, data_dir=job.data_dir) as record,
                record.run("doing", run=job.run, agent="ada", role="agent") as session,
            ):
                browser = hansard.actions.AsyncBrowser(
                    session, page, timeout_s=2.0 if job.heals else 5.0
                )
                await browser.goto(job.address)
                experience: Any = Path(job.folder)
                if job.heals:
                    experience = read_folder(experience)
                    await record.experiences.keep(experience)
                done = await browser.run_experience(
                    experience,
                    task='Send "Ada".',
                    once="allow",
                    fallback=named if job.heals else None,
                )
                report = {"success": done.success, "error": done.error}
        except hansard.HansardError as error:
            report = {"success": False, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(report | {"boundaries": boundaries.met}))  # noqa: T201 -- its answer


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Job)))
