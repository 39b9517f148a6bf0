"""Commands `hansard experiment`, `price` and `compare`: plans, prices of models, comparisons."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from hansard.agents import experiments
from hansard.bus.clock import OS_USER
from hansard.bus.file_lock import read_text
from hansard.cli import output
from hansard.cli.common import By, Commands, OutputFile, Reason, argument, flag, option, pairs
from hansard.cli.opening import answering, beginning, reading
from hansard.cli.output import Column, Hint, Lines, Part
from hansard.domain.choices import counted, moment
from hansard.domain.errors import BadValue
from hansard.domain.experiment import Better, ExperimentRegistered
from hansard.inspect import comparison_parts as reads
from hansard.inspect import experiments as price_reads
from hansard.inspect.answer import plain_text
from hansard.inspect.comparison_parts import (
    SECTIONS,
    Heading,
    Paragraph,
    Plot,
    Table,
    blocks,
    sections,
)
from hansard.inspect.experiments import Experiment, Plan, assigned, list_experiments
from hansard.inspect.experiments import experiment as read_experiment
from hansard.projections.report import Question, Report

app = Commands()
experiment = Commands()
price = Commands()

Name = Annotated[str, argument("NAME", "The experiment's name.")]

FILE_BYTES_MAX = 1024 * 1024
"""Largest plan file, in bytes; no real plan comes near it."""


def from_file(path: Path) -> tuple[str, ExperimentRegistered]:
    """Read an experiment's name and plan from a TOML file. Raises BadValue, BadName."""
    text = read_text(path, FILE_BYTES_MAX, "give a plan as TOML, see docs/experiments.md")
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadValue(
            f"{path}", f"it is not valid TOML: {error}", "see docs/experiments.md"
        ) from error
    if "name" not in fields:
        raise BadValue(f"{path}", "it has no name", 'begin it with name = "..."')
    name = fields.pop("name")
    try:
        return name, experiments.plan(**fields)
    except BadValue as error:
        raise BadValue(f"{path}: {error.where}", error.fact, error.remedy) from error


@experiment.command("register")
async def register(
    file: Annotated[Path, argument("FILE.toml", "Name and plan.")],
    replace: Annotated[
        bool, flag("--replace", "Replace a plan of that name that has no run yet.")
    ] = False,
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Register an experiment: arms, metrics, and how it is judged.

    A plan can be replaced until its first run; both plans stay on record.
    """
    name, plan = from_file(file)
    if reason and not replace:
        raise BadValue("--reason", f"{reason!r:.80}, but nothing is replaced", "give --replace")
    async with beginning() as workspace:
        if replace:
            is_new = await experiments.replace(workspace, name, plan, reason=reason, by=by)
        else:
            is_new = await experiments.register(workspace, name, plan, by=by)
    done = "is registered, in the place of the plan before it" if replace else "is registered"
    text = done if is_new else "is registered already, with this plan"
    fields = {"experiment": name, "registered": is_new, "replaced": is_new and replace}
    output.show(fields, f"experiment {name} {text}")
    for metric in plan.metrics:
        if metric.better is Better.NOT_STATED:
            output.hint(
                f"which direction of {metric.name} is better is not stated: unless the catalogue "
                "knows it, a comparison gives no verdict by it until who asks says so"
            )


@experiment.command()
async def assign(
    name: Name, unit: Annotated[str, argument("UNIT", "A task, a run, a conversation ...")]
) -> None:
    """Print the arm that a unit's hash assigns; record nothing."""
    async with reading() as workspace:
        assignment, is_stopped = await assigned(workspace, name, unit)
    output.show(assignment, assignment.arm)
    if is_stopped:
        output.hint("the experiment is stopped: no run is assigned any more")


LIST = output.columns(
    "experiment! arms metric runs> standing question",
    standing=lambda each: each.standing + ("; stopped" if each.stopped else ""),
)
ARMS = output.columns(
    "arm! share> prompt model parameters runs> tasks> completed> failed> open>",
    share=lambda arm: f"{arm.share:.0%}" if arm.share is not None else "",
    parameters=lambda arm: output.arguments_preview(arm.parameters) if arm.parameters else "",
)
METRICS = output.columns(
    "metric! better smallest> runs_judged=judged_runs>",
    better=lambda each: each.better or ("not stated" if each.number else ""),
)


@experiment.command("list")
async def list_() -> None:
    """List experiments, registered or named by runs."""
    async with answering() as reader:
        listed = list_experiments(reader)
    output.show(listed, [output.listing(LIST, listed, nothing="no experiment yet")])


@experiment.command()
async def show(name: Name) -> None:
    """Show a plan, whether it predates the data, and runs by arm."""
    async with answering() as reader:
        summary = read_experiment(reader, name)
    output.show(summary, _render(summary))


def _render(summary: Experiment) -> Iterator[Part]:
    plan = summary.plan
    rows: list[tuple[str, object]] = [
        ("experiment", plan.experiment),
        ("question", plan.question),
        ("standing", plan.standing),
    ]
    if plan.registered and plan.registered_at is not None:
        rows += [
            ("registered", f"{output.moment(plan.registered_at)} by {plan.registered_by}"),
            ("replaced", _replaced_text(plan)),
            ("stopped", _stop_text(plan)),
            ("unit", plan.unit),
            ("cluster", plan.cluster),
            ("alpha", f"{plan.alpha:g}"),
            ("stop rule", plan.stop),
            ("planned", _plan_text(plan)),
            ("missing", _MISSING.get(plan.missing, plan.missing)),
        ]
    yield output.pairs([*rows, ("runs", plan.runs), ("as of", f"position {plan.position}")])
    yield ""
    yield output.listing(ARMS, summary.arms)
    yield ""
    yield output.listing(METRICS, summary.metrics)


_MISSING = {
    "failure": "counts as failure; left out where less is better or no direction is stated",
    "excluded": "left out",
    "worst-case": "counts as the worst under an arm, and as the best under the baseline",
}


def _stop_text(plan: Plan) -> str:
    if plan.stopped_at is None:
        return ""
    why = f" ({plan.stopped_because})" if plan.stopped_because else ""
    return output.moment(plan.stopped_at) + why


def _replaced_text(plan: Plan) -> str:
    if not plan.replaced:
        return ""
    why = f" ({plan.because})" if plan.because else ""
    return f"{counted(plan.replaced, 'plan')} before it{why}"


def _plan_text(plan: Plan) -> str:
    tasks = counted(plan.planned, "task") if plan.planned is not None else ""
    trials = f"{counted(plan.trials, 'trial')} of each task and arm" if plan.trials else ""
    return ", ".join(part for part in (tasks, trials) if part)


PRICES = output.columns(
    "model! usage! per_million> currency since! source",
    per_million=lambda price: f"{price.amount:,.10g}",
)


def numbers(arguments: list[str]) -> dict[str, float]:
    """Parse `name=number` arguments. Raises BadValue."""
    remedy = "name=number, such as reward=1"
    try:
        items = pairs(arguments, "argument", remedy).items()
        return {name: float(number) for name, number in items}
    except ValueError as error:
        raise BadValue("argument", f"{error}", f"give {remedy}") from error


@price.command("state")
async def state_price(
    model: Annotated[str, argument("MODEL", "Name of the model in the record.")],
    amounts: Annotated[
        list[str], argument("USAGE=AMOUNT...", "Of one million: input_tokens=2.5 output_tokens=10.")
    ],
    since: Annotated[str, option("First time, with zone.", "TIME")],
    currency: Annotated[str, option("ISO 4217 code.", "CODE")] = "USD",
    source: Annotated[str, option("Source of the price.", "TEXT")] = "",
    by: By = OS_USER,
) -> None:
    """State what one million of each usage of a model costs."""
    terms = experiments.Terms(since=moment("--since", since), currency=currency, source=source)
    prices = numbers(amounts)
    async with beginning() as workspace:
        is_new = await experiments.record_price(workspace, model, prices, terms, by=by)
    text = f"the prices of {model} are stated" + ("" if is_new else " so already")
    fields = {"model": model, "amounts": prices, "since": terms.since, "stated": is_new}
    output.show(fields, text)


@price.command("list")
async def list_prices(
    model: Annotated[str | None, argument("[MODEL]", "Only of this model.")] = None,
) -> None:
    """List stated prices, the newest for each day."""
    async with answering() as reader:
        prices = price_reads.list_prices(reader, model)
    output.show(prices, [output.listing(PRICES, prices, nothing="no prices are stated")])


VERDICT_STYLES = {"better": "bold green", "worse": "bold red", "": ""}
"""Colours of verdicts; any other verdict withholds a judgement, and is yellow."""


AllPairs = Annotated[
    bool, flag("--all-pairs", "Compare all pairs of arms, and rank them; Holm over all pairs.")
]
Lower = Annotated[
    list[str] | None, option("Lower is better. Repeatable.", "METRIC", "--lower-is-better")
]
Higher = Annotated[
    list[str] | None, option("Higher is better. Repeatable.", "METRIC", "--higher-is-better")
]
Missing = Annotated[
    Literal["failure", "excluded", "worst-case"] | None,
    option(
        "How a trial without a value counts [the plan's, else failure]. excluded leaves out those"
        " that did not end as completed, too; worst-case counts all of them as the worst under an"
        " arm and as the best under the baseline."
    ),
]
Show = Annotated[
    str | None,
    option(
        f"Only these sections, of {', '.join(SECTIONS)} [all]. --json has all of them.",
        "SECTION,...",
    ),
]


@app.command()
async def compare(
    experiment: Annotated[str, typer.Argument(help="The experiment's name.")],
    metric: Annotated[str | None, option("Judge by this metric instead of the plan's.")] = None,
    baseline: Annotated[str | None, option("Compare with this arm [the first one].", "ARM")] = None,
    all_pairs: AllPairs = False,
    by: Annotated[str | None, option("Also by each value of a label of runs.", "LABEL")] = None,
    lower: Lower = None,
    higher: Higher = None,
    missing: Missing = None,
    show: Show = None,
    form: Annotated[
        Literal["table", "markdown"], option("Output format.", None, "--format", "-f")
    ] = "table",
    file: OutputFile = None,
) -> None:
    """Compare the arms of an experiment.

    The metrics of the plan are judged; without a plan the only scored metric, or that of --metric.
    There is no verdict unless the plan or an option says which direction is better.

    Trials are paired by task. The verdict is 'better', 'worse' or 'cannot tell', or it names the
    obstacle (docs/statistics.md). A trial without a value counts as a failure unless the plan says
    otherwise. The same log and options give the same bytes.
    """
    target = sections(show)
    question = Question(
        experiment=experiment,
        metric=metric,
        baseline=baseline,
        by=by,
        lower=tuple(lower or ()),
        higher=tuple(higher or ()),
        missing=missing,
        all_pairs=all_pairs,
    )
    async with answering() as answers:
        comparison = await asyncio.to_thread(reads.compare, answers, question)
    output.show(comparison, _render_comparison(comparison.report, target, form, file))


def _render_comparison(
    made: Report, show: Collection[str], form: str, file: Path | None
) -> Iterator[Part]:
    if form == "table" and file is None:
        yield from table(made, show)
        return
    output.deliver(
        markdown(made, show) if form == "markdown" else output.plain(table(made, show)), file
    )
    if file not in (None, output.STDOUT):
        yield Hint(f"wrote {file}")


def table(made: Report, show: Collection[str] = SECTIONS) -> Iterator[Part]:
    """Yield a comparison as tables."""
    for place, block in enumerate(blocks(made, show)):
        match block:
            case Heading():
                yield from [""] if place else []
                yield output.styled(block.text, "bold")
            case Paragraph():
                yield from [""] if block.verdict and not block.brief else []
                yield output.styled(block.text, VERDICT_STYLES.get(block.verdict, "bold yellow"))
            case Table():
                yield _grid(block)
            case Plot():
                pass


def _grid(block: Table) -> Lines:
    columns = [
        Column(name.removeprefix(">"), right=name.startswith(">"), whole=True)
        for name in block.columns
    ]
    return output.table(columns, block.rows)


def markdown(made: Report, show: Collection[str]) -> bytes:
    """Render the comparison as Markdown, with tables in GitHub's syntax."""
    lines: list[str] = []
    level = 1
    for block in blocks(made, show):
        match block:
            case Heading():
                lines += [*_gap(lines), "#" * level + " " + _marked(block.text), ""]
                level = 2
            case Paragraph():
                text = _marked(block.text)
                line = f"**{text}**" if block.verdict else text
                lines += [f"* {line}"] if block.brief else [*_gap(lines), line, ""]
            case Table():
                names = [_marked(name.removeprefix(">")) for name in block.columns]
                rules = ["---:" if name.startswith(">") else "---" for name in block.columns]
                rows = [names, rules, *([_marked(each) for each in row] for row in block.rows)]
                lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
            case Plot():
                pass
    return "\n".join(lines).rstrip().encode() + b"\n"


def _gap(lines: list[str]) -> list[str]:
    """Return an empty line unless the lines already end with one."""
    return [""] if lines and lines[-1] else []


_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>|#~&"})


def _marked(text: str) -> str:
    """Escape a text so that Markdown shows it literally."""
    return plain_text(text).translate(_MARKS)
