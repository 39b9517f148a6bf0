"""Rules found by a hostile review of the session: each was once broken."""

import asyncio
import re
import sys
import threading

import msgspec
import pytest
from tenacity import wait_none

import hansard
from hansard.agents.steps.payloads import INLINE_BYTES_MAX, Learned, Shared
from tests.agents.twins import Lab, TwinRecord

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=99, slow=0)]
"""Client-independent tests: a single sync-client case is in the quick run."""

SECRET = "correct-horse-battery"
LARGE = "x" * (INLINE_BYTES_MAX + 1)


async def _bodies(record, run="r"):
    return b"".join(stored.body for stored in await record.commits(run))


async def _missing(record, run="r"):
    """Return the blobs that a run's events name and the broker does not have."""
    blobs = re.findall(rb'"sha256":"([0-9a-f]{64})","size":([0-9]+)', await _bodies(record, run))
    missing = []
    for sha256, size in blobs:
        try:
            await record.io(record.raw.workspace.blobs.get(sha256.decode(), int(size)))
        except hansard.NotFound:
            missing.append(sha256)
    assert blobs
    return missing


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("who", ["policy", "reconcile"])
async def test_a_large_result_that_is_settled_is_stored(lab: Lab, who):
    """A large result reported by a policy or the world is stored as a blob first."""

    async def ask() -> hansard.Happened:
        return hansard.Happened(LARGE)

    effects = hansard.reconcile(ask) if who == "reconcile" else "once"
    async with lab.connect(settle=lambda step: hansard.Happened(LARGE)) as record:
        for again in (False, True, True):
            async with record.run(run="r") as session:

                @session.tool(effects=effects)
                async def send() -> str:
                    raise ConnectionResetError

                if again:
                    assert await send() == LARGE
                else:
                    with pytest.raises(ConnectionError):
                        await send()
        assert await _missing(record) == []


async def test_large_arguments_of_a_blocked_call_are_stored(record: TwinRecord):
    """A blocked call is recorded as any other: with the blobs that its intent names."""
    for gate in ([hansard.deny()], []):
        async with record.run(run="r", gate=gate) as session:

            @session.tool(effects="pure")
            async def ask(prompt: list[str]) -> int:
                return len(prompt)

            if gate:
                with pytest.raises(hansard.Blocked):
                    await ask([LARGE])
            else:
                assert await ask([LARGE]) == 1
    assert await _missing(record) == []


async def test_large_arguments_of_a_reused_call_are_stored(record: TwinRecord):
    """An adopted outcome has its own intent, whose blobs are stored."""
    await _prompts(record, "r")
    child = await record.fork("r", at="ada@1")
    await _prompts(record, child, first=1)
    assert await _missing(record, child) == []


async def _prompts(record, run, first=0):
    async with record.run(run=run) as session:

        @session.tool(effects="once")
        async def ask(prompt: list[str]) -> int:
            return len(prompt)

        prompt = ["x" * 40_000]
        for n in range(3):
            prompt.append("y" * 15_000)
            if n >= first:
                assert await ask(prompt) == n + 2


async def test_a_reused_stream_of_any_length_is_recorded(record: TwinRecord):
    """A stream too long for one commit is taken over from a parent item by item."""
    for run in ("r", None):
        run = run or await record.fork("r", at="ada@1")
        async with record.run(run=run) as session:

            @session.tool(effects="once")
            async def read():
                for n in range(8):
                    yield f"{n}" * 50_000

            items = [item async for item in read()]
            assert [item[0] for item in items] == list("01234567")


async def test_a_settled_stream_is_reused_as_it_was_settled(record: TwinRecord):
    """A fork gets a person's settlement of a cut stream, not the items before the cut."""
    for run in ("r", "r", None):
        run = run or await record.fork("r", at="ada@1")
        async with record.run(run=run) as session:

            @session.tool(effects="once")
            async def read():
                yield 1
                raise ConnectionResetError

            if (await record.tags("r")).count("step.in_doubt.v1"):
                assert [item async for item in read()] == [1, 2]
                continue
            with pytest.raises(ConnectionError):
                assert [item async for item in read()]
        await record.settle("r", "1", "happened", result=[1, 2])


async def test_a_shadow_of_a_stream_gives_its_items(lab: Lab):
    """A shadow returns a list of the items."""
    ran: list[int] = []

    async def shadow() -> list[int]:
        return [1, 2]

    async with lab.connect() as record:
        async with record.run(run="r"):
            pass
        child = await record.fork("r")
        for mode in (None, "strict", "resume"):
            async with record.run(run=child, mode=mode) as session:

                @session.tool(effects="once", shadow=shadow)
                async def read():
                    ran.append(1)
                    yield 0

                assert [item async for item in read()] == [1, 2]
    assert ran == []


async def test_a_tool_s_kind_is_recordable(record: TwinRecord):
    """A kind that cannot be encoded fails the call instead of blocking it."""
    async with record.run(run="r") as session:

        @session.tool(effects="once", kind="\ud800")
        async def odd() -> None:
            raise AssertionError

        with pytest.raises((hansard.BadValue, hansard.ToolError)):
            await odd()
        await session.checkpoint("after")
    await record.state("r")


def test_of_secrets_inside_secrets_the_longest_goes_first(record):
    """A secret that begins with another leaves no rest."""
    redact = {"short": "hunter2", "long": "hunter2-and-more", r"odd\1": "backslash"}
    with record.run("w", run="r", redact=redact) as session:

        @session.tool(effects="pure")
        def echo(text: str) -> str:
            return text

        echo("it is hunter2-and-more, backslash, hunter2")
    [step] = record.state("r").agents["agent"].steps.values()
    assert msgspec.json.decode(step.arguments) == {
        "text": "it is <secret:long>, <secret:odd\\1>, <secret:short>"
    }


@pytest.mark.parametrize("verdict", [hansard.Happened("ok"), hansard.DID_NOT_HAPPEN])
@pytest.mark.parametrize("effects", ["once", "reconcile"])
async def test_a_doubt_settled_after_an_edit_replays_without_a_question(lab: Lab, verdict, effects):
    """Once settled after an edit, the program replays without another question."""
    sent: list[int] = []

    async def ask(**_: object) -> object:
        return verdict

    policy = hansard.reconcile(ask) if effects == "reconcile" else effects
    async with lab.connect() as record:
        for first, mode in ((1, None), (2, None), (2, None), (2, "strict")):
            settle = (lambda _: verdict) if not mode and first == 2 and len(sent) < 2 else None
            async with record.run(run="r", mode=mode, settle=settle) as session:

                @session.tool(effects="pure")
                async def begin(n: int) -> int:
                    return n

                @session.tool(effects=policy)
                async def send() -> str:
                    sent.append(first)
                    if first == 1:
                        raise ConnectionResetError
                    return "ok"

                await begin(first)
                if first == 1:
                    with pytest.raises(ConnectionError):
                        await send()
                else:
                    assert await send() == "ok"
    assert sent == ([1] if isinstance(verdict, hansard.Happened) else [1, 2])


async def test_a_budget_counts_a_call_that_a_dead_session_may_have_made(lab: Lab):
    """A share belongs to one session: a dead session's reservation is not the next one's."""
    ran: list[int] = []
    async with lab.connect(gate=[hansard.budget("calls", 2)]) as record:
        for n in range(3):
            async with record.run(run="r") as session:

                @session.tool(effects="pure")
                async def ask() -> None:
                    ran.append(n)
                    raise KeyboardInterrupt

                with pytest.raises((KeyboardInterrupt, hansard.Blocked)):
                    await ask()
    assert ran == [0, 1]


async def test_the_gate_comes_before_a_shadow(record: TwinRecord):
    """A fork asks its own gate before it takes its parent's outcome or runs a shadow."""

    async def shadow(n: int) -> int:
        raise AssertionError

    for run in ("r", None):
        gate = [] if run else [hansard.deny("send", name="no mail")]
        run = run or await record.fork("r", at="ada@1")
        async with record.run(run=run, gate=gate) as session:

            @session.tool(effects="once", shadow=shadow)
            async def send(n: int) -> int:
                return n

            if not gate:
                assert await send(1) == 1
                continue
            for n in (1, 2):
                with pytest.raises(hansard.Blocked, match="no mail"):
                    await send(n)


async def test_an_agent_that_joined_its_run_after_the_cut_has_its_parent_s_outcomes(lab: Lab):
    """A fork cut before an agent joined still returns the outcomes of the parent's agent."""
    sent: list[int] = []
    async with lab.connect() as record:
        async with record.run(run="r"):
            pass
        child = await record.fork("r")
        for run in ("r", child):
            async with record.run(run=run, agent="bob") as session:

                @session.tool(effects="once")
                async def send() -> int:
                    sent.append(1)
                    return 7

                assert await send() == 7
    assert sent == [1]


async def test_a_retry_that_the_gate_refuses_is_no_doubt(record: TwinRecord):
    """A retry that fails safely and is then refused is on record as blocked, not open."""
    for attempts, limit in ((1, 2), (3, 2)):
        gate = [hansard.budget("calls", limit)]
        async with record.run(run="r", gate=gate) as session:

            @session.tool(effects="once", attempts=attempts, wait=wait_none())
            async def send() -> None:
                raise hansard.errors.NotDone

            with pytest.raises((hansard.errors.NotDone, hansard.Blocked)):
                await send()
    [step] = await record.steps("r")
    assert (step.status, step.attempt) == ("blocked", 3)


async def test_the_number_of_a_step_that_a_fact_names_is_not_used_again(record: TwinRecord):
    """A resource that a call used before it was cut off names that call, never a later one."""
    for n in (1, 2):
        async with record.run(run="r") as session:

            @session.tool(effects="pure")
            async def look(n: int) -> int:
                await session.resource(f"file:///{n}")
                if n == 1:
                    raise KeyboardInterrupt
                return n

            if n == 1:
                with pytest.raises(KeyboardInterrupt):
                    await look(1)
            else:
                await look(2)
    state = (await record.state("r")).agent("ada")
    named = {noted.fact.uri: noted.fact.step for noted in state.resources}
    [step] = state.steps.values()
    assert named["file:///2"] == step.number
    assert named["file:///1"] != step.number


async def test_an_intent_open_at_the_cut_takes_its_own_later_outcome(lab: Lab):
    """Not that of a later call with the same key, which the parent ran again after an edit."""
    sent: list[int] = []
    async with lab.connect() as record:
        for first in (1, 2):
            async with record.run(run="r", settle=_again) as session:
                assert await _sequence(session, first, sent) == len(sent)
        [intent] = [
            stored.position
            for stored in await record.commits("r")
            if any(
                e.type == "step.requested.v1" and b'"once"' in bytes(e.data)
                for e in stored.commit.events
            )
        ][:1]
        child = await record.fork("r", at=intent)
        async with record.run(run=child) as session:
            assert await _sequence(session, 1, sent) == 1
    assert sent == [1, 2]


def _again(_: object) -> hansard.Verdict:
    return hansard.Verdict.RUN_AGAIN


async def _sequence(session, first, sent):
    @session.tool(effects="pure")
    async def begin(n: int) -> int:
        return n

    @session.tool(effects="once")
    async def send() -> int:
        sent.append(first)
        return len(sent)

    await begin(first)
    return await send()


def test_a_stream_begun_in_a_running_loop_leaves_no_trace(record):
    """An iterator made outside and begun inside a loop is refused; nothing counts as open."""
    with record.run("w", run="r") as session:

        @session.tool(effects="pure")
        def read():
            yield 1

        items = read()

        async def inside():
            with pytest.raises(hansard.errors.BusError, match="running event loop"):
                next(items)

        asyncio.run(inside())
        ledger = session.engine.ledger
        assert (ledger.busy, ledger.root.open) == (0, 0)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_loop_that_ends_during_a_write_ends(data_dir, workspace, turns):
    """A write cut off by its loop's end is AppendUnknown: no effect starts, no call waits."""

    async def main():
        async with hansard.connect_async(workspace, data_dir=data_dir) as record:
            with pytest.raises(hansard.errors.AppendUnknown):
                async with record.run("w", run="r") as session:

                    @session.tool(effects="once")
                    async def send() -> None:
                        raise AssertionError

                    call = asyncio.ensure_future(send())
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    writer = session.engine.ledger._writer
                    assert writer is not None
                    assert writer._pump is not None
                    writer._pump.cancel()
                    call.cancel()
                    done, _ = await asyncio.wait({call}, timeout=10)
                    assert done == {call}
                    assert isinstance(call.exception(), hansard.errors.AppendUnknown)

    asyncio.run(main())


def test_texts_may_be_learned_from_several_threads(rounds):
    """One thread looks for a text in those that are known while another learns new ones."""
    shared = Shared()
    errors: list[BaseException] = []
    done = threading.Event()
    known = "".join(f"line {n} of what was said\n" for n in range(200))

    def look() -> None:
        try:
            while not done.is_set():
                shared.find(known, ("other", "prompt"))
        except (RuntimeError, KeyError) as error:
            errors.append(error)

    readers = [threading.Thread(target=look) for _ in range(2)]
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # they take turns often, and none waits 5 ms for one
    try:
        for reader in readers:
            reader.start()
        for n in range(rounds(300, 1_000)):
            text = f"{n} {known}"
            new = shared.find(text, ("tool", "prompt")).new
            shared.learn(n, [Learned("prompt", text, ("tool", "prompt"), new)])
    finally:
        done.set()
        sys.setswitchinterval(switch_s)
        for reader in readers:
            reader.join()
    assert errors == []
