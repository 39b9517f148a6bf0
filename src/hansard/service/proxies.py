"""A client's tool as one of the service's session: all that it runs, runs there."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import keyword
from collections.abc import AsyncGenerator, Callable, Sequence
from contextvars import ContextVar
from typing import Any, overload

from tenacity import wait_chain, wait_fixed

from hansard.agents.board import SPECS as BOARD
from hansard.agents.effects import DID_NOT_HAPPEN, RETRY_WAIT, Happened, ToolSpec
from hansard.agents.errors import ToolError
from hansard.agents.gate import AskFirst, GateRule, Rule
from hansard.agents.scope import Scope
from hansard.domain import ids, label
from hansard.domain.errors import BadValue
from hansard.domain.steps import Effects
from hansard.domain.values import Secret
from hansard.service import wire
from hansard.service.faults import Doubtful
from hansard.service.turns import Turn
from hansard.service.wire import Call, Came, Declared, Verdict

ATTEMPTS_MAX = 1_000
WAIT_S_MAX = 3_600.0
"""Between two attempts, in seconds."""

RESOLVE_S_MAX = 5.0
"""How long a client's function that settles a lost put may take, in seconds: the key is not written
by others of this service meanwhile.
"""

ARGUMENTS_MAX = 1_000
RESERVED_KINDS = frozenset({"board", "team", "view", "shadow"})
RESERVED_NAMES = tuple({f"{spec.kind}." for spec in BOARD.values()} | {"team.", "session."})
"""What the session's own operations are called: a tool of that name would be taken for one."""


class Said(Sequence[GateRule]):
    """The gate's rules of a hosted session: what the client's own rules, which have functions of
    its program, said of the call that this context makes.
    """

    def __init__(self) -> None:
        self._verdict: ContextVar[Verdict | None] = ContextVar("verdict", default=None)

    def of_call(self, verdict: Verdict | None) -> None:
        """What they said of the call that this context makes; None: they allow it."""
        self._verdict.set(verdict)

    def _rules(self) -> list[GateRule]:
        said = self._verdict.get()
        if said is None:
            return []
        if said.timeout_s is not None:
            return [AskFirst(name=said.rule, timeout=said.timeout_s)]
        return [Rule(allows=False, name=said.rule, reason=said.reason)]

    @overload
    def __getitem__(self, index: int) -> GateRule: ...
    @overload
    def __getitem__(self, index: slice) -> list[GateRule]: ...
    def __getitem__(self, index: int | slice) -> GateRule | list[GateRule]:
        return self._rules()[index]

    def __len__(self) -> int:
        return len(self._rules())


class Lent:
    """The provider of secrets: their names alone. The client puts in the texts, and the service
    never has them.
    """

    def __init__(self) -> None:
        self._names: ContextVar[tuple[str, ...]] = ContextVar("lent", default=())

    def of_call(self, names: tuple[str, ...]) -> None:
        """The secrets that the client has for the call that this context makes."""
        self._names.set(names)

    def __call__(self, name: str) -> Any:
        """What stands for a secret; None where the client has none of that name."""
        return Secret(name) if name in self._names.get() else None


@dataclasses.dataclass
class _Result:
    value: Any


class Unrecordable(_Result):
    """A result that the client found could not be recorded: whoever tries is told why."""

    def __init__(self, why: BadValue) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        """Its field, which it does not have. Raises BadValue."""
        raise self._why


class Proxy:
    """One tool of a client, as called in one turn; `turn` is another one for each item."""

    def __init__(
        self,
        turn: Turn,
        call: Call,
        here: Callable[[Turn], Scope | None],
        report: Callable[[dict[str, float]], None],
    ) -> None:
        self.turn = turn
        self.declared = call.tool
        self.arguments = _arguments(call)
        self._here = here
        self._report = report

    def spec(self, *, streams: bool = False) -> ToolSpec:
        """The tool to the session. Raises ToolError, BadName, BadValue."""
        declared = self.declared
        _check(declared)
        names = [*self.arguments]
        if declared.key_argument is not None and declared.key_argument not in names:
            names.append(declared.key_argument)
        effects = Effects(declared.effects)
        function: Callable[..., Any] = _generating(self) if streams else _coroutine(self)
        waits = [wait_fixed(wait_s) for wait_s in declared.waits]
        return ToolSpec(
            function=function,
            name=ids.name("tool", declared.name),
            effects=effects,
            version=declared.version,
            kind=declared.kind,
            attempts=declared.attempts,
            wait=wait_chain(*waits) if waits else RETRY_WAIT,
            doubtful_errors=(Doubtful,),
            reconcile=_asking(self) if declared.asks else None,
            shadow=_shadowing(self) if declared.shadows else None,
            key_argument=declared.key_argument,
            source=declared.source,
            gives=str(label.parse(declared.gives, "gives")) if declared.gives else "",
            takes=label.level(declared.takes, "takes").value if declared.takes else "",
            signature=_signature(names),
        )

    async def run(self, what: str, given: dict[str, Any]) -> Came:
        """Have the client run a part of the tool, in the scope that is current."""
        key = self.declared.key_argument
        told = wire.dump({key: given[key]} if key is not None and key in given else {})
        scope = self._here(self.turn)
        try:
            came = await self.turn.run(what, told, scope.path if scope is not None else "")
        finally:
            self.turn.warning = ""
        if came.usage:
            if scope is not None:
                scope.usage.clear()
            self._report(came.usage)
        return came

    def result(self, came: Came) -> Any:
        """What the body returned; what could not be recorded says so when that is tried."""
        if came.unrecordable is not None:
            found: Any = Unrecordable(BadValue(*came.unrecordable))
        else:
            found = wire.load(came.result)
        self.turn.own = [found]
        return found

    async def items(self, given: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """The items of a stream's tool."""
        ended = False
        try:
            while True:
                try:
                    came = await self.run("item", given)
                except BaseException:
                    ended = True
                    raise
                if came.end:
                    ended = True
                    return
                yield self.result(came)
        finally:
            if not ended:
                await self.run("shut", {})


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
        came = await proxy.run("ask", given)
        said = wire.load(came.result)
        match said:
            case ["happened", result]:
                return Happened(result)
            case ["did not happen"]:
                return DID_NOT_HAPPEN
            case _:
                return None

    return _called(ask, proxy.declared.asks)


def _shadowing(proxy: Proxy) -> Callable[..., Any]:
    async def shadow(**given: Any) -> Any:
        return proxy.result(await proxy.run("shadow", given))

    return _called(shadow, proxy.declared.name)


def resolving(turn: Turn, name: str) -> Callable[[Any, Any], Any]:
    """A client's function that settles a lost put. Called in a thread of the board's."""
    loop = asyncio.get_running_loop()

    async def asked(mine: Any, theirs: Any) -> Came:
        work = turn.run("resolve", wire.dump([mine, theirs], "key"))
        return await asyncio.wait_for(work, RESOLVE_S_MAX)

    def resolve(mine: Any, theirs: Any) -> Any:
        came = asyncio.run_coroutine_threadsafe(asked(mine, theirs), loop).result()
        if came.unrecordable is not None:
            raise BadValue(*came.unrecordable)
        return wire.load(came.result)

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
            raise BadValue("arguments", f"{name!r:.80} is no parameter's name", "give one")
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([inspect.Parameter(name, kind, default=None) for name in names])


def _check(declared: Declared) -> None:
    """Raise ToolError for what no tool of a program may be."""
    if declared.kind in RESERVED_KINDS or declared.name.startswith(RESERVED_NAMES):
        message = (
            f"{declared.name!r:.80} of kind {declared.kind!r:.40} is what the session's own "
            "operations are called: give the tool another name and kind"
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
