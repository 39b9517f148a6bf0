"""Tracebacks of exceptions that end a session: the user's own frames, and how to resume."""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from hansard.agents.errors import NeedsSettling, ResultMismatch
from hansard.bus.errors import Fenced
from hansard.client.options import INTERACTIVE, program_name
from hansard.domain.errors import HansardError
from hansard.domain.steps import Verdict

_OURS = os.fspath(Path(__file__).parents[1]) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep

_NOTE = "hansard: "
"""Prefix of our notes. An exception that has such a note gets no second one."""

_shown: bool = False


def show_own_frames(*, shown: bool) -> None:
    """Keep the frames of this package in tracebacks (`HANSARD_DEBUG`), or hide them."""
    global _shown  # noqa: PLW0603 -- one setting a process, like a log level
    _shown = shown


def explain(error: BaseException, run: str, step: str, settle: str = "") -> None:
    """Add a note to an exception that ends a session, and hide the frames of this package.

    The note names the run, its last step, what to settle first, and the command that resumes it.
    Frames stay if the exception is a fault of this package.

    Args:
        error: The exception.
        run: The run's id.
        step: The agent's last step, as shown to a person (`bob#8, pay`).
        settle: The command that settles the first call in doubt; empty for none.
    """
    resume = f"hansard run resume {shlex.quote(run)} -- {_command()}"
    if isinstance(error, NeedsSettling) and (
        not isinstance(error, ResultMismatch) or error.step.verdict is Verdict.HAPPENED
    ):
        how = f"Settle {error.agent}#{error.step.number} first, as above; then resume it: {resume}"
    elif settle:
        how = f"A call is in doubt; settle it first: {settle}\nThen resume it: {resume}"
    elif isinstance(error, Fenced):
        how = f"Another process continues the run: hansard run show {shlex.quote(run)}"
    else:
        how = f"Resume it: {resume}"
    note = f"this ended run {run} after {step}. {how}"
    if not any(each.startswith(_NOTE) for each in getattr(error, "__notes__", ())):
        error.add_note(f"{_NOTE}{note}")
    _hide(error)


def hide_if_uncaught(error: BaseException) -> None:
    """Hide the frames of this package if Python reports the exception as uncaught.

    For an exception that leaves the package by the caller's own line, which adds frames on its way.
    """
    report = sys.excepthook

    def reported(kind: type[BaseException], value: BaseException, trace: Any) -> None:
        if value is error:
            _hide(value)
        report(kind, value, value.__traceback__ if value is error else trace)

    sys.excepthook = reported


def _hide(error: BaseException) -> None:
    if not _shown:
        for each in _chain(error):
            hide_own_frames(each)


def hide_own_frames(error: BaseException) -> None:
    """Unlink from a traceback this package's frames and the standard library's frames between them.

    Nothing is hidden of an exception that this package raised by mistake.
    """
    traces = [*_traces(error.__traceback__)]
    ours = [trace.tb_frame.f_code.co_filename.startswith(_OURS) for trace in traces]
    if not any(ours) or (ours[-1] and not isinstance(error, HansardError)):
        return
    hidden = list(ours)
    for index, trace in enumerate(traces):
        if trace.tb_frame.f_code.co_filename.startswith(_STDLIB) and index and hidden[index - 1]:
            others = (at for at in range(index, len(traces)) if not _is_stdlib(traces[at]))
            hidden[index] = ours[next(others, index)]
    kept = [trace for trace, is_hidden in zip(traces, hidden, strict=True) if not is_hidden]
    error.__traceback__ = kept[0] if kept else None
    if kept:
        for trace, following in zip(kept, [*kept[1:], None], strict=True):
            trace.tb_next = following


def _is_stdlib(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_STDLIB)


def _traces(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, its causes and contexts, and the members of groups, each once."""
    seen: set[int] = set()
    open_: list[BaseException | None] = [error]
    while open_:
        each = open_.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        open_ += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            open_ += each.exceptions


def _command() -> str:
    """Return the command line that started this program."""
    if program_name() == INTERACTIVE:
        return "COMMAND"
    return shlex.join(["python", *sys.argv])
