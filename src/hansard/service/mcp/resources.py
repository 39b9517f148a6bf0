"""The record's resources: what may be read of a run by its address, without a tool.

run://RUN/trace             its steps, as `hansard run trace --json` prints them
run://RUN/state[?at=POINT]  its whole state, now or at a point
run://RUN/view[?role=ROLE]  what this client's role may see of it, or another whose view it may
board://RUN/KEY             an entry of its shared state
task://RUN/ID               a task of its team
decision://ID               why something was decided
memory://PATH               a file of memory, as this client's agent sees it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec

from hansard.agents.policy import permits
from hansard.agents.team.tasks import TaskEntry
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition
from hansard.client.protocol import shapes
from hansard.client.protocol.errors import NotOffered
from hansard.domain.errors import BadValue
from hansard.inspect.state import state
from hansard.inspect.trace import trace
from hansard.service.mcp.offers import Answer, in_own_run, lines
from hansard.service.mcp.sessions import Sessions

LISTED_MAX = 50
"""Runs whose traces are listed, the newest first; any other is read by its address."""


FILES_MAX = 200
"""Files of memory that are listed, by their paths; any other is read by its address."""


class Template(msgspec.Struct, frozen=True):
    """An address with names in braces, what is there, and whether word is given when it changes."""

    uri: str
    name: str
    does: str
    changes: bool = True


TEMPLATES = (
    Template("run://{run}/trace", "trace", "The steps of a run, with arguments and results."),
    Template("run://{run}/state{?at}", "state", "The whole state of a run, now or at a point."),
    Template(
        "run://{run}/view{?role}",
        "view",
        "What its role sees, or one whose view it may see.",
    ),
    Template("board://{run}/{+key}", "board", "An entry of a run's shared state."),
    Template("task://{run}/{task}", "task", "A task of a run's team.", changes=False),
    Template("memory://{+path}", "memory", "A file of this agent's memory, as it stands."),
    Template(
        "decision://{id}",
        "decision",
        "Why something was decided, from what, by whom.",
        changes=False,
    ),
)


FIXED = {each.name for each in TEMPLATES if not each.changes}
"""Kinds of which no word is given."""


class Address(msgspec.Struct, frozen=True):
    """What a URI names: one of `TEMPLATES` by its name, of a run or decision, a key (of a task its
    id, of memory its path), a point, a role that is not the client's own.
    """

    kind: str
    of: str
    key: str | None = None
    at: str | None = None
    role: str | None = None

    @property
    def changes(self) -> bool:
        """Whether it is told when what stands there became another: not of what stands at a point,
        or in an answer, nor of what another role sees.
        """
        return self.kind not in FIXED and self.at is None and self.role is None

    @classmethod
    def read(cls, uri: str) -> Address:
        """Of a URI. Raises BadValue for one that is no resource's."""
        parts = urlsplit(uri)
        where, path = unquote(parts.netloc), unquote(parts.path.removeprefix("/"))
        if where and parts.scheme == "memory":
            return cls("memory", "", f"{where}/{path}" if path else where)
        if where and parts.scheme in ("board", "task") and path:
            return cls(parts.scheme, where, path)
        if where and parts.scheme == "run" and path in ("trace", "state", "view"):
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            at = asked.get("at") if path == "state" else None
            return cls(path, where, at=at, role=asked.get("role") if path == "view" else None)
        if where and parts.scheme == "decision" and not path:
            return cls("decision", where)
        known = ", ".join(each.uri for each in TEMPLATES)
        raise BadValue(f"{uri!r:.200}", "is no address of a resource", f"there are {known}")


async def read(
    sessions: Sessions, uri: str, address: Address, asked: str = "resources/read"
) -> Answer:
    """What stands at an address, and the work in whose run it is on record that it was asked.

    Raises NotOffered, and as the session's operations.
    """
    if address.kind in ("board", "task", "view") and address.role is None:
        work = await sessions.of(address.of)
        async with sessions.at_work(work):
            if address.kind == "task":
                found = _task(address, await work.session.team.tasks())
            elif address.key is not None:
                found = await work.session.board.entry(address.key)
            else:
                found = await work.session.view()
        return Answer(msgspec.json.decode(await shapes.told(found)), work)
    if address.kind == "memory":
        work = await sessions.own()
        async with sessions.at_work(work):
            return Answer((await work.session.memory.entry(address.key)).text, work)
    reads = {"trace": _steps, "state": _state, "decision": _reason, "view": _seen_by}[address.kind]
    return await in_own_run(sessions, asked, {"uri": uri}, lambda: reads(sessions, address))


def _task(address: Address, tasks: Sequence[TaskEntry]) -> TaskEntry:
    for each in tasks:
        if each.id == address.key:
            return each
    raise NotFound(f"task {address.key!r:.80}", "give the id of one that team_tasks lists")


async def _steps(sessions: Sessions, address: Address) -> Answer:
    workspace, run = _workspace(sessions), address.of
    position = await workspace.states.log.end(await workspace.points.up_to(run, None))
    history = await workspace.states.history(run, AtPosition(position))
    return Answer(lines(trace(run, history)), replayable=False, position=position)


async def _state(sessions: Sessions, address: Address) -> Answer:
    found = await state(_workspace(sessions), address.of, address.at, None)
    return Answer(lines(found), replayable=False, position=found.position)


async def _reason(sessions: Sessions, address: Address) -> Answer:
    found = await sessions.record.why(address.of)
    return Answer(lines(found), replayable=False, position=found.position)


async def _seen_by(sessions: Sessions, address: Address) -> Answer:
    await sessions.demand(permits.views(address.role or ""))
    found = await sessions.record.view(address.of, role=address.role)
    told = msgspec.json.decode(await shapes.told(found))
    return Answer(told, replayable=False)


def _workspace(sessions: Sessions) -> Any:
    """What the record stands on. Raises NotOffered for a restricted agent."""
    if sessions.workspace is None:
        raise NotOffered("the whole of a run", "read run://RUN/view, which its role may see")
    return sessions.workspace


def mime_of(uri: str) -> str:
    """What stands at an address: JSON, or a file of memory as it is."""
    if urlsplit(uri).scheme != "memory":
        return "application/json"
    return {"md": "text/markdown", "json": "application/json"}.get(
        uri.rpartition(".")[2], "text/plain"
    )


async def files(sessions: Sessions) -> list[Template]:
    """The first files of the agent's memory, by their paths. Raises RoleRefused."""
    work = await sessions.own()
    async with sessions.at_work(work):
        found = await work.session.memory.ls()
    return [
        Template(f"memory://{quote(path)}", path, f"The file of memory {path}.")
        for path in found[:FILES_MAX]
    ]


async def listed(sessions: Sessions) -> list[Template]:
    """The newest runs' traces. Raises NotOffered for a restricted agent, whose role may not even
    ask RoleRefused.
    """

    async def reads() -> Answer:
        found = (await sessions.record.runs())[:LISTED_MAX]
        told = [[run, life.workflow, life.status.value] for run, life in found]
        return Answer(told, replayable=False)

    return [
        Template(
            f"run://{quote(run, safe='')}/trace",
            f"{workflow} {run}",
            f"The steps of run {run} ({status}).",
        )
        for run, workflow, status in (
            await in_own_run(sessions, "resources/list", {}, reads)
        ).result
    ]
