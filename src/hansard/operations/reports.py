"""The results of `record.experiments.compare`, `record.audit` and `record.why`.

They are the structs that the commands print, with forms for a notebook and a terminal, built from
the same blocks as the commands' tables (`hansard.inspect.comparison_parts`).
"""

from __future__ import annotations

import html
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Self, TypedDict, TypeVar

import msgspec

from hansard.domain.choices import Brief, check_options, counted
from hansard.domain.errors import BadValue, CallerError
from hansard.inspect import comparison_parts
from hansard.inspect.answer import Answer, find_run_in, plain_text
from hansard.inspect.audit import Audit, AuditFilter, DecisionFacts, Decisions, audit, blocks
from hansard.inspect.comparison_parts import Block, Comparison, Heading, Paragraph, Table
from hansard.operations.sql_answer import package
from hansard.projections.report import Question
from hansard.projections.snapshots import Reader

PLOTS = ("intervals", "pairs", "curves")
"""Plots of each metric of a comparison."""

SHOWN_ROWS = 50
"""Rows of one table that a notebook and `rich.print` show."""

SHOWN_CHARACTERS = 200
"""Characters of a text that they show."""

FINDINGS_MAX = 3
"""Findings of one kind in one experiment that they show."""

S = TypeVar("S", bound=Answer)
T = TypeVar("T")


class AuditOptions(TypedDict, total=False):
    """Options of `record.audit`, as of `hansard audit`.

    Attributes:
        flip: How far thresholds of decisions are moved; 0.01 by default.
        kinds: Only these topics or kinds of findings, or one.
        experiment: Only findings in this experiment.
        severity: Only this severity or worse: `high`, `medium` or `low`.
    """

    flip: float
    kinds: str | Sequence[str]
    experiment: str | None
    severity: str | None


class AuditQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of an audit: of a run, or `last` for the newest, or of the whole record."""

    run: str | None = None
    flip: Annotated[float, msgspec.Meta(ge=0)] = 0.01
    kinds: tuple[str, ...] = ()
    experiment: str | None = None
    severity: str | None = None

    @classmethod
    def of(cls, run: str | None, options: Mapping[str, Any]) -> Self:
        """Build it from the arguments of `record.audit`. Raises BadOption, BadValue."""
        check_options("record.audit", options, AuditOptions.__annotations__)
        fields = {"run": run, **options}
        if isinstance(fields.get("kinds"), str):
            fields["kinds"] = (fields["kinds"],)
        return _converted("record.audit", "AuditOptions", fields, cls)

    def answer(self, reader: Reader) -> AuditReport:
        """Run the audit. Raises NotFound, UnknownFilter."""
        run = find_run_in(reader, self.run) if self.run is not None else None
        only = AuditFilter(kinds=self.kinds, experiment=self.experiment, severity=self.severity)
        return shown(audit(reader, run, self.flip, only), AuditReport)


class CompareOptions(TypedDict, total=False):
    """Options of `record.experiments.compare` beside the experiment, as of `hansard compare`.

    Attributes:
        metric: Judge by this metric instead of the plan's.
        baseline: Compare with this arm; by default the first.
        by: Also compare for each value of this label of runs.
        lower_is_better: Metrics, or one, of which less is better.
        higher_is_better: Metrics, or one, of which more is better.
        missing: How a trial without a value counts, instead of the plan's rule: `failure`,
            `excluded` or `worst-case`.
        all_pairs: Compare each pair of arms, with a ranking in `report.ranking`.
    """

    metric: str | None
    baseline: str | None
    by: str | None
    lower_is_better: str | Sequence[str]
    higher_is_better: str | Sequence[str]
    missing: str | None
    all_pairs: bool


_FIELDS = {"lower_is_better": "lower", "higher_is_better": "higher"}
"""Options that `Question` has under another name."""


def question_of(experiment: str, options: Mapping[str, Any]) -> Question:
    """Build a comparison's arguments from those of the call. Raises BadOption, BadValue."""
    check_options("record.experiments.compare", options, CompareOptions.__annotations__)
    fields = {_FIELDS.get(name, name): value for name, value in options.items()}
    for name in _FIELDS.values():
        if isinstance(fields.get(name), str):
            fields[name] = (fields[name],)
    fields["experiment"] = experiment
    return _converted("record.experiments.compare", "CompareOptions", fields, Question)


def _converted(method: str, options: str, fields: dict[str, Any], kind: type[T]) -> T:
    """Convert options to a question. Raises BadValue."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        remedy = f"see hansard.{options}"
        raise BadValue(method, str(error), remedy) from error


class Shown(Brief):
    """A report that a notebook and `rich.print` show in full."""

    __slots__ = ()

    @abstractmethod
    def _blocks(self) -> Iterator[Block]:
        """Yield the blocks to show."""

    def _repr_html_(self) -> str:
        return "".join(_html(block) for block in self._blocks())

    def __rich__(self) -> Any:
        """Return the texts and tables of rich."""
        from rich.console import Group  # noqa: PLC0415 -- only for rich

        return Group(*(each for block in self._blocks() for each in _rich(block)))


class ComparisonReport(Shown, Comparison, tag_field="kind", tag="comparison", kw_only=True):
    """The comparison of the arms of an experiment, as of `hansard compare`.

    A notebook and `rich.print` show all of it but the plots; `lines()` yields it row by row.

    Attributes:
        report: Its parts: `judged` and `beside` have a part for each metric, with its `arms`, its
            `comparisons` with the baseline and their verdicts, each a list of dicts, as
            `pandas.DataFrame` takes them; `report.position` is the position of the log.
    """

    def df(self) -> Any:
        """Return the comparisons of all metrics as one `pandas.DataFrame`, a row each.

        Raises NotInstalled.
        """
        pandas = package("pandas", "df()", "take the dicts of report.judged")
        return pandas.DataFrame(
            [row for part in (*self.report.judged, *self.report.beside) for row in part.comparisons]
        )

    def plot(self, kind: str = "intervals", *, metric: str | None = None) -> Any:
        """Return a `matplotlib.figure.Figure` of a metric.

        Args:
            kind: `intervals` (each difference), `pairs` (each task) or `curves` (pass@k).
            metric: The metric; without one, the first that is judged.

        Raises NotInstalled; CallerError for an unknown name, or where there is nothing to draw.
        """
        if kind not in PLOTS:
            raise CallerError(f"there is no plot {kind!r}: known are {', '.join(PLOTS)}")
        parts = {part.metric: part for part in (*self.report.beside, *self.report.judged)}
        name = metric if metric is not None else self.report.judged[0].metric
        if name not in parts:
            raise CallerError(f"the report has no metric {name!r}: it has {', '.join(parts)}")
        package("matplotlib", "plot()", "take the dicts of report.judged")
        from hansard.web.comparison_plots import FIGURES  # noqa: PLC0415 -- loads matplotlib

        figure = FIGURES[kind](parts[name])
        if figure is None:
            raise CallerError(f"plot {kind!r} of metric {name!r} has nothing to draw: see df()")
        return figure

    def _blocks(self) -> Iterator[Block]:
        return comparison_parts.blocks(self.report)

    def _brief(self) -> dict[str, Any]:
        made = self.report
        return {
            "experiment": made.question.experiment,
            "baseline": made.baseline,
            "judged": [part.metric for part in made.judged],
            "position": made.position,
        }


class AuditReport(Shown, Audit, tag_field="kind", tag="audit", kw_only=True):
    """The findings of an audit, as of `hansard audit`, worst first.

    A notebook and `rich.print` show three of each kind in an experiment; `found` and `lines()` have
    all.

    Attributes:
        found: A dict per finding: its severity, topic, kind, experiment, run, the question that it
            answers, the fact, its `address`, the command that shows it (`link`).
        flip: How far thresholds of decisions were moved.
        summary: The number of findings, and the checks without any.
    """

    def _blocks(self) -> Iterator[Block]:
        return _of_audit(self)

    def _brief(self) -> dict[str, Any]:
        value = self.summary
        return {"run": value.run, **value.severities, "position": value.position}


class DecisionReport(Shown, DecisionFacts, tag_field="kind", tag="explained", kw_only=True):
    """The explanation of a decision, as of `hansard why`.

    Attributes:
        decision: The decision's id.
        position: The position of the log, or for a restricted agent the number of the newest event
            that its role is shown.
        rows: A dict per known fact: its part, number, name, value, event, address, at.
    """

    def _blocks(self) -> Iterator[Block]:
        return blocks(self)

    def _brief(self) -> dict[str, Any]:
        return {"decision": self.decision, "facts": self.rows, "position": self.position}


class DecisionList(Shown, Decisions, tag_field="kind", tag="decisions", kw_only=True):
    """The decisions of a run, as `hansard why RUN` lists them.

    Attributes:
        run: The run's id.
        position: As `DecisionReport.position`.
        rows: A dict per decision: its id, address, time, agent, question, the selected alternative,
            scores.
    """

    def _blocks(self) -> Iterator[Block]:
        return blocks(self)

    def _brief(self) -> dict[str, Any]:
        return {"run": self.run, "decisions": self.rows, "position": self.position}


def shown(answer: Answer, form: type[S]) -> S:
    """Convert an answer to a form that notebooks show."""
    return form(**{name: getattr(answer, name) for name in answer.__struct_fields__})


def explained(explanation: Decisions | DecisionFacts) -> DecisionReport | DecisionList:
    """Convert the explanation of a decision, or the list of a run's."""
    match explanation:
        case DecisionFacts():
            return shown(explanation, DecisionReport)
        case Decisions():
            return shown(explanation, DecisionList)


def _of_audit(made: Audit) -> Iterator[Block]:
    """Yield the findings by kind and experiment, then the checks done and not done."""
    for group in made.groups():
        of = f" in {group.experiment}" if group.experiment else ""
        title = f"{group.severity}  {group.topic}{of}: {counted(len(group.found), 'finding')}"
        yield Heading(title)
        yield Paragraph(group.question)
        rows = [
            tuple(row[name] or "" for name in ("kind", "run", "fact", "address", "next"))
            for row in group.found[:FINDINGS_MAX]
        ]
        more = len(group.found) - len(rows)
        left_out = f"and {more:,} more: found has all" if more else ""
        yield Table(("kind", "run", "fact", "at", "next"), rows, left_out=left_out)
    silent = [each for each in made.summary.looked if each.why_not is None and not each.findings]
    blind = [each for each in made.summary.looked if each.why_not is not None]
    if silent:
        rows = [
            (each.topic, each.experiment or "", f"{each.looked:,} {each.what}") for each in silent
        ]
        yield Table(("topic", "experiment", "what"), rows, "Checked, nothing found")
    if blind:
        rows = [(each.topic, each.experiment or "", each.why_not or "") for each in blind]
        yield Table(("topic", "experiment", "why"), rows, "Not checked")
    yield Paragraph(made.conclusion())


def _cut(text: str) -> str:
    return f"{text[:SHOWN_CHARACTERS]}…" if len(text) > SHOWN_CHARACTERS else text


def _left_out(block: Table) -> str:
    """Return a note of the rows that are not shown."""
    more = len(block.rows) - SHOWN_ROWS
    beyond = f"and {counted(more, 'more row')}: lines() has all" if more > 0 else ""
    return "; ".join(filter(None, [block.left_out, beyond]))


def _html(block: Block) -> str:
    match block:
        case Heading():
            return f"<h4>{html.escape(plain_text(block.text))}</h4>"
        case Paragraph():
            text = html.escape(plain_text(block.text, lines=True))
            return f"<p><b>{text}</b></p>" if block.verdict else f"<p>{text}</p>"
        case Table():
            return _html_table(block)
        case _:
            return ""


def _html_table(block: Table) -> str:
    left = [not name.startswith(">") for name in block.columns]
    head = "".join(
        _html_cell("th", name.removeprefix(">"), left=is_left)
        for name, is_left in zip(block.columns, left, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            _html_cell("td", text, left=is_left) for text, is_left in zip(row, left, strict=True)
        )
        + "</tr>"
        for row in block.rows[:SHOWN_ROWS]
    )
    title = f"<p><b>{html.escape(plain_text(block.title))}</b></p>" if block.title else ""
    note = _left_out(block)
    more = f"<p>{html.escape(plain_text(note))}</p>" if note else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return title + (more + table if block.left_out_before else table + more)


def _html_cell(kind: str, text: str, *, left: bool) -> str:
    side = "left" if left else "right"
    return f"<{kind} style='text-align:{side}'>{html.escape(plain_text(_cut(text)))}</{kind}>"


def _rich(block: Block) -> Iterator[Any]:
    from rich.table import Table as RichTable  # noqa: PLC0415 -- only for rich
    from rich.text import Text  # noqa: PLC0415 -- only for rich

    match block:
        case Heading():
            yield Text(plain_text(block.text), "bold")
        case Paragraph():
            yield Text(plain_text(block.text, lines=True), "bold" if block.verdict else "")
        case Table():
            made = RichTable(
                title=Text(plain_text(block.title)) if block.title else None,
                caption=plain_text(_left_out(block)) or None,
            )
            for name in block.columns:
                justify: Any = "right" if name.startswith(">") else "left"
                made.add_column(Text(plain_text(name.removeprefix(">"))), justify=justify)
            for row in block.rows[:SHOWN_ROWS]:
                made.add_row(*(Text(plain_text(_cut(text))) for text in row))
            yield made
        case _:
            pass
