"""Calls that need approval: they run once granted, and never otherwise."""

import time
from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents.policy import approvals as store
from hansard.agents.steps import gating
from hansard.domain.approval import ApprovalStatus
from tests.agents.twins import Lab, TwinRecord
from tests.approvals.support import ASK, person, sender

pytestmark = pytest.mark.fast(cases=99, slow=0)

SOON = (hansard.ask_first("send_*", timeout_s=0.3, name="soon"),)


async def questions(record: TwinRecord) -> list[Any]:
    """Return the questions, as data, in order."""
    approvals: list[Any] = await record.io(store.listed(record.raw.workspace))
    return approvals


async def test_a_granted_call_runs_and_its_intent_names_the_grant(lab: Lab):
    """The question identifies the call; the answer, its author and reason."""
    sent: list[str] = []
    async with lab.connect() as record:
        async with record.run(run="r", gate=ASK) as session:
            with person(lab, True):
                assert await sender(session, sent)("bob") == "sent to bob"
        assert sent == ["bob"]
        [listed] = await questions(record)
        question = listed.approval
        assert (question.given, question.by, question.because) == ("granted", "eva", "because")
        assert (question.request.agent, question.request.tool) == ("ada", "send_mail")
        assert msgspec.json.decode(question.request.arguments) == {"to": "bob"}
        [step] = await record.steps("r")
        assert (step.approvals, step.call) == ((question.id,), question.request.call)


async def test_a_denied_call_is_blocked_and_stays_so(lab: Lab):
    """The agent gets the reason; on resume only another call leads to a question."""
    sent: list[str] = []
    async with lab.connect() as record:
        for _ in range(2):
            async with record.run(run="r", gate=ASK) as session:
                answers = [] if await questions(record) else [False]
                blocked = pytest.raises(hansard.Blocked, match=r"'eva' denied it .*: because")
                with person(lab, *answers), blocked:
                    await sender(session, sent)("bob")
        async with record.run(run="r", gate=ASK) as session:
            with pytest.raises(hansard.Blocked, match="denied"):
                await sender(session, sent)("bob")
            with person(lab, True):
                await sender(session, sent)("cyd")
        assert sent == ["cyd"]
        assert [each.standing for each in await questions(record)] == ["denied", "granted"]
        first, _ = await record.steps("r")
        assert (first.status, first.rule) == ("blocked", "ask first send_*")


async def test_nobody_answers_in_time(lab: Lab):
    """The call is blocked at its timeout; a resume has a new question; a late answer is refused."""
    sent: list[str] = []
    async with lab.connect() as record:
        async with record.run(run="r", gate=SOON) as session:
            began = time.monotonic()
            with pytest.raises(hansard.Blocked, match=r"'soon' .*no answer within 0.3 s"):
                await sender(session, sent)("bob")
            assert time.monotonic() - began >= 0.3
        [first] = await questions(record)
        assert first.standing is ApprovalStatus.EXPIRED
        assert first.approval.answered_at >= first.approval.expires
        with pytest.raises(hansard.errors.Refused, match="is expired already: it is answered once"):
            await record.approvals.grant(first.approval.id, by="eva")
        async with record.run(run="r", gate=ASK) as session:
            with person(lab, True):
                await sender(session, sent)("bob")
        assert sent == ["bob"]
        assert [each.standing for each in await questions(record)] == ["expired", "granted"]


async def test_a_call_that_waits_says_so_and_how_to_grant_it(
    lab: Lab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """A warning at once and every REMIND_S names the call, its run and the command that grants."""
    monkeypatch.setattr(gating, "REMIND_S", 0.2)
    sent: list[str] = []
    async with lab.connect() as record:
        async with record.run(run="r", gate=SOON) as session:
            with pytest.raises(hansard.Blocked, match="a resume requests it again"):
                await sender(session, sent)("bob")
        [asked] = await questions(record)
    lines = [each.getMessage() for each in caplog.records if "approval" in each.getMessage()]
    named = "ada#1 (send_mail) of run r waits for approval; from another terminal: hansard"
    assert all(each.startswith(named) for each in lines)
    assert all(each.endswith(f" approvals grant {asked.approval.id}") for each in lines)
    assert 2 <= len(lines) <= 1 + (asked.approval.answered_at - asked.approval.requested_at) / 2e8


@pytest.mark.fast(cases=0, slow=1)
async def test_a_retry_keeps_the_grant_and_a_failure_uses_it_up(lab: Lab):
    """`NotDone` keeps the grant for the retry; after another failure there is a new question."""
    ran: list[int] = []

    async def story(record: TwinRecord, error: type[Exception] | None, attempts: int = 1) -> None:
        async with record.run(run="r", gate=ASK) as session:

            @session.tool(effects="idempotent", attempts=attempts)
            async def send_mail(to: str) -> str:
                ran.append(1)
                if error is not None and (attempts == 1 or len(ran) == 1):
                    raise error
                return to

            await send_mail("bob")

    async with lab.connect() as record:
        with person(lab, True), pytest.raises(hansard.errors.NotDone):
            await story(record, hansard.errors.NotDone)
        with pytest.raises(hansard.errors.NotDone):
            await story(record, hansard.errors.NotDone)
        assert len(await questions(record)) == 1
        with pytest.raises(ValueError, match="ended run r"):
            await story(record, ValueError)
        assert (len(ran), len(await questions(record))) == (3, 1)
        with person(lab, True):
            await story(record, None)
        first, second = await questions(record)
        [step] = await record.steps("r")
        assert step.approvals == (first.approval.id, second.approval.id)
        ran.clear()
    async with lab.connect() as record, record.run(run="r2", gate=ASK) as session:
        with person(lab, True):

            @session.tool(attempts=3, safe_errors=(KeyError,))
            async def send_mail(to: str) -> str:
                ran.append(1)
                if len(ran) < 3:
                    raise KeyError(to)
                return to

            assert await send_mail("bob") == "bob"
        assert (len(ran), len(await questions(record))) == (3, 3)


async def test_an_edited_earlier_step_needs_a_new_approval(lab: Lab):
    """A grant is for the call after these earlier steps; after others it needs a new question."""
    sent: list[str] = []

    async def story(record: TwinRecord, text: str) -> None:
        async with record.run(run="r", gate=ASK) as session:

            @session.tool(effects="pure")
            async def read(name: str) -> str:
                return text

            await read(text)
            await sender(session, sent, effects="idempotent")("bob")

    async with lab.connect() as record:
        with person(lab, False), pytest.raises(hansard.Blocked):
            await story(record, "one")
        with person(lab, True):
            await story(record, "two")
        assert sent == ["bob"]
        first, second = await questions(record)
        assert first.approval.request.call == second.approval.request.call
        assert first.approval.request.fingerprint != second.approval.request.fingerprint


async def test_a_grant_is_of_no_use_to_another_agent_or_run(lab: Lab):
    """The same call of another agent, or of a fork, has its own question."""
    sent: list[str] = []
    async with lab.connect() as record:
        async with record.run(run="r", gate=ASK) as session:
            head = await record.io(record.raw.workspace.log.head())
            with person(lab, True):
                await sender(session, sent)("bob")
        async with record.run(run="r", gate=ASK, agent="cyd") as session:
            with person(lab, False), pytest.raises(hansard.Blocked):
                await sender(session, sent)("bob")
        child = await record.fork("r", at=head + 2, effects="live")
        async with record.run(run=child, gate=ASK) as session:
            with person(lab, False), pytest.raises(hansard.Blocked):
                await sender(session, sent)("bob")
        assert sent == ["bob"]
        listed = await questions(record)
        assert [each.run for each in listed] == ["r", "r", child]


async def test_a_replay_asks_nobody(lab: Lab):
    """Recorded answers are reused: strict, offline and resumed."""
    sent: list[str] = []
    async with lab.connect() as record:
        async with record.run(run="r", gate=ASK) as session:
            with person(lab, True, False):
                await sender(session, sent)("bob")
                with pytest.raises(hansard.Blocked):
                    await sender(session, sent)("cyd")
        before = await record.commits("r")
        for mode in ("strict", "offline"):
            async with record.run(run="r", gate=ASK, mode=mode) as session:
                assert await sender(session, sent)("bob") == "sent to bob"
                with pytest.raises(hansard.Blocked, match="denied"):
                    await sender(session, sent)("cyd")
        assert await record.commits("r") == before
        assert sent == ["bob"]


async def test_rules_apply_in_order(lab: Lab):
    """Calls allowed or denied by an earlier rule cause no question; `where` narrows a rule."""
    sent: list[str] = []
    small = hansard.ask_first("send_*", where={"to": hansard.one_of("boss")}, timeout_s=20)
    gate = (hansard.deny("send_*", where={"to": hansard.one_of("all")}), small, hansard.allow())
    async with lab.connect() as record:
        async with record.run(run="r", gate=gate) as session:
            send = sender(session, sent)
            await send("bob")
            with pytest.raises(hansard.Blocked, match="deny send"):
                await send("all")
            with person(lab, True) as eva:
                await send("boss")
        assert sent == ["bob", "boss"]
        assert [each.approval.request.rule for each in eva.seen] == ["ask first send_* where to"]


async def test_writes_to_shared_state_can_need_approval(lab: Lab):
    """They are steps like any other; pure ones, too: their intent names the grant."""
    gate = (hansard.ask_first("board.put", timeout_s=20), hansard.ask_first("look", timeout_s=20))
    async with lab.connect() as record, record.run(run="r", gate=gate) as session:

        @session.tool(effects="pure")
        async def look(at: str) -> str:
            return at

        with person(lab, True, True):
            await look("there")
            put = session.raw.board.put("k", 1)
            assert (await put if session.is_async else put) == 1
        steps = await record.steps("r")
        approval_ids = [each.approval.id for each in await questions(record)]
        assert [step.approvals for step in steps] == [(each,) for each in approval_ids]
