"""Conversations: turns and context over several runs, ready to continue."""

import pytest

import hansard
from tests.agents.twins import Lab, TwinRecord

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=99, slow=0)]


async def _turn(record, text, answer, conversation="c", **options):
    async with record.run(conversation=conversation, **options) as session:
        await session.message("user", text, tokens=2)
        await session.message("assistant", answer, tokens=5)
        return session.run


async def test_a_conversation_goes_on_over_runs(lab: Lab):
    """A conversation has its runs, turns, tokens and provider messages, in record order."""
    async with lab.connect() as record:
        assert (await record.conversation("c")).messages == []
        first = await _turn(record, "hi", "hello")
        before = await record.conversation("c")
        second = await _turn(record, "and?", [{"type": "text", "text": "so"}], agent="bob")
        await _turn(record, "else", "where", conversation="other")
        conversation = await record.conversation("c")
    assert before.turns == 1
    assert (conversation.id, conversation.runs, conversation.turns, conversation.total_tokens) == (
        "c",
        [first, second],
        2,
        14,
    )
    assert conversation.messages == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": [{"type": "text", "text": "so"}]},
    ]


async def test_the_turns_before_a_run_are_the_same_when_it_is_resumed(record: TwinRecord):
    """`before=` leaves out the run and all after it; a run outside it leaves out nothing."""
    first, second, _ = [await _turn(record, f"q{i}", "a") for i in range(3)]
    before = await record.conversation("c", before=second)
    assert (before.runs, before.turns) == ([first], 1)
    assert (await record.conversation("c", before=first)).messages == []
    assert len((await record.conversation("c", before="new")).runs) == 3


async def test_an_agent_knows_the_number_of_earlier_turns(record: TwinRecord):
    """The number of earlier turns is in the agents' state, and is the same on resume."""
    runs = [await _turn(record, f"q{i}", "a") for i in range(3)]
    states = [(await record.state(run)).agent("ada") for run in runs]
    assert [state.turns_before for state in states] == [0, 1, 2]
    assert {state.conversation_id for state in states} == {"c"}
    async with record.run(run=runs[1]) as session:
        assert (session.state.turns_before, session.state.conversation_id) == (1, "c")


async def test_a_run_belongs_to_at_most_one_conversation(record: TwinRecord):
    """A run keeps the conversation that it began in; beginning it elsewhere never moves it."""
    await _turn(record, "hi", "hello", run="r")
    with pytest.raises(hansard.errors.Refused, match="conversation"):
        await _turn(record, "hi", "hello", conversation="other", run="r")
    assert (await record.conversation("other")).runs == []
    assert (await record.conversation("c")).runs == ["r"]
    async with record.run(run="r"):
        pass
    async with record.run(run="plain"):
        pass
    with pytest.raises(hansard.errors.Refused, match="conversation"):
        await _turn(record, "hi", "hello", run="plain")


@pytest.mark.parametrize("name", ["a.b", "*", ">", "x" * 900, "été/../x", "\U0001f4a5"])
async def test_any_other_name_is_carried(record: TwinRecord, name):
    """Characters that a subject cannot hold are escaped, and only the exact name finds it."""
    run = await _turn(record, "hi", "hello", conversation=name)
    assert (await record.conversation(name)).runs == [run]
    assert (await record.conversation(name + "x")).runs == []


async def test_large_messages_come_back_whole(record: TwinRecord):
    """A message kept as a blob is restored in its place."""
    await _turn(record, "x" * 200_000, "y")
    conversation = await record.conversation("c")
    assert conversation.messages[0]["content"] == "x" * 200_000


def _call(name):
    """Return a tool call as OpenAI's API has it."""
    return {"id": name, "type": "function", "function": {"name": "find", "arguments": "{}"}}


async def test_a_call_that_was_cut_off_is_answered_in_the_window(record: TwinRecord):
    """The next run's window answers a cut-off call, unrecorded; the run's own last stays open."""
    async with record.run(conversation="c", run="one") as session:
        await session.message("user", "where is my order?")
        await session.message("assistant", None, fields={"tool_calls": [_call("a"), _call("b")]})
        await session.message("tool", "here", fields={"tool_call_id": "a"})
        assert [each["role"] for each in await session.window()] == ["user", "assistant", "tool"]
    async with record.run(conversation="c", run="two") as session:
        window = await session.window()
        assert [each.get("tool_call_id") for each in window] == [None, None, "a", "b"]
        assert window[-1]["content"].startswith("[no answer")
        assert len(await session.window(close=False)) == 3
        await session.message("user", "are you there?")
        await session.message("assistant", [{"type": "tool_use", "id": "t", "name": "find"}])
        assert [each["role"] for each in await session.window()] == [
            *("user", "assistant", "tool", "tool", "user", "assistant")
        ]
    async with record.run(conversation="c", run="three") as session:
        await session.message("user", "well?")
        [*_, answer, last] = await session.window(full=True)
        assert last == {"role": "user", "content": "well?"}
        assert (answer["role"], answer["content"][0]["tool_use_id"]) == ("user", "t")
        assert len((await record.conversation("c")).messages) == 6
