"""`hansard check`: recheck a whole workspace."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.text import Text

from hansard.bus.validation import check as rechecking
from hansard.bus.validation.check import Finding, Summary
from hansard.cli import output
from hansard.cli.common import Json, noun, work
from hansard.cli.opening import reading_raw, settings
from hansard.client.opening import data_dir_of
from hansard.domain.choices import counted, listed
from hansard.inspect import evidence
from hansard.inspect.answer import Answer

app = noun()

PROGRESS_EVERY = 500
"""Commits between two looks at the clock of the progress bar."""


@app.command()
@work
async def check(json: Json = False) -> int:
    """Verify a whole workspace.

    Holes in positions and versions, bodies against subjects, transactions, epochs, references
    between events, and every blob; and the whole log beside what was known of it: the broker's
    mark and the tables. Exits with 1 where anything is wrong.
    """

    def tell(finding: Finding) -> None:
        output.show(Found(finding), lambda _: [_line(finding)], json=json)

    given = settings()
    async with reading_raw(damaged=True) as raw:
        known = await evidence.collect(raw, data_dir_of(given), embedded=given.nats_url is None)
        with _progress() as progress:
            summary = await rechecking.check(
                raw, tell, progress, known=known.known, found=known.found
            )
    output.show(Checked(summary), _words(summary), json=json)
    return 1 if summary.wrong else 0


def _line(finding: Finding) -> Text:
    where = [f"position {finding.position}"] if finding.position is not None else []
    where += [finding.stream] if finding.stream is not None else []
    where += [f"run {finding.run}"] if finding.run is not None else []
    place = f" ({', '.join(where)})" if where else ""
    word = "" if finding.wrong else "note: "
    style = "red" if finding.wrong else "yellow"
    return output.cell(f"{word}{finding.kind.value}{place}: {finding.fact}", style)


def _words(summary: Summary) -> str:
    read = (
        f"{counted(summary.commits, 'commit')}, {counted(summary.events, 'event')}, "
        f"{counted(summary.streams, 'stream')}, "
        f"{counted(summary.runs, 'run')}, {counted(summary.blobs, 'blob')} "
        f"({output.size(summary.blob_bytes)}) "
        f"up to position {summary.position}"
    )
    beside = ", ".join(f"{who} (position {at})" for who, at in summary.marks.items())
    compared = f"; compared with {beside}" if beside else ""
    missing = [who for who in ("the broker's mark", "the tables") if who not in summary.marks]
    if missing:
        compared = f"; not compared with {listed(missing)}: not available{compared}"
    if summary.wrong:
        return f"checked {read}{compared}: {summary.wrong} wrong"
    return f"checked {read}{compared}: nothing is wrong"


@contextmanager
def _progress() -> Generator[rechecking.Progress]:
    """A bar for the commits and one for the blobs."""
    with output.progress("commits", "blobs") as update:

        def advance(what: str, done: int, total: int) -> None:
            if done % PROGRESS_EVERY == 0 or done == total:
                update(what, done, total)

        yield advance


class Found(Answer):
    """A finding."""

    finding: Finding

    def lines(self) -> Iterator[dict[str, Any]]:
        """The finding, its kind first."""
        fields = msgspec.structs.asdict(self.finding)
        yield {"finding": fields.pop("kind"), "wrong": fields.pop("wrong"), **fields}


class Checked(Answer):
    """What a recheck came to."""

    summary: Summary

    def lines(self) -> Iterator[dict[str, Any]]:
        """The summary of the workspace."""
        yield {"summary": self.summary.workspace, **msgspec.structs.asdict(self.summary)}
