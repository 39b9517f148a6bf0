"""`record.prompts.get` and the writers of prompts, in both clients."""

import asyncio
import copy
import pickle

import msgspec
import pytest

import hansard
from hansard.domain.ids import AgentStream
from tests.agents.twins import Lab, twins
from tests.faults._held import HeldLog

pytestmark = pytest.mark.fast(cases=99, slow=0)

TEXT = "Answer {query} from {context}."


async def uses(record, run):
    """Return the prompts that each call of a run used, as a list of lists."""
    log = record.raw.workspace.log
    stored = await record.io(log.read(AgentStream(run, "writer", "ada")))
    events = [event for item in stored for event in item.commit.events]
    return [
        msgspec.json.decode(event.data).get("prompts", [])
        for event in events
        if event.type == "step.requested.v1"
    ]


@twins
async def test_a_call_names_its_prompt_versions(lab: Lab):
    """A call names the prompt versions it was given, on resume too."""
    async with lab.connect() as record:
        assert await record.prompts.add("rag", TEXT, model="m-1", parameters={"t": 0.5}) == 1
        assert await record.prompts.add("style", "Be kind.") == 1
        assert await record.prompts.alias("rag@1", "production", reason="first") is True
        assert await record.prompts.alias("rag@1", "production") is False
        prompt = await record.prompts.get("rag@production")
        assert (prompt.reference, prompt.variables) == ("rag@1", ("query", "context"))
        assert (prompt.model, prompt.parameters) == ("m-1", {"t": 0.5})
        text = prompt.format(query="q", context="c")
        assert text == "Answer q from c."
        for same in (copy.deepcopy(text), pickle.loads(pickle.dumps(text))):  # noqa: S301 -- what was pickled here
            assert (same, same.use) == (text, text.use)
        style = (await record.prompts.get("style")).format()
        for _ in range(2):
            async with record.run("w", run="r") as session:

                @session.tool(effects="pure", kind="model")
                async def ask(messages):
                    return "yes"

                await ask([{"role": "system", "content": text}, {"content": (style, text)}])
                await ask(text + "!")
        assert len(await record.steps("r")) == 2
        by_alias = {"prompt": "rag", "version": 1, "alias": "production"}
        assert await uses(record, "r") == [[by_alias, {"prompt": "style", "version": 1}], []]


@twins
async def test_a_fork_is_no_further_run_of_its_prompt(lab: Lab):
    """Three forks are given the prompt again, and fail: the report has one run, which completed."""
    async with lab.connect() as record:
        await record.prompts.add("rag", TEXT)
        text = (await record.prompts.get("rag@1")).format(query="q", context="c")

        async def play(run, *, fails):
            async with record.run("w", run=run) as session:

                @session.tool(effects="pure", kind="model")
                async def ask(messages):
                    return "yes"

                await ask(text)
                if fails:
                    message = "changed"
                    raise RuntimeError(message)

        await play("r", fails=False)
        types = {
            stored.position: [event.type for event in stored.commit.events]
            for stored in await record.commits("r")
        }
        [cut] = [at - 1 for at, each in types.items() if "step.requested.v1" in each]
        for _ in range(3):
            fork = await record.fork("r", at=cut)
            with pytest.raises(RuntimeError, match="changed"):
                await play(fork, fails=True)
        assert (await record.sql("SELECT count(DISTINCT run) FROM prompt_uses")).rows == [(4,)]
        report = await record.prompts.report("rag")
        metrics = {row.metric: (row.runs, row.n, row.value) for row in report.rows}
        assert metrics["completion_rate"] == (1, 1, 1.0)


@twins
async def test_what_cannot_be_formatted_says_why(lab: Lab):
    """Unknown prompts, versions and aliases; variables; a retired version; nothing is written."""
    async with lab.connect() as record:
        await record.prompts.add("rag", TEXT)
        await record.prompts.add("rag", "Now {query}.")
        for reference, error, message in (
            ("nope", hansard.NotFound, "hansard prompt list"),
            (
                "rag@3",
                hansard.errors.Refused,
                "prompt 'rag': there is no version 3: its newest is 2",
            ),
            (
                "rag@production",
                hansard.errors.Refused,
                "no alias 'production': its aliases are none",
            ),
            ("rag@", hansard.errors.BadName, "behind '@'"),
        ):
            with pytest.raises(error, match=message):
                await record.prompts.get(reference)
        first = await record.prompts.get("rag@1")
        with pytest.raises(hansard.BadValue, match="variable 'context': it is not given"):
            first.format(query="q")
        with pytest.raises(hansard.BadValue, match="variable 'k': the prompt does not have it"):
            first.format(query="q", context="c", k="?")
        assert await record.prompts.retire("rag@1", reason="old") is True
        with pytest.raises(hansard.errors.Refused, match=r"rag@1 is retired \(old\)"):
            (await record.prompts.get("rag@1")).format(query="q", context="c")
        with pytest.raises(hansard.errors.Refused, match="version 1 is retired"):
            await record.prompts.alias("rag@1", "production")
        for text in ("", " \n", 7, "x" * 70_000):
            with pytest.raises(hansard.BadValue):
                await record.prompts.add("rag", text)
        for name in ("a@b", "", " a", "a\nb", "x" * 1_001):
            with pytest.raises(hansard.errors.BadName):
                await record.prompts.add(name, TEXT)
        with pytest.raises(hansard.NotFound, match="run 'no'"):
            await record.prompts.give_feedback("rag@2", "nice", run="no")
        with pytest.raises(TypeError, match="unexpected keyword argument 'parent'"):
            await record.prompts.add("rag", "x", parent=1)
        assert (await record.prompts.get("rag")).version == 2


@twins
async def test_feedback_makes_a_version(lab: Lab):
    """Feedback makes a version, except where it changes nothing or is repeated."""
    async with lab.connect() as record:
        await record.prompts.add(
            "rag", "Answer {query} as you were told.\n" * 2, parameters={"t": 1}
        )
        second = await record.prompts.evolve("rag", "too_verbose", reason="asked")
        assert second.text.count("as you were told") == 1
        assert "briefly" in second.text
        assert (second.version, second.parents, second.feedback_applied) == (
            2,
            (1,),
            ("too_verbose",),
        )
        assert second.parameters == {"t": 1}
        assert (await record.prompts.evolve("rag", "too_verbose")).version == 2
        assert (await record.prompts.evolve("rag@1", "too_verbose")).version == 2
        third = await record.prompts.evolve("rag", ["missing_context", "too_verbose"])
        assert third.variables == ("query", "context")
        fourth = await record.prompts.evolve(
            "rag@2", "shout", using=lambda version, _: version.text.upper()
        )
        assert (fourth.version, fourth.parents) == (4, (2,))
        with pytest.raises(hansard.BadValue, match="give one of too_verbose, missing_context"):
            await record.prompts.evolve("rag", "shout")
        with pytest.raises(hansard.BadValue, match="give the new text"):
            await record.prompts.evolve("rag", "shout", using=lambda *_: None)
        assert await record.prompts.give_feedback("rag@2", "too long", rating=0.25) == 2


@twins
async def test_an_arm_names_a_prompt_that_there_is(lab: Lab):
    """A version or an alias that can be used; any other text is a description."""
    async with lab.connect() as record:

        def plan(prompt):
            return hansard.experiments.plan(arms=[{"name": "a", "prompt": prompt}], metrics=["m"])

        with pytest.raises(hansard.NotFound, match="prompt 'rag'"):
            await record.experiments.register("e", plan("rag@1"))
        await record.prompts.add("rag", TEXT)
        with pytest.raises(hansard.errors.Refused, match="no version 2"):
            await record.experiments.register("e", plan("rag@2"))
        assert await record.experiments.register("e", plan("rag@1"))
        assert await record.experiments.register("words", plan("be exact"))
        with pytest.raises(hansard.errors.Refused, match="no alias 'next'"):
            await record.experiments.register("e", plan("rag@next"), replace=True)
        await record.prompts.retire("rag@1")
        assert await record.experiments.register("e", plan("rag@1")) is False
        with pytest.raises(hansard.errors.Refused, match="rag@1 is retired"):
            await record.experiments.register("other", plan("rag@1"))


def test_of_two_that_move_an_alias_one_wins(data_dir, workspace):
    """Of two clients that move an alias from the same version, one wins.

    The other gets both versions in the error, and its own gets no alias.
    """

    async def race():
        async with (
            hansard.connect_async(workspace, data_dir=data_dir) as late,
            hansard.connect_async(workspace, data_dir=data_dir) as early,
        ):
            for text in ("a", "b", "c"):
                await early.prompts.add("p", text)
            await early.prompts.alias("p@1", "production")
            held = HeldLog(late.workspace.log, "prompt.aliased.v1")
            late.workspace.log = held
            task = asyncio.create_task(late.prompts.alias("p@2", "production"))
            await asyncio.wait_for(held.reached.wait(), 10)
            assert await early.prompts.alias("p@3", "production")
            held.release.set()
            with pytest.raises(
                hansard.errors.PromptConflict, match="names version 3, not version 1"
            ) as lost:
                await task
            assert (lost.value.found, lost.value.target) == (3, 2)
            assert (await early.prompts.get("p@production")).version == 3
            with pytest.raises(hansard.errors.PromptConflict):
                await early.prompts.alias("p@1", "production", expected=2)
            assert await early.prompts.alias("p@1", "production", expected=3)

    asyncio.run(race())
