"""Two models, and which of them is asked: by the label of what the agent was shown.

What is above what the cloud's model takes goes to the local one. The choice is a composite step
whose child is the call itself, so the record says which was asked; a resumed run keeps to it.
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
    """A tool that asks one of two models: the cloud's as long as the agent was shown nothing above
    what it takes, else the local one.

    Args:
        local: What may be told of all.
        cloud: What may be told of what its `takes=` says, and is asked where that is enough.
        name: The tool's; `<the cloud's>_by_label` if not given.

    Raises:
        ToolError: The cloud's model does not say what it takes, or the two are not called alike.
    """
    given: list[tuple[str, Any]] = [("local", local), ("cloud", cloud)]
    for role, each in given:
        if not isinstance(each, Tool):
            message = f"{role}={each!r:.80} is no tool: declare it with @hansard.tool(kind='model')"
            raise ToolError(message)
    if not cloud.spec.takes:
        message = (
            f"cloud={cloud.spec.name!r} takes whatever it is told: declare it with takes=, such as "
            "takes='internal'"
        )
        raise ToolError(message)
    if _kind(local) != _kind(cloud) or local.spec.signature.parameters.keys() != (
        cloud.spec.signature.parameters.keys()
    ):
        message = (
            f"{local.spec.name} and {cloud.spec.name} are not called alike: give both the same "
            "parameters, and make both plain functions or both coroutines"
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
    """What asks one of them. What the cloud's is refused for its label's sake, since another call
    was shown more meanwhile, the local one is asked.
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
    """A function with another's parameters and what it says of its results."""
    made = functools.wraps(tool.spec.function)(choose)
    del made.__wrapped__  # its source is not the model's
    made.__signature__ = tool.spec.signature  # type: ignore[attr-defined] # as inspect reads it
    return made


def _demand_label(error: Blocked, cloud: Tool[Any, Any]) -> None:
    """Raise a refusal that is not for the label's sake."""
    if error.rule != RULE or error.tool != cloud.spec.name:
        raise error


def _may(cloud: Tool[Any, Any], local: Tool[Any, Any]) -> bool:
    """Whether the cloud's model may be told what the agent was shown; on a resume, whether it was
    asked. An agent whose label the service keeps is refused there.
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
