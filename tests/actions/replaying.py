"""Replays actions and is killed around a commit, an action or a heal: `replaying.py JOB`."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
from playwright.async_api import async_playwright

import hansard
from hansard.bus.file_lock import whole
from hansard.bus.jetstream.log import JetStreamLog
from hansard.domain.actions import KIND
from hansard.ext.browser import browser as browsers
from hansard.ext.browser import replay


class Job(msgspec.Struct):
    """A replay to run and the boundary at which to kill the program; 0 for none. `file` is the name
    of a cache, which is in the record if `kept`. `kill_on` names the boundary by its kind:
    `clicked` is after a click, `heal` and `healed` are before and after a heal is recorded.
    """

    data_dir: str
    workspace: str
    run: str
    chromium: str
    file: str
    kill_at: int = 0
    kept: bool = False
    kill_on: str = ""


class Boundaries:
    """Counts boundaries; kills this process at one."""

    def __init__(self, kill_at: int, kill_on: str = "") -> None:
        self.left = kill_at
        self._kill_on = kill_on
        self.met = 0

    def met_one(self, what: str = "") -> None:
        """Count a boundary, and kill the program at the chosen one."""
        self.met += 1
        self.left -= 1
        if self.left == 0 or (what and what == self._kill_on):
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str) -> None:
        """Make the begin and the end of an async function boundaries."""
        inner = getattr(owner, name)

        async def outer(*args: Any, **kwargs: Any) -> Any:
            healed = any(
                getattr(getattr(each, "stream", None), "kind", "") == KIND for each in args
            )
            self.met_one("heal" if healed else "")
            made = await inner(*args, **kwargs)
            self.met_one("healed" if healed else "clicked" if "click" in args else "")
            return made

        setattr(owner, name, outer)

    @contextlib.contextmanager
    def torn(self, path: Path) -> Any:
        """Return a file that is half written at a boundary."""
        with whole(path) as file:
            yield _Half(self, file)
            self.met_one()
        self.met_one()


class _Half:
    def __init__(self, boundaries: Boundaries, file: Any) -> None:
        self._boundaries = boundaries
        self._file = file

    def write(self, data: bytes) -> None:
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        self._boundaries.met_one()
        self._file.write(data[len(data) // 2 :])


def key(question: str) -> str:
    """Pick the one field of the page: a handwritten key, no model."""
    line = next(each for each in question.splitlines() if "<input" in each)
    return json.dumps({"id": line.split()[0]})


async def main(job: Job) -> None:
    """Replay, and print the outcome."""
    report: dict[str, Any] = {}
    async with async_playwright() as player:
        chromium = await player.chromium.connect_over_cdp(job.chromium)
        page = await (await chromium.new_context()).new_page()
        boundaries = Boundaries(job.kill_at, job.kill_on)
        boundaries.around(JetStreamLog, "append")
        boundaries.around(JetStreamLog, "append_all")
        boundaries.around(JetStreamLog, "append_groups")
        boundaries.around(browsers, "_performed")
        vars(replay)["whole"] = boundaries.torn
        try:
            async with (
                hansard.connect_async(job.workspace, data_dir=job.data_dir) as record,
                record.run("replay", run=job.run, agent="ada", role="agent") as session,
            ):
                browser = hansard.actions.AsyncBrowser(session, page, timeout_s=5.0)
                cache = await record.actions.get(job.file) if job.kept else job.file
                done = await browser.run_actions(cache, fallback=key, once="allow")
                report = {"success": done.success, "error": done.error}
        except hansard.HansardError as error:
            report = {"success": False, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(report | {"boundaries": boundaries.met}))  # noqa: T201 -- its answer


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Job)))
