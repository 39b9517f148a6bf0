"""Anomalies of the record, and the main events of a run, from the tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from hansard.domain.choices import counted, listed
from hansard.domain.errors import CallerError
from hansard.inspect.answer import Answer
from hansard.inspect.why import moment
from hansard.projections.reader import Reader

SEVERITIES = ("high", "medium", "low")
"""Severities of findings, worst first.

A figure may be false or an effect unknown; to be reviewed; possibly in order.
"""

_FINDINGS = """
    SELECT * FROM findings($1)
    WHERE run = $2 OR ($2 IS NULL
        AND (run IS NULL OR run NOT IN (SELECT r.run FROM runs AS r WHERE r.probe IS NOT NULL)))
    ORDER BY list_position(['high', 'medium', 'low'], severity), topic, kind,
        experiment NULLS LAST, run, try_cast(split_part(address, '.', 1) AS BIGINT), step, fact
"""
_KINDS = "SELECT view, kind, topic FROM finding_kinds ORDER BY ALL"
_EXPERIMENTS = "SELECT DISTINCT experiment FROM assigned_runs ORDER BY experiment"
_CHECKED = """
    SELECT topic, experiment, looked, what, why_not FROM checked_topics($1)
    ORDER BY topic, experiment NULLS FIRST, what
"""


class UnknownFilter(CallerError):
    """Error: the audit has no kind, topic or severity of that name."""

    def __init__(self, what: str, name: str, known: Collection[str]) -> None:
        there = f"there are {listed(known)}" if known else "there is none"
        super().__init__(f"no {what} has the name {name!r}: {there}")
        self.what, self.name, self.known = what, name, tuple(known)


class CheckedTopic(msgspec.Struct, kw_only=True):
    """Amount of what the audit checked on a topic, and what it found.

    Attributes:
        topic: The topic.
        experiment: The experiment; None: the whole record, or runs of no experiment.
        looked: The number of units checked.
        what: The unit of `looked`.
        findings: The number of findings.
        why_not: The reason why nothing, or not all, was checked; None if all was.
    """

    topic: str
    experiment: str | None
    looked: int
    what: str
    findings: int
    why_not: str | None


class Audited(msgspec.Struct, tag_field="kind", tag="audited", kw_only=True):
    """Summary of an audit.

    Attributes:
        run: The run; None: the workspace, without the forks of probes.
        findings: The number of findings.
        less_severe: The number of further findings, left out by the filter by severity.
        topics: The number of findings by topic.
        severities: The number of findings by severity: `high`, `medium`, `low`.
        looked: The checks that were made and those that were not.
        checked: The topics that were at least partly checked.
        position: The position of the log; for a restricted agent the number of the newest event
            that its role is shown.
    """

    run: str | None
    findings: int
    less_severe: int
    topics: dict[str, int]
    severities: dict[str, int]
    looked: list[CheckedTopic]
    checked: list[str]
    position: int


class Group(msgspec.Struct, kw_only=True):
    """Findings of one kind in one experiment.

    Attributes:
        severity: Their severity: `high`, `medium` or `low`.
        topic: Their topic.
        kind: Their kind.
        experiment: Their experiment; None: none.
        question: The question that they answer.
        found: The findings, in order.
    """

    severity: str
    topic: str
    kind: str
    experiment: str | None
    question: str
    found: list[dict[str, Any]]


_OF_GROUP = ("severity", "topic", "kind", "experiment", "question")


class Audit(Answer):
    """Findings, worst first; `flip` is the distance by which thresholds were moved."""

    found: list[dict[str, Any]]
    flip: float
    summary: Audited

    def lines(self) -> Iterable[object]:
        """Yield each finding, then the summary."""
        findings = [{**row, "kind": "finding", "what": row["kind"]} for row in self.found]
        return (*findings, self.summary)

    def conclusion(self) -> str:
        """Return a sentence with the number of findings, or with the topics without any."""
        summary = self.summary
        of = f"run {summary.run}" if summary.run is not None else "the workspace"
        less = summary.less_severe
        left_out = (
            f"; {counted(less, 'less severe finding')} left out by --severity" if less else ""
        )
        if self.found:
            result = counted(len(self.found), "finding") + left_out
        elif less:
            result = f"no finding of this severity{left_out}"
        elif summary.checked:
            result = f"nothing found in {listed(summary.checked)}"
        else:
            result = "nothing was checked"
        return f"{of}, as of position {summary.position}: {result}"

    def groups(self) -> list[Group]:
        """Group the findings by kind and experiment, worst first, then the largest group."""
        made: dict[tuple[Any, ...], Group] = {}
        for row in self.found:
            key = tuple(row[name] for name in _OF_GROUP)
            if key not in made:
                made[key] = Group(**dict(zip(_OF_GROUP, key, strict=True)), found=[])
            made[key].found.append(row)
        return sorted(made.values(), key=lambda g: (SEVERITIES.index(g.severity), -len(g.found)))


class TrailSummary(msgspec.Struct, tag_field="kind", tag="trail", kw_only=True):
    """Number of events of a run, as of a position."""

    run: str
    events: int
    position: int


class Trail(Answer):
    """Main events of a run in order, as in the tables; times are ISO 8601."""

    events: list[dict[str, Any]]
    summary: TrailSummary

    def lines(self) -> Iterable[object]:
        """Yield each event, then their number."""
        return (*self.events, self.summary)


class AuditFilter(msgspec.Struct, kw_only=True, frozen=True):
    """Filter of findings; an empty field matches any.

    By kind (or topic, or view), experiment, and least severity.
    """

    kinds: tuple[str, ...] = ()
    experiment: str | None = None
    severity: str | None = None

    def checked(self, reader: Reader) -> AuditFilter:
        """Return the filter. Raises UnknownFilter for a name that the record or the audit lacks."""
        if self.severity is not None and self.severity not in SEVERITIES:
            raise UnknownFilter("severity", self.severity, SEVERITIES)
        if self.kinds:
            rows = reader.rows(_KINDS, [])
            known = {
                name: None for part in ("topic", "kind", "view") for name in _column(rows, part)
            }
            for name in self.kinds:
                if name not in known:
                    raise UnknownFilter("kind of finding", name, known)
        if self.experiment is not None:
            experiments = _column(reader.rows(_EXPERIMENTS, []), "experiment")
            if self.experiment not in experiments:
                raise UnknownFilter("experiment", self.experiment, experiments)
        return self

    def takes_kind(self, row: dict[str, Any]) -> bool:
        """Return whether a finding matches the kinds and the experiment."""
        return _is_selected(row, self.kinds) and self.experiment in (None, row["experiment"])

    def takes_severity(self, row: dict[str, Any]) -> bool:
        """Return whether a finding has the least severity or a worse one."""
        most = SEVERITIES.index(self.severity or SEVERITIES[-1])
        return SEVERITIES.index(row["severity"]) <= most


def audit(reader: Reader, run: str | None, flip: float, only: AuditFilter | None = None) -> Audit:
    """Audit all real runs, or one run, which may be a probe's fork.

    `flip` is the distance by which thresholds are moved. Raises UnknownFilter.
    """
    target = (only or AuditFilter()).checked(reader)
    of_kinds = [row for row in reader.rows(_FINDINGS, [flip, run]) if target.takes_kind(row)]
    found = [
        {**row, "link": _link(row), "next": _next(row)}
        for row in of_kinds
        if target.takes_severity(row)
    ]
    looked = _checked_topics(reader, run, target, of_kinds)
    summary = Audited(
        run=run,
        findings=len(found),
        less_severe=len(of_kinds) - len(found),
        topics=_counts(found, "topic"),
        severities=_counts(found, "severity"),
        looked=looked,
        checked=list(dict.fromkeys(each.topic for each in looked if each.why_not is None)),
        position=reader.position,
    )
    return Audit(found=found, flip=flip, summary=summary)


def trail(reader: Reader, run: str) -> Trail:
    """Return the main events of a run."""
    rows = reader.rows("SELECT * FROM trail($1)", [run])
    events = [{"kind": "event", "run": run, **row, "at": moment(row["at"])} for row in rows]
    return Trail(
        events=events, summary=TrailSummary(run=run, events=len(rows), position=reader.position)
    )


def _checked_topics(
    reader: Reader, run: str | None, request: AuditFilter, found: list[dict[str, Any]]
) -> list[CheckedTopic]:
    """Return the checks of a run, or of the whole workspace, within the filters."""
    topics = {row["topic"] for row in reader.rows(_KINDS, []) if _is_selected(row, request.kinds)}
    return [
        CheckedTopic(**row, findings=sum(_is_about(row, finding) for finding in found))
        for row in reader.rows(_CHECKED, [run])
        if row["topic"] in topics and request.experiment in (None, row["experiment"])
    ]


def _is_selected(row: dict[str, Any], kinds: tuple[str, ...]) -> bool:
    return not kinds or not set(kinds).isdisjoint((row["topic"], row["kind"], row["view"]))


def _is_about(row: dict[str, Any], finding: dict[str, Any]) -> bool:
    return row["topic"] == finding["topic"] and row["experiment"] in (None, finding["experiment"])


def _link(row: dict[str, Any]) -> str:
    """Return the command that shows the place of a finding."""
    if row["run"] is None:
        return "hansard check"
    at = f" --at {row['address'].partition('.')[0]}" if row["address"] else ""
    return f"hansard run show {row['run']}{at}"


def _next(row: dict[str, Any]) -> str:
    """Return the next command to run, or the one that shows a value that this command lacks."""
    evidence = row["evidence"] or []
    known = {
        **{name: row[name] for name in ("run", "agent", "step", "experiment", "address")},
        "other": evidence[1]["run"] if len(evidence) > 1 else None,
    }
    words = str(row["command"]).split()
    if any(known[name] is None for word in words for name in _NAMES.findall(word)):
        return _link(row)
    return " ".join(
        shlex.quote(word.format(**known)) if _NAMES.search(word) else word for word in words
    )


_NAMES = re.compile(r"\{(\w+)\}")
"""Placeholders in a command of `finding_kinds`."""


def _column(rows: list[dict[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(row[name] for row in rows))


def _counts(found: list[dict[str, Any]], name: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in found:
        counts[row[name]] = counts.get(row[name], 0) + 1
    return counts
