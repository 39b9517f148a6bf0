"""Command `hansard approvals`: list and answer pending approvals of calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from hansard.agents.policy import approvals as requests
from hansard.agents.policy.approvals import ListedApproval
from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import Commands, Json, argument, do, flag, option
from hansard.cli.opening import reading
from hansard.cli.output import Column, Hint, Part
from hansard.domain.approval import ApprovalStatus
from hansard.inspect.roles import Approvals, Question, find_approval, list_approvals, question
from hansard.inspect.trace import recorded

app = Commands(
    name="approvals",
    help="List calls that wait for approval; grant or deny them.",
    invoke_without_command=True,
)

Approval = Annotated[str, argument("ID", "An approval's id, or a unique prefix.")]
By = Annotated[str, option("Who answers; not the requesting agent.", "NAME")]
Reason = Annotated[str, option("Reason, for the record and the agent.", "TEXT")]

_STYLES = {
    ApprovalStatus.PENDING: "bold yellow",
    ApprovalStatus.GRANTED: "green",
    ApprovalStatus.DENIED: "red",
    ApprovalStatus.EXPIRED: "yellow",
}

COLUMNS = (
    Column("approval", whole=True),
    Column("standing", whole=True, styles=_STYLES),
    Column("run", whole=True),
    Column("agent"),
    Column("tool", whole=True),
    Column("arguments", lambda each: output.arguments_preview(recorded(each.arguments))),
    Column("until", whole=True),
    Column("answered by", lambda each: each.by),
    Column("because"),
)


@app.callback()
def approvals(
    context: typer.Context,
    every: Annotated[bool, flag("--all", "Also answered and expired approvals.")] = False,
    json: Json = False,
) -> None:
    """List calls that wait for approval, in all runs; grant or deny them."""
    if context.invoked_subcommand is None:
        do(lambda: _list_approvals(every=every), json=json)


async def _list_approvals(*, every: bool) -> None:
    async with reading() as workspace:
        found = await list_approvals(workspace, every=every)
    output.show(found, _render)


@app.command()
async def grant(approval: Approval, reason: Reason = "", by: By = OS_USER) -> None:
    """Let a call run, once; the waiting agent continues."""
    await _answer(approval, reason, by, granted=True)


@app.command()
async def deny(approval: Approval, reason: Reason = "", by: By = OS_USER) -> None:
    """Refuse a call. The waiting agent gets the refusal and its reason."""
    await _answer(approval, reason, by, granted=False)


async def _answer(approval: str, reason: str, by: str, *, granted: bool) -> None:
    """Grant or deny a call. Raises NotFound, Refused, RoleRefused, BadName."""
    async with reading() as workspace:
        found = await find_approval(workspace, approval)
        current = await requests.answer(
            workspace, found.approval.id, granted=granted, by=by, reason=reason
        )
    value = question(ListedApproval(found.run, current, current.given))
    what = f"{value.tool} of {value.agent} in run {value.run}"
    output.show(value, f"approval {value.approval} is {value.standing.value}: {what}")


def _render(found: Approvals) -> list[Part]:
    if not found.questions:
        more = "; 'hansard approvals --all' lists answered ones" if found.all else ""
        return [f"no call waits for approval{more}"]
    waits = any(each.standing is ApprovalStatus.PENDING for each in found.questions)
    how = Hint("answer with 'hansard approvals grant ID' or 'deny ID --reason TEXT'")
    shown = [part for each in found.questions for part in _diff(each)]
    return [output.listing(COLUMNS, found.questions), *shown, *([how] if waits else [])]


def _diff(request: Question) -> Iterator[Part]:
    """Yield the diff of the files that a pending approval would change."""
    if request.standing is not ApprovalStatus.PENDING:
        return
    given = recorded(request.arguments)
    diff = given.get("diff") if isinstance(given, dict) else None
    if isinstance(diff, str):
        yield ""
        yield f"{request.approval} changes {given.get('space', 'memory')}:"
        yield diff
