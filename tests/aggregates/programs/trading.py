"""Program that trades as examples/trading_book does; can block at one append, by number."""

import asyncio
import importlib.util
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hansard.bus.log import Append, EventLog, Stored
from hansard.bus.portal import portal
from hansard.client.opening import open_with_tables, settings_of
from hansard.client.options import Defaults
from hansard.client.record import Record
from tests.faults._inside import Inside, run_program

BOOK = Path(__file__).parents[3] / "examples" / "trading_book" / "book.py"
T = TypeVar("T")


def book() -> Any:
    """Return the example's program as a module."""
    spec = importlib.util.spec_from_file_location("trading_book", BOOK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class NumberedLog:
    """The real log; at the append of a number it stops for ever, before it is made or after."""

    def __init__(self, log: EventLog, inside: Inside) -> None:
        self._log = log
        self._inside = inside
        self._left = int(inside.job.settings.get("number", 0))
        self._when = inside.job.settings.get("when", "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, append: Append) -> Stored:
        """Append for real, perhaps without an end."""
        return await self._around(lambda: self._log.append(append))

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Append several for real, perhaps without an end."""
        return await self._around(lambda: self._log.append_all(appends))

    async def _around(self, work: Callable[[], Awaitable[T]]) -> T:
        self._left -= 1
        if self._left == 0 and self._when == "before":
            await self._for_ever()
        done = await work()
        if self._left == 0 and self._when == "after":
            await self._for_ever()
        return done

    async def _for_ever(self) -> None:
        self._inside.stops.reach()
        await asyncio.Event().wait()


def numbered(inside: Inside) -> Record:
    """Open the workspace's record over such a log, as `connect` does over the real one."""
    settings = settings_of({"workspace": inside.job.workspace})
    workspace, tables = portal().run(open_with_tables(settings))
    through = workspace.through(NumberedLog(workspace.log, inside))
    return Record(through, portal(), Defaults.of(settings, {}), tables)


def main(inside: Inside) -> str:
    """Return the balance of the account."""
    settings, trading = inside.job.settings, book()
    with numbered(inside) as record:
        place = {"run": inside.job.run, "agent": settings["agent"], "role": "trader"}
        with record.run("trading-book", **place) as session:
            inside.world.note("began", agent=settings["agent"])
            left = trading.trade(session, settings["owner"], settings["days"])
            inside.world.note("done", agent=settings["agent"])
            return str(left)


if __name__ == "__main__":
    run_program(main)
