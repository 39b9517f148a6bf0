"""Commands `hansard audit`, `trail` and `why`: anomalies, a run's events, one decision."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hansard.cli import output
from hansard.cli.common import Commands, Run, argument, flag, option
from hansard.cli.opening import answering, process_of
from hansard.cli.output import Column, Hint, Part
from hansard.domain.choices import counted, listed
from hansard.inspect import audit as audit_reads
from hansard.inspect.answer import find_run_in, plain_text
from hansard.inspect.audit import (
    Audit,
    AuditFilter,
    CheckedTopic,
    DecisionFacts,
    Decisions,
    Group,
    Trail,
)
from hansard.inspect.comparison_parts import Heading, Paragraph, Table
from hansard.web.pages import decision_page

app = Commands()

SHOWN_MAX = 3
"""Most findings of one kind and experiment shown; --all and --json give all."""

COLOURS = {"high": "bold red", "medium": "yellow", "low": "dim"}


@app.command()
async def audit(
    run: Annotated[str | None, argument("[RUN]", "Only this run; 'last' is the newest.")] = None,
    flip: Annotated[float, option("Distance by which thresholds are moved.", "X", min=0)] = 0.01,
    kind: Annotated[
        list[str] | None, option("Only this topic or kind of finding; may be repeated.", "NAME")
    ] = None,
    experiment: Annotated[str | None, option("Only findings in this experiment.", "NAME")] = None,
    severity: Annotated[
        str | None, option("Only this severity or worse: high, medium or low.", "NAME")
    ] = None,
    every: Annotated[
        bool, flag("--all", "All findings, not three of a kind and experiment.")
    ] = False,
) -> int:
    """Find anomalies in the record.

    Checks calls, costs, decisions, labels and experiments (docs/audit.md). Findings are listed by
    kind and experiment, the most severe first; then the checks without a finding, and those that
    could not be made. Exits with 1 if anything is found.
    """
    only = AuditFilter(kinds=tuple(kind or ()), experiment=experiment, severity=severity)
    async with answering() as reader:
        found_in = find_run_in(reader, run) if run is not None else None
        waiting = audit_reads.waiting(reader, found_in)
        processes = {(each.run, each.agent): process_of(each) for each in waiting}
        made = audit_reads.audit(reader, found_in, flip, only, processes)
    output.show(made, _render_findings(made, None if every else SHOWN_MAX))
    return 1 if made.found else 0


@app.command()
async def trail(run: Run) -> None:
    """List a run's main events, one line each, in words."""
    async with answering() as reader:
        made = audit_reads.trail(reader, find_run_in(reader, run))
    output.show(made, _events(made))


def _render_findings(made: Audit, most: int | None) -> Iterator[Part]:
    for group in made.groups():
        yield from _group(group, made.summary.run, most)
        yield ""
    yield from _render_checks(made.summary.looked)
    yield made.conclusion()
    if made.summary.open_runs:
        count = made.summary.open_runs
        verb, them = ("is", "it") if count == 1 else ("are", "them")
        yield Hint(
            f"{counted(count, 'run')} {verb} open, which is no finding: at work, killed or not "
            f"continued; 'hansard runs --status open' lists {them}"
        )


def _group(group: Group, run: str | None, most: int | None) -> Iterator[Part]:
    """Yield the findings of one kind in one experiment; only the first `most` where it is given."""
    shown = group.found[:most]
    of = f" in {group.experiment}" if group.experiment else ""
    folded = f"; {len(shown):,} shown, --all shows all" if len(shown) < len(group.found) else ""
    title = output.text(group.severity, COLOURS[group.severity])
    title.append(f"  {group.topic}{of}: {len(group.found):,} of this kind{folded}")
    yield title
    yield plain_text(f"  {group.question}")
    for row in shown:
        where = f" [{row['address']}]" if row["address"] else ""
        of_run = f"run {row['run']}: " if run is None and row["run"] is not None else ""
        yield plain_text(f"  {row['kind']}: {of_run}{row['fact']}{where}")
        yield plain_text(f"      {row['link']}")
        if row["next"] != row["link"]:
            yield plain_text(f"      next: {row['next']}")


def _render_checks(looked: list[CheckedTopic]) -> Iterator[Part]:
    """Yield the checks without a finding, and the checks that were not made, with the reason."""
    silent = [each for each in looked if each.why_not is None and not each.findings]
    if silent:
        yield "checked, nothing found:"
    for topic in dict.fromkeys(each.topic for each in silent):
        what = listed(_amount(each) for each in silent if each.topic == topic)
        yield plain_text(f"  {topic}: {what}")
    blind = [each for each in looked if each.why_not is not None]
    if blind:
        yield "not checked:"
    reasons = dict.fromkeys((each.experiment, each.why_not) for each in blind)
    for experiment, why_not in reasons:
        topics = listed(
            e.topic for e in blind if (e.experiment, e.why_not) == (experiment, why_not)
        )
        of = f" of {experiment}" if experiment else ""
        yield plain_text(f"  {topics}{of}: {why_not}")
    if looked:
        yield ""


def _amount(looked: CheckedTopic) -> str:
    of = f" of {looked.experiment}" if looked.experiment else ""
    noun = _singular(looked.what) if looked.looked == 1 else looked.what
    return f"{looked.looked:,} {noun}{of}"


def _singular(nouns: str) -> str:
    """Return `calls with effects` as `call with effects`: the nouns before a preposition."""
    head, *rest = re.split(r"(?= (?:with|by|in|of) )", nouns, maxsplit=1)
    head = re.sub(r"\B(?:(?<=alias)e)?s\b", "", head)
    return " or ".join(head.split(" and ")) + "".join(rest)


def _call(row: dict[str, Any]) -> str:
    if row["step"] is None:
        return ""
    tool = f" {row['tool']}" if row["tool"] is not None else ""
    return output.cut(f"#{row['step']}{tool}")


EVENTS = output.columns(
    "at=address! time who~ what call detail",
    time=lambda row: f"{row['at'][11:23]}Z",
    call=_call,
    detail=lambda row: output.cut(row["detail"] or "", 120),
)


def _events(made: Trail) -> Iterator[Part]:
    yield output.listing(EVENTS, made.events)
    yield ""
    value = made.summary
    began = f" from {made.events[0]['at'][:10]} on" if made.events else ""
    count = counted(value.events, "event")
    yield f"{count} of run {value.run}{began}, as of position {value.position}"


CUT_CHARACTERS = 120
"""Most characters of a text in a decision's tables."""

SHORT = dict.fromkeys(("question", "selected"), output.PREVIEW_CHARACTERS)
"""Columns of decisions that are cut to a preview, with its characters."""


class Page(msgspec.Struct, tag_field="kind", tag="page", kw_only=True):
    """Path of a decision's page."""

    decision: str
    path: str
    bytes: int
    position: int


@app.command()
async def why(
    decision: Annotated[
        str,
        argument(
            "DECISION",
            "An event's id or a unique prefix, its address (position.index), or a run: its only "
            "decision, or the list of its decisions.",
        ),
    ],
    html: Annotated[
        Path | None, option("Write one HTML file instead; '-' is stdout.", "FILE")
    ] = None,
    whole: Annotated[
        bool, flag("--all", "List everything in full, as --json and --html do.")
    ] = False,
) -> None:
    """Show why a decision was made.

    Shows the choice, its inputs and alternatives, the agent's context, the gate's verdict, the
    versions of prompts, models and tools, the principal that acted, and the consequences.
    """
    output.check_one_answer(html)
    async with answering() as answers:
        explanation = audit_reads.why(answers, decision)
        if isinstance(explanation, Decisions) and len(explanation.rows) == 1:
            explanation = audit_reads.why(answers, explanation.rows[0]["decision"])
    if isinstance(explanation, Decisions):
        output.show(explanation, _list_decisions(explanation))
    elif html is None:
        output.show(explanation, _render_decision(explanation, whole=whole))
    else:
        data = decision_page(audit_reads.decision_text(explanation), explanation.position)
        report = Page(
            decision=explanation.decision,
            path=str(html),
            bytes=len(data),
            position=explanation.position,
        )
        output.page(data, html, report)


def _list_decisions(decisions: Decisions) -> Iterator[Part]:
    for block in audit_reads.blocks(decisions):
        match block:
            case Table():
                cuts = [
                    output.PREVIEW_CHARACTERS if name in SHORT else None for name in block.columns
                ]
                yield _grid(block, cuts, whole=0)
                yield ""
                yield Hint(f"one of them: hansard why {decisions.rows[0]['address']}")
            case Heading() | Paragraph():
                yield block.text


def _render_decision(facts: DecisionFacts, *, whole: bool) -> Iterator[Part]:
    after_table = False
    for block in audit_reads.blocks(facts, whole=whole):
        match block:
            case Heading():
                yield output.styled(block.text, "bold")
            case Paragraph():
                yield from [""] if after_table else []
                yield block.text
            case Table():
                after_table = True
                more = [f"{block.left_out}; --all lists them"] if block.left_out else []
                columns = len(block.columns)
                yield ""
                yield block.title
                yield from more if block.left_out_before else []
                yield _grid(block, [CUT_CHARACTERS] * columns, whole=columns - 1)
                yield from [] if block.left_out_before else more
    value = audit_reads.decision_text(facts)
    at = value.address.partition(".")[0]
    yield Hint(f"the run at that point: hansard run show {value.run} --at {at}")


def _grid(block: Table, cuts: Sequence[int | None], whole: int) -> output.Lines:
    """Render a block with texts cut to a width by column; one column is never cut to the line."""
    columns = [
        Column(name.removeprefix(">"), right=name.startswith(">"), whole=place == whole)
        for place, name in enumerate(block.columns)
    ]
    return output.table(columns, [list(map(output.cut, row, cuts)) for row in block.rows])
