"""Commands `hansard audit` and `hansard trail`: anomalies of the record, and a run's events."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from rich.text import Text

from hansard.cli import output
from hansard.cli.common import Commands, Run, argument, flag, option
from hansard.cli.opening import answering
from hansard.cli.output import Column, Part
from hansard.domain.choices import counted, listed
from hansard.inspect import audit as reads
from hansard.inspect.answer import plain_text
from hansard.inspect.audit import Audit, AuditFilter, CheckedTopic, Group, Trail
from hansard.inspect.find import find_run_in

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

    Finds intents without an outcome, refused calls that ran nevertheless, retry storms, decisions
    that were close or rest on untrusted input, costs that do not add up, and models, scores,
    trials, conversations and times of experiments that contradict themselves or each other.
    Findings are listed by kind and experiment, the most severe first, each with the next command to
    run; then the checks without a finding, and the checks that could not be made. Exits with 1 if
    anything is found.
    """
    only = AuditFilter(kinds=tuple(kind or ()), experiment=experiment, severity=severity)
    async with answering() as reader:
        found_in = find_run_in(reader, run) if run is not None else None
        made = reads.audit(reader, found_in, flip, only)
    output.show(made, partial(_render_findings, most=None if every else SHOWN_MAX))
    return 1 if made.found else 0


@app.command()
async def trail(run: Run) -> None:
    """List a run's main events, one line each, in words."""
    async with answering() as reader:
        made = reads.trail(reader, find_run_in(reader, run))
    output.show(made, _events)


def _render_findings(made: Audit, most: int | None) -> Iterator[Part]:
    for group in made.groups():
        yield from _group(group, made.summary.run, most)
        yield ""
    yield from _render_checks(made.summary.looked)
    yield made.conclusion()


def _group(group: Group, run: str | None, most: int | None) -> Iterator[Part]:
    """Yield the findings of one kind in one experiment; only the first `most` where it is given."""
    shown = group.found[:most]
    of = f" in {group.experiment}" if group.experiment else ""
    folded = f"; {len(shown):,} shown, --all shows all" if len(shown) < len(group.found) else ""
    title = Text.assemble((group.severity, COLOURS[group.severity]), f"  {group.topic}")
    title.append(f"{of}: {len(group.found):,} of this kind{folded}")
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
    return f"{looked.looked:,} {looked.what}{of}"


def _call(row: dict[str, Any]) -> str:
    if row["step"] is None:
        return ""
    tool = f" {row['tool']}" if row["tool"] is not None else ""
    return output.cut(f"#{row['step']}{tool}")


EVENTS = (
    Column("at", lambda row: row["address"], whole=True),
    Column("time", lambda row: row["at"][11:23]),
    Column("who", lambda row: row["who"], short=True),
    Column("what", lambda row: row["what"]),
    Column("call", _call),
    Column("detail", lambda row: output.cut(row["detail"] or "", 120)),
)


def _events(made: Trail) -> Iterator[Part]:
    yield output.listing(EVENTS, made.events)
    yield ""
    value = made.summary
    began = f" from {made.events[0]['at'][:10]} on" if made.events else ""
    count = counted(value.events, "event")
    yield f"{count} of run {value.run}{began}, as of position {value.position}"
