"""`hansard approvals`: what agents ask before a call runs, listed and answered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hansard.agents import approvals as asked
from hansard.agents.approvals import Listed
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.commands import _show
from hansard.commands._open import Options, reading
from hansard.domain.approval import Standing
from hansard.domain.errors import BadName

COLUMNS = (
    _show.Column("approval", whole=True),
    _show.Column("standing", whole=True),
    _show.Column("run", whole=True),
    _show.Column("agent"),
    _show.Column("tool", whole=True),
    _show.Column("arguments"),
    _show.Column("until", whole=True),
    _show.Column("answered by"),
    _show.Column("because"),
)

ID_CHARACTERS = 36
"""Of a whole id: a UUID."""

_STYLES = {
    Standing.PENDING: "bold yellow",
    Standing.GRANTED: "green",
    Standing.DENIED: "red",
    Standing.EXPIRED: "yellow",
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def approvals(options: Options, *, every: bool, json: bool) -> int:
    """Print what waits for an answer, and with `every` all that was asked."""
    async with reading(options) as workspace:
        found = await asked.listed(workspace)
    shown = [each for each in found if every or each.standing is Standing.PENDING]
    if json:
        for each in shown:
            _show.emit(_line(each))
        return 0
    if not shown:
        more = "; 'hansard approvals --all' has what was asked" if found else ""
        _show.write(f"nothing waits for an answer{more}")
        return 0
    _show.write(_show.table(COLUMNS, map(_row, shown)))
    if any(each.standing is Standing.PENDING for each in shown):
        _show.hint("answer with 'hansard approvals grant ID' or 'deny ID --because TEXT'")
    return 0


async def answer(
    options: Options, approval: str, because: str, by: str, *, granted: bool, json: bool
) -> int:
    """Grant or deny. Raises NotFound, Refused, RoleRefused, BadName."""
    async with reading(options) as workspace:
        found = await _find(workspace, approval)
        stands = await asked.answer(
            workspace, found.approval.id, granted=granted, by=by, because=because
        )
    told = Listed(found.run, stands, stands.given)
    if json:
        _show.emit(_line(told))
    else:
        what = f"{stands.asked.tool} of {stands.asked.agent} in run {found.run}"
        _show.write(f"approval {stands.id} is {stands.given.value}: {what}")
    return 0


async def _find(workspace: Workspace, text: str) -> Listed:
    """A question by its id, or by a prefix that no other has: for that all questions are read."""
    if len(text) == ID_CHARACTERS:
        return await asked.find(workspace, text)
    found = [each for each in await asked.listed(workspace) if each.approval.id.startswith(text)]
    same = [each for each in found if each.approval.id == text]
    if not text or not found:
        raise NotFound(f"approval {text!r:.80}", "see 'hansard approvals --all'")
    if len(same or found) > 1:
        raise BadName("approval", text, f"{len(found)} begin so: give more of it")
    return (same or found)[0]


def _line(each: Listed) -> dict[str, Any]:
    question = each.approval
    return {
        "approval": question.id,
        "standing": each.standing.value,
        "run": each.run,
        **{
            name: getattr(question.asked, name)
            for name in ("agent", "role", "step", "tool", "arguments", "rule", "timeout_ms")
        },
        "asked_at": _time(question.asked_at),
        "until": _time(question.expires),
        "answered_at": None if question.answered_at is None else _time(question.answered_at),
        "by": question.by or None,
        "because": question.because or None,
    }


def _time(stamp: int) -> str:
    """A log time in ns since 1970 as ISO 8601, whole microseconds."""
    return (_EPOCH + timedelta(microseconds=stamp // 1_000)).isoformat().replace("+00:00", "Z")


def _row(each: Listed) -> list[Any]:
    question = each.approval
    arguments = _show.recorded(question.asked.arguments)
    return [
        _show.cell(question.id),
        _show.cell(each.standing.value, _STYLES[each.standing]),
        _show.cell(each.run),
        _show.cell(question.asked.agent),
        _show.cell(question.asked.tool),
        _show.cell(_show.arguments_preview(arguments)),
        _show.cell(_time(question.expires)),
        _show.cell(question.by),
        _show.cell(question.because),
    ]
