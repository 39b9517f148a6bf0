"""`hansard status`: what the broker is and what the workspace holds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from hansard._connect import find_broker
from hansard.agents import run_index
from hansard.bus import private_copy, subjects
from hansard.bus.jetstream.raw import RawWorkspace
from hansard.bus.server import hindrance, peek
from hansard.commands import _show
from hansard.commands._open import Options, check_data_dir, data_dir_of, masked, reading
from hansard.commands._serving import is_served
from hansard.projections import generations
from hansard.projections.place import Place
from hansard.projections.store import Store
from hansard.settings import Settings

MEANING = {
    "strict": "an acknowledged commit is on disk",
    "relaxed": "an acknowledged commit is on disk within about 14 ms",
    "unknown": "the server does not let us see its sync interval: give a system account's login",
}
"""What each durability promises, said wherever it is shown."""

QUORUM = {
    "strict": "an acknowledged commit is on the disks of {quorum} of {replicas} servers",
    "relaxed": "an acknowledged commit is written by {quorum} of {replicas} servers, and on their "
    "disks within about 14 ms",
}
"""The same of a stream with several replicas."""

OPEN_SHOWN_MAX = 3
"""Open runs that people are shown who has not left; `hansard runs` has all."""


class BrokerStatus(msgspec.Struct, kw_only=True):
    """The broker. Only of the embedded one: `pid`, `data_dir`, and why it cannot write in
    `hindered`.
    """

    kind: str = "broker"
    running: bool
    embedded: bool
    url: str | None = None
    version: str | None = None
    durability: str = "unknown"
    pid: int | None = None
    data_dir: str | None = None
    hindered: str | None = None


async def status(options: Options, *, start: bool, json: bool) -> int:
    """Print the status; starts no broker unless asked to. 1 where none runs."""
    settings = options.settings()
    embedded = settings.nats_url is None
    if embedded and not start and private_copy.origin(data_dir_of(settings)) is None:
        check_data_dir(settings)
        if peek(data_dir_of(settings)) is None:
            return _stopped(settings, json=json)
    broker = await find_broker(settings)
    try:
        raw = await RawWorkspace.open(broker.runtime, settings.workspace)
        try:
            told = broker_status(settings, broker.runtime.urls, broker.durability)
            told.version = told.version or raw.server_version
            workspaces = await raw.workspaces()
            figures = await raw.figures()
        finally:
            await raw.close()
        exists = settings.workspace in workspaces
        held = await _workspace(options, figures) if exists else None
        if held is not None:
            held["served"] = await is_served(broker.runtime, settings.workspace)
    finally:
        await broker.release()
    if json:
        _show.emit(told)
        _show.emit(
            {"kind": "workspace", "workspace": settings.workspace, "exists": exists, **(held or {})}
        )
    else:
        _print(settings, told, held, workspaces)
    return 0


def broker_status(settings: Settings, urls: tuple[str, ...], durability: str) -> BrokerStatus:
    """A running broker, without its passwords."""
    running = peek(data_dir_of(settings)) if settings.nats_url is None else None
    hinders = hindrance(data_dir_of(settings)) if running is not None else None
    return BrokerStatus(
        running=True,
        embedded=settings.nats_url is None,
        url=", ".join(masked(url) for url in urls),
        version=running.version if running is not None else None,
        durability=durability,
        pid=running.server_pid if running is not None else None,
        data_dir=str(data_dir_of(settings)) if settings.nats_url is None else None,
        hindered=str(hinders) if hinders is not None else None,
    )


def _stopped(settings: Settings, *, json: bool) -> int:
    folder = str(data_dir_of(settings))
    if json:
        _show.emit(BrokerStatus(running=False, embedded=True, data_dir=folder))
    else:
        _show.write(f"no broker runs in {folder}")
    _show.hint("start one with 'hansard up', or look with 'hansard status --start'")
    return 1


async def _workspace(options: Options, figures: list[Any]) -> dict[str, Any]:
    async with reading(options) as workspace:
        lives = await run_index.read(workspace.log)
    name = options.settings().workspace
    log = next(f for f in figures if f.name == subjects.log_stream(name))
    asked = options.settings().nats_replicas or 1
    by_status = Counter("unreadable" if life.problem else life.state.status.value for life in lives)
    return {
        "position": log.last,
        "commits": log.messages,
        "bytes": sum(f.bytes for f in figures),
        "replicas": log.replicas,
        "leader": log.leader or None,
        "streams": [msgspec.structs.asdict(f) for f in figures],
        "fewer": [fact for f in figures if (fact := f.lacks(asked)) is not None],
        "runs": dict(by_status),
        "open_runs": {life.run: life.state.missing for life in lives if life.state.missing},
        "projection": _projection(options.settings(), log.last),
        "published": _published(options.settings(), log.last),
        "quarantined": _quarantined(options.settings()),
    }


def _projection(settings: Settings, head: int) -> dict[str, Any]:
    """How far the tables are behind the log, and who projects."""
    standing = Place.of(data_dir_of(settings), settings.workspace).standing()
    if standing is None:
        return {"position": 0, "behind": head, "running": False, "pid": None, "delay_ms": None}
    return {
        "position": standing.position,
        "behind": max(0, head - standing.position),
        "running": standing.running,
        "pid": standing.pid if standing.running else None,
        "delay_ms": standing.delay_ms,
    }


def _published(settings: Settings, head: int) -> dict[str, Any]:
    """How far what SQL is answered from is behind the log."""
    place = Place.of(data_dir_of(settings), settings.workspace)
    standing, stands = place.standing(), generations.newest(place)
    position = stands.position if stands is not None else 0
    return {
        "position": position,
        "behind": max(0, head - position),
        "delay_ms": standing.published_delay_ms if standing is not None else None,
    }


def _quarantined(settings: Settings) -> int | None:
    """How many messages of the log are no commits of where they stand, as far as is published."""
    with generations.holding(Place.of(data_dir_of(settings), settings.workspace)) as stands:
        if stands is None:
            return None
        store = Store(stands.path, read_only=True)
        try:
            return int(store.all("SELECT count(*) FROM problems")[0][0])
        finally:
            store.close()


def _promise(durability: str, replicas: int) -> str:
    """What a durability means of a log with so many replicas."""
    if replicas > 1 and durability in QUORUM:
        return QUORUM[durability].format(quorum=replicas // 2 + 1, replicas=replicas)
    return MEANING.get(durability, "")


def _words(told: dict[str, Any]) -> str:
    """The same for people."""
    if not told["running"]:
        how = "nobody projects: 'hansard up' does"
    else:
        delay = f", {told['delay_ms']:.0f} ms after the log" if told["delay_ms"] else ""
        how = f"by process {told['pid']}{delay}"
    behind = f"{told['behind']:,} behind" if told["behind"] else "up to date"
    return f"position {told['position']}, {behind} ({how})"


def _published_words(told: dict[str, Any], *, running: bool) -> str:
    """The same of what is published."""
    if not told["position"]:
        return "nothing: 'hansard up' does, and 'hansard sql' before it answers"
    behind = f"{told['behind']:,} behind" if told["behind"] else "up to date"
    late = f" ({told['delay_ms']:.0f} ms after the log)" if running and told["delay_ms"] else ""
    return f"position {told['position']}, {behind}{late}"


def _at_work(open_runs: dict[str, list[str]]) -> str | None:
    """Whom the newest open runs wait for: at work, or killed."""
    shown = [f"{', '.join(who)} in {run}" for run, who in list(open_runs.items())[:OPEN_SHOWN_MAX]]
    more = len(open_runs) - len(shown)
    return "; ".join([*shown, *([f"and in {more:,} more"] if more else [])]) or None


def _late(streams: list[dict[str, Any]]) -> list[str]:
    """Which servers are not as far as the leader, by what they hold of the workspace."""
    names = sorted({name for each in streams for name in each["late"]})
    return [
        f"{name} is away or lags: "
        + ", ".join(each["name"] for each in streams if name in each["late"])
        for name in names
    ]


def _led(replicas: int, leader: str | None) -> str | None:
    """A log's replicas for people; None where its server stands alone."""
    if leader is None and replicas == 1:
        return None
    return f"{replicas}, led by {leader}" if leader else f"{replicas}, led by nobody now"


def _print(
    settings: Settings, told: BrokerStatus, held: dict[str, Any] | None, workspaces: list[str]
) -> None:
    where = "embedded" if told.embedded else "outside"
    replicas = held["replicas"] if held is not None else 1
    rows: list[tuple[str, object]] = [
        ("broker", f"{told.url} ({where}, nats-server {told.version})"),
        ("pid", told.pid),
        ("durability", f"{told.durability}: {_promise(told.durability, replicas)}"),
        ("data", told.data_dir),
        ("hindered", told.hindered),
        ("workspace", settings.workspace),
    ]
    if held is None:
        _show.write(_show.pairs(rows))
        known = ", ".join(workspaces) or "none yet"
        _show.hint(f"the broker has no workspace {settings.workspace!r}; there are: {known}")
        return
    runs = ", ".join(f"{count} {status}" for status, count in sorted(held["runs"].items()))
    rows += [
        ("position", str(held["position"])),
        ("commits", f"{held['commits']:,}"),
        ("bytes", _show.size(held["bytes"])),
        ("replicas", _led(replicas, held["leader"])),
        ("runs", runs or "none"),
        ("at work", _at_work(held["open_runs"])),
        ("projected", _words(held["projection"])),
        (
            "published",
            _published_words(held["published"], running=held["projection"]["running"]),
        ),
        ("service", "answers restricted agents" if held["served"] else "none: 'hansard up' is one"),
        ("quarantined", f"{held['quarantined']:,}" if held["quarantined"] else None),
    ]
    columns = [
        _show.Column("stream", whole=True),
        _show.Column("messages", right=True),
        _show.Column("size", right=True),
        _show.Column("last", right=True),
        _show.Column("replicas", right=True),
        _show.Column("leader"),
    ]
    streams = [
        [
            f["name"],
            f"{f['messages']:,}",
            _show.size(f["bytes"]),
            str(f["last"]),
            str(f["replicas"]),
            f["leader"],
        ]
        for f in held["streams"]
    ]
    clustered = any(f["leader"] or f["replicas"] > 1 for f in held["streams"])
    if not clustered:  # one server alone: nothing to say of replicas
        columns, streams = columns[:-2], [row[:-2] for row in streams]
    _show.write(_show.pairs(rows), "", _show.table(columns, streams))
    for fact in (*held["fewer"], *_late(held["streams"])):
        _show.hint(fact)
    if held["quarantined"]:
        _show.hint("what is quarantined counts nowhere: see 'hansard check' or the table problems")
