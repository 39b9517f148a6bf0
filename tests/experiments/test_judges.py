"""Judgements of runs by people, code and evaluators, beside the runs' own streams."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import hansard
from hansard.bus.commits import revive_all
from hansard.domain.experiment import PriceStated
from hansard.domain.ids import WorkspaceStream
from tests.agents.twins import Lab


async def a_run(record, *texts):
    """Record a run with messages."""
    async with record.run() as session:
        for text in texts:
            await session.message("user", text)
        return session.run


async def test_a_score_is_on_record_once(lab: Lab):
    """Equal content by the same judge adds nothing; another value, judge or reason does."""
    async with lab.connect() as record:
        run = await a_run(record)
        assert (
            await record.experiments.score(run, {"reward": 1, "cost": 0.25}, by="grader@2") is True
        )
        assert (
            await record.experiments.score(run, {"reward": True, "cost": 0.25}, by="grader@2")
            is False
        )
        assert await record.experiments.score(run, {"reward": 0}, by="ada") is True
        assert (
            await record.experiments.score(run, {"cost": 0.25, "reward": 1.0}, by="grader@2")
            is False
        )
        assert (
            await record.experiments.score(run, {"reward": 0}, by="grader@2", reason="looked again")
            is True
        )
        assert (
            await record.experiments.score(run, {"reward": 1, "cost": 0.25}, by="grader@2") is True
        )
        life = (await record.state(run)).life
        assert [(each.by, each.metrics, each.because) for each in life.judged] == [
            ("grader@2", {"reward": 1.0, "cost": 0.25}, ""),
            ("ada", {"reward": 0.0}, ""),
            ("grader@2", {"reward": 0.0}, "looked again"),
            ("grader@2", {"reward": 1.0, "cost": 0.25}, ""),
        ]
        assert (life.scores, life.status) == ({"reward": 1.0, "cost": 0.25}, "completed")


@pytest.mark.fast(cases=99, slow=0)
async def test_a_run_is_scored_while_it_works(lab: Lab):
    """A run's own code can score it inside its block."""
    async with lab.connect() as record:
        async with record.run() as session:
            await session.message("user", "hi")
            await record.experiments.score(session.run, {"reward": 1}, by="code")
            await session.message("user", "again")
        view = await record.state(session.run)
        assert (view.life.scores, view.life.status) == ({"reward": 1.0}, "completed")


@pytest.mark.fast(cases=99, slow=0)
async def test_what_is_no_score_is_refused(lab: Lab):
    """Non-finite numbers, texts, nothing, a nameless judge and an unknown run are refused."""
    async with lab.connect(redact={"key": "s3cret"}) as record:
        run = await a_run(record)
        before = await record.commits(run)
        for metrics in (
            {"reward": float("nan")},
            {"reward": float("inf")},
            {"reward": 10**400},
            {"reward": "1"},
            {"reward": None},
            {"a\nb": 1},
            {"": 1},
            {},
            {f"m{n}": 1 for n in range(1_001)},
        ):
            with pytest.raises((hansard.BadValue, hansard.errors.BadName)):
                await record.experiments.score(run, metrics, by="ada")
        with pytest.raises(hansard.errors.BadName):
            await record.experiments.score(run, {"reward": 1}, by="")
        with pytest.raises(hansard.BadValue):
            await record.experiments.score(run, {"reward": 1}, by="ada", reason=1)
        with pytest.raises(hansard.NotFound):
            await record.experiments.score("nowhere", {"reward": 1}, by="ada")
        assert await record.commits(run) == before
        await record.experiments.score(run, {"reward": 1}, by="ada", reason="s3cret")
        assert "s3cret" not in (await record.state(run)).life.judged[0].because


@pytest.mark.fast(cases=99, slow=0)
async def test_an_evaluator_judges_runs(lab: Lab):
    """An evaluator gets each run's view; errors are reported, and judged runs are skipped."""
    async with lab.connect() as record:
        runs = [await a_run(record, *"x" * n) for n in range(4)]
        judged_runs = []

        def judge(view):
            count = len(view.agent("ada").messages)
            judged_runs.append(view.run)
            if count == 1:
                raise KeyError("no idea")
            return {"messages": count, "because": "counted"} if count < 3 else {"messages": "3"}

        made = await record.experiments.evaluate([*runs, runs[0]], judge, by="counter@1")
        assert judged_runs == runs
        assert (made.scored, made.skipped) == ([runs[0], runs[2]], [])
        assert {run: type(error) for run, error in made.failed.items()} == {
            runs[1]: KeyError,
            runs[3]: hansard.BadValue,
        }
        judged = [(await record.state(run)).life.judged for run in runs]
        assert [len(each) for each in judged] == [1, 0, 1, 0]
        judgement = judged[2][0]
        assert (judgement.by, judgement.metrics, judgement.because) == (
            "counter@1",
            {"messages": 2.0},
            "counted",
        )

        made = await record.experiments.evaluate(runs, lambda _: {"messages": 9}, by="counter@1")
        assert (made.scored, made.skipped) == ([runs[1], runs[3]], [runs[0], runs[2]])
        made = await record.experiments.evaluate(
            runs, lambda _: {"messages": 9}, by="counter@1", again=True
        )
        assert made.scored == runs
        views = [await record.state(run) for run in runs]
        assert [view.life.scores for view in views] == [{"messages": 9.0}] * 4
        assert [len(view.life.judged) for view in views] == [2, 1, 2, 1]
        wrong: list[Any] = [None, 1, {}, [("reward", 1)]]
        for returned in wrong:
            made = await record.experiments.evaluate(
                runs[:1], lambda _, judgement=returned: judgement, by="other"
            )
            assert isinstance(made.failed[runs[0]], hansard.BadValue), returned
        with pytest.raises(hansard.NotFound):
            await record.experiments.evaluate(["nowhere"], judge, by="counter@1")


@pytest.mark.fast(cases=99, slow=0)
async def test_an_evaluator_may_be_a_coroutine_function(lab: Lab):
    """The async client accepts a coroutine as evaluator; the sync one names the remedy."""

    async def judge(view):
        return {"agents": len(view.agents)}

    async with lab.connect() as record:
        run = await a_run(record)
        if lab.is_async:
            made = await record.experiments.evaluate([run], judge, by="judge")
            assert made.scored == [run]
        else:
            with pytest.raises(hansard.BadValue, match="async client"):
                await record.experiments.evaluate([run], judge, by="judge")


@pytest.mark.fast(cases=99, slow=0)
async def test_prices_are_stated_by_day(lab: Lab):
    """The prices of a statement are one commit; known prices are not stated again."""
    day = datetime(2024, 10, 1, tzinfo=UTC)
    async with lab.connect() as record:
        for amounts, is_new in (
            ({"input_tokens": 2.5, "output_tokens": 10}, True),
            ({"input_tokens": 2.5, "output_tokens": 10.0}, False),
            ({"input_tokens": 2.5, "output_tokens": 12}, True),
        ):
            assert (
                await record.experiments.price("gpt", amounts, since=day, source="list") is is_new
            )
        zone = timezone(timedelta(hours=2))
        same = datetime(2024, 10, 1, 2, tzinfo=zone)
        assert not await record.experiments.price(
            "gpt", {"input_tokens": 2.5}, since=same, source="list"
        )
        stored = await record.io(record.raw.workspace.log.read(WorkspaceStream("price", "gpt")))
        events = [
            [e.usage for e in revive_all([item.commit]) if isinstance(e, PriceStated)]
            for item in stored
        ]
        assert events == [["input_tokens", "output_tokens"], ["output_tokens"]]
        refused: list[tuple[Any, dict[str, Any]]] = [
            (datetime(2024, 10, 1), {"input_tokens": 1}),  # noqa: DTZ001 -- what is refused
            ("2024-10-01", {"input_tokens": 1}),
            (day, {"input_tokens": "1"}),
            (day, {"input_tokens": 10**400}),
            (day, {}),
        ]
        for since, prices in refused:
            with pytest.raises(hansard.BadValue):
                await record.experiments.price("gpt", prices, since=since)
