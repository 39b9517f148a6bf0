"""Commands `hansard reuse` and `savings`: answers from the record, and their savings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import By, Commands, Reason, argument, option, within
from hansard.cli.opening import answering, reading
from hansard.cli.output import Column, Part
from hansard.domain.choices import counted
from hansard.domain.reuse import AnswersInvalidated
from hansard.inspect import savings as inspected
from hansard.inspect.find import find_run_in
from hansard.inspect.savings import (
    SAVINGS,
    OfferedAnswers,
    ReusedAnswers,
    SavingsAnswer,
    SavingsQuery,
    added,
    savings_of,
)

app = Commands()

Tool = Annotated[str | None, option("Only of this tool.", "NAME")]
Run = Annotated[str | None, option("Only of this run; 'last' works.", "RUN")]

LIST = (
    Column("key", whole=True),
    Column("tool"),
    Column("workflow", lambda row: row.workflow or "any"),
    Column("of", lambda row: f"{row.run} {row.agent}#{row.step}"),
    Column("offered", lambda row: f"{row.offered_at:%Y-%m-%d %H:%M:%S}"),
    Column("ran", lambda row: str(row.times), right=True),
    Column("stale", lambda row: f"{row.stale_since:%Y-%m-%d %H:%M:%S}" if row.stale_since else ""),
)
USED = (
    Column("call", lambda row: f"{row.run} {row.agent}#{row.step}"),
    Column("tool"),
    Column("answer of", lambda row: f"{row.from_run} {row.from_agent}#{row.from_step}"),
    Column("age", lambda row: _amount_text(row.age_s, "{:,.1f} s"), right=True),
    Column("seconds", lambda row: _amount_text(row.seconds_saved, "{:,.2f}"), right=True),
    Column("USD", lambda row: _amount_text(row.cost_saved, "{:,.4f}"), right=True),
)


@app.command("list")
async def list_(tool: Tool = None, run: Run = None) -> None:
    """List answers that later runs may reuse, newest of each key."""
    async with answering() as reader:
        of = find_run_in(reader, run) if run is not None else None
        found = inspected.offered(reader, tool, of)
    output.show(found, _render_offered)


@app.command()
async def used(tool: Tool = None, run: Run = None) -> None:
    """List calls answered from earlier runs, and what that saved."""
    async with answering() as reader:
        of = find_run_in(reader, run) if run is not None else None
        found = inspected.reused(reader, tool, of)
    output.show(found, lambda found: _render_reused(found, within(tool=tool, run=of)))


@app.command()
async def invalidate(
    tool: Annotated[str, option("Answers of this tool.", "NAME")] = "",
    run: Annotated[str, option("Answers of this run, by its id.", "RUN")] = "",
    key: Annotated[str, option("Answers of this key.", "KEY")] = "",
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Declare answers stale, recorded ones and those of open calls."""
    from hansard.agents.steps import reused as reusing

    report = AnswersInvalidated(tool=tool, run=run, key=key, because=reason)
    async with reading() as workspace:
        await reusing.invalidate(workspace, report, by=by)
    of = f"tool {tool}" if tool else f"run {run}" if run else f"key {key}"
    text = f"the answers of {of} until now are stale"
    output.show({"tool": tool, "run": run, "key": key}, text)


def _amount_text(amount: float | None, form: str) -> str:
    return "unknown" if amount is None else form.format(amount)


def _render_offered(found: OfferedAnswers) -> Iterator[Part]:
    if found.answers:
        yield output.listing(LIST, found.answers)
    yield f"{counted(len(found.answers), 'answer')}, as of position {found.position}"


def _render_reused(found: ReusedAnswers, question: str) -> Iterator[Part]:
    if found.reused:
        yield output.listing(USED, found.reused)
    yield f"{found.line(question)}, as of position {found.position}"


COLUMNS = (
    Column("of", whole=True),
    Column("sessions", right=True),
    Column("unknown", lambda row: str(row.sessions_unknown), right=True),
    Column("calls", lambda row: _amount_text(row.calls, "{:,}"), right=True),
    Column("effects", lambda row: _amount_text(row.effects, "{:,}"), right=True),
    Column("tokens in", lambda row: _amount_text(row.input_tokens, "{:,.0f}"), right=True),
    Column("tokens out", lambda row: _amount_text(row.output_tokens, "{:,.0f}"), right=True),
    Column("USD", lambda row: _amount_text(row.cost, "{:,.4f}"), right=True),
    Column("seconds", lambda row: _amount_text(row.seconds, "{:,.2f}"), right=True),
)


@app.command()
async def savings(
    run: Annotated[str | None, argument("[RUN]", "Only of this run; 'last' is the newest.")] = None,
    workflow: Annotated[str | None, option("Only of runs of this workflow.")] = None,
    month: Annotated[
        str | None, option("Only of sessions that began then, UTC.", "YYYY-MM")
    ] = None,
    by: Annotated[Literal["run", "workflow", "month"], option("Grouping of the sums.")] = "run",
) -> None:
    """Show what resumes and forks answered from the record.

    Calls, tokens, money, seconds, and effects not repeated, as measured when the calls were
    recorded. A value that was not recorded is shown as unknown, never as 0; a session that was
    killed has reported nothing.
    """
    async with answering() as reader:
        of = find_run_in(reader, run) if run is not None else None
        rows = reader.rows(SAVINGS, SavingsQuery(of, workflow, month, by).parameters)
        found = SavingsAnswer(position=reader.position, rows=savings_of(rows))
    request = within(run=of, workflow=workflow, month=month)
    output.show(found, lambda found: _savings(found, request))


def _savings(found: SavingsAnswer, question: str) -> Iterator[Part]:
    if found.rows:
        yield output.listing(COLUMNS, found.rows)
        yield f"in all: {added(found.rows).line()}"
    else:
        yield f"no session{question} went on with a run: nothing was answered from the record"
    yield f"as of position {found.position}"
