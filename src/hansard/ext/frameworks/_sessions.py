"""Parts of adapters to asyncio frameworks: the current session, steps of either client, effects."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from hansard.agents.flow import done
from hansard.agents.steps import payloads, scope
from hansard.agents.workspace import Workspace
from hansard.client.session import SyncMixin
from hansard.domain import values
from hansard.domain.errors import BadValue
from hansard.domain.steps import Effects
from hansard.ext.steps import AnySession, NamedTool, call_async, step

T = TypeVar("T")

_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
    weakref.WeakKeyDictionary()
)
"""By loop: held until a step of a sync session has begun, so that steps begin in a fixed order."""


def session_here() -> AnySession | None:
    """Return the session whose step a call made here is; None outside, and in a tool's body.

    In the body of a composite tool it is the session of that tool.
    """
    scopes = scope.around()
    if scopes:
        session: AnySession = scopes[0].session.client
        return session if scopes[0].nests else None
    kept = scope.kept()
    return kept[0] if len(kept) == 1 else None


def effects_by_name(
    pure: Iterable[str], idempotent: Iterable[str], composite: Iterable[str]
) -> dict[str, Effects]:
    """Return the effects of tools by name. Raises BadValue for a tool that is listed twice."""
    effects: dict[str, Effects] = {}
    policies = {Effects.PURE: pure, Effects.IDEMPOTENT: idempotent, Effects.COMPOSITE: composite}
    for policy, names in policies.items():
        for name in [names] if isinstance(names, str) else names:
            if effects.setdefault(name, policy) is not policy:
                fact = f"it is {effects[name].value} and {policy.value}"
                raise BadValue(f"tool {name!r:.80}", fact, "list it once")
    return effects


async def execute(session: AnySession, tool: NamedTool, arguments: Mapping[str, Any]) -> Any:
    """Execute a step in a coroutine and return its result.

    A session of the sync client waits in a thread of its own, so that a framework's sync methods,
    which run a loop in the calling thread, can be used with it; the body runs in this loop.
    """
    if not isinstance(session, SyncMixin):
        return await call_async(session, tool, arguments)
    loop = asyncio.get_running_loop()
    started = asyncio.Event()
    body: Callable[..., Awaitable[Any]] = tool.function

    async def run_here(key: dict[str, Any]) -> Any:
        started.set()
        return await body(**key)

    def run(**key: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(run_here(key), loop).result()

    here = scope.current(session.engine.ledger)

    def call() -> Any:
        if here is not None:  # also that of a session without a block, which only its thread has
            scope.enter(here)
        return session.call(replace(tool, function=run), (), dict(arguments))

    async with _turns.setdefault(loop, asyncio.Lock()):
        calling = asyncio.ensure_future(asyncio.to_thread(call))
        starting = asyncio.ensure_future(started.wait())
        await asyncio.wait({calling, starting}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
    return await calling


async def state(session: Any, fact: str, *arguments: Any, **fields: Any) -> None:
    """State a fact in a session of either client, by the name of its method."""
    method = getattr(session, fact)
    if isinstance(session, SyncMixin):
        await asyncio.to_thread(method, *arguments, **fields)
    else:
        await method(*arguments, **fields)


async def io(
    session: AnySession, work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any
) -> T:
    """Await a coroutine of the log where a session's log is, in the body of a step."""
    waiting = session._io(work, *arguments)  # noqa: SLF001 -- as the session's own operations do
    if isinstance(session, SyncMixin):
        return await asyncio.to_thread(done, waiting)
    return await waiting


_USAGE = {
    "input_tokens": ("input_tokens", "input_token_count", "prompt_token_count"),
    "output_tokens": ("output_tokens", "output_token_count", "candidates_token_count"),
    "cached_tokens": (
        *("input_tokens_details.cached_tokens", "input_token_details.cache_read"),
        *("cache_read_tokens", "cache_read_input_token_count", "cached_content_token_count"),
    ),
    "reasoning_tokens": (
        *("output_tokens_details.reasoning_tokens", "output_token_details.reasoning"),
        *("details.reasoning_tokens", "reasoning_output_token_count", "thoughts_token_count"),
    ),
}
"""Paths of each figure in the usage that the frameworks report; the first that is set counts."""


async def store_items(workspace: Workspace, items: list[Any], what: str) -> msgspec.Raw:
    """Return items as an event of a stream holds them, after the payloads that they name.

    Secrets are redacted. Raises BadValue for an item that cannot be recorded.
    """
    plain = values.plain(items, what, workspace.redaction)
    return await payloads.stored(workspace.blobs, plain, what)


def report_usage(session: AnySession, usage: Any) -> None:
    """Report the usage of a model call, in its body: a framework's object or mapping, or None.

    Figures that are None or 0 are left out.
    """
    figures = {figure: map(partial(_at, usage), paths) for figure, paths in _USAGE.items()}
    numbers = {figure: next(filter(None, numbers), 0) for figure, numbers in figures.items()}
    session.usage(**{figure: number for figure, number in numbers.items() if number})


def _at(usage: Any, path: str) -> Any:
    for name in path.split("."):
        usage = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
    return usage


class PairedCall:
    """A call that a framework makes between two callbacks: its step's body waits for the outcome.

    `begin` its step, ask `may_run`, and report the outcome by `end`.

    Args:
        finish: Makes the recorded result of the outcome, inside the step.
    """

    def __init__(self, finish: Callable[[Any], Any] = lambda outcome: outcome) -> None:
        loop = asyncio.get_running_loop()
        self._finish = finish
        self._begun: asyncio.Future[None] = loop.create_future()
        self._outcome: asyncio.Future[Any] = loop.create_future()
        self.task: asyncio.Task[Any]

    async def _body(self) -> Any:
        """Let the call run, and return its outcome. Raises its error."""
        self._begun.set_result(None)
        outcome = await self._outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return self._finish(outcome)

    def begin(
        self, session: AnySession, name: str, arguments: Mapping[str, Any], **options: Any
    ) -> None:
        """Start the step, with the options of `step`."""
        tool = step(name, self._body, **options)
        self.task = asyncio.create_task(execute(session, tool, arguments))

    async def may_run(self, timeout_s: float | None = None) -> bool:
        """Wait until the intent is on record; return False if the step has ended, or not begun."""
        either: set[asyncio.Future[Any]] = {self.task, self._begun}
        try:
            await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.task.cancel()
            raise
        return self._begun.done()

    async def end(self, outcome: Any) -> None:
        """Record the outcome, unless there is one. Raises as a write, but no error of the call."""
        if self.task.cancelled():
            return
        if not self._outcome.done():
            self._outcome.set_result(outcome)
        try:
            await asyncio.shield(self.task)
        except BaseException as error:
            if error is not self._outcome.result():
                raise
