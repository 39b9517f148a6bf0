"""`run context` and `conversation show`: messages at a point, in order and in full."""

from typing import Any

import pytest

import hansard
from tests.cli.support import BIG, Call, Runs

CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": "x"}'}}


@pytest.fixture(scope="module")
def talk(record: hansard.Record) -> list[str]:
    """Return a conversation of two runs, the second with two agents."""
    runs = []
    with record.run("first", agent="clerk", role="clerk", conversation="two-days") as session:
        runs.append(session.run)
        session.message("user", "hello", tokens=2)
        session.message("assistant", None, tokens=5, fields={"tool_calls": [CALL]})
        session.message("tool", "x" * BIG, fields={"tool_call_id": "c1"})
    with record.run("second", agent="clerk", role="clerk", conversation="two-days") as session:
        runs.append(session.run)
        session.message("user", "and today?", tokens=3)
        with record.run(run=session.run, agent="helper", role="helper") as helper:
            helper.message("assistant", [{"type": "text", "text": "part one"}, {"type": "odd"}])
    return runs


def messages(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages in the form for a model."""
    return [line["message"] for line in lines if line["kind"] == "message"]


def test_a_context_is_what_a_model_received(call: Call, talk: list[str]):
    """Each message whole in its provider's form, in order, large ones fetched, with its tokens."""
    about, *lines = call("run", "context", talk[0], "--json").lines
    assert messages(lines) == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "x" * BIG, "tool_call_id": "c1"},
    ]
    assert [line["tokens"] for line in lines] == [2, 5, None]
    assert (about["kind"], about["agent"], about["messages"]) == ("context", "clerk", 3)
    assert about["tokens"] == 7
    assert [line["position"] for line in lines] == sorted(line["position"] for line in lines)


def test_a_context_as_it_stood(call: Call, talk: list[str]):
    """At each message's position the window ends with it."""
    lines = call("run", "context", talk[0], "--json").lines[1:]
    for index, line in enumerate(lines):
        then = call("run", "context", talk[0], "--at", str(line["position"]), "--json").lines
        assert messages(then) == messages(lines)[: index + 1]
        assert then[0]["tokens"] == 7 - sum(each["tokens"] or 0 for each in lines[index + 1 :])
    empty = call("run", "context", talk[0], "--at", "clerk@1", "--json").lines
    assert [line["kind"] for line in empty] == ["context"]
    assert empty[0]["tokens"] is None


def test_people_read_calls_and_folded_texts(call: Call, talk: list[str]):
    """A call is one line; a long content is truncated with the length cut off."""
    text = call("run", "context", talk[0]).out
    assert '→ find(q="x")  [c1]' in text
    assert "characters more: --json has them" in text
    assert len(text) < 3_000
    assert "7 tokens" in text


def test_tokens_that_nobody_counted_are_not_shown(call: Call, talk: list[str]):
    """An agent none of whose messages has a count has no number of tokens, not 0."""
    clerk, helper = (
        line for line in call("run", "show", talk[1], "--json").lines if line["kind"] == "agent"
    )
    assert (clerk["context_tokens"], helper["context_tokens"]) == (3, None)
    text = call("run", "context", talk[1], "--agent", "helper").out
    assert "1 message\n" in text
    assert "tokens" not in text
    assert "0 tokens" not in call("run", "show", talk[1]).out


def test_one_agents_context(call: Call, talk: list[str]):
    """`--agent` narrows; an unknown agent's error lists the known ones."""
    lines = call("run", "context", talk[1], "--agent", "helper", "--json").lines
    assert {line["agent"] for line in lines} == {"helper"}
    result = call("run", "context", talk[1], "--agent", "nobody")
    assert (result.code, result.out) == (2, "")
    assert "clerk, helper" in result.err


def test_a_conversation_is_all_of_its_runs(call: Call, talk: list[str]):
    """Runs and messages in order, by every agent; turns and tokens are summed."""
    about, *lines = call("conversation", "show", "two-days", "--json").lines
    assert (about["conversation"], about["runs"]) == ("two-days", talk)
    assert (about["turns"], about["messages"], about["tokens"]) == (2, 5, 10)
    runs = [line for line in lines if line["kind"] == "run"]
    assert [(run["run"], run["workflow"], run["messages"]) for run in runs] == [
        (talk[0], "first", 3),
        (talk[1], "second", 2),
    ]
    listed = [line for line in lines if line["kind"] == "message"]
    assert [(each["run"], each["agent"], each["index"]) for each in listed] == [
        (talk[0], "clerk", 1),
        (talk[0], "clerk", 2),
        (talk[0], "clerk", 3),
        (talk[1], "clerk", 4),
        (talk[1], "helper", 5),
    ]
    of_runs = [
        message
        for run, agents in ((talk[0], ["clerk"]), (talk[1], ["clerk", "helper"]))
        for agent in agents
        for message in messages(call("run", "context", run, "--agent", agent, "--json").lines)
    ]
    assert messages(listed) == of_runs
    text = call("conversation", "show", "two-days").out
    for fact in ("5 messages, 10 tokens, 2 turns", *talk, "and today?", "part one"):
        assert fact in text


def test_a_conversation_as_it_stood(call: Call, talk: list[str]):
    """A point of its first run excludes the second."""
    position = call("run", "context", talk[0], "--json").lines[1]["position"]
    for point in (str(position), call_time(call, talk[0], position)):
        lines = call("conversation", "show", "two-days", "--at", point, "--json").lines
        assert lines[0]["runs"] == talk[:1]
        assert messages(lines) == [{"role": "user", "content": "hello"}]
    early = call("conversation", "show", "two-days", "--at", "1")
    assert (early.code, early.out) == (2, "")
    assert "leave out --at" in early.err


def call_time(call: Call, run: str, position: int) -> str:
    """Return the log's time of a position."""
    line = call("run", "show", run, "--at", str(position), "--json").lines[0]
    assert line["position"] == position
    return str(line["time"])


def test_a_point_that_several_runs_have_is_ambiguous(call: Call, talk: list[str]):
    """`clerk@2` exists in both runs, and no run is guessed."""
    result = call("conversation", "show", "two-days", "--at", "clerk@2")
    assert (result.code, result.out) == (2, "")
    assert "several of its runs have it" in result.err
    only = call("conversation", "show", "two-days", "--at", "helper@2", "--json").lines
    assert len(messages(only)) == 5


@pytest.mark.parametrize("name", ["nope", "", "*", "../x", "é" * 300, "a b"])
def test_a_missing_conversation_is_reported(call: Call, runs: Runs, name: str):
    """Any text gives exit code 2, the name and a remedy."""
    result = call("conversation", "show", name)
    assert (result.code, result.out) == (2, "")
    assert "Traceback" not in result.err
    assert result.err.startswith("error: ")


def test_a_summary_lists_what_it_replaces(call: Call, record: hansard.Record):
    """The window shows how many messages a summary replaces and where; `--all` shows them."""
    with record.run("early", run="early", agent="clerk", role="clerk", conversation="sum") as early:
        early.message("user", "hello, how are you today?")
    with record.run("late", run="late", agent="clerk", role="clerk", conversation="sum") as late:
        for text in ("what of the order?", "and of the other order?"):
            late.message("user", text)
        late.compact(in_short, keep=1)
        late.message("user", "nothing else, thanks a lot")
        late.compact(in_short, keep=1)
    about, *lines = call("run", "context", "late", "--json").lines
    assert (about["messages"], [line["kind"] for line in lines]) == (2, ["summary", "message"])
    summary = lines[0]
    assert (summary["messages"], summary["message"]["content"]) == (2, "2 things")
    _, *lines = call("run", "context", "late", "--all", "--json").lines
    originals = [
        line["original"]["message"]["content"] for line in lines if line["kind"] == "compacted"
    ]
    assert originals == [
        "2 things",
        "hello, how are you today?",
        "what of the order?",
        "and of the other order?",
    ]
    shown = call("run", "context", "late").out
    assert f"summary of 2 messages, {summary['first']}-{summary['last']}; --all shows them" in shown
    assert "hello, how" not in shown
    assert "hello, how are you today?" in call("run", "context", "late", "--all").out
    before = call("run", "context", "late", "--at", "clerk@3", "--json").lines
    assert [line["message"]["content"] for line in before[1:]] == [
        "what of the order?",
        "and of the other order?",
    ]


def in_short(messages: list[dict[str, Any]]) -> str:
    """Summarise by a rule instead of a model."""
    return f"{len(messages)} things"
