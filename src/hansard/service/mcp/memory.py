"""Memory for any harness: its whole context fetched and updated in a call each, and its files as
resources.

A harness that keeps its own copy says by `timestamp` how new that is: what somebody else changed
since is not written over. What is written goes to the agent's own space, as one change.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from hansard.agents.errors import RoleRefused
from hansard.agents.memory.reading import MemoryEntry
from hansard.bus.errors import NotFound
from hansard.client.protocol.errors import NotOffered
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.memory.paths import AGENTS, RUNS
from hansard.service.mcp.sessions import Sessions, Work

FILES_MAX = 200
"""Files whose texts are fetched, the first by their paths; of others the paths alone."""

CHARACTERS_MAX = 64 * 1024
"""Of all texts that are fetched together."""

TASKS_MAX = 20
"""Past tasks, the newest first."""

THEIRS_MAX = 2_000
"""Characters of a text that stands there, in an error."""

TASKS = """
SELECT a.run, r.workflow, r.status, a.began_at FROM agents AS a JOIN runs AS r ON r.run = a.run
WHERE a.agent = $1 ORDER BY a.began_at DESC, a.run LIMIT $2
"""


class Fetch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What this agent is to know: its instructions (`user_preferences`, the nearest last), the runs
    that it took part in (`past_tasks`), its files of memory. `timestamp` goes back with
    update_context.
    """

    agent_id: str


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to hold from now on. `files`: texts by their paths, null for a file that goes;
    `user_preferences`: lines for the agent's own instructions, which stay what they are besides.
    """

    files: dict[str, str | None] = {}
    user_preferences: list[str] = []


class Update(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Write to this agent's own memory, as one change. `timestamp` is that of the fetch_context
    that `context` goes by: a file that somebody changed since is a conflict, and nothing is
    written. incremental: files that are not named stay; full: of the agent's own they go.
    """

    agent_id: str
    context: Context
    timestamp: str
    sync_type: Literal["incremental", "full"] = "incremental"


class ContextConflict(HansardError):
    """A file was changed after the context was fetched; nothing was written."""

    def __init__(self, path: str, author: str, at: str, theirs: str) -> None:
        super().__init__(
            f"file {path!r} was changed by {author!r} at {at}, after this context was fetched; "
            f"nothing was written: call fetch_context again and decide. It holds now: {theirs!r}"
        )


async def fetched(sessions: Sessions, asked: Fetch) -> tuple[Any, Work]:
    """The context of the client's agent. Raises NotOffered for another's."""
    work = await _work_of(sessions, asked.agent_id)
    now = datetime.now(UTC).isoformat()
    tasks = await _tasks(sessions, asked.agent_id)
    async with sessions.at_work(work):
        paths = [each for each in await work.session.memory.ls() if not _happened(each)]
        files: list[dict[str, Any]] = []
        left = CHARACTERS_MAX
        for number, path in enumerate(paths):
            found = {"path": path}
            if number < FILES_MAX and left:
                entry: MemoryEntry = await work.session.memory.entry(path)
                found |= {name: getattr(entry, name) for name in ("space", "author", "digest")}
                found["kind"] = entry.kind.value
                if len(entry.text) <= left:
                    found["text"] = entry.text
                    left -= len(entry.text)
            files.append(found)
    instructions = [each for each in files if each["path"].rpartition("/")[2] == AGENTS]
    told = {"agent_id": asked.agent_id, "timestamp": now, "user_preferences": instructions}
    return told | {"past_tasks": tasks, "files": files}, work


async def updated(sessions: Sessions, asked: Update) -> tuple[Any, Work]:
    """Write the context: what became of each file. Raises NotOffered, BadValue, ContextConflict,
    and as a change of memory.
    """
    work = await _work_of(sessions, asked.agent_id)
    since = _time(asked.timestamp)
    own = f"agent/{work.session.agent}"
    wanted = dict(asked.context.files)
    async with sessions.at_work(work):
        memory = work.session.memory
        if asked.sync_type == "full":
            for path in await memory.ls():
                if (
                    path not in wanted
                    and not _happened(path)
                    and await _standing(memory, path, own)
                ):
                    wanted[path] = None
        standing = {path: await _standing(memory, path, own) for path in wanted}
        changed: dict[str, str | None] = {}
        for path, text in wanted.items():
            stands = standing[path]
            if text != (None if stands is None else stands.text):
                await _demand_older(memory, path, own, since, stands)
                changed[path] = text
        instructions = await _standing(memory, AGENTS, own)
        text = changed.get(AGENTS, None if instructions is None else instructions.text) or ""
        lines = _new_lines(text, asked.context.user_preferences)
        if changed or lines:
            async with memory.change("update_context", space=own) as change:
                for path, text_ in changed.items():
                    if text_ is None:
                        change.delete(path)
                    else:
                        change.create(path, text_)
                for line in lines:
                    change.append(AGENTS, line)
    told = {
        "written": sorted({path for path, text_ in changed.items() if text_ is not None}),
        "deleted": sorted(path for path, text_ in changed.items() if text_ is None),
        "unchanged": sorted(path for path in wanted if path not in changed),
        "remembered": lines,
    }
    return told | {"timestamp": datetime.now(UTC).isoformat()}, work


async def _work_of(sessions: Sessions, agent: str) -> Work:
    """The client's own run, where it is that agent. Raises NotOffered."""
    work = await sessions.own()
    mine = work.session.agent
    if agent != mine:
        raise NotOffered(f"the context of {agent!r:.80}", f"this client is {mine!r}")
    return work


async def _tasks(sessions: Sessions, agent: str) -> list[dict[str, Any]]:
    """The runs that it took part in; those of this connection where its role may not query."""
    try:
        rows = (await sessions.record.sql(TASKS, agent, TASKS_MAX)).rows
    except (NotOffered, RoleRefused):
        return [{"run_id": each} for each in sessions.runs][:TASKS_MAX]
    names = ("run_id", "workflow", "status", "began_at")
    return [
        dict(zip(names, map(str, row), strict=True)) | {"summary": f"{RUNS}/{row[0]}/summary.md"}
        for row in rows
    ]


def _happened(path: str) -> bool:
    """Whether it is made of what happened: nobody writes it."""
    return path.partition("/")[0] == RUNS


async def _standing(memory: Any, path: str, space: str) -> MemoryEntry | None:
    try:
        found: MemoryEntry = await memory.entry(path, space=space)
    except NotFound:
        return None
    return found


async def _demand_older(
    memory: Any, path: str, space: str, since: datetime, stands: MemoryEntry | None
) -> None:
    """Raise ContextConflict where somebody changed a file since, or it is gone since."""
    try:
        versions = await memory.history(path, space=space)
    except NotFound:
        return
    if versions and datetime.fromisoformat(versions[-1].at) > since:
        newest = versions[-1]
        theirs = "" if stands is None else stands.text[:THEIRS_MAX]
        raise ContextConflict(path, newest.author, newest.at, theirs)


def _new_lines(text: str, lines: Sequence[str]) -> list[str]:
    """What is to be remembered that the instructions do not say in these words yet."""
    said = {each.removeprefix("- ").strip() for each in text.splitlines()}
    wanted = dict.fromkeys(" ".join(each.split()).removeprefix("- ") for each in lines)
    return [f"- {each}" for each in wanted if each and each not in said]


def _time(text: str) -> datetime:
    """Raises BadValue."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        fact, remedy = f"{text!r:.80}", "give the timestamp that fetch_context gave"
        raise BadValue("update_context(timestamp)", fact, remedy)
    return found
