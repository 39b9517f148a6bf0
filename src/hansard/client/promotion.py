"""An alias moved by what an experiment says, or by somebody's word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from hansard.agents.prompts import store
from hansard.agents.prompts.store import Move
from hansard.agents.workspace import Workspace
from hansard.bus.os_user import OS_USER
from hansard.domain import prompt as prompts
from hansard.domain.errors import BadValue
from hansard.domain.events import Actor
from hansard.inspect.prompts import PromptEvidence, demand_better, evidence, standing_of
from hansard.projections.reader import Reader

Read = Callable[[Callable[[Reader], PromptEvidence]], Awaitable[PromptEvidence]]
"""Has one of our own reads answered by the tables."""

PRODUCTION = "production"
"""The alias that is moved where none is named."""


class Promotion(msgspec.Struct, frozen=True):
    """Which version an alias is to name, and what speaks for it: the verdict of an experiment, the
    newest that has both versions if none is named, or `because`.
    """

    reference: str
    alias: str = PRODUCTION
    experiment: str | None = None
    because: str = ""
    by: str | Actor = OS_USER


async def promote(workspace: Workspace, read: Read, wanted: Promotion) -> PromptEvidence | None:
    """Move the alias; what the experiment says, None where none was asked. The alias must name then
    what it named when the experiment was asked.

    Raises Refused (no verdict *better*), PromptConflict, NotFound, BadName, BadValue.
    """
    if wanted.because and wanted.experiment is not None:
        fact = f"{wanted.because!r:.80}, and experiment {wanted.experiment!r:.80}"
        raise BadValue("because", fact, "give one of both: a reason, or whose verdict counts")
    prompts.check_alias(wanted.alias)
    found = await store.get(workspace, wanted.reference)
    state, _ = await store.read(workspace, found.name)
    prompts.demand_usable(state, found.version)
    if state.aliases.get(wanted.alias) == found.version:
        return None
    said: PromptEvidence | None = None
    if not wanted.because:
        standing = standing_of(state, wanted.alias, found.name)
        said = await read(
            lambda reader: evidence(reader, found.name, found.version, standing, wanted.experiment)
        )
        demand_better(said)
    move = Move(
        alias=wanted.alias,
        expected=state.aliases.get(wanted.alias),
        because=wanted.because,
        experiment=said.experiment if said is not None else "",
    )
    await store.move(workspace, found.reference, move, by=wanted.by)
    return said
