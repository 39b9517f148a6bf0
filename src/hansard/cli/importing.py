"""`hansard import`: recorded runs of other systems, and exported ones, into a workspace."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from hansard.agents.importers.assumed import WORDS
from hansard.agents.importers.chat import Given
from hansard.agents.importers.reader import STDIN, Importer
from hansard.agents.importers.report import Bad, BadRecord, Tally
from hansard.agents.importers.sources import EVENTS
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.cli import output
from hansard.cli.common import Json, noun, work
from hansard.cli.opening import beginning
from hansard.cli.output import Hint, Part
from hansard.domain.counted import counted
from hansard.domain.errors import BadValue
from hansard.inspect.imports import Imported
from hansard.inspect.texts import plain_text

app = noun()

BAD_SHOWN_MAX = 100
"""Bad records told one by one to people; more are only counted. `--json` tells all."""

UNANSWERED_SHOWN_MAX = 5
"""Calls without a result that the summary names."""


class _Watcher:
    """Shows how an import goes."""

    def __init__(
        self, progress: Progress | None, task: TaskID | None, *, strict: bool, json: bool
    ) -> None:
        self._progress = progress
        self._task = task
        self._strict = strict
        self._json = json
        self._told = 0

    def read(self, count: int) -> None:
        """Move the bar."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, count)

    def bad(self, bad: Bad) -> None:
        """Tell of a bad record. Raises BadRecord under --strict."""
        self._told += 1
        output.show(bad, self._people, json=self._json)
        if self._strict:
            raise BadRecord(bad)

    def _people(self, bad: Bad) -> list[Part]:
        """A bad record, above the bar where there is one."""
        if self._told > BAD_SHOWN_MAX + 1:
            return []
        more = "more bad records are only counted; --json tells all"
        text = str(bad) if self._told <= BAD_SHOWN_MAX else more
        if self._progress is None:
            return [Hint(text)]
        self._progress.console.print(
            plain_text(text), markup=False, highlight=False, soft_wrap=True
        )
        return []


@app.command("import")
@work
async def import_(
    format_: Annotated[
        Literal["tau-bench", "tau2-bench", "chat-jsonl", "devtools", "events"],
        typer.Argument(
            metavar="FORMAT", help="tau-bench, tau2-bench, chat-jsonl, devtools or events."
        ),
    ],
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="What to import; '-' is stdin.")
    ],
    experiment: Annotated[
        str | None, typer.Option(help="The experiment of runs that name none.")
    ] = None,
    arm: Annotated[str | None, typer.Option(help="The arm of runs that name none.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first bad record instead of skipping it.")
    ] = False,
    no_guesses: Annotated[
        bool,
        typer.Option("--no-guesses", help="Stop at what a source does not say, do not assume it."),
    ] = False,
    json: Json = False,
) -> int:
    """Import recorded runs.

    Their ids derive from their content: importing again changes nothing, and a killed import goes
    on where it stood. Bad records are told with file, line and reason, and skipped; exits with 1
    where there were any. What was assumed is summed up at the end, and kept on record with what was
    skipped (the table imports). Of tau2-bench a submission may be among the files: hansard audit
    compares its figures with the runs. `events` are the files of 'hansard export'.
    """
    paths = [_path(file) for file in files]
    if format_ == EVENTS and (experiment or arm):
        remedy = "leave out --experiment and --arm: exported runs carry their own"
        raise BadValue("import events", "an experiment or arm is given", remedy)
    given = Given(experiment, arm)
    async with beginning() as workspace:
        try:
            with _bar() as progress:
                task = progress.add_task(format_, total=_size(files)) if progress else None
                watcher = _Watcher(progress, task, strict=strict, json=json)
                if format_ == EVENTS:
                    tally, stopped = await _events(workspace, paths, watcher)
                else:
                    tally, stopped = await _chats(
                        workspace,
                        format_,
                        given,
                        paths,
                        watcher,
                        guesses=not no_guesses,
                    )
        except OSError as error:
            remedy = "what was read before it stays; try again"
            raise BadValue("import", str(error), remedy) from error
    output.show(Imported(tally, stopped), lambda made: [_summary(made, format_)], json=json)
    return 1 if tally.bad else 0


async def _chats(
    workspace: Workspace,
    format_: str,
    given: Given,
    paths: list[Path | None],
    watcher: _Watcher,
    *,
    guesses: bool,
) -> tuple[Tally, bool]:
    importer = Importer(workspace, format_, given, watcher, no_guesses=not guesses)
    try:
        async with importer:
            for path in paths:
                await importer.take(path)
    except BadRecord:
        return importer.tally, True
    return importer.tally, False


async def _events(
    workspace: Workspace, paths: list[Path | None], watcher: _Watcher
) -> tuple[Tally, bool]:
    from hansard.agents.exchange.reader import import_events

    tally = Tally()
    for path in paths:
        try:
            tally.add(await import_events(workspace, path, watcher))
        except BadRecord as stopped:
            tally.add(stopped.tally)
            return tally, True
    return tally, False


def _path(file: str) -> Path | None:
    """A file that can be read; None for stdin. Raises NotFound, BadValue."""
    if file == STDIN:
        return None
    path = Path(file)
    if path.is_dir():
        raise BadValue(f"file {file!r}", "it is a directory", f"name its files: {file}/*")
    if not path.exists():
        raise NotFound(f"file {file!r}", "check its name; '-' is stdin")
    if not os.access(path, os.R_OK):
        raise BadValue(f"file {file!r}", "it may not be read", "check its permissions")
    return path


def _size(files: list[str]) -> int | None:
    """What there is to read, in bytes; None where that is not known."""
    sizes = [None if file == STDIN else Path(file).stat().st_size for file in files]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


@contextmanager
def _bar() -> Generator[Progress | None]:
    """A bar on stderr where that is a terminal; nothing where it is not."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield progress


def _summary(made: Imported, format_: str) -> str:
    tally = made.tally
    said = f"{counted(tally.runs, 'run')}"
    if format_ != EVENTS:
        said += f", {counted(tally.messages, 'message')}, {counted(tally.calls, 'call')}"
    said += f": {counted(tally.commits, 'commit')}, {tally.new:,} of them new"
    if tally.duplicates:
        said += f"; {counted(tally.duplicates, 'record')} there twice"
    if tally.unasked:
        said += f"; {counted(tally.unasked, 'result')} that no call asked for"
    if tally.claims:
        said += f"; {counted(tally.claims, 'claimed figure')}"
    if tally.unanswered:
        named = ", ".join(
            f"{call or 'no id'} of {run}" for run, call in tally.unanswered[:UNANSWERED_SHOWN_MAX]
        )
        more = "..." if len(tally.unanswered) > UNANSWERED_SHOWN_MAX else ""
        said += f"; {counted(len(tally.unanswered), 'call')} without a result ({named}{more})"
    if tally.absent:
        said += f"; {len(tally.absent):,} large payloads were gone where it comes from"
    if made.stopped:
        said += "; stopped at the first bad record: what stands before it stays"
    elif tally.bad:
        said += f"; {counted(tally.bad, 'bad record')} skipped"
    if tally.assumed:
        said += f"\nassumed: {'; '.join(_assumed(tally))} (--no-guesses stops there)"
    return said


def _assumed(tally: Tally) -> Iterator[str]:
    for kind, count in tally.assumed.items():
        one = WORDS[kind][0]
        head, _, rest = one.partition(" ")
        yield counted(count, head) + f" {rest}"
