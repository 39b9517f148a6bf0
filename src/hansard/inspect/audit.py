"""Anomalies of the record, events of a run, and the reasons of a decision, from the tables."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from hansard.bus.errors import NotFound
from hansard.domain.choices import counted, listed
from hansard.domain.errors import CallerError
from hansard.inspect.answer import CANDIDATES_MAX, Ambiguous, Answer, address
from hansard.inspect.comparison_parts import Heading, Paragraph, ReportBlock, Table
from hansard.projections.snapshots import Reader
from hansard.projections.table_files import statements

_SQL = statements(__file__)


# Decisions: the reasons of one, and its rendering.


_REMEDY = (
    "give a decision's id, its address (1234.2), or a run to list its decisions; a step "
    "(researcher_1#8) is shown by 'hansard run show RUN --at STEP'"
)


class Decisions(Answer):
    """Decisions of a run as of a position: rows of the macro `decided`."""

    run: str
    position: int
    rows: list[dict[str, Any]]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield each decision, then the run."""
        for row in self.rows:
            at = moment(row["at"])
            yield {"kind": "decision", "run": self.run, **row, "at": at}
        yield {"kind": "decisions", "run": self.run, "position": self.position}


class DecisionFacts(Answer):
    """Facts of a decision as of a position: rows of the macro `why`."""

    decision: str
    position: int
    rows: list[dict[str, Any]]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield each fact, then the decision."""
        for row in self.rows:
            yield {"kind": "fact", "decision": self.decision, **plain(row)}
        yield {"kind": "explained", "decision": self.decision, "position": self.position}


def decision_text(facts: DecisionFacts) -> DecisionText:
    """Render a decision as words and tables."""
    return _decision_text_of(facts.decision, facts.rows)


def blocks(answer: Decisions | DecisionFacts, *, whole: bool = False) -> Iterator[ReportBlock]:
    """Yield the blocks of a decision or of a run's decisions; `whole` shows all rows."""
    match answer:
        case Decisions():
            yield from _of_run(answer)
        case DecisionFacts():
            yield from _of_decision(answer, whole=whole)


def _of_run(decisions: Decisions) -> Iterator[ReportBlock]:
    if decisions.rows:
        names = ("at", "agent", "question", "selected")
        rows = [
            (row["address"], *(row[name] for name in names[1:]), _sign(row["margin"]))
            for row in decisions.rows
        ]
        yield Table((*names, ">margin"), rows)
    count = counted(len(decisions.rows), "decision")
    yield Paragraph(f"{count} of run {decisions.run}, as of position {decisions.position}")


def _of_decision(facts: DecisionFacts, *, whole: bool) -> Iterator[ReportBlock]:
    text = decision_text(facts)
    yield Heading(f"{text.question}  {text.selected}")
    for sentence in text.sentences:
        yield Paragraph(sentence)
    for part in text.parts:
        shown, _, word = (part.rows, [], "") if whole else part.folded()
        yield Table(part.columns, shown, part.title, word, part.fold == "newest")
    yield Paragraph(f"as of position {facts.position}")


def why(answers: Reader, text: str) -> Decisions | DecisionFacts:
    """Explain a decision by its id, address or prefix, or list the decisions of a run.

    Raises NotFound, CallerError, ProjectionError.
    """
    decision, run = find(answers, text)
    if decision is None:
        rows = answers.rows("SELECT * FROM decided($1)", [run])
        return Decisions(run, answers.position, rows)
    return DecisionFacts(decision, answers.position, _rows(answers, decision))


def _rows(answers: Reader, decision: str) -> list[dict[str, Any]]:
    """Query the facts of a decision.

    Inputs of other runs require a slow search of the whole record; it is made only if there are
    any.
    """
    rows = answers.rows("SELECT * FROM why($1)", [decision])
    elsewhere = {row["number"] for row in rows if _is_elsewhere(row)}
    if not elsewhere:
        return rows
    inputs = answers.rows("SELECT * FROM inputs($1)", [decision])
    first = next(index for index, row in enumerate(rows) if row["part"] == "input")
    known = [row for row in rows if row["part"] == "input" and not _is_elsewhere(row)]
    known += [row for row in inputs if row["number"] in elsewhere]
    rest = [row for row in rows[first:] if row["part"] != "input"]
    return [*rows[:first], *sorted(known, key=lambda row: row["number"]), *rest]


def _sign(margin: float | None) -> str:
    return "" if margin is None else f"{margin:+g}"


def _is_elsewhere(row: dict[str, Any]) -> bool:
    return bool(row["part"] == "input" and row["name"] == "elsewhere")


def find(answers: Reader, text: str) -> tuple[str | None, str]:
    """Return a decision's id and its run, or no decision and a run.

    Raises NotFound, CallerError.
    """
    place = address(text)
    if place is not None:
        return _at(answers, text, *place)
    if text == "last":
        runs = [run for (run,) in answers.all(_SQL["newest"])]
        decisions = []
    else:
        most = [text, CANDIDATES_MAX + 1]
        decisions, runs = (
            [name for (name,) in answers.all(_SQL[kind], most)] if text else []
            for kind in ("decisions", "runs")
        )
    for matches in (decisions, runs):
        if matches and matches[0] == text:
            decisions, runs = (matches[:1], []) if matches is decisions else ([], matches[:1])
            break
    match decisions, runs:
        case [decision], []:
            [(run,)] = answers.all("SELECT run FROM decisions WHERE decision = $1", [decision])
            return decision, run
        case [], [run]:
            return None, run
        case [], []:
            raise NotFound(f"a decision or run {text!r}", _REMEDY)
        case _:
            raise Ambiguous(text, [*decisions, *runs], "several decisions or runs")


def _at(answers: Reader, text: str, position: int, index: int) -> tuple[str, str]:
    question = "SELECT id, known_as, type, run FROM events WHERE position = $1 AND event_index = $2"
    events = answers.all(question, [position, index])
    if not events:
        raise NotFound(f"an event at {text}", f"{_REMEDY}; the tables end at {answers.position}")
    [(event, known_as, type_, run)] = events
    if known_as != "decision.made.v1":
        remedy = f"see the decisions with 'hansard why {run}'" if run else _REMEDY
        message = f"the event at {text} is not a decision but {type_}: {remedy}"
        raise CallerError(message)
    return event, run


Row = dict[str, Any]
"""Row of the macro `why`: part, number, name, value, event, address, at."""


WHOLE_MAX = 12
"""Most rows of a table that is shown in full."""

SHOWN = 10
"""Rows shown of a longer table."""

SHOWN_OF_EACH = 3
"""Rows shown of each tool or key, if all of them are many."""


class Part(msgspec.Struct, frozen=True):
    """Table of one part of a decision: title, column names, rows; the last column is the address.

    `fold` selects the rows shown if they are many: the newest, the first, the first of `each`
    tool or key, or all ("").
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    fold: str = ""

    def folded(self) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]], str]:
        """Return the rows shown, the rows left out, and a note on these."""
        if not self.fold or len(self.rows) <= WHOLE_MAX:
            return self.rows, [], ""
        if self.fold == "newest":
            shown, rest = self.rows[-SHOWN:], self.rows[:-SHOWN]
            return shown, rest, f"and {len(rest):,} before these"
        if self.fold == "each":
            return self._first_of_each()
        shown, rest = self.rows[:SHOWN], self.rows[SHOWN:]
        return shown, rest, f"and {len(rest):,} more"

    def _first_of_each(self) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]], str]:
        """Return some rows of each tool or key, so that rare ones are included."""
        seen: Counter[str] = Counter()
        shown: list[tuple[str, ...]] = []
        rest: list[tuple[str, ...]] = []
        for row in self.rows:
            about = row[BY].partition(" ")[2] or row[BY]
            seen[about] += 1
            fits = seen[about] <= SHOWN_OF_EACH and len(shown) < WHOLE_MAX
            (shown if fits else rest).append(row)
        left = Counter(row[BY].partition(" ")[2] or row[BY] for row in rest)
        return shown, rest, "and " + listed(f"{n:,} more of {about}" for about, n in left.items())


class DecisionText(msgspec.Struct, frozen=True):
    """Decision in words: question and choice, some sentences, and tables."""

    decision: str
    run: str
    address: str
    question: str
    selected: str
    sentences: list[str]
    parts: list[Part]


class _Shape(msgspec.Struct, frozen=True):
    """Table of a part: title, column names (`-` for none), and the field of each column.

    Fields are those of a row, and of its value; `Part` has the folds.
    """

    title: str
    columns: str
    fields: str
    fold: str = ""


_SHAPES = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, _Shape]
)
"""Table of each part, in order."""

BY = 2
"""Column of an input with the agent's step and the tool or key."""


def plain(row: Row) -> Row:
    """Return a row for programs: its value as plain values, its time with a zone."""
    at = row["at"]
    return {
        "part": row["part"],
        "number": row["number"],
        "name": row["name"],
        "value": msgspec.json.decode(row["value"]),
        "event": row["event"],
        "address": row["address"],
        "at": moment(at) if at is not None else None,
    }


def moment(at: datetime) -> str:
    """Format a time of the tables, which is UTC, with its zone."""
    return at.replace(tzinfo=UTC).isoformat()


def _decision_text_of(decision: str, rows: Sequence[Row]) -> DecisionText:
    """Render the rows of a decision; `value` is JSON."""
    plain_rows = [plain(row) for row in rows]
    facts = {row["name"]: row["value"] for row in plain_rows if row["part"] == "decision"}
    first = next(row for row in plain_rows if row["part"] == "decision")
    parts = []
    for part, shape in _SHAPES.items():
        cells = [_cells(shape, row) for row in plain_rows if row["part"] == part]
        if cells:
            columns = ("" if name == "-" else name for name in shape.columns.split())
            parts.append(Part(shape.title, (*columns, "at"), cells, shape.fold))
    return DecisionText(
        decision,
        facts["run"],
        first["address"],
        facts["question"],
        facts["selected"],
        [*_sentences(facts, first), *_made_from(plain_rows), *_integrity(plain_rows)],
        parts,
    )


def _sentences(facts: dict[str, Any], first: Row) -> Iterable[str]:
    yield (
        f"{facts['agent']} ({facts['role']}) decided this in run {facts['run']} "
        f"at {first['at']}, position {first['address']}."
    )
    if "because" in facts:
        yield f"Because: {facts['because']}"
    score, threshold, margin = (facts.get(name) for name in ("score", "threshold", "margin"))
    if margin is not None:
        verb = "passes" if margin >= 0 else "misses"
        yield f"Its score {score:g} {verb} the threshold {threshold:g} by {abs(margin):g}."
    elif score is not None:
        yield f"Its score is {score:g}; there was no threshold."
    elif threshold is not None:
        yield f"The threshold was {threshold:g}; what was chosen has no score."
    if "lead" in facts:
        lead = facts["lead"]
        verb = "above" if lead >= 0 else "below"
        yield f"It is {abs(lead):g} {verb} the best of the others, {facts['runner_up']:g}."
    if "confidence" in facts:
        yield f"The agent's confidence was {facts['confidence']:g}."


def _made_from(rows: Iterable[Row]) -> Iterable[str]:
    """Yield the kinds of inputs with their numbers."""
    values = [row["value"] for row in rows if row["part"] == "input"]
    of: Counter[str] = Counter()
    for value in values:
        record = value if isinstance(value, dict) else {}
        if record.get("tool"):
            of[f"of {record['tool']}"] += 1
        elif record.get("key"):
            of[f"of the shared {record['key']}"] += 1
        else:
            of["of another kind"] += 1
    if of:
        parts = [f"{counted(n, 'result')} {what}" for what, n in of.items()]
        yield f"It was made from {listed(parts)}."


def _integrity(rows: Iterable[Row]) -> Iterable[str]:
    """Yield the untrusted inputs of a decision, and who declassified them."""
    for value in (row["value"] for row in rows if row["part"] == "integrity"):
        sources = f": {listed(value['sources'])}" if value["sources"] else ""
        by = (
            f", which {value['by']} declassified: {value['because']}"
            if value["declassified"]
            else ""
        )
        yield f"It rests on untrusted input{sources}{by}."


def _cells(shape: _Shape, row: Row) -> tuple[str, ...]:
    value = row["value"] if isinstance(row["value"], dict) else {}
    step = f"#{value['step']}" if value.get("step") is not None else ""
    agent, about = value.get("agent") or value.get("by"), value.get("tool") or value.get("key")
    why = ["selected" if value.get("selected") else "", value.get("reason")]
    texts = {
        **value,
        "number": row["number"],
        "name": row["name"],
        "why": "; ".join(filter(None, map(_text, [*why, value.get("rejected_because")]))),
        "source": f"{_text(agent)}{step} {_text(about)}".strip(),
        "which": _version(value) if "effects" in value else row["value"],
    }
    return (*(_text(texts.get(name)) for name in shape.fields.split()), row["address"] or "")


def _version(value: dict[str, Any]) -> str:
    """Render a tool as declared."""
    known = ((name, _text(value.get(name))) for name in ("version", "effects", "source"))
    return ", ".join(f"{name} {text}" for name, text in known if text)


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case float():
            return f"{value:g}"
        case list() if all(isinstance(each, str) for each in value):
            return ", then ".join(value)
        case _:
            return msgspec.json.encode(value).decode()


SEVERITIES = ("high", "medium", "low")
"""Severities of findings, worst first.

A figure may be false or an effect unknown; to be reviewed; possibly in order.
"""


def _kinds(reader: Reader) -> list[dict[str, Any]]:
    return reader.rows(_SQL["kinds"], [])


def _unknown(what: str, name: str, known: Collection[str]) -> CallerError:
    there = f"there are {listed(known)}" if known else "there is none"
    return CallerError(f"no {what} has the name {name!r}: {there}")


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
        open_runs: The number of runs that have not ended: at work, killed, or never continued.
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
    open_runs: int = 0
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

    _lines: ClassVar[tuple[str, ...]] = ("events", "summary")

    events: list[dict[str, Any]]
    summary: TrailSummary


class AuditFilter(msgspec.Struct, kw_only=True, frozen=True):
    """Filter of findings; an empty field matches any.

    By kind (or topic, or view), experiment, and least severity.
    """

    kinds: tuple[str, ...] = ()
    experiment: str | None = None
    severity: str | None = None

    def checked(self, reader: Reader) -> AuditFilter:
        """Return the filter. Raises CallerError for a name that the record or the audit lacks."""
        if self.severity is not None and self.severity not in SEVERITIES:
            raise _unknown("severity", self.severity, SEVERITIES)
        if self.kinds:
            rows = _kinds(reader)
            known = {
                name: None for part in ("topic", "kind", "view") for name in _column(rows, part)
            }
            for name in self.kinds:
                if name not in known:
                    raise _unknown("kind of finding", name, known)
        if self.experiment is not None:
            experiments = _column(reader.rows(_SQL["experiments"], []), "experiment")
            if self.experiment not in experiments:
                raise _unknown("experiment", self.experiment, experiments)
        return self

    def takes_kind(self, row: dict[str, Any]) -> bool:
        """Return whether a finding matches the kinds and the experiment."""
        return _is_selected(row, self.kinds) and self.experiment in (None, row["experiment"])

    def takes_severity(self, row: dict[str, Any]) -> bool:
        """Return whether a finding has the least severity or a worse one."""
        most = SEVERITIES.index(self.severity or SEVERITIES[-1])
        return SEVERITIES.index(row["severity"]) <= most


class WaitingAgent(msgspec.Struct, frozen=True):
    """Agent with a call without an outcome, and when it last joined its run (ns since 1970)."""

    run: str
    agent: str
    role: str
    joined: int


def waiting(reader: Reader, run: str | None) -> list[WaitingAgent]:
    """Return the agents with calls of which the tables cannot tell whether they are under way."""
    return msgspec.convert(reader.rows(_SQL["waiting"], [run]), list[WaitingAgent])


def audit(
    reader: Reader,
    run: str | None,
    flip: float,
    only: AuditFilter | None = None,
    processes: Mapping[tuple[str, str], bool | None] | None = None,
) -> Audit:
    """Audit all real runs, or one run, which may be a probe's fork.

    `flip` is the distance by which thresholds are moved; `processes` says by run and agent whether
    a waiting agent's process is at work, where that is known. Raises CallerError.
    """
    target = (only or AuditFilter()).checked(reader)
    rows = reader.rows(_SQL["findings"], [flip, run])
    if processes:
        _by_process(rows, reader, run, processes)
    rows.sort(key=lambda r: (SEVERITIES.index(r["severity"]), r["topic"], r["kind"]))
    of_kinds = [row for row in rows if target.takes_kind(row)]
    findings = [
        {**row, "link": _link(row), "next": _next(row)}
        for row in of_kinds
        if target.takes_severity(row)
    ]
    looked = _checked_topics(reader, run, target, of_kinds)
    summary = Audited(
        run=run,
        findings=len(findings),
        less_severe=len(of_kinds) - len(findings),
        topics=_counts(findings, "topic"),
        severities=_counts(findings, "severity"),
        looked=looked,
        checked=list(dict.fromkeys(each.topic for each in looked if each.why_not is None)),
        open_runs=reader.rows(_SQL["open"], [run])[0]["runs"],
        position=reader.position,
    )
    return Audit(found=findings, flip=flip, summary=summary)


def _by_process(
    rows: list[dict[str, Any]],
    reader: Reader,
    run: str | None,
    processes: Mapping[tuple[str, str], bool | None],
) -> None:
    """Tell calls under way from those in doubt where it is known whether their process lives."""
    kinds = {
        row["kind"]: row
        for row in reader.rows(_SQL["kinds"], [])
        if row["view"] == "orphan_intents"
    }
    resumable = {
        (i["run"], i["agent"], i["step"]): i for i in reader.rows(_SQL["resumable"], [run])
    }
    for row in rows:
        is_alive = processes.get((row["run"], row["agent"]))
        if is_alive is None or (row["view"], row["kind"]) != ("orphan_intents", "waiting"):
            continue
        fact = "its process is at work" if is_alive else "its process has ended"
        row.update(kinds["under way" if is_alive else "in doubt"])
        row["fact"] = row["fact"].replace("it is under way, or its process is dead", fact)
        intent = None if is_alive else resumable.get((row["run"], row["agent"], row["step"]))
        if intent is not None:  # as the macro rates calls that are surely in doubt
            row.update(command=intent["command"], severity="low")
            row["fact"] += "; its effects allow to repeat it: a resume does"


def trail(reader: Reader, run: str) -> Trail:
    """Return the main events of a run."""
    rows = reader.rows("SELECT * FROM trail($1)", [run])
    events = [{"kind": "event", "run": run, **row, "at": moment(row["at"])} for row in rows]
    return Trail(
        events=events, summary=TrailSummary(run=run, events=len(rows), position=reader.position)
    )


def _checked_topics(
    reader: Reader, run: str | None, request: AuditFilter, findings: list[dict[str, Any]]
) -> list[CheckedTopic]:
    """Return the checks of a run, or of the whole workspace, within the filters."""
    topics = {row["topic"] for row in _kinds(reader) if _is_selected(row, request.kinds)}
    return [
        CheckedTopic(**row, findings=sum(_is_about(row, finding) for finding in findings))
        for row in reader.rows(_SQL["checked"], [run])
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


def _counts(rows: list[dict[str, Any]], name: str) -> dict[str, int]:
    return dict(Counter(row[name] for row in rows))
