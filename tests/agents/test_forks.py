"""Forks: a new run that begins at another's position and does not repeat its effects."""

import pytest

import hansard
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.fast(cases=99, slow=0)
"""Client-independent tests: a single sync-client case is in the quick run."""


class World:
    def __init__(self) -> None:
        self.effects: list[str] = []


async def _work(record, world, names="abc", *, shadow=None, effects="once", **options):
    """Make a chain of effects, a checkpoint and a decision; return the effects' results."""
    async with record.run(**options) as session:

        @session.tool(effects=effects, shadow=shadow)
        async def send(to: str) -> str:
            """Send a mail."""
            world.effects.append(to)
            return f"sent to {to}, {len(world.effects)}"

        results = []
        for name in names:
            results.append(await send(name))
            await session.checkpoint("sent", to=name)
        return results


@pytest.mark.slow(cases=1)
async def test_a_fork_begins_with_its_parent_s_state(record: TwinRecord):
    """At any point: the fork's state is the parent's state there, and the parent is untouched."""
    world = World()
    await _work(record, world, run="r")
    before = await record.commits("r")
    child = ""
    for stored in before[1:]:
        child = await record.fork("r", at=stored.position, labels={"why": "look"})
        then, forked = await record.state("r", stored.position), await record.state(child)
        assert (forked.agents, forked.life.labels) == (then.agents, {"why": "look"})
        assert forked.life.forked.parent == "r"
        assert forked.vector == {**then.vector, "life": then.vector["life"] + 1}
    assert await record.commits("r") == before
    assert len(await record.commits(child)) == 1


async def test_a_fork_replays_what_lies_before_the_cut(lab: Lab):
    """The parent's outcomes before the cut are the fork's; it is replayed and resumed as any."""
    world = World()
    async with lab.connect() as record:
        live = await _work(record, world, run="r")
        child = await record.fork("r", at="ada@8")
        results = await _work(record, world, "abx", run=child, shadow=_shadow)
        assert results == [*live[:2], "shadow of x"]
        assert await _work(record, world, "abx", run=child, mode="strict") == results
        assert await _work(record, world, "abx", run=child, shadow=_shadow) == results
        assert await _work(record, world, run="r", mode="strict") == live
        life = (await record.state(child)).life
        assert (life.status, life.workflow, life.roster) == ("completed", "w", {"ada": "writer"})
    assert world.effects == ["a", "b", "c"]


async def _shadow(to: str) -> str:
    return f"shadow of {to}"


async def test_a_shadowed_effect_has_its_parent_s_outcome(lab: Lab):
    """A later equal call of the fork gets the parent's outcome, marked as reused."""
    world = World()
    async with lab.connect() as record:
        live = await _work(record, world, run="r")
        child = await record.fork("r", at="ada@1")
        assert await _work(record, world, "acb", run=child) == [live[0], live[2], live[1]]
        reused = [step.reused for step in await record.steps(child)]
        assert reused == [1, 3, 2]
        assert await _work(record, world, "acb", run=child, mode="strict")
    assert world.effects == ["a", "b", "c"]


@pytest.mark.parametrize("effects", ["once", "idempotent", "reconcile"])
async def test_an_effect_that_the_parent_never_had_is_refused(lab: Lab, effects):
    """ShadowedEffect names both remedies and nothing runs; effects='live' runs it."""
    world = World()
    policy = hansard.reconcile(lambda to: None) if effects == "reconcile" else effects
    async with lab.connect() as record:
        await _work(record, world, run="r")
        child = await record.fork("r")
        with pytest.raises(
            hansard.errors.ShadowedEffect, match="declare shadow= on the tool, or fork"
        ):
            await _work(record, world, "abcx", run=child, effects=policy)
        assert world.effects == ["a", "b", "c"]
        alive = await record.fork("r", effects="live")
        results = await _work(record, world, "abcx", run=alive, effects=policy)
        assert results[-1] == "sent to x, 4"
    assert world.effects == ["a", "b", "c", "x"]


async def test_a_withheld_effect_is_an_event(lab: Lab):
    """A withheld effect is recorded with its answer: an outcome, a shadow or none."""
    world = World()
    async with lab.connect() as record:
        await _work(record, world, "a", run="r")
        child = await record.fork("r", at="ada@1")
        with pytest.raises(hansard.errors.ShadowedEffect):
            await _work(record, world, "ax", run=child)
        first, second = await record.steps(child)
        assert (first.withheld, first.status, first.reused) == ("outcome", "completed", 1)
        assert (second.withheld, second.status, second.rule) == ("refused", "blocked", "fork")
        assert (second.tool, second.effects, second.would) == ("send", "once", "Send a mail.")
        assert bytes(second.arguments) == b'{"to":"x"}'
        assert "declare shadow= on the tool" in second.error.message
        for mode in ("strict", "offline"):
            with pytest.raises(hansard.errors.ShadowedEffect, match="send has effects"):
                await _work(record, world, "ax", run=child, mode=mode)
        before = await _events(record, child)
        with pytest.raises(
            hansard.errors.ShadowedEffect
        ):  # refused again: nothing new is on record
            await _work(record, world, "ax", run=child)
        assert await _events(record, child) == before
        await _work(record, world, "ax", run=child, shadow=_shadow)
        [_, second] = await record.steps(child)
        assert (second.withheld, second.status, second.attempt) == ("shadow", "completed", 2)
        assert world.effects == ["a"]
        tags = [tag for tag in await _events(record, child) if tag.startswith("step.")]
        assert tags[:6] == [
            *("step.requested.v1", "step.withheld.v1", "step.completed.v1"),
            *("step.requested.v1", "step.withheld.v1", "step.blocked.v1"),
        ]
        assert tags[6:] == ["step.attempted.v1", "step.withheld.v1", "step.completed.v1"]
        alive = await record.fork("r", effects="live")
        await _work(record, world, "ax", run=alive)
        assert [step.withheld for step in await record.steps(alive)] == [None, None]
    assert world.effects == ["a", "x"]


async def _events(record, run):
    """Return the tags of a run's own events, without those of sessions."""
    commits = await record.commits(run)
    tags = [event.type for stored in commits for event in stored.commit.events]
    return [tag for tag in tags if not tag.startswith(("agent.", "run."))]


async def test_a_shadow_that_fails_did_nothing(lab: Lab):
    """The shadow's error is recorded, leaves no doubt, and a resume calls the shadow again."""

    async def broken(to: str) -> str:
        raise RuntimeError(f"no shadow for {to}")

    world = World()
    async with lab.connect() as record:
        await _work(record, world, "a", run="r")
        child = await record.fork("r")
        with pytest.raises(RuntimeError):
            await _work(record, world, "ax", run=child, shadow=broken)
        [_, failed] = await record.steps(child)
        assert (failed.withheld, failed.status, failed.safe) == ("shadow", "failed", True)
        results = await _work(record, world, "ax", run=child, shadow=_shadow)
        assert results[-1] == "shadow of x"
    assert world.effects == ["a"]


async def test_a_program_that_goes_on_after_a_refused_effect_replays(lab: Lab):
    """A program that catches the refusal takes the same path when resumed and replayed."""
    world = World()

    async def play(record, **options):
        async with record.run(**options) as session:

            @session.tool(effects="once")
            async def send(to: str) -> str:
                world.effects.append(to)
                return to

            @session.tool(effects="pure")
            async def note(text: str) -> str:
                return text.upper()

            try:
                return await send("x")
            except hansard.errors.ShadowedEffect:
                return await note("not sent")

    async with lab.connect() as record:
        assert await play(record, run="r") == "x"
        async with record.run(run="p"):
            pass
        child = await record.fork("p")
        for mode in (None, None, "strict", "offline"):
            options = {} if mode is None else {"mode": mode}
            assert await play(record, run=child, **options) == "NOT SENT"
        [sent, _] = await record.steps(child)
        assert (sent.withheld, sent.attempt) == ("refused", 1)
    assert world.effects == ["x"]


async def test_what_is_in_doubt_in_the_parent_is_in_doubt_in_a_fork(lab: Lab):
    """The outcome of the parent's call is unknown, so nothing runs before it is settled."""
    effects: list[str] = []

    async def work(record, run):
        async with record.run(run=run) as session:

            @session.tool(effects="once")
            async def send(to: str) -> str:
                effects.append(to)
                raise ConnectionResetError

            await send("a")

    async with lab.connect() as record:
        with pytest.raises(ConnectionError):
            await work(record, "r")
        for options in ({}, {"effects": "live"}):
            child = await record.fork("r", **options)
            with pytest.raises(hansard.InDoubt):
                await work(record, child)
    assert effects == ["a"]


async def test_a_fork_of_a_fork_reads_through(record: TwinRecord):
    """With two cuts, each part comes from the run that made it."""
    world = World()
    live = await _work(record, world, run="r")
    child = await record.fork("r", at="ada@8", effects="live")
    second = await _work(record, world, "abxy", run=child)
    grandchild = await record.fork(child, at="ada@12", effects="live")
    third = await _work(record, world, "abxz", run=grandchild)
    assert (third[:2], third[2]) == (live[:2], second[2])
    assert await _work(record, world, "abxz", run=grandchild, mode="strict") == third
    assert world.effects == ["a", "b", "c", "x", "y", "z"]
    view = await record.state(grandchild)
    assert [step.number for step in view.agent("ada").steps.values()] == [1, 2, 3, 4]
    assert view.life.epochs == {"ada": 3}


async def test_streams_of_a_parent_come_back_in_a_fork(record: TwinRecord):
    """A shadowed stream yields the items that the parent's yielded."""
    ran = []
    run = "r"
    for mode in (None, "fork", "offline"):
        if mode == "fork":
            run = await record.fork("r", at="life@1")
        async with record.run(run=run, mode="offline" if mode == "offline" else None) as session:

            @session.tool(effects="once")
            async def read(name: str):
                ran.append(name)
                yield {"n": name}
                yield (1, 2)

            assert [item async for item in read("x")] == [{"n": "x"}, (1, 2)]
    assert ran == ["x"]
    [step] = await record.steps(run)
    assert (step.reused, len(step.items), step.streamed) == (1, 2, True)


async def test_the_gate_comes_before_a_parent_s_outcome(lab: Lab):
    """A rule refuses a parent's outcome too, unrecorded; budgets are not spent twice."""
    world = World()
    async with lab.connect() as record:
        live = await _work(record, world, run="r", gate=[hansard.budget("sends", 3)])
        child = await record.fork("r")
        rules = [hansard.budget("sends", 3), hansard.deny("other")]
        assert await _work(record, world, run=child, gate=rules) == live
        with pytest.raises(hansard.Blocked, match="'no mail'"):
            await _work(record, world, run=child, gate=[hansard.deny("send", name="no mail")])
        steps = await record.steps(child)
        assert [step.status for step in steps] == ["completed"] * 3
        alive = await record.fork("r", effects="live")
        with pytest.raises(hansard.Blocked, match="sends"):
            await _work(record, world, "abcd", run=alive, gate=rules)
    assert world.effects == ["a", "b", "c"]


async def test_what_cannot_be_forked_says_why(record: TwinRecord):
    """A run that is not there, or a point before its beginning, cannot be forked."""
    with pytest.raises(hansard.errors.BusError, match="was not found"):
        await record.fork("nowhere")
    async with record.run(run="r"):
        pass
    points: list[object] = [0, "2001-01-01", "ada@99", "nobody@1"]
    for at in points:
        with pytest.raises(hansard.errors.BusError, match="was not found"):
            await record.fork("r", at=at)
    for at in ["yesterday", 1.5, True, "ada@x", ""]:
        with pytest.raises(hansard.errors.BadName, match="point"):
            await record.fork("r", at=at)
    with pytest.raises(hansard.BadValue, match="perhaps"):
        await record.fork("r", effects="perhaps")
    assert len(await record.runs()) == 1


async def test_an_agent_that_joins_only_the_fork_starts_there(record: TwinRecord):
    """A fork may have agents that its parent never had; roles of the parent's agents hold."""
    world = World()
    await _work(record, world, "a", run="r")
    child = await record.fork("r", effects="live")
    assert await _work(record, world, "b", run=child, agent="bob", role="reader")
    view = await record.state(child)
    assert view.life.roster == {"ada": "writer", "bob": "reader"}
    assert list(view.agent("bob").steps) == [1]
    with pytest.raises(hansard.errors.Refused, match="has role 'writer'"):
        await _work(record, world, run=child, role="reader")
