"""Budgets that several processes share: refusals are exact, and a call costs the same each time."""

from collections.abc import Sequence
from typing import Any

import pytest

import hansard
from hansard.agents.policy.approvals import LogBudgets
from hansard.agents.policy.gate import Budget
from hansard.bus.log import Stored
from hansard.state.replay import States
from tests.agents.twins import Lab

TOKENS = hansard.budget("t", 10, unit="tokens", reserve=6)


class Counting:
    def __init__(self, log: Any) -> None:
        self._log = log
        self.read_count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, *args: Any, **kwargs: Any) -> Sequence[Stored]:
        """Read the log."""
        commits: Sequence[Stored] = await self._log.read(*args, **kwargs)
        self.read_count += len(commits)
        return commits


@pytest.mark.thorough(quick="service/test_budgets.py::test_what_another_gave_back_is_there_at_once")
async def test_a_budget_costs_the_same_at_the_last_call_as_at_the_first(lab: Lab):
    """A lone session reads nothing again; one beside others reads only their new writes."""
    rule = Budget(name="b", limit=10_000, unit="cost", reserve=5)
    calls = 100
    async with lab.connect() as record, record.run(run="r"):
        place = record.raw.workspace
        logs = [Counting(place.log), Counting(place.log)]
        ada, bob = [
            LogBudgets(log, States(log), "r", name, place.clock)  # type: ignore[arg-type] # it hands on all but reads
            for log, name in zip(logs, ["ada", "bob"], strict=True)
        ]
        for n in range(calls):
            assert await record.io(ada.reserve(rule, f"ada#{n}"))
            await record.io(ada.spend(rule, f"ada#{n}", 1.0))
        assert logs[0].read_count == 0
        assert await record.io(bob.reserve(rule, "bob#0"))
        for n in range(calls):
            await record.io(ada.spend(rule, f"ada#{n}", 2.0))
            await record.io(bob.spend(rule, "bob#0", float(n)))
        assert [log.read_count for log in logs] == [calls, 2 * calls + calls]
        few = Budget(name="b", limit=2 * calls + calls - 1)
        assert not await record.io(bob.reserve(few, "bob#1"))
        await record.io(ada.spend(rule, "ada#0", 1.0))
        assert await record.io(bob.reserve(few, "bob#1"))
