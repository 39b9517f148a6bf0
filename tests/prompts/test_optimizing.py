"""`prompts.optimize`: search on one part of the tasks, judge on the other, promote on *better*."""

import asyncio
from collections import Counter
from typing import Any

import pytest

import hansard
from hansard.ext.optimize.loop import OptimizeRequest, PromptSearch, halves, hill_climb

TASKS = {f"t-{number}": number for number in range(24)}
FEW = dict(list(TASKS.items())[:12])
"""Tasks whose half, on which two prompts are tried, is just enough to distinguish them."""


def solved(text, task):
    """Longer texts solve more of the tasks."""
    return float(text.count("!") > task % 3)


def optimize_request(**fields):
    """Return an optimisation of these tasks."""
    arguments = {"reference": "p", "tasks": TASKS, "evaluate": solved, "propose": max, **fields}
    return OptimizeRequest(**arguments)


def test_what_is_held_out_follows_from_the_names():
    """In whatever order tasks are given; by the salt and the prompt; both parts have some."""
    searched, held = halves(optimize_request(), "p")
    assert (len(searched), len(held)) == (12, 12)
    assert set(searched).isdisjoint(held)
    back = dict(reversed(TASKS.items()))
    assert halves(optimize_request(tasks=back), "p") == (searched, held)
    assert (
        halves(optimize_request(salt="s"), "p")
        != (searched, held)
        != halves(optimize_request(), "q")
    )
    for fields, message in (
        ({"tasks": {"a": 1}}, "both halves have some"),
        ({"budget": 47}, "give 48 evaluations or more"),
    ):
        with pytest.raises(hansard.BadValue, match=message):
            halves(optimize_request(**fields), "p")


def test_a_search_asks_nothing_twice_and_keeps_to_its_budget():
    """A search evaluates nothing twice and ends at its budget, or when nothing new is proposed."""
    evaluations: Counter[tuple[str, int]] = Counter()

    def evaluate(text, task):
        evaluations[str(text), task] += 1
        return solved(text, task)

    search = PromptSearch("x", TASKS, 80, evaluate, lambda text, _: text + "!")
    candidates = hill_climb(search)
    assert [each.text for each in candidates] == ["x", "x!", "x!!"]
    assert (search.left, set(evaluations.values())) == (8, {1})
    dull = PromptSearch("x", TASKS, 80, evaluate, lambda text, _: text)
    assert [each.text for each in hill_climb(dull)] == ["x"]


@pytest.mark.slow
def test_what_is_better_is_promoted(record):
    """A better candidate is promoted on a registered comparison; a repeat runs nothing."""
    calls: list[Any] = []

    def evaluate(text, task):
        calls.append(task)
        return solved(text, task)

    def propose(text, results):
        calls.append(tuple(each["task"] for each in results))
        return text + "!"

    record.prompts.add("p", "x", model="m")
    record.prompts.alias("p@1", "production", reason="the first one")
    options: Any = {"evaluate": evaluate, "propose": propose, "budget": 45}
    optimization: Any = hansard.prompts.optimize(record, "p@production", FEW, **options)
    assert (optimization.promoted, optimization.evidence.verdict) == (True, "better")
    assert list(optimization.versions) == [1, 2, 3, 4, 5]
    seen = {task for each in calls if isinstance(each, tuple) for task in each}
    assert seen == set(optimization.searched)
    assert seen.isdisjoint(optimization.held_out)
    assert optimization.evaluations <= 45
    version = record.prompts.get("p@production")
    assert (version.version, version.model) == (optimization.best, "m")
    moves = record.prompts.log("p").moves
    assert [each.experiment for each in moves] == ["", optimization.experiment]
    plan = record.experiments.get(optimization.experiment).plan
    assert plan.arms[1].prompt == f"p@{optimization.best}"
    used = record.sql(
        "SELECT version, count(*) FROM prompt_runs WHERE prompt = 'p' GROUP BY 1 ORDER BY 1"
    ).rows
    assert used == [(1, 6), (optimization.best, 6)]


@pytest.mark.thorough(quick="test_what_is_better_is_promoted")
def test_what_is_not_better_is_not_promoted(record):
    """A candidate that is no better gets no alias; a score that is no number is refused."""
    record.prompts.add("p", "x")
    record.prompts.add("p", "x!")
    record.prompts.alias("p@1", "production", reason="the first one")

    def propose(text, _results):
        return text + "!"

    def no_number(*_) -> Any:
        return "1"

    def is_worse(text, task):
        return solved("!" if "!!" not in text else "", task)

    with pytest.raises(hansard.BadValue, match="give a finite number"):
        hansard.prompts.optimize(record, "p@2", TASKS, evaluate=no_number, propose=propose)
    cannot = hansard.prompts.optimize(
        record, "p@2", TASKS, evaluate=is_worse, propose=propose, alias="next", budget=90
    )
    assert (cannot.promoted, cannot.best) == (False, cannot.base)
    with pytest.raises(hansard.errors.Refused, match="no alias 'next'"):
        record.prompts.get("p@next")


@pytest.mark.thorough(quick="test_what_is_better_is_promoted")
def test_the_async_client_optimises_with_coroutine_functions(data_dir, workspace):
    """The async client reaches the sync one's result; after a cancellation it repeats no
    evaluation.
    """
    evaluations: list[Any] = []

    async def play() -> Any:
        stop = asyncio.Event()

        async def evaluate(text, task):
            await asyncio.sleep(0)
            if len(evaluations) == 5 and not stop.is_set():
                stop.set()
                await asyncio.sleep(600)
            evaluations.append((str(text), task))
            return solved(text, task)

        def propose(text, _results):
            return text + "!"

        async with hansard.connect_async(workspace, data_dir=data_dir) as record:
            await record.prompts.add("p", "x")
            await record.prompts.alias("p@1", "production", reason="the first one")

            async def optimize():
                return await hansard.prompts.optimize_async(
                    record, "p@production", TASKS, evaluate=evaluate, propose=propose, budget=90
                )

            task = asyncio.create_task(optimize())
            await asyncio.wait_for(stop.wait(), 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 60)
            optimization = await optimize()
            assert (await record.prompts.get("p@production")).version == optimization.best
            return optimization

    optimization = asyncio.run(play())
    assert (optimization.promoted, optimization.evidence.verdict) == (True, "better")
    searched = [
        each for each in evaluations if each[1] in {TASKS[name] for name in optimization.searched}
    ]
    assert len(set(searched)) == len(searched)


@pytest.mark.slow
def test_an_error_of_an_evaluation_loses_no_answer(record):
    """An error in an evaluation loses no answer that was paid for."""
    evaluations: list[Any] = []
    wrong = iter([TimeoutError("late"), None, 10**400, float("nan")])

    def evaluate(text, task):
        evaluations.append((str(text), task))
        if len(evaluations) % 5 == 0 and (outcome := next(wrong, "none")) != "none":
            evaluations.pop()
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        return solved(text, task)

    refused = iter([RuntimeError("no proposal")])

    def propose(text, _results):
        for error in refused:
            raise error
        return text + "!"

    record.prompts.add("p", "x")
    record.prompts.alias("p@1", "production", reason="the first one")
    options: Any = {"evaluate": evaluate, "propose": propose, "budget": 45}
    failures = 0
    while True:
        try:
            optimization = hansard.prompts.optimize(record, "p@production", FEW, **options)
        except (TimeoutError, hansard.BadValue, RuntimeError):
            failures += 1
            continue
        break
    assert failures == 5
    assert max(Counter(evaluations).values()) == 1
    assert optimization.evaluations == len(evaluations)
    assert [life.status for _, life in record.runs(workflow="optimize prompt p")] == ["completed"]
