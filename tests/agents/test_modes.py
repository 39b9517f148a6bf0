"""Modes: recorded calls are reused in each; other calls run, stop, or show both sides."""

import linecache
import warnings

import pytest

import hansard
from hansard.bus.commits import revive_all
from hansard.domain.agent import AgentLeft
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.fast(cases=99, slow=0)


async def _three(session, ran, edits=()):
    """Make three chained calls; `edits` changes an argument of some."""

    @session.tool(effects="pure")
    async def step(name: str) -> str:
        ran.append(name)
        return name.upper() if "same" not in edits else name[0].upper()

    names = [name + "!" if name in edits else name for name in ("a", "b", "c")]
    return [await step(name) for name in names]


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("mode", ["strict", "offline"])
async def test_replay_runs_nothing_and_writes_nothing(lab: Lab, mode):
    """Strict and offline return recorded results, run no body and append nothing."""
    ran: list[str] = []
    async with lab.connect() as record:
        async with record.run(run="r") as session:
            live = await _three(session, ran)
            await session.checkpoint("done", count=3)
        before = await record.commits("r")
        async with record.run(run="r", mode=mode) as session:
            assert await _three(session, ran) == live
            await session.checkpoint("done", count=3)
            assert await session.checkpoint_data("done") == {"count": 3}
        after = await record.commits("r")
    assert ran == ["a", "b", "c"]
    assert [stored.body for stored in after] == [stored.body for stored in before]


@pytest.mark.parametrize("mode", ["strict", "offline"])
async def test_a_miss_shows_both_sides(lab: Lab, mode):
    """A call that is not recorded stops the replay and shows the recorded and the new call."""
    ran: list[str] = []
    async with lab.connect() as record:
        async with record.run(run="r") as session:
            await _three(session, ran)
        with pytest.raises(hansard.errors.Miss) as miss:
            async with record.run(run="r", mode=mode) as session:
                await _three(session, ran, edits=("b",))
    assert ran == ["a", "b", "c"]
    assert miss.value.now == 'step {"name":"b!"}'
    assert miss.value.expected == 'step 2: step {"name":"b"} -> completed'
    assert str(miss.value).startswith(f"{mode} replay met a call that is not on record")
    assert miss.value.now in str(miss.value)
    assert miss.value.expected in str(miss.value)
    assert '\n  = step 1: step {"name":"a"} -> completed\n' in str(miss.value)


async def test_a_miss_past_the_end_says_so(record: TwinRecord):
    """One call too many is a miss against nothing; caught, the strict replay fails at its end."""

    async def one_more(record, mode=None):
        async with record.run(run="r", mode=mode) as session:

            @session.tool(effects="pure")
            async def step(i: int) -> int:
                return i

            await step(0)
            if mode:
                with pytest.raises(hansard.errors.Miss, match="nothing more in scope"):
                    await step(1)
                with pytest.raises(hansard.errors.Miss, match="checkpoint"):
                    await session.checkpoint("never")

    await one_more(record)
    await one_more(record, "offline")
    with pytest.raises(hansard.errors.ReplayDiffers, match="1 call made besides") as differs:
        await one_more(record, "strict")
    assert (differs.value.not_made, differs.value.made_besides) == ([], ['step {"i":1}'])


async def test_a_strict_replay_that_makes_fewer_calls_fails(lab: Lab):
    """Ending early or leaving a call out fails with both sides shown; offline permits it."""
    ran: list[str] = []

    async def some(record, count, mode=None, error=None):
        async with record.run(run="r", mode=mode) as session:

            @session.tool(effects="pure")
            async def step(i: int) -> int:
                ran.append(f"{mode} {i}")
                return 0

            for i in range(count):
                await step(i)
            if error is not None:
                raise error

    async with lab.connect() as record:
        await some(record, 6)
        before = await record.commits("r")
        await some(record, 6, "strict")
        with pytest.raises(
            hansard.errors.ReplayDiffers, match="1 call on record not made"
        ) as differs:
            await some(record, 5, "strict")
        assert differs.value.not_made == ['step 6: step {"i":5} -> completed']
        assert [line[:10] for line in str(differs.value).splitlines()[1:5]] == [
            "  ... 3 as",
            "  = step 4",
            "  = step 5",
            "  - step 6",
        ]
        with pytest.raises(hansard.errors.Miss, match="6 calls on record not made"):
            await some(record, 0, "strict")
        own = ZeroDivisionError("mine")
        with pytest.raises(ZeroDivisionError) as kept:
            await some(record, 4, "strict", own)
        assert kept.value is own
        assert "2 calls on record not made" in own.__notes__[0]
        await some(record, 2, "offline")
        assert [each.body for each in await record.commits("r")] == [each.body for each in before]
    assert [each for each in ran if not each.startswith("None")] == []


async def test_what_a_later_session_left_behind_is_not_required(lab: Lab):
    """A strict replay is compared with the newest session, its answers included."""
    ran: list[str] = []
    async with lab.connect() as record:

        async def go(mode=None, **options):
            async with record.run(run="r", mode=mode) as session:
                return await _three(session, ran, **options)

        await go()
        await go(edits=("b", "same"))  # a, b! and, since the result is equal, the old c
        await go("strict", edits=("b", "same"))
        with pytest.raises(hansard.errors.ReplayDiffers) as differs:
            await go("strict")
        assert differs.value.not_made == ['step 4: step {"name":"b!"} -> completed']
        assert differs.value.made_besides == ['step 2: step {"name":"b"} -> completed']
        assert await go() == ["A", "B", "C"]  # undone: replayed, with a warning
        await go("strict")
        with pytest.raises(hansard.errors.ReplayDiffers):
            await go("strict", edits=("b", "same"))
        with pytest.raises(ZeroDivisionError):
            async with record.run(run="r"):
                raise ZeroDivisionError
        await go("strict")
        both = r'(?s)1 call on record not made, 1 call made besides.*\+ step \{"name":"c!"\}'
        with pytest.raises(hansard.errors.ReplayDiffers, match=both):
            async with record.run(run="r", mode="strict") as session:
                with pytest.raises(hansard.errors.Miss):
                    await _three(session, ran, edits=("c",))
    assert ran == ["a", "b", "c", "b!"]


@pytest.mark.fast(cases=1, slow=0)
async def test_strict_counts_what_a_resume_loop_composite_and_fork_were_answered(
    record: TwinRecord,
):
    """Skipped items, calls in answered composites and a fork's own answers all count."""

    async def go(run, mode=None, kill=False, items=6, compose=True):
        async with record.run(run=run, mode=mode) as session:

            @session.tool(effects="pure")
            async def square(i: int) -> int:
                if kill and i == 4:
                    raise KeyboardInterrupt
                return i * i

            @session.tool(effects="composite")
            async def both() -> int:
                return await square(10) + await square(11)

            async for item in session.resumable(range(items), every=2):
                await square(item)
            if compose:
                await both()

    with pytest.raises(KeyboardInterrupt):
        await go("r", kill=True)
    await go("r")
    await go("r")
    events = revive_all(stored.commit for stored in await record.commits("r"))
    left = [each for each in events if isinstance(each, AgentLeft)]
    # Four items; then all six, the composite and its two calls.
    assert [each.answered for each in left] == [None, ((1, 4),), ((1, 9),)]
    await go("r", "strict")
    with pytest.raises(hansard.errors.ReplayDiffers, match="1 call on record not made") as differs:
        await go("r", "strict", compose=False)
    assert differs.value.not_made[0].startswith("step 7: both")
    fork = await record.fork("r", at="ada@6")
    await go(fork)
    await go(fork, "strict")
    with pytest.raises(hansard.errors.ReplayDiffers, match="1 call on record not made"):
        await go(fork, "strict", compose=False)


async def test_an_edited_later_step_replays_the_earlier_ones(lab: Lab):
    """After an edit only the edited step and the later ones run."""
    ran: list[str] = []
    async with lab.connect() as record:
        async with record.run(run="r") as session:
            await _three(session, ran)
        async with record.run(run="r") as session:
            assert await _three(session, ran, edits=("b",)) == ["A", "B!", "C"]
    assert ran == ["a", "b", "c", "b!", "c"]


async def test_a_caught_failure_is_raised_again_on_resume(record: TwinRecord):
    """A resume raises a caught failure again, but runs the last failed call of a chain again."""
    ran: list[str] = []
    last = ""
    for _ in range(2):
        async with record.run(run="r") as session:

            @session.tool(effects="pure")
            async def step(name: str) -> str:
                ran.append(name)
                if name.startswith("bad") and len(ran) < 4:
                    raise ValueError(name)
                return name

            with pytest.raises(ValueError, match="bad 1"):
                await step("bad 1")
            await step("ok")
            try:
                last = await step("bad 2")
            except ValueError:
                last = "failed"
    assert ran == ["bad 1", "ok", "bad 2", "bad 2"]
    assert last == "bad 2"


async def test_a_failure_noted_by_a_fact_was_gone_on_from(record: TwinRecord):
    """A checkpoint, message or hand-off after a failure shows that the agent continued."""
    for run, effects, note in (
        ("checkpoint", "pure", lambda s: s.checkpoint("gave up")),
        ("message", "once", lambda s: s.message("tool", "it failed")),
        ("hand-off", "once", lambda s: s.hand_off("bob", reason="it failed")),
    ):
        ran: list[int] = []
        for _ in range(2):
            async with record.run(run=run) as session:

                @session.tool(effects=effects)
                async def step() -> None:
                    ran.append(1)
                    raise ValueError("bad")

                with pytest.raises(ValueError, match="bad"):
                    await step()
                await note(session)
        assert ran == [1]


async def test_what_cannot_be_opened_says_why(record: TwinRecord):
    """An unknown run, mode, workflow or option is a clear error, and nothing is written."""

    async def opens(workflow, error, why, **options):
        with pytest.raises(error, match=why):
            async with record.run(workflow, **options):
                raise AssertionError

    await opens(None, hansard.errors.BusError, "was not found", run="r", mode="resume")
    await opens(None, hansard.errors.BusError, "was not found", run="r", mode="strict")
    await opens(None, hansard.errors.AgentError, "name of its workflow")
    await opens("w", hansard.BadValue, "never", mode="never")
    await opens("w", hansard.errors.BadOption, "no option 'colour'", colour="red")
    assert await record.runs() == []
    async with record.run("w", run="r"):
        pass
    before = await record.commits("r")
    await opens("v", hansard.errors.Refused, "of workflow 'w', not 'v'", run="r")
    await opens(None, hansard.errors.Refused, "has role 'writer'", run="r", role="reader")
    await opens(None, hansard.errors.BusError, "was not found", run="r", agent="bob", mode="strict")
    assert await record.commits("r") == before


async def test_a_run_id_may_be_chosen(record: TwinRecord):
    """A caller's id is the run's id; a run without one gets a UUID version 7; both are listed."""
    async with record.run("first", run="my run/1", labels={"team": "a"}) as session:
        assert (session.run, session.mode, session.agent) == ("my run/1", "live", "ada")
    async with record.run("second") as session:
        assert session.run[14] == "7"
    async with record.run(None, run="my run/1") as again:
        assert again.mode == "resume"
    runs = await record.runs()
    assert [(run, life.workflow) for run, life in runs] == [
        (session.run, "second"),
        ("my run/1", "first"),
    ]
    assert runs[1][1].labels == {"team": "a"}


async def test_an_answer_of_an_earlier_source_is_a_warning(record: TwinRecord):
    """A resume warns of an answer that another source of the tool than the present one gave."""

    def tool(session, factor: int, version: str = ""):
        if factor == 2:

            @session.tool(effects="pure", version=version)
            async def times(number: int) -> int:
                return number * 2
        else:

            @session.tool(effects="pure", version=version)
            async def times(number: int) -> int:
                return number * 3

        return times

    async with record.run(run="r") as session:
        assert await tool(session, 2)(1) == 2
    async with record.run(run="r") as session:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", hansard.errors.ToolChanged)
            times = tool(session, 3)
            assert [await times(1), await times(2)] == [2, 6]
    for factor in (3, 2):
        async with record.run(run="r") as session:
            with pytest.warns(
                hansard.errors.ToolChanged, match="source of times has changed"
            ) as caught:
                assert await tool(session, factor)(1) == 2
            assert len(caught) == 1
    for _ in range(2):
        async with record.run(run="r") as session:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert await tool(session, 3, version="2")(1) == 3


async def test_a_changed_tool_is_a_warning(record: TwinRecord):
    """A changed tool warns once on resume, is a miss in strict, and passes offline."""
    async with record.run(run="r") as session:

        @session.tool(effects="pure")
        async def answer() -> int:
            return 41

        await answer()

    async def edited(version: str = "", **options):
        async with record.run(run="r", **options) as session:

            @session.tool(effects="pure", version=version)
            async def answer() -> int:
                return 42

            return [await answer(), await answer() if version else None]

    with pytest.warns(hansard.errors.ToolChanged, match="source of answer has changed") as caught:
        assert await edited() == [41, None]
    [warning] = caught
    assert warning.filename == __file__
    assert "@session.tool" in linecache.getline(__file__, warning.lineno)
    with pytest.raises(hansard.errors.Miss, match="other source"):
        await edited(mode="strict")
    assert await edited(mode="offline") == [41, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hansard.errors.ToolChanged)
        assert await edited("2") == [42, 42]
    with pytest.raises(hansard.errors.Miss):
        await edited("3", mode="offline")
