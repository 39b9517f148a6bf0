"""Tools of every kind of callable, with every option: a fault of ours is never the tool's."""

import asyncio
import functools
import inspect
import math
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hansard
from hansard.agents import flow
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.later


def double(x: int, times: int = 2) -> int:
    """A plain function."""
    return x * times


async def double_later(x: int, times: int = 2) -> int:
    """A coroutine function."""
    await asyncio.sleep(0)
    return x * times


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in a plain function, as most decorators do."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def double_soon(x: int) -> Any:
    """A plain function that gives something to await."""
    return double_later(x)


class Doubler:
    def __call__(self, x: int) -> int:
        """Twice as much."""
        return x * 2

    def method(self, x: int) -> int:
        """Twice as much."""
        return x * 2

    @classmethod
    def of_class(cls, x: int) -> int:
        """Twice as much."""
        return x * 2

    @staticmethod
    def of_none(x: int) -> int:
        """Twice as much."""
        return x * 2


class LaterDoubler:
    async def __call__(self, x: int) -> int:
        """Twice as much."""
        return await double_later(x)


CALLABLES: dict[str, Callable[..., Any]] = {
    "function": double,
    "coroutine function": double_later,
    "lambda": lambda x: x * 2,
    "partial": functools.partial(double, times=2),
    "partial of a coroutine function": functools.partial(double_later, times=2),
    "partial of a partial": functools.partial(functools.partial(double), times=2),
    "object": Doubler(),
    "async object": LaterDoubler(),
    "bound method": Doubler().method,
    "class method": Doubler.of_class,
    "static method": Doubler.of_none,
    "wrapper": wrapped(double),
    "wrapper of a coroutine function": wrapped(double_later),
    "function that gives a coroutine": double_soon,
    "C function": functools.partial(operator.mul, 2),
    "builtin": (2).__mul__,
    "cached": functools.lru_cache(double),
}

OPTIONS: list[dict[str, Any]] = [
    {},
    {"timeout_s": 20.0},
    {"effects": "once", "timeout_s": 20.0, "attempts": 2, "safe_errors": (KeyError,)},
    {"effects": "idempotent", "version": "2", "kind": "model"},
    {"effects": "composite", "timeout_s": 20.0},
    {"effects": hansard.reconcile(functools.partial(double, 1)), "gives": "untrusted"},
    {"shadow": functools.partial(double, times=3), "takes": "internal"},
]


async def come(result: Any) -> Any:
    """Return the result of a tool of either client."""
    return await result if asyncio.iscoroutine(result) else result


@pytest.mark.fast(cases=4, slow=0)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "none")
async def test_every_callable_is_a_tool(record: TwinRecord, options):
    """Any callable with any option runs once, is awaited if it must be, and is on record."""
    for mode in ("live", "offline"):
        async with record.run(run="r", mode=mode if mode == "offline" else None) as session:
            for name, function in CALLABLES.items():
                tool = session.raw.tool(name=name, **options)(function)
                assert await come(tool(4)) == 8, name
    steps = await record.steps("r")
    assert [(step.tool, step.status) for step in steps] == [
        (name, "completed") for name in CALLABLES
    ]


async def test_a_tool_without_a_name_of_its_own_gets_one(lab: Lab):
    """Two partials of one function are two tools, so neither is called like the function."""
    async with lab.connect() as record, record.run(run="r") as session:
        for name in ("partial", "object", "async object"):
            with pytest.raises(hansard.ToolError, match=r"no name of its own.*give name="):
                session.raw.tool(CALLABLES[name])
        others: list[Any] = [Holder.__dict__["name"], property(double), 3, None, iter]
        for what in others:
            with pytest.raises(hansard.ToolError, match=r"parameters of tool|is not a tool"):
                session.raw.tool(name="x")(what)


class Holder:
    @hansard.tool
    @staticmethod
    def echo(x: int) -> int:
        """Return the number; it gets no object."""
        return x

    @classmethod
    @hansard.tool
    def name(cls, x: int) -> str:
        """Return the class's answer; it gets the class."""
        return cls.__name__ * x

    root = hansard.tool(name="root")(math.sqrt)
    twice = hansard.tool(name="twice")(functools.partial(double, times=2))


async def test_in_a_class_a_tool_gets_what_a_function_would(lab: Lab):
    """Static methods, C functions and partials get no object, class methods the class."""
    async with lab.connect() as record, record.run(run="r"):
        holder = Holder()
        assert await come(holder.echo(3)) == 3
        assert await come(holder.name(2)) == "HolderHolder"
        assert await come(holder.root(9.0)) == 3.0
        assert await come(holder.twice(4)) == 8


async def test_a_tool_that_raises_stop_iteration_has_failed(lab: Lab):
    """StopIteration is recorded as an error of the tool, and no caller waits for ever."""

    def first(of: list[int]) -> int:
        return next(iter(of))

    async with lab.connect() as record, record.run(run="r") as session:
        for options in ({}, {"timeout_s": 20.0}, {"effects": "composite"}):
            tool = session.raw.tool(**{"effects": "pure", **options})(first)
            with pytest.raises(RuntimeError, match="first raised StopIteration"):
                await come(tool([]))
        steps = await record.steps("r")
        assert {step.status.value for step in steps} == {"failed"}


async def test_a_plain_body_calls_tools_as_a_plain_function_does(lab: Lab):
    """In a plain composite tool other tools give their results; many at once do not block."""
    count = 40
    async with lab.connect() as record, record.run(run="r") as session:

        @session.raw.tool(effects="pure")
        def part(x: int) -> int:
            return x + 1

        @session.raw.tool(effects="pure")
        def parts(n: int) -> Iterator[int]:
            yield from range(n)

        @session.raw.tool(effects="composite")
        def whole(x: int) -> list[int]:
            return [part(x), sum(parts(x % 5)), threading.get_ident() != here]

        here = threading.get_ident()
        results = await session.gather(*[functools.partial(_whole, whole, x) for x in range(count)])
        away = lab.is_async or count > 1
        assert results == [[x + 1, sum(range(x % 5)), away] for x in range(count)]
        steps = (await record.state("r")).agent("ada").steps.values()
        assert {step.status.value for step in steps} == {"completed"}
        assert len(steps) == count * 3


async def _whole(tool: Any, x: int) -> Any:
    return await come(tool(x))


def test_a_call_that_nobody_awaited_is_named(data_dir, workspace):
    """A warning names the call that was not awaited; passing it on is refused with a remedy."""

    async def play() -> None:
        async with (
            hansard.connect_async(workspace, data_dir=data_dir) as record,
            record.run("w") as session,
        ):
            ran: list[Any] = []

            @session.tool(effects="once")
            def send(to: Any) -> Any:
                ran.append(to)

            with pytest.raises(hansard.BadValue, match=r"coroutine that was not awaited.*await it"):
                await send(pending := send(1))
            assert pending.__qualname__ == "send"
            pending.close()
            assert ran == []

    asyncio.run(play())


async def test_rules_and_secret_providers_answer_at_once(lab: Lab):
    """A rule or provider of secrets that returns an awaitable is refused, and nothing runs."""
    ran: list[Any] = []

    async def later(_: Any) -> str:
        return "no"

    def send(key: Any) -> None:
        ran.append(key)

    for options in ({"gate": [LaterRule()]}, {"secrets": later}):
        async with (
            lab.connect() as record,
            record.run(run=f"r{len(options)}{[*options]}", **options) as session,
        ):
            tool = session.raw.tool(effects="once")(send)
            with pytest.raises(hansard.BadValue, match="an awaitable"):
                await come(tool(hansard.Secret("key")))
    assert ran == []


class LaterRule:
    async def __call__(self, _: Any) -> bool:
        """No."""
        return False


@pytest.mark.fast(cases=99, slow=0)
async def test_a_policy_may_be_anything_that_is_called(lab: Lab):
    """A policy may be a coroutine function, an object, or return an awaitable."""

    async def happened(_: Any) -> Any:
        return hansard.Happened("yes")

    def soon(step: Any) -> Any:
        return happened(step)

    class Policy:
        async def __call__(self, step: Any) -> Any:
            return await happened(step)

    policies = [happened, Policy(), functools.partial(happened), soon]
    for number, policy in enumerate(policies):
        async with lab.connect() as record:
            for settle in (None, policy):
                async with record.run(run=f"r{number}", settle=settle) as session:

                    @session.tool(effects="once")
                    async def send() -> str:
                        raise TimeoutError

                    if settle is None:
                        with pytest.raises(TimeoutError):
                            await send()
                    else:
                        assert await send() == "yes"


NAMES = "abcd"
KINDS = sorted(
    {*inspect._ParameterKind} - {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
)


@st.composite
def signatures(draw: st.DrawFn) -> inspect.Signature:
    """Draw parameters of every kind, with and without defaults, in an order that Python allows."""
    some = st.lists(st.tuples(st.sampled_from(KINDS), st.booleans()), max_size=len(NAMES))
    parameters: list[inspect.Parameter] = []
    for name, (kind, has_default) in zip(NAMES, sorted(draw(some)), strict=False):
        follows = any(
            each.default is not inspect.Parameter.empty and each.kind is not KINDS[-1]
            for each in parameters
        )
        default = name.upper() if has_default or follows else inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, kind, default=default))
    rest = draw(st.booleans())
    if rest:
        parameters.append(inspect.Parameter("rest", inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


PLAIN = inspect.signature(double)


def outcome(bind: Callable[..., dict[str, Any]], *arguments: Any) -> Any:
    """Return the arguments by name, in order, or the error."""
    try:
        return [*bind(*arguments).items()]
    except TypeError as error:
        return str(error)


def as_inspect_binds(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments as `inspect` binds them."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


@example(PLAIN, (1,), {})
@example(PLAIN, (), {"times": 3, "x": 1})
@example(PLAIN, (), {"times": 3})
@example(PLAIN, (1, 2), {"x": 1})
@example(PLAIN, (1, 2, 3), {})
@example(PLAIN, (1,), {"e": 1})
@given(
    signatures(),
    st.lists(st.integers(), max_size=5).map(tuple),
    st.dictionaries(st.sampled_from([*NAMES, "e", "rest"]), st.integers(), max_size=4),
)
def test_arguments_are_bound_as_inspect_binds_them(signature, args, kwargs):
    """The same names in the same order, or the same error."""
    expected = outcome(as_inspect_binds, signature, args, kwargs)
    assert outcome(flow.arguments, signature, args, kwargs) == expected
