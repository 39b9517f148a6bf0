"""Action caches in the log: saved, healed, reverted, looked at. On the bus's loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from hansard.agents.steps import payloads
from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive_all
from hansard.bus.commits import drive_fetch
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.domain.actions import cache as caches
from hansard.domain.actions import kept
from hansard.domain.actions.cache import ActionCache, ActionChange, CachedAction
from hansard.domain.actions.kept import (
    KIND,
    REMEDY,
    ActionsHealed,
    ActionsLookedAt,
    ActionsReverted,
    ActionsSaved,
    KeptState,
)
from hansard.domain.errors import BadName, Corrupt
from hansard.domain.events import Actor, Event
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import Label, join, parse
from hansard.domain.payload import references

# What is kept by name in versions, each in a lasting stream: how an event of it is stated, and how
# what an event refers to is read.


async def label_of_runs(workspace: Workspace, runs: Iterable[str]) -> Label | None:
    """The label that what was learned from runs is kept with: of all that their agents were shown.
    Of a run that is not in this record nothing is known here. None for public and trusted. For
    those alone who may know of any run.
    """
    labels: list[Label] = []
    for run in dict.fromkeys(each for each in runs if each):
        with contextlib.suppress(BadName, NotFound):
            found = await workspace.states.run(run)
            labels += [parse(agent.label) for agent in found.agents.values()]
    return join(*labels).stored


class Rules(Protocol):
    """A module of the domain that says what becomes of such a stream; its states have `newest`, the
    number of the newest version.
    """

    def initial(self) -> Any:
        """The state before the first event."""
        ...

    def fold(self, state: Any, events: Any, /) -> Any:
        """The state after some events."""
        ...

    def decide(self, state: Any, told: Any, /) -> Any:
        """What is stated; none where that is so already. Raises Refused."""
        ...


async def tell(
    workspace: Workspace,
    stream: WorkspaceStream,
    rules: Rules,
    told: Event,
    by: str | Actor,
    label: Label | None = None,
) -> int:
    """State an event; the number of the newest version then. Raises Refused, BadName, Conflict."""
    newest = 0

    def decided(stored: list[Stored]) -> Sequence[Event]:
        nonlocal newest
        state = rules.fold(rules.initial(), revive_all(each.commit for each in stored))
        made: Sequence[Event] = rules.decide(state, told)
        newest = rules.fold(state, made).newest
        return made

    await workspace.tell_lasting(stream, by, decided, label)
    return newest


async def fetched(workspace: Workspace, raw: msgspec.Raw) -> Any:
    """A value of an event, with what is kept outside it in its place. Raises NotFound, Corrupt."""
    return await drive_fetch(references.unpack(raw), workspace.blobs.get)


def stream_of(name: object) -> WorkspaceStream:
    """The stream of a cache. Raises BadName."""
    return WorkspaceStream(KIND, kept.check_name(name))


def folded(stored: Sequence[Stored]) -> KeptState:
    """A cache's state after its commits."""
    return kept.fold(kept.initial(), revive_all(each.commit for each in stored))


async def save(
    workspace: Workspace,
    name: str,
    cache: ActionCache,
    *,
    because: str = "",
    by: str | Actor,
    label: Label | None = None,
) -> int:
    """Make a whole cache the next version: its number, or that of the newest, which is equal.

    Raises BadName, BadValue, Conflict after 50 lost races.
    """
    plain = msgspec.to_builtins(workspace.clean(file_of(caches.checked(cache))))
    packed = payloads.pack(plain, "the action cache")
    for blob in packed.blobs:
        await workspace.blobs.put(blob)
    told = ActionsSaved(
        version=0,
        cache=packed.raw,
        digest=digest(canonical(plain)),
        because=workspace.text(because),
        run=cache.run,
    )
    return await tell(workspace, stream_of(name), kept, told, by, label)


def file_of(cache: ActionCache) -> ActionCache:
    """A cache without what the record says of it: its name, its version and its history."""
    made: ActionCache = msgspec.structs.replace(cache, name="", version=1, history=[])
    return made


async def read(workspace: Workspace, name: str) -> tuple[KeptState, list[Stored]]:
    """A cache's state, and its commits. Raises NotFound, BadName."""
    stored = await workspace.log.read(stream_of(name))
    if not stored:
        raise NotFound(f"action cache {name!r:.80}", REMEDY)
    return folded(stored), stored


async def label_of(workspace: Workspace, name: str) -> Label | None:
    """The label of what a cache's commits rest on. Raises NotFound, BadName."""
    _, stored = await read(workspace, name)
    return join(*(each.commit.label for each in stored)).stored


async def get(workspace: Workspace, name: str, version: int | None = None) -> ActionCache:
    """A version of a cache, the newest if none is named: its history has the heals that it is made
    of. Raises NotFound (no such cache, or its bytes were erased), Refused (no such version),
    BadName, Corrupt.
    """
    state, stored = await read(workspace, name)
    number = state.newest if version is None else version
    base, heals = kept.chain(state, number)
    plain = await fetched(workspace, base.cache)
    if digest(canonical(plain)) != base.digest:
        raise Corrupt(f"version {base.version} of action cache {name!r}", "it is not its digest's")
    made = caches.decode(msgspec.json.encode(plain), f"action cache {name!r}")
    said = _said(stored)
    for heal in heals:
        at, by = said[heal.version]
        made = caches.healed(made, heal.after, at=at, by=by, why=heal.because)
    history: list[ActionChange] = [
        msgspec.structs.replace(change, version=heal.version)
        for change, heal in zip(made.history, heals, strict=True)
    ]
    found: ActionCache = msgspec.structs.replace(made, name=name, version=number, history=history)
    return found


def _said(stored: Sequence[Stored]) -> dict[int, tuple[str, str]]:
    """When each version was made, by its writer's clock, and by whom."""
    found: dict[int, tuple[str, str]] = {}
    for each in stored:
        for event in revive_all([each.commit]):
            if isinstance(event, ActionsSaved | ActionsHealed | ActionsReverted):
                at = each.commit.at.isoformat(timespec="milliseconds")
                found[event.version] = at, each.commit.actor.agent
    return found


async def heal(
    workspace: Workspace,
    name: str,
    before: int,
    after: CachedAction,
    *,
    because: str,
    run: str,
    by: str | Actor,
    label: Label | None = None,
) -> int:
    """Make an entry that was found elsewhere the next version: its number, or that of the newest
    where this is none (`hansard.domain.actions.kept.decide`). Raises Refused, BadName, Conflict.
    """
    told = ActionsHealed(
        version=0, before=before, entry=after.step_index, after=after, because=because, run=run
    )
    return await tell(workspace, stream_of(name), kept, told, by, label)


async def revert(
    workspace: Workspace,
    name: str,
    to: int,
    *,
    because: str = "",
    by: str | Actor,
    label: Label | None = None,
) -> int:
    """Make an earlier version the next one: its number, or that of the newest, which is equal.

    Raises NotFound, Refused, BadName, Conflict.
    """
    await read(workspace, name)
    told = ActionsReverted(version=0, to=to, because=workspace.text(because))
    return await tell(workspace, stream_of(name), kept, told, by, label)


async def look_at(
    workspace: Workspace,
    name: str,
    version: int | None = None,
    *,
    because: str = "",
    by: str | Actor,
    label: Label | None = None,
) -> int:
    """State that somebody looked at all versions up to one, the newest if none is named; that one.

    Raises NotFound, Refused, BadName, Conflict.
    """
    state, _ = await read(workspace, name)
    number = state.newest if version is None else version
    told = ActionsLookedAt(version=number, because=workspace.text(because))
    await tell(workspace, stream_of(name), kept, told, by, label)
    return number
