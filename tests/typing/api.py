"""The public surface as a type checker sees it. Checked by `make types`, never run."""

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

import hansard
from hansard.agents.approvals import Listed
from hansard.agents.effects import Tool
from hansard.bus.states import RunView


@hansard.tool
def once(to: str) -> int:
    """A bare decorator."""
    return len(to)


@hansard.tool(effects="pure", attempts=3, timeout_s=1.0)
def pure(text: str, times: int = 2) -> list[str]:
    """A decorator with options."""
    return [text] * times


@hansard.tool(effects=hansard.reconcile(hansard.Happened))
async def reconciled(to: str) -> str:
    """A coroutine."""
    return to


@hansard.tool(effects="pure")
def items(count: int) -> Iterator[int]:
    """A generator."""
    yield from range(count)


def sync_side() -> None:
    """The sync twin keeps the types of what it wraps."""
    with hansard.connect(
        workspace="lab", gate=[hansard.deny("rm*"), hansard.ask_first("send_*")]
    ) as record:
        assert_type(record, hansard.Record)
        with record.run("w", agent="a", role="r") as session:
            assert_type(session, hansard.Session)
            assert_type(session.arm, hansard.Arm | None)
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
        assert_type(record.register("e", hansard.plan(arms=["a"], metrics=["m"])), bool)
        assert_type(record.score(session.run, by="judge", reward=1.0), bool)
        assert_type(record.fork(session.run), str)
        assert_type(record.approve("a", by="eva", because="read it"), None)
        assert_type(record.approvals(), list[Listed])


async def async_side() -> None:
    """The async twin as well."""
    async with hansard.connect_async(workspace="lab") as record:
        assert_type(record, hansard.AsyncRecord)
        async with record.run("w", agent="a", role="r") as session:
            assert_type(session, hansard.AsyncSession)
            assert_type(await reconciled("x"), str)
            async with session.task_group() as group:
                task = group.create_task(reconciled("y"))
            assert_type(task.result(), str)
            progress = session.resumable([1, 2])
            assert_type(progress, AsyncIterator[int])


def refused() -> None:
    """What a checker must object to."""
    once(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] -- a number is no address
    pure("x", time=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] -- no such parameter
    tool: Tool[..., int] = once
    del tool
