"""What is kept by name in versions, each in a lasting stream: how an event of it is stated, and how
what an event refers to is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive_all
from hansard.bus.errors import NotFound
from hansard.bus.fetching import drive_fetch
from hansard.bus.log import Stored
from hansard.domain.errors import BadName
from hansard.domain.events import Actor, Event
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import Label, join, parse
from hansard.domain.payload import references


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
