"""Steps by name: a call of a model or a tool that another package runs, as a step of a session.

    calling = step("openai.responses", send, kind="model", effects="idempotent", aside=["body"])
    response = call(session, calling, {"model": model, "identity": sha256, "body": body})

`send` is a function without parameters: plain, `async`, or a generator of either kind, whose items
are recorded one by one. A sync session runs plain functions, an async one any. An async session
can also be used by `call` in a thread without an event loop, as frameworks have for their sync
methods.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from hansard.agents.errors import ToolError
from hansard.agents.flow import done
from hansard.agents.steps.tools import ForwardedTool
from hansard.bus.portal import in_loop
from hansard.client.session import AsyncMixin, SyncMixin
from hansard.domain import ids
from hansard.domain.steps import Effects
from hansard.domain.values import Plain

AnySession = SyncMixin | AsyncMixin
"""A session of either client, of a trusted program or a restricted agent."""


class NamedTool(ForwardedTool, frozen=True, kw_only=True):
    """Tool of another package, whose body has no parameters but that of `key_argument`.

    Attributes:
        aside: Arguments that are recorded, but are no part of the call's key.
    """

    aside: tuple[str, ...] = ()

    def at_default(self, plain: Mapping[str, Plain]) -> tuple[str, ...]:
        """Return the names of recorded arguments that are no part of the call's key."""
        return tuple(name for name in self.aside if name in plain)

    def passed(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the idempotency key, if the body takes it."""
        key = self.key_argument
        return (), {} if key is None else {key: arguments[key]}


def step(
    name: str,
    body: Callable[..., Any],
    *,
    effects: Effects | str = Effects.ONCE,
    kind: str = "tool",
    aside: Sequence[str] = (),
    **options: Any,
) -> NamedTool:
    """Describe a step for `call` or `call_async`.

    Args:
        name: The tool's name on record, such as `openai.responses`.
        body: Makes the call. A generator makes the step a stream.
        effects: `pure`, `idempotent` or `once`; `composite` if the body calls steps itself.
        kind: `tool`, `model`, `resource` or `memory`.
        aside: Names of arguments that are recorded, but are no part of the call's key.
        **options: Further fields of a `ToolSpec`: `key_argument`, `raises`, `safe_errors` ...

    Raises BadName, and ToolError if the effects are unknown.
    """
    try:
        policy = Effects(effects)
    except ValueError:
        known = ", ".join(each.value for each in Effects if each is not Effects.RECONCILE)
        message = f"effects={effects!r} of {name} is not a policy: use one of {known}"
        raise ToolError(message) from None
    return NamedTool(
        function=body,
        name=ids.name("tool", name),
        effects=policy,
        kind=kind,
        aside=tuple(aside),
        defaults=dict.fromkeys(aside),
        signature=inspect.Signature(),
        **options,
    )


def call(session: AnySession, tool: NamedTool, arguments: Mapping[str, Any]) -> Any:
    """Execute a step in a plain function; return its result, or an iterator over a stream's items.

    Raises as a tool call does, and ToolError for an async session in its event loop.
    """
    demand_thread(session, tool.name)
    return session.call(tool, (), dict(arguments))


def demand_thread(session: AnySession, name: str) -> None:
    """Raise ToolError for an async session in an event loop, where a plain function cannot wait."""
    if isinstance(session, AsyncMixin) and in_loop():
        message = (
            f"{name} was called by a plain function in the event loop of an async session: "
            "await the framework's async method, or use a session of the sync client"
        )
        raise ToolError(message)


async def call_async(session: AnySession, tool: NamedTool, arguments: Mapping[str, Any]) -> Any:
    """Execute a step in a coroutine; return its result, or an async iterator over a stream's items.

    Raises as a tool call does: SyncInLoop for a session of the sync client.
    """
    return await arrived(session.call(tool, (), dict(arguments)))


async def call_either(
    session: AnySession, tool: NamedTool, arguments: Mapping[str, Any], *, is_plain: bool
) -> Any:
    """Execute a step whose body is a coroutine function, for frameworks with each method twice: in
    a coroutine that a loop runs, or (`is_plain`) in one that `done` runs, which waits for nothing.
    """
    if not is_plain:
        return await call_async(session, tool, arguments)
    body = tool.function
    return call(session, replace(tool, function=lambda **key: done(body(**key))), arguments)


async def arrived(result: Any) -> Any:
    """Return a result, awaited if it is awaitable."""
    return await result if inspect.isawaitable(result) else result
