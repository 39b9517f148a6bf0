"""What a session that ended was answered: a line in the log, and one in the report that
`hansard run resume` and `hansard run replay` read when the program is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hansard.agents.opening import Opened, close_agent
from hansard.agents.steps.ledger import Mode
from hansard.agents.workspace import Workspace
from hansard.bus.loggers import logger
from hansard.inspect.savings import Saved, saved

_log = logger(__name__)

LINES_MAX = 100_000
"""Sessions of one program that a report tells of."""


class Ended(msgspec.Struct, frozen=True):
    """A session that left, and what it was answered; a restricted agent's does not say."""

    run: str
    agent: str
    mode: Mode
    saved: Saved


async def ended(
    workspace: Workspace, opened: Opened, report: str | None, error: BaseException | None
) -> None:
    """End a session, and tell what it was answered. Raises as `close_agent`."""
    mode = opened.engine.settings.mode
    try:
        await close_agent(workspace, opened, error)
    finally:
        if mode is not Mode.LIVE:
            ledger = opened.engine.ledger
            tell(Ended(opened.run, ledger.stream.agent, mode, saved(ledger)), report)


def tell(what: Ended, report: str | None) -> None:
    """Tell of a session that left. A report that cannot be written is logged, and ends nothing."""
    _log.info(
        "answered from the record",
        run=what.run,
        agent=what.agent,
        mode=what.mode.value,
        saved=what.saved.line(),
    )
    if report is None:
        return
    try:
        file = os.open(report, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, msgspec.json.encode(what) + b"\n")
        finally:
            os.close(file)
    except OSError as failed:
        _log.warning("what a replay saved cannot be reported", report=report, error=str(failed))


def told(report: Path) -> Iterator[Ended]:
    """The sessions that a report tells of, in the order in which they left."""
    for number, line in enumerate(report.read_bytes().splitlines()):
        if number >= LINES_MAX:
            return
        try:
            yield msgspec.json.decode(line, type=Ended)
        except msgspec.DecodeError:  # whoever wrote it was killed in the middle
            continue
