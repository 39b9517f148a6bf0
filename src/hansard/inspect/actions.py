"""Action caches: a run's actions on pages and by tools, in a form that can be replayed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from hansard.agents.artifacts import versions as artifacts
from hansard.agents.workspace import Workspace
from hansard.domain.actions import (
    ACT,
    ACTIONS,
    EXTRACT,
    FORMAT,
    GOTO,
    TOOL,
    ActionCache,
    ActionCheck,
    ActionsEnd,
    CachedAction,
    ElementTargets,
    PageMark,
    normalized,
)
from hansard.domain.fingerprint import canonical
from hansard.domain.steps import Effects, StepStatus
from hansard.inspect import trace as traces
from hansard.inspect.answer import Listed
from hansard.inspect.trace import Payloads, WholeStep
from hansard.projections.snapshots import Reader
from hansard.projections.table_files import statements

_SQL = statements(__file__)


# Saved action caches and their versions, from the tables.


class KeptCache(msgspec.Struct, tag_field="kind", tag="cache", kw_only=True):
    """Saved action cache.

    Attributes:
        cache: Its name.
        versions: The number of versions.
        heals: The number of versions that are heals.
        reviewed_version: The newest reviewed version; 0 for none.
        heals_unreviewed: The number of heals newer than that.
        changed_at: The time of its newest version, UTC.
    """

    cache: str
    versions: int
    heals: int
    reviewed_version: int
    heals_unreviewed: int
    changed_at: datetime


class KeptCaches(Listed):
    """Saved action caches.

    Attributes:
        position: The position of the log.
        caches: By name.
    """

    _listed: ClassVar[str] = "caches"
    caches: list[KeptCache]


class KeptVersion(msgspec.Struct, tag_field="kind", tag="version", kw_only=True):
    """Version of a cache.

    Attributes:
        cache: Its name.
        version: The number.
        change: saved, healed or reverted.
        entry: For a heal, the entry's stepIndex.
        again: For a revert, the restored version.
        run: The recorded run, or the run whose replay healed it.
        author: The author.
        because: The reason.
        at: The time, UTC.
        reviewed: Whether it was reviewed.
    """

    cache: str
    version: int
    change: str
    entry: int | None
    again: int | None
    run: str | None
    author: str
    because: str | None
    at: datetime
    reviewed: bool


class ActionsLog(Listed):
    """Versions of a cache.

    Attributes:
        position: The position of the log.
        versions: The oldest first.
    """

    _listed: ClassVar[str] = "versions"
    versions: list[KeptVersion]


def caches(reader: Reader) -> KeptCaches:
    """Return the saved caches by name."""
    kept = msgspec.convert(reader.rows(_SQL["caches"], []), list[KeptCache])
    return KeptCaches(position=reader.position, caches=kept)


def log(reader: Reader, name: str) -> ActionsLog:
    """Return the versions of a cache. Raises NotFound."""
    changes = msgspec.convert(reader.rows(_SQL["log"], [name]), list[KeptVersion])
    if not changes:
        raise artifacts.missing(ACTIONS, name)
    return ActionsLog(position=reader.position, versions=changes)


ACTS = ("browser.act", "browser.act_once")
_PARTS = ("browser.find", "browser.choose")
"""Steps that are part of an action and never an action themselves."""

_COUNTED = ("completed", "failed", "in_doubt", "blocked")


async def action_cache(
    workspace: Workspace, run: str, fetch: Payloads, *, agent: str | None = None
) -> ActionCache:
    """Return a run's successful actions in the order of its steps. Raises Corrupt.

    A failed step is no entry; `final_state` says whether the last action succeeded.
    """
    history = await workspace.states.history(run, await workspace.points.up_to(run, None))
    tracer = traces.trace(run, history)
    actions: list[CachedAction] = []
    last: tuple[bool, str] = (False, "the run has no action that can be replayed")
    took_ms = 0.0
    within: set[tuple[str, int]] = set()
    async for step in tracer.whole(fetch):
        detail = step.traced
        if agent is not None and detail.agent != agent:
            continue
        if not _is_action(step, within):
            continue
        took_ms += detail.duration_ms or 0.0
        entry = _entry(step, len(actions))
        if entry is not None and entry.success:
            actions.append(entry)
            last = True, ""
        else:
            last = False, _failure(step, entry)
    success, error = last
    return ActionCache(
        actions=actions,
        final_state=ActionsEnd(
            success=success,
            duration=round(took_ms / 1e3, 6),
            error=msgspec.UNSET if success else error,
        ),
        format=FORMAT,
        run=run,
    )


def _is_action(step: WholeStep, within: set[tuple[str, int]]) -> bool:
    """Return whether a step is an action: not a model call, not part of an action or tool body."""
    detail = step.traced
    here = (detail.agent, detail.step)
    inside = detail.parent is not None and (detail.agent, detail.parent) in within
    if detail.effects == Effects.COMPOSITE.value and not inside:
        return False  # the actions of its body are entries themselves
    if inside or not detail.tool.startswith("browser."):
        within.add(here)
    return not (
        inside or detail.kind != "tool" or detail.tool in _PARTS or detail.status not in _COUNTED
    )


def _failure(step: WholeStep, entry: CachedAction | None) -> str:
    detail = step.traced
    if entry is not None:
        return entry.message
    return detail.error.message if detail.error is not None else f"{detail.tool} is {detail.status}"


def _entry(step: WholeStep, index: int) -> CachedAction | None:
    """Return a step as an entry; None if it did not complete."""
    detail = step.traced
    if detail.status != StepStatus.COMPLETED.value:
        return None
    arguments: Mapping[str, Any] = detail.arguments if isinstance(detail.arguments, dict) else {}
    result = detail.result
    if detail.tool in ACTS:
        return _act(index, arguments, result, detail.effects)
    made = CachedAction(
        step_index=index,
        instruction=None,
        element_id=None,
        method=None,
        arguments=[],
        frame_index=None,
        xpath=None,
        action_type=TOOL,
        success=True,
        message="done",
        effects=detail.effects,
    )
    changed: dict[str, Any]
    match detail.tool:
        case "browser.goto":
            changed = {"action_type": GOTO, "arguments": [arguments["url"]]}
        case "browser.turn":
            changed = {"action_type": arguments["action"]}
        case "browser.extract":
            changed = {
                "action_type": EXTRACT,
                "instruction": arguments["instruction"],
                "method": arguments["attribute"] or None,
                "frame_index": result.get("frame", arguments["frame"]),
                "xpath": normalized(result["xpath"]) if result["xpath"] else None,
                "targets": msgspec.convert(result["targets"], ElementTargets),
                "page": PageMark(address=result["url"]),
            }
        case _:
            changed = {
                "method": detail.tool,
                "arguments": [canonical(detail.arguments).decode()],
                "action_params": detail.arguments if isinstance(detail.arguments, dict) else {},
            }
    entry: CachedAction = msgspec.structs.replace(made, **changed)
    return entry


def _act(index: int, arguments: Mapping[str, Any], result: Any, effects: str) -> CachedAction:
    xpath = result.get("xpath")
    return CachedAction(
        step_index=index,
        instruction=arguments["instruction"],
        element_id=result.get("elementId"),
        method=arguments["method"],
        arguments=list(arguments["arguments"]),
        frame_index=result.get("frameIndex", 0),
        xpath=normalized(xpath) if xpath else None,
        action_type=ACT,
        success=result["success"],
        message=result["message"],
        targets=msgspec.convert(result.get("targets"), ElementTargets | None),
        page=msgspec.convert(result.get("page"), PageMark | None),
        changed=result.get("changed", ""),
        effects=effects,
        checks=msgspec.convert(result.get("checks", []), list[ActionCheck]),
        optional=arguments.get("optional", False),
    )
