"""The daily reflection of `hansard up`: at a time of day, on each space that is set.

It is a process apart, `hansard memory reflect`: what a function of the user's does there, and
however long it takes, holds nothing up here; killed at any point, each run is reflected on once.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from hansard.domain.counted import counted
from hansard.domain.errors import BadValue
from hansard.domain.memory.events import ORG, space_name
from hansard.settings import Settings

ROUNDS_MAX = 100
"""Most processes of one day and space, each of which takes so many runs as one reflection does."""

TOLD_MAX = 400
"""Most characters that are told of a reflection that failed."""

_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


class Daily(msgspec.Struct, frozen=True):
    """When what is reflected on.

    Attributes:
        hour: Of the day, in UTC.
        minute: Of the hour.
        spaces: Which spaces are told, one after the other.
        function: What proposes, as `module:function`; None for what users asked for.
        ask: In its place, the model that is asked by our prompt, as `module:function`.
    """

    hour: int
    minute: int
    spaces: tuple[str, ...]
    function: str | None = None
    ask: str | None = None

    @property
    def options(self) -> list[str]:
        """Of `hansard memory reflect`."""
        given = {"--with": self.function, "--ask": self.ask}
        return [word for name, value in given.items() if value for word in (name, value)]

    def __str__(self) -> str:
        by = f", with {self.function}" if self.function else ""
        by += f", asking {self.ask}" if self.ask else ""
        return f"daily at {self.hour:02}:{self.minute:02} UTC on {', '.join(self.spaces)}{by}"

    def last(self, now: datetime) -> datetime:
        """The newest moment at which it was due."""
        due = now.replace(hour=self.hour, minute=self.minute, second=0, microsecond=0)
        return due if due <= now else due - timedelta(days=1)


def daily(settings: Settings) -> Daily | None:
    """What the settings say; None where no time is set. Raises BadValue, BadName."""
    if settings.reflect_at is None:
        return None
    found = _TIME.fullmatch(settings.reflect_at)
    if found is None:
        remedy = "give a time of day in UTC, such as 03:00"
        raise BadValue("HANSARD_REFLECT_AT", f"{settings.reflect_at!r:.40}", remedy)
    if settings.reflect_with and settings.reflect_ask:
        fact = "HANSARD_REFLECT_WITH is set, too"
        raise BadValue("HANSARD_REFLECT_ASK", fact, "set one of them: a model, or what proposes")
    given = [each.strip() for each in (settings.reflect_spaces or ORG).split(",")]
    spaces = tuple(space_name(each) for each in given if each)
    return Daily(int(found[1]), int(found[2]), spaces, settings.reflect_with, settings.reflect_ask)


@contextlib.asynccontextmanager
async def reflecting(
    settings: Settings, command: Sequence[str], tell: Callable[[str], None]
) -> AsyncGenerator[None]:
    """Reflect daily meanwhile, where the settings say so. What fails is told and stops nothing.

    Args:
        settings: Of the workspace that is reflected on.
        command: What calls `hansard` as it was called here, without the command's name.
        tell: Is told what came of it, and what failed.

    Raises BadValue, BadName for settings that are none.
    """
    plan = daily(settings)
    task = asyncio.ensure_future(_daily(plan, command, tell)) if plan is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait({task})


async def _daily(plan: Daily, command: Sequence[str], tell: Callable[[str], None]) -> None:
    """Once at the start, for a time that was missed, then each day."""
    done: datetime | None = None
    while True:
        due = plan.last(datetime.now(UTC))
        if done is None or due > done:
            for space in plan.spaces:
                await _reflect(plan, space, command, tell)
            done = due
        wait = due + timedelta(days=1) - datetime.now(UTC)
        await asyncio.sleep(max(wait.total_seconds(), 1.0))


async def _reflect(
    plan: Daily, space: str, command: Sequence[str], tell: Callable[[str], None]
) -> None:
    """Until no run is left, or it fails."""
    runs = proposals = 0
    for _ in range(ROUNDS_MAX):
        asked = [*command, "memory", "reflect", space, *plan.options, "--json"]
        code, out, err = await _ran(asked)
        if code:
            why = " ".join(err.split())[-TOLD_MAX:] or f"exit code {code}"
            tell(f"{space} was not reflected on: {why}")
            return
        told = msgspec.json.decode(out)
        runs += len(told["runs"])
        proposals += len(told["proposals"])
        if not told["left"]:
            break
    if runs:
        tell(
            f"{space} was told of {counted(runs, 'run')}, with {counted(proposals, 'proposal')}: "
            f"see 'hansard memory proposals {space}'"
        )


async def _ran(command: Sequence[str]) -> tuple[int, bytes, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        out, err = await process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    return process.returncode or 0, out, err.decode(errors="replace")
