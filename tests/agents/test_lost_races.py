"""Lost races: another writer appends between the read and the append of the first."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents import experiments, runs
from hansard.agents.access import principals, roles
from hansard.agents.access.carried import AccumulatedLabel
from hansard.agents.access.principals import AccessDenied, Denials
from hansard.agents.policy import approvals
from hansard.agents.policy import permits as refusals
from hansard.agents.policy.approvals import Approvals, LogBudgets
from hansard.agents.policy.gate import Budget
from hansard.agents.runs import Options
from hansard.agents.team.tasks import TeamStore
from hansard.agents.team.twins import Heartbeat
from hansard.agents.workspace import Workspace
from hansard.bus.clock import Clock
from hansard.bus.log import Append
from hansard.domain import access, ids, principal
from hansard.domain import approval as budget
from hansard.domain.approval import ApprovalRequested
from hansard.domain.events import Actor
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream
from hansard.domain.label import parse
from hansard.domain.principal import PrincipalShown
from hansard.domain.run import RunStarted
from hansard.state.replay import tasks_of
from hansard.state.repository import TRIES_MAX
from tests.agents.rivals import RivalLog

WAIT_S = 60.0
WHY = {"approver": "eve", "because": "it was published"}
Work = Callable[[Workspace], Awaitable[Any]]
BEGUN = RunStarted(workflow="w")
_clock = Clock()


class Race:
    def __init__(self, one: hansard.AsyncRecord, other: hansard.AsyncRecord) -> None:
        self.record = one
        self.early = one.workspace
        self._late = other.workspace

    def late(self, log: RivalLog) -> Workspace:
        """Return the losing workspace, written through a log that appends too late."""
        return self._late.through(log)

    def rival(self, work: Callable[[], Awaitable[Any]], times: int = 1, after: int = 0) -> RivalLog:
        """Return the log of the loser."""
        return RivalLog(self._late.log, work, times, after)

    async def lose(self, work: Work, rival: Work | None = None, after: int = 0) -> Any:
        """Return the outcome of some work whose append loses to other work."""
        first = rival if rival is not None else work
        log = self.rival(lambda: first(self.early), after=after)
        try:
            return await work(self.late(log))
        except hansard.HansardError as error:
            return type(error)
        finally:
            assert log.lost == 1

    async def tags(self, stream: StreamId) -> list[str]:
        """Return the types of a stream's events."""
        stored = await self.early.log.read(stream)
        return [event.type for each in stored for event in each.commit.events]


@pytest.fixture
async def race(data_dir: Path, workspace: str) -> AsyncIterator[Race]:
    """Yield a fresh workspace over two connections."""
    async with (
        hansard.connect_async(workspace, data_dir=data_dir) as one,
        hansard.connect_async(workspace, data_dir=data_dir) as other,
    ):
        yield Race(one, other)


# ---------------------------------------------------------------- runs


async def test_a_score_that_another_added_meanwhile_is_not_added_again(race: Race):
    """The same judge has already given the same score."""
    async with race.record.run("w", run="r"):
        pass

    async def score(workspace: Workspace) -> bool:
        return await experiments.score(workspace, "r", {"good": 1.0}, by="eve")

    assert await race.lose(score) is False
    assert (await race.tags(RunStream("r"))).count("run.scored.v1") == 1


async def test_a_run_ends_once(race: Race):
    """Ending a run again in the same way adds nothing; in another way it is refused."""
    for run in ("r", "q"):
        await race.early.log.append(Append(RunStream(run), race.early.commit(1, "ada", [BEGUN])))

    async def finish(workspace: Workspace) -> bool:
        return await runs.finish(workspace, "r")

    async def cancel(workspace: Workspace) -> bool:
        return await runs.cancel(workspace, "q")

    assert await race.lose(finish) is False
    assert await race.lose(cancel, lambda each: runs.finish(each, "q")) is hansard.errors.Refused


async def test_a_step_is_settled_once(race: Race):
    """The first settlement counts, and takes the agent's epoch once."""
    with contextlib.suppress(ConnectionError):
        async with race.record.run("w", run="r", agent="ada", role="a") as session:

            @session.tool(effects="once")
            async def send() -> None:
                raise ConnectionResetError

            await send()

    async def settle(workspace: Workspace) -> None:
        await runs.settle(workspace, "r", "1", "happened", result="x" * 100_000, by="eve")

    assert await race.lose(settle) is None
    tags = await race.tags(AgentStream("r", "a", "ada"))
    assert tags.count("step.settled.v1") == 1


async def test_a_task_is_reopened_once(race: Race):
    """The loser finds the task open."""
    async with race.record.run("w", run="r") as session:
        await session.team.add("t")
        task = await session.team.claim()
        assert task is not None
        await session.team.fail(task, "no")

    async def reopen(workspace: Workspace) -> bool:
        return await runs.reopen(workspace, "r", "t1", by="eve")

    assert await race.lose(reopen) is False
    assert (await race.tags(tasks_of("r"))).count("task.reopened.v1") == 1


async def test_an_agent_that_joins_beside_another_is_on_the_roster_with_it(race: Race):
    """Joining uses the run's current state."""
    async with race.record.run("w", run="r", agent="ada"):

        async def join(name: str, workspace: Workspace) -> None:
            opened = await runs.open_agent_here(workspace, name, "b", Options(run="r"))
            await runs.close_agent(workspace, opened, None)

        await race.lose(lambda each: join("bob", each), lambda each: join("cyn", each))
    assert set((await race.early.states.life("r")).roster) == {"ada", "bob", "cyn"}


# ---------------------------------------------------------------- labels


async def _shown(race: Race) -> None:
    """Show an agent a secret, and let it write a key from it."""
    async with race.record.run("w", run="r", agent="ada", role="a") as session:

        @session.tool(effects="pure", gives="secret")
        async def look() -> int:
            return 1

        await look()
        await session.board.put("k", 1)


@pytest.mark.parametrize("which", [{"agent": "ada"}, {"key": "k"}, {"principal": "ada"}])
async def test_a_label_is_lowered_once(race: Race, which: dict[str, str]):
    """A lowering that lost its race does not use the earlier label."""
    await _shown(race)
    await principals.register(race.early, "ada")
    secret = PrincipalShown(label="secret", role="a")
    await race.early.repository.record(
        WorkspaceStream(principal.KIND, "ada"), "ada", lambda _: [secret]
    )
    run = None if "principal" in which else "r"

    async def lower(workspace: Workspace) -> Any:
        return await approvals.declassify(workspace, run, approvals.Lowering(**which, **WHY))

    assert await race.lose(lower) is hansard.errors.Refused


async def test_a_principal_is_shown_something_once(race: Race):
    """Two sessions of one principal are shown the same at once."""
    await principals.register(race.early, "ada")
    known = await principals.read(race.early, "ada")

    async def show(workspace: Workspace) -> None:
        await AccumulatedLabel(workspace.log, known, Actor("ada"), "a").shown(parse("secret"))

    await race.lose(show)
    tags = await race.tags(WorkspaceStream(principal.KIND, "ada"))
    assert tags.count("principal.shown.v1") == 1


async def test_what_is_written_for_a_principal_has_the_label_it_carries_then(race: Race):
    """Also where it was shown more between the decision and the append."""
    await principals.register(race.early, "ada")
    known = await principals.read(race.early, "ada")
    stream = WorkspaceStream("kind", "x")

    async def write(workspace: Workspace) -> Any:
        commit = workspace.commit(1, "ada", [BEGUN])
        carried = AccumulatedLabel(workspace.log, known, Actor("ada"), "a")
        return (await carried.log.append(Append(stream, commit))).commit.label

    async def show(workspace: Workspace) -> None:
        await AccumulatedLabel(workspace.log, known, Actor("ada"), "a").shown(parse("secret"))

    assert await race.lose(write, show) == parse("secret")


# ---------------------------------------------------------------- policy


@pytest.mark.parametrize(("limit", "granted"), [(10.0, False), (12.0, True)])
@pytest.mark.parametrize("before", [0, 1])
async def test_a_share_is_set_aside_of_what_others_left(race, limit, granted, before):
    """A reservation counts others' shares, for a new budget and for a known one."""
    rule = Budget(name="b", limit=limit, reserve=6)

    async def reserve(workspace: Workspace) -> bool:
        count = LogBudgets(workspace.log, workspace.states, "r", "ada", _clock)
        for number in range(before):
            await count.spend(rule, f"before {number}", 0.0)
        return await count.reserve(rule, "late")

    async def early(workspace: Workspace) -> None:
        count = LogBudgets(workspace.log, workspace.states, "r", "eve", _clock)
        assert await count.reserve(rule, "early")

    assert await race.lose(reserve, early, after=before) is granted
    tags = await race.tags(KeyStream("r", budget.key_of("b")))
    assert tags.count("budget.reserved.v1") == 1 + granted


async def test_a_question_is_answered_once(race: Race):
    """A denial after another's grant is refused."""
    async with race.record.run("w", run="r", agent="ada"):
        pass
    approval = ids.marked(race.record.workspace.clock.new_id(), "r")
    question = ApprovalRequested(
        approval=approval,
        agent="ada",
        role="agent",
        step=1,
        tool="send",
        arguments=msgspec.Raw(b"{}"),
        call="c",
        fingerprint="f",
        rule="ask",
        timeout_ms=600_000,
    )
    await Approvals(race.early.states, "r").record(question, "ada")

    async def deny(workspace: Workspace) -> None:
        await approvals.answer(workspace, approval, granted=False, by="eve")

    async def grant(workspace: Workspace) -> None:
        await approvals.answer(workspace, approval, granted=True, by="bob")

    assert await race.lose(deny, grant) is hansard.errors.Refused
    assert await race.tags(approvals.stream_of("r")) == [
        "approval.requested.v1",
        "approval.granted.v1",
    ]


async def _refuse(workspace: Workspace) -> None:
    await refusals.note(workspace, "eve", "clerk", "query", "it may not")


async def _deny(workspace: Workspace) -> None:
    async with Denials(workspace) as denials:
        await denials.note(AccessDenied("no such principal", "eve", "clerk"), "open")


@pytest.mark.parametrize("refuse", [_refuse, _deny])
async def test_refusals_at_once_are_both_on_record(race: Race, refuse: Work):
    """The later one follows on the other."""
    assert await race.lose(refuse) is None
    tags = await race.tags(WorkspaceStream(access.KIND, access.STRANGER))
    assert tags == ["access.refused.v1"] * 2


# ---------------------------------------------------------------- what outlives runs


async def test_answers_and_views_at_once_are_all_on_record(race: Race):
    """The later ones follow on the others."""
    async with race.record.run("w", run="r"):
        pass

    async def answered(workspace: Workspace) -> None:
        await roles.record_query(
            workspace, "clerk", "select 1", head=1, position=1, rows=1, cut=False
        )

    async def served(workspace: Workspace) -> None:
        await roles.serve(workspace, "clerk", "r")

    assert await race.lose(answered) is None
    assert await race.tags(WorkspaceStream(access.QUERY_KIND, "clerk")) == ["query.answered.v1"] * 2
    await race.lose(served)
    assert await race.tags(roles.stream_of("r", "clerk")) == ["view.served.v1"] * 2


async def test_what_another_stated_meanwhile_is_not_stated_again(race: Race):
    """A price, a principal."""
    terms = experiments.Terms(since=_clock.now())

    async def price(workspace: Workspace) -> bool:
        return await experiments.record_price(
            workspace, "m", {"input_tokens": 1.0}, terms, by="eve"
        )

    async def register(workspace: Workspace) -> bool:
        return await principals.register(workspace, "ada")

    assert await race.lose(price) is False
    assert await race.lose(register) is False
    assert await race.tags(WorkspaceStream(principal.KIND, "ada")) == ["principal.registered.v1"]


# ---------------------------------------------------------------- heartbeats


@pytest.mark.slow
async def test_a_heartbeat_that_loses_again_and_again_leaves_the_others_a_while(race: Race):
    """Immediate retries are bounded, and the heartbeat continues before its lease expires."""
    lease_ms = 9_000  # it beats each third of it, and tries again after a third of that
    async with race.record.run("w", run="r", agent="ada", role="a") as session:
        await session.team.add("t")
        task = await session.team.claim(lease_s=3_600.0)
        assert task is not None
        log = race.rival(lambda: session.team.add("more"), times=TRIES_MAX + 3)
        late = race.late(log)
        store = TeamStore(late.states, AgentStream("r", "a", "ada"))
        beat = Heartbeat(late.boards, store, Actor("ada"), task.id, task.number, lease_ms)
        await beat.start(at_once=True)
        try:
            await asyncio.wait_for(log.won.wait(), WAIT_S)
        finally:
            await beat.stop()
        await session.team.complete(task)
    assert log.lost == TRIES_MAX + 3
    assert log.tries[TRIES_MAX] - log.tries[TRIES_MAX - 1] >= 0.9
