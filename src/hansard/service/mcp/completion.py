"""What a client is offered while a person types an argument of a prompt, or of an address.

What is offered comes from the client's own sessions, and from SQL as its role is answered it: of a
restricted client its role's own tables. Who may not ask is offered what its own sessions show.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from hansard.agents.errors import RoleRefused
from hansard.agents.policy import permits
from hansard.client.protocol.errors import NotOffered
from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue
from hansard.service.mcp import resources
from hansard.service.mcp.offers import Answer, in_own_run
from hansard.service.mcp.prompts import PROMPTS
from hansard.service.mcp.sessions import Sessions

VALUES_MAX = 100
"""As many as the protocol allows in an answer."""

RUNS = "SELECT run FROM runs WHERE starts_with(run, $1) ORDER BY started_at DESC, run"
DECISIONS = """
SELECT decision FROM decisions WHERE starts_with(decision, $1) ORDER BY position DESC, decision
"""
EXPERIMENTS = "SELECT experiment FROM experiments WHERE starts_with(experiment, $1) ORDER BY ALL"
MEMBERS = """
SELECT DISTINCT name FROM (
    SELECT unnest([agent, role]) AS name FROM agents WHERE $2 IN ('', run)
) WHERE starts_with(name, $1) ORDER BY ALL
"""
POINTS = """
SELECT agent || '@' || version AS point FROM agents
WHERE run = $2 AND starts_with(point, $1) ORDER BY ALL
"""
KEYS = "SELECT DISTINCT key FROM board WHERE run = $2 AND starts_with(key, $1) ORDER BY ALL"
TASKS = "SELECT task FROM tasks WHERE run = $2 AND starts_with(task, $1) ORDER BY ALL"
"""What begins with $1; in the run $2."""


class Offered(msgspec.Struct, frozen=True):
    """What may be meant, at most `VALUES_MAX`, and whether there is more."""

    values: list[str]
    has_more: bool


Source = Callable[[Sessions, str, str], Awaitable[list[str]]]
"""Gives what begins so, in a run ("" for none): one more than `VALUES_MAX` where there is more."""


async def complete(
    sessions: Sessions, ref: str, argument: str, begun: str, known: Mapping[str, str]
) -> Offered:
    """What may be meant by an argument that begins so.

    ref: A prompt's name, or an address as it is listed. known: What the other arguments are.
    Raises BadValue for what is no argument of either.
    """
    source = _source(ref, argument)
    run = known.get("run") or known.get("run_id") or ""
    asked = {"ref": ref, "argument": argument, "value": begun, "known": dict(known)}

    async def reads() -> Answer:
        return Answer(await source(sessions, begun, run), replayable=False)

    try:
        if source is _files:  # which is a step by itself
            found = await source(sessions, begun, run)
        else:
            found = (await in_own_run(sessions, "completion/complete", asked, reads)).result
    except (NotOffered, RoleRefused):  # it may not even ask
        found = []
    return Offered(found[:VALUES_MAX], len(found) > VALUES_MAX)


def _source(ref: str, argument: str) -> Source:
    template = next((each for each in resources.TEMPLATES if each.uri == ref), None)
    if template is not None:
        sources = OF_ADDRESSES
        named = [name for name in sources if any(f"{{{at}{name}}}" in ref for at in ("", "+", "?"))]
    elif ref in PROMPTS:
        sources = OF_PROMPTS
        named = [each.name for each in PROMPTS[ref].arguments]
    else:
        return _nothing  # of a prompt on record: its variables may be anything
    if argument not in named:
        remedy = f"{nearest(argument, named)}give one of {', '.join(named)}"
        raise BadValue(ref, f"{argument!r:.80} is none of its arguments", remedy)
    return sources.get(argument, _nothing)


async def _nothing(sessions: Sessions, begun: str, run: str) -> list[str]:
    del sessions, begun, run
    return []


def _from(statement: str) -> Source:
    async def source(sessions: Sessions, begun: str, run: str) -> list[str]:
        given = [begun, run] if "$2" in statement else [begun]
        try:
            found = await sessions.record.sql(f"{statement} LIMIT {VALUES_MAX + 1}", *given)
        except (NotOffered, RoleRefused):
            return []
        return [str(value) for (value,) in found.rows]

    return source


async def _runs(sessions: Sessions, begun: str, run: str) -> list[str]:
    mine = [each for each in sessions.runs if each.startswith(begun)]
    return list(dict.fromkeys([*mine, *await _from(RUNS)(sessions, begun, run)]))


async def _keys(sessions: Sessions, begun: str, run: str) -> list[str]:
    return await _in_run(sessions, run, begun, KEYS, lambda session: session.board.keys())


async def _tasks(sessions: Sessions, begun: str, run: str) -> list[str]:
    async def ids(session: Any) -> list[str]:
        return [each.id for each in await session.team.tasks()]

    return await _in_run(sessions, run, begun, TASKS, ids)


async def _in_run(
    sessions: Sessions,
    run: str,
    begun: str,
    statement: str,
    reads: Callable[[Any], Awaitable[list[str]]],
) -> list[str]:
    """As the session in that run sees it, where the client is at work there; else by SQL: to be
    offered something joins no run.
    """
    work = sessions.under_way(run, in_run=True)
    if work is None:
        return await _from(statement)(sessions, begun, run)
    async with sessions.at_work(work):
        found = await reads(work.session)
    return [each for each in found if each.startswith(begun)][: VALUES_MAX + 1]


async def _files(sessions: Sessions, begun: str, run: str) -> list[str]:
    del run
    work = await sessions.own()
    async with sessions.at_work(work):
        found = await work.session.memory.ls()
    return [each for each in found if each.startswith(begun)][: VALUES_MAX + 1]


async def _points(sessions: Sessions, begun: str, run: str) -> list[str]:
    if sessions.workspace is None:  # it is not told versions
        return []
    return await _from(POINTS)(sessions, begun, run)


async def _roles(sessions: Sessions, begun: str, run: str) -> list[str]:
    del run
    found: list[str] = await sessions.record.view_roles()
    if sessions.workspace is not None:
        mine = (await sessions.own()).session.role
        permit = await permits.read(sessions.workspace, mine)
        found = [each for each in found if permit.ask(permits.views(each)).allowed]
    return [each for each in found if each.startswith(begun)][: VALUES_MAX + 1]


OF_ADDRESSES: dict[str, Source] = {
    "run": _runs,
    "key": _keys,
    "task": _tasks,
    "at": _points,
    "role": _roles,
    "path": _files,
    "id": _from(DECISIONS),
}
"""Where what is offered comes from, by the names in an address."""

OF_PROMPTS: dict[str, Source] = {
    "run_id": _runs,
    "to": _from(MEMBERS),
    "experiment": _from(EXPERIMENTS),
    "decision": _from(DECISIONS),
}
"""The same, by the names of the arguments of the server's own prompts."""
