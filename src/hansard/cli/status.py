"""Commands `hansard status`, `health`, `check`, `repair` and `rebuild`, of a whole workspace."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import msgspec

from hansard.broker import private_copy
from hansard.broker import repair as repairing
from hansard.broker.repair import RestoredStream
from hansard.bus import recheck as rechecking
from hansard.bus.jetstream.log import Figures
from hansard.bus.recheck import Finding, Summary
from hansard.cli import output
from hansard.cli.common import Commands, flag
from hansard.cli.opening import place_of, reading_raw, settings
from hansard.cli.output import Column, Hint, Part
from hansard.client import opening
from hansard.client.opening import check_data_dir, data_dir_of
from hansard.domain.choices import counted, listed
from hansard.domain.errors import Corrupt
from hansard.inspect.status import (
    PUBLISHED,
    Health,
    Projection,
    Published,
    Rebuild,
    Status,
    WorkspaceStatus,
    collect,
    health,
)
from hansard.projections import runner as rebuilding
from hansard.projections.table_files import TableFiles
from hansard.service.running import read_status
from hansard.settings import SettingsError

if TYPE_CHECKING:
    from rich.text import Text

app = Commands()

PROGRESS_EVERY = 500
"""Commits between two updates of the progress bar."""


@app.command()
async def check() -> int:
    """Verify a whole workspace.

    Checks positions, versions, subjects, transactions, epochs, references between events, and every
    blob. Compares the whole log with the broker's mark and with the tables. Exits with 1 if
    anything is wrong.
    """

    def tell(finding: Finding) -> None:
        fields = msgspec.structs.asdict(finding)
        kind = {"finding": fields.pop("kind"), "wrong": fields.pop("wrong")}
        output.show(kind | fields, [_line(finding)])

    config = settings()
    async with reading_raw(damaged=True) as raw:
        known = await collect(raw, data_dir_of(config), embedded=config.nats_url is None)
        with _progress() as progress:
            summary = await rechecking.check(
                raw, tell, progress, known=known.known, findings=known.findings
            )
    fields = {"summary": summary.workspace, **msgspec.structs.asdict(summary)}
    output.show(fields, _words(summary))
    return 1 if summary.wrong else 0


def _line(finding: Finding) -> Text:
    where = [f"position {finding.position}"] if finding.position is not None else []
    where += [finding.stream] if finding.stream is not None else []
    where += [f"run {finding.run}"] if finding.run is not None else []
    place = f" ({', '.join(where)})" if where else ""
    word = "" if finding.wrong else "note: "
    style = "red" if finding.wrong else "yellow"
    return output.cell(f"{word}{finding.kind.value}{place}: {finding.fact}", style)


MARKS = (
    ("the broker's mark", (), "an embedded broker writes it some seconds after it starts"),
    ("the tables", (PUBLISHED,), "none are published: a query with 'hansard sql' makes them"),
)
"""Marks that a log is compared with, others that replace them, and why one may be missing."""


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
    missing = [
        f"{who} ({why})" for who, others, why in MARKS if not {who, *others} & {*summary.marks}
    ]
    if missing and summary.is_whole:
        compared = f"; not compared with {listed(missing)}{compared}"
    if summary.wrong:
        return f"checked {read}{compared}: {summary.wrong} wrong"
    return f"checked {read}{compared}: nothing is wrong"


@contextmanager
def _progress() -> Generator[rechecking.Progress]:
    """Show progress bars for archived segments, commits and blobs."""
    with output.progress("archived segments", "commits", "blobs") as update:

        def advance(what: str, done: int, total: int) -> None:
            if what != "commits" or done % PROGRESS_EVERY == 0 or done == total:
                update(what, done, total)

        yield advance


RESTORED = output.columns("stream! messages> first> last> damaged_files=backup!")


@app.command()
async def repair() -> int:
    """Restore lost metadata of a workspace's streams.

    For a workspace that the embedded broker refuses because 'meta.inf' or 'meta.sum' of a stream is
    damaged or missing. The old files are kept in 'repaired'. Messages are not changed: restore lost
    ones from a backup. No other process may use the data directory meanwhile. Exits with 1 if
    nothing could be restored and messages are lost.
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

    New tables replace the old ones. With --verify, they are compared with the old ones and
    discarded; exits with 1 if any differs. Stop 'hansard up' of the same workspace first.
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


REBUILT = output.columns(
    "table! rows> digest!",
    digest=lambda table: table.digest[:16] + " differs" * (table.equal is False),
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


MEANING = {
    "strict": "an acknowledged commit is on disk",
    "relaxed": "an acknowledged commit is on disk within about 14 ms",
    "unknown": "the server hides its sync interval: log in with its system account",
}
"""Guarantee of each durability, in the words that every command uses."""

QUORUM = {
    "strict": "an acknowledged commit is on the disks of {quorum} of {replicas} servers",
    "relaxed": "an acknowledged commit is written by {quorum} of {replicas} servers, and on their "
    "disks within about 14 ms",
}
"""Guarantee of each durability for a stream with several replicas."""

SERVICE = {
    True: "answers restricted agents",
    False: "none: 'hansard up' is one",
    None: "is there and does not answer: it is busy, or hangs; ask again, or restart 'hansard up'",
}
"""Status of the service for restricted agents."""

OPEN_SHOWN_MAX = 3
"""Most open runs shown with the agents that have not left; `hansard runs` has all."""


@app.command()
async def status(
    start: Annotated[bool, flag("--start", "Start the broker if none runs.")] = False,
) -> int:
    """Show the broker and what the workspace holds.

    Exits with 1 if no broker runs, the log is damaged, or its archive cannot be read.
    """
    report = await read_status(settings(), start=start)
    output.show(report, _render_status(report))
    if not report.broker.running:
        output.hint("start one with 'hansard up', or look with 'hansard status --start'")
    held = report.workspace
    faulty = isinstance(held, WorkspaceStatus) and (held.damage or held.unavailable)
    return 0 if report.broker.running and not faulty else 1


def _promise(durability: str, replicas: int) -> str:
    """Return the guarantee of a durability for a log with this number of replicas."""
    if replicas > 1 and durability in QUORUM:
        return QUORUM[durability].format(quorum=replicas // 2 + 1, replicas=replicas)
    return MEANING.get(durability, "")


def _projected(state: Projection) -> str:
    if not state.running:
        how = "no process projects: start 'hansard up'"
    else:
        delay = f", {state.delay_ms:.0f} ms after the log" if state.delay_ms else ""
        how = f"by process {state.pid}{delay}"
    return f"position {state.position}, {_behind(state)} ({how})"


def _published(state: Published, *, running: bool) -> str:
    if not state.position:
        return "nothing: 'hansard up' does, and 'hansard sql' before it answers"
    late = f" ({state.delay_ms:.0f} ms after the log)" if running and state.delay_ms else ""
    return f"position {state.position}, {_behind(state)}{late}"


def _behind(state: Projection | Published) -> str:
    return f"{state.behind:,} behind" if state.behind else "up to date"


def _at_work(open_runs: dict[str, list[str]]) -> str | None:
    """Render the agents that the newest open runs wait for, at work or killed."""
    shown = [f"{', '.join(who)} in {run}" for run, who in list(open_runs.items())[:OPEN_SHOWN_MAX]]
    more = len(open_runs) - len(shown)
    return "; ".join([*shown, *([f"and in {more:,} more"] if more else [])]) or None


def _late(streams: list[Figures]) -> list[str]:
    """Return the servers that lag behind the leader, with the streams affected."""
    names = sorted({name for each in streams for name in each.late})
    return [
        f"{name} is away or lags: " + ", ".join(each.name for each in streams if name in each.late)
        for name in names
    ]


def _led(replicas: int, leader: str | None) -> str | None:
    """Render a log's replicas and leader; None if its server has no peers."""
    if leader is None and replicas == 1:
        return None
    return f"{replicas}, led by {leader}" if leader else f"{replicas}, without a leader now"


STREAMS = output.columns(
    "stream=name! messages> size> last#>",
    messages=lambda each: str(each.messages - each.archived),
    size=lambda each: output.size(each.bytes),
)
ARCHIVED = (Column("archived", lambda each: str(each.archived), right=True),)
CLUSTER = (Column("replicas", lambda each: str(each.replicas), right=True), Column("leader"))


def _render_status(report: Status) -> Iterator[Part]:
    value, held = report.broker, report.workspace
    if held is None:
        yield f"no broker runs in {value.data_dir}"
        return
    where = "embedded" if value.embedded else "outside"
    replicas = held.replicas if isinstance(held, WorkspaceStatus) else 1
    rows: list[tuple[str, object]] = [
        ("broker", f"{value.url} ({where}, nats-server {value.version})"),
        ("pid", value.pid),
        ("durability", f"{value.durability}: {_promise(value.durability, replicas)}"),
        ("data", value.data_dir),
        ("hindered", value.hindered),
        ("workspace", held.workspace),
    ]
    if isinstance(held, WorkspaceStatus):
        yield from _held(rows, held)
        return
    yield output.pairs(rows)
    known = ", ".join(report.workspaces) or "none yet"
    yield Hint(f"the broker has no workspace {held.workspace!r}; there are: {known}")


def _no_runs(held: WorkspaceStatus) -> str:
    """Return why no run is shown."""
    if held.damage:
        return "unknown: see damaged, below"
    return "unknown: its archive cannot be read, see below" if held.unavailable else "none"


def _held(rows: list[tuple[str, object]], held: WorkspaceStatus) -> Iterator[Part]:
    runs = ", ".join(f"{count} {status}" for status, count in sorted(held.runs.items()))
    rows += [
        ("position", str(held.position)),
        ("commits", f"{held.commits:,}"),
        ("bytes", output.size(held.bytes)),
        ("replicas", _led(held.replicas, held.leader)),
        ("runs", runs or _no_runs(held)),
        ("at work", _at_work(held.open_runs)),
        ("projected", _projected(held.projection)),
        ("published", _published(held.published, running=held.projection.running)),
        ("service", SERVICE[held.served]),
        ("reflects", held.reflects or "never: HANSARD_REFLECT_AT says when 'hansard up' does"),
        ("quarantined", f"{held.quarantined:,}" if held.quarantined else None),
    ]
    yield output.pairs(rows)
    yield ""
    clustered = any(each.leader or each.replicas > 1 for each in held.streams)
    archived = ARCHIVED if any(each.archived for each in held.streams) else ()
    yield output.listing((*STREAMS, *archived, *(CLUSTER if clustered else ())), held.streams)
    yield from map(Hint, (*held.fewer, *_late(held.streams)))
    yield from (Hint(f"damaged: {fact}") for fact in held.damage)
    if held.unavailable:
        yield Hint(held.unavailable)
    if held.quarantined:
        yield Hint("what is quarantined counts nowhere: see 'hansard check' or the table problems")


@app.command(name="health")
async def check_health() -> int:
    """Show whether 'hansard up' is watching, and what it found.

    Needs no broker. Exits with 1 if no 'hansard up' watches, if it could not compare a log for 30
    s, or if it found a log damaged or forged.
    """
    report = health(data_dir_of(settings()))
    output.show(report, _render_health(report))
    return 0 if report.healthy else 1


def _render_health(report: Health) -> Iterator[Part]:
    if report.fact is not None:
        yield Hint(report.fact)
    if report.watch is None:
        return
    for name, one in sorted(report.watch.workspaces.items()):
        whole = f", read whole at {one.read_whole:%H:%M:%SZ}" if one.read_whole else ""
        yield (
            f"{name}: position {one.position}, compared at {one.compared:%H:%M:%SZ}{whole}, "
            f"{counted(len(one.findings) + one.more, 'finding')}"
        )
        yield from (Hint(f"{name}: {output.moment(each.at)}  {each.fact}") for each in one.findings)
