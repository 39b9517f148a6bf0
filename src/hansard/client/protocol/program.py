"""What stays in a client's program, and stands for it in its session at the service: the functions
of its gate and its policy for doubt, and its secrets. Budgets are data, so the service counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, overload

import msgspec

from hansard.agents.policy.gate import AskFirst, Budget, CallRule, GateRule
from hansard.agents.steps.tools import DID_NOT_HAPPEN, Happened
from hansard.client.protocol import wire
from hansard.client.protocol.remote_call import Turn
from hansard.client.protocol.wire import Call, Verdict
from hansard.domain import ids
from hansard.domain.errors import BadValue
from hansard.domain.steps import Step
from hansard.domain.steps import Verdict as Settlement
from hansard.domain.values import Secret

BUDGETS_MAX = 100
"""Most budgets of one session: each is asked about, and counted, with every call that it fits."""


class Said(Sequence[GateRule]):
    """The gate's rules of a hosted session: what the client's own rules, which have functions of
    its program, said of the call that this context makes; and the client's budgets.
    """

    def __init__(self, budgets: Sequence[Budget] = ()) -> None:
        self.budgets = tuple(budgets)
        self._verdict: ContextVar[Verdict | None] = ContextVar("verdict", default=None)

    def of_call(self, verdict: Verdict | None) -> None:
        """What they said of the call that this context makes; None: they allow it."""
        self._verdict.set(verdict)

    def _rules(self) -> list[GateRule]:
        said = self._verdict.get()
        if said is None:
            return [*self.budgets]
        if said.timeout_s is not None:
            return [AskFirst(name=said.rule, timeout_s=said.timeout_s), *self.budgets]
        return [CallRule(allows=False, name=said.rule, reason=said.reason)]

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


class Program:
    """One client's program, as far as its session needs it. Raises BadName, BadValue.

    budgets: as `told_budgets` makes it. settles: the name of its policy for doubt; empty for none.
    """

    def __init__(self, budgets: msgspec.Raw, settles: str) -> None:
        self.said = Said(_budgets(budgets))
        self.lent = Lent()
        self._turn: ContextVar[Turn | None] = ContextVar("turn", default=None)
        self.settle = self._settling(ids.name("settle", settles)) if settles else None

    def of_turn(self, turn: Turn) -> None:
        """Have this context know which operation it is of: its policy is asked there."""
        self._turn.set(turn)

    def of_call(self, call: Call) -> None:
        """Have this context know what the client's rules and secrets are for a call."""
        self.said.of_call(call.verdict)
        self.lent.of_call(call.secrets)

    def _settling(self, name: str) -> Callable[[Step], Any]:
        async def settle(step: Step) -> Settlement | Happened | object | None:
            turn = self._turn.get()
            if turn is None:
                return None  # what no operation of the client's asks, a person settles
            came = await turn.run("settle", msgspec.Raw(wire.encode(step)))
            if came.inexact:
                raise BadValue("settle", came.inexact, "return a smaller value")
            return settlement(came.result)

        settle.__name__ = name
        return settle


# ------------------------------------------------------------ over the wire


def settlement(raw: msgspec.Raw) -> Settlement | Happened | object | None:
    """What a client's function says of a step; None for what says nothing. Raises BadValue."""
    match wire.load(raw):
        case ["happened", result]:
            return Happened(result)
        case ["did not happen"]:
            return DID_NOT_HAPPEN
        case ["verdict", str(word)] if word in {each.value for each in Settlement}:
            return Settlement(word)
        case _:
            return None


def told_budgets(budgets: Sequence[Budget]) -> msgspec.Raw:
    """Budgets as the service is told of them. Raises BadValue."""
    return wire.dump([msgspec.structs.asdict(each) for each in budgets], "budget")


def _budgets(raw: msgspec.Raw) -> list[Budget]:
    told = wire.load(raw)
    told = [] if told is None else told
    if type(told) is not list or len(told) > BUDGETS_MAX:
        fact = f"{len(told):,} in gate=" if type(told) is list else f"a {type(told).__name__}"
        raise BadValue("budgets", fact, f"give at most {BUDGETS_MAX}")
    return [_budget(each) for each in told]


def _budget(told: Any) -> Budget:
    try:
        made = Budget(**told)
    except TypeError as error:
        raise BadValue("budget", str(error)[:200], "use the client of this version") from error
    for field in ("unit", "tool", "role"):
        ids.name(f"{field} of budget {made.name!r:.80}", getattr(made, field))
    return made
