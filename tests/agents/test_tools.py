"""Tools: whatever kind of function, it is recorded once and answered from the record after that."""

import asyncio
import dataclasses
import enum
from typing import Any, NamedTuple

import msgspec
import pytest

import hansard
from hansard.agents.errors import RecordedFailure
from tests.agents.twins import Lab, twins


@twins
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


@twins
async def test_equal_calls_are_told_apart_by_their_place(lab: Lab):
    """The second of two equal calls has an answer of its own."""
    answers = iter(range(10))
    async with lab.connect() as record:
        async with record.run() as session:

            @session.tool(effects="pure")
            async def draw() -> int:
                return next(answers)

            first = [await draw(), await draw(), await draw()]
        async with record.run(run=session.run) as session:

            @session.tool(effects="pure")
            async def draw() -> int:
                return next(answers)

            assert [await draw(), await draw(), await draw()] == first == [0, 1, 2]


class Mailer:
    """A class whose methods are tools."""

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
    """Outside a run a module-level tool says what to do, and nothing runs."""
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


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Paper:
    """A result with fields of every kind."""

    title: str
    tags: frozenset[str] = frozenset()
    size: tuple[int, int] = (0, 0)


class Found(msgspec.Struct):
    papers: list[Paper]
    best: Paper | None = None


class Pair(NamedTuple):
    a: int
    b: str


RICH: list[tuple[Any, Any]] = [
    (Paper, Paper("t", frozenset("ab"), (1, 2))),
    (Found, Found([Paper("x")], Paper("y"))),
    (list[Paper], [Paper("x"), Paper("y")]),
    (dict[str, Paper], {"a": Paper("x")}),
    (Paper | None, None),
    (Colour, Colour.RED),
    (Pair, Pair(1, "x")),
]


@pytest.mark.fast(cases=7)
@pytest.mark.slow(cases=0)
@pytest.mark.parametrize(("annotation", "value"), RICH, ids=lambda item: repr(item)[:20])
@pytest.mark.parametrize("reply", ["resume", "strict"])
def test_annotated_records_come_back_as_records(record, annotation, value, reply):
    """A result that the annotation names comes back as that type, equal to what ran returned."""

    def find() -> Any:
        return value

    find.__annotations__["return"] = annotation
    with record.run("w") as session:
        assert session.tool(effects="pure")(find)() == value
    with record.run(run=session.run, mode=reply) as session:
        back = session.tool(effects="pure")(find)()
    assert back == value
    assert type(back) is type(value)


def test_a_record_without_its_annotation_comes_back_by_its_name(record):
    """Without the annotation its class is found by its name, and nothing runs again."""
    ran = []
    for _ in range(2):
        with record.run("w", run="r") as session:

            @session.tool(effects="pure")
            def find():
                ran.append(1)
                return Paper("t")

            assert find() == Paper("t")
    assert ran == [1]


@twins
async def test_exceptions_come_back_as_they_were(lab: Lab):
    """Replays raise a recorded error with its class, arguments and text."""
    errors: list[Exception] = [
        ValueError("no"),
        KeyError("k"),
        FileNotFoundError(2, "No such file", "x.txt"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        Custom(7),
        ZeroDivisionError(),
        RuntimeError("a", {"b": (1, 2)}),
        hansard.errors.NotDone("nothing sent"),
    ]
    async with lab.connect() as record:
        run = None
        for mode in (None, "strict", "offline", "resume"):
            async with record.run(run=run, mode=mode) as session:

                @session.tool(effects="once", raises=(Custom,))
                async def fail(which: int) -> None:
                    assert mode is None
                    raise errors[which]

                for which, error in enumerate(errors):
                    with pytest.raises(type(error)) as caught:
                        await fail(which)
                    assert type(caught.value) is type(error)
                    assert str(caught.value) == str(error)
                    assert caught.value.args == error.args

                @session.tool(effects="pure")
                async def after() -> int:
                    return 1

                assert await after() == 1
                run = session.run


class Custom(Exception):
    """An error with a constructor of its own."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


def test_an_os_error_keeps_its_number_and_its_file(record):
    """A replayed OSError can be asked for errno and filename like the one that was raised."""
    for options in ({}, {"mode": "strict"}):
        with record.run(None if options else "w", run="r", **options) as session:

            @session.tool(effects="pure")
            def read() -> None:
                raise FileNotFoundError(2, "No such file", "x.txt")

            with pytest.raises(FileNotFoundError) as caught:
                read()
            assert (caught.value.errno, caught.value.filename) == (2, "x.txt")


class Hidden(Exception):
    """A class that the tools below do not name."""


def _hidden() -> type[Exception]:
    class Local(Exception):
        """A class that nobody can find again."""

    return Local


class Broken(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        message = "no text"
        raise RuntimeError(message)


@pytest.mark.parametrize(
    ("make", "back"),
    [
        (lambda: Hidden("x"), Hidden),
        (lambda: _hidden()("x"), RecordedFailure),
        (lambda: ExceptionGroup("several", [ValueError("x")]), ExceptionGroup),
        (Broken, Broken),
        (lambda: ValueError(object()), ValueError),
        (lambda: ValueError("\ud800"), ValueError),
        (lambda: ValueError("x" * 100_000), ValueError),
    ],
    ids=["module", "local", "group", "broken", "object", "surrogate", "long"],
)
def test_errors_that_are_hard_to_record(record, make, back):
    """Every error is raised again, as its class or as a RecordedFailure with its name."""
    for options in ({}, {"mode": "strict"}):
        with record.run(None if options else "w", run="r", **options) as session:

            @session.tool(effects="pure")
            def fail() -> None:
                raise make()

            expected = back if options else type(make())
            with pytest.raises((expected, Exception)) as caught:
                fail()
            if options:
                whole = type(caught.value) is back
                assert whole or {back, RecordedFailure} <= set(type(caught.value).__mro__)
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


def test_what_a_tool_is_told_by_is_kept(record):
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
