"""Doubt: an effect that may have happened is never repeated without a decision."""

from typing import Any

import pytest

import hansard
from hansard import DID_NOT_HAPPEN, Happened, Verdict
from hansard.errors import ResultMismatch
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.fast(cases=99, slow=0)
"""Client-independent tests: a single sync-client case is in the quick run."""


class World:
    """Effects of a tool outside, and how often its answer is lost."""

    def __init__(self, losses: int = 1) -> None:
        self.effects: list[str] = []
        self.losses = losses

    async def send(self, to: str) -> str:
        """An effect whose answer may be lost after it happened."""
        self.effects.append(to)
        if self.losses:
            self.losses -= 1
            raise ConnectionResetError
        return f"sent to {to}"


async def _lost(record, world, effects="once", **options):
    """Record a run in which the answer to an effect is lost."""
    with pytest.raises(ConnectionError):
        await _send(record, world, effects, **options)


async def _send(record, world, effects="once", **options):
    async with record.run(run="r", **options) as session:

        @session.tool(effects=effects)
        async def send(to: str) -> Any:
            return await world.send(to)

        return await send("bob")


@pytest.mark.slow(cases=1)
async def test_once_waits_for_a_person(lab: Lab):
    """A doubt stops every resume with step and remedy; only the resumes are recorded."""
    world = World()
    async with lab.connect() as record:
        await _lost(record, world)
        with pytest.raises(hansard.InDoubt):
            await _send(record, world)
        with pytest.raises(hansard.InDoubt) as doubt:
            await _send(record, world)
        for mode in ("strict", "offline"):
            with pytest.raises(hansard.InDoubt):
                await _send(record, world, mode=mode)
        assert (await record.tags("r")).count("step.in_doubt.v1") == 1
    assert world.effects == ["bob"]
    assert (doubt.value.run, doubt.value.agent, doubt.value.step.number) == ("r", "ada", 1)
    assert "ConnectionResetError" in str(doubt.value)
    assert " run settle r ada#1 --happened RESULT or --did-not-happen" in str(doubt.value)


async def test_an_equal_call_is_the_one_in_doubt(lab: Lab):
    """The doubt holds in the session where it arose; another call is another effect."""
    world = World()
    async with lab.connect() as record, record.run(run="r") as session:

        @session.tool(effects="once")
        async def send(to: str) -> str:
            return await world.send(to)

        with pytest.raises(ConnectionError):
            await send("bob")
        for _ in range(2):
            with pytest.raises(hansard.InDoubt):
                await send("bob")
        assert await send("eve") == "sent to eve"
    assert world.effects == ["bob", "eve"]


@pytest.mark.parametrize("step", ["1", "ada#1"])
async def test_a_person_says_that_it_happened(lab: Lab, step):
    """`happened` with a result completes the step: no body runs, replay returns that result."""
    world = World()
    async with lab.connect() as record:
        await _lost(record, world)
        await record.settle("r", step, "happened", result=("ok", {1}), by="eve", reason="seen")
        await record.settle("r", step, "happened", result=("ok", {1}), by="eve")
        assert await _send(record, world) == ("ok", {1})
        assert await _send(record, world, mode="strict") == ("ok", {1})
        [settled] = await record.steps("r")
        assert (settled.status, settled.verdict, settled.settled_by) == (
            "completed",
            "happened",
            "eve",
        )
        assert (await record.tags("r")).count("step.settled.v1") == 1
    assert world.effects == ["bob"]


@pytest.mark.fast(cases=4, slow=0)
@pytest.mark.parametrize(
    ("step", "verdict", "error"),
    [
        ("1", "reuse", hansard.errors.Refused),
        ("1", "run_again", hansard.errors.Refused),
        ("9", "happened", hansard.errors.BusError),
        ("bob#1", "happened", hansard.errors.BusError),
        ("one", "happened", hansard.errors.BadName),
        ("#1", "happened", None),
        ("1", "perhaps", hansard.BadValue),
    ],
)
async def test_a_settlement_that_cannot_be_is_refused(record: TwinRecord, step, verdict, error):
    """Settling an unknown step, or with an impossible verdict, is refused; nothing is written."""
    world = World()
    await _lost(record, world)
    before = await record.commits("r")
    if error is None:
        await record.settle("r", step, verdict, result=1)
        assert len(await record.commits("r")) > len(before)
        return
    with pytest.raises(error):
        await record.settle("r", step, verdict)
    with pytest.raises(hansard.errors.BusError):
        await record.settle("no such run", "1", "happened")
    with pytest.raises(hansard.BadValue):
        await record.settle("r", "1", "happened", result=object())
    assert await record.commits("r") == before


async def test_a_settled_result_must_fit_the_tool_s_return_type(record: TwinRecord):
    """The next start stops with fact, value and remedy; another result can be given until the agent
    continues. A policy's answer is checked before it is recorded.
    """

    async def start(record, run="r", **options) -> int:
        async with record.run(run=run, **options) as session:

            @session.tool()
            async def count(of: str) -> int:
                raise TimeoutError

            @session.tool(effects="pure")
            async def double(number: int) -> int:
                return 2 * number

            return await double(await count("invoices"))

    with pytest.raises(TimeoutError):
        await start(record)
    await record.settle("r", "1", "happened", result="20")
    with pytest.raises(ResultMismatch):
        await start(record)
    with pytest.raises(ResultMismatch) as mismatch:
        await start(record)
    assert mismatch.value.fact == "Expected `int`, got `str`"
    assert "hansard" in mismatch.value.remedy
    assert "run settle r ada#1 --happened RESULT" in mismatch.value.remedy
    await record.settle("r", "1", "happened", result=20)
    assert await start(record) == 40
    with pytest.raises(hansard.errors.Refused, match="went on"):
        await record.settle("r", "1", "happened", result=30)

    with pytest.raises(TimeoutError):
        await start(record, "q")
    commits = len(await record.commits("q"))
    with pytest.raises(ResultMismatch):
        await start(record, "q", settle=lambda _: Happened("20"))
    state = await record.state("q")
    assert state.agent("ada").steps[1].verdict is None
    assert len(await record.commits("q")) > commits
    assert await start(record, "q", settle=lambda _: Happened(20)) == 40


@pytest.mark.parametrize("answer", ["happened", "did not happen", "unknown", "raises"])
async def test_a_reconciling_tool_asks_the_world(lab: Lab, answer):
    """`reconcile(fn)` gets the arguments; if it does not know or fails, a person must settle."""
    world = World()
    recipients = []

    async def ask(to: str):
        recipients.append(to)
        if answer == "raises":
            raise LookupError("no such mailbox")
        if answer == "unknown":
            return None
        return Happened("found") if answer == "happened" else DID_NOT_HAPPEN

    async with lab.connect() as record:
        await _lost(record, world, hansard.reconcile(ask))
        if answer in ("unknown", "raises"):
            with pytest.raises(hansard.InDoubt) as doubt:
                await _send(record, world, hansard.reconcile(ask))
            notes = getattr(doubt.value, "__notes__", [])
            assert any("no such mailbox" in note for note in notes) is (answer == "raises")
            assert world.effects == ["bob"]
        else:
            expected = "found" if answer == "happened" else "sent to bob"
            assert await _send(record, world, hansard.reconcile(ask)) == expected
            assert await _send(record, world, hansard.reconcile(ask), mode="strict") == expected
            assert len(world.effects) == (1 if answer == "happened" else 2)
    assert recipients == ["bob"]


async def test_a_reconciling_tool_gets_the_key_that_its_call_had(lab: Lab):
    """A reconciling function gets the key of the call in doubt; another call has another key."""
    keys: list[str] = []
    questions: list[tuple[str, str]] = []

    async def ask(to: str, key: str):
        questions.append((to, key))
        return Happened("found") if key in keys else DID_NOT_HAPPEN

    async def both(record):
        async with record.run(run="r") as session:

            @session.tool(effects=hansard.reconcile(ask), key_argument="key")
            async def send(to: str, key: str = "") -> str:
                keys.append(key)
                if to == "bob" and len(keys) == 2:
                    raise ConnectionResetError
                return f"sent to {to}"

            return [await send("eve"), await send("bob")]

    async with lab.connect() as record:
        with pytest.raises(ConnectionError):
            await both(record)
        assert await both(record) == ["sent to eve", "found"]
        assert [step.key for step in await record.steps("r")] == keys
    assert questions == [("bob", keys[1])]
    assert len({*keys}) == 2


@pytest.mark.parametrize("verdict", [Happened("known"), DID_NOT_HAPPEN, None])
async def test_a_policy_may_settle(lab: Lab, verdict):
    """`settle=` is called for each doubt, and its verdict is recorded as the policy's."""
    world = World()
    seen = []

    def by_rule(step):
        seen.append((step.tool, step.status))
        return verdict

    async with lab.connect() as record:
        await _lost(record, world)
        if verdict is None:
            with pytest.raises(hansard.InDoubt):
                await _send(record, world, settle=by_rule)
        else:
            expected = "sent to bob" if verdict is DID_NOT_HAPPEN else "known"
            assert await _send(record, world, settle=by_rule) == expected
            [settled] = await record.steps("r")
            assert settled.settled_by == "policy:by_rule"
    assert seen == [("send", "in_doubt")]


async def _edited(record, world, before, effects="once", **options):
    """Make an effect after an earlier step that may be edited."""
    async with record.run(run="r", **options) as session:
        return await _calls(session, world, before, effects)


async def _calls(session, world, before, effects="once"):
    @session.tool(effects="pure")
    async def earlier(text: str) -> str:
        return text

    @session.tool(effects=effects)
    async def send(to: str) -> int:
        await world.send(to)
        return len(world.effects)

    await earlier(before)
    return await send("bob")


async def test_a_diverged_effect_may_run_again(lab: Lab):
    """`run_again`, by a person or a policy, repeats the effect once, for one divergence."""
    world = World(losses=0)
    async with lab.connect() as record:
        assert await _edited(record, world, "a") == 1
        with pytest.raises(hansard.Diverged):
            await _edited(record, world, "b", settle=lambda step: None)
        await record.settle("r", "2", "run_again")
        assert await _edited(record, world, "b") == 2
        assert await _edited(record, world, "b") == 2
        with pytest.raises(hansard.errors.Refused, match=NOT_DIVERGED):  # it is not one itself
            await record.settle("r", "4", "run_again")
        with pytest.raises(hansard.Diverged):  # the settlement is used up
            await _edited(record, world, "c")
        assert await _edited(record, world, "c", settle=lambda step: Verdict.RUN_AGAIN) == 3
        assert await _edited(record, world, "d", settle=lambda step: Verdict.REUSE) == 3
        assert await _edited(record, world, "d") == 3
    assert len(world.effects) == 3


NOT_DIVERGED = "--reuse and --run-again settle only a call that stopped with Diverged"


@pytest.mark.parametrize("verdict", [Verdict.REUSE, Verdict.RUN_AGAIN])
async def test_only_what_diverged_is_settled_as_diverged(record: TwinRecord, verdict: Verdict):
    """A completed call whose divergence did not end the last session gets no verdict on it; nor
    does another call than the one that diverged. Divergences of branches are found in their group.
    """
    world, refused = World(losses=0), hansard.errors.Refused
    assert await _edited(record, world, "a") == 1
    before = await record.commits("r")
    with pytest.raises(refused, match=r"#2 \(send\) is completed(.|\n)*--replace \w+#2=FILE"):
        await record.settle("r", "2", verdict)
    assert await record.commits("r") == before
    with pytest.raises(hansard.Diverged) as diverged:
        await _edited(record, world, "b")
    difference = diverged.value.difference
    assert (difference["step"], difference["field"]) == (2, "after")
    assert difference["recorded"] != difference["now"]
    with pytest.raises(refused, match=NOT_DIVERGED):
        await record.settle("r", "1", verdict)
    for text in (str(diverged.value), "of another kind"):  # the text decides nothing
        with pytest.raises(RuntimeError):
            async with record.run(run="r"):
                raise RuntimeError(text)
        with pytest.raises(refused, match=NOT_DIVERGED):
            await record.settle("r", "2", verdict)
    with pytest.raises(ExceptionGroup):
        async with record.run(run="r") as session:
            try:
                await _calls(session, world, "b")
            except hansard.Diverged as error:
                raise ExceptionGroup("of branches", [OSError("other"), error]) from None
    await record.settle("r", "2", verdict)
    assert len(world.effects) == 1


@pytest.mark.parametrize("error", [hansard.errors.NotDone, LookupError])
async def test_what_surely_did_not_happen_runs_after_an_edit(record: TwinRecord, error):
    """A `once` step that failed safely has no effect: an edit before it needs no decision. One that
    failed otherwise may have had its effect, and stops.
    """
    ran = []
    for before in ("a", "edited"):
        async with record.run(run="r") as session:

            @session.tool(effects="pure")
            async def earlier(text: str) -> str:
                return text

            @session.tool(effects="once")
            async def send() -> str:
                ran.append(before)
                if before == "a":
                    raise error
                return "sent"

            await earlier(before)
            if before == "a":
                with pytest.raises(error):
                    await send()
            elif error is LookupError:
                with pytest.raises(hansard.Diverged):
                    await send()
            else:
                assert await send() == "sent"
    assert ran == (["a"] if error is LookupError else ["a", "edited"])
