"""Commands `hansard check`, `repair` and `rebuild`: verify, repair, rebuild a workspace."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hansard.broker import private_copy
from hansard.broker import repair as repairing
from hansard.broker.repair import RestoredStream
from hansard.bus import recheck as rechecking
from hansard.bus.recheck import Finding, Summary
from hansard.cli import output
from hansard.cli.common import Commands, flag
from hansard.cli.opening import place_of, reading_raw, settings
from hansard.cli.output import Column, Hint, Part
from hansard.client import opening
from hansard.client.opening import check_data_dir, data_dir_of
from hansard.domain.choices import counted, listed
from hansard.domain.errors import Corrupt
from hansard.inspect.answer import Answer
from hansard.inspect.status import Rebuild, collect
from hansard.projections import runner as rebuilding
from hansard.projections.table_files import TableFiles
from hansard.settings import SettingsError

if TYPE_CHECKING:
    from rich.text import Text


app = Commands()

PROGRESS_EVERY = 500
"""Commits between two updates of the progress bar."""


@app.command()
async def check() -> int:
    """Verify a whole workspace.

    Checks for gaps in positions and versions, bodies that do not match their subjects,
    transactions, epochs, references between events, and every blob. Compares the whole log with the
    broker's mark and with the tables. Exits with 1 if anything is wrong.
    """

    def tell(finding: Finding) -> None:
        output.show(CheckFinding(finding), [_line(finding)])

    config = settings()
    async with reading_raw(damaged=True) as raw:
        known = await collect(raw, data_dir_of(config), embedded=config.nats_url is None)
        with _progress() as progress:
            summary = await rechecking.check(
                raw, tell, progress, known=known.known, findings=known.findings
            )
    output.show(RecheckResult(summary), _words(summary))
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
    """Show progress bars for commits and for blobs."""
    with output.progress("commits", "blobs") as update:

        def advance(what: str, done: int, total: int) -> None:
            if done % PROGRESS_EVERY == 0 or done == total:
                update(what, done, total)

        yield advance


class CheckFinding(Answer):
    """Finding of a recheck."""

    finding: Finding

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the finding, its kind first."""
        fields = msgspec.structs.asdict(self.finding)
        yield {"finding": fields.pop("kind"), "wrong": fields.pop("wrong"), **fields}


class RecheckResult(Answer):
    """Result of a recheck."""

    summary: Summary

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the summary of the workspace."""
        yield {"summary": self.summary.workspace, **msgspec.structs.asdict(self.summary)}


RESTORED = (
    Column("stream", whole=True),
    Column("messages", lambda stream: f"{stream.messages:,}", right=True),
    Column("first", lambda stream: f"{stream.first:,}", right=True),
    Column("last", lambda stream: f"{stream.last:,}", right=True),
    Column("damaged files", lambda stream: stream.backup, whole=True),
)


@app.command()
async def repair() -> int:
    """Restore lost metadata of a workspace's streams.

    For a workspace whose messages exist but which the embedded broker refuses, because 'meta.inf'
    or 'meta.sum' of a stream is damaged or missing, as after a power cut. They are replaced by
    those of an empty stream of the same name; the replaced files are kept in 'repaired' of the data
    directory. Messages are not changed: restore lost messages from a backup. No other process may
    use the data directory meanwhile. Exits with 1 if nothing could be restored and messages are
    lost.
    """
    config = settings()
    if config.nats_url is not None:
        message = (
            f"'hansard repair' restores files of a data directory, and {config.nats_url!r} is a "
            "broker of your own: run it without --nats and HANSARD_NATS_URL"
        )
        raise SettingsError(message)
    check_data_dir(config)
    folder = data_dir_of(config)
    private_copy.refuse(folder)
    restored = await repairing.repair(folder, config.workspace)
    lost: Corrupt | None = None
    try:
        async with opening.reading(config):
            pass
    except Corrupt as error:
        lost = error
    if lost is None or restored:
        output.show(restored, _render_repair(restored, config.workspace))
    if lost is not None:
        output.hint(f"messages are lost, which 'hansard repair' cannot restore: {lost}")
    return 1 if lost is not None and not restored else 0


def _render_repair(restored: list[RestoredStream], workspace: str) -> Iterator[Part]:
    if not restored:
        yield f"nothing to repair: the broker offers every stream of workspace {workspace!r}"
        return
    yield output.listing(RESTORED, restored)
    yield Hint("run 'hansard check' to verify that the record is complete")


@app.command()
async def rebuild(
    verify: Annotated[
        bool, flag("--verify", "Compare with the existing tables; replace nothing.")
    ] = False,
) -> int:
    """Rebuild the workspace's tables from its log.

    New tables are built beside the old ones and then replace them. With --verify, they are built up
    to the position of the old ones, compared table by table, and discarded; exits with 1 if any
    differs. Stop 'hansard up' of the same workspace first.
    """
    config = settings()
    if not verify:
        private_copy.refuse(data_dir_of(config))
    place = place_of(config)
    rebuilt = rebuilding.verify if verify else rebuilding.rebuild
    began_s = time.monotonic()
    async with reading_raw() as raw:
        with output.positions() as progress:
            made = await rebuilt(raw, place, progress)
    report = Rebuild(made, time.monotonic() - began_s)
    output.show(report, _render_rebuild(report, place))
    return 1 if made.differing else 0


REBUILT = (
    Column("table", whole=True),
    Column("rows", right=True),
    Column(
        "digest", lambda table: table.digest[:16] + " differs" * (table.equal is False), whole=True
    ),
)


def _render_rebuild(report: Rebuild, place: TableFiles) -> Iterator[Part]:
    made = report.made
    yield output.listing(REBUILT, report.tables)
    yield ""
    if made.before is not None:
        differing = ", ".join(made.differing)
        text = f"differ from the log: {differing}" if differing else "are equal to the log"
        yield f"the tables up to position {made.position} {text}"
    else:
        yield f"made {place.path} up to position {made.position} in {report.took_s:.1f} s"
