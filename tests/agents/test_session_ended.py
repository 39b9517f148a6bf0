"""Ended sessions: every operation fails at once, and late outcomes are recorded."""

import asyncio
import contextlib
import functools
import inspect
import threading
from contextvars import copy_context

import pytest

import hansard
from hansard.agents.errors import SessionEnded
from hansard.agents.team.tasks import Task
from hansard.bus.errors import Closed
from hansard.client.session import AsyncSession, Session
from hansard.domain.steps import StepStatus
from tests.agents.twins import Lab, TwinRecord

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=99, slow=0)]

WAIT_S = 30.0
SAMPLES = {
    "name": "n",
    "question": "?",
    "selected": "a",
    "role": "user",
    "content": "c",
    "uri": "file:x",
    "to": "bob",
    "items": [1],
    "key": "k",
    "value": 1,
    "item": 1,
    "merge": "max",
    "title": "t",
    "task": Task("t1", "t", 1),
    "error": "e",
    "cls": dict,
    "aggregate_id": "x",
    "args": (1,),
    "kwargs": {},
    "summarize": str,
    "page": None,
    "cache": {},
    "experience": "",
}
"""Arguments of operations, by the names of their required parameters."""


ALWAYS = ("close", "use", "snapshot")
"""Calls that an ended session still takes."""


def operations(session, tool):
    """Return every public operation of a session and of its attributes, ready to call."""
    parts = {"": session, "board.": session.board, "team.": session.team}
    calls = {"a tool": functools.partial(tool, 1)}
    plain = {"gather": (), "thread": (tool,), "checkpoint": ("n",)}
    for part, holder in parts.items():
        for name, function in inspect.getmembers(type(holder), callable):
            if name.startswith("_") or name in ALWAYS:
                continue
            arguments = {"spec": tool.spec}
            if name in ("send", "hand_off") and part == "team.":
                arguments["agent"] = "bob"
            if name == "usage":
                arguments["tokens"] = 1
            if name in plain:
                calls[name] = functools.partial(getattr(session, name), *plain[name])
                continue
            for parameter in list(inspect.signature(function).parameters.values())[1:]:
                required = parameter.default is inspect.Parameter.empty
                if required and parameter.name in SAMPLES:
                    arguments[parameter.name] = SAMPLES[parameter.name]
            if name == "reopen":
                arguments["task"] = "t1"
            if name == "wait_for":
                arguments["key"] = "k"
            accepted = inspect.signature(function).parameters
            takes = any(each.kind is each.VAR_KEYWORD for each in accepted.values())
            arguments = {
                key: value
                for key, value in arguments.items()
                if key in accepted or (takes and key == "tokens")
            }
            calls[part + name] = functools.partial(getattr(holder, name), **arguments)
    return calls


async def begun(operation):
    """Return the result of an operation: called, awaited, entered or advanced to its first item."""
    result = operation()
    if inspect.isawaitable(result):
        return await result
    if hasattr(result, "__anext__"):
        return await anext(result)
    if hasattr(result, "__next__"):
        return next(result)
    if hasattr(result, "__aenter__"):
        return await result.__aenter__()
    if hasattr(result, "__enter__"):
        return result.__enter__()
    return result


async def test_every_operation_of_an_ended_session_says_so(lab: Lab):
    """Whatever it offers raises SessionEnded and records nothing; its state stays readable."""
    async with lab.connect() as record:
        async with record.run(run="r") as session:

            @session.tool(name="send")
            async def send(to):
                return to

            await send(1)
            raw, tool = session.raw, send.raw if not lab.is_async else send
            parts = (raw.board, raw.team, raw.wait_for)
        before = len(await record.commits("r"))
        names = operations(raw, tool)
        assert len(names) > 30
        for name, operation in names.items():
            with pytest.raises(SessionEnded, match=r"agent 'ada' in run r has ended"):
                pytest.fail(f"{name} gave {await begun(operation)!r}")
        with pytest.raises(SessionEnded):
            await begun(functools.partial(parts[2], key="k"))
        assert len(await record.commits("r")) == before
        assert (raw.run, raw.agent, raw.role, raw.mode.value) == ("r", "ada", "writer", "live")
        assert raw.state.left == "completed"


async def test_a_session_that_only_reads_or_was_fenced_ends_as_well(record: TwinRecord):
    """However its block was left."""
    async with record.run(run="r") as session:
        await session.checkpoint("a")
    async with record.run(run="r", mode="strict") as session:
        await session.checkpoint("a")
    with pytest.raises(SessionEnded):
        await session.checkpoint("a")
    with pytest.raises(hansard.errors.Fenced):
        await _fenced(record)
    with pytest.raises(SessionEnded):
        await FENCED.pop().checkpoint("c")


FENCED: list = []


async def _fenced(record):
    async with record.run(run="r") as old:
        FENCED.append(old)
        async with record.run(run="r") as new:
            await new.checkpoint("a")
        await old.checkpoint("b")


async def test_what_was_open_when_the_session_ended_goes_no_further(record: TwinRecord):
    """An open stream, loop or transaction stops; items already returned are on record."""
    async with record.run(run="r") as session:

        @session.tool(name="count")
        async def count(n):
            for i in range(n):
                yield i

        items = count(5)
        assert await anext(items) == 0
        loop = session.resumable([1, 2, 3], every=2)
        assert await anext(loop) == 1
        transaction = session.raw.board.transaction()
        inside = await begun(lambda: transaction)
    with pytest.raises(SessionEnded):
        await anext(items)
    with pytest.raises(SessionEnded):
        await anext(loop)
    with pytest.raises(SessionEnded):
        inside.put("k", 1)
    with pytest.raises(SessionEnded):
        await _exit(transaction)
    [step] = [each for each in await record.steps("r") if each.tool == "count"]
    assert (step.status, step.closed, len(step.items), step.late) == (
        StepStatus.COMPLETED,
        True,
        1,
        False,
    )
    assert "k" not in (await record.state("r")).boards


async def _exit(block):
    if hasattr(block, "__aexit__"):
        await block.__aexit__(None, None, None)
    else:
        block.__exit__(None, None, None)


class Held:
    """A tool's body that waits to be let go, in a thread of its own."""

    def __init__(self, raises=None):
        self.began = threading.Event()
        self.go = threading.Event()
        self.raises = raises
        self.calls = 0
        self.outcomes = []

    def body(self, to):
        """The tool."""
        self.calls += 1
        self.began.set()
        assert self.go.wait(WAIT_S)
        if self.raises is not None:
            raise self.raises
        return f"sent to {to}"

    def call(self, function):
        """Call a function in a thread that outlives the session's block."""

        def work():
            try:
                self.outcomes.append(function("eve"))
            except BaseException as error:  # noqa: BLE001 -- the caller's exception is compared
                self.outcomes.append(error)

        self.thread = threading.Thread(target=copy_context().run, args=(work,), daemon=True)
        self.thread.start()
        assert self.began.wait(WAIT_S)

    def end(self):
        """Release the task and return its outcome."""
        self.go.set()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()
        return self.outcomes[0]


@pytest.mark.parametrize("effects", ["once", "idempotent", "pure"])
def test_a_late_outcome_of_a_running_body_is_recorded_as_late(record, effects):
    """In doubt when the session ends, with effects; its outcome then is on record, and late."""
    held = Held()
    with record.run("w", run="r", agent="ada", role="writer") as session:
        held.call(session.tool(effects=effects, name="send")(held.body))
    steps = record.state("r").agent("ada").steps
    if effects != "pure":
        assert steps[1].status is StepStatus.IN_DOUBT
        assert "SessionEnded" in repr(steps[1].error)
    assert held.end() == "sent to eve"
    [step] = record.state("r").agent("ada").steps.values()
    assert (step.status, step.late) == (StepStatus.COMPLETED, True)
    assert bytes(step.result) == b'"sent to eve"'
    assert record.state("r").life.status == "completed"
    with record.run("w", run="r", agent="ada", role="writer") as session:
        again = Held()
        assert session.tool(effects=effects, name="send")(again.body)("eve") == "sent to eve"
        assert again.calls == 0


def test_a_late_failure_is_not_tried_again(record):
    """A body that would be retried is not, once the session has ended."""
    held = Held(raises=hansard.errors.NotDone("busy"))
    with record.run("w", run="r", agent="ada", role="writer") as session:
        held.call(session.tool(attempts=5, name="send")(held.body))
    assert isinstance(held.end(), hansard.errors.NotDone)
    [step] = record.state("r").agent("ada").steps.values()
    assert (step.status, step.late, step.safe, held.calls) == (StepStatus.FAILED, True, True, 1)


def test_a_call_that_a_late_body_makes_is_refused(record):
    """A composite that continues makes no further call, and a resume repeats it."""
    held, sent = Held(), []
    with record.run("w", run="r", agent="ada", role="writer") as session:

        @session.tool
        def send(to):
            sent.append(to)

        @session.tool(effects="composite")
        def outer(to):
            held.body(to)
            return send(to)

        held.call(outer)
    assert isinstance(held.end(), SessionEnded)
    [step] = record.state("r").agent("ada").steps.values()
    assert (step.tool, step.status, sent) == ("outer", StepStatus.REQUESTED, [])


def test_a_late_body_of_a_closed_record_fails_at_once(data_dir, workspace):
    """Its outcome cannot be recorded: it stays in doubt, and no call waits for a broker."""
    held = Held()
    with hansard.connect(workspace, data_dir=data_dir) as record:  # noqa: SIM117 -- one is left first
        with record.run("w", run="r", agent="ada", role="writer") as session:
            held.call(session.tool(name="send")(held.body))
    assert isinstance(held.end(), Closed)
    with hansard.connect(workspace, data_dir=data_dir) as again:
        [step] = again.state("r").agent("ada").steps.values()
    assert step.status is StepStatus.IN_DOUBT
    assert "SessionEnded" in repr(step.error)


async def test_a_closed_record_says_so_at_once(lab: Lab):
    """Every call on it and its open session is refused without waiting for a time-out."""
    async with lab.connect() as record, contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(_open(record))

        @session.tool(name="send")
        async def send(to):
            return to

        await record.close()
        for operation in (
            record.runs,
            functools.partial(record.state, "r"),
            functools.partial(record.finish, "r"),
            functools.partial(session.checkpoint, "c"),
            functools.partial(send, "eve"),
            functools.partial(_begun, record),
        ):
            with pytest.raises(Closed, match="the record was closed"):
                await operation()


@contextlib.asynccontextmanager
async def _open(record):
    with contextlib.suppress(Closed):
        async with record.run(run="r") as session:
            yield session


async def _begun(record):
    async with record.run(run="other"):
        pass


def test_a_wait_ends_with_its_session(record):
    """A wait for a write that never happens ends with the session."""
    began, outcomes = threading.Event(), []
    with record.run("w", run="r", agent="ada", role="writer") as session:

        def work():
            began.set()
            try:
                outcomes.append(session.wait_for(key="never"))
            except SessionEnded as error:
                outcomes.append(error)

        thread = threading.Thread(target=copy_context().run, args=(work,), daemon=True)
        thread.start()
        assert began.wait(WAIT_S)
    thread.join(WAIT_S)
    assert isinstance(outcomes[0], SessionEnded)


def test_a_claim_is_not_kept_alive_by_an_ended_session(data_dir, workspace):
    """A block beyond its session extends no lease; another agent gets the task."""

    async def main():
        async with hansard.connect_async(workspace, data_dir=data_dir) as record:
            go = asyncio.Event()
            held = asyncio.Event()

            async def block(session):
                async with session.team.claimed(lease_s=0.3):
                    held.set()
                    await go.wait()

            async with record.run("w", run="r", agent="ada", role="writer") as ada:
                await ada.team.add("one")
                late = asyncio.create_task(block(ada))
                await held.wait()
            async with record.run("w", run="r", agent="bob", role="writer") as bob:
                task = await bob.team.claim(timeout_s=WAIT_S)
                assert task is not None
                assert task.number == 2
                go.set()
                with pytest.raises(SessionEnded):
                    await late
                await bob.team.complete(task)

    asyncio.run(main())


def test_a_task_that_runs_on_behind_the_session_is_recorded_as_late(data_dir, workspace):
    """The async client, too, records the outcome of its task, marked late."""

    async def main():
        async with hansard.connect_async(workspace, data_dir=data_dir) as record:
            go, began = asyncio.Event(), asyncio.Event()
            async with record.run("w", run="r", agent="ada", role="writer") as session:

                @session.tool
                async def send(to):
                    began.set()
                    await go.wait()
                    return to

                late = asyncio.create_task(send("eve"))
                await began.wait()
            go.set()
            assert await late == "eve"
            [step] = (await record.state("r")).agent("ada").steps.values()
            assert (step.status, step.late) == (StepStatus.COMPLETED, True)

    asyncio.run(main())


def test_the_twins_offer_the_same():
    """Both clients have everything tested above."""
    sync, other = (
        {name for name in dir(each) if not name.startswith("_")} for each in (Session, AsyncSession)
    )
    assert sync ^ other == {"thread", "task_group"}
