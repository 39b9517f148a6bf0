"""Status of a workspace, and the rebuilding of its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from hansard.agents.workspace import RunLife
from hansard.broker.lease import hindrance, peek
from hansard.bus import subjects
from hansard.bus.jetstream.raw import Figures
from hansard.inspect.answer import Answer, masked
from hansard.projections.publish import snapshots as published
from hansard.projections.rebuild import Rebuilt
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles


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
    its mark just now, or found by 'hansard up'; runs are read only from an undamaged log.
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


class Status(Answer):
    """Status of the broker, of the selected workspace (None without a broker), and all names."""

    broker: BrokerStatus
    workspace: NamedWorkspace | WorkspaceStatus | None = None
    workspaces: list[str] = []

    def lines(self) -> Iterable[object]:
        """Yield the broker, then the workspace."""
        return (self.broker,) if self.workspace is None else (self.broker, self.workspace)


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
        store = Store(current.path, read_only=True)
        try:
            return int(store.all("SELECT count(*) FROM problems")[0][0])
        finally:
            store.close()


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
