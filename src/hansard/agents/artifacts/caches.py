"""Action caches in the log: saved, healed, reverted, reviewed. Runs on the bus's loop."""

from __future__ import annotations

import msgspec

from hansard.agents.artifacts import versions
from hansard.agents.artifacts.versions import ArtifactChange
from hansard.agents.steps import payloads
from hansard.agents.workspace import Workspace
from hansard.domain import actions as caches
from hansard.domain.actions import (
    ACTIONS,
    ActionCache,
    ActionChange,
    ActionsHealed,
    ActionsLookedAt,
    ActionsReverted,
    ActionsSaved,
    ActionsState,
    CachedAction,
)
from hansard.domain.errors import Corrupt
from hansard.domain.events import Actor
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.label import Label


async def save(
    workspace: Workspace,
    name: str,
    cache: ActionCache,
    *,
    reason: str = "",
    by: str | Actor,
    label: Label | None = None,
) -> ArtifactChange:
    """Append a whole cache as the next version, without its name, version and history; if it equals
    the newest, return that. Raises BadName, BadValue, Conflict after 50 lost races.
    """
    bare = msgspec.structs.replace(caches.checked(cache), name="", version=1, history=[])
    plain = msgspec.to_builtins(workspace.clean(bare))
    event = ActionsSaved(
        version=0,
        cache=await payloads.stored(workspace.blobs, plain, "the action cache"),
        digest=digest(canonical(plain)),
        because=workspace.text(reason),
        run=cache.run,
    )
    return await versions.change(workspace, ACTIONS, name, event, by=by, label=label, begins=True)


async def get(workspace: Workspace, name: str, version: int | None = None) -> ActionCache:
    """Return a version of a cache, by default the newest, with its heals as history.

    Raises NotFound (no such cache, or its bytes were erased), Refused (no such version), BadName,
    Corrupt.
    """
    artifact = await versions.read(workspace, ACTIONS, name)
    number = artifact.state.newest if version is None else version
    base, heals = caches.chain(artifact.state, number)
    plain = await versions.fetched(workspace, base.cache)
    if digest(canonical(plain)) != base.digest:
        raise Corrupt(
            f"version {base.version} of action cache {name!r}",
            "its content does not match its digest",
        )
    made = caches.decode(msgspec.json.encode(plain), f"action cache {name!r}")
    commits = artifact.by_version() if heals else {}
    history: list[ActionChange] = []
    for heal in heals:
        commit = commits[heal.version].commit
        at = commit.at.isoformat(timespec="milliseconds")
        made = caches.healed(made, heal.after, at=at, by=commit.actor.agent, why=heal.because)
        history.append(msgspec.structs.replace(made.history[-1], version=heal.version))
    return msgspec.structs.replace(made, name=name, version=number, history=history)


async def heal(
    workspace: Workspace,
    name: str,
    before: int,
    after: CachedAction,
    *,
    reason: str,
    run: str,
    by: str | Actor,
    label: Label | None = None,
) -> ArtifactChange:
    """Append an entry found at another place as the next version; return the newest if the heal is
    dropped (`hansard.domain.actions.decide`). Raises Refused, BadName, Conflict.
    """
    event = ActionsHealed(
        version=0, before=before, entry=after.step_index, after=after, because=reason, run=run
    )
    return await versions.change(workspace, ACTIONS, name, event, by=by, label=label)


async def revert(
    workspace: Workspace,
    name: str,
    to: int,
    *,
    reason: str = "",
    by: str | Actor,
    label: Label | None = None,
) -> ArtifactChange:
    """Append an earlier version as the next one; if it equals the newest, return that.

    Raises NotFound, Refused, BadName, Conflict.
    """
    event = ActionsReverted(version=0, to=to, because=workspace.text(reason))
    return await versions.change(workspace, ACTIONS, name, event, by=by, label=label)


async def review(
    workspace: Workspace,
    name: str,
    version: int | None = None,
    *,
    reason: str = "",
    by: str | Actor,
    label: Label | None = None,
) -> ArtifactChange:
    """Record that somebody reviewed all versions up to one, by default the newest.

    Raises NotFound, Refused, BadName, Conflict.
    """
    reason = workspace.text(reason)

    def looked_at(state: ActionsState) -> ActionsLookedAt:
        return ActionsLookedAt(version=version or state.newest, because=reason)

    return await versions.change(workspace, ACTIONS, name, looked_at, by=by, label=label)
