"""Replay of any run: generated call trees give equal results, with no body run."""

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agents.twins import Lab, TwinSession

leaves = st.one_of(
    st.tuples(st.sampled_from(["pure", "once", "idempotent"]), st.integers(0, 2)),
    st.tuples(st.sampled_from(["fail", "stream", "fact"]), st.integers(0, 2)),
)
trees = st.recursive(
    leaves,
    lambda inner: st.tuples(
        st.sampled_from(["sequence", "parallel", "composite", "bare"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=10,
)
"""A leaf is a call by its kind and argument, equal ones included; a node says how its children
are called: one after the other, gathered, inside a composite tool, side by side with no scopes."""

OWN = {
    *("run.resumed.v1", "agent.session_began.v1", "agent.left.v1", "run.agent_left.v1"),
    "run.completed.v1",
}
"""Events that a resume records itself."""

TREES = max(20, settings().max_examples // 3)
"""Each is played four times."""

_numbers = itertools.count(1)


def _needs_scopes(children: Any) -> bool:
    """Return True if a bare asyncio.gather does not suffice: failures and inner scopes."""
    return any(kind in repr(children) for kind in ("fail", "composite", "parallel")) or _equal(
        children
    )


def _equal(children: Any) -> bool:
    """Return True if equal calls are in different chains: only their order distinguishes them."""
    if all(kind not in ("sequence", "bare") for kind, _ in children):
        return False
    chains = [set(_leaves(child)) for child in children]
    return len(set().union(*chains)) < sum(map(len, chains))


def _leaves(tree: Any) -> list[Any]:
    kind, what = tree
    if kind in ("sequence", "bare"):
        return [leaf for child in what for leaf in _leaves(child)]
    return [tree]


class Program:
    """A tree as a program with tools that count how often they ran."""

    def __init__(self, session: TwinSession, ran: list[Any]) -> None:
        self.session = session

        @session.tool(effects="pure")
        async def pure(x: int) -> Any:
            ran.append(("pure", x))
            return {"x": (x, str(x))}

        @session.tool(effects="once")
        async def once(x: int) -> int:
            ran.append(("once", x))
            return len(ran)

        @session.tool(effects="idempotent", key_argument="key")
        async def idempotent(x: int, key: str = "") -> str:
            ran.append(("idempotent", x))
            return key

        @session.tool(effects="pure")
        async def fail(x: int) -> None:
            ran.append(("fail", x))
            raise LookupError(x, len(ran))

        @session.tool(effects="pure")
        async def stream(x: int):
            ran.append(("stream", x))
            for i in range(x):
                yield (i, len(ran))

        @session.tool(effects="composite")
        async def composite(children: list) -> Any:
            ran.append(("composite", len(children)))
            results = [await self.run(child) for child in children]
            if len(children) == 3:
                raise ValueError(repr(results))
            return results

        self.tools = {t.raw.spec.name if hasattr(t, "raw") else t.spec.name: t for t in (
            pure, once, idempotent, fail, stream, composite)}  # fmt: skip

    async def run(self, tree: Any) -> Any:
        """Return the result of a tree; errors are values."""
        kind, what = tree
        try:
            return await self._run(kind, what)
        except (LookupError, ValueError) as error:
            return [type(error).__name__, str(error)]

    async def _run(self, kind: str, what: Any) -> Any:
        match kind:
            case "sequence":
                return [await self.run(child) for child in what]
            case "parallel":
                return await self.session.gather(*(lambda c=child: self.run(c) for child in what))
            case "bare":
                if self.session.is_async and not _needs_scopes(what):
                    return await asyncio.gather(*(self.run(child) for child in what))
                return [await self.run(child) for child in what]
            case "composite":
                return await self.tools["composite"](what)
            case "stream":
                return [item async for item in self.tools["stream"](what)]
            case "fact":
                return await self.session.resource(f"x:{what}")
            case _:
                return await self.tools[kind](what)


async def _play(record, run, tree, mode=None):
    ran: list[Any] = []
    async with record.run(run=run, mode=mode) as session:
        result = await Program(session, ran).run(tree)
        # The program continued after the last failure, which therefore does not run again.
        await session.checkpoint("end")
    return result, ran


async def _check(lab: Lab, tree: Any) -> None:
    run = f"tree-{next(_numbers)}"
    async with lab.connect() as record:
        live, _ = await _play(record, run, tree)
        before = [stored.body for stored in await record.commits(run)]
        tags = await record.tags(run, None)
        for mode in ("strict", "offline"):
            assert await _play(record, run, tree, mode) == (live, [])
        assert [stored.body for stored in await record.commits(run)] == before
        assert await _play(record, run, tree, "resume") == (live, [])
        assert set((await record.tags(run, None))[len(tags) :]) <= OWN


EXAMPLES = [
    ("sequence", [("fail", 0), ("fail", 0), ("once", 1), ("once", 1)]),
    ("parallel", [("parallel", [("once", 1), ("fail", 1)]), ("once", 1), ("fact", 1)]),
    ("composite", [("composite", [("once", 0), ("fail", 0), ("stream", 2)]), ("once", 0)]),
    ("bare", [("once", 1), ("pure", 1), ("once", 1)]),
    ("bare", [("composite", [("once", 1)]), ("composite", [("once", 1)])]),
    ("parallel", [("bare", [("idempotent", 0), ("stream", 2)]), ("bare", [("fail", 1)])]),
    ("bare", [("sequence", [("fact", 0), ("pure", 0)]), ("fact", 1)]),
    ("bare", [("sequence", [("fact", 0), ("pure", 0)]), ("sequence", [("pure", 1), ("fact", 2)])]),
]


@pytest.mark.parametrize("tree", EXAMPLES, ids=range(len(EXAMPLES)))
def test_replay_of_chosen_trees(lab: Lab, tree):
    """The chosen trees are hard: parallel failures, equal calls, failing composites."""
    lab.play(_check(lab, tree))
    assert lab.data_dir.is_dir()


@pytest.mark.thorough(quick="test_replay_of_chosen_trees")
@settings(max_examples=TREES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=trees)
def test_replay_of_generated_trees(lab: Lab, tree):
    """Every replay returns the live values, runs no body and writes nothing but a resume."""
    lab.play(_check(lab, tree))
    assert lab.data_dir.is_dir()
