"""Forks with edits: another result of a recorded call; only what depends on it runs."""

import msgspec
import pytest

import hansard
from hansard.domain.roles.model import RoleDefined, RoleRule
from hansard.errors import BadName, BadValue, NotFound, Refused, ShadowedEffect
from tests.agents.twins import Lab, TwinRecord

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=99, slow=0)]


async def _work(record, ran, *, run, mode=None, find="pure", last="pure"):
    """Look up two orders in branches of their own, ask a model of the first, send what it says."""
    async with record.run(run=run, mode=mode) as session:

        @session.tool(effects=find)
        async def lookup(order: str) -> str:
            ran.append(f"lookup {order}")
            return f"{order} is lost"

        @session.tool(kind="model", effects="idempotent")
        async def think(model: str, prompt: str) -> str:
            ran.append(f"think {prompt}")
            return f"about {prompt}"

        @session.tool(effects="once", shadow=_unsent)
        async def mail(text: str) -> str:
            ran.append(f"mail {text}")
            return f"sent {text}"

        @session.tool(effects=last)
        async def close(order: str) -> str:
            ran.append(f"close {order}")
            return f"closed {order}"

        async def first() -> str:
            return await think("m", await lookup("first"))

        async def second() -> str:
            return await lookup("second")

        thought, other = await session.gather(first, second)
        sent = await mail(thought)
        return [thought, other, sent, await close("both")]


async def _unsent(text: str) -> str:
    return f"sent {text}"


async def _step(record, run, tool, number=0):
    steps = [step for step in await record.steps(run) if step.tool == tool]
    if tool == "lookup":  # branches of threads begin in any order
        steps.sort(key=lambda step: bytes(step.arguments))
    return f"ada#{steps[number].number}"


@pytest.mark.slow(cases=1)
async def test_only_what_depends_on_an_edited_result_runs(record: TwinRecord):
    """The edited call and the other branch are answered; the model runs, the mail is withheld."""
    ran: list[str] = []
    live = await _work(record, ran, run="r")
    before = await record.commits("r")
    step = await _step(record, "r", "lookup")
    ran.clear()
    edit = hansard.replace(step, result="first is here")
    child = await record.fork("r", edits=[edit], by="eve", reason="the carrier was wrong")
    results = await _work(record, ran, run=child)
    assert results[:2] == ["about first is here", live[1]]
    assert results[2] == "sent about first is here"
    assert ran == ["think first is here", "close both"]
    assert await _work(record, ran, run=child, mode="strict") == results
    assert ran == ["think first is here", "close both"]
    assert await record.commits("r") == before


async def test_an_edited_result_is_on_record_with_its_author_and_reason(lab: Lab):
    """The fork names the edit; the call has it as a settled result, its effect withheld."""
    ran: list[str] = []
    async with lab.connect() as record:
        await _work(record, ran, run="r")
        step = await _step(record, "r", "mail")
        edit = hansard.replace(step, result="bounced")
        child = await record.fork("r", edits=[edit], by="eve", reason="try a bounce")
        forked = (await record.state(child)).life.forked
        [edited] = forked.edits
        assert (edited.agent, edited.tool, edited.by) == ("ada", "mail", "eve")
        assert (bytes(edited.result), edited.reason) == (b'"bounced"', "try a bounce")
        assert (forked.effects, f"ada#{edited.step}") == ("models", step)
        ran.clear()
        results = await _work(record, ran, run=child)
        assert (results[2], ran) == ("bounced", ["close both"])
        [mail] = [step for step in await record.steps(child) if step.tool == "mail"]
        assert (mail.verdict, mail.settled_by, mail.withheld) == ("happened", "eve", "edit")
        assert not mail.may_have_happened
        events = [event for each in await record.commits(child) for event in each.commit.events]
        [settled] = [event for event in events if event.type == "step.settled.v1"]
        assert b'"because":"try a bounce"' in bytes(settled.data)


async def test_an_edit_to_an_equal_result_runs_nothing_more(record: TwinRecord):
    """Fingerprints decide: after an equal result everything is answered from the record."""
    ran: list[str] = []
    live = await _work(record, ran, run="r", last="once")
    ran.clear()
    edit = hansard.replace(await _step(record, "r", "lookup"), result="first is lost")
    for effects in ("models", "shadow", "live"):
        child = await record.fork("r", edits=[edit], effects=effects)
        assert await _work(record, ran, run=child, last="once") == live
    assert ran == []


async def test_live_effects_that_do_not_depend_on_an_edit_do_not_run(record: TwinRecord):
    """In a live fork the dependent mail is sent, and the other branch's effect is not repeated."""
    ran: list[str] = []
    live = await _work(record, ran, run="r", find="once")
    ran.clear()
    edit = hansard.replace(await _step(record, "r", "think"), result="a guess")
    child = await record.fork("r", edits=[edit], effects="live")
    results = await _work(record, ran, run=child, find="once")
    assert results[:3] == ["a guess", live[1], "sent a guess"]
    assert ran == ["mail a guess", "close both"]


async def test_shadowed_models_do_not_run(record: TwinRecord):
    """With effects='shadow' a call of a model that the record does not answer is refused."""
    ran: list[str] = []
    await _work(record, ran, run="r")
    edit = hansard.replace(await _step(record, "r", "lookup"), result="first is here")
    child = await record.fork("r", edits=[edit], effects="shadow")
    with pytest.raises(ShadowedEffect, match="think"):
        await _work(record, ran, run=child)


async def test_a_model_call_that_was_interrupted_in_a_fork_runs_again(lab: Lab):
    """An open call of a model in a fork with `models` is retried, not refused."""
    calls: list[str] = []

    async def work(record, run, *, fails=False):
        async with record.run(run=run) as session:

            @session.tool(kind="model", effects="idempotent")
            async def think(prompt: str) -> str:
                calls.append(prompt)
                if fails:
                    raise ConnectionResetError
                return prompt.upper()

            return [await think("a"), await think("b"), await think(f"c{len(calls) > 2}")]

    async with lab.connect() as record:
        await work(record, "r")
        child = await record.fork("r", edits=[hansard.replace("ada#1", result="x")])
        with pytest.raises(ConnectionError):
            await work(record, child, fails=True)
        assert await work(record, child) == ["x", "B", "CTRUE"]
    assert calls == ["a", "b", "cFalse", "cTrue", "cTrue"]


async def test_a_stream_is_edited_as_a_list_of_its_items(record: TwinRecord):
    """The items of the list are yielded, in a live session and in replays."""
    ran: list[str] = []

    async def work(run, **options):
        async with record.run(run=run, **options) as session:

            @session.tool(effects="once")
            async def read(name: str):
                ran.append(name)
                yield f"{name} 1"
                yield f"{name} 2"

            return [item async for item in read("x")]

    assert await work("r") == ["x 1", "x 2"]
    child = await record.fork("r", edits=[hansard.replace("ada#1", result=["y", "z"])])
    assert await work(child) == ["y", "z"]
    assert await work(child, mode="offline") == ["y", "z"]
    assert ran == ["x"]


async def test_a_call_in_a_composite_is_edited(record: TwinRecord):
    """The composite's body runs with the edited result; an edited composite does not run."""
    ran: list[str] = []

    async def work(run):
        async with record.run(run=run) as session:

            @session.tool(effects="pure")
            async def part(n: int) -> int:
                ran.append(f"part {n}")
                return n

            @session.tool(effects="composite")
            async def whole(n: int) -> int:
                ran.append("whole")
                return await part(n) + await part(n + 1)

            return await whole(1)

    assert await work("r") == 3
    ran.clear()
    assert await work(await record.fork("r", edits=[hansard.replace("ada#3", result=10)])) == 11
    assert ran == ["whole"]
    ran.clear()
    assert await work(await record.fork("r", edits=[hansard.replace("ada#1", result=7)])) == 7
    assert ran == []


async def test_large_results_and_later_forks_keep_their_edits(lab: Lab):
    """A result of 1 MB is stored beside the log; a fork of the fork has the edit again."""
    ran: list[str] = []
    large = "x" * 1_000_000
    async with lab.connect() as record:
        await _work(record, ran, run="r")
        step = await _step(record, "r", "close")
        child = await record.fork("r", edits=[hansard.replace(step, result=large)])
        assert b"$blob" in bytes((await record.state(child)).life.forked.edits[0].result)
        second = await record.fork(child)
        for run in (child, second):
            results = await _work(record, ran, run=run)
            assert results[3] == large


async def test_a_result_of_another_type_is_refused_before_it_is_recorded(record: TwinRecord):
    """The error names the step and the remedy, and leaves no step behind."""

    async def work(run):
        async with record.run(run=run) as session:

            @session.tool(effects="pure")
            async def count(word: str) -> int:
                return len(word)

            return await count("four")

    assert await work("r") == 4
    child = await record.fork("r", edits=[hansard.replace("ada#1", result="many")])
    with pytest.raises(BadValue, match=r"ada#1 \(count\).*Expected `int`.*fork again"):
        await work(child)
    assert await record.steps(child) == []


async def test_what_cannot_be_edited_says_why(lab: Lab):
    """The error names the step and what to do instead; no fork is made."""
    async with lab.connect() as record:
        async with record.run(run="r") as session:

            @session.tool(effects="pure")
            async def look(x: str) -> str:
                return x

            await look("a")
            await session.board.put("k", "v")
            await session.board.get("k")
        child = await record.fork("r")
        before = len(await record.runs())
        look_at, get = hansard.replace("ada#1", result="b"), hansard.replace("ada#3", result=1)
        with pytest.raises(BadValue, match="begins before the first edited call"):
            await record.fork("r", at="ada@1", edits=[look_at])
        with pytest.raises(BadValue, match="two results for step ada#1"):
            await record.fork("r", edits=[look_at, look_at])
        with pytest.raises(BadValue, match=r"kind board.*edit the call"):
            await record.fork("r", edits=[get])
        with pytest.raises(BadValue, match=r"give hansard\.replace"):
            await record.fork("r", edits=["ada#1"])
        with pytest.raises(NotFound, match="step 9 of 'ada'"):
            await record.fork("r", edits=[hansard.replace("ada#9", result="b")])
        with pytest.raises(BadName, match="agent#number"):
            await record.fork("r", edits=[hansard.replace("ada", result="b")])
        with pytest.raises(Refused, match="inherited step ada#1 from r: fork that run"):
            await record.fork(child, edits=[look_at])
        assert len(await record.runs()) == before


async def test_an_edit_has_the_label_of_the_result_that_it_replaces(lab: Lab):
    """Readers without the clearance see nothing of the fork, whose first event holds the result."""
    async with lab.connect() as record:
        async with record.run(run="r") as session:

            @session.tool(effects="pure", gives="confidential")
            async def salary(name: str) -> int:
                return 1

            await salary("eve")
        child = await record.fork("r", edits=[hansard.replace("ada#1", result=2)])
        [stored] = await record.commits(child)
        assert stored.commit.label is not None
        assert stored.commit.label.confidentiality == "confidential"
        [plain] = await record.commits(await record.fork("r", at="life@1"))
        assert plain.commit.label is None


async def test_a_secret_in_an_edit_is_not_stored(lab: Lab):
    """Result and reason are recorded without the secret's value."""
    async with lab.connect(redact={"key": "s3cr3t-value-of-a-key"}) as record:
        async with record.run(run="r") as session:

            @session.tool(effects="pure")
            async def look(x: str) -> str:
                return x

            await look("a")
        edit = hansard.replace("ada#1", result="it is s3cr3t-value-of-a-key")
        child = await record.fork("r", edits=[edit], reason="for s3cr3t-value-of-a-key")
        [stored] = await record.commits(child)
        assert b"s3cr3t" not in stored.body
        assert b"<secret:key>" in stored.body


async def test_a_key_of_the_board_is_changed_in_a_fork_before_its_program_goes_on(
    record: TwinRecord,
):
    """Another agent joins the fork and writes the key; the program reads the new value."""

    async def work(run):
        async with record.run(run=run) as session:

            @session.tool(effects="pure")
            async def price(n: int) -> int:
                return n * 10

            await session.board.put("total", await price(1))
            return (await session.board.get("total")) + await price(2)

    assert await work("r") == 30
    child = await record.fork("r", at="ada#2")
    async with record.run(run=child, agent="eve", role="auditor") as session:
        await session.board.put("total", 99, expected="any")
    assert await work(child) == 119
    assert await work("r") == 30


async def test_a_role_that_does_not_see_all_does_not_see_an_edit(lab: Lab):
    """A role that sees the life of runs sees the fork, without the edited result; one that sees the
    whole record sees it.
    """
    everything = RoleRule("all", ("**",))
    async with lab.connect() as record:
        async with record.run(run="r") as session:

            @session.tool(effects="pure")
            async def look(x: str) -> str:
                return x

            await look("a")
        edit = hansard.replace("ada#1", result="ocelot")
        child = await record.fork("r", edits=[edit], reason="because of a lynx")
        await record.roles.apply("clerk", RoleDefined(sees=(RoleRule("lives", ("run.*",)),)))
        await record.roles.apply("auditor", RoleDefined(sees=(everything,), clearance="secret"))
        seen = {
            role: msgspec.json.encode(await record.roles.view(child, role=role))
            for role in ("clerk", "auditor")
        }
    assert b"run.forked" in seen["clerk"]
    assert [b"ocelot" in view for view in seen.values()] == [False, True]
    assert b"lynx" not in seen["clerk"]


async def _share(record, asked, *, run):
    """Add a message, send one, put and read a key; ask a model of each, with a prompt."""
    prompt = await record.prompts.get("greeting@1")
    async with record.run(run=run, agent="ada", role="r") as session:

        @session.tool(kind="model", effects="idempotent")
        async def think(messages: list[object]) -> str:
            asked.append(messages)
            return f"thought {len(asked)}"

        await session.message("user", "the order is lost")
        thought = await think([{"role": "user", "content": "the order is lost"}])
        await session.board.put("plan", "refund")
        await session.team.send("please pay", agent="bob")
        plan = await session.board.get("plan")
        await think([plan])
        await think([{"role": "system", "content": prompt.format(name="Ann")}])
        return [thought, plan, await session.context()]


async def _shared(record):
    """Record the run `shared`, with an agent `bob` that receives its mail; return what it asked."""
    await record.prompts.add("greeting", "Good day, {name}.")
    await record.prompts.add("greeting", "Hey {name}!")
    await record.prompts.add("greeting", "Hey you!")
    async with record.run(run="shared", agent="bob", role="r"):
        asked: list[object] = []
        await _share(record, asked, run="shared")
    return asked


async def test_another_content_of_a_key_and_of_a_message_between_agents(record: TwinRecord):
    """The fork's write has the new content; readers get it, and their later calls run."""
    live = await _shared(record)
    put, send = [await _step(record, "shared", tool) for tool in ("board.put", "team.send")]
    edits = [hansard.replace(put, result="wait"), hansard.replace(send, result="do not pay")]
    child = await record.fork("shared", edits=edits, by="eve")
    asked: list[object] = []
    results = await _share(record, asked, run=child)
    assert results[1] == "wait"
    assert asked[0] == ["wait"]  # the call before is answered, the one after follows a new result
    async with record.run(run=child, agent="bob", role="r") as bob:
        assert [each.content for each in await bob.team.inbox()] == ["do not pay"]
    assert await _share(record, asked, run=child) == results
    [edited, _] = (await record.state(child)).life.forked.edits
    assert (edited.kind, edited.tool, bytes(edited.result)) == ("content", "board.put", b'"wait"')
    assert live[1] == ["refund"]


async def test_another_message_of_a_context_window(record: TwinRecord):
    """Calls of a model that have the message run with the new one, and the window has it."""
    live = await _shared(record)
    [address] = await _addresses(record, "shared", "message.added.v1")
    edit = hansard.replace(address, result="the order is here")
    child = await record.fork("shared", edits=[edit], by="eve")
    asked: list[object] = []
    *_, context = await _share(record, asked, run=child)
    assert asked[0] == [{"role": "user", "content": "the order is here"}]
    assert context == [{"role": "user", "content": "the order is here"}]
    again: list[object] = []
    assert (await _share(record, again, run=child))[-1] == context
    assert (again, live[0]) == ([], [{"role": "user", "content": "the order is lost"}])


async def test_another_version_of_a_prompt(record: TwinRecord):
    """Calls from the edited one on have the text of the new version, and name it on record."""
    await _shared(record)
    step = await _step(record, "shared", "think", 2)
    edit = hansard.replace(step, prompt="greeting@2")
    child = await record.fork("shared", edits=[edit], by="eve")
    asked: list[object] = []
    await _share(record, asked, run=child)
    assert asked == [[{"role": "system", "content": "Hey Ann!"}]]
    uses = await record.sql("SELECT version FROM prompt_uses WHERE run = ?", child)
    assert uses.rows == [(2,)]
    with pytest.raises(BadValue, match="other variables"):
        await record.fork("shared", edits=[hansard.replace(step, prompt="greeting@3")])
    with pytest.raises(BadValue, match="its prompts are none"):
        edit = hansard.replace(await _step(record, "shared", "think"), prompt="greeting@2")
        await record.fork("shared", edits=[edit])


async def test_reads_and_other_calls_on_shared_state_are_refused(record: TwinRecord):
    """A call that reads shared state cannot be edited: the error names the remedy."""
    await _shared(record)
    edit = hansard.replace(await _step(record, "shared", "board.get"), result="x")
    with pytest.raises(BadValue, match="the write that it reads"):
        await record.fork("shared", edits=[edit])
    [address] = await _addresses(record, "shared", "board.put.v1")
    child = await record.fork("shared", edits=[hansard.replace(address, result="by address")])
    assert (await _share(record, [], run=child))[1] == "by address"


async def _addresses(record, run, kind):
    return [
        f"{stored.position}.{index}"
        for stored in await record.commits(run)
        for index, each in enumerate(stored.commit.events)
        if each.type == kind
    ]
