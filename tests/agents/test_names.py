"""A name that holds a secret is refused before anything is written, since names are addresses."""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import hansard
from hansard.domain.roles import check as role_file
from hansard.domain.roles.model import RoleDefined
from tests.agents.twins import Lab

SECRET = "sk-hunter2-hunter2"
NAME = f"of {SECRET}!"
REDACT = {"key": SECRET, "pin": re.compile(r"PIN-\d{4}")}

OPENING: dict[str, dict[str, Any]] = {
    "run": {"run": NAME},
    "run that is wholly a secret": {"run": SECRET},
    "run of a pattern": {"run": "of PIN-1234"},
    "workflow": {"workflow": NAME},
    "agent": {"agent": NAME},
    "role": {"role": NAME},
    "conversation": {"conversation": NAME},
    "correlation": {"correlation": NAME},
    "traceparent": {"traceparent": NAME},
    "label": {"labels": {NAME: "x"}},
    "on_behalf_of": {"on_behalf_of": (NAME,)},
    "experiment": {"experiment": NAME, "task": "t"},
    "arm": {"experiment": "e", "arm": NAME, "task": "t"},
    "task": {"experiment": "e", "task": NAME},
    "unit": {"experiment": "e", "unit": NAME},
    "budget": {"gate": [hansard.budget(NAME, 1)]},
}
"""Arguments that open a run."""

RESTRICTED = OPENING.keys() - {"agent", "role", "conversation", "on_behalf_of"}
"""Options that an agent with credentials may pass."""


async def _transaction(session: Any) -> None:
    board = session.raw.board
    if session.is_async:
        async with board.transaction() as pending:
            await pending.put(NAME, 1)
    else:
        with board.transaction() as pending:
            pending.put(NAME, 1)


async def _resumable(session: Any) -> None:
    async for _ in session.resumable([1], name=NAME):
        pass


async def _tool(session: Any) -> None:
    @session.tool(name=NAME)
    async def anything() -> None: ...

    await anything()


async def _usage(session: Any) -> None:
    session.raw.usage(**{NAME: 1.0})


async def come(result: Any) -> Any:
    """Return the value of a method of either client."""
    return await result if hasattr(result, "__await__") else result


SAYING: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "key": lambda session: come(session.raw.board.put(NAME, 1)),
    "key that is read": lambda session: come(session.raw.board.get(NAME)),
    "key of a transaction": _transaction,
    "key that is waited for": lambda session: come(session.raw.wait_for(key=NAME, timeout_s=0)),
    "counter": lambda session: come(session.raw.board.add(NAME, 1)),
    "task": lambda session: come(session.raw.team.add("x", task=NAME)),
    "task's role": lambda session: come(session.raw.team.add("x", role=NAME)),
    "receiver": lambda session: come(session.raw.team.send("x", role=NAME)),
    "hand-off": lambda session: come(session.raw.hand_off(NAME)),
    "loop": _resumable,
    "tool": _tool,
    "usage": _usage,
}
"""Session operations with a name."""

DAY = datetime(2026, 1, 1, tzinfo=UTC)
PLAN = hansard.experiments.plan(arms=["a", "b"], metrics=["m"])


async def _evaluated(record: Any) -> None:
    evaluation = await record.experiments.evaluate(["r"], lambda _: {NAME: 1.0}, by="me")
    raise evaluation.failed["r"]


WORKSPACE: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "plan": lambda record: record.experiments.register(NAME, PLAN),
    "plan's author": lambda record: record.experiments.register("e", PLAN, by=NAME),
    "plan's arm": lambda r: r.experiments.register(
        "e", hansard.experiments.plan(arms=[NAME, "b"], metrics=["m"])
    ),
    "plan's metric": lambda r: r.experiments.register(
        "e", hansard.experiments.plan(arms=["a", "b"], metrics=[NAME])
    ),
    "plan's end": lambda record: record.experiments.stop("e", by=NAME),
    "judge": lambda record: record.experiments.score("r", {"m": 1.0}, by=NAME),
    "metric": lambda record: record.experiments.score("r", {NAME: 1.0}, by="me"),
    "evaluator": lambda record: record.experiments.evaluate(["r"], lambda _: {"m": 1}, by=NAME),
    "evaluator's metric": _evaluated,
    "model": lambda record: record.experiments.price(NAME, {"input_tokens": 1.0}, since=DAY),
    "price's usage": lambda record: record.experiments.price("m", {NAME: 1.0}, since=DAY),
    "price's author": lambda record: record.experiments.price(
        "m", {"input_tokens": 1.0}, since=DAY, by=NAME
    ),
    "role": lambda record: record.roles.apply(NAME, RoleDefined()),
    "role's author": lambda record: record.roles.apply("x", RoleDefined(), by=NAME),
    "role's rule": lambda record: record.roles.apply("x", rules()),
    "who settles": lambda record: record.settle("r", "1", "happened", by=NAME),
    "who approves": lambda record: record.approvals.grant("x", by=NAME),
    "who denies": lambda record: record.approvals.deny("x", by=NAME),
    "who lowers": lambda record: record.roles.declassify(
        "r", agent="ada", approver=NAME, reason="it may be"
    ),
    "fork's label": lambda record: record.fork("r", labels={NAME: "x"}),
}
"""Workspace operations with a name."""


def rules() -> RoleDefined:
    """Return a role's rules that name a secret."""
    return role_file.parse(f'[roles.x.may]\ntools = ["{NAME}"]\n')["x"]


async def stored(record: Any) -> str:
    """Return all stored data of a workspace: subjects and bodies."""
    head = await record.io(record.raw.workspace.log.head())
    commits = [await record.io(record.raw.workspace.log.at(i)) for i in range(1, head + 1)]
    return "\n".join(f"{each.stream} {each.body!r}" for each in commits)


@pytest.mark.parametrize("what", OPENING)
async def test_a_run_is_opened_by_no_name_that_holds_a_secret(lab: Lab, what):
    """Whatever names it, the run does not begin, and nothing is written."""
    async with lab.connect(redact=REDACT) as record:
        with pytest.raises(hansard.BadValue, match="holds a secret") as refusal:
            async with record.run(**{"workflow": "w", "run": "r", **OPENING[what]}):
                raise AssertionError
        assert SECRET not in str(refusal.value)
        assert await stored(record) == ""


@pytest.mark.parametrize("what", SAYING)
async def test_a_session_says_no_name_that_holds_a_secret(lab: Lab, what):
    """Whatever is named, it is refused, and neither a subject nor a body holds the secret."""
    async with lab.connect(redact=REDACT) as record:
        async with record.run(run="r") as session:
            with pytest.raises(hansard.BadValue, match="secret") as refusal:
                await SAYING[what](session)
            assert SECRET not in str(refusal.value)
        assert SECRET not in await stored(record)


@pytest.mark.parametrize("what", WORKSPACE)
async def test_no_workspace_fact_is_stored_under_such_a_name(lab: Lab, what):
    """Plans, judgements, prices, roles and their authors are refused, and not stored."""
    async with lab.connect(redact=REDACT) as record:
        async with record.run(run="r"):
            pass
        with pytest.raises(hansard.BadValue, match="holds a secret") as refusal:
            await WORKSPACE[what](record)
        assert SECRET not in str(refusal.value)
        assert SECRET not in await stored(record)


async def test_a_rule_of_the_gate_is_known_without_the_secret(lab: Lab):
    """A rule is known without the secret, which is replaced in its name and matches nothing."""
    async with (
        lab.connect(redact=REDACT) as record,
        record.run(run="r", gate=[hansard.deny(name=NAME, reason=NAME)]) as session,
    ):

        @session.tool()
        async def send() -> None: ...

        with pytest.raises(hansard.Blocked):
            await send()
        await record.experiments.price("m", {"input_tokens": 1.0}, since=DAY, source=NAME)
        text = await stored(record)
        assert SECRET not in text
        assert "of <secret:key>!" in text
