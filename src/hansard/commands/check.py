"""`hansard check`: recheck a whole workspace."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hansard.bus import check as rechecking
from hansard.bus.check import Finding, Summary
from hansard.commands import _marks, _show
from hansard.commands._open import Options, reading_raw
from hansard.domain.counted import counted

PROGRESS_EVERY = 500
"""Commits between two looks at the clock of the progress bar."""


async def check(options: Options, *, json: bool) -> int:
    """Print each finding as it is found, then a summary; 1 where anything is wrong."""

    def tell(finding: Finding) -> None:
        if json:
            _show.emit({"finding": finding.kind, **_told(finding)})
        else:
            _show.write(_line(finding), style="red" if finding.wrong else "yellow")

    async with reading_raw(options, damaged=True) as raw:
        evidence = await _marks.collect(options.settings(), raw)
        with _progress() as progress:
            summary = await rechecking.check(
                raw, tell, progress, known=evidence.known, found=evidence.found
            )
    if json:
        _show.emit({"summary": summary.workspace, **msgspec.to_builtins(summary)})
    else:
        _show.write(_words(summary))
    return 1 if summary.wrong else 0


def _told(finding: Finding) -> dict[str, object]:
    return {
        "wrong": finding.wrong,
        "fact": finding.fact,
        "position": finding.position,
        "run": finding.run,
        "stream": finding.stream,
    }


def _line(finding: Finding) -> str:
    where = [f"position {finding.position}"] if finding.position is not None else []
    where += [finding.stream] if finding.stream is not None else []
    where += [f"run {finding.run}"] if finding.run is not None else []
    place = f" ({', '.join(where)})" if where else ""
    word = "" if finding.wrong else "note: "
    return f"{word}{finding.kind.value}{place}: {finding.fact}"


def _words(summary: Summary) -> str:
    read = (
        f"{counted(summary.commits, 'commit')}, {counted(summary.events, 'event')}, "
        f"{counted(summary.streams, 'stream')}, "
        f"{counted(summary.runs, 'run')}, {counted(summary.blobs, 'blob')} "
        f"({_show.size(summary.blob_bytes)}) "
        f"up to position {summary.position}"
    )
    beside = ", ".join(f"{who} (position {at})" for who, at in summary.marks.items())
    compared = f"; compared with {beside}" if beside else ""
    if summary.wrong:
        return f"checked {read}{compared}: {summary.wrong} wrong"
    return f"checked {read}{compared}: nothing is wrong"


@contextmanager
def _progress() -> Generator[rechecking.Progress]:
    """A bar on stderr where that is a terminal; nothing where it is not."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        tasks = {what: shown.add_task(what, total=None) for what in ("commits", "blobs")}

        def advance(what: str, done: int, total: int) -> None:
            if done % PROGRESS_EVERY == 0 or done == total:
                shown.update(tasks[what], completed=done, total=total)

        yield advance
