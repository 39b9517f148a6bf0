"""Savings of replays: from the recorded usage of the reused calls, without estimates."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

import hansard
from tests.agents.twins import TwinRecord

pytestmark = pytest.mark.slow


async def _work(record, run, *, stop=False, mode=None):
    """A model's call with usage, one without, one with tokens alone, a mail, a composite."""
    async with record.run(run=run, mode=mode) as session:

        @session.tool(effects="pure", kind="model")
        async def chat(model: str, usage: dict[str, float]) -> str:
            session.usage(**usage)
            return model

        @session.tool(effects="idempotent")
        async def mail(to: str) -> str:
            return to

        @session.tool(effects="composite")
        async def both() -> str:
            return await mail("bob") + await mail("cem")

        await chat("big", {"input_tokens": 100, "output_tokens": 10, "cost": 0.5})
        await chat("none", {})
        await chat("small", {"input_tokens": 2_000_000, "output_tokens": 1_000_000})
        await both()
        if stop:
            raise KeyboardInterrupt
        await mail("ada")
        return session.saved


@pytest.mark.slow(cases=1)
async def test_savings_are_of_what_was_answered_as_it_is_recorded(record: TwinRecord):
    """Savings sum the answered calls, tokens, cost and time; a strict replay records none."""
    with pytest.raises(KeyboardInterrupt):
        await _work(record, "r", stop=True)
    assert not (await record.savings()).rows  # no session continued it
    saved = await _work(record, "r")
    assert (saved.calls, saved.effects) == (6, 2)
    assert (saved.input_tokens, saved.output_tokens) == (2_000_100, 1_000_010)
    assert (saved.calls_with_tokens, saved.cost, saved.calls_with_cost) == (2, 0.5, 1)
    assert saved.seconds is not None
    assert "6 calls answered from the record, 2 effects not repeated" in saved.line()
    assert "$0.5000 (of 1 of them; of the others unknown)" in saved.line()
    strict = await _work(record, "r", mode="strict")
    assert (strict.calls, strict.effects) == (7, 3)
    answer = await record.savings("r")
    assert answer.position == (await record.sql("SELECT 1")).position > 0
    assert (len(answer), answer[0]) == (1, answer.rows[0])
    [entry] = answer
    assert (entry.of, entry.sessions, entry.sessions_unknown) == ("r", 1, 0)
    assert {name: getattr(entry, name) for name in hansard.types.Saved.__struct_fields__} == {
        name: getattr(saved, name) for name in hansard.types.Saved.__struct_fields__
    } | {"seconds": pytest.approx(saved.seconds)}
    amounts = {"input_tokens": 1.0, "output_tokens": 3.0}
    await record.experiments.price("small", amounts, since=datetime(2020, 1, 1, tzinfo=UTC))
    [entry] = await record.savings(workflow="w", by="workflow")
    assert (entry.of, entry.cost, entry.calls_with_cost) == ("w", 0.5 + 2 + 3, 2)
    month = datetime.now(UTC).strftime("%Y-%m")
    [entry] = await record.savings(month=month, by="month")
    assert (entry.of, entry.calls) == (month, 6)
    assert list(await record.savings(month="1999-01")) == []
    with pytest.raises(hansard.BadValue, match="2026-01"):
        await record.savings(month="May")


def test_writes_to_the_record_are_no_effects(tmp_path: Path):
    """Board writes and team messages count as calls, not as effects outside the record."""
    saved = hansard.types.Saved()
    with hansard.connect(data_dir=tmp_path) as record:
        for _ in range(2):
            with record.run("w", run="r", agent="a", role="r") as session:

                @session.tool(effects="once")
                def mail(to: str) -> str:
                    return to

                session.board.put("k", 1)
                session.team.send("hi", role="r")
                mail("ada")
                saved = session.saved
        [of_run] = record.savings("r")
        assert saved.effects == of_run.effects == 1
        assert saved.calls == of_run.calls == 3


@pytest.mark.slow(cases=1)
async def test_the_savings_of_an_open_session_are_unknown(record: TwinRecord):
    """The savings of an open or killed session are unknown, not 0."""
    async with record.run(run="empty"):
        pass
    async with record.run(run="empty"):
        pass
    await _work(record, "r")
    fork = await record.fork("r")
    await _work(record, fork)
    async with record.run(run="r"):
        savings = {each.of: each for each in await record.savings()}
        assert (savings["empty"].calls, savings["empty"].sessions_unknown) == (0, 0)
        assert (savings["r"].calls, savings["r"].sessions_unknown) == (None, 1)
        assert "not known" in savings["r"].line()
        assert (savings[fork].calls, savings[fork].effects, savings[fork].cost) == (7, 3, 0.5)


def test_an_outcome_that_a_fork_takes_from_its_parent_is_saved(tmp_path: Path):
    """Calls after an edit that the parent's record answers count, with what the parent's used; a
    resume of the fork counts them alike.
    """
    with hansard.connect(data_dir=tmp_path) as record:

        def play(run: str | None = None) -> hansard.types.Saved:
            with record.run("w", run=run, agent="a", role="r") as session:

                @session.tool(effects="pure", kind="model")
                def ask(n: int) -> int:
                    session.usage(input_tokens=10, cost=0.5)
                    return n

                for n in range(4):
                    ask(n)
                return session.saved

        play("parent")
        forks = [
            record.fork("parent", edits=[hansard.replace(f"a#{step}", result=7)]) for step in (1, 3)
        ]
        saved = [play(fork) for fork in forks]
        assert [(each.calls, each.cost, each.input_tokens) for each in saved] == [(2, 1.0, 20)] * 2
        rows = [record.savings(fork)[0] for fork in forks]
        assert [(row.calls, row.cost, row.input_tokens) for row in rows] == [(2, 1.0, 20)] * 2
        play(forks[0])
        again = record.savings(forks[0])[0]
        assert (again.sessions, again.calls, again.cost) == (2, 6, 2.5)
