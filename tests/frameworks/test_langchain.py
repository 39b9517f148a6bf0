"""LangChain agents on the record, with the real packages (langchain 1.5, langgraph 1.2, checkpoint
4.3, openai 3.57): recorded, killed, resumed with one effect, and replayed without a call.

The answers of the model are written by hand and served on this machine in OpenAI's wire form.
"""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.domain.errors import BadValue
from tests.frameworks.answers import Provider, calls, text
from tests.frameworks.killing import Run, is_killed, lines, program
from tests.integrations.packages import forked_with, imported
from tests.service.support import ALL, House

pytestmark = pytest.mark.slow(cases=1)


PACKAGES = "langchain_openai", "langchain.agents"


@pytest.fixture(scope="module", autouse=True)
def _packages() -> Iterator[None]:
    for name in PACKAGES:
        imported(name)
    with forked_with(*PACKAGES):
        yield


def conversation(request: dict[str, Any], turn: int) -> dict[str, Any]:
    """Return the answers of a model that mails, then searches twice at once, then ends."""
    del request
    return [
        calls(("mail", {"to": "ann"})),
        calls(("search", {"query": "x"}), ("search", {"query": "y"})),
        text("ann knows all of it"),
    ][turn]


@pytest.fixture
def provider() -> Iterator[Provider]:
    """Yield a provider with the answers above."""
    served = Provider(conversation)
    yield served
    served.stop()


# ------------------------------------------------------------ killed


@pytest.fixture
def shell(data_dir: Path, workspace: str, tmp_path: Path) -> Run:
    """Return a function that runs the program."""
    return program("langchain_agent.py", data_dir, workspace, tmp_path)


@pytest.mark.parametrize(
    "client",
    [
        "async",
        pytest.param(
            "sync", marks=pytest.mark.thorough(quick="test_a_killed_agent_resumes_with_one_effect")
        ),
    ],
)
def test_a_killed_agent_resumes_with_one_effect(
    shell: Run, record: hansard.Record, provider: Provider, tmp_path: Path, client: str
):
    """Killed in a parallel search, resumed: one mail. Replayed: no model and no tool call."""
    assert is_killed(shell("live", "search y", provider.url, client))
    assert len(provider.asked) == 2
    done = shell("live", "", provider.url, client)
    assert done.stdout == "ann knows all of it", done.stderr
    world = lines(tmp_path, "world")
    assert (world.count("mail ann"), len(provider.asked)) == (1, 3)
    provider.stop()
    again = shell("strict", "", provider.url, client)
    assert again.stdout == done.stdout, again.stderr
    assert lines(tmp_path, "world") == world
    query = (
        "SELECT sum(input_tokens), sum(output_tokens), "
        "any_value(arguments->>'model'), count(*) FROM steps WHERE kind = 'model'"
    )
    assert record.sql(query).rows[0] == (33, 12, "gpt-hand", 3)
    # The thread has the checkpoints of both processes, and continues from those of the last.
    [count] = record.sql("SELECT count(*) FROM thread_checkpoints WHERE thread = 't1'").rows[0]
    assert count > 6


@pytest.mark.thorough(
    quick="frameworks/test_pydantic_ai.py::test_a_mail_whose_outcome_is_unknown_is_not_sent_again"
)
@pytest.mark.parametrize("verdict", ["happened", "did_not_happen"])
def test_a_cut_effect_waits_for_a_person(
    shell: Run, record: hansard.Record, provider: Provider, tmp_path: Path, verdict: str
):
    """A kill inside a tool that may run once stops the resumed agent until the call is settled."""
    assert is_killed(shell("live", "mail ann", provider.url, "sync"))
    assert "InDoubt" in shell("live", "", provider.url, "sync").stderr
    result = {"result": "sent by hand"} if verdict == "happened" else {}
    record.settle("r", "3", verdict, **result)
    done = shell("live", "", provider.url, "sync")
    assert done.stdout == "ann knows all of it", done.stderr
    sent = lines(tmp_path, "world").count("mail ann")
    assert sent == (1 if verdict == "happened" else 2)


# ------------------------------------------------------------ in this process


def model(provider: Provider, **options: Any) -> Any:
    """Return a model of the provider."""
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 -- takes seconds

    where: Any = {"base_url": provider.url, "api_key": "by-hand", "max_retries": 0}
    return ChatOpenAI(model="gpt-hand", **where, **options)


class World:
    """Tools that count their calls, and an agent with them."""

    def __init__(self, provider: Provider, **options: Any) -> None:
        from langchain_core.tools import tool  # noqa: PLC0415 -- takes seconds

        self.ran: list[str] = []
        self.provider = provider
        self.options = options
        both = threading.Barrier(2, timeout=20)

        @tool
        def mail(to: str) -> str:
            """Send a mail."""
            self.ran.append(to)
            return f"sent to {to}"

        @tool
        def search(query: str) -> str:
            """Search; calls of one answer run at the same time."""
            both.wait()
            self.ran.append(query)
            return f"about {query}"

        self.tools = [mail, search]

    def agent(self, session: Any = None, tools: Any = (), **recording: Any) -> Any:
        """Return the agent on the record of a session; without one, of the current one."""
        from langchain.agents import create_agent  # noqa: PLC0415 -- takes seconds

        from hansard.ext.frameworks.langchain import recorded  # noqa: PLC0415 -- takes seconds

        self.model = model(self.provider, **self.options)
        return create_agent(self.model, tools or self.tools, **recorded(session, **recording))


QUESTION = {"messages": [("user", "Tell ann.")]}
THREAD: Any = {"configurable": {"thread_id": "t1"}}


def streamed(agent: Any) -> tuple[str, int]:
    """Return the streamed text of an agent's answers, and the number of pieces."""
    pieces = [
        part.content
        for part, _ in agent.stream(QUESTION, THREAD, stream_mode="messages")
        if part.type in ("ai", "AIMessageChunk") and part.content
    ]
    return "".join(pieces), len(pieces)


def test_streamed_answers_and_parallel_calls_replay(record: hansard.Record, provider: Provider):
    """Tokens reach the reader as they come; a replay gives the answer in one piece, and finds the
    parallel calls of an answer in any order.
    """
    world = World(provider, streaming=True)
    agent = world.agent(pure=["search"])
    with record.run("w", run="r", agent="ada"):
        answer, pieces = streamed(agent)
    assert answer == "ann knows all of it"
    assert pieces > 3
    assert sorted(world.ran) == ["ann", "x", "y"]
    provider.stop()
    for _ in range(3):
        with record.run("w", run="r", agent="ada", mode="strict"):
            assert streamed(agent) == (answer, 1)
    assert len(world.ran) == 3
    with pytest.raises(hansard.errors.ToolError, match="where no session is current"):
        agent.invoke(QUESTION, THREAD)


class Refuses(Exception):
    """An error of the program's own."""


def test_a_tools_error_reaches_the_program_and_its_replay(
    record: hansard.Record, provider: Provider
):
    """A tool that raises is a failed step; the replay raises the same error, and calls nothing."""
    from langchain_core.tools import tool  # noqa: PLC0415 -- takes seconds

    ran = []

    @tool
    def mail(to: str) -> str:
        """Send a mail."""
        ran.append(to)
        raise Refuses(to)

    world = World(provider)
    for mode in (None, "strict"):
        with (
            pytest.raises(Refuses, match="ann"),
            record.run("w", run="r", agent="ada", mode=mode) as session,
        ):
            world.agent(session, [mail]).invoke(QUESTION, THREAD)
    assert ran == ["ann"]
    assert len(provider.asked) == 1
    rows = record.sql("SELECT status FROM steps WHERE tool = 'mail'").rows
    assert [tuple(row) for row in rows] == [("failed",)]


def test_a_person_in_the_loop(record: hansard.Record):
    """A tool's `interrupt` asks, in the run and in its replay; the answer's call is another step.
    Another run can continue the thread with the answer.
    """
    from langchain_core.tools import tool  # noqa: PLC0415 -- takes seconds
    from langgraph.types import Command, interrupt  # noqa: PLC0415 -- takes seconds

    ran = []

    @tool
    def mail(to: str) -> str:
        """Send a mail if a person agrees."""
        if interrupt({"question": f"mail {to}?"}) != "yes":
            return "refused"
        ran.append(to)
        return f"sent to {to}"

    served = Provider(lambda _, turn: [calls(("mail", {"to": "ann"})), text("done")][turn])
    world = World(served)

    def ask(agent: Any) -> Any:
        [question] = agent.invoke(QUESTION, THREAD)["__interrupt__"]
        assert question.value == {"question": "mail ann?"}
        return question

    for mode in (None, "strict"):
        with record.run("w", run="r", agent="ada", mode=mode) as session:
            agent = world.agent(session, [mail])
            answer: Any = Command(resume={ask(agent).id: "yes"})
            assert agent.invoke(answer, THREAD)["messages"][-1].content == "done"
            assert [each.next for each in agent.get_state_history(THREAD)][:2] == [(), ("model",)]
    assert (ran, len(served.asked)) == (["ann"], 2)
    other: Any = {"configurable": {"thread_id": "t2"}}
    with record.run("w", run="asks", agent="ada") as session:
        world.agent(session, [mail]).invoke(QUESTION, other)
    for mode in (None, "strict"):
        with record.run("w", run="answers", agent="bob", mode=mode) as session:
            state = world.agent(session, [mail]).invoke(Command(resume="yes"), other)
            assert [each.type for each in state["messages"]] == ["human", "ai", "tool", "ai"]
    assert ran == ["ann", "ann"]
    served.stop()


def test_a_fork_with_edits_goes_another_way(record: hansard.Record, provider: Provider):
    """An edited tool gives its text to the model; an edited answer, as text or message, ends the
    agent. Neither fork mails, nor changes the thread of the real run.
    """
    from langchain_core.messages import AIMessage  # noqa: PLC0415 -- takes seconds

    world = World(provider)

    def run(name: str) -> Any:
        with record.run("w", run=name, agent="ada") as session:
            return world.agent(session, pure=["search"]).invoke(QUESTION, THREAD)["messages"]

    messages = run("r")
    stored = "SELECT count(*) FROM thread_checkpoints"
    before = record.sql(stored).rows[0]
    edited = run(record.fork("r", edits=[hansard.replace("ada#3", result="no such address")]))
    assert [each.content for each in edited[:3]] == ["Tell ann.", "", "no such address"]
    assert provider.asked[-1]["messages"][2]["content"] == "no such address"
    for result in ("I may not.", AIMessage("I may not.")):
        fork = record.fork("r", edits=[hansard.replace("ada#2", result=result)])
        assert [each.content for each in run(fork)] == ["Tell ann.", "I may not."]
    assert [each.content for each in run("r")] == [each.content for each in messages]
    assert world.ran.count("ann") == 1
    assert record.sql(stored).rows[0] == before


@pytest.mark.thorough(quick="test_streamed_answers_and_parallel_calls_replay")
def test_a_restricted_agents_calls_are_steps(data_dir: Path, tmp_path: Path, provider: Provider):
    """The service records and replays them; a checkpointer is refused, as the log is closed."""
    house = House(data_dir, f"langchain-{os.getpid()}", tmp_path)
    house.apply(ALL)
    house.begin()
    try:
        world = World(provider)
        how: Any = {"pure": ["search"], "checkpointer": False}
        for mode in (None, "strict"):
            with (
                house.connect("ada", "writer") as record,
                record.run("w", run="r", agent="ada", role="writer", mode=mode) as session,
            ):
                messages = world.agent(session, **how).invoke(QUESTION)["messages"]
                assert messages[-1].content == "ann knows all of it"
                with pytest.raises(BadValue, match="restricted agent"):
                    world.agent(session)
        assert (sorted(world.ran), len(provider.asked)) == (["ann", "x", "y"], 3)
    finally:
        house.end()


async def test_an_agent_that_is_made_once_serves_runs_at_once(
    data_dir: Path, workspace: str, provider: Provider
):
    """Runs of one process, each with its own thread, share an agent and are recorded apart."""
    world = World(provider, streaming=True)
    agent = world.agent(pure=["search"])

    async def serve(record: Any, run: str, mode: str | None) -> str:
        place: Any = {"configurable": {"thread_id": run}}
        async with record.run("w", run=run, agent="ada", mode=mode):
            states = [state async for state in agent.astream(QUESTION, place, stream_mode="values")]
            return str(states[-1]["messages"][-1].content)

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for mode in (None, "strict"):
            runs = (serve(record, f"r{at}", mode) for at in range(3))
            assert await asyncio.gather(*runs) == ["ann knows all of it"] * 3
        assert (sorted(world.ran), len(provider.asked)) == ([*["ann"] * 3, *"xxxyyy"], 9)
        await world.model.root_async_client.close()
        query = "SELECT thread, run FROM thread_checkpoints GROUP BY ALL ORDER BY thread"
        assert (await record.sql(query)).rows == [(f"r{at}", f"r{at}") for at in range(3)]
