"""Hostile input at each door: a clear error before anything is written, or an exact round trip."""

from typing import Any

import pytest

import hansard
from tests.agents.twins import Lab, TwinRecord

CARRIED = [
    "a", "a.b", "*", ">", "a.>", "$SYS", "../../etc/passwd", "a/b", "a%2Fb", "==" + "0" * 64, "=2E",
    " ", " lead and trail ", "été", "e\u0301te\u0301", "\U0001f4a5\u200d", "\u202egnp.exe",
    "\ufeffbom", "name with 'quotes\" and \\", "'; DROP TABLE runs; --", "${jndi:ldap://x}",
    "{{7*7}}", "<script>", "null", "true", "0", "-1", "life", "agent", "run", "$secret", "CON",
    "x" * 128, "x" * 129, "é" * 300, "x" * 1_000,
]  # fmt: skip
REFUSED = [
    "", "\0", "a\nb", "\t", "\x1b[2J", "\x7f", "\ud800", "x\udfff", "x" * 1_001, 5, None, b"a",
]  # fmt: skip


@pytest.mark.fast(cases=8, slow=0)
@pytest.mark.parametrize("name", CARRIED)
async def test_a_name_is_carried_exactly(record: TwinRecord, name):
    """Any printable name is found again by exactly that name, and by no other."""
    for mode in (None, "strict"):
        rules = [hansard.budget(name, 5)]
        options = {"run": name, "agent": name, "role": name, "mode": mode, "gate": rules}
        async with record.run(name, **options) as session:

            @session.tool(effects="once", name=name)
            async def call(x: str) -> str:
                assert mode is None
                return x

            assert await call(name) == name
            await session.checkpoint(name, name=name)
            assert await session.checkpoint_data(name) == {"name": name}
            await session.hand_off(name)
            await session.message(name, name)
            assert (session.run, session.agent, session.role) == (name, name, name)
    [(run, life)] = await record.runs()
    assert (run, life.workflow, life.roster) == (name, name, {name: name})
    view = await record.state(name)
    assert list(view.agents) == [name]
    assert [step.tool for step in view.agent(name).steps.values()] == [name]
    with pytest.raises(hansard.errors.BusError):
        await record.state(name + "x")
    child = await record.fork(name)
    assert (await record.state(child)).life.forked.parent == name


@pytest.mark.fast(cases=12, slow=0)
@pytest.mark.parametrize("name", REFUSED, ids=lambda name: repr(name)[:20])
@pytest.mark.parametrize(
    "door", ["run", "agent", "role", "workflow", "conversation", "correlation"]
)
async def test_a_name_that_is_none_opens_nothing(lab: Lab, door, name):
    """A name that cannot be carried is refused at the door, and nothing is written."""
    if name is None:
        return  # not given
    async with lab.connect() as record:
        options = {"workflow": "w", door: name}
        with pytest.raises(hansard.HansardError):
            async with record.run(options.pop("workflow"), **options):
                raise AssertionError
        assert await record.runs() == []


@pytest.mark.fast(cases=3, slow=0)
@pytest.mark.parametrize("name", REFUSED, ids=lambda name: repr(name)[:20])
async def test_a_tool_by_no_name_is_refused(lab: Lab, name):
    """A tool's name is a name like any other."""
    async with lab.connect() as record, record.run(run="r") as session:
        if name in (None, ""):  # not given: the function's own name
            return
        with pytest.raises((hansard.errors.BadName, hansard.ToolError)):

            @session.tool(effects="pure", name=name)
            async def call() -> None: ...


@pytest.mark.parametrize(
    "name", ["", "A", "a.b", "*", ">", "../x", "é", "a" * 41, "a\n", "\ud800", 5]
)
def test_a_workspace_by_no_name_is_refused(data_dir, name):
    """A workspace's name is checked before a broker is searched for."""
    with pytest.raises(hansard.HansardError), hansard.connect(name, data_dir=data_dir):
        raise AssertionError


@pytest.mark.fast(cases=99, slow=0)
async def test_agents_and_roles_with_slashes_are_distinct(record: TwinRecord):
    """Role `a/b` agent `c` and role `a` agent `b/c` are two agents, of one run."""
    for role, agent in (("a/b", "c"), ("a", "b/c"), ("a.b", "d"), ("a", "b.d")):
        async with record.run(run="r", role=role, agent=agent) as session:
            await session.checkpoint(f"{role} {agent}")
    view = await record.state("r")
    assert {name: list(state.checkpoints) for name, state in view.agents.items()} == {
        "c": ["a/b c"], "b/c": ["a b/c"], "d": ["a.b d"], "b.d": ["a b.d"],
    }  # fmt: skip
    forked = await record.state(await record.fork("r"))
    assert forked.agents == view.agents


NAUGHTY = [
    "", "\0", "\x01\x02\x1f\x7f", "\r\n", "\u2028\u2029", "\ufeff", "\ufffe\uffff", "\U0010ffff",
    "\u202e\u2066", "e\u0301",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞", "👩‍👩‍👧‍👦 🏳️‍🌈 🇺🇸",
    "田中さんにあげて下さい", "الكل في المجمو عة", "\\", '"', "\\u0000", "\\ud800",
    '{"$secret":"x"}', "<secret:key>", "1E400", "-0", "0x1F", "NaN", "Infinity", "null",
    "undefined", "${HOME}", "`id`", "$(id)", "%s%s%s%n", "' OR 1=1 --",
    "<img src=x onerror=alert(1)>", "../../../../etc/passwd\0.png", "http://a/%%30%30",
    "\x1b[31mred\x1b[0m", "a" * 70_000, "\u0000" * 70_000,
]  # fmt: skip


@pytest.mark.thorough(quick="domain/test_values.py::test_a_value_comes_back_exactly")
async def test_naughty_strings_come_back_exactly(record: TwinRecord):
    """Each string is unchanged as argument, result, item, key, error text and message."""
    for mode in (None, "strict", "resume"):
        async with record.run(run="r", mode=mode) as session:

            @session.tool(effects="pure")
            async def echo(value, *rest, **named):
                assert mode is None
                return [value, *rest, named]

            @session.tool(effects="pure")
            async def items(value):
                assert mode is None
                yield value

            @session.tool(effects="pure")
            async def fail(value):
                assert mode is None
                raise ValueError(value)

            for text in NAUGHTY:
                assert await echo(text, {text: text}, **{text: 1}) == [
                    text, {text: text}, {text: 1},
                ]  # fmt: skip
                assert [item async for item in items(text)] == [text]
                if len(text) < 1_000:
                    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- the text is the test
                        await fail(text)
                    assert caught.value.args == (text,)
                await session.message("user", text, fields={"note": text})
            assert [m["content"] for m in await session.context()] == NAUGHTY


@pytest.mark.fast(cases=99, slow=0)
@pytest.mark.parametrize("value", [object(), [1, {2: {object()}}], print])
async def test_arguments_that_cannot_be_recorded_stop_the_call(lab: Lab, value):
    """An argument without a plain form is a BadValue with its place, and leaves no trace."""
    async with lab.connect() as record, record.run(run="r") as session:

        @session.tool(effects="once")
        async def call(x) -> str:
            assert x == "fine"
            return "done"

        with pytest.raises(hansard.BadValue, match=r"call\(x\)"):
            await call(value)
        assert session.state.steps == {}
        assert await call("fine") == "done"


@pytest.mark.fast(cases=99, slow=0)
async def test_bad_options_are_named(record: TwinRecord):
    """Options of the wrong type are refused by name, and none is applied."""
    hostile: tuple[dict[str, Any], ...] = (
        {"gate": [5]},
        {"gate": ["deny"]},
        {"redact": {"a": 5}},
        {"redact": {"": "secret!!"}},
        {"traceparent": 5},
        {"on_behalf_of": (5,)},
        {"on_behalf_of": "eve"},
        {"program": 5},
        {"labels": "x"},
        *({"labels": labels} for labels in ({"a": 5}, {"a": "\ud800"}, {5: "a"}, {"a": None})),
    )
    for options in hostile:
        with pytest.raises(hansard.HansardError):
            async with record.run(run="r", **options):
                raise AssertionError
    assert await record.runs() == []
    async with record.run(run="r"):
        pass
    with pytest.raises(hansard.BadValue):
        await record.fork("r", labels={"label": 5})
    assert len(await record.runs()) == 1


ODD = "caf\u00e9 \ud83d half an emoji, \\ud83d in letters"


@pytest.mark.parametrize("effects", ["pure", "idempotent", "once"])
async def test_an_answer_with_half_a_pair_is_paid_for_once(lab: Lab, effects):
    """In a text, a key, and an exception; as an argument it is one call with itself alone."""
    questions = []
    async with lab.connect() as record:
        for mode in (None, "resume", "strict"):
            options = {"mode": mode} if mode == "strict" else {}
            async with record.run(run="r", **options) as session:

                @session.tool(effects=effects, kind="model")
                async def ask(question: str) -> object:
                    questions.append(question)
                    if question == "refuse":
                        raise ValueError(ODD)
                    return {"text": ODD, ODD: [ODD]}

                for question in (ODD, "\ud83d", "plain"):
                    assert await ask(question) == {"text": ODD, ODD: [ODD]}
                with pytest.raises(ValueError, match="half an emoji"):
                    await ask("refuse")
                await ask("after")
        steps = await record.steps("r")
    assert questions == [ODD, "\ud83d", "plain", "refuse", "after"]
    assert "caf\u00e9 \\\\ud83d half" in bytes(steps[0].result).decode()


async def test_what_a_session_states_may_hold_half_a_pair(lab: Lab):
    """Messages, checkpoints and the board return it unchanged; in a decision it is escaped."""
    async with lab.connect() as record:
        for _ in range(2):
            async with record.run(run="r") as session:
                await session.message("assistant", ODD)
                await session.message("user", [{"type": "text", "text": ODD}])
                await session.checkpoint("c", at=ODD)
                await session.decide("which?", selected=ODD, reason=ODD)
                assert [each["content"] for each in await session.window()] == [
                    ODD,
                    [{"type": "text", "text": ODD}],
                ]
                assert await session.checkpoint_data("c") == {"at": ODD}
        state = (await record.state("r")).agent("ada")
    [decided] = [each.fact for each in state.facts if each.fact.tag == "decision.made.v1"]
    assert decided.because.startswith("caf\u00e9 \\ud83d half")
