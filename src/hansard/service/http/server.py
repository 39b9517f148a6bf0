"""The server and its workspaces: health, readiness, and figures for Prometheus.

Figures of workspaces are read for each scrape: from the streams, and from the newest published
tables, which are not brought up to date for it. No label is an id; a workspace is one of its names.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from hansard.bus import archive, subjects
from hansard.bus.errors import Unreachable
from hansard.bus.jetstream import APPEND_TIMES
from hansard.client.opening import data_dir_of, raw_of
from hansard.domain.errors import HansardError, import_extra
from hansard.inspect.status import status_of
from hansard.projections import snapshots as generations
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles
from hansard.service.http.problems import RETRY, problem
from hansard.service.http.routes import at_server

if TYPE_CHECKING:
    from hansard.service.http.app import App

READY_S, SCRAPE_S = 5.0, 20.0
"""Longest time to find the broker ready, and to read the figures, in seconds."""

WORKSPACES_MAX = 200
"""Most workspaces with figures of their own; `hansard_workspaces` counts all."""

_COUNTS = """
    SELECT
        (SELECT count(*) FROM orphan_intents WHERE kind <> 'waiting'),
        (SELECT count(*) FROM policies),
        (SELECT count(*) FROM approvals
            WHERE standing = 'pending' AND expires_at > now() AT TIME ZONE 'UTC'),
        (SELECT count(*) FROM problems)
"""


class Health(msgspec.Struct, frozen=True):
    """The state of the process."""

    status: str = "ok"


@at_server("GET", "/healthz")
async def healthz(app: App) -> Health:
    """Return "ok" while the process answers."""
    del app
    return Health()


class Ready(msgspec.Struct, frozen=True):
    """The service is ready; `workspaces` counts those that it serves."""

    status: str
    workspaces: int


@at_server("GET", "/readyz", result=Ready, stream="")
async def readyz(app: App) -> Ready | Response:
    """Return "ready" if the broker answers; else a problem with the status 503."""
    try:
        async with asyncio.timeout(READY_S):
            return Ready("ready", len(await app.records.names()))
    except (HansardError, TimeoutError) as error:
        fact = str(error) or f"the broker did not answer in {READY_S:g} s"
        remedy = "see 'hansard status' for the broker"
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, fact, RETRY, remedy=remedy)


@at_server("GET", "/metrics", trusted=True, stream="text/plain")
async def metrics(app: App) -> Response:
    """Return the figures of this service and its workspaces, in the format of Prometheus."""
    client = import_extra("prometheus_client", "'/metrics'", "prometheus-client", "http")
    figures: dict[str, dict[str, int]] = {}
    names: list[str] = []
    is_up = True
    try:
        async with asyncio.timeout(SCRAPE_S):
            names = await app.records.names()
            for name in names[:WORKSPACES_MAX]:
                figures[name] = await _figures(app, name)
    except (Unreachable, TimeoutError):
        is_up = False
    registry = client.CollectorRegistry()
    registry.register(_Collector(lambda: _families(app, figures, len(names), is_up=is_up)))
    text: bytes = client.generate_latest(registry)
    return Response(text, media_type=client.CONTENT_TYPE_LATEST)


async def _figures(app: App, name: str) -> dict[str, int]:
    """Return the figures of a workspace by name, without those that cannot be read."""
    figures: dict[str, int] = {}
    place = TableFiles.of(data_dir_of(app.records.settings), name)
    with contextlib.suppress(HansardError):
        async with raw_of(app.records.broker.runtime, name, damaged=True) as raw:
            streams = await raw.figures()
        log = next(each for each in streams if each.name == subjects.log_stream(name))
        projector, current = place.status(), generations.newest(place)
        figures |= {"commits": log.messages, "bytes": sum(each.bytes for each in streams)}
        tables = {"projection_lag_commits": projector, "published_lag_commits": current}
        for figure, at in tables.items():
            figures[figure] = log.last - (at.position if at is not None else 0)
    with contextlib.suppress(HansardError):
        figures |= await asyncio.to_thread(_counts, place)
    return figures


def _counts(place: TableFiles) -> dict[str, int]:
    """Return the counts of the newest published tables; none if there are none."""
    with generations.holding(place) as current:
        if current is None:
            return {}
        with contextlib.closing(Store(current.path, read_only=True)) as store:
            [counts] = store.all(_COUNTS)
    return dict(zip(_COUNTED, counts, strict=True))


class _Collector:
    """Gives families to a registry of prometheus-client."""

    def __init__(self, families: Callable[[], Iterable[Any]]) -> None:
        self.collect = families


_COUNTED = {
    "in_doubt_calls": "Calls without a known outcome that nobody works on",
    "blocked_calls": "Calls that the gate blocked, ever",
    "open_approvals": "Requests for approval without an answer",
    "quarantined_commits": "Messages of the log that Hansard did not write",
}
"""Name and description of each gauge that `_COUNTS` counts."""

_GAUGES = {
    "commits": "Commits of the log",
    "bytes": "Bytes of the streams on the broker's disk",
    "projection_lag_commits": "Commits that the tables lack",
    "published_lag_commits": "Commits that the published tables lack",
    **_COUNTED,
}
"""Name and description of each gauge of a workspace."""


def _families(
    app: App, figures: dict[str, dict[str, int]], workspaces: int, *, is_up: bool
) -> Iterator[Any]:
    from prometheus_client import metrics_core as core  # noqa: PLC0415 -- of an extra

    broker, settings = app.records.broker, app.records.settings
    gauge = core.GaugeMetricFamily
    yield gauge("hansard_broker_up", "1 if the broker answers", value=int(is_up))
    yield gauge("hansard_workspaces", "Workspaces that are served", value=workspaces)
    yield gauge("hansard_open_workspaces", "Workspaces open now", value=len(app.records.opened))
    folder = None if settings.nats_url else data_dir_of(settings)
    status = status_of(broker.runtime.urls, broker.durability, folder)
    memory = _memory_of(status.pid)
    if memory is not None:
        about = "Resident memory of the embedded broker"
        yield gauge("hansard_broker_memory_bytes", about, value=memory)
    for name, about in _GAUGES.items():
        family = gauge(f"hansard_{name}", about, labels=["workspace"])
        for workspace, values in figures.items():
            if name in values:
                family.add_metric([workspace], values[name])
        yield family
    yield from _tiers(core)
    yield _append_times(core)
    about = "Answered requests, and the seconds until their answers began"
    labels = ["route", "method", "status"]
    requests = core.SummaryMetricFamily("hansard_http_request_seconds", about, labels=labels)
    for of, (count, sum_s) in app.requests.counts.items():
        requests.add_metric([*of], count, sum_s)
    yield requests


_TIERS = (
    ("bytes", "Bytes that a tier of the archive holds; of L3, that were fetched", "Gauge"),
    ("bytes_max", "Most bytes of a tier; 0: no bound", "Gauge"),
    ("oldest_s", "Seconds since the oldest content of a tier was used or read", "Gauge"),
    ("hits", "Reads that a tier answered; of L3, requests", "Counter"),
    ("misses", "Reads that a tier did not answer", "Counter"),
    ("evictions", "Parts, or segments of L2, that a tier dropped", "Counter"),
)
"""Field, description and kind of each figure of a tier."""


def _tiers(core: Any) -> Iterator[Any]:
    """Yield the figures of the archives that this process has opened."""
    tiers = [
        (place, tier, figures)
        for place, each in archive.opened().items()
        for tier, figures in each.figures().items()
    ]
    for field, about, kind in _TIERS if tiers else ():
        family = getattr(core, f"{kind}MetricFamily")
        metric = family(f"hansard_archive_{field}", about, labels=["archive", "tier"])
        for place, tier, figures in tiers:
            metric.add_metric([place, tier], getattr(figures, field))
        yield metric


def _append_times(core: Any) -> Any:
    about = "Appends of this process, until the broker acknowledged them"
    family = core.HistogramMetricFamily("hansard_append_seconds", about)
    bounds = [*map(str, APPEND_TIMES.BOUNDS_S), "+Inf"]
    buckets = [*zip(bounds, accumulate(APPEND_TIMES.counts), strict=True)]
    family.add_metric([], buckets, APPEND_TIMES.sum_s)
    return family


def _memory_of(pid: int | None) -> int | None:
    """Return a process's resident memory in bytes; None if it is unknown."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * mmap.PAGESIZE
