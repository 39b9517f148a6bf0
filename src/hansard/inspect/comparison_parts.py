"""Comparisons as headings, sentences, tables and plots, independent of the output format.

The module is long because a comparison is one answer: summary, words, tables and plots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import Any

import msgspec

from hansard.domain.choices import counted, listed
from hansard.domain.errors import CallerError
from hansard.inspect.answer import Answer
from hansard.projections.report import Part, Question, Report, report
from hansard.projections.snapshots import Reader

# Comparison of the arms of an experiment.


class Heading(msgspec.Struct, frozen=True):
    """Heading."""

    text: str


class Paragraph(msgspec.Struct, frozen=True):
    """Paragraph; `verdict` if it is one, `brief` if it is a line among others."""

    text: str
    verdict: str = ""
    brief: bool = False


class Table(msgspec.Struct, frozen=True):
    """Table with columns and rows of texts, and its title.

    A column name that begins with `>` marks numbers. `left_out` describes rows that are left out,
    and says whether they precede the rows shown.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    title: str = ""
    left_out: str = ""
    left_out_before: bool = False


ReportBlock = Heading | Paragraph | Table
"""Blocks of any answer; a comparison also has plots."""


Row = dict[str, Any]
"""Line of the report."""


class Comparison(Answer):
    """Comparison of an experiment's arms."""

    report: Report

    def lines(self) -> Iterator[Row]:
        """Yield the question and the position, then each row."""
        made = self.report
        request = msgspec.structs.asdict(made.question)
        yield {
            "kind": "report",
            "position": made.position,
            "digest": made.digest,
            **request,
            "baseline": made.baseline,
            "plan": made.plan,
        }
        for place, parts in (("judged", made.judged), ("beside", made.beside)):
            for part in parts:
                yield from _rows("arm", part.arms, part=place)
                yield from _rows("comparison", part.comparisons, part=place)
                yield from _rows("curve", part.curves, part=place)
        yield from _rows("ranking", made.ranking)
        yield from _rows("sample_ratio", made.ratio)
        yield from _rows("accounting", made.accounts)
        yield from _rows("regression", made.regressions)
        yield from _rows("unmatched", made.unmatched)
        yield from _rows("tool", made.tools)
        yield from _rows("sequence", made.sequences)
        yield from _rows("odd_time", made.times)


def _rows(kind: str, rows: list[Row], **where: str) -> Iterator[Row]:
    return ({"kind": kind, **where, **row} for row in rows)


def compare(answers: Reader, question: Question) -> Comparison:
    """Compare the arms of an experiment. Raises CallerError."""
    return Comparison(report(answers, question))


# Wording of the numbers of a comparison, and the number that decides.

P_LEAST = 0.0001
"""Least p-value that is printed; a smaller one is printed as below it."""

LARGE = 1_000
"""Least number that is printed without a fraction."""

NO_VERDICT = "no metric named"
"""Verdict of a metric that was scored but that nothing names to be judged."""

WAYS = {"failure": "counted as failures", "excluded": "left out", "worst-case": "worst case"}
"""Words for each way of counting missing values."""

LOST_UNITS_P = 0.001
"""Below this p-value of the sample-ratio check, an arm is assumed to lose units."""


def number(value: float | None, *, signed: bool = False) -> str:
    """Format a number with four significant digits."""
    if value is None:
        return ""
    sign = "+" if signed else ""
    return f"{value:{sign},.0f}" if abs(value) >= LARGE else f"{value:{sign}.4g}"


def chance(p: float | None) -> str:
    """Format a p-value."""
    if p is None:
        return "not known"
    return f"below {P_LEAST}" if p < P_LEAST else f"{p:.4f}"


def interval(low: float | None, high: float | None, *, signed: bool = False) -> str:
    """Format an interval."""
    if low is None or high is None:
        return ""
    return f"{number(low, signed=signed)} .. {number(high, signed=signed)}"


def _table(rows: Sequence[Row], names: str, **of: Callable[[Row], object]) -> Table:
    """Build a table by the names of its columns, each `name=field`; `of` has functions, by field.

    The field is that of the name unless it is given. `_` in a name is shown as a blank.
    """
    columns = [each.partition("=") for each in names.split()]
    fields = [field or name.lstrip(">") for name, _, field in columns]
    cells = [tuple(_cell(of.get(each, itemgetter(each))(row)) for each in fields) for row in rows]
    return Table(tuple(name.replace("_", " ") for name, *_ in columns), cells)


def _cell(value: Any) -> str:
    match value:
        case float():
            return number(value)
        case int():
            return f"{value:,}"
        case list():
            return ", ".join(value)
        case _:
            return value or ""


def looks(report: Report) -> str:
    """Return when the result may be analysed, and whether that is now."""
    plan = report.plan
    if plan["stop"] == "sequential":
        return "The intervals are valid at any number of analyses."
    once = "the intervals are valid for one analysis, and how many were made is not recorded."
    if plan["planned"] is None:
        return f"No size was planned: {once}"
    if present := interim(report):
        return (
            f"An interim analysis: {present} planned for each arm are there, and the intervals are "
            "valid for one analysis at the planned size."
        )
    have, tasks = _tasks_of_each(report), counted(plan["planned"], "task")
    if have > plan["planned"]:
        return f"Past its planned size of {tasks} ({have:,} are there): {once}"
    return f"At its planned size, {tasks}: {once}"


def interim(report: Report) -> str:
    """Return how much of a fixed plan's size is on record; empty if all, or for another plan."""
    plan, have = report.plan, _tasks_of_each(report)
    if plan["stop"] == "sequential" or plan["planned"] is None:
        return ""
    if have < plan["planned"]:
        return f"{have:,} of {counted(plan['planned'], 'task')}"
    runs, target = min(row["runs"] for row in report.accounts), have * (plan["trials"] or 0)
    return "" if runs >= target else f"{runs:,} of {counted(target, 'trial')}"


def _tasks_of_each(report: Report) -> int:
    """Return the least number of tasks of an arm; 0 if an arm of the plan has no run."""
    lacking = any(not row["units"] for row in report.ratio)
    return 0 if lacking else min((row["tasks"] for row in report.accounts), default=0)


def decides(row: dict[str, Any], others: Sequence[dict[str, Any]] = ()) -> str:
    """Return the number that decides and its test, or why there is no verdict.

    Args:
        row: A row of the macro `comparisons`.
        others: The same two arms by the other ways of counting missing values.
    """
    verdict = row["verdict"]
    if verdict == "not finished":
        open_runs = {row["baseline"]: row["base_open"], row["arm"]: row["arm_open"]}
        named = [f"{counted(runs, 'run')} of {arm}" for arm, runs in open_runs.items() if runs]
        return f": {listed(named)} still open: end, resume or settle them"
    if verdict.startswith("depends on "):
        ways = {each["counting"]: each["counted_verdict"] for each in (row, *others)}
        return f" ({', '.join(f'{WAYS[name]}: {count}' for name, count in ways.items())})"
    if row["problem"] is not None:
        return f": {row['problem']}"
    if verdict not in {"better", "worse", "cannot tell"}:
        return ""
    if row["holm_p"] is None:
        return ": too few tasks for a p-value"
    over = f" over {counted(row['family'], 'comparison')}" if row["family"] > 1 else ""
    p = f"{'Holm' + chr(39) + 's ' if over else ''}p {chance(row['holm_p'])}{over}"
    low, high = decisive(row)
    if verdict != "cannot tell":
        shown = f", by {p} ({row['test']})"
    elif low is not None and (low > 0 or high < 0):
        shown = f": its interval excludes 0, but {p} is above {row['alpha']:g} ({row['test']})"
    else:
        shown = f": {p} is above {row['alpha']:g} ({row['test']})"
    return shown + disagreement(row)


def disagreement(row: dict[str, Any]) -> str:
    """Return the exact test if it and the deciding one are on different sides of alpha."""
    if not row["tests_disagree"]:
        return ""
    holm = "Holm's " if row["family"] > 1 else ""
    return f"; the {exact_test(row)} disagrees, with {holm}p {chance(row['mcnemar_holm_p'])}"


def exact_test(row: dict[str, Any]) -> str:
    """Return the name of the exact test of the tasks won and lost."""
    return "exact McNemar test" if row["single"] else "exact sign test of tasks"


def decisive(row: dict[str, Any]) -> tuple[Any, Any]:
    """Return the interval of the deciding p-value; of a sequential plan, at any look."""
    which = "always_" if row["stop"] == "sequential" else ""
    return row[f"{which}low"], row[f"{which}high"]


def ranks(row: dict[str, Any]) -> str:
    """Render the ranks that an arm can have."""
    low, high = row["rank_low"], row["rank_high"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


# Summary of a comparison in at most ten lines.

VERDICTS_MAX = 3
"""Most verdicts listed one by one; more are counted."""

NAMED_MAX = 3
"""Most arms and metrics named in a line; more are counted."""

PAIR = 2
"""Number of arms of a comparison without ranking."""

RANKED_MAX = 6
"""Most arms named in the line of ranks."""

_ENDED_OTHERWISE = ("errored", "timed_out", "cancelled")


def summary(report: Report, following: Sequence[str]) -> Iterator[Paragraph]:
    """Yield the summary, at most nine paragraphs.

    Warnings, the verdict with its deciding number, sizes, failures, and the sections that follow.
    """
    yield from _warnings(report)
    named = [part for part in report.judged if part.named]
    if named:
        yield from _verdicts(named[0], interim(report))
        yield from _rank_sentences(report, named[0].metric)
        yield from _others(named[1:])
    else:
        metrics = [part.metric for part in report.judged]
        yield Paragraph(
            f"No verdict is given: {counted(len(metrics), 'metric')} were scored "
            f"({_few_names(metrics)}), and nothing says which of them decides: give --metric NAME, "
            "or a plan.",
            NO_VERDICT,
            brief=True,
        )
    tasks = max((row["tasks"] for row in report.accounts), default=0)
    yield Paragraph(
        f"{counted(report.plan['runs'], 'run')} of {counted(len(report.accounts), 'arm')}, "
        f"{counted(tasks, 'task')}; {report.plan['standing']}. {looks(report)}",
        brief=True,
    )
    yield Paragraph(_failed(report), brief=True)
    if following:
        yield Paragraph(
            f"Sections below: {', '.join(following)}. Choose with --show NAME,...", brief=True
        )


def uneven(report: Report) -> list[dict[str, Any]]:
    """Return the arms whose share of completed runs differs from the baseline's."""
    return [
        row
        for part in (*report.judged, *report.beside)
        if part.metric == "completion"
        for row in part.comparisons
        if row["default"] and not row["slice"]
        if row["p"] is not None and row["p"] <= row["alpha"] and row["difference"]
    ]


def uneven_in_words(report: Report, row: dict[str, Any]) -> str:
    """Render the numbers of completed runs of two arms."""
    runs = {
        each["arm"]: f"{each['completed']:,} of {counted(each['runs'], 'run')}"
        for each in report.accounts
    }
    return (
        f"Failures are unevenly spread: {runs[row['baseline']]} of {row['baseline']} ended as "
        f"completed, {runs[row['arm']]} of {row['arm']} (p {chance(row['p'])})"
    )


def _warnings(report: Report) -> Iterator[Paragraph]:
    """Yield the warnings that precede any verdict, at most two."""
    disparities = uneven(report)
    if disparities:
        more = f", and {len(disparities) - 1:,} more such" if len(disparities) > 1 else ""
        yield Paragraph(
            f"{uneven_in_words(report, disparities[0])}{more}.", "cannot tell", brief=True
        )
    p = report.ratio[0]["p"] if report.ratio else None
    if p is not None and p < LOST_UNITS_P:
        yield Paragraph(
            f"Units are missing: the arms have fewer than assigned (p {chance(p)}).",
            "cannot tell",
            brief=True,
        )


def _verdicts(part: Part, present: str) -> Iterator[Paragraph]:
    """Yield the verdicts one by one, or counted if they are many; `present`: see `interim`."""
    early = f"interim, {present}: " if present else ""
    rows = [row for row in part.comparisons if not row["slice"]]
    shown = [row for row in rows if row["default"]]
    if not shown:
        yield Paragraph(f"There is no verdict by {part.metric}: only one arm has runs.", brief=True)
    if len(shown) <= VERDICTS_MAX:
        for row in shown:
            yield Paragraph(
                f"{row['arm']} against {row['baseline']}: {early}{row['verdict']}"
                f"{decides(row, part.otherwise(row))}; {part.metric} {_size(row)}.",
                row["verdict"],
                brief=True,
            )
    else:
        by = Counter(row["verdict"] for row in shown)
        yield Paragraph(
            f"{counted(len(shown), 'comparison')} by {part.metric}: {early}{_numbers(by)}, by "
            f"Holm's p over {shown[0]['family']:,} at {shown[0]['alpha']:g}.",
            "cannot tell" if len(by) > 1 else shown[0]["verdict"],
            brief=True,
        )


def _size(row: dict[str, Any]) -> str:
    if row["difference"] is None:
        return "has no task with a value in both arms"
    shown = interval(*decisive(row), signed=True)
    left_out = _left_out(row)
    text = f"{number(row['difference'], signed=True)}, {shown or 'no interval'}"
    return f"{text}; {left_out}" if left_out else text


def _left_out(row: dict[str, Any]) -> str:
    """Return the tasks that a comparison leaves out, in words; empty for none."""
    kinds = {
        "of one arm only": row["unmatched"] - row["filled"],
        "without a value under an arm": row["valueless"],
    }
    parts = [f"{counted(tasks, 'task')} {kind}" for kind, tasks in kinds.items() if tasks]
    return f"{' and '.join(parts)} left out" if parts else ""


def _rank_sentences(report: Report, metric: str) -> Iterator[Paragraph]:
    """Yield the arms by rank, or how to obtain ranks."""
    rows = [row for row in report.ranking if row["metric"] == metric]
    if rows:
        parts = [f"{row['arm']} {ranks(row)}" for row in rows[:RANKED_MAX]]
        parts += [f"{len(rows) - RANKED_MAX:,} more"] if len(rows) > RANKED_MAX else []
        yield Paragraph(f"Ranks by {metric}, 1 is the best: {', '.join(parts)}.", brief=True)
    elif len(report.accounts) > PAIR and not report.question.all_pairs:
        yield Paragraph(
            f"Only {report.baseline} was compared with each: --all-pairs ranks the arms.",
            brief=True,
        )


def _others(parts: list[Part]) -> Iterator[Paragraph]:
    """Yield the plan's other metrics, counted."""
    if not parts:
        return
    texts = []
    for part in parts[:NAMED_MAX]:
        rows = [row for row in part.comparisons if row["default"] and not row["slice"]]
        texts.append(f"{part.metric} ({_numbers(Counter(row['verdict'] for row in rows))})")
    more = len(parts) - len(texts)
    texts += [f"{more:,} more"] if more else []
    yield Paragraph(f"Also judged: {listed(texts)}.", brief=True)


def _numbers(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())


def _failed(report: Report) -> str:
    """Render the arms with failed, open or unjudged runs or duplicate trials, the most first."""
    failed = _arms_with(report, *_ENDED_OTHERWISE)
    opened = _arms_with(report, "open")
    if failed:
        facts = [f"Did not end as completed: {failed}"]
    else:
        facts = ["No run failed" if opened else "All runs ended as completed"]
    facts += [f"not finished: {opened}"] if opened else []
    if lacking := _lacking(report):
        facts.append(lacking)
    twice = sum(row["trials_twice"] for row in report.accounts)
    if twice:
        arms = _few_names([row["arm"] for row in report.accounts if row["trials_twice"]])
        facts.append(f"{counted(twice, 'trial')} recorded more than once (of {arms}), each counted")
    return f"{'; '.join(facts)}."


def _lacking(report: Report) -> str:
    """Render the ended runs without a value of the deciding metric, where not all of them failed;
    without such a metric those that nobody judged.
    """
    part = next((part for part in report.judged if part.named), None)
    if part is None:
        unjudged = sum(row["never_judged"] for row in report.accounts)
        return f"{counted(unjudged, 'completed run')} never judged" if unjudged else ""
    lacking = {row["arm"]: row["missing"] for row in part.arms if not row["slice"]}
    if all(
        lacking.get(row["arm"], 0) in (0, sum(row[name] for name in _ENDED_OTHERWISE))
        for row in report.accounts
    ):
        return ""
    arms = _shares([(lacking.get(row["arm"], 0), row) for row in report.accounts])
    missing = report.question.missing or report.plan["missing"]
    how = WAYS[missing if missing != "failure" or part.better == "higher" else "excluded"]
    return f"without a value of {part.metric}: {arms} ({how})"


def _arms_with(report: Report, *names: str) -> str:
    """Render the arms that have runs of these kinds, with their share, the most first."""
    return _shares([(sum(row[name] for name in names), row) for row in report.accounts])


def _shares(numbers: list[tuple[int, dict[str, Any]]]) -> str:
    counted_arms = sorted((each for each in numbers if each[0]), key=lambda each: -each[0])
    named = [f"{row['arm']} {number:,} of {row['runs']:,}" for number, row in counted_arms]
    return _few_names(named) if named else ""


def _few_names(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return listed([*names[:NAMED_MAX], f"{more:,} more"] if more > 0 else names)


GROUPS_MAX = 200
"""Most groups searched for; with more, each arm lists its own equals."""


def groups(order: Sequence[str], alike: Mapping[str, AbstractSet[str]]) -> list[list[str]]:
    """Return the maximal groups of arms no two of which differ.

    Arms are in the given order within a group, and groups in the order of their first arms. An arm
    may be in several. None if there would be more than GROUPS_MAX.

    Piepho, An Algorithm for a Letter-Based Representation of All-Pairwise Comparisons (2004): a
    group of all is split at each pair that differs, and groups within others are dropped.
    """
    maximal = [frozenset(order)]
    for place, one in enumerate(order):
        for other in order[place + 1 :]:
            if other in alike[one]:
                continue
            split = [group for group in maximal if {one, other} <= group]
            kept = [group for group in maximal if group not in split]
            parts = {group - {name} for group in split for name in (one, other)}
            maximal = kept + [
                part
                for part in parts
                if not any(part < each for each in (*kept, *parts)) and part not in kept
            ]
            if len(maximal) > GROUPS_MAX:
                return []
    ordered = [[name for name in order if name in group] for group in maximal]
    return sorted(ordered, key=lambda group: [order.index(name) for name in group])


PATH_MAX = 8
"""Most tools named of a sequence."""


PAIRS_MAX = 6
"""Most pairs described in sentences; more are listed in a table."""


class Plot(msgspec.Struct, frozen=True):
    """Plot of a part, for formats with pictures: intervals, pairs or curves."""

    kind: str
    part: Part


Block = Heading | Paragraph | Table | Plot


SECTIONS = {
    "summary": "summary in ten lines",
    "plan": "the plan, and how missing values count",
    "arms": "each arm by each metric",
    "pairs": "each arm beside the baseline, or each other one: verdict, difference, interval",
    "ranking": "the ranks that each arm can have, of all pairs",
    "curves": "pass@k and pass^k",
    "beside": "cost, tokens, latency and other metrics without a verdict",
    "runs": "how the runs ended",
    "tasks": "tasks with worse results, and tasks of only one arm",
    "tools": "chosen tools",
}
"""Sections of a report in order."""


_METRIC = ("arms", "pairs", "ranking", "curves")
"""Sections repeated for each metric."""


def sections(text: str | None) -> tuple[str, ...]:
    """Parse a comma-separated list of sections; all if it is empty.

    Raises CallerError.
    """
    names = [name.strip() for name in text.split(",")] if text is not None else list(SECTIONS)
    for name in names:
        if name not in SECTIONS:
            message = f"a report has no section {name!r}: there are {listed(SECTIONS)}"
            raise CallerError(message)
    return tuple(name for name in SECTIONS if name in names)


def blocks(report: Report, show: Collection[str] = tuple(SECTIONS)) -> Iterator[Block]:
    """Yield the comparison's blocks in order, or those of the sections to show."""
    made = {name: list(build(report)) for name, build in _BUILDERS.items() if name in show}
    has_rows = {
        "ranking": bool(report.ranking),
        "curves": any(row["k"] > 1 for part in report.judged for row in part.curves),
    }
    metrics = {name for name in _METRIC if name in show and has_rows.get(name, True)}
    yield Heading(f"Experiment {report.question.experiment}")
    if report.plan["question"]:
        yield Paragraph(report.plan["question"], brief=True)
    if "summary" in show:
        follow = [name for name in SECTIONS if made.get(name) or name in metrics]
        yield from summary(report, follow)
    yield from made.pop("plan", [])
    for part in report.judged if metrics else []:
        ranked = [row for row in report.ranking if row["metric"] == part.metric]
        yield from _metric_blocks(part, ranked, by=report.question.by, show=metrics)
    for section in made.values():
        yield from section


def _plan(report: Report) -> Iterator[Block]:
    plan = report.plan
    confidence = f"{100 * (1 - plan['alpha']):g} %"
    yield Heading("Plan and settings")
    yield Paragraph(
        f"{plan['standing'][:1].upper()}{plan['standing'][1:]}. "
        f"{counted(plan['runs'], 'run')}, as of position {report.position} "
        f"({report.digest[:16]}). Baseline {report.baseline}. {looks(report)} "
        f"Alpha {plan['alpha']:g}, intervals of {confidence}. {_missing(report)}"
    )
    for row in uneven(report):
        yield Paragraph(
            f"{uneven_in_words(report, row)}. What leaving them out would change is below each "
            "verdict.",
            "cannot tell",
        )


def _missing(report: Report) -> str:
    """Render how a trial without a value counts, and who decided that."""
    how = report.question.missing
    text = ", by --missing," if how is not None else ""
    counted_as = how or report.plan["missing"]
    if counted_as == "failure":
        return (
            f"A trial without a value counts{text} as a failure (left out where less is better, or "
            "no direction is stated); one that has a value, as it was scored. "
            f"{_tasks_of_one_arm(report)}"
        )
    if counted_as == "worst-case":
        return (
            f"The worst case{text}: trials without a value, those that did not end as completed "
            "(though they were scored) and tasks that one arm lacks count as the worst under an "
            f"arm and as the best under {report.baseline}."
        )
    return (
        f"Left out{text} are trials without a value and those that did not end as completed, "
        "though they were scored. A task that one arm lacks is left out."
    )


def _tasks_of_one_arm(report: Report) -> str:
    planned = report.plan["planned"]
    tasks = max((row["tasks"] + row["tasks_lacking"] for row in report.accounts), default=0)
    if planned is not None and tasks <= planned:
        return (
            f"So does a task that only one arm has, of the {planned:,} planned, unless the hash "
            "assigned it."
        )
    why = (
        "no plan gives the number of tasks (planned)"
        if planned is None
        else f"with {counted(tasks, 'task')} on record the plan, of {planned:,}, does not say which"
    )
    return f"A task that only one arm has is left out: {why}."


def _direction(part: Part) -> str:
    """Render which direction is better, and who stated it."""
    if part.better is None:
        return (
            "direction not stated: no plan says which is better, --lower-is-better or "
            "--higher-is-better does"
        )
    return f"{part.better} is better, according to {part.stated_by}"


def _metric_blocks(
    part: Part, ranked: list[dict[str, Any]], by: str | None, show: Collection[str]
) -> Iterator[Block]:
    yield Heading(f"{part.metric} ({_direction(part)})")
    if "arms" in show:
        yield _arms(part, by)
    if "pairs" in show:
        if not part.named:
            yield Paragraph("No verdict: nothing says that this metric decides.", NO_VERDICT)
        yield Plot("intervals", part)
        shown = [row for row in part.comparisons if row["default"]]
        if len(shown) > PAIRS_MAX:
            yield _many_pairs(part, shown, by)
        for row in shown if len(shown) <= PAIRS_MAX else []:
            yield from _verdict(row, part.otherwise(row), by)
        yield Plot("pairs", part)
    if "ranking" in show and ranked:
        yield from _ranking(part, ranked)
    if "curves" in show and any(row["k"] > 1 for row in part.curves):
        yield from _curves(part, by)
        yield Plot("curves", part)


def _many_pairs(part: Part, shown: list[dict[str, Any]], by: str | None) -> Table:
    """Build a table with a line per pair, beside it the result of another way of counting."""
    rows = []
    for row in shown:
        others = [
            f"{each['counting']}: {each['counted_verdict'] or each['verdict']}, "
            f"{number(each['difference'], signed=True)}"
            for each in part.otherwise(row)
            if any(row[name] != each[name] for name in ("difference", "se", "tasks"))
        ]
        rows.append(
            (
                *_slice(row, by),
                row["arm"],
                row["baseline"],
                row["verdict"],
                number(row["difference"], signed=True),
                interval(row["low"], row["high"], signed=True) or f"none ({_no_interval(row)})",
                chance(row["p"]),
                chance(row["holm_p"]),
                f"{row['tasks']:,}",
                "; ".join(others),
            )
        )
    family = f">Holm's p over {shown[0]['family']:,}"
    names = ("arm", "against", "verdict", ">difference", "interval", ">p", family, ">tasks")
    return Table((*_slice_column(by), *names, "counted otherwise"), rows)


def _ranking(part: Part, ranked: list[dict[str, Any]]) -> Iterator[Block]:
    """Yield the arms with their possible ranks, and the groups of indistinguishable arms.

    Every two arms that cannot be distinguished share a group.
    """
    means = {arm["arm"]: arm["mean"] for arm in part.arms if not arm["slice"]}
    family, alpha = ranked[0]["family"], ranked[0]["alpha"]
    yield Paragraph(
        f"Ranks, 1 is the best, by Holm's p over {counted(family, 'comparison')} at {alpha:g}: "
        f"with {100 * (1 - alpha):g} % all of them hold at once."
    )
    rows = [
        (ranks(row), row["arm"], number(means.get(row["arm"])), ", ".join(row["alike"]) or "(none)")
        for row in ranked
    ]
    yield Table((">rank", "arm", ">mean", "not distinguishable from"), rows)
    alike = {row["arm"]: frozenset(row["alike"]) for row in ranked}
    alike_arms = [group for group in groups(list(alike), alike) if len(group) > 1]
    if alike_arms:
        text = "; ".join(listed(group) for group in alike_arms)
        yield Paragraph(f"Groups of indistinguishable arms: {text}.")
    elif not any(alike.values()):
        yield Paragraph("Every arm is distinguishable from every other.")


_PERCENTILES = ("p50", "p95", "p99")


def _percentiles(arms: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the percentiles that any arm has: a binary or constant metric has none."""
    return tuple(name for name in _PERCENTILES if any(arm[name] is not None for arm in arms))


def _arms(part: Part, by: str | None) -> Table:
    rows = []
    percentiles = _percentiles(part.arms)
    for arm in part.arms:
        low, high, kind = arm["low"], arm["high"], "t"
        if arm["wilson_low"] is not None:
            low, high, kind = arm["wilson_low"], arm["wilson_high"], "Wilson"
        rows.append(
            (
                *_slice(arm, by),
                arm["arm"],
                f"{arm['tasks']:,}",
                f"{arm['trials']:,}",
                f"{arm['missing']:,}",
                number(arm["mean"]),
                f"{interval(low, high)} {kind}" if low is not None else "",
                *(number(arm[name]) for name in percentiles),
            )
        )
    names = ("arm", ">tasks", ">trials", ">missing", ">mean", "interval")
    return Table((*_slice_column(by), *names, *(f">{name}" for name in percentiles)), rows)


def _slice_column(by: str | None) -> tuple[str, ...]:
    return () if by is None else (by,)


def _slice(row: dict[str, Any], by: str | None) -> tuple[str, ...]:
    return () if by is None else (row["slice"] or "(all)",)


def _verdict(
    row: dict[str, Any], others: list[dict[str, Any]], by: str | None
) -> Iterator[Paragraph]:
    where = f" where {by} is {row['slice']}" if row["slice"] else ""
    sides = f"{row['arm']} against {row['baseline']}{where}"
    if row["verdict"] == NO_VERDICT:
        yield Paragraph(f"{sides}: {_difference(row)}{_exact(row)}{_reach(row)}")
    else:
        yield Paragraph(f"{sides}: {row['verdict']}{decides(row, others)}", row["verdict"])
        yield Paragraph(_difference(row) + _exact(row) + _reach(row))
    for other in others:
        same = all(row[name] == other[name] for name in ("difference", "se", "tasks"))
        if not same:
            how = "left out" if other["counting"] == "excluded" else "counted as failures"
            verdict = f"{other['counted_verdict']}, " if other["counted_verdict"] else ""
            shown = interval(other["low"], other["high"], signed=True)
            yield Paragraph(
                f"With {_missing_text(row, other)} {how} instead: {verdict}difference "
                f"{number(other['difference'], signed=True) or 'not known'}, "
                f"{'interval ' + shown if shown else 'no interval'}, "
                f"{counted(other['tasks'], 'task')}."
            )


def _missing_text(row: dict[str, Any], other: dict[str, Any]) -> str:
    missing = row["base_missing"] + row["arm_missing"]
    parts = [f"{counted(missing, 'trial')} without a value"] if missing else []
    if row["unended_valued"]:
        parts.append(
            f"{counted(row['unended_valued'], 'trial')} that did not end as completed (though "
            "scored)"
        )
    filled = max(row["filled"], other["filled"])
    if filled:
        parts.append(f"{counted(filled, 'task')} that one arm does not have")
    return " and ".join(parts) or "what is missing"


def _difference(row: dict[str, Any]) -> str:
    if row["difference"] is None:
        return "No task has a value in both arms. "
    shown = f"Difference {number(row['difference'], signed=True)}"
    if row["low"] is not None:
        always = interval(row["always_low"], row["always_high"], signed=True)
        shown += (
            f", interval {interval(row['low'], row['high'], signed=True)} (at any number of "
            f"analyses {always or 'not known of so few clusters'})"
        )
    else:
        shown += f", no interval ({_no_interval(row)})"
    family = f", Holm over {row['family']}: {chance(row['holm_p'])}" if row["family"] > 1 else ""
    looked = row["always_p"] if row["stop"] == "sequential" else row["p"]
    test = f" ({row['test']})" if row["test"] is not None else ""
    left_out = f", {words}" if (words := _left_out(row)) else ""
    return (
        f"{shown}; p {chance(looked)}{test}{family}; {row['design']}, "
        f"{counted(row['tasks'], 'task')}{left_out}, {counted(row['clusters'], 'cluster')}. "
    )


def _no_interval(row: dict[str, Any]) -> str:
    if row["problem"] is not None:
        return str(row["problem"])
    if row["design"] != "paired by task":
        return "no arm has any spread" if row["se"] == 0 else "an arm of one cluster has no spread"
    if row["se"] == 0:
        return "all tasks differ by the same, so their spread cannot be estimated"
    return f"{counted(row['clusters'] or 0, 'cluster')}: too few to estimate the variance"


def _exact(row: dict[str, Any]) -> str:
    if row["design"] != "paired by task":
        return ""
    sides = f"{row['above']:,} higher, {row['below']:,} lower"
    if row["wins"] is not None:
        sides = f"{row['wins']:,} won, {row['losses']:,} lost"
    p = row["mcnemar_p"]  # None if tasks are clustered
    exact = f"; {exact_test(row)} p {chance(p)}" if p is not None else ""
    if row["tests_disagree"]:
        if row["family"] > 1:
            exact += f", Holm's p {chance(row['mcnemar_holm_p'])}"
        exact += f", which is on the other side of {row['alpha']:g}: the tests disagree"
    return f"Tasks: {sides}, {row['ties']:,} tied{exact}. "


def _reach(row: dict[str, Any]) -> str:
    if row["detectable"] is None:
        return ""
    shown = f"Minimum detectable difference at power 0.8: {number(row['detectable'])}"
    if row["tasks_required"] is not None:
        shown += (
            f"; to find {number(row['smallest'])}, the least that matters, takes "
            f"{counted(row['tasks_required'], 'task')}"
        )
    bounds = ["without Holm's correction"] if row["family"] > 1 else []
    bounds += ["for one analysis, at the end"] if row["stop"] == "sequential" else []
    return f"{shown} ({', '.join(bounds)})." if bounds else f"{shown}."


def _curves(part: Part, by: str | None) -> Iterator[Block]:
    rows = [
        (
            *_slice(row, by),
            row["arm"],
            str(row["k"]),
            f"{row['pass_at_k']:.4f}",
            interval(row["pass_at_k_low"], row["pass_at_k_high"]),
            f"{row['pass_hat_k']:.4f}",
            interval(row["pass_hat_k_low"], row["pass_hat_k_high"]),
        )
        for row in part.curves
    ]
    names = ("arm", ">k", ">pass@k", "interval", ">pass^k", "interval")
    yield Paragraph("pass@k: one of k trials succeeds; pass^k: all of them do.")
    yield Table((*_slice_column(by), *names), rows)


def _other_metrics(report: Report) -> Iterator[Block]:
    parts = report.beside
    if not parts and not report.times:
        return
    yield Heading("Other metrics (no verdict)")
    for row in report.times:
        yield Paragraph(f"Latency is not compared: {row['fact']}.", "cannot tell")
    if not parts:
        return
    rows = []
    percentiles = _percentiles([arm for part in parts for arm in part.arms])
    for part in parts:
        beside = {row["arm"]: row for row in part.comparisons if row["default"]}
        for arm in part.arms:
            difference = beside.get(arm["arm"])
            rows.append(
                (
                    part.metric,
                    arm["arm"],
                    f"{arm['missing']:,}",
                    number(arm["mean"]),
                    *(number(arm[name]) for name in percentiles),
                    number(difference["difference"], signed=True) if difference else "",
                    interval(difference["low"], difference["high"], signed=True)
                    if difference
                    else "",
                )
            )
    shown = tuple(f">{name}" for name in percentiles)
    names = ("metric", "arm", ">missing", ">mean", *shown, ">difference", "interval")
    yield Table(names, rows)


def _accounts(report: Report) -> Iterator[Block]:
    yield Heading("How the runs ended")
    yield _table(
        report.accounts,
        "arm >runs >tasks >judged >never_judged >errored >timed_out >cancelled >not_finished=open "
        ">scored,_not_completed=scored_all_the_same >tasks_lacking",
    )
    if report.ratio and report.ratio[0]["p"] is not None:
        units = ", ".join(
            f"{row['arm']} {row['units']:,} of {number(row['expected'])}" for row in report.ratio
        )
        p = report.ratio[0]["p"]
        warning = (
            ": far from what was to be expected, so look for what loses units before you read any "
            "difference"
            if p < LOST_UNITS_P
            else ""
        )
        how = "by hash" if report.ratio[0]["randomised"] else "not assigned by hash"
        yield Paragraph(f"Sample ratio ({how}): {units}; p {chance(p)}{warning}.")


def _regressions(report: Report) -> Iterator[Block]:
    if report.unmatched:
        yield Heading("Tasks that only one arm has")
        names = "arm=with_it not_under=without_it >tasks the_first_of_them=first"
        yield _table(report.unmatched, names)
    if not report.regressions:
        return
    yield Heading("Tasks that went worse")
    yield _table(
        report.regressions,
        "metric arm task >baseline=base_score >arm=arm_score run_of_the_baseline=base_runs "
        "run_of_the_arm=arm_runs",
        base_runs=lambda row: row["base_runs"][:1],
        arm_runs=lambda row: row["arm_runs"][:1],
    )
    shown = Counter((row["metric"], row["arm"], row["of"]) for row in report.regressions)
    fewer = [
        f"{number:,} of {of:,} by {metric} under {arm}"
        for (metric, arm, of), number in shown.items()
        if number < of
    ]
    if fewer:
        all_of_them = "'hansard sql' has all: the macro regressions"
        yield Paragraph(f"The worst are shown, {'; '.join(fewer)}; {all_of_them}.")
    yield Paragraph("What they did otherwise: hansard run diff RUN RUN")


def _paths(report: Report) -> Iterator[Block]:
    if not report.tools:
        return
    yield Heading("Tools used")
    yield _table(
        report.tools,
        "tool arm >calls >runs_with_it >errors >success_with_it=success_with "
        ">without_it=success_without",
        runs_with_it=lambda row: f"{row['runs_with_it']:,} of {row['runs']:,}",
    )
    yield Paragraph("Tools that go with success need not be its cause. The commonest paths:")
    yield _table(
        report.sequences,
        "arm role >runs >success=success_rate tools=sequence",
        sequence=lambda row: _path(row["sequence"]),
    )


def _path(tools: list[str]) -> str:
    shown = " > ".join(tools[:PATH_MAX]) or "(none)"
    return f"{shown} > {len(tools) - PATH_MAX} more" if len(tools) > PATH_MAX else shown


_BUILDERS = {
    "plan": _plan,
    "beside": _other_metrics,
    "runs": _accounts,
    "tasks": _regressions,
    "tools": _paths,
}
"""Functions of the sections that are not repeated for each metric, in their order."""
