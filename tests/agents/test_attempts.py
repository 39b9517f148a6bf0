"""Attempts: retries with backoff, each one recorded; timeouts; the idempotency key."""

import pytest
from tenacity import wait_fixed

import hansard
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.fast(cases=99, slow=0)

AT_ONCE = wait_fixed(0)


@pytest.mark.parametrize("effects", ["pure", "idempotent"])
async def test_every_attempt_is_recorded(lab: Lab, effects):
    """Each failed attempt is an event with its error and wait; the last gives the result."""
    async with lab.connect() as record:
        for mode in (None, "strict"):
            ran: list[int] = []
            async with record.run(run="r", mode=mode) as session:

                @session.tool(effects=effects, attempts=3, wait=wait_fixed(0.001))
                async def flaky() -> str:
                    ran.append(1)
                    if len(ran) < 3:
                        raise ConnectionError(f"down {len(ran)}")
                    return "up"

                assert await flaky() == "up"
            assert len(ran) == (3 if mode is None else 0)
        [step] = await record.steps("r")
    assert [(a.attempt, a.error.message, a.retry_in_ms) for a in step.attempts] == [
        (1, "down 1", 1.0),
        (2, "down 2", 1.0),
    ]
    assert (step.status, step.attempt, step.error) == ("completed", 3, None)


async def test_the_last_attempt_s_error_is_the_outcome(lab: Lab):
    """If no attempt succeeds, the last error is raised and recorded as the outcome."""
    async with lab.connect() as record, record.run() as session:

        @session.tool(effects="pure", attempts=2, wait=AT_ONCE)
        async def broken() -> None:
            message = (
                f"attempt {len(session.state.steps.get(1).attempts) + 1}"
                if (session.state.steps)
                else "attempt 1"
            )
            raise ValueError(message)

        with pytest.raises(ValueError, match="attempt 2"):
            await broken()
        [step] = session.state.steps.values()
        assert (step.status, len(step.attempts), step.error.message) == ("failed", 1, "attempt 2")


async def test_the_idempotency_key_is_the_same_in_every_attempt_and_session(record: TwinRecord):
    """The key stays over attempts, resumes and edits, differs by call, and is no argument."""
    keys: list[str] = []
    fail = [True, True]

    async def run(name: str, before: str) -> None:
        async with record.run(run=name) as session:

            @session.tool(effects="pure")
            async def earlier(text: str) -> str:
                return text

            @session.tool(effects="idempotent", key_argument="key", attempts=2, wait=AT_ONCE)
            async def put(x: int, key: str = "") -> str:
                keys.append(key)
                if fail and fail.pop():
                    raise ConnectionError
                return key

            await earlier(before)
            assert await put(1) == keys[-1]

    with pytest.raises(ConnectionError):
        await run("r", "a")
    await run("r", "a")
    await run("r", "edited")
    assert len(keys) == 4
    assert len(set(keys)) == 1
    assert keys[0]
    await run("other", "a")
    assert keys[-1] != keys[0]
    step = (await record.steps("r"))[1]
    assert bytes(step.arguments) == b'{"x":1}'
    assert step.key == keys[0]


async def test_the_key_follows_from_the_run_and_the_call(lab: Lab):
    """A session whose intent was lost derives the same key again: no part of it is random."""
    keys = []
    for workspace in (lab.workspace, f"{lab.workspace}-b"):
        async with lab.connect(workspace=workspace) as record, record.run(run="r") as session:

            @session.tool(effects="idempotent", key_argument="key")
            async def put(x: int, key: str = "") -> str:
                return key

            keys.append(await put(1))
    assert keys[0] == keys[1]


async def test_equal_calls_have_different_keys(lab: Lab):
    """Two equal calls are two effects: each has a key of its own."""
    async with lab.connect() as record, record.run() as session:

        @session.tool(effects="idempotent", key_argument="key")
        async def put(key: str = "") -> str:
            return key

        assert await put() != await put()


async def test_usage_is_recorded_with_the_call_that_reports_it(record: TwinRecord):
    """Usage is recorded with its step, summed; a value that is not a number is refused."""
    async with record.run(run="r") as session:

        @session.tool(effects="pure", kind="model")
        async def think() -> str:
            session.raw.usage(input_tokens=3, cost=0.25)
            session.raw.usage(input_tokens=4)
            session.raw.usage(self=1)
            for bad in (float("nan"), float("inf"), "7", None):
                with pytest.raises(hansard.BadValue, match="usage"):
                    session.raw.usage(cost=bad)
            return "hm"

        await think()
    [step] = await record.steps("r")
    assert step.usage == {"input_tokens": 7.0, "cost": 0.25, "self": 1.0}
