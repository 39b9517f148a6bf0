"""Commands `hansard status` and `health`: the broker, the workspace, and the watch over it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from hansard.bus.jetstream.log import Figures
from hansard.cli import output
from hansard.cli.common import Commands, flag
from hansard.cli.opening import settings
from hansard.cli.output import Column, Hint, Part
from hansard.client.opening import data_dir_of
from hansard.domain.choices import counted
from hansard.inspect.status import Projection, Published, Status, WorkspaceStatus
from hansard.inspect.watch import Health, health
from hansard.service.running import read_status

app = Commands()

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

    Exits with 1 if no broker runs or the log is damaged.
    """
    report = await read_status(settings(), start=start)
    output.show(report, _render_status(report))
    if not report.broker.running:
        output.hint("start one with 'hansard up', or look with 'hansard status --start'")
    damaged = isinstance(report.workspace, WorkspaceStatus) and report.workspace.damage
    return 0 if report.broker.running and not damaged else 1


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


STREAMS = (
    Column("stream", lambda each: each.name, whole=True),
    Column("messages", right=True),
    Column("size", lambda each: output.size(each.bytes), right=True),
    Column("last", lambda each: str(each.last), right=True),
)
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


def _held(rows: list[tuple[str, object]], held: WorkspaceStatus) -> Iterator[Part]:
    runs = ", ".join(f"{count} {status}" for status, count in sorted(held.runs.items()))
    rows += [
        ("position", str(held.position)),
        ("commits", f"{held.commits:,}"),
        ("bytes", output.size(held.bytes)),
        ("replicas", _led(held.replicas, held.leader)),
        ("runs", runs or ("unknown" if held.damage else "none")),
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
    yield output.listing((*STREAMS, *(CLUSTER if clustered else ())), held.streams)
    yield from map(Hint, (*held.fewer, *_late(held.streams)))
    yield from (Hint(f"damaged: {fact}") for fact in held.damage)
    if held.quarantined:
        yield Hint("what is quarantined counts nowhere: see 'hansard check' or the table problems")


@app.command(name="health")
async def check_health() -> int:
    """Show whether 'hansard up' is watching, and what it found.

    Reads one file of the data directory; needs no broker. Exits with 1 if no 'hansard up' watches,
    if it could not compare a log for 30 s, or if it found a log damaged or forged since it started.
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
