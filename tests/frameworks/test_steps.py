"""Steps by name: recorded as any call, with arguments that are no part of the call's key."""

import asyncio
from contextlib import aclosing

import pytest

import hansard
from hansard.ext.steps import call, call_async, step
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.fast(cases=99, slow=0)


async def _called(session, tool, arguments):
    """Execute a step with either client."""
    if session.is_async:
        return await call_async(session.raw, tool, arguments)
    return call(session.raw, tool, arguments)


async def test_a_step_by_name_is_on_record_and_answered_from_it(record: TwinRecord):
    """Name, kind, effects, arguments and usage are on record; a replay runs no body."""
    ran = []
    for mode in (None, "strict"):
        async with record.run(run="r", mode=mode) as session:

            def send(raw=session.raw):
                ran.append(1)
                raw.usage(input_tokens=3)
                return {"text": "hello"}

            tool = step("openai.responses", send, kind="model", effects="idempotent")
            assert await _called(session, tool, {"model": "m", "$x": 1}) == {"text": "hello"}
    assert ran == [1]
    [done] = await record.steps("r")
    assert (done.tool, done.kind, done.effects) == ("openai.responses", "model", "idempotent")
    assert dict(done.usage) == {"input_tokens": 3.0}


async def test_arguments_set_aside_are_recorded_but_do_not_identify_the_call(record: TwinRecord):
    """Another random id is the same call; another identity is another call."""
    tool = step("search", lambda: 7, effects="pure", aside=["body"])
    for mode, body in ((None, "first"), ("strict", "second")):
        async with record.run(run="r", mode=mode) as session:
            assert await _called(session, tool, {"identity": "a", "body": body}) == 7
    with pytest.raises(hansard.errors.Miss):
        async with record.run(run="r", mode="strict") as session:
            await _called(session, tool, {"identity": "b", "body": "first"})
    [done] = await record.steps("r")
    assert b"first" in bytes(done.arguments)
    assert done.defaults == ("body",)


async def test_the_body_gets_the_idempotency_key_if_it_takes_it(record: TwinRecord):
    """A provider that knows idempotency keys gets the call's own, which a retry repeats."""
    keys = []
    async with record.run(run="r") as session:

        def pay(key: str):
            keys.append(key)

        tool = step("pay", pay, effects="idempotent", key_argument="key")
        await _called(session, tool, {"amount": 1})
    [done] = await record.steps("r")
    assert keys == [done.key]


async def test_a_generator_is_a_stream(record: TwinRecord):
    """Items are recorded one by one, and replayed without the body."""
    ran = []
    for mode in (None, "strict"):
        async with record.run(run="r", mode=mode) as session:

            def send():
                ran.append(1)
                yield {"head": {}}
                yield {"end": {}}

            items = await _called(session, step("m", send, effects="idempotent"), {"n": 1})
            if session.is_async:
                async with aclosing(items) as stream:
                    assert [each async for each in stream] == [{"head": {}}, {"end": {}}]
            else:
                assert list(items) == [{"head": {}}, {"end": {}}]
    assert ran == [1]


async def test_a_call_in_the_wrong_kind_of_function_is_refused(lab: Lab):
    """A sync call in an async session's loop, and unknown effects, are clear errors."""
    with pytest.raises(hansard.errors.ToolError, match="'twice' of pay is not a policy"):
        step("pay", lambda: 1, effects="twice")
    async with lab.connect() as record, record.run(run="r") as session:
        tool = step("pay", lambda: 1)
        if lab.is_async:
            with pytest.raises(hansard.errors.ToolError, match="async method"):
                call(session.raw, tool, {})
            # As frameworks run plain functions: in a thread, with the caller's context.
            assert await asyncio.to_thread(call, session.raw, tool, {}) == 1
