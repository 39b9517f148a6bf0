"""Given, when, then of programs: recorded calls are answered, and failures show both sides."""

from functools import partial

import msgspec
import pytest

import hansard
from hansard import testing
from hansard.testing import answered, decided, decider, given, ran


def report(record):
    """Three calls, the last of which does something to the world; and a decision."""
    with record.run("report", agent="writer") as session:

        @session.tool(effects="pure")
        def search(topic: str) -> list[str]:
            return [f"{topic}.md"]

        @session.tool(effects="idempotent")
        def read(path: str) -> str:
            return f"text of {path}"

        @session.tool(effects="once")
        def send(text: str) -> int:
            return len(text)

        texts = [read(path) for path in search("threads")]
        session.decide("send it?", selected="yes", reason="it is short")
        return send(texts[0])


async def report_async(record):
    """Write the report with the async client."""
    async with record.run("report", agent="writer") as session:

        @session.tool(effects="pure")
        async def search(topic: str) -> list[str]:
            return [f"{topic}.md"]

        @session.tool(effects="idempotent")
        async def read(path: str) -> str:
            return f"text of {path}"

        @session.tool(effects="once")
        async def send(text: str) -> int:
            return len(text)

        texts = [await read(path) for path in await search("threads")]
        await session.decide("send it?", selected="yes", reason="it is short")
        return await send(texts[0])


def search_only(record):
    """Search only, as an earlier version of `report` did."""
    with record.run("report", agent="writer") as session:

        @session.tool(effects="pure")
        def search(topic: str) -> list[str]:
            return [f"{topic}.md"]

        search("threads")


BOTH = pytest.mark.parametrize("program", [report, report_async], ids=["sync", "async"])


@BOTH
def test_what_nobody_did_before_runs(program):
    """With nothing on record every call runs, and the decision is made."""
    then = given().when(program)
    then.then(
        ran("search", arguments={"topic": "threads"}, result=["threads.md"]),
        ran("read"),
        ran("send", agent="writer", step=3),
        decided("send it?", "yes", reason="short"),
    ).then_returns(18)
    assert then.state().life.status == "completed"


@BOTH
def test_what_is_on_record_is_answered(program):
    """A complete run is answered, and only the resume itself is recorded."""
    then = given(program).when(program)
    then.then(answered("search"), answered("read"), answered("send", result=18))
    then.then_no("step.requested", "step.completed", "decision.made").then_returns(18)
    assert then.decisions == []


@BOTH
@pytest.mark.parametrize("step", ["2", "writer#2"])
def test_after_a_kill_the_rest_runs(program, step):
    """Killed at step 2: step 1 is answered, step 2 is tried again, step 3 runs."""
    then = given(program).killed_at(step).when(program)
    then.then(answered("search"), ran("read"), ran("send"), "step.attempted")


@BOTH
def test_doubt_stops_the_program(program):
    """Killed while a call that may happen once was under way: it is not made again."""
    then = given(program).killed_at("writer#3").when(program)
    then.then_raises(
        hansard.InDoubt, answered("search"), answered("read"), saying="writer#3"
    ).then_no("step.requested")


def test_a_settled_doubt_is_answered():
    """A settled call is answered. A command is a function of a record too; a memory can be
    continued.
    """

    def settle(record):
        [(run, _)] = record.runs()
        record.settle(run, "writer#3", "happened", result=18)

    settled = given(report).killed_at("writer#3").when(settle)
    settled.then("step.settled")
    again = given(settled.memory).when(report)
    again.then(answered("search"), answered("read"), answered("send")).then_returns(18)


def test_a_given_memory_stays_as_it_is():
    """Two tests may begin from one record, and neither sees the other's changes."""
    begun = given(report).killed_at("writer#2").when(lambda record: None).memory
    head = len(begun.log.after(0))
    for _ in range(2):
        given(begun).when(report).then(answered("search"), ran("read"), ran("send"))
    assert len(begun.log.after(0)) == head


def look_or_guess(record, *, caught):
    """Make a call that fails the first time; with `caught`, continue with a guess."""
    with record.run("w", agent="writer") as session:

        @session.tool(effects="pure")
        def find() -> str:
            return "here"

        @session.tool(effects="pure")
        def look(place: str) -> str:
            raise KeyError(place)

        @session.tool(effects="pure")
        def guess() -> str:
            return "a guess"

        place = find()
        try:
            return look(place)
        except KeyError:
            if not caught:
                raise
            return guess()


def test_a_step_at_which_the_run_failed_runs_again():
    """The next session repeats the step whose error ended the run."""
    then = given(partial(look_or_guess, caught=False), raises=KeyError).when(
        partial(look_or_guess, caught=True)
    )
    then.then(answered("find"), ran("look", error="KeyError: 'here'"), ran("guess"))


def test_a_failure_that_the_run_went_on_after_is_answered():
    """The recorded error of a caught failure is raised again, without a call."""
    program = partial(look_or_guess, caught=True)
    then = given(program).when(program)
    failed = answered("look", status="failed", error="KeyError")
    then.then(answered("find"), failed, answered("guess")).then_returns("a guess")
    given().when(partial(look_or_guess, caught=False)).then_raises(
        KeyError, ran("find"), ran("look", status="failed"), saying="here"
    )


def test_a_history_that_fails_unasked_is_no_history():
    """An error of a program that is given is raised, unless it is expected."""

    def breaks(record):
        message = "broken"
        raise ValueError(message)

    with pytest.raises(ValueError, match="broken"):
        given(breaks).when(report)


def test_what_connect_takes_is_taken():
    """Gates and modes: for all programs, or for the one that is looked at."""
    rules = [hansard.deny("send")]
    given(gate=rules).when(report).then_raises(
        hansard.Blocked, ran("search"), ran("read"), ran("send", status="blocked")
    )
    given(report).when(report, gate=rules).then(
        answered("search"), answered("read"), answered("send")
    )
    given(search_only).when(report, mode="strict").then_raises(
        hansard.errors.Miss, answered("search")
    )
    with pytest.raises(hansard.errors.BadOption, match="gate"):
        given().when(report, gates=rules)  # type: ignore[call-arg] # misspelt on purpose


def test_several_agents_are_distinguished():
    """Each call names its agent, so that the order between agents does not matter."""

    def team(record):
        with record.run("t", agent="a") as first:
            with record.run("t", agent="b", run=first.run) as second:
                second.tool(effects="pure")(_one)()
            first.tool(effects="pure")(_one)()

    then = given().when(team)
    then.then(ran("_one", agent="b"), ran("_one", agent="a"))
    then.then(ran("_one", agent="a"), ran("_one", agent="b"))


def _one() -> int:
    return 1


async def test_inside_a_loop_it_is_awaited():
    """`when_async` runs programs of both clients; the error of `when` names it."""
    for program in (report, report_async):
        then = await given(program).killed_at("2").when_async(program)
        then.then(answered("search"), ran("read"), ran("send")).then_returns(18)
    with pytest.raises(hansard.errors.BusError, match="inside a running event loop"):
        given().when(report)


def test_a_large_payload_comes_back():
    """A payload too large for an event is compared whole."""

    def large(record):
        with record.run("w") as session:

            @session.tool(effects="pure")
            def fetch(text: str) -> str:
                return text * 2

            return len(fetch("x" * 100_000))

    then = given(large).when(large)
    then.then(answered("fetch", arguments={"text": "x" * 100_000}, result="x" * 200_000))


# ---------------------------------------------------------------- what a test says that fails


def _message(check) -> str:
    with pytest.raises(AssertionError) as failed:
        check()
    return str(failed.value)


def test_calls_are_shown_from_both_sides():
    """Matching calls are shown as made; a difference shows the expected and the actual one."""
    then = given(report).when(report)
    message = _message(
        lambda: then.then(
            answered("search"), ran("read", arguments={"path": "x"}), answered("send")
        )
    )
    assert message.splitlines() == [
        "the calls are not as expected (- expected, + found):",
        "    answered writer#1 search(topic='threads') -> ['threads.md']",
        "  - ran read(path='x')",
        "  + answered writer#2 read(path='threads.md') -> 'text of threads.md'",
        "    answered writer#3 send(text='text of threads.md') -> 18",
    ]


def test_a_call_too_many_and_one_too_few_are_shown():
    """The others stay in their places."""
    then = given().when(report)
    message = _message(lambda: then.then(ran("read"), ran("send"), ran("send")))
    marks = [line[2] for line in message.splitlines()[1:]]
    assert marks == ["+", " ", " ", "-"]


def test_decisions_events_errors_and_results_are_shown_from_both_sides():
    """Each difference shows the expected and the found value."""
    then = given().when(report)
    message = _message(lambda: then.then(decided("send it?", "no")))
    assert "- decided 'send it?': no" in message
    assert "+ writer decided 'send it?': yes because it is short" in message
    message = _message(lambda: then.then("decision.made", "decision.made"))
    assert [line[2] for line in message.splitlines()[1:]] in ([" ", "-"], ["-", " "])
    assert "+ step.requested.v1" in _message(lambda: then.then_no("step.requested"))
    message = _message(lambda: then.then_raises(hansard.InDoubt, saying="send"))
    assert "- InDoubt: ... send ..." in message
    assert "+ no error: it returned 18" in message
    assert "- 19\n  + 18" in _message(lambda: then.then_returns(19))


def test_an_unexpected_error_is_shown_with_its_cause():
    """`then` fails by it, and pytest shows where it was raised."""
    then = given(report).killed_at("3").when(report)
    with pytest.raises(AssertionError, match="it ended by an error: InDoubt: step 3") as failed:
        then.then(answered("search"))
    assert failed.value.__cause__ is then.error


def test_a_kind_that_there_is_not_is_named():
    """A test that names no kind of event expects nothing, and would hold for ever."""
    with pytest.raises(hansard.errors.BadName, match=r"did you mean 'step\.completed'"):
        given().when(report).then("step.complete")
    with pytest.raises(hansard.NotFound, match="step 9"):
        given(report).killed_at("writer#9").when(report)
    with pytest.raises(TypeError, match="must be the first argument"):
        given(report, testing.Memory()).when(report)


# ------------------------------------------------------------ given, when, then for rules


class Full(Exception):
    """No capacity left."""


class State(msgspec.Struct):
    """A count."""

    count: int = 0


def _fold(state: State, events) -> State:
    return State(state.count + sum(events))


def _decide(state: State, command: int) -> list[int]:
    if state.count + command > 3:
        message = f"{state.count} are there"
        raise Full(message)
    return [1] * command


RULES = decider(State, _fold, _decide)


def test_rules_that_hold():
    """Events, the state after them, and refusals."""
    RULES.given(1).when(2).then(1, 1).then_state(count=3)
    RULES.given(1, 1).given(1).when(1).then_raises(Full, saying="3 are there")
    RULES.given(3).when(0).then()
    assert RULES.when(1).state.count == 1  # what is given to one example is not given to the next


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: RULES.when(2).then(1), "- expected, + found):\n    1\n  + 1"),
        (lambda: RULES.when(1).then_state(count=2), "- count = 2\n  + count = 1"),
        (lambda: RULES.when(4).then(1), "it was refused: Full: 0 are there"),
        (lambda: RULES.when(1).then_raises(Full), "- Full\n  + no error: decided [1]"),
        (
            lambda: RULES.when(4).then_raises(Full, saying="none"),
            "- Full: ... none ...\n  + Full: 0 are there",
        ),
        (lambda: RULES.when(4).then_raises(KeyError), "- KeyError\n  + Full: 0 are there"),
    ],
)
def test_rules_that_do_not_hold(check, message):
    """Both sides are shown."""
    with pytest.raises(AssertionError) as failed:
        check()
    assert message in str(failed.value)
