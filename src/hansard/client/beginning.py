"""Sessions that open their own workspace and run, from settings and arguments.

A program that has a record calls `record.run` instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from hansard.agents import runs as agents
from hansard.agents.flow import Unbroken
from hansard.agents.runs import Opened, Options, close_agent
from hansard.agents.steps.ledger import Mode
from hansard.agents.workspace import Workspace
from hansard.bus.loggers import logger
from hansard.bus.portal import portal, refuse_in_loop
from hansard.client.options import (
    INTERACTIVE,
    BeginOptions,
    Defaults,
    SessionOptions,
    program_name,
    session_options,
)
from hansard.client.unfinished import ProgramStart, SessionFile
from hansard.domain.choices import check_options, counted
from hansard.domain.errors import Corrupt
from hansard.domain.ids import RunStream
from hansard.domain.run import RunStatus
from hansard.inspect.savings import Saved, saved
from hansard.settings import Settings
from hansard.state.replay import fold_life

# How much of an ended session was answered from the record: a line in the log, and one in the
# report that `hansard run resume` and `hansard run replay` read when the program has ended.

_log = logger(__name__)

LINES_MAX = 100_000
"""Most sessions of one program that are read from a report."""


class Ended(msgspec.Struct, frozen=True):
    """An ended session and how much of it was answered from the record.

    Sessions of restricted agents are not reported.
    """

    run: str
    agent: str
    mode: Mode
    saved: Saved


async def end_session(
    workspace: Workspace, opened: Opened, report: str | None, error: BaseException | None
) -> None:
    """End a session and report how much of it was answered from the record. Raises as
    `close_agent`.
    """
    mode = opened.engine.settings.mode
    try:
        await close_agent(workspace, opened, error)
    finally:
        if mode is not Mode.LIVE:
            ledger = opened.engine.ledger
            report_ended(Ended(opened.run, ledger.stream.agent, mode, saved(ledger)), report)


def report_ended(what: Ended, report: str | None) -> None:
    """Report an ended session. A report that cannot be written is logged; nothing is raised."""
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
        _log.warning("cannot write what a replay saved", report=report, error=str(failed))


def report_sessions(report: Path) -> Iterator[Ended]:
    """Yield the sessions of a report, in the order in which they ended."""
    for number, line in enumerate(report.read_bytes().splitlines()):
        if number >= LINES_MAX:
            return
        try:
            yield msgspec.json.decode(line, type=Ended)
        except msgspec.DecodeError:  # its writer was killed mid-write
            continue


INSTEAD = (
    "the settings name a restricted agent's credentials: open its session with record.run(...) of "
    "hansard.connect(), or unset HANSARD_CREDENTIALS"
)

LOST = (
    "this program left it unfinished, and it is no longer on record: a new run would repeat its "
    "effects. Restore the data directory from a backup that has it, or begin a new run: set "
    "HANSARD_RESUME=0"
)

NEVER_RESUMED = (INTERACTIVE, "pytest")
"""Programs whose next start is unrelated to the one before, so that no run is resumed."""

RULES = ("gate", "redact", "secrets", "settle")


class OpeningRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a session that opens its own workspace and run.

    Raises BadOption for an unknown option.
    """

    workflow: str | None
    agent: str | None
    role: str | None
    workspace: str | None
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_options("Session", self.options, SessionOptions.__annotations__)

    async def open(
        self, post: Callable[[Callable[[], None]], None], pending: Callable[[], Any]
    ) -> tuple[Workspace, Opened, str | None, SessionFile | None]:
        """Open the workspace and the session in it.

        Return also the file that the session's end is reported to, and the file that lets a restart
        resume the run. Raises as `connect` and `record.run`, and NotOffered.
        """
        from hansard.client import opening  # noqa: PLC0415 -- tests in memory need no broker

        begins = {key: self.options[key] for key in self.options if key in _BEGINS}
        rules = {key: self.options[key] for key in RULES if self.options.get(key) is not None}
        fields = {key: self.options[key] for key in self.options if key in _SETTINGS}
        if (nats := fields.pop("nats", None)) is not None:
            fields["nats_url"] = nats
        settings = opening.settings_of({**fields, "workspace": self.workspace})
        if settings.credentials is not None:
            from hansard.operations.protocol.faults import NotOffered  # noqa: PLC0415 -- 'hansard runs' needs no protocol

            raise NotOffered("hansard.Session", INSTEAD)
        defaults = Defaults.of(settings, rules)
        request = session_options(defaults, self.workflow, begins, program_name())
        agent, role = defaults.acting(self.agent, self.role)
        workspace = await opening.open_workspace(settings)
        note: SessionFile | None = None
        named = request.run
        try:
            if program_name() not in NEVER_RESUMED:
                note, request = await _resumable(workspace, settings, request, begins, agent, role)
            opened = await agents.open_agent(workspace, agent, role, request, post, pending)
        except BaseException:
            if note is not None:
                note.close(is_done=False)
            await workspace.close()
            raise
        if note is not None:
            note.begun()
        if request.run != named:
            _announce(workspace, opened)
        return workspace, opened, settings.report, note


async def _resumable(
    workspace: Workspace,
    settings: Settings,
    request: Options,
    begins: Mapping[str, Any],
    agent: str,
    role: str,
) -> tuple[SessionFile | None, Options]:
    """Return the file that lets a restart resume the run, and the options that open the run.

    The run is a new one, or the one that this program left unfinished.
    """
    workflow = request.workflow or request.otherwise
    start = ProgramStart(settings, workflow, agent, role)
    if (
        request.run is not None
        or request.mode is not None
        or any(value is not None for value in begins.values())
    ):
        return None, request  # the caller names or describes a run
    for file in start.unfinished():
        life = fold_life(await workspace.states.commits(RunStream(file.run)))
        if settings.resume and life.status in {RunStatus.OPEN, RunStatus.FAILED}:
            return file, replace(request, run=file.run)
        if settings.resume and life.status is RunStatus.UNKNOWN and file.is_begun:
            file.close(is_done=False)
            raise Corrupt(f"run {file.run}", LOST)
        if life.status is RunStatus.OPEN:
            sys.stderr.write(
                f"hansard: run {file.run}, which this program left unfinished, stays open. Resume "
                f"it: {workspace.command} run resume {file.run} -- COMMAND; or end it: "
                f"{workspace.command} run finish {file.run} --failed REASON\n"
            )
        file.close(is_done=True)
    if start.others:
        run, pid = start.others[0]
        sys.stderr.write(
            f"hansard: run {run} of this program is at work in process {pid}; this start begins a "
            "run of its own\n"
        )
    run = workspace.clock.new_id()
    return start.begin(run), replace(request, begins=run)


def _announce(workspace: Workspace, opened: Opened) -> None:
    """Write to stderr that a run is resumed, and how to begin a new one."""
    steps = len(opened.engine.ledger.state.steps)
    sys.stderr.write(
        f"hansard: resuming run {opened.run}, which this program left unfinished "
        f"({counted(steps, 'step')} "
        f"recorded; {workspace.command} run show {opened.run}). To begin a new run: set "
        "HANSARD_RESUME=0, or use hansard.Session(resume=False).\n"
    )


_BEGINS = frozenset(BeginOptions.__annotations__)
_SETTINGS = frozenset(SessionOptions.__annotations__) - _BEGINS - {*RULES}


async def _end(
    workspace: Workspace,
    opened: Opened,
    report: str | None,
    note: SessionFile | None,
    error: BaseException | None,
) -> None:
    """End the session and close the workspace. A restart does not resume a run that completed."""
    is_done = False
    try:
        await end_session(workspace, opened, report, error)
        is_done = error is None
    finally:
        if note is not None:
            note.close(is_done=is_done)
        await workspace.close()


def open_session(request: OpeningRequest) -> tuple[Any, ...]:
    """Open a session of the sync client; return the arguments of its constructor.

    Raises SyncInLoop, and as `OpeningRequest.open`.
    """
    refuse_in_loop()
    gateway = portal()
    workspace, opened, report, note = gateway.run(request.open(gateway.post, gateway.future))
    return opened.engine, opened.arm, gateway, partial(_end, workspace, opened, report, note)


async def open_session_async(request: OpeningRequest) -> tuple[Any, ...]:
    """Open a session of the async client; return the arguments of its constructor.

    Raises as `OpeningRequest.open`.
    """
    workspace, opened, report, note = await request.open(lambda call: call(), Unbroken)
    return opened.engine, opened.arm, partial(_end, workspace, opened, report, note)
