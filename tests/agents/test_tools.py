"""Tools: whatever kind of function, it is recorded once and answered from the record after that."""

import asyncio
from typing import Any

import pytest

import hansard
from tests.agents.twins import Lab


async def test_a_scenario_is_played_in_a_loop_by_the_async_client_alone(lab: Lab):
    """The async client alone runs a scenario in a loop: tests of both clients rely on it."""
    assert (asyncio._get_running_loop() is not None) is lab.is_async


async def test_a_recorded_call_is_answered_without_running(lab: Lab):
    """A resume returns the recorded value, runs no body and records only the resume."""
    ran: list[int] = []
    run: str | None = None
    async with lab.connect() as record:
        for mode in (None, None, "resume", "live"):
            async with record.run(run=run, mode=mode) as session:

                @session.tool(effects="pure")
                async def double(x: int, by: int = 2) -> int:
                    ran.append(x)
                    return x * by

                assert [await double(2), await double(x=3), await double(2)] == [4, 6, 4]
                run = session.run
        assert ran == [2, 3, 2]
        assert run is not None
        tags = await record.tags(run)
    assert tags.count("step.completed.v1") == 3
    assert tags.count("agent.session_began.v1") == 4


class Mailer:
    def __init__(self, sender: str) -> None:
        self.sender = sender
        self.sent: list[str] = []

    @hansard.tool(effects="once")
    def send(self, to: str) -> str:
        """Send a mail."""
        self.sent.append(to)
        return f"{self.sender} -> {to}"

    @hansard.tool(effects="once")
    async def post(self, to: str) -> str:
        """Send a mail, from a loop."""
        self.sent.append(to)
        return f"{self.sender} => {to}"

    @hansard.tool
    @staticmethod
    def ping() -> str:
        """A tool that needs no object."""
        return "pong"


def test_methods_are_tools(record):
    """A method is recorded by its arguments, the object left out; another object replays it."""
    first, second = Mailer("ada"), Mailer("bob")
    with record.run("w") as session:
        assert first.send("cy") == "ada -> cy"
        assert first.post("cy") == "ada => cy"
    with record.run(run=session.run) as again:
        assert second.send(to="cy") == "ada -> cy"
        assert second.post("cy") == "ada => cy"
    assert (first.sent, second.sent) == (["cy", "cy"], [])
    [step, _] = again.state.steps.values()
    assert bytes(step.arguments) == b'{"to":"cy"}'


def test_a_tool_of_no_session_needs_one(record):
    """Outside a run a module-level tool names the remedy, and nothing runs."""
    mailer = Mailer("ada")
    with pytest.raises(hansard.ToolError, match=r"'with record\.run"):
        mailer.send("cy")
    assert mailer.sent == []


def test_both_clients_take_both_kinds_of_function(data_dir, workspace):
    """The sync client runs coroutine functions, the async client plain ones (in a thread)."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        with record.run("w") as session:

            @session.tool(effects="pure")
            async def later(x: int) -> int:
                await asyncio.sleep(0)
                return x + 1

            assert later(1) == 2  # type: ignore[comparison-overlap] # the sync client ran it
        run = session.run

    async def replay() -> tuple[int, int]:
        async with (
            hansard.connect_async(workspace, data_dir=data_dir) as record,
            record.run(run=run) as session,
        ):

            @session.tool(effects="pure", name="later")
            def at_once(x: int) -> int:
                raise AssertionError

            @session.tool(effects="pure")
            def here(x: int) -> int:
                return x + 2

            with pytest.warns(hansard.errors.ToolChanged):
                one = await at_once(1)  # type: ignore[misc] # the async client awaits every tool
            return one, await here(1)  # type: ignore[misc] # as the line above

    assert asyncio.run(replay()) == (2, 3)


@pytest.mark.parametrize("text", ["\ud800", "x" * 100_000], ids=["surrogate", "long"])
def test_an_error_of_any_text_is_recorded(record, text):
    """It is raised again as its class, and its stored message is bounded."""
    for options in ({}, {"mode": "strict"}):
        with record.run(None if options else "w", run="r", **options) as session:

            @session.tool(effects="pure")
            def fail() -> None:
                raise LookupError(text)

            with pytest.raises(LookupError):
                fail()
    [step] = record.state("r").agents["agent"].steps.values()
    assert step.status == "failed"
    assert len(step.error.message) < 10_000


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"effects": "twice"}, "is not a policy: use pure"),
        ({"effects": "reconcile"}, "needs the function that asks"),
        ({"attempts": 0}, "give 1 or more"),
        ({"key_argument": "nothing"}, "is not a parameter"),
        ({"version": 2}, "version"),
        ({"kind": None}, "kind"),
    ],
)
def test_a_tool_that_contradicts_itself_is_refused(record, options, why):
    """A declaration that cannot be meant is a ToolError where it is written."""
    with record.run("w") as session:
        declare = session.tool(**options)
        with pytest.raises(hansard.ToolError, match=why):
            declare(lambda: 1)


def test_a_call_that_the_function_would_refuse_is_a_type_error(record):
    """Wrong arguments raise TypeError as without us, and nothing is recorded."""
    with record.run("w") as session:

        @session.tool(effects="pure")
        def f(x: int) -> int:
            return x

        with pytest.raises(TypeError, match="missing a required argument"):
            f()
        with pytest.raises(TypeError, match="unexpected"):
            f(1, y=2)
        assert session.state.steps == {}


def test_name_docstring_and_signature_of_a_tool_are_kept(record):
    """Name, docstring and signature stay on the tool; `name=` renames it in the record."""
    with record.run("w") as session:

        @session.tool(effects="pure", name="Suche", version="3", kind="model")
        def search(query: str, *more: int, **named: Any) -> str:
            """Look."""
            return query

        assert (search.__name__, search.__doc__) == ("search", "Look.")
        assert search("a", 1, 2, b=3) == "a"
        [step] = session.state.steps.values()
        assert (step.tool, step.kind) == ("Suche", "model")
        assert bytes(step.arguments) == b'{"query":"a","more":{"$tuple":[1,2]},"named":{"b":3}}'
        assert session.state.tools["Suche"].version == "3"


def test_the_sync_client_is_refused_inside_a_loop(record):
    """Inside a running loop the sync client would block it: refused with the remedy."""

    async def inside() -> None:
        with pytest.raises(hansard.errors.BusError, match="connect_async"):
            record.runs()

    asyncio.run(inside())
    assert record.runs() == []


async def test_a_call_inside_another_tool_is_refused(lab: Lab):
    """A tool that is not composite cannot call tools: refused with the remedy, nothing runs."""
    async with lab.connect() as record, record.run() as session:

        @session.tool(effects="pure")
        async def inner() -> int:
            raise AssertionError

        @session.tool(effects="pure")
        async def outer() -> int:
            return await inner()

        with pytest.raises(hansard.ToolError, match="declare the outer tool with effects='comp"):
            await outer()
        [step] = session.state.steps.values()
        assert (step.tool, step.status) == ("outer", "failed")
