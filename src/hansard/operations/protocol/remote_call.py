"""Operations under way in the service, and their callbacks to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, overload

import msgspec

from hansard.agents.policy.gate import AskFirst, Budget, CallRule, GateRule
from hansard.agents.steps.tools import DID_NOT_HAPPEN, Happened
from hansard.domain import ids
from hansard.domain.errors import BadValue
from hansard.domain.steps import Step
from hansard.domain.steps import Verdict as Settlement
from hansard.domain.values import Secret
from hansard.operations.protocol import faults, wire
from hansard.operations.protocol.faults import ClientGone
from hansard.operations.protocol.wire import EMPTY, Answer, BodyResult, Call, Run, Verdict


class RemoteCall:
    """One operation, from the request that began it to its result.

    Each request of the client gets one answer: the request that began the operation the first,
    every further `done` the next.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.task: asyncio.Task[Any] | None = None
        self.warning = ""
        self.scopes: set[str] = set()
        """The paths of scopes that the client knows while this lasts."""
        self.own: list[Any] = []
        """The result of the client's last callback, as the session got it."""
        self._answers: asyncio.Queue[Answer] = asyncio.Queue()
        self._result: asyncio.Future[BodyResult] | None = None
        self._gone = False

    async def run(self, what: str, arguments: msgspec.Raw = EMPTY, scope: str = "") -> BodyResult:
        """Run a callback in the client. Raises ClientGone, and what the client's program raised."""
        if self._gone:
            raise ClientGone
        self._result = asyncio.get_running_loop().create_future()
        report = Run(
            turn=self.number, what=what, arguments=arguments, scope=scope, warning=self.warning
        )
        self.warning = ""
        self._answers.put_nowait(report)
        try:
            outcome = await self._result
        finally:
            self._result = None
        if outcome.fault is not None:
            error = faults.rebuilt(outcome.fault)
            self.own = [error]
            raise error
        return outcome

    def set_result(self, outcome: BodyResult) -> bool:
        """Set the callback's result; return False if none was requested."""
        if self._result is None or self._result.done():
            return False
        self._result.set_result(outcome)
        return True

    def fail(self, error: BaseException) -> bool:
        """Fail the callback with an error that the service had sent; return False if none waits."""
        if self._result is None or self._result.done():
            return False
        self.own = [error]
        self._result.set_exception(error)
        return True

    def abandon(self) -> bool:
        """Note that the client is gone; return whether a callback was under way."""
        self._gone = True
        return self.fail(ClientGone("the connection to the client broke"))

    def finish(self, word: Answer) -> None:
        """Set the operation's last answer."""
        self._answers.put_nowait(word)

    async def next_answer(self) -> Answer:
        """Wait for the next answer."""
        return await self._answers.get()

    def is_own(self, value: object) -> bool:
        """Return whether a value is the result of the client's last callback."""
        return bool(self.own) and self.own[0] is value


Work = Callable[[RemoteCall], Awaitable[Answer]]
"""The work of an operation."""


def value(turn: RemoteCall, content: Any, *, end: bool = False) -> wire.Value:
    """Return a program's value as a last answer; the client's own last result is not sent back."""
    if turn.is_own(content):
        return wire.Value(own=True, warning=turn.warning)
    return wire.Value(wire.dump(content, "result"), end=end, warning=turn.warning)


# Proxies for what stays in a client's program: its gate's functions, its policy for doubt, and its
# secrets. Budgets are data, so the service counts them.

BUDGETS_MAX = 100
"""Most budgets of one session: each is checked and counted with every call that it fits."""


class ClientRules(Sequence[GateRule]):
    """The gate rules of a hosted session.

    They are the verdict of the client's own rules on the current call, which are functions of its
    program, and the client's budgets.
    """

    def __init__(self, budgets: Sequence[Budget] = ()) -> None:
        self.budgets = tuple(budgets)
        self._verdict: ContextVar[Verdict | None] = ContextVar("verdict", default=None)

    def of_call(self, verdict: Verdict | None) -> None:
        """Set the verdict for calls of this context; None if the client's rules allow it."""
        self._verdict.set(verdict)

    def _rules(self) -> list[GateRule]:
        verdict = self._verdict.get()
        if verdict is None:
            return [*self.budgets]
        if verdict.timeout_s is not None:
            return [AskFirst(name=verdict.rule, timeout_s=verdict.timeout_s), *self.budgets]
        return [CallRule(allows=False, name=verdict.rule, reason=verdict.reason)]

    @overload
    def __getitem__(self, index: int) -> GateRule: ...
    @overload
    def __getitem__(self, index: slice) -> list[GateRule]: ...
    def __getitem__(self, index: int | slice) -> GateRule | list[GateRule]:
        return self._rules()[index]

    def __len__(self) -> int:
        return len(self._rules())


class ClientSecrets:
    """The provider of secrets, by name alone: the client fills in the values."""

    def __init__(self) -> None:
        self._names: ContextVar[tuple[str, ...]] = ContextVar("secrets", default=())

    def of_call(self, names: tuple[str, ...]) -> None:
        """Set the names of the secrets that the client has for calls of this context."""
        self._names.set(names)

    def __call__(self, name: str) -> Any:
        """Return the placeholder of a secret; None if the client has none of that name."""
        return Secret(name) if name in self._names.get() else None


class Program:
    """The parts of a client's program that its session needs. Raises BadName, BadValue.

    `budgets` is the result of `encode_budgets`. `settles` is the name of its policy for calls in
    doubt; empty for none.
    """

    def __init__(self, budgets: msgspec.Raw, settles: str) -> None:
        self.rules = ClientRules(_budgets(budgets))
        self.secrets = ClientSecrets()
        self._turn: ContextVar[RemoteCall | None] = ContextVar("turn", default=None)
        self.settle = self._settling(ids.name("settle", settles)) if settles else None

    def of_turn(self, turn: RemoteCall) -> None:
        """Set the operation of this context, whose client settles steps in doubt."""
        self._turn.set(turn)

    def of_call(self, call: Call) -> None:
        """Set the client's verdict and secrets for a call of this context."""
        self.rules.of_call(call.verdict)
        self.secrets.of_call(call.secrets)

    def _settling(self, name: str) -> Callable[[Step], Any]:
        async def settle(step: Step) -> Settlement | Happened | object | None:
            turn = self._turn.get()
            if turn is None:
                return None  # outside of an operation of the client a person settles
            outcome = await turn.run("settle", msgspec.Raw(wire.encode(step)))
            if outcome.inexact:
                raise BadValue("settle", outcome.inexact, "return a smaller value")
            return settlement(outcome.result)

        settle.__name__ = name
        return settle


# ------------------------------------------------------------ encoding


def settlement(raw: msgspec.Raw) -> Settlement | Happened | object | None:
    """Decode the answer of a client's policy on a step; None for no answer. Raises BadValue."""
    match wire.load(raw):
        case ["happened", result]:
            return Happened(result)
        case ["did not happen"]:
            return DID_NOT_HAPPEN
        case ["verdict", str(word)] if word in {each.value for each in Settlement}:
            return Settlement(word)
        case _:
            return None


def encode_budgets(budgets: Sequence[Budget]) -> msgspec.Raw:
    """Encode budgets for the service. Raises BadValue."""
    return wire.dump([msgspec.structs.asdict(each) for each in budgets], "budget")


def _budgets(raw: msgspec.Raw) -> list[Budget]:
    fields = wire.load(raw)
    fields = [] if fields is None else fields
    if type(fields) is not list or len(fields) > BUDGETS_MAX:
        fact = f"{len(fields):,} in gate=" if type(fields) is list else f"a {type(fields).__name__}"
        raise BadValue("budgets", fact, f"give at most {BUDGETS_MAX}")
    return [_budget(each) for each in fields]


def _budget(plain: Any) -> Budget:
    try:
        made = Budget(**plain)
    except TypeError as error:
        raise BadValue("budget", str(error)[:200], "use the client of this version") from error
    for field in ("unit", "tool", "role"):
        ids.name(f"{field} of budget {made.name!r:.80}", getattr(made, field))
    return made
