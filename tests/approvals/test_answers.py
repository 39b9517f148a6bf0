"""Answers: permission to give one, when it counts, and the effect on waiting agents."""

import asyncio
import functools
import threading
import time
from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents.policy.approvals import stream_of
from hansard.bus import log
from hansard.domain import access
from hansard.domain.ids import WorkspaceStream
from hansard.domain.roles import check as role_file
from tests.agents.twins import Lab, TwinSession
from tests.approvals.support import ASK, sender

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=99, slow=0)]


async def _has_question(record: hansard.AsyncRecord) -> str | None:
    return "asked" if await record.approvals.list() else None


def test_a_wait_that_is_cancelled_leaves_the_question(data_dir, workspace):
    """Nothing runs; the resumed call waits for the answer to the same question."""
    sent: list[str] = []

    async def main() -> None:
        async with hansard.connect_async(workspace, data_dir=data_dir, gate=ASK) as record:
            for left in (True, False):
                async with record.run("w", run="r", agent="ada", role="writer") as session:
                    send = sender(TwinSession(session, is_async=True), sent)
                    call = asyncio.create_task(send("bob"))
                    await log.until(
                        record.workspace.log,
                        functools.partial(_has_question, record),
                        lambda stored: stored.stream == stream_of("r"),
                        20,
                    )
                    if left:
                        call.cancel()
                        with pytest.raises(asyncio.CancelledError):
                            await call
                    else:
                        [each] = await record.approvals.list()
                        await record.approvals.grant(each.approval.id, by="eva")
                        assert await call == "sent to bob"

    asyncio.run(main())
    assert sent == ["bob"]


ROLES = {
    "chief": "[roles.chief.may]\napprove = true\n",
    "clerk": "[roles.clerk.may]\nquery = true\n",
}


async def test_who_may_answer(lab: Lab):
    """Not the agent that asks; another agent, or a principal in a role, where that may approve."""
    sent: list[str] = []
    async with lab.connect() as record:
        for role, text in ROLES.items():
            await record.roles.apply(role, role_file.parse(text)[role])
        async with (
            record.run(run="r", gate=ASK),
            record.run(run="r", agent="cleo", role="clerk"),
            record.run(run="r", agent="chris", role="chief"),
        ):
            pass
        async with record.run(run="r", gate=ASK) as session:

            def answers() -> None:
                with hansard.connect(lab.workspace, data_dir=lab.data_dir) as other:
                    deadline = time.monotonic() + 20
                    while not (pending := other.approvals.list()):
                        assert time.monotonic() < deadline
                        time.sleep(0.01)
                    [question] = pending
                    name = question.approval.id
                    for by, role in (("cleo", None), ("eva", "clerk")):
                        with pytest.raises(hansard.Blocked) as refused:
                            other.approvals.grant(name, by=by, role=role)
                        refusals.append(str(refused.value))
                    with pytest.raises(hansard.Blocked, match="it has no rules"):
                        other.approvals.grant(name, by="eva", role="boss")
                    with pytest.raises(hansard.errors.Refused, match="may not answer it"):
                        other.approvals.grant(name, by="ada")
                    other.approvals.grant(name, by="chris")

            refusals: list[str] = []
            thread = threading.Thread(target=answers)
            thread.start()
            await sender(session, sent)("bob")
            thread.join()
        assert sent == ["bob"]
        assert len(refusals) == 2
        assert all("ask for: approve = true in [roles.clerk.may]" in each for each in refusals)
        strangers = WorkspaceStream(access.KIND, access.STRANGER)
        on_record = [
            msgspec.json.decode(each.data)
            for stored in await record.io(record.raw.workspace.log.read(strangers))
            for each in stored.commit.events
        ]
        assert [(each["principal"], each["role"], each["operation"]) for each in on_record] == [
            ("cleo", "clerk", "approve"),
            ("eva", "clerk", "approve"),
            ("eva", "boss", "approve"),
        ]


@pytest.mark.fast(cases=0)
@pytest.mark.slow
def test_what_is_not_there_cannot_be_answered(record):
    """The error names the command that lists questions."""
    with pytest.raises(hansard.NotFound, match="hansard approvals"):
        record.approvals.grant("01a1", by="eva")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "1", 1e9])
def test_a_rule_s_time_is_checked(timeout):
    """An invalid timeout is refused where the rule is made."""
    with pytest.raises(hansard.BadValue, match="ask_first: timeout"):
        hansard.ask_first(timeout_s=timeout)


@pytest.mark.fast(cases=0)
@pytest.mark.slow
def test_a_clock_that_is_wrong_ends_no_question_early(record, monkeypatch):
    """With a clock an hour ahead a question still ends by the log's time."""
    hour = 3_600 * 1_000_000_000
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + hour)
    gate = (hansard.ask_first("send_*", timeout_s=1.5),)
    began = time.monotonic()
    with (
        record.run("w", run="r", agent="ada", role="writer", gate=gate) as session,
        pytest.raises(hansard.Blocked, match="no answer within"),
    ):
        sender(TwinSession(session, is_async=False), []).raw("bob")
    assert time.monotonic() - began >= 1.5
    stored = record._portal.run(record.workspace.log.read(stream_of("r")))
    assert [each.type for item in stored for each in item.commit.events] == [
        "approval.requested.v1",
        "approval.expired.v1",
    ]


def test_of_two_sessions_of_one_agent_that_wait_one_acts(data_dir, workspace):
    """The older session sees the grant, too, but is fenced at its intent and runs nothing."""
    sent: list[str] = []
    place: Any = {"run": "r", "agent": "ada", "role": "writer"}

    async def older(record: hansard.AsyncRecord) -> None:
        async with record.run("w", **place) as session:
            await sender(TwinSession(session, is_async=True), sent)("x")

    async def newer(record: hansard.AsyncRecord) -> str:
        async with record.run("w", **place) as session:
            call = asyncio.create_task(sender(TwinSession(session, is_async=True), sent)("x"))
            await asyncio.sleep(0.3)
            [question] = await record.approvals.list()
            await record.approvals.grant(question.approval.id, by="eva")
            return str(await call)

    async def main() -> None:
        async with (
            hansard.connect_async(workspace, data_dir=data_dir, gate=ASK) as one,
            hansard.connect_async(workspace, data_dir=data_dir, gate=ASK) as two,
        ):
            waits = asyncio.create_task(older(one))
            has_question = functools.partial(_has_question, two)
            await log.until(two.workspace.log, has_question, lambda _: True, 20)
            assert await newer(two) == "sent to x"
            with pytest.raises(hansard.errors.Fenced):
                await waits

    asyncio.run(main())
    assert sent == ["x"]
