"""An action cache that is kept in the record by name: its versions, who looked at them. It outlives
runs.

A version is a whole cache, or an entry of the one before that was found elsewhere (a heal), or an
earlier version again. None ever changes. A heal is a model's word until somebody has looked at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec

from hansard.domain import ids
from hansard.domain.actions.cache import CachedAction
from hansard.domain.choices import Brief
from hansard.domain.errors import Refused
from hansard.domain.events import Event, event
from hansard.domain.quarantined import Quarantined

KIND = "actions"
"""The kind of its stream; its id is the cache's name."""

REMEDY = "`hansard actions list` lists them; keep one with `hansard actions keep FILE NAME`"
"""What to do where there is no such cache."""

VERSIONS_MAX = 10_000
"""Of a cache: all of them are read to tell what one is."""


@event("actions.saved.v1")
class ActionsSaved(Event, frozen=True, kw_only=True):
    """A whole cache is the next version.

    Attributes:
        version: Its number, from 1 in each cache.
        cache: The cache, as its file has it; a large one by reference (`$blob`).
        digest: Of it, in RFC 8785 form.
        because: Why.
        run: The run that it is of; empty where none is known.
    """

    version: int
    cache: msgspec.Raw
    digest: str
    because: str = ""
    run: str = ""


@event("actions.healed.v1")
class ActionsHealed(Event, frozen=True, kw_only=True):
    """An entry was found elsewhere, and the action done to what was found succeeded: that is the
    next version.

    Attributes:
        version: Its number.
        before: The version that was replayed.
        entry: The entry's `stepIndex`.
        after: The entry from now on.
        because: What did not match any more.
        run: The run of the replay.
    """

    version: int
    before: int
    entry: int
    after: CachedAction
    because: str = ""
    run: str = ""


@event("actions.reverted.v1")
class ActionsReverted(Event, frozen=True, kw_only=True):
    """The next version is an earlier one again.

    Attributes:
        version: Its number.
        to: Which one it is again.
        because: Why.
    """

    version: int
    to: int
    because: str = ""


@event("actions.looked_at.v1")
class ActionsLookedAt(Event, frozen=True, kw_only=True):
    """Somebody looked at all versions up to one, and lets them stand.

    Attributes:
        version: The newest that was looked at.
        because: What was found.
    """

    version: int
    because: str = ""


ActionsEvent = ActionsSaved | ActionsHealed | ActionsReverted | ActionsLookedAt
ActionsVersion = ActionsSaved | ActionsHealed | ActionsReverted


class KeptState(Brief, msgspec.Struct):
    """A cache that is kept, at a `version` of its stream.

    Attributes:
        version: A count of events.
        versions: By number.
        looked_at: The newest version that somebody looked at; 0 for none.
    """

    version: int = 0
    versions: dict[int, ActionsVersion] = {}
    looked_at: int = 0

    @property
    def newest(self) -> int:
        """The number of the newest version; 0 where there is none."""
        return len(self.versions)


def initial() -> KeptState:
    """The state before the first event."""
    return KeptState()


def fold(state: KeptState, events: Iterable[Event]) -> KeptState:
    """The state after more events; the given one is left as it is."""
    made = KeptState(state.version, dict(state.versions), state.looked_at)
    for each in events:
        made.version += 1
        match each:
            case ActionsSaved() | ActionsHealed() | ActionsReverted():
                made.versions[each.version] = each
            case ActionsLookedAt():
                made.looked_at = max(made.looked_at, each.version)
            case Quarantined():
                continue
            case _:
                message = f"{each.tag} is not an event of an action cache"
                raise Refused(message)
    return made


def chain(state: KeptState, version: int) -> tuple[ActionsSaved, list[ActionsHealed]]:
    """What a version is made of: a whole cache, and the heals after it, the oldest first. Raises
    Refused where there is no such version.
    """
    heals: list[ActionsHealed] = []
    at = version
    while True:
        found = demand(state, at)
        match found:
            case ActionsSaved():
                return found, heals[::-1]
            case ActionsHealed(before=earlier):
                heals.append(found)
            case ActionsReverted(to=earlier):
                pass
            case _:
                assert_never(found)
        if earlier >= at:
            message = f"version {at} is made of version {earlier}, which is no earlier one"
            raise Refused(message)
        at = earlier


def demand(state: KeptState, version: int) -> ActionsVersion:
    """A version. Raises Refused where there is none."""
    if version not in state.versions:
        has = f"its newest is {state.newest}" if state.versions else "it has none: save one"
        message = f"there is no version {version}: {has}"
        raise Refused(message)
    return state.versions[version]


def decide(state: KeptState, event: ActionsEvent) -> Sequence[ActionsEvent]:
    """The events that stating one leads to; none where it is so already. A version gets its number
    here. A heal of a version that is not the newest any more is made on the newest one, where that
    has the same entry still: else it is none, and somebody else's word stands.

    Raises Refused.
    """
    if not isinstance(event, ActionsLookedAt) and state.newest >= VERSIONS_MAX:
        message = f"it has {VERSIONS_MAX:,} versions, the most there may be: begin another"
        raise Refused(message)
    number = state.newest + 1
    match event:
        case ActionsSaved():
            if state.versions:
                base, heals = chain(state, state.newest)
                if base.digest == event.digest and not heals:
                    return ()
            return (msgspec.structs.replace(event, version=number),)
        case ActionsHealed():
            return _healed(state, event, number)
        case ActionsReverted():
            demand(state, event.to)
            if made_of(state, event.to) == made_of(state, state.newest):
                return ()
            return (msgspec.structs.replace(event, version=number),)
        case ActionsLookedAt():
            demand(state, event.version)
            return (event,) if event.version > state.looked_at else ()
        case _:
            assert_never(event)


def _healed(state: KeptState, event: ActionsHealed, number: int) -> Sequence[ActionsEvent]:
    stands = made_of(state, state.newest)
    replayed = made_of(state, event.before)
    same_base = stands[0] == replayed[0]
    if not same_base or stands[1].get(event.entry) != replayed[1].get(event.entry):
        return ()
    if stands[1].get(event.entry) == event.after:
        return ()
    return (msgspec.structs.replace(event, version=number, before=state.newest),)


def made_of(state: KeptState, version: int) -> tuple[str, dict[int, CachedAction]]:
    """What a version says: its whole cache's digest, and the entries that were healed since."""
    base, heals = chain(state, version)
    return base.digest, {heal.entry: heal.after for heal in heals}


def check_name(name: object) -> str:
    """A cache's name, checked. Raises BadName."""
    return ids.name("action cache", name)
