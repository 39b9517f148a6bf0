"""Command `hansard prompt`: versions of prompts, their aliases, and their results."""

from __future__ import annotations

import csv
import runpy
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hansard.agents.artifacts import prompts as store
from hansard.agents.artifacts.prompts import Draft
from hansard.agents.artifacts.versions import ArtifactChange
from hansard.agents.steps.tools import source_digest
from hansard.bus.clock import OS_USER
from hansard.bus.errors import NotFound
from hansard.bus.file_lock import read_text
from hansard.cli import output
from hansard.cli.common import By, Commands, Reason, argument, option
from hansard.cli.derived import derive, recording
from hansard.cli.experiment import table
from hansard.cli.opening import answering, beginning, named, reading, settings
from hansard.cli.output import Hint, Part
from hansard.client.connect import opened
from hansard.client.record import AsyncRecord
from hansard.domain import ids
from hansard.domain import prompt as prompts
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import canonical, digest
from hansard.ext.optimize import loop
from hansard.ext.optimize.loop import BUDGET, Comparison, Optimized, OptimizeOptions, continues
from hansard.inspect import experiments as inspected
from hansard.inspect.comparison_parts import interval, number
from hansard.inspect.experiments import PromptDiff, PromptLog, PromptReport, ShownPrompt
from hansard.operations.prompts import PRODUCTION, Prompts

prompt = Commands()

Name = Annotated[str, argument("NAME", "The prompt's name.")]
Reference = Annotated[str, argument("NAME@VERSION", "By number or alias: rag@3, rag@production.")]
Experiment = Annotated[
    str | None, option("Experiment that judges [the newest of both versions].", "NAME")
]

LIST = output.columns(
    "prompt! versions> retired> aliases changed=changed_at!",
    retired=lambda each: each.retired or "",
    aliases=lambda each: _aliases(each.aliases),
)
VERSIONS = output.columns(
    "version>! of=parents added=timestamp! by aliases retired runs> means claimed "
    "feedback=feedback_applied because",
    retired=lambda each: "" if each.retired is None else each.retired or "yes",
    runs=lambda each: each.runs or "",
    means=lambda each: _numbers(each.metrics),
    claimed=lambda each: _numbers(each.claimed),
)
MOVES = output.columns(
    "moved=at! alias! from> to> by experiment because",
    from_=lambda each: each.before or "",
    to=lambda each: each.version or "(taken away)",
)
MEASURES = output.columns(
    "prompt! version>! runs> measure=metric! n> value> interval!",
    value=lambda each: number(each.value),
    interval=lambda each: interval(each.low, each.high),
)


def _aliases(aliases: dict[str, int]) -> str:
    return ", ".join(f"{alias} {version}" for alias, version in aliases.items())


def _numbers(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


@prompt.command("list")
async def list_() -> None:
    """List the prompts, and what their aliases name."""
    async with answering() as reader:
        listing = inspected.list_prompts(reader)
    output.show(listing, [output.listing(LIST, listing, nothing="no prompt yet")])


@prompt.command()
async def show(reference: Reference) -> None:
    """Show a version: its text, its parents and its feedback."""
    async with reading() as workspace:
        version = await inspected.show(workspace, reference)
    output.show(version, _render_version(version))


def _render_version(version: ShownPrompt) -> Iterator[Part]:
    made = version.prompt
    yield output.pairs(
        [
            ("prompt", made.name),
            ("version", f"{made.version} of {version.newest}"),
            ("made of", ", ".join(map(str, made.parents))),
            ("feedback", ", ".join(made.feedback_applied)),
            ("because", made.because),
            ("model", made.model),
            ("parameters", output.arguments_preview(made.parameters) if made.parameters else ""),
            ("variables", ", ".join(version.variables)),
            ("aliases", _aliases(version.aliases)),
            ("retired", (made.retired or "yes") if made.retired is not None else ""),
            ("label", str(made.label) if made.label is not None else ""),
            ("feedback", "; ".join(_feedback_line(each) for each in version.feedback)),
        ]
    )
    yield ""
    yield made.text or "(its source does not tell the text)"


def _feedback_line(each: dict[str, Any]) -> str:
    rating = f" ({each['rating']:g})" if each["rating"] is not None else ""
    return f"{each['text']}{rating}".strip()


def _render_log(log: PromptLog) -> Iterator[Part]:
    yield output.listing(VERSIONS, log.versions)
    if log.moves:
        yield ""
        yield output.listing(MOVES, log.moves)


@prompt.command("diff")
async def diff_(
    before: Annotated[str, argument("NAME@VERSION", "A version; alone: with its parent.")],
    after: Annotated[str | None, argument("[NAME@VERSION]", "Version to compare with.")] = None,
) -> None:
    """Compare two versions, or a version and its parent."""
    async with reading() as workspace:
        difference = await inspected.diff(workspace, before, after)
    output.show(difference, _render_diff(difference))


def _render_diff(difference: PromptDiff) -> Iterator[Part]:
    yield from difference.diff
    for name, (old, new) in difference.fields.items():
        yield f"{name}: {old!r} -> {new!r}"
    if not difference.diff and not difference.fields:
        yield f"{difference.before} and {difference.after} are equal"


@prompt.command()
async def add(
    name: Name,
    file: Annotated[Path, argument("FILE", "File with the text; - for stdin.")],
    model: Annotated[str, option("Intended model.", "NAME")] = "",
    parameters: Annotated[
        str, option("Further parameters of the model, as a JSON object.", "JSON")
    ] = "",
    parent: Annotated[list[int] | None, option("Parent; twice for a merge.", "VERSION")] = None,
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Add a version to a prompt; an equal text adds none."""
    draft = Draft(
        text=_text(file),
        model=model,
        parameters=_object("--parameters", parameters),
        parents=tuple(parent or ()),
        because=reason,
    )
    async with beginning() as workspace:
        added = await store.add(workspace, name, draft, by=by)
    text = f"{name}@{added.version}" + ("" if added.is_new else " is equal already")
    output.show(added, text)


def _text(file: Path) -> str:
    """Read a prompt's text from a file, without a trailing line break. Raises BadValue."""
    path = Path("/dev/stdin") if str(file) == "-" else file
    remedy = "give UTF-8 text; pass long parts as variables, or split the prompt"
    text = read_text(path, prompts.TEXT_BYTES_MAX, remedy).removesuffix("\n")
    if not text.strip():
        raise BadValue(f"{file}", "it holds no text", "give the prompt's text")
    return text


def _object(where: str, text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.DecodeError as error:
        raise BadValue(where, str(error), 'give an object: {"temperature": 0}') from error


@prompt.command()
async def evolve(
    reference: Reference,
    feedback_: Annotated[
        list[str], argument("FEEDBACK...", f"To answer: {', '.join(store.RULES)}.")
    ],
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Add a version that answers feedback, by rules on its text."""
    async with recording(begins=False) as record:
        before = await record.prompts.get(reference)
        made = await record.prompts.evolve(reference, feedback_, reason=reason, by=by)
    is_new = made.version != before.version
    words = made.reference if is_new else f"{made.reference} is unchanged"
    added = ArtifactChange(kind=prompts.KIND, name=made.name, version=made.version, is_new=is_new)
    output.show(added, words)


def _render_report(evidence: PromptReport) -> Iterator[Part]:
    yield output.listing(MEASURES, evidence.rows) if evidence.rows else "no prompt yet"
    yield ""
    yield f"intervals at {1 - evidence.alpha:.0%}, as of position {evidence.position}"


async def _named(record: AsyncRecord, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prompt and the version that a command's reference or alias names."""
    name, which = prompts.split(arguments["reference"])
    if arguments.get("take_away"):
        return {"prompt": name}
    which = arguments.get("alias", which)
    made = await record.prompts.get(f"{name}@{which}" if which else name)
    is_same = "alias" in arguments and arguments["result"] is None and not arguments.get("reason")
    return {"prompt": name, "version": made.version, "unchanged": is_same}


derive(
    prompt,
    Prompts,
    "log alias give_feedback retire report promote",
    views={
        "log": _render_log,
        "report": _render_report,
        "alias": "{alias} names {prompt}@{version}",
        "alias take_away": "{alias} names no version of {prompt}",
        "give_feedback": "feedback on {prompt}@{result}",
        "retire": "{prompt}@{version} is retired",
        "promote": "{alias} names {prompt}@{version}",
    },
    facts=_named,
)


@prompt.command()
def optimize(
    reference: Reference,
    file: Annotated[Path, argument("FILE.py", "Defines tasks, evaluate and propose.")],
    alias: Annotated[str, option("Alias to move.", "NAME")] = PRODUCTION,
    budget: Annotated[int, option("Most evaluations in total.", "N")] = BUDGET,
    holdout: Annotated[float, option("Share of the tasks held out for judging.", "SHARE")] = 0.5,
    metric: Annotated[str, option("Metric of the scores.", "NAME")] = "score",
    by: By = "optimizer",
) -> None:
    """Search for a better version, judge it, and move the alias.

    The search and the judgement use different tasks.
    """
    names = _program(file)
    options: OptimizeOptions = {"alias": alias, "budget": budget, "holdout": holdout}
    options |= {"metric": metric, "by": by}
    if "search" in names:
        options["search"] = names["search"]
    with opened(settings()) as record:
        optimization = loop.optimize(
            record,
            reference,
            names["tasks"],
            evaluate=names["evaluate"],
            propose=names["propose"],
            **options,
        )
    output.show(optimization, _render_optimization(optimization))


def _program(file: Path) -> dict[str, Any]:
    """Return the names that a Python file defines. Raises BadValue."""
    if not file.is_file():
        raise BadValue("file", f"there is no {file}", "give a file of Python")
    names = runpy.run_path(str(file))
    for name in ("tasks", "evaluate", "propose"):
        if name not in names:
            raise BadValue(f"{file}", f"it has no {name}", "see docs/prompts.md")
    return names


def _render_optimization(report: Optimized) -> Iterator[Part]:
    yield output.pairs(
        [
            ("prompt", report.prompt),
            ("run", report.run),
            ("from version", report.base),
            ("best", report.best),
            ("tried", ", ".join(f"{each} ({mean:.4g})" for each, mean in report.versions.items())),
            ("experiment", report.experiment),
            ("verdict", report.evidence.verdict if report.evidence else "nothing better was found"),
            ("promoted", "yes" if report.promoted else "no"),
            ("evaluations", report.evaluations),
            (
                "held out",
                f"{len(report.held_out)} of "
                + counted(len(report.held_out) + len(report.searched), "task"),
            ),
        ]
    )


@prompt.command("compare")
def compare_(
    baseline: Annotated[str, argument("A", "A text file, or NAME@VERSION.")],
    candidate: Annotated[str, argument("B", "Likewise; compared with A.")],
    cases: Annotated[Path, option("A .csv or .jsonl file, one case per row.", "FILE")],
    evaluate: Annotated[str, option("Scores (text, case).", "MODULE:FUNCTION")],
    name: Annotated[str | None, option("The prompt of text files [A's file name].", "NAME")] = None,
    column: Annotated[
        str | None, option("Column of case names [id, if there is one].", "COLUMN", "--id")
    ] = None,
    metric: Annotated[str, option("Metric of the scores.", "NAME")] = "score",
    by: By = OS_USER,
) -> None:
    """Compare two prompts over a table of cases.

    Each case is evaluated under both prompts, as a pair of runs of an experiment. Higher scores are
    better. If run again, only cases without a score are evaluated, unless the function's source
    changed.
    """
    rows = _cases(cases, column)
    function = named(evaluate, "--evaluate")
    with opened(settings()) as record:
        prompt = name or (baseline if not Path(baseline).is_file() else Path(baseline).stem)
        prompt = prompts.split(prompt)[0]
        first, second = (_version(record, each, prompt, by) for each in (baseline, candidate))
        if first == second:
            fact = f"{baseline} and {candidate} are both {first}"
            raise BadValue("compare", fact, "give two different texts")
        source = source_digest(function)
        key = digest(canonical([first, second, rows, evaluate, metric, source]))
        experiment = f"{first} or {second} on {cases.stem} {key[:8]}"
        comparison = Comparison(
            experiment=experiment,
            question=f"Is {second} better than {first}?",
            arms={first: first, second: second},
            tasks=rows,
            evaluate=function,
            metric=metric,
            workflow="compare prompts",
            by=by,
            key=key,
        )
        with continues():
            known = comparison.run(record)
            outcome = record.experiments.compare(experiment, baseline=first)
    run = f"{counted(2 * len(rows) - known, 'trial')} run, {known:,} on record before"
    if known:
        run += f", scored by the same source of {evaluate.partition(':')[2]}"
    chosen = [
        f"{baseline} is {first}, the baseline; {candidate} is {second}",
        f"{counted(len(rows), 'case')} of {cases.name}, evaluated by {evaluate}: {run}",
        f"for other questions: hansard compare {shlex.quote(experiment)}",
    ]
    output.show(outcome, [*map(Hint, chosen), *table(outcome.report)])


def _cases(file: Path, column: str | None) -> dict[str, Any]:
    """Read the rows of a table, by their names. Raises BadValue."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened_file:
            if file.suffix == ".csv":
                rows: list[Any] = list(csv.DictReader(opened_file, strict=True))
            else:
                lines = msgspec.json.Decoder(dict[str, Any])
                rows = lines.decode_lines(opened_file.read())
    except (OSError, UnicodeDecodeError, csv.Error, msgspec.DecodeError) as error:
        raise BadValue(
            f"{file}", f"{error}", "give a .csv table with a header, or .jsonl"
        ) from error
    cases: dict[str, Any] = {}
    for place, row in enumerate(rows, 1):
        if column is not None and column not in row:
            remedy = f"name one of its columns: {', '.join(map(str, row)):.200}"
            raise BadValue("--id", f"row {place} of {file} has no column {column!r:.80}", remedy)
        case = str(row.get(column or "id") or f"row {place}")
        if case in cases:
            remedy = "give each case once, or another column (--id)"
            raise BadValue(f"{file}", f"row {place} is the second case {case!r:.80}", remedy)
        if file.suffix == ".csv" and (None in row or None in row.values()):
            fact = f"row {place} has not as many fields as the header"
            raise BadValue(f"{file}", fact, "give each row a field for each column")
        cases[ids.name("case", case)] = row
    if not cases:
        raise BadValue(f"{file}", "it has no row", "give at least one case")
    return cases


def _version(record: Any, source: str, prompt: str, by: str) -> str:
    """Return the version that a file or a reference names; a file's text is added if it is new."""
    if Path(source).is_file():
        return f"{prompt}@{record.prompts.add(prompt, _text(Path(source)), by=by)}"
    try:
        return str(record.prompts.get(source).reference)
    except NotFound as error:
        fact = f"{source!r:.80} is no file in {Path.cwd()}, and no prompt of that name exists"
        raise BadValue("compare", fact, "give a text file, or NAME@VERSION") from error


@prompt.command("import")
async def import_(
    file: Annotated[
        Path, argument("PATH", "A GEPA run folder, .json (GEPA, DSPy), .dot or .jsonl.")
    ],
    name: Annotated[str | None, option("The prompt; else the file's name.", "NAME")] = None,
    by: By = "import",
) -> None:
    """Import versions with their origins.

    Each component or predictor becomes a prompt NAME/PART. The alias 'best' names the best
    candidate. Importing again adds nothing.
    """
    source = store.read_source(file)
    prompt = prompts.check_name(name if name is not None else file.absolute().stem)
    async with beginning() as workspace:
        lineages = await store.import_source(workspace, prompt, source, by=by)
    imported = [
        {
            "prompt": each.prompt,
            "source": file.name,
            "versions": len(set(each.versions.values())),
            "added": each.added,
            "edges": each.edges,
            "merges": each.merges,
            "best": each.best,
            "notes": source.notes,
        }
        for each in lineages
    ]
    output.show(imported, _render_import(lineages, source.notes))


def _render_import(lineages: list[store.Lineage], notes: list[str]) -> Iterator[Part]:
    for each in lineages:
        best = f", {store.BEST} is version {each.best}" if each.best is not None else ""
        versions = len(set(each.versions.values()))
        yield f"{counted(versions, 'version')} of {each.prompt}, {each.added:,} new{best}"
    for note in notes:
        yield Hint(note)
