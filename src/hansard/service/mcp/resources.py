"""The record's resources: what may be read of a run by its address, without a tool.

run://RUN/trace             its steps, as `hansard run trace --json` prints them
run://RUN/state[?at=POINT]  its whole state, now or at a point
run://RUN/view              what this client's role may see of it
board://RUN/KEY             an entry of its shared state
decision://ID               why something was decided
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec

from hansard.client.protocol import shapes
from hansard.client.protocol.errors import NotOffered
from hansard.domain.errors import BadValue
from hansard.inspect.state import state
from hansard.inspect.trace import trace
from hansard.service.mcp.offers import in_own_run, lines
from hansard.service.mcp.sessions import Sessions

LISTED_MAX = 50
"""Runs whose traces are listed, the newest first; any other is read by its address."""


class Template(msgspec.Struct, frozen=True):
    """An address with names in braces, and what is there."""

    uri: str
    name: str
    does: str


TEMPLATES = (
    Template("run://{run}/trace", "trace", "The steps of a run, with arguments and results."),
    Template("run://{run}/state{?at}", "state", "The whole state of a run, now or at a point."),
    Template("run://{run}/view", "view", "What this client's role may see of a run."),
    Template("board://{run}/{+key}", "board", "An entry of a run's shared state."),
    Template("decision://{id}", "decision", "Why something was decided, from what, by whom."),
)


async def read(sessions: Sessions, uri: str) -> Any:
    """What stands at an address, as JSON. Raises BadValue for one that is none, NotOffered."""
    parts = urlsplit(uri)
    where, path = unquote(parts.netloc), unquote(parts.path.removeprefix("/"))
    if parts.scheme == "board" and where and path:
        work = await sessions.of(where)
        async with sessions.at_work(work):
            found = await work.session.board.entry(path)
        return msgspec.json.decode(await shapes.told(found))
    if parts.scheme == "run" and path == "view" and where:
        work = await sessions.of(where)
        async with sessions.at_work(work):
            return msgspec.json.decode(await shapes.told(await work.session.view()))
    reads = _reading(parts.scheme, where, path, parse_qs(parts.query).get("at", [None])[0])
    if reads is None:
        known = ", ".join(each.uri for each in TEMPLATES)
        raise BadValue(f"{uri!r:.200}", "is no address of a resource", f"there are {known}")
    return await in_own_run(sessions, "resources/read", {"uri": uri}, lambda: reads(sessions))


def _reading(
    scheme: str, where: str, path: str, at: str | None
) -> Callable[[Sessions], Awaitable[Any]] | None:
    """What reads an address that is of no session's."""

    async def steps(sessions: Sessions) -> Any:
        workspace = _workspace(sessions)
        history = await workspace.states.history(where, await workspace.points.up_to(where, None))
        return lines(trace(where, history))

    async def whole(sessions: Sessions) -> Any:
        return lines(await state(_workspace(sessions), where, at, None))

    async def reason(sessions: Sessions) -> Any:
        return lines(await sessions.record.why(where))

    if not where:
        return None
    if scheme == "decision" and not path:
        return reason
    return {"trace": steps, "state": whole}.get(path) if scheme == "run" else None


def _workspace(sessions: Sessions) -> Any:
    """What the record stands on. Raises NotOffered for a restricted agent."""
    found = getattr(sessions.record, "workspace", None)
    if found is None:
        raise NotOffered("the whole of a run", "read run://RUN/view, which its role may see")
    return found


async def listed(sessions: Sessions) -> list[Template]:
    """The newest runs' traces. Raises NotOffered for a restricted agent."""
    found = await sessions.record.runs()
    return [
        Template(
            f"run://{quote(run, safe='')}/trace",
            f"{life.workflow} {run}",
            f"The steps of run {run} ({life.status.value}).",
        )
        for run, life in found[:LISTED_MAX]
    ]
