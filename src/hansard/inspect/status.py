"""Status of a workspace, the rebuilding of its tables, and evidence about its log outside of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from hansard.agents.workspace import RunLife
from hansard.broker.lease import hindrance, peek
from hansard.bus import marks, subjects
from hansard.bus.commits import decode
from hansard.bus.file_lock import PRIVATE_FILE
from hansard.bus.jetstream.log import Figures, RawWorkspace
from hansard.bus.log import RawMessage, utc
from hansard.bus.marks import Damaged, Known, Mark
from hansard.bus.recheck import Finding, Kind
from hansard.domain.errors import Corrupt
from hansard.domain.ids import run_of
from hansard.inspect.answer import Answer, masked
from hansard.projections import snapshots as published
from hansard.projections.errors import Held, Newer, Older, ProjectionError, Unusable
from hansard.projections.runner import Rebuilt
from hansard.projections.store import Progress, Store
from hansard.projections.table_files import TableFiles, WriteLock, role_places

# Findings of `hansard up` in the logs that it watches, in a file that any command can read.
#
# <data dir>/watch.json    a Watch: written every few seconds by the one `hansard up` that watches
# <data dir>/watch.lock    flock, held by it
#
# Findings are those since that process started: restarting it clears them, and damage that still
# exists is found again.

COMPARE_S = 5.0
"""Pause between two comparisons of a log with its mark: three small requests a workspace."""

PAGE_MESSAGES = 256
"""Most messages read at once; also at most 8 MB of them."""

READ_PAUSE = 50
"""Pause after a page, as a multiple of the time that the page took.

Each log is read from its first to its last message again and again, to verify that every message
exists unchanged. After the last page the pause is as long as the whole reading took. This takes a
hundredth of the time.
"""

STALE_S = 30.0
"""Age in seconds at which a watch that was not written counts as ended."""

FINDINGS_MAX = 20
"""Most findings stored per workspace; further ones are counted."""


class WatchFinding(msgspec.Struct, frozen=True):
    """Finding: its time and its text."""

    at: datetime
    fact: str


def _now() -> datetime:
    return datetime.now(UTC)


class Watched(msgspec.Struct):
    """Watched workspace.

    `compared` is the time of the last comparison of its log with its mark, at `position`, or
    the start of the watch; `read` is the position reached by reading all messages, `read_whole`
    the time at which such a reading last ended.
    """

    position: int = 0
    compared: datetime = msgspec.field(default_factory=_now)
    read: int = 0
    read_whole: datetime | None = None
    findings: list[WatchFinding] = []
    more: int = 0

    def find(self, fact: str) -> bool:
        """Add a finding; return whether it is new."""
        if any(each.fact == fact for each in self.findings):
            return False
        if len(self.findings) >= FINDINGS_MAX:
            self.more += 1
        else:
            self.findings.append(WatchFinding(_now(), fact))
        return True


class Watch(msgspec.Struct):
    """State of the `hansard up` that watches, and the time of its last check."""

    pid: int
    looked: datetime
    workspaces: dict[str, Watched] = {}

    def stale(self) -> str | None:
        """Return why it does not watch at this moment; None if it does."""
        age_s = (_now() - self.looked).total_seconds()
        if age_s > STALE_S:
            who = f"'hansard up' (pid {self.pid})"
            return f"{who} has not reported for {age_s:,.0f} s: it has ended, or hangs"
        for name, one in self.workspaces.items():
            age_s = (_now() - one.compared).total_seconds()
            if age_s > STALE_S:
                return (
                    f"the log of workspace {name!r} was last compared {age_s:,.0f} s ago: 'hansard "
                    "up' cannot reach the broker"
                )
        return None


class Health(Answer):
    """Health of the watched logs: whether `hansard up` watches, else `fact` says why not; and its
    findings.
    """

    healthy: bool
    fact: str | None = None
    watch: Watch | None = None

    def lines(self) -> Iterator[object]:
        """Return one object: the health of all workspaces."""
        workspaces = self.watch.workspaces if self.watch is not None else {}
        yield {
            "kind": "health",
            "healthy": self.healthy,
            "fact": self.fact,
            "looked": self.watch.looked if self.watch is not None else None,
            "workspaces": {
                name: {"findings": [each.fact for each in one.findings], "more": one.more}
                for name, one in sorted(workspaces.items())
            },
        }


def path_of(data_dir: Path) -> Path:
    """Return the path of a data directory's watch file."""
    return data_dir / "watch.json"


def write(data_dir: Path, watch: Watch) -> None:
    """Replace the watch file; it is not synced, since it is stale after a crash. Raises OSError."""
    path = path_of(data_dir)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(watch))
    part.replace(path)


def read(data_dir: Path) -> Watch | None:
    """Read the watch file; None if there is none or it is unreadable."""
    try:
        return msgspec.json.decode(path_of(data_dir).read_bytes(), type=Watch)
    except (OSError, msgspec.DecodeError):
        return None


def health(data_dir: Path) -> Health:
    """Return the health of a data directory's logs."""
    watch = read(data_dir)
    if watch is None:
        return Health(healthy=False, fact=f"no 'hansard up' watches the logs of '{data_dir}'")
    fact = watch.stale()
    has_findings = any(one.findings for one in watch.workspaces.values())
    return Health(healthy=fact is None and not has_findings, fact=fact, watch=watch)


# Evidence about a workspace's log outside of it: the broker's mark, tables, generations.

# Messages of the log decoded as commits.


class LoggedCommit(msgspec.Struct, tag_field="kind", tag="commit", kw_only=True):
    """Commit in short; `time` is the log's."""

    workspace: str
    position: int
    time: str
    run: str | None
    stream: str
    version: int
    commit: str
    actor: str
    epoch: int
    events: list[str]


class CorruptLine(msgspec.Struct, tag_field="kind", tag="corrupt", kw_only=True):
    """Message that is not a commit, and why."""

    workspace: str
    position: int
    subject: str
    fact: str


class LogEntry(Answer):
    """Message of the log: its commit, or the error that prevents decoding."""

    _lines: ClassVar[tuple[str, ...]] = ("line",)

    position: int
    time: datetime
    line: LoggedCommit | CorruptLine
    error: Corrupt | None = None


def logged(workspace: str, message: RawMessage) -> LogEntry:
    """Return a message in short."""
    time, position = utc(message.stamp), message.position
    try:
        stream, commit = decode(message.subject, message.body)
    except Corrupt as error:
        corrupt = CorruptLine(
            workspace=workspace, position=position, subject=message.subject, fact=error.fact
        )
        return LogEntry(position, time, corrupt, error)
    line = LoggedCommit(
        workspace=workspace,
        position=position,
        time=time.isoformat(),
        run=run_of(stream),
        stream=str(stream),
        version=commit.version,
        commit=commit.id,
        actor=commit.actor.agent,
        epoch=commit.epoch,
        events=[event.type for event in commit.events],
    )
    return LogEntry(position, time, line)


KEEP = (
    "Put back a copy of the broker's files that has them; do not rebuild the tables before that, "
    "they may be all that is left of them"
)
"""Remedy if the tables know more than the log."""

PUBLISHED = "the published tables"
"""Tables that are compared with the log, also while another process writes newer ones."""

RELAXED = (
    "Durability is 'relaxed': a power cut may take what was acknowledged within the last 14 ms "
    "before it"
)


class Evidence(msgspec.Struct):
    """Marks of the log, and problems of the files that hold them."""

    known: list[Known] = []
    findings: list[Finding] = []


async def collect(raw: RawWorkspace, data_dir: Path, *, embedded: bool) -> Evidence:
    """Collect the evidence about the log of an embedded or an external broker.

    Call it before reading the end of the log.
    """
    evidence, workspace = Evidence(), raw.workspace
    aside = KEEP
    if embedded:
        _broker(evidence, data_dir, workspace)
        try:
            await raw.refuse_loss()
        except Corrupt as error:
            evidence.findings.append(Finding(Kind.LOSS, error.fact))
        running = await asyncio.to_thread(peek, data_dir)
        relaxed = running is not None and running.durability.value == "relaxed"
        aside = f"{RELAXED}. {KEEP}" if relaxed else KEEP
    place = TableFiles.of(data_dir, workspace)
    await asyncio.to_thread(_tables, evidence, place, workspace, aside)
    await asyncio.to_thread(_published_files, evidence, place, "run 'hansard rebuild'")
    for each in role_places(data_dir, workspace):
        await asyncio.to_thread(
            _published_files, evidence, each, "remove its folder: the next query rebuilds it"
        )
    if not embedded and not evidence.known and not evidence.findings:
        fact = (
            f"nothing in {str(data_dir)!r} records the length of the log, so a lost end cannot be "
            "detected: run 'hansard up' or 'hansard sql', whose tables record it"
        )
        evidence.findings.append(Finding(Kind.MARK, fact, wrong=False))
    return evidence


def _broker(evidence: Evidence, data_dir: Path, workspace: str) -> None:
    """Collect the mark that the supervisor keeps."""
    path = marks.path_of(data_dir, workspace)
    try:
        kept = marks.read(data_dir, workspace)
    except (Damaged, OSError) as error:
        fact = f"the broker's mark: {error}; remove it; a new one is then created"
        evidence.findings.append(Finding(Kind.MARK, fact, wrong=False))
        return
    if kept is None:
        return  # too new to have been compared yet
    evidence.known.append(Known("the broker's mark", kept.mark, marks.remedy(path)))
    if kept.late is not None:
        fact = (
            f"the broker's mark was begun on {marks.when(kept.began)}, when the log was there "
            f"already ({kept.late}): it knows nothing of what was lost at the end before that"
        )
        evidence.findings.append(Finding(Kind.MARK, fact, wrong=False))


def _tables(evidence: Evidence, place: TableFiles, workspace: str, aside: str) -> None:
    """Collect the tables, and the published ones if another process writes them."""
    hold: WriteLock | None = None
    try:
        if place.path.exists():
            hold = WriteLock(place)
    except Held:
        pass
    except Unusable as error:
        evidence.findings.append(Finding(Kind.TABLES, str(error)))
        return
    try:
        reached = _read_whole(evidence, "the tables", place.path) if hold is not None else None
    finally:
        if hold is not None:
            hold.close()
    if reached is not None:
        _add(evidence, "the tables", workspace, reached, aside)
    with published.holding(place) as current:
        if current is None:
            return
        progress = Progress(current.position, current.digest, current.messages, current.chain)
        _add(evidence, PUBLISHED, workspace, progress, aside)


def _published_files(evidence: Evidence, place: TableFiles, remedy: str) -> None:
    """Compare the published bytes with the digests made when they were published."""
    damages = [
        f"'{folder / published.GENERATION_FILE}' is damaged"
        for folder in published.unreadable(place)
    ]
    with published.holding(place) as current:
        damage = published.damage(current) if current is not None else None
        damages += [damage] if damage is not None else []
    for fact in damages:
        text = f"the published tables: {fact}; the log loses nothing by it: {remedy}"
        evidence.findings.append(Finding(Kind.TABLES, text))


def _add(evidence: Evidence, who: str, workspace: str, progress: Progress, aside: str) -> None:
    if progress.position:
        stream, position = subjects.log_stream(workspace), progress.position
        mark = Mark(stream, position, progress.messages, position, progress.chain or "")
        evidence.known.append(Known(who, mark, aside))


def _read_whole(evidence: Evidence, who: str, path: Path) -> Progress | None:
    """Read a file completely; return its position, None if it cannot be read."""
    try:
        with contextlib.closing(Store(path, read_only=True)) as store:
            store.read_all()
            return store.progress
    except (Older, Newer) as error:
        fact = f"{who} cannot be compared with the log: {error}"
        evidence.findings.append(Finding(Kind.TABLES, fact, wrong=False))
    except ProjectionError as error:
        fact = f"{who} cannot be read, of which the log loses nothing: {error}"
        evidence.findings.append(Finding(Kind.TABLES, fact))
    return None


class BrokerStatus(msgspec.Struct, kw_only=True):
    """Status of the broker; `pid`, `data_dir` and `hindered` (cannot write) are for an embedded
    one.
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


def status_of(urls: Sequence[str], durability: str, folder: Path | None) -> BrokerStatus:
    """Return the status of a running broker, without passwords."""
    running = peek(folder) if folder is not None else None
    hinders = hindrance(folder) if folder is not None and running is not None else None
    return BrokerStatus(
        running=True,
        embedded=folder is not None,
        url=", ".join(map(masked, urls)),
        version=running.version if running is not None else None,
        durability=durability,
        pid=running.server_pid if running is not None else None,
        data_dir=str(folder) if folder is not None else None,
        hindered=str(hinders) if hinders is not None else None,
    )


class Projection(msgspec.Struct, kw_only=True):
    """Position of the tables relative to the log, and the process that projects."""

    position: int = 0
    behind: int
    running: bool = False
    pid: int | None = None
    delay_ms: float | None = None


class Published(msgspec.Struct, kw_only=True):
    """Position of the published tables relative to the log."""

    position: int
    behind: int
    delay_ms: float | None


class NamedWorkspace(msgspec.Struct, tag_field="kind", tag="workspace", kw_only=True):
    """Workspace by its name alone: the broker does not have it."""

    workspace: str
    exists: bool = False


class WorkspaceStatus(NamedWorkspace, tag_field="kind", tag="workspace", kw_only=True):
    """Status of a workspace.

    Its streams, those with `fewer` replicas than configured, its runs by status, the agents that
    open runs wait for, how many messages are quarantined (None if unknown), and when memory
    reflects by these settings (empty: never). `damage` is what is wrong with its log: compared with
    its mark just now, or found by 'hansard up'; `unavailable` is why its archive
    cannot be read. Runs are read only from a log without either.
    """

    position: int
    commits: int
    bytes: int
    replicas: int
    leader: str | None
    streams: list[Figures]
    fewer: list[str]
    runs: dict[str, int]
    open_runs: dict[str, list[str]]
    projection: Projection
    published: Published
    quarantined: int | None
    served: bool | None
    """None if a service exists but does not answer."""

    reflects: str = ""
    damage: list[str] = []
    unavailable: str = ""


class Status(Answer):
    """Status of the broker, of the selected workspace (None without a broker), and all names."""

    _lines: ClassVar[tuple[str, ...]] = ("broker", "workspace")

    broker: BrokerStatus
    workspace: NamedWorkspace | WorkspaceStatus | None = None
    workspaces: list[str] = []


def workspace_status(
    workspace: str,
    lives: Sequence[RunLife],
    place: TableFiles,
    figures: Sequence[Figures],
    *,
    replicas: int,
    served: bool | None,
) -> WorkspaceStatus:
    """Return the status of a workspace whose streams have these figures."""
    its = next(each for each in figures if each.name == subjects.log_stream(workspace))
    by_status = Counter("unreadable" if life.problem else life.state.status.value for life in lives)
    return WorkspaceStatus(
        workspace=workspace,
        exists=True,
        position=its.last,
        commits=its.messages,
        bytes=sum(each.bytes for each in figures),
        replicas=its.replicas,
        leader=its.leader or None,
        streams=list(figures),
        fewer=[fact for each in figures if (fact := each.replica_warning(replicas)) is not None],
        runs=dict(by_status),
        open_runs={life.run: life.at_work for life in lives if life.at_work},
        projection=_projection(place, its.last),
        published=_published(place, its.last),
        quarantined=_quarantined(place),
        served=served,
    )


def _projection(place: TableFiles, head: int) -> Projection:
    projector = place.status()
    if projector is None:
        return Projection(behind=head)
    return Projection(
        position=projector.position,
        behind=max(0, head - projector.position),
        running=projector.running,
        pid=projector.pid if projector.running else None,
        delay_ms=projector.delay_ms,
    )


def _published(place: TableFiles, head: int) -> Published:
    projector, current = place.status(), published.newest(place)
    position = current.position if current is not None else 0
    return Published(
        position=position,
        behind=max(0, head - position),
        delay_ms=projector.published_delay_ms if projector is not None else None,
    )


def _quarantined(place: TableFiles) -> int | None:
    """Return the number of quarantined messages of the log, as published."""
    with published.holding(place) as current:
        if current is None:
            return None
        with contextlib.closing(Store(current.path, read_only=True)) as store:
            return int(store.all("SELECT count(*) FROM problems")[0][0])


class Table(msgspec.Struct, tag_field="kind", tag="table", kw_only=True):
    """Table in short; `equal` is set if it was compared."""

    table: str
    rows: int
    digest: str
    equal: bool | UnsetType = UNSET


class Summary(msgspec.Struct, tag_field="kind", tag="rebuilt", kw_only=True):
    """Position of the tables, and those that differ if they were compared."""

    position: int
    seconds: float
    differing: list[str] | UnsetType = UNSET


class Rebuild(Answer):
    """Result of a rebuild or a comparison, and its duration in seconds."""

    made: Rebuilt
    took_s: float

    @property
    def tables(self) -> list[Table]:
        """Yield each table."""
        made = self.made
        return [
            Table(
                table=name,
                rows=digest.rows,
                digest=digest.sum,
                equal=UNSET if made.before is None else name not in made.differing,
            )
            for name, digest in made.tables.items()
        ]

    def lines(self) -> Iterator[Table | Summary]:
        """Yield each table, then the summary."""
        yield from self.tables
        yield Summary(
            position=self.made.position,
            seconds=round(self.took_s, 3),
            differing=UNSET if self.made.before is None else self.made.differing,
        )
