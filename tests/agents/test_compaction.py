"""Compaction of a context window: a summary replaces its earlier messages, which are kept."""

import signal
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.domain.conversation import ContextCompacted
from tests.agents.twins import Lab, TwinRecord, TwinSession
from tests.cli.support import environment
from tests.faults._warm import run

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=99, slow=0)]

Forms = list[dict[str, Any]]


def brief(messages: Forms) -> str:
    """Summarise by a rule instead of a model."""
    return f"{len(messages)} earlier"


def _contents(messages: Forms) -> list[str]:
    return [message["content"] for message in messages]


async def _talk(session: TwinSession, *texts: str) -> None:
    for text in texts:
        await session.message("user", f"{text}, please, at length", tokens=5)


def _full(*texts: str) -> list[str]:
    return [f"{text}, please, at length" for text in texts]


@pytest.mark.slow(cases=1)
async def test_a_summary_takes_the_place_of_the_earlier_messages(record: TwinRecord):
    """The window is summary and newest messages; the record has what the summary replaces."""
    async with record.run(run="r") as session:
        await session.message("system", "be kind", tokens=2)
        await _talk(session, *"abcd")
        assert await session.compact(brief, keep=2, max_messages=5) is None
        assert await session.compact(brief, keep=2, max_tokens=22) is None
        made = await session.compact(brief, keep=1, max_tokens=21, count=lambda _: 5)
        assert (made.summary, made.tokens_before, made.tokens_after) == ("3 earlier", 25, 15)
        assert _contents(made.dropped) == _full(*"abc")
        assert _contents(made.window) == ["be kind", "3 earlier", *_full("d")]
        assert made.window[1]["role"] == "system"
        await _talk(session, "e")
        assert _contents(await session.window()) == ["be kind", "3 earlier", *_full(*"de")]
        assert _contents(await session.context()) == ["be kind", "3 earlier", *_full(*"de")]
        assert _contents(await session.window(full=True)) == ["be kind", *_full(*"abcde")]
        twice = await session.compact(brief, keep=1)
        assert _contents(twice.dropped) == ["3 earlier", *_full("d")]
        assert _contents(twice.window) == ["be kind", "2 earlier", *_full("e")]
        assert twice.tokens_before == 2 + 5 + 5 + 5
        assert twice.tokens_after is None  # the summary's tokens were not counted
    state = (await record.state("r")).agent("ada")
    first, second = [e.fact for e in state.facts if isinstance(e.fact, ContextCompacted)]
    ids = [event.id for each in await record.commits("r") for event in each.commit.events]
    added = [
        event.id
        for each in await record.commits("r")
        for event in each.commit.events
        if event.type in ("message.added.v1", "context.compacted.v1")
    ]
    assert first.stands_for == tuple(added[1:4])
    assert first.kept == (added[0], added[4])
    assert second.stands_for == (added[5], added[4])
    assert set(first.stands_for) < set(ids)
    assert [each.fact for each in state.window][1] == second
    assert len(state.messages) == 6
    tools = [step.tool for step in await record.steps("r")]
    assert tools == ["brief", "brief"]


async def test_a_conversation_goes_on_with_the_summary(record: TwinRecord):
    """A later run's window begins with the summary; a fork has the window of its parent."""
    async with record.run(run="one", conversation="c") as session:
        await _talk(session, *"abc")
    async with record.run(run="two", conversation="c", agent="bob") as session:
        assert _contents(await session.window()) == _full(*"abc")
        await _talk(session, "d")
        made = await session.compact(brief, keep=2)
        assert _contents(made.dropped) == _full(*"ab")
        assert _contents(made.window) == ["2 earlier", *_full(*"cd")]
        assert _contents(await session.context()) == ["2 earlier", *_full("d")]
    async with record.run(run="three", conversation="c") as session:
        await _talk(session, "e")
        assert _contents(await session.window()) == ["2 earlier", *_full(*"cde")]
        assert _contents(await session.window(full=True)) == _full(*"abcde")
        made = await session.compact(brief, keep=1)
        assert _contents(made.dropped) == ["2 earlier", *_full(*"cd")]
    conversation = await record.conversation("c")
    assert _contents(conversation.messages) == _full(*"abcde")
    assert _contents(conversation.window) == ["3 earlier", *_full("e")]
    early = await record.conversation("c", before="three")
    assert _contents(early.window) == ["2 earlier", *_full(*"cd")]
    fork = await record.fork("three")
    async with record.run(run=fork) as session:
        await _talk(session, "e")
        made = await session.compact(brief, keep=1)
        assert _contents(made.window) == ["3 earlier", *_full("e")]
        assert [step.tool for step in session.state.steps.values()] == ["brief"]


async def test_a_resumed_run_is_answered_its_summary(lab: Lab):
    """The function is called once; a resume restates the window, a strict replay writes nothing."""
    calls: list[int] = []

    async def play(record: TwinRecord, **options: Any) -> Forms:
        async with record.run(run="r", **options) as session:
            await _talk(session, *"abc")

            def summarize(messages: Forms) -> str:
                calls.append(len(messages))
                return "so far"

            assert _contents(await session.window()) == _full(*"abc")
            await session.compact(summarize, keep=1)
            await _talk(session, "d")
            window: Forms = await session.window()
            return window

    async with lab.connect() as record:
        first = await play(record)
        assert _contents(first) == ["so far", *_full(*"cd")]
        assert await play(record) == first
        before = len(await record.commits("r"))
        assert await play(record, mode="strict") == first
        assert len(await record.commits("r")) == before
    assert calls == [2]


async def test_what_cannot_be_compacted_is_refused(lab: Lab):
    """A compaction without effect or with a bad summary is refused, and may be tried again."""
    async with lab.connect() as record, record.run(run="r") as session:
        await session.message("system", "be kind")
        await _talk(session, *"ab")
        with pytest.raises(
            hansard.errors.Refused, match=r"nothing to compact: of the 3 messages .* keep=2"
        ):
            await session.compact(brief, keep=2)
        with pytest.raises(hansard.BadValue, match="nobody counted the tokens of 1 of the 3"):
            await session.compact(brief, max_tokens=1)
        with pytest.raises(hansard.BadValue, match="keep"):
            await session.compact(brief, keep=-1)

        def nothing(messages: Forms) -> str:
            return " "

        def endless(messages: Forms) -> str:
            return "x" * 1_000

        def none(messages: Forms) -> None:
            return None

        for tool, message in ((nothing, "non-empty"), (none, "non-empty"), (endless, "1,000 char")):
            with pytest.raises(hansard.BadValue, match=message):
                await session.compact(tool, keep=0)
        assert _contents(await session.window()) == ["be kind", *_full(*"ab")]
        made = await session.compact(brief, keep=0)
        assert _contents(made.window) == ["be kind", "2 earlier"]
        with pytest.raises(hansard.errors.Refused, match="nothing to compact"):
            await session.compact(brief, keep=0)


async def test_one_agent_of_a_run_compacts_a_conversation(record: TwinRecord):
    """The second agent gets an error that names the first; its own messages it may compact."""
    async with record.run(run="one", conversation="c") as session:
        await _talk(session, *"abc")
    async with (
        record.run(run="two", conversation="c") as ada,
        record.run(run="two", agent="bob") as bob,
    ):
        await ada.compact(brief, keep=1)
        with pytest.raises(hansard.errors.Refused, match="'ada' compacted 2 of these messages"):
            await bob.compact(brief, keep=0)
    conversation = await record.conversation("c")
    assert _contents(conversation.window) == ["2 earlier", *_full("c")]


async def test_an_answer_stays_with_its_call(lab: Lab):
    """No window begins with the answer to a call that was dropped: no provider takes that."""
    async with lab.connect() as record, record.run(run="r") as session:
        await _talk(session, *"ab")
        await session.message("assistant", "", fields={"tool_calls": [{"id": "1"}]})
        await session.message("tool", "4", fields={"tool_call_id": "1"})
        made = await session.compact(brief, keep=1)
        assert [message["role"] for message in made.window] == ["system", "assistant", "tool"]


async def test_a_session_has_the_labels_of_what_its_window_holds(record: TwinRecord):
    """A session writes under the labels of the messages that its window holds."""
    async with record.run(run="one", conversation="c") as session:
        await session.message("user", "a secret of some length", label="secret untrusted")
    async with record.run(run="two", conversation="c", agent="bob") as session:
        await _talk(session, "b")
        assert str(session.label) == "public"
        await session.compact(brief, keep=0)
        assert "secret" in str(session.label)
    labels = [
        str(each.commit.label)
        for each in await record.commits("two")
        if any(event.type == "context.compacted.v1" for event in each.commit.events)
    ]
    assert labels == ["secret untrusted"]


PROGRAM = """
import os, signal, sys
import hansard

where = sys.argv[1]

def die(here):
    if here == where:
        os.kill(os.getpid(), signal.SIGKILL)

def brief(messages):
    die("in the function")
    return f"{len(messages)} earlier"

with hansard.connect() as record, record.run("w", run="r", conversation="c") as session:
    for text in "abcd":
        session.message("user", text + ", please, at length")
    die("before")
    made = session.compact(brief, keep=1)
    die("after")
    print([message["content"] for message in made.window])
"""


FULL = pytest.mark.thorough(quick="test_killed_at_any_point_the_window_is_one_or_the_other")


@pytest.mark.fast(cases=0)
@pytest.mark.parametrize(
    "where",
    [
        "on its way",
        *(pytest.param(at, marks=FULL) for at in ("before", "in the function", "after")),
    ],
)
def test_killed_at_any_point_the_window_is_one_or_the_other(data_dir, tmp_path, where):
    """A kill leaves the window before or after the summary, never half, and a resume ends equal."""
    program = tmp_path / "program.py"
    dying = PROGRAM.replace(
        "    made =",
        "    from hansard.agents.annotations.statements import Annotations\n"
        "    if where == 'on its way': Annotations.compacted = lambda *_: die(where)\n    made =",
    )
    program.write_text(dying)
    workspace = f"kill-{where.replace(' ', '-')}"
    env = environment(data_dir, HANSARD_WORKSPACE=workspace)
    killed = run([str(program), where], cwd=tmp_path, env=env, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    with hansard.connect(workspace, data_dir=data_dir) as record:
        window = _contents(record.conversation("c").window)
    assert window == (["3 earlier", *_full("d")] if where == "after" else _full(*"abcd"))
    program.write_text(PROGRAM)
    done = run([str(program), "never"], cwd=tmp_path, env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(["3 earlier", *_full("d")])
    with hansard.connect(workspace, data_dir=data_dir) as record:
        assert _contents(record.conversation("c").window) == ["3 earlier", *_full("d")]
        steps = record.state("r").agent("agent").steps.values()
    assert [step.tool for step in steps] == ["brief"]


@pytest.mark.fast(cases=0)
def test_sql_has_the_window_and_what_a_summary_replaces(data_dir: Path, workspace: str):
    """`knew` has the window at each decision, and all messages are still in the tables."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        with record.run("w", run="r", agent="ada", role="writer") as session:
            for text in "ab":
                session.message("user", f"{text}, please, at length")
            session.decide("First?", selected="yes")
            session.message("user", "c, please, at length")
            session.compact(brief, keep=1)
            session.decide("Second?", selected="yes")
        known = {}
        for question in ("First?", "Second?"):
            decided = "SELECT decision FROM decisions WHERE question = $1"
            [[decision]] = record.sql(decided, question).rows
            rows = record.sql(
                "SELECT h.what, h.words FROM knew($1) AS k JOIN history AS h ON h.id = k.event "
                "WHERE h.what <> 'got' ORDER BY h.position",
                decision,
            ).rows
            known[question] = [f"{what} {words}" for what, words in rows]
        windows = record.sql("SELECT part, text FROM context_windows ORDER BY version").rows
        [[messages]] = record.sql("SELECT count(*) FROM messages").rows
    assert known["First?"] == [f"message user: {text}" for text in _full(*"ab")]
    assert known["Second?"] == [f"message user: {_full('c')[0]}", "compacted system: 2 earlier"]
    assert windows == [("message", _full("c")[0]), ("summary", "2 earlier")]
    assert messages == 3
