"""A client's tool as one of the service's session: all its functions run in the client."""

from __future__ import annotations

import asyncio
import inspect
import keyword
from collections.abc import AsyncGenerator, Callable
from typing import Any

from tenacity import wait_chain, wait_fixed

from hansard.agents.board import SPECS as BOARD
from hansard.agents.errors import ToolError
from hansard.agents.steps.payloads import Approximation
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import DOES_CHARACTERS_MAX, RETRY_WAIT, ToolSpec, check_reuse
from hansard.domain import ids, label, values
from hansard.domain.errors import BadValue
from hansard.domain.prompt import checked
from hansard.domain.reuse import Reuse, reuse
from hansard.domain.steps import Effects
from hansard.operations.protocol import wire
from hansard.operations.protocol.faults import Doubtful
from hansard.operations.protocol.remote_call import RemoteCall, settlement
from hansard.operations.protocol.wire import BodyResult, Call, Declared

ATTEMPTS_MAX = 1_000
WAIT_S_MAX = 3_600.0
"""Longest wait between two attempts, in seconds."""

RESOLVE_S_MAX = 5.0
"""Seconds a client may take to resolve a conflicting put, while others cannot write the key."""

ARGUMENTS_MAX = 1_000
RESERVED_KINDS = frozenset({"aggregate", "board", "memory", "team", "view", "shadow"})
RESERVED_NAMES = tuple(
    {f"{spec.kind}." for spec in BOARD.values()} | {"aggregate.", "memory.", "team.", "session."}
)
"""Names of the session's own operations, which a client's tool may not have."""


class Proxy:
    """One tool of a client, as called in one turn; for a stream `turn` changes with each item."""

    def __init__(
        self,
        turn: RemoteCall,
        call: Call,
        here: Callable[[RemoteCall], Scope | None],
        report: Callable[[dict[str, float]], None],
    ) -> None:
        self.turn = turn
        self.declared = call.tool
        self.arguments = _arguments(call)
        self.defaults = call.defaults
        self.prompts = checked(call.prompts)
        self._here = here
        self._report = report

    def spec(self, *, streams: bool = False) -> ToolSpec:
        """Return the tool for the session. Raises ToolError, BadName, BadValue."""
        declared = self.declared
        _check(declared)
        names = [*self.arguments]
        if declared.key_argument is not None and declared.key_argument not in names:
            names.append(declared.key_argument)
        effects = Effects(declared.effects)
        function: Callable[..., Any] = _generating(self) if streams else _coroutine(self)
        waits = [wait_fixed(wait_s) for wait_s in declared.waits]
        spec = ToolSpec(
            function=function,
            name=ids.name("tool", declared.name),
            effects=effects,
            aliases=tuple(ids.name("tool", each) for each in declared.aliases),
            version=declared.version,
            kind=declared.kind,
            attempts=declared.attempts,
            wait=wait_chain(*waits) if waits else RETRY_WAIT,
            doubtful_errors=(Doubtful,),
            reconcile=_asking(self) if declared.asks else None,
            shadow=_shadowing(self) if declared.shadows else None,
            key_argument=declared.key_argument,
            source=declared.source,
            does=declared.does[:DOES_CHARACTERS_MAX],
            gives=str(label.parse(declared.gives, "gives")) if declared.gives else "",
            takes=label.level(declared.takes, "takes").value if declared.takes else "",
            signature=_signature(names),
            defaults={
                name: values.plain(value, name)
                for name, value in self.arguments.items()
                if name in self.defaults
            },
            prompts=self.prompts,
            reuse=_reuse(declared),
        )
        check_reuse(spec.reuse, spec)
        return spec

    async def run(self, what: str, given: dict[str, Any]) -> BodyResult:
        """Run a part of the tool in the client, in the current scope."""
        key = self.declared.key_argument
        value = wire.dump({key: given[key]} if key is not None and key in given else {})
        scope = self._here(self.turn)
        try:
            outcome = await self.turn.run(what, value, scope.path if scope is not None else "")
        finally:
            self.turn.warning = ""
        if outcome.usage:
            if scope is not None:
                scope.usage.clear()
            self._report(outcome.usage)
        return outcome

    def result(self, outcome: BodyResult) -> Any:
        """Return the body's result, as far as it can be recorded."""
        found: Any = wire.load(outcome.result)
        if outcome.inexact:
            found = Approximation(found, outcome.inexact)
        self.turn.own = [found]
        return found

    async def items(self, given: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """Iterate over the items of a streaming tool."""
        ended = False
        try:
            while True:
                try:
                    outcome = await self.run("item", given)
                except BaseException:
                    ended = True
                    raise
                if outcome.end:
                    ended = True
                    return
                yield self.result(outcome)
        finally:
            if not ended:
                await self.run("shut", {})


def _reuse(declared: Declared) -> Reuse | None:
    if declared.reuse is None:
        return None
    ttl_s, scope = declared.reuse
    return reuse(ttl_s=ttl_s, scope=scope)


def _coroutine(proxy: Proxy) -> Callable[..., Any]:
    async def body(**given: Any) -> Any:
        return proxy.result(await proxy.run("body", given))

    return _called(body, proxy.declared.name)


def _generating(proxy: Proxy) -> Callable[..., Any]:
    async def body(**given: Any) -> AsyncGenerator[Any, None]:
        items = proxy.items(given)
        try:
            async for item in items:
                yield item
        finally:
            await items.aclose()

    return _called(body, proxy.declared.name)


def _asking(proxy: Proxy) -> Callable[..., Any]:
    async def ask(**given: Any) -> Any:
        outcome = await proxy.run("ask", given)
        return settlement(outcome.result)

    return _called(ask, proxy.declared.asks)


def _shadowing(proxy: Proxy) -> Callable[..., Any]:
    async def shadow(**given: Any) -> Any:
        return proxy.result(await proxy.run("shadow", given))

    return _called(shadow, proxy.declared.name)


def resolving(turn: RemoteCall, name: str) -> Callable[[Any, Any], Any]:
    """Return a proxy of a client's function that resolves a conflicting put, for a thread."""
    loop = asyncio.get_running_loop()

    async def call(mine: Any, theirs: Any) -> BodyResult:
        work = turn.run("resolve", wire.dump([mine, theirs], "key"))
        return await asyncio.wait_for(work, RESOLVE_S_MAX)

    def resolve(mine: Any, theirs: Any) -> Any:
        outcome = asyncio.run_coroutine_threadsafe(call(mine, theirs), loop).result()
        if outcome.inexact:
            raise BadValue("resolve", outcome.inexact, "return a smaller value")
        return wire.load(outcome.result)

    return _called(resolve, name)


def _called(function: Any, name: str) -> Callable[..., Any]:
    function.__name__ = name
    found: Callable[..., Any] = function
    return found


def _arguments(call: Call) -> dict[str, Any]:
    given = wire.load(call.arguments)
    if type(given) is not dict or len(given) > ARGUMENTS_MAX:
        raise BadValue("arguments", f"a {type(given).__name__}", "give them by name")
    return given


def _signature(names: list[str]) -> inspect.Signature:
    for name in names:
        if type(name) is not str or not name.isidentifier() or keyword.iskeyword(name):
            raise BadValue(
                "arguments", f"{name!r:.80} is not a parameter name", "give an identifier"
            )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([inspect.Parameter(name, kind, default=None) for name in names])


def _check(declared: Declared) -> None:
    """Raise ToolError for a declaration that a program could not make."""
    if declared.kind in RESERVED_KINDS or declared.name.startswith(RESERVED_NAMES):
        message = (
            f"{declared.name!r:.80} of kind {declared.kind!r:.40} is reserved for the session's "
            "own operations: give the tool another name and kind"
        )
        raise ToolError(message)
    known = {each.value for each in Effects}
    if declared.effects not in known or (declared.effects == Effects.RECONCILE) != bool(
        declared.asks
    ):
        message = f"effects={declared.effects!r:.40} of {declared.name!r:.80} is not a policy"
        raise ToolError(message)
    waits_fit = all(0 <= wait_s <= WAIT_S_MAX for wait_s in declared.waits)
    if not 1 <= declared.attempts <= ATTEMPTS_MAX or not waits_fit:
        message = (
            f"{declared.attempts} attempts of {declared.name!r:.80}, up to "
            f"{max(declared.waits, default=0):g} s apart: at most {ATTEMPTS_MAX:,} are made, "
            f"{WAIT_S_MAX:g} s apart"
        )
        raise ToolError(message)
