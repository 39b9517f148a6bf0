"""Choice between two models by the label of what the agent has seen.

Data above what the cloud model takes goes to the local one. The choice is a composite step whose
child is the call itself, so the record shows which was called; a resumed run repeats the choice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from hansard.agents.errors import Blocked, ToolError
from hansard.agents.policy.permits import RULE
from hansard.agents.steps.scope import ambient
from hansard.agents.steps.tools import Tool, spec
from hansard.domain.label import level

P = ParamSpec("P")
R = TypeVar("R")


def by_label(*, local: Tool[P, R], cloud: Tool[P, R], name: str = "") -> Tool[P, R]:
    """Build a tool that calls one of two models: the cloud model while the agent has seen nothing
    above what it takes, else the local one.

    Args:
        local: A model that may receive any data.
        cloud: A model that may receive what its `takes=` allows; it is called where that suffices.
        name: The tool's name; by default `<the cloud's>_by_label`.

    Raises:
        ToolError: The cloud model has no `takes=`, or the two have different signatures.
    """
    models: list[tuple[str, Any]] = [("local", local), ("cloud", cloud)]
    for role, each in models:
        if not isinstance(each, Tool):
            message = f"{role}={each!r:.80} is not a tool: declare it with @hansard.tool(...)"
            raise ToolError(message)
    if not cloud.spec.takes:
        message = (
            f"cloud={cloud.spec.name!r} takes data of any label: declare it with takes=, such as "
            "takes='internal'"
        )
        raise ToolError(message)
    if _kind(local) != _kind(cloud) or local.spec.signature.parameters.keys() != (
        cloud.spec.signature.parameters.keys()
    ):
        message = (
            f"{local.spec.name} and {cloud.spec.name} have different signatures: give both the "
            "same parameters, and make both plain functions or both coroutines"
        )
        raise ToolError(message)
    if cloud.spec.is_stream:
        message = f"{cloud.spec.name} is a stream, which cannot be chosen by label: return a value"
        raise ToolError(message)
    choose = _choosing(local, cloud)
    options = {"name": name or f"{cloud.spec.name}_by_label", "version": cloud.spec.version}
    return Tool(spec(choose, "composite", options), None)


def _kind(tool: Tool[Any, Any]) -> tuple[bool, bool]:
    return tool.spec.is_async, tool.spec.is_stream


def _choosing(local: Tool[P, R], cloud: Tool[P, R]) -> Callable[..., Any]:
    """Return the function that chooses. If the cloud call is refused because of a label, since
    another call raised the agent's label meanwhile, the local model is called.
    """
    if cloud.spec.is_async:

        async def choose_async(*args: Any, **kwargs: Any) -> Any:
            if not _may(cloud, local):
                return await _of(local)(*args, **kwargs)
            try:
                return await _of(cloud)(*args, **kwargs)
            except Blocked as error:
                _demand_label(error, cloud)
            return await _of(local)(*args, **kwargs)

        return _like(choose_async, cloud)

    def choose(*args: Any, **kwargs: Any) -> Any:
        if not _may(cloud, local):
            return _of(local)(*args, **kwargs)
        try:
            return _of(cloud)(*args, **kwargs)
        except Blocked as error:
            _demand_label(error, cloud)
        return _of(local)(*args, **kwargs)

    return _like(choose, cloud)


def _of(tool: Tool[Any, Any]) -> Callable[..., Any]:
    return tool


def _like(choose: Callable[..., Any], tool: Tool[Any, Any]) -> Callable[..., Any]:
    """Return a function with a tool's signature and return annotation."""
    made = functools.wraps(tool.spec.function)(choose)
    del made.__wrapped__  # its source is not the model's
    made.__signature__ = tool.spec.signature  # type: ignore[attr-defined] # as inspect reads it
    return made


def _demand_label(error: Blocked, cloud: Tool[Any, Any]) -> None:
    """Raise a refusal that is not because of a label."""
    if error.rule != RULE or error.tool != cloud.spec.name:
        raise error


def _may(cloud: Tool[Any, Any], local: Tool[Any, Any]) -> bool:
    """Return whether the cloud model may receive what the agent has seen; on a resume, whether it
    was called. If the service keeps the agent's label, the call is refused there.
    """
    ledger = ambient(cloud.spec.name).engine.ledger
    state = getattr(ledger, "state", None)
    if state is None:
        return True
    step = ledger.here.step
    request = [each.tool for each in state.steps.values() if step and each.parent == step]
    if local.spec.name in request:
        return False
    return cloud.spec.name in request or ledger.label.flows_to(level(cloud.spec.takes))
