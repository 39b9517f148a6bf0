"""What agents ask before a call runs, and how each question stands."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from hansard.agents.policy import approvals as asked
from hansard.agents.policy.approvals import ListedApproval
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.domain.approval import ApprovalStatus
from hansard.domain.errors import BadName
from hansard.inspect.answer import Answer
from hansard.inspect.find import ID_CHARACTERS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Question(msgspec.Struct, kw_only=True):
    """What an agent asks. `until` is from when on no answer counts; `by` who answered."""

    approval: str
    standing: ApprovalStatus
    run: str
    agent: str
    role: str
    step: int
    tool: str
    arguments: msgspec.Raw
    rule: str
    timeout_ms: int
    asked_at: str
    until: str
    answered_at: str | None
    by: str | None
    because: str | None


class Approvals(Answer):
    """The questions that were asked for, of `all` that there are."""

    questions: list[Question]
    all: int

    def lines(self) -> Iterable[Question]:
        """Each question."""
        return self.questions


async def list_approvals(workspace: Workspace, *, every: bool) -> Approvals:
    """What waits for an answer, and with `every` all that was asked."""
    found = await asked.listed(workspace)
    given = [each for each in found if every or each.standing is ApprovalStatus.PENDING]
    return Approvals(questions=[question(each) for each in given], all=len(found))


def question(each: ListedApproval) -> Question:
    """A question as it stands."""
    it = each.approval
    return Question(
        approval=it.id,
        standing=each.standing,
        run=each.run,
        agent=it.asked.agent,
        role=it.asked.role,
        step=it.asked.step,
        tool=it.asked.tool,
        arguments=it.asked.arguments,
        rule=it.asked.rule,
        timeout_ms=it.asked.timeout_ms,
        asked_at=_time(it.asked_at),
        until=_time(it.expires),
        answered_at=None if it.answered_at is None else _time(it.answered_at),
        by=it.by or None,
        because=it.because or None,
    )


def _time(stamp: int) -> str:
    """A log time in ns since 1970 as ISO 8601, whole microseconds."""
    return (_EPOCH + timedelta(microseconds=stamp // 1_000)).isoformat().replace("+00:00", "Z")


async def find_approval(workspace: Workspace, text: str) -> ListedApproval:
    """A question by its id, or by a prefix that no other has: for that all questions are read.

    Raises NotFound, BadName.
    """
    if len(text) == ID_CHARACTERS:
        return await asked.find(workspace, text)
    listed = await asked.listed(workspace)
    found = [each for each in listed if each.approval.id.startswith(text)]
    same = [each for each in found if each.approval.id == text]
    if not text or not found:
        raise NotFound(f"approval {text!r:.80}", "see 'hansard approvals --all'")
    if len(same or found) > 1:
        raise BadName("approval", text, f"{len(found)} begin so: give more of it")
    return (same or found)[0]
