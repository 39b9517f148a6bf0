"""Facts: checkpoints, messages, decisions, resources and hand-offs are recorded once."""

import contextlib
from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents import workspace
from hansard.bus.log import COMMIT_BYTES_MAX
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.fast(cases=99, slow=0)


async def glance(session):
    """A value that a call returned, to decide by."""

    @session.tool(effects="pure")
    async def look() -> str:
        return "seen"

    return await look()


async def _everything(session):
    await session.message("user", "find papers", tokens=3)
    await session.resource("file:a.py", "read")
    await session.decide(
        "Which first?",
        selected="p1",
        alternatives=["p1", {"id": "p2", "score": 0.4, "rejected_because": "old"}],
        inputs=[await glance(session)],
        threshold=0.85,
        confidence=1,
        reason="newest",
    )
    await session.checkpoint("gathered", papers=3, tags={"a"})
    await session.message("assistant", [{"type": "text", "text": "found"}], fields={"name": "ada"})
    await session.hand_off("bob", {"papers": ["p1"]}, reason="done")


TAGS = [
    "message.added.v1", "resource.accessed.v1", "decision.made.v1", "checkpoint.saved.v1",
    "message.added.v1", "agent.handed_off.v1",
]  # fmt: skip


async def test_facts_are_recorded_once_over_all_sessions(record: TwinRecord):
    """Stating the same again on resume or in a replay records nothing; the state has it all."""
    for mode in (None, "resume", "strict", "offline"):
        async with record.run(run="r", mode=mode) as session:
            await _everything(session)
    tags = [tag for tag in await record.tags("r") if tag in TAGS]
    assert tags == TAGS
    state = (await record.state("r")).agent("ada")
    [decision] = state.decisions
    assert (decision.selected, decision.threshold, decision.confidence) == ("p1", 0.85, 1.0)
    assert [a.id for a in decision.alternatives] == ["p1", "p2"]
    assert decision.alternatives[1].rejected_because == "old"
    assert [noted.fact.uri for noted in state.resources] == ["file:a.py"]
    assert state.total_tokens == 3
    assert [fact.to for fact in [noted.fact for noted in state.facts][-1:]] == ["bob"]


async def test_the_context_window_of_a_resume_is_that_of_its_place(lab: Lab):
    """A model's question about its context is answered from the record, without later messages."""
    lengths: list[int] = []
    async with lab.connect() as record:
        for _ in range(2):
            async with record.run(run="r") as session:

                @session.tool(effects="pure", kind="model")
                async def ask(messages: list[dict[str, Any]]) -> str:
                    lengths.append(len(messages))
                    return f"answer to {len(messages)}"

                for question in ("one", "two"):
                    await session.message("user", question)
                    await session.message("assistant", await ask(await session.context()))
    assert lengths == [1, 3]


async def test_the_context_window_holds_what_a_resumable_loop_skips(lab: Lab):
    """Messages of skipped items count as stated, those of the next item do not."""
    windows: list[list[str]] = []
    async with lab.connect() as record:
        for end in (3, 4):
            async with record.run(run="r") as session:
                try:
                    async for n in session.resumable(range(4), every=2):
                        await session.message("user", f"{n}")
                        if n == end - 1:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    windows.append([m["content"] for m in await session.context()])
    assert windows == [["0", "1", "2"], ["0", "1", "2", "3"]]


async def test_the_same_words_twice_are_two_facts(record: TwinRecord):
    """A fact stated twice in a session is recorded as two facts, and a resume knows both."""
    for _ in range(2):
        async with record.run(run="r") as session:
            await session.message("user", "again")
            await session.message("user", "again")
    assert (await record.tags("r")).count("message.added.v1") == 2


async def test_an_edited_fact_is_added(record: TwinRecord):
    """A fact with other words is another fact; the earlier one stays on record."""
    for text in ("one", "two"):
        async with record.run(run="r") as session:
            await session.checkpoint("said", text=text)
            assert await session.checkpoint_data("said") == {"text": text}
    assert (await record.tags("r")).count("checkpoint.saved.v1") == 2


async def test_checkpoint_data_comes_back_exactly(record: TwinRecord):
    """A checkpoint's data is read back with its types, of any size; None if there is none."""
    data = {"n": (1, 2), "s": {"a"}, "big": "x" * 200_000, "at": b"\0"}
    async with record.run(run="r") as session:
        assert await session.checkpoint_data("big one") is None
        await session.checkpoint("big one", **data)
        assert await session.checkpoint_data("big one") == data
    async with record.run(run="r") as session:
        assert await session.checkpoint_data("big one") == data


async def test_facts_of_branches_keep_their_places(record: TwinRecord):
    """Facts stated in parallel are distinguished by their scopes and recorded once."""
    for _ in range(2):
        async with record.run(run="r") as session:

            async def branch(name: str) -> None:
                await session.message("user", "same")
                await session.checkpoint(name)

            await session.gather(lambda: branch("a"), lambda: branch("b"))
    tags = await record.tags("r")
    assert (tags.count("message.added.v1"), tags.count("checkpoint.saved.v1")) == (2, 2)


async def test_a_tool_may_state_resources_but_no_stages(lab: Lab):
    """A resource may be stated inside any tool, and names its step; stages belong to the agent."""
    async with lab.connect() as record, record.run(run="r") as session:

        @session.tool(effects="pure")
        async def read() -> str:
            await session.resource("file:x", "read")
            with pytest.raises(hansard.ToolError, match="not composite"):
                await session.checkpoint("inside")
            return "x"

        await read()
        [noted] = session.state.resources
        assert noted.fact.uri == "file:x"


BAD_FACTS = [
    ("message", ("user", object()), {}),
    ("message", (5, "x"), {}),
    ("message", ("user", "x"), {"tokens": "many"}),
    ("message", ("user", "x"), {"tokens": True}),
    ("message", ("x" * COMMIT_BYTES_MAX, "x"), {}),
    ("resource", ("x" * COMMIT_BYTES_MAX,), {}),
    ("decide", ("q",), {"selected": "a", "reason": "x" * COMMIT_BYTES_MAX}),
    ("hand_off", ("bob",), {"reason": "x" * COMMIT_BYTES_MAX}),
    ("message", ("user", "x"), {"tokens": 1.5}),
    ("message", ("user", "x"), {"tokens": float("nan")}),
    ("resource", (5, "read"), {}),
    ("resource", ("u", None), {}),
    ("resource", ("u" * 300_000, "read"), {}),
    ("decide", ("?",), {"selected": 5}),
    ("decide", ("?",), {"selected": "a", "threshold": float("nan")}),
    ("decide", ("?",), {"selected": "a", "confidence": "high"}),
    ("decide", ("?",), {"selected": "a", "alternatives": [{"score": 1}]}),
    ("decide", ("?",), {"selected": "a", "inputs": [1]}),
    ("decide", ("q" * 300_000,), {"selected": "a"}),
    ("checkpoint", ("",), {}),
    ("checkpoint", ("a\0",), {}),
    ("checkpoint", (5,), {}),
    ("checkpoint", ("a",), {"x": object()}),
    ("hand_off", ("",), {}),
    ("hand_off", ("bob",), {"reason": 5}),
    ("hand_off", ("bob",), {"reason": "x" * 300_000}),
    ("hand_off", ("bob", {"x": object()}), {}),
]


@pytest.mark.fast(cases=10, slow=0)
@pytest.mark.parametrize(("kind", "args", "fields"), BAD_FACTS)
async def test_a_fact_that_cannot_be_read_back_is_refused(record: TwinRecord, kind, args, fields):
    """Wrong types, NaN, lone surrogates and endless texts are refused; the session continues."""
    async with record.run(run="r") as session:
        with pytest.raises((hansard.BadValue, hansard.errors.BadName, hansard.errors.TooLarge)):
            await getattr(session, kind)(*args, **fields)
        await session.checkpoint("after")
    state = (await record.state("r")).agent("ada")
    assert [noted.fact.tag for noted in state.facts] == ["checkpoint.saved.v1"]


async def test_a_loop_is_resumed_where_it_stood(record: TwinRecord):
    """`resumable` skips finished items, and the chain after the loop is as without a resume."""
    ran: list[int] = []
    seen: list[int] = []
    for crash in (True, False, False):
        try:
            async with record.run(run="r") as session:

                @session.tool(effects="once")
                async def work(i: int) -> int:
                    ran.append(i)
                    if crash and i == 7:
                        raise KeyboardInterrupt
                    return i

                seen.clear()
                async for i in session.resumable(range(10), every=3):
                    seen.append(await work(i))
                await work(100)
                if not crash:
                    break
        except KeyboardInterrupt:
            assert seen == [0, 1, 2, 3, 4, 5, 6]
            await record.settle("r", "8", "did_not_happen")
    assert seen == [6, 7, 8, 9]
    assert ran == [*range(8), 7, 8, 9, 100]
    names = list((await record.state("r")).agent("ada").checkpoints)
    assert names == ["progress:items"]
    tags = await record.tags("r")
    assert tags.count("checkpoint.saved.v1") == 4


async def test_a_loops_results_are_whole_after_a_resume(record: TwinRecord):
    """Killed at item 12 of 20, with progress every 5, it resumes after 10 and has all twenty."""
    last: list[int | None] = []
    loop: Any = None
    for end in (12, 20):
        with contextlib.suppress(KeyboardInterrupt):
            async with record.run(run="r") as session:
                loop = session.resumable(range(1, 21), every=5)
                async for n in loop:
                    last.append(loop.raw.last_item)
                    if n == end == 12:
                        raise KeyboardInterrupt
                    loop.raw.results.append((n, "x" * n))
    assert last == [None, *range(1, 12), *range(10, 20)]
    assert loop.raw.results == [(n, "x" * n) for n in range(1, 21)]
    assert loop.raw.last_item == 20
    async with record.run(run="r") as session:
        again = session.resumable(range(1, 21), every=5)
        assert [n async for n in again] == []
        assert again.raw.results == loop.raw.results
    async with record.run(run="r", mode="strict") as session:
        replayed = session.resumable(range(1, 21), every=5)
        async for n in replayed:
            replayed.raw.results.append((n, "x" * n))
        assert replayed.raw.results == loop.raw.results


async def test_a_loop_that_chooses_its_checkpoints(record: TwinRecord):
    """Left and resumed, it has all results; each checkpoint states its choice and the failures on
    record; a strict replay, which cannot measure the same times, follows the record.
    """
    loop: Any = None
    for end in (3, 7, 12):
        with contextlib.suppress(KeyboardInterrupt):
            async with record.run(run="r") as session:
                loop = session.resumable(range(12), every="auto")
                async for n in loop:
                    if n == end:
                        raise KeyboardInterrupt
                    loop.raw.results.append((n, "x" * n))
    assert loop.raw.results == [(n, "x" * n) for n in range(12)]
    facts: list[Any] = [noted.fact for noted in (await record.state("r")).agent("ada").facts]
    saved = [msgspec.json.decode(fact.data) for fact in facts]
    assert [data["done"] for data in saved] == sorted({data["done"] for data in saved})
    assert saved[0]["auto"] == {"interval_s": 0.0, "source": "unmeasured"}
    assert saved[-1]["done"] == 12
    choice = saved[-1]["auto"]
    assert (choice["sessions"], choice["failures"], choice["source"]) == (2, 2, "workflow")
    assert 0 < choice["cost_s"] < choice["interval_s"] < choice["mtbf_s"]
    async with record.run(run="r", mode="strict") as session:
        replayed = session.resumable(range(12), every="auto")
        async for n in replayed:
            replayed.raw.results.append((n, "x" * n))
        assert replayed.raw.results == loop.raw.results


async def test_the_failures_of_a_fork_are_those_of_its_own_workflow(record: TwinRecord):
    """Sessions count for the workflow of a fork's parent, not for forks of other workflows."""
    fork = ""
    for workflow, end in (("one", 1), ("two", None)):
        async with record.run(workflow, run=workflow):
            pass
        fork = await record.fork(workflow)
        with contextlib.suppress(KeyboardInterrupt):
            async with record.run(workflow, run=fork) as session:
                async for n in session.resumable(range(3), every="auto"):
                    if n == end:
                        raise KeyboardInterrupt
    facts: list[Any] = [noted.fact for noted in (await record.state(fork)).agent("ada").facts]
    choice = msgspec.json.decode(facts[-1].data)["auto"]
    assert (choice["sessions"], choice["failures"]) == (1, 0)


async def test_the_newest_runs_count_whatever_their_names(record: TwinRecord, monkeypatch):
    """Runs whose names sort last crowd out no newer failure of the workflow."""
    monkeypatch.setattr(workspace, "SESSION_RUNS_MAX", 2)
    for name in ("z1", "z2", "z3"):
        async with record.run("other", run=name):
            pass
    with contextlib.suppress(KeyboardInterrupt):
        async with record.run("mine", run="a1"):
            raise KeyboardInterrupt
    async with record.run("mine", run="a2") as session:
        assert [i async for i in session.resumable("ab", every="auto")] == ["a", "b"]
    facts: list[Any] = [noted.fact for noted in (await record.state("a2")).agent("ada").facts]
    choice = msgspec.json.decode(facts[-1].data)["auto"]
    assert (choice["sessions"], choice["failures"], choice["source"]) == (1, 1, "workflow")


async def test_an_inner_loop_that_chooses_is_not_recorded_twice(record: TwinRecord):
    """An outer item that runs again follows the inner loop's recorded checkpoints."""
    for end in (2, None):
        with contextlib.suppress(KeyboardInterrupt):
            async with record.run(run="r") as session:
                async for outer in session.resumable(range(4), every=4, name="outer"):
                    inner = session.resumable("ab", every="auto")
                    async for item in inner:
                        inner.raw.results.append(f"{outer}{item}")
                    assert inner.raw.results == [f"{outer}a", f"{outer}b"]
                    if outer == end:
                        raise KeyboardInterrupt
    facts: list[Any] = [noted.fact for noted in (await record.state("r")).agent("ada").facts]
    assert [fact.name for fact in facts].count("progress:items") == 8


async def test_a_loop_that_follows_checkpoints_without_a_choice_states_that(record: TwinRecord):
    """As those of a copy whose `auto` is masked: null would be read as a choice of none."""
    for every, end in ((1, 1), ("auto", None)):
        with contextlib.suppress(KeyboardInterrupt):
            async with record.run(run="r") as session:
                async for outer in session.resumable(range(2), every=2, name="outer"):
                    assert [i async for i in session.resumable("ab", every=every)] == ["a", "b"]
                    if outer == end:
                        raise KeyboardInterrupt
    facts: list[Any] = [noted.fact for noted in (await record.state("r")).agent("ada").facts]
    saved = [msgspec.json.decode(fact.data) for fact in facts]
    choices = [data["auto"] for data in saved if "auto" in data]
    assert choices == [{"source": "record"}] * 4


async def test_the_newest_checkpoint_is_returned_without_its_name(record: TwinRecord):
    """Any name counts; the progress of a loop is no checkpoint."""
    async with record.run(run="r") as session:
        assert await session.latest_checkpoint() is None
        await session.checkpoint("first", n=1)
        await session.checkpoint("second", at=(1, 2))
        assert [n async for n in session.resumable([1])] == [1]
    async with record.run(run="r") as session:
        checkpoint = await session.latest_checkpoint()
        assert checkpoint == hansard.types.Checkpoint("second", {"at": (1, 2)})


async def test_other_items_are_refused(record: TwinRecord):
    """Items that are not those that were done before are refused, not skipped by their number."""
    async with record.run(run="r") as session:
        assert [i async for i in session.resumable([1, 2, 3], name="a")] == [1, 2, 3]
        assert [i async for i in session.resumable([1], name="b")] == [1]
    async with record.run(run="r") as session:
        for items in ([1, 9, 3, 4], [1, 9]):
            with pytest.raises(hansard.BadValue, match="differ from those done before"):
                assert [i async for i in session.resumable(items, name="a")]
        with pytest.raises(hansard.BadValue, match="give 1 or more"):
            assert [i async for i in session.resumable([1], every=0)]
        with pytest.raises(hansard.BadValue, match="or 'auto'"):
            assert [i async for i in session.resumable([1], every="often")]
    async with record.run(run="r") as session:
        assert [i async for i in session.resumable([1, 2, 3, 4], name="a")] == [4]


async def test_a_loop_left_early_goes_on_there(record: TwinRecord):
    """Leaving the loop counts the items that were done, not the one that was left in."""
    async with record.run(run="r") as session:
        loop = session.resumable("abcd")
        async for item in loop:
            if item == "c":
                break
        await loop.aclose()
    async with record.run(run="r") as session:
        assert [item async for item in session.resumable("abcd")] == ["c", "d"]
