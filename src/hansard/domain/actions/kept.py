"""An action cache that is kept in the record by name: its versions and reviews. It outlives runs.

A version is a whole cache, or an entry of the previous one that was found elsewhere (a heal), or an
earlier version again. None ever changes. A heal is made by a model, and counts as unreviewed until
a person reviews it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from hansard.domain import decider, ids
from hansard.domain.actions.cache import CachedAction
from hansard.domain.decider import ArtifactKind, ArtifactState, By
from hansard.domain.errors import Refused
from hansard.domain.events import Event, event

KIND = "actions"
"""The kind of its stream; its id is the cache's name."""


@event("actions.saved.v1")
class ActionsSaved(Event, frozen=True, kw_only=True):
    """A whole cache is the next version.

    Attributes:
        version: Its number, from 1 in each cache.
        cache: The cache, as its file has it; a large one by reference (`$blob`).
        digest: Digest of the cache in RFC 8785 form.
        because: The reason.
        run: The recorded run; empty where it is unknown.
    """

    version: int
    cache: msgspec.Raw
    digest: str
    because: str = ""
    run: str = ""


@event("actions.healed.v1")
class ActionsHealed(Event, frozen=True, kw_only=True):
    """An entry was found elsewhere, and its action succeeded there: the next version.

    Attributes:
        version: Its number.
        before: The version that was replayed.
        entry: The entry's `stepIndex`.
        after: The entry from now on.
        because: The part that did not match any more.
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
        to: The earlier version.
        because: The reason.
    """

    version: int
    to: int
    because: str = ""


@event("actions.looked_at.v1")
class ActionsLookedAt(Event, frozen=True, kw_only=True):
    """A person reviewed all versions up to one, and accepts them.

    Attributes:
        version: The newest reviewed version.
        because: The result of the review.
    """

    version: int
    because: str = ""


ActionsEvent = ActionsSaved | ActionsHealed | ActionsReverted | ActionsLookedAt
ActionsVersion = ActionsSaved | ActionsHealed | ActionsReverted


class ActionsState(ArtifactState[ActionsVersion]):
    """An action cache at a `version` of its stream.

    Attributes:
        looked_at: The newest reviewed version; 0 for none.
    """

    looked_at: int = 0

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        match event:
            case ActionsSaved() | ActionsHealed() | ActionsReverted():
                self.versions[event.version] = event
            case ActionsLookedAt():
                self.looked_at = max(self.looked_at, event.version)
            case _:
                super()._evolve(event, by)


initial = ActionsState
fold = decider.fold


def chain(state: ActionsState, version: int) -> tuple[ActionsSaved, list[ActionsHealed]]:
    """Return the parts of a version: a whole cache, and the heals after it, the oldest first.

    Raises Refused for an unknown version.
    """
    heals: list[ActionsHealed] = []
    at = version
    while True:
        part = state.demand(at)
        match part:
            case ActionsSaved():
                return part, heals[::-1]
            case ActionsHealed(before=earlier):
                heals.append(part)
            case ActionsReverted(to=earlier):
                pass
            case _:
                assert_never(part)
        if earlier >= at:
            message = f"version {at} is made of version {earlier}, which is no earlier one"
            raise Refused(message)
        at = earlier


def decide(state: ActionsState, event: ActionsEvent) -> Sequence[ActionsEvent]:
    """Return the events of a statement; none where it changes nothing. A version gets its number
    here. A heal of an older version is applied to the newest one, where that has the same entry
    still; else it is dropped, since a later change takes precedence.

    Raises Refused.
    """
    match event:
        case ActionsSaved():
            number = state.next_number()
            if state.versions:
                base, heals = chain(state, state.newest)
                if base.digest == event.digest and not heals:
                    return ()
            return (msgspec.structs.replace(event, version=number),)
        case ActionsHealed():
            return _healed(state, event, state.next_number())
        case ActionsReverted():
            number = state.next_number()
            state.demand(event.to)
            if made_of(state, event.to) == made_of(state, state.newest):
                return ()
            return (msgspec.structs.replace(event, version=number),)
        case ActionsLookedAt():
            state.demand(event.version)
            return (event,) if event.version > state.looked_at else ()
        case _:
            assert_never(event)


def _healed(state: ActionsState, event: ActionsHealed, number: int) -> Sequence[ActionsEvent]:
    digest, healed = made_of(state, state.newest)
    replayed_digest, replayed = made_of(state, event.before)
    if digest != replayed_digest or healed.get(event.entry) != replayed.get(event.entry):
        return ()
    if healed.get(event.entry) == event.after:
        return ()
    return (msgspec.structs.replace(event, version=number, before=state.newest),)


def made_of(state: ActionsState, version: int) -> tuple[str, dict[int, CachedAction]]:
    """Return the content of a version: its whole cache's digest, and the entries healed since."""
    base, heals = chain(state, version)
    return base.digest, {heal.entry: heal.after for heal in heals}


def check_name(name: object) -> str:
    """Return a cache's name, checked. Raises BadName."""
    return ids.name("action cache", name)


ACTIONS = ArtifactKind(
    kind=KIND,
    noun="action cache",
    remedy="list them with `hansard actions list`, or `hansard actions import FILE NAME`",
    initial=ActionsState,
    decide=decide,
    check_name=check_name,
)
