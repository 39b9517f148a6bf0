"""The gate at work: refused calls do not run, are recorded, and may run later; budgets hold."""

import pytest
from tenacity import wait_fixed

import hansard
from hansard.agents.policy.gate import Budget
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.fast(cases=99, slow=0)
"""Client-independent tests: a single sync-client case is in the quick run."""


@pytest.mark.slow(cases=1)
async def test_a_refused_call_is_an_event_and_an_error(record: TwinRecord):
    """Nothing runs; the step is recorded with the rule's name; the error names rule and reason."""
    rule = hansard.deny("send", where={"to": hansard.one_of("bob")}, name="not bob", reason="away")
    async with record.run(run="r", gate=[rule]) as session:
        ran = []

        @session.tool(effects="once")
        async def send(to: str) -> str:
            ran.append(to)
            return to

        with pytest.raises(hansard.Blocked, match="rule 'not bob' blocked send: away") as stop:
            await send("bob")
        assert await send("cy") == "cy"
    assert ran == ["cy"]
    assert (stop.value.rule, stop.value.reason, stop.value.tool) == ("not bob", "away", "send")
    blocked, sent = await record.steps("r")
    assert (blocked.status, blocked.rule, sent.status) == ("blocked", "not bob", "completed")
    assert bytes(blocked.arguments) == b'{"to":"bob"}'


async def test_what_was_blocked_is_tried_again_on_resume(record: TwinRecord):
    """A resume under other rules runs it as the next attempt; replays raise the refusal."""

    async def work(record, *rules, **options):
        async with record.run(run="r", gate=rules, **options) as session:

            @session.tool(effects="once")
            async def send(to: str) -> str:
                return to

            return await send("bob")

    for _ in range(2):
        with pytest.raises(hansard.Blocked):
            await work(record, hansard.deny(name="closed"))
    for mode in ("strict", "offline"):
        with pytest.raises(hansard.Blocked, match="'closed'"):
            await work(record, mode=mode)
    assert (await record.tags("r")).count("step.blocked.v1") == 1
    assert await work(record) == "bob"
    assert await work(record, hansard.deny()) == "bob"
    [step] = await record.steps("r")
    assert (step.status, step.attempt) == ("completed", 2)


async def test_rules_see_the_values_that_the_tool_gets(lab: Lab):
    """A rule gets arguments by name, with defaults, in their own types."""
    seen = []

    def look(request):
        seen.append(
            (dict(request.arguments), request.tool, request.agent, request.role, request.effects)
        )

    async with lab.connect(gate=[look]) as record, record.run(run="r") as session:

        @session.tool(effects="once")
        async def send(to: tuple, limit: int = 3) -> None: ...

        await send((1, 2))
    assert seen == [({"to": (1, 2), "limit": 3}, "send", "ada", "writer", "once")]


@pytest.mark.parametrize("reason", ["x" * 100_000, "\ud800", "\0"])
async def test_a_rule_s_reason_is_recorded_whatever_it_is(record: TwinRecord, reason):
    """A reason of any length and any characters blocks as any other does, and replays."""
    for mode in (None, "strict"):
        async with record.run(run="r", gate=[lambda request: reason], mode=mode) as session:

            @session.tool(effects="once")
            async def send() -> None: ...

            with pytest.raises(hansard.Blocked):
                await send()
    [step] = await record.steps("r")
    assert step.status == "blocked"
    assert len(step.error.message) < 10_000


async def test_a_rule_that_breaks_stops_the_call(lab: Lab):
    """An error in a rule is no consent: it is raised, and the tool does not run."""

    def broken(request):
        raise ZeroDivisionError

    async with lab.connect() as record, record.run(run="r", gate=[broken]) as session:

        @session.tool(effects="once")
        async def send() -> None:
            raise AssertionError

        with pytest.raises(ZeroDivisionError):
            await send()


async def _spend(record, names, *rules, cost=None, fail=(), effects="once", attempts=1, **options):
    """Make calls that may cost; return the number of bodies run before a budget stopped them."""
    ran = []
    async with record.run(gate=rules, **options) as session:

        @session.tool(effects=effects, attempts=attempts, wait=wait_fixed(0))
        async def work(name: str) -> str:
            ran.append(name)
            if cost is not None:
                session.raw.usage(cost=cost, input_tokens=10, output_tokens=5)
            if name in fail:
                raise hansard.errors.NotDone
            return name

        for name in names:
            try:
                await work(name)
            except hansard.Blocked as stop:
                return "".join(ran), stop.rule
            except hansard.errors.NotDone:
                continue
    return "".join(ran), None


async def test_a_budget_of_calls_holds(record: TwinRecord):
    """The call over the limit is blocked with the budget's name; its count is in the log."""
    assert await _spend(record, "abcd", hansard.budget("few", 3), run="r") == ("abc", "few")
    assert await _spend(record, "abcde", hansard.budget("few", 3), run="r") == ("", "few")
    assert await _spend(record, "abcde", hansard.budget("few", 4), run="r") == ("d", "few")
    events = [tag for tag in await record.tags("r", None) if tag.startswith("budget")]
    assert events == ["budget.reserved.v1"] * 4


async def test_a_budget_counts_only_its_tools_and_roles(record: TwinRecord):
    """Patterns select the roles and tools of a budget."""
    rules = [hansard.budget("a", 1, tool="other*"), hansard.budget("b", 1, role="reader")]
    assert await _spend(record, "abc", *rules, run="r") == ("abc", None)
    only = hansard.budget("c", 1, tool="wor*", role="w*")
    assert await _spend(record, "xy", only, run="s") == ("x", "c")


@pytest.mark.parametrize(
    ("unit", "limit", "reserve", "ran"),
    [("cost", 1.0, 0.5, "abc"), ("tokens", 45, 15, "abc"), ("input_tokens", 25, 10, "ab")],
)
async def test_a_budget_of_usage_counts_what_was_used(
    record: TwinRecord, unit, limit, reserve, ran
):
    """A call's reported usage replaces the amount reserved before it."""
    rule = hansard.budget("b", limit, unit=unit, reserve=reserve)
    assert await _spend(record, "abcd", rule, cost=0.25, run="r") == (ran, "b")


async def test_a_call_that_reports_nothing_costs_what_was_reserved(record: TwinRecord):
    """Silence is not free."""
    rule = hansard.budget("b", 1.0, unit="cost", reserve=0.5)
    assert await _spend(record, "abcd", rule, run="r") == ("ab", "b")


async def test_every_attempt_counts(lab: Lab):
    """Retries draw on the budget: it holds however often a call is tried, and after a resume."""
    few = hansard.budget("few", 3)
    async with lab.connect() as record:
        ran = await _spend(record, "ab", few, fail="a", attempts=5, run="r")
        assert ran == ("aaa", "few")
        assert await _spend(record, "a", few, fail="a", attempts=5, run="r") == ("", "few")
    async with lab.connect() as record:
        one = hansard.budget("one", 1)
        assert await _spend(record, "a", one, fail="a", run="s") == ("a", None)
        assert await _spend(record, "a", one, fail="a", run="s") == ("", "one")
        two = hansard.budget("one", 2)
        assert await _spend(record, "a", two, fail="a", run="s") == ("a", None)
        assert await _spend(record, "a", two, fail="a", run="s") == ("", "one")


async def test_a_call_that_is_blocked_draws_on_no_budget(record: TwinRecord):
    """If a second budget refuses, the first gets its reservation back."""
    none, few = hansard.budget("none", 0), hansard.budget("few", 1)
    for _ in range(3):
        assert await _spend(record, "a", few, none, run="r") == ("", "none")
    assert await _spend(record, "a", few, run="r") == ("a", None)


async def test_streams_draw_on_budgets(record: TwinRecord):
    """A streaming tool is counted like any other, by its usage reported at the end."""
    rule = hansard.budget("b", 1.0, unit="cost", reserve=0.5)
    ran = []
    async with record.run(run="r", gate=[rule]) as session:

        @session.tool(effects="once")
        async def read(name: str):
            ran.append(name)
            session.raw.usage(cost=0.25)
            yield name

        with pytest.raises(hansard.Blocked, match="'b'"):
            for name in "abcdef":
                assert [item async for item in read(name)] == [name]
    assert ran == ["a", "b", "c"]


@pytest.mark.parametrize(
    "rule",
    [
        lambda: hansard.budget("b", float("nan")),
        lambda: hansard.budget("b", 1, reserve=float("nan")),
        lambda: hansard.budget("b", 1, reserve=float("inf")),
        lambda: hansard.budget("b", 1, reserve=-1),
        lambda: hansard.budget("", 1),
        lambda: hansard.budget("\ud800", 1),
        lambda: hansard.budget("b", "1"),  # type: ignore[arg-type] # what is refused
    ],
)
async def test_a_budget_that_is_none_is_refused(lab: Lab, rule):
    """A limit or reserve that cannot be counted is refused where it is declared."""
    with pytest.raises(hansard.HansardError):
        rule()
    assert Budget(name="b", limit=float("inf")) == hansard.budget("b", float("inf"))
