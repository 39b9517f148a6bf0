"""The public surface as a type checker sees it. Checked by `make types`, never run."""

from collections.abc import Iterator
from typing import Any, assert_type

import hansard
from hansard.agents.policy.approvals import ListedApproval
from hansard.agents.steps.tools import Tool
from hansard.state.replay import RunView


@hansard.tool
def once(to: str) -> int:
    """Use a bare decorator."""
    return len(to)


@hansard.tool(effects="pure", attempts=3, timeout_s=1.0)
def pure(text: str, times: int = 2) -> list[str]:
    """Use a decorator with options."""
    return [text] * times


@hansard.tool(effects=hansard.reconcile(hansard.Happened))
async def reconciled(to: str) -> str:
    """Use a coroutine."""
    return to


@hansard.tool(effects="pure")
def items(count: int) -> Iterator[int]:
    """Use a generator."""
    yield from range(count)


def sync_side() -> None:
    """Check that the sync twin keeps the types of what it wraps."""
    with hansard.connect(
        workspace="lab", gate=[hansard.deny("rm*"), hansard.ask_first("send_*")]
    ) as record:
        assert_type(record, hansard.Record)
        with record.run("w", agent="a", role="r") as session:
            assert_type(session, hansard.Session)
            assert_type(session.arm, hansard.experiments.Arm | None)
            assert_type(once("x"), int)
            assert_type(pure("x", times=3), list[str])
            assert_type(items(3), Iterator[int])

            @session.tool(effects="idempotent")
            def local(x: int) -> dict[str, int]:
                return {"x": x}

            assert_type(local(1), dict[str, int])
            assert_type(session.thread(local, 1).result(), dict[str, int])
            for item in session.resumable(["a", "b"], every=2):
                assert_type(item, str)
        assert_type(record.state(session.run, at="a@3"), RunView)
        assert_type(
            record.experiments.register("e", hansard.experiments.plan(arms=["a"], metrics=["m"])),
            bool,
        )
        assert_type(record.experiments.score(session.run, {"reward": 1.0}, by="judge"), bool)
        assert_type(record.fork(session.run), str)
        assert_type(record.approvals.grant("a", by="eva", reason="read it"), None)
        assert_type(record.approvals.list(), list[ListedApproval])
        assert_type(record.prompts.add("p", "text", parents=[1]), int)
        assert_type(record.prompts.evolve("p", "too_verbose"), hansard.prompts.Prompt)


def one_line() -> None:
    """Open a session with its own record."""
    with hansard.Session() as session:
        assert_type(session, hansard.Session)
    with hansard.Session(
        "w",
        agent="a",
        role="r",
        workspace="lab",
        run="r1",
        mode="resume",
        gate=[hansard.deny("rm*")],
        labels={"for": "tests"},
        data_dir="there",
        nats_replicas=3,
    ) as session:
        assert_type(session.run, str)
        assert_type(once("x"), int)
    hansard.Session("w", conversatoin="c")  # type: ignore[call-arg] # misspelt


async def one_line_awaited() -> None:
    """Open a session with its own record in the async client."""
    async with hansard.AsyncSession("w", settle=None) as session:
        assert_type(session, hansard.AsyncSession)
        assert_type(await session.context(), list[dict[str, Any]])


def whoever_asks(record: hansard.types.CommonRecord) -> None:
    """Use what the records of a trusted program and of a restricted agent have in common."""
    assert_type(record.sql("SELECT ?", 1), hansard.types.SqlAnswer)
    assert_type(record.experiments.compare("e", metric="m"), hansard.experiments.ComparisonReport)
    assert_type(record.audit(severity="high"), hansard.types.AuditReport)
    assert_type(record.why("r"), hansard.types.DecisionReport | hansard.types.DecisionList)
    assert_type(record.roles.view("r"), hansard.roles.View)
    assert_type(record.finish("r", reason="it is done"), bool)
    assert_type(record.prompts.get("p"), hansard.prompts.Prompt)


async def whoever_awaits(record: hansard.types.AsyncCommonRecord) -> None:
    """Use the async records' common operations."""
    assert_type(await record.sql("SELECT 1"), hansard.types.SqlAnswer)
    assert_type(await record.prompts.get("p"), hansard.prompts.Prompt)
    async with record.run("w") as session:
        assert_type(session, hansard.types.AsyncCommonSession)


def whoever_works(session: hansard.types.CommonSession) -> None:
    """Use what the sessions of both have in common."""
    assert_type(session.context(), list[dict[str, Any]])
    assert_type(session.view(), hansard.roles.View)


async def both() -> None:
    """Check that each of the two classes fits; credentials give the restricted one."""
    with hansard.connect() as trusted, hansard.connect(credentials="ada.json") as restricted:
        assert_type(restricted, hansard.roles.RestrictedRecord)
        whoever_asks(trusted)
        whoever_asks(restricted)
        with trusted.run("w") as whole, restricted.run("w") as part:
            assert_type(part, hansard.roles.RestrictedSession)
            whoever_works(whole)
            whoever_works(part)
            assert_type(whole.state, hansard.types.AgentState)
    async with hansard.connect_async() as mine, hansard.connect_async(credentials="a") as theirs:
        assert_type(theirs, hansard.roles.AsyncRestrictedRecord)
        await whoever_awaits(mine)
        await whoever_awaits(theirs)
        session = await theirs.open("w")
        assert_type(session, hansard.roles.AsyncRestrictedSession)


async def async_side() -> None:
    """Check that the async twin keeps the types as well."""
    async with hansard.connect_async(workspace="lab") as record:
        assert_type(record, hansard.AsyncRecord)
        async with record.run("w", agent="a", role="r") as session:
            assert_type(session, hansard.AsyncSession)
            assert_type(await reconciled("x"), str)
            async with session.task_group() as group:
                task = group.create_task(reconciled("y"))
            assert_type(task.result(), str)
            progress = session.resumable([1, 2])
            assert_type(progress, hansard.types.AsyncResumable[int])


def refused() -> None:
    """List uses that a type checker must reject."""
    once(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] -- a number is no address
    pure("x", time=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] -- no such parameter
    tool: Tool[..., int] = once
    del tool


def lacking(
    record: hansard.roles.RestrictedRecord,
    session: hansard.roles.RestrictedSession,
    other: hansard.roles.AsyncRestrictedSession,
) -> None:
    """Check that missing operations of a restricted agent, and its session for a trusted one, are
    errors.
    """
    record.fork("r")  # type: ignore[arg-type]  # pyright: ignore[reportAttributeAccessIssue] -- a trusted program's
    record.experiments.stop("e")  # type: ignore[arg-type]  # pyright: ignore[reportAttributeAccessIssue] -- a trusted program's
    record.prompts.get(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] -- a number is no reference
    _ = record.workspace  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue] -- a trusted program's
    _ = session.state  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue] -- a trusted program's
    _ = other.label  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue] -- a trusted program's
    whole: hansard.Session = session  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType] -- it has no state
    del whole


def current() -> None:
    """Check that the current session has the type that its caller names."""
    assert_type(hansard.current_session(), hansard.types.CommonSession)
    assert_type(hansard.current_session(hansard.AsyncSession), hansard.AsyncSession)


def misspelt(record: hansard.Record, session: hansard.Session) -> None:
    """Check that a misspelt option is an error, wherever options are taken."""
    record.open("w", modes="strict")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] -- there is no such option
    record.runs(workflows="w")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] -- there is no such option
    record.fork("r", label={})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] -- there is no such option
    record.settle("r", "a#1", hansard.Verdict.REUSE, becuase="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] -- there is no such option
    record.finish("r", becuase="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] -- there is no such option
    record.experiments.score("r", {"m": 1.0}, by="me", m=1.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] -- there is no such option
    session.decide("q", selected="a", altenatives=[])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] -- there is no such option
    session.message("user", "x", token=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] -- there is no such option
    session.hand_off("bob", becuase="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] -- there is no such option
    hansard.connect(data_dirs=".")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue] -- there is no such option
    hansard.conect()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue] -- there is no such name
