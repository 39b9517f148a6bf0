"""Tools that time out or lose their connection: the known state of their effect."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tenacity import wait_none

import hansard
from hansard.domain.steps import StepStatus
from tests.faults.support import Stage

NAMES = {"run": "r1", "agent": "worker", "role": "worker"}
TIMEOUT_S = 0.2

ANSWERS_S = 20.0
"""Time-out of a call that answers, in seconds."""

SLOW_S = 2.0
"""Time-out of a tool whose first attempt does not answer and whose second does, in seconds."""

pytestmark = [pytest.mark.later, pytest.mark.timeout(180)]


class Slow:
    """A body that changes the world and does not come back the first few times."""

    def __init__(self, stage: Stage, slow: int) -> None:
        self.stage = stage
        self.slow = slow
        self.calls = 0
        self.release = threading.Event()
        self.changed = threading.Event()
        self.ended = threading.Event()

    def __call__(self, word: str, key: str | None = None) -> str:
        """Run the body in a thread."""
        self.calls += 1
        self.stage.world.effect("act", word, key)
        self.changed.set()
        if self.calls <= self.slow:
            self.release.wait(20)
            self.ended.set()
        return f"did {word}"

    async def asynchronously(self, word: str, key: str | None = None) -> str:
        """Run the body in a loop."""
        self.calls += 1
        self.stage.world.effect("act", word, key)
        if self.calls <= self.slow:
            await asyncio.Event().wait()
        return f"did {word}"


def _declare(
    session: hansard.Session,
    slow: Slow,
    policy: str,
    attempts: int = 1,
    timeout_s: float = TIMEOUT_S,
) -> Any:
    def ask(word: str) -> Any:
        return hansard.Happened("found") if slow.stage.world.read() else hansard.DID_NOT_HAPPEN

    def act_with_key(word: str, key: str | None = None) -> str:
        return slow(word, key)

    def act(word: str) -> str:
        return slow(word)

    options: dict[str, Any] = {
        "timeout_s": timeout_s,
        "attempts": attempts,
        "wait": wait_none(),
        "name": "act",
    }
    match policy:
        case "idempotent":
            return session.tool(effects=policy, key_argument="key", **options)(act_with_key)
        case "reconcile":
            return session.tool(effects=hansard.reconcile(ask), **options)(act)
        case _:
            return session.tool(effects=policy, **options)(act)


def _step(stage: Stage) -> Any:
    return stage.view().agent("worker").steps[1]


@pytest.fixture
def slow(stage: Stage) -> Iterator[Slow]:
    """Yield a body that is slow the first time."""
    slow = Slow(stage, slow=1)
    yield slow
    slow.release.set()


@pytest.mark.parametrize("attempts", [1, 3])
def test_of_a_once_tool_is_a_doubt(stage, slow, attempts):
    """A timeout is not retried, whatever the number of attempts; a person settles the step."""
    with (
        pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"),
        stage.record.run("timeouts", **NAMES) as session,
    ):
        _declare(session, slow, "once", attempts)("letter")
    step = _step(stage)
    assert (step.status, step.error.type, step.attempts) == (
        StepStatus.IN_DOUBT,
        "TimeoutError",
        (),
    )
    assert slow.calls == 1
    slow.release.set()
    assert slow.ended.wait(10)  # the thread cannot be stopped: that is the doubt
    with (
        pytest.raises(hansard.InDoubt, match="TimeoutError"),
        stage.record.run("timeouts", **NAMES) as session,
    ):
        _declare(session, slow, "once", attempts)("letter")
    stage.record.settle("r1", "1", "happened", result="by hand")
    with stage.record.run("timeouts", **NAMES) as session:
        assert _declare(session, slow, "once", attempts)("letter") == "by hand"
    assert len(stage.world.read()) == slow.calls == 1


def test_of_an_idempotent_tool_is_tried_again_with_its_key(stage, slow):
    """A timed-out idempotent call is retried with its key, without doubt."""
    with stage.record.run("timeouts", **NAMES) as session:
        assert _declare(session, slow, "idempotent", 2, SLOW_S)("letter") == "did letter"
    step = _step(stage)
    assert step.status is StepStatus.COMPLETED
    assert [attempt.error.type for attempt in step.attempts] == ["TimeoutError"]
    effects = stage.world.read()
    assert len(effects) == 2
    assert {line["key"] for line in effects} == {step.key}


def test_of_an_idempotent_tool_without_attempts_left(stage, slow):
    """The doubt is on record; resuming runs the call again with its key, without a question."""
    with pytest.raises(TimeoutError), stage.record.run("timeouts", **NAMES) as session:
        _declare(session, slow, "idempotent")("letter")
    assert _step(stage).status is StepStatus.IN_DOUBT
    with stage.record.run("timeouts", **NAMES) as session:
        act = _declare(session, slow, "idempotent", timeout_s=ANSWERS_S)
        assert act("letter") == "did letter"
    assert {line["key"] for line in stage.world.read()} == {_step(stage).key}
    assert stage.settlements() == []


def test_of_a_reconcile_tool_asks_the_world(stage, slow):
    """The doubt is on record; resuming calls the resolver and takes its answer."""
    with pytest.raises(TimeoutError), stage.record.run("timeouts", **NAMES) as session:
        _declare(session, slow, "reconcile", attempts=3)("letter")
    assert _step(stage).status is StepStatus.IN_DOUBT
    assert slow.changed.wait(ANSWERS_S)  # else the world would truly say that it did not happen
    with stage.record.run("timeouts", **NAMES) as session:
        assert _declare(session, slow, "reconcile")("letter") == "found"
    assert len(stage.world.read()) == 1


def test_of_a_pure_tool_is_a_failure(stage, slow):
    """A pure call is retried after a timeout, and fails in the end without doubt."""
    slow.slow = 2
    with pytest.raises(TimeoutError), stage.record.run("timeouts", **NAMES) as session:
        _declare(session, slow, "pure", attempts=2)("letter")
    step = _step(stage)
    assert (step.status, step.error.type, len(step.attempts)) == (
        StepStatus.FAILED,
        "TimeoutError",
        1,
    )


async def test_of_an_async_body_in_the_async_client(server, workspace, stage):
    """The async client cancels the body, whose effect may have happened."""
    slow = Slow(stage, slow=1)
    async with hansard.connect_async(workspace=workspace, **server.login) as record:
        with pytest.raises(TimeoutError):
            async with record.run("timeouts", **NAMES) as session:
                await session.tool(timeout_s=TIMEOUT_S, name="act")(slow.asynchronously)("letter")
        step = (await record.state("r1")).agent("worker").steps[1]
    assert step.status is StepStatus.IN_DOUBT
    assert step.error is not None
    assert step.error.type == "TimeoutError"
    assert len(stage.world.read()) == 1


def test_of_an_async_body_in_the_sync_client(stage):
    """The sync client cancels an async body, which it runs in a separate loop."""
    slow = Slow(stage, slow=1)
    with pytest.raises(TimeoutError), stage.record.run("timeouts", **NAMES) as session:
        session.tool(timeout_s=TIMEOUT_S, name="act")(slow.asynchronously)("letter")
    assert _step(stage).status is StepStatus.IN_DOUBT


@pytest.mark.parametrize(
    ("error", "status", "safe", "calls"),
    [
        pytest.param(ConnectionResetError("cut"), StepStatus.IN_DOUBT, False, 1, id="connection"),
        pytest.param(EOFError("cut"), StepStatus.IN_DOUBT, False, 1, id="end of file"),
        pytest.param(TimeoutError("late"), StepStatus.IN_DOUBT, False, 1, id="time-out"),
        pytest.param(LookupError("?"), StepStatus.IN_DOUBT, False, 1, id="declared doubtful"),
        pytest.param(ConnectionRefusedError("no"), StepStatus.FAILED, True, 2, id="declared safe"),
        pytest.param(hansard.errors.NotDone("no"), StepStatus.FAILED, True, 2, id="NotDone"),
        pytest.param(ValueError("bad"), StepStatus.FAILED, False, 1, id="another error"),
    ],
)
def test_errors_of_a_once_tool(stage, error, status, safe, calls):
    """A broken connection is a doubt; declared errors may be retried; others fail the step."""
    made = []

    def declare(session: hansard.Session) -> Any:
        safe, doubtful = (ConnectionRefusedError,), (LookupError,)

        @session.tool(attempts=2, wait=wait_none(), safe_errors=safe, doubtful_errors=doubtful)
        def act():
            made.append(1)
            raise error

        return act

    with pytest.raises(type(error)), stage.record.run("timeouts", **NAMES) as session:
        declare(session)()
    step = _step(stage)
    assert (step.status, step.safe, len(made)) == (status, safe, calls)
    expected = type(error) if safe else hansard.InDoubt
    with pytest.raises(expected), stage.record.run("timeouts", **NAMES) as session:
        declare(session)()
    assert len(made) == (calls + 1 if safe else calls)
