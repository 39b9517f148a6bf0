"""Decisions: the reasons of one, and its rendering."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from hansard.bus.errors import NotFound
from hansard.domain.choices import counted, listed
from hansard.domain.errors import CallerError
from hansard.inspect.answer import Answer
from hansard.inspect.comparison_parts import Heading, Paragraph, ReportBlock, Table
from hansard.projections.reader import Reader

CANDIDATES_MAX = 8
"""Most decisions or runs listed for an ambiguous text."""

_ADDRESS = re.compile(r"(?P<position>\d{1,18})\.(?P<index>\d{1,9})")

_DECISIONS = """
    SELECT decision FROM decisions WHERE starts_with(decision, $1) ORDER BY decision = $1 DESC,
    position LIMIT $2
"""
_RUNS = "SELECT run FROM runs WHERE starts_with(run, $1) ORDER BY run = $1 DESC, run LIMIT $2"
_NEWEST = "SELECT run FROM runs ORDER BY first_position DESC LIMIT 1"
_REMEDY = (
    "give a decision's id, its address (1234.2), or a run to list its decisions; a step "
    "(researcher_1#8) is shown by 'hansard run show RUN --at STEP'"
)


class Unclear(CallerError):
    """Error: several decisions or runs begin with the text."""

    def __init__(self, text: str, found: list[str]) -> None:
        shown = "\n  ".join(found[:CANDIDATES_MAX])
        super().__init__(
            f"several decisions or runs begin with {text!r}: give more of the id\n  {shown}"
            + ("\n  and more" if len(found) > CANDIDATES_MAX else "")
        )
        self.text = text
        self.found = found


class NoDecision(CallerError):
    """Error: the event at the address is not a decision."""

    def __init__(self, address: str, type_: str, run: str | None) -> None:
        remedy = f"see the decisions with 'hansard why {run}'" if run else _REMEDY
        super().__init__(f"the event at {address} is not a decision but {type_}: {remedy}")
        self.address = address


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


def decision_text(found: DecisionFacts) -> DecisionText:
    """Render a decision as words and tables."""
    return _decision_text_of(found.decision, found.rows)


def blocks(found: Decisions | DecisionFacts, *, whole: bool = False) -> Iterator[ReportBlock]:
    """Yield the blocks of a decision or of a run's decisions; `whole` shows all rows."""
    match found:
        case Decisions():
            yield from _of_run(found)
        case DecisionFacts():
            yield from _of_decision(found, whole=whole)


def _of_run(found: Decisions) -> Iterator[ReportBlock]:
    if found.rows:
        names = ("at", "agent", "question", "selected")
        rows = [
            (row["address"], *(row[name] for name in names[1:]), _sign(row["margin"]))
            for row in found.rows
        ]
        yield Table((*names, ">margin"), rows)
    count = counted(len(found.rows), "decision")
    yield Paragraph(f"{count} of run {found.run}, as of position {found.position}")


def _of_decision(found: DecisionFacts, *, whole: bool) -> Iterator[ReportBlock]:
    text = decision_text(found)
    yield Heading(f"{text.question}  {text.selected}")
    for sentence in text.sentences:
        yield Paragraph(sentence)
    for part in text.parts:
        shown, _, word = (part.rows, [], "") if whole else part.folded()
        yield Table(part.columns, shown, part.title, word, part.fold == "newest")
    yield Paragraph(f"as of position {found.position}")


def why(answers: Reader, text: str) -> Decisions | DecisionFacts:
    """Explain a decision by its id, address or prefix, or list the decisions of a run.

    Raises NotFound, Unclear, NoDecision, ProjectionError.
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
    found = answers.rows("SELECT * FROM inputs($1)", [decision])
    first = next(index for index, row in enumerate(rows) if row["part"] == "input")
    known = [row for row in rows if row["part"] == "input" and not _is_elsewhere(row)]
    known += [row for row in found if row["number"] in elsewhere]
    rest = [row for row in rows[first:] if row["part"] != "input"]
    return [*rows[:first], *sorted(known, key=lambda row: row["number"]), *rest]


def _sign(margin: float | None) -> str:
    return "" if margin is None else f"{margin:+g}"


def _is_elsewhere(row: dict[str, Any]) -> bool:
    return bool(row["part"] == "input" and row["name"] == "elsewhere")


def find(answers: Reader, text: str) -> tuple[str | None, str]:
    """Return a decision's id and its run, or no decision and a run.

    Raises NotFound, Unclear, NoDecision.
    """
    address = _ADDRESS.fullmatch(text)
    if address is not None:
        return _at(answers, text, int(address["position"]), int(address["index"]))
    if text == "last":
        runs = [run for (run,) in answers.all(_NEWEST)]
        decisions = []
    else:
        most = [text, CANDIDATES_MAX + 1]
        decisions = [found for (found,) in answers.all(_DECISIONS, most)] if text else []
        runs = [found for (found,) in answers.all(_RUNS, most)] if text else []
    for found in (decisions, runs):
        if found and found[0] == text:
            decisions, runs = (found[:1], []) if found is decisions else ([], found[:1])
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
            raise Unclear(text, [*decisions, *runs])


def _at(answers: Reader, text: str, position: int, index: int) -> tuple[str, str]:
    question = "SELECT id, known_as, type, run FROM events WHERE position = $1 AND event_index = $2"
    found = answers.all(question, [position, index])
    if not found:
        raise NotFound(f"an event at {text}", f"{_REMEDY}; the tables end at {answers.position}")
    [(event, known_as, type_, run)] = found
    if known_as != "decision.made.v1":
        raise NoDecision(text, type_, run)
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


_TITLES = {
    "alternative": ("Alternatives", ("", "alternative", "score", "margin", "why")),
    "input": ("Inputs", ("", "what", "by", "words")),
    "after": ("Earlier results", ("step", "tool", "status", "asked", "words")),
    "message": ("Messages in its context", ("version", "role", "words")),
    "policy": ("Nearby refusals by the gate", ("step", "tool", "rule", "when", "reason")),
    "approval": (
        "Nearby approvals and denials",
        ("step", "tool", "answer", "by", "because", "answered"),
    ),
    "settlement": ("Nearby settled steps", ("step", "tool", "verdict", "by", "because")),
    "version": ("Versions", ("what", "which")),
    "actor": ("Who acted", ("", "")),
    "followed": ("Next actions of the agent", ("step", "tool", "status", "asked", "words")),
    "hand-off": ("Handed on to", ("to", "because", "with")),
    "next": ("Its next decision", ("words",)),
    "outcome": ("Outcome of the run", ("what", "words")),
}
"""Heading and columns of each part, in order."""

BY = 2
"""Column of an input with the agent's step and the tool or key."""

_FOLDS = {
    "input": "each",
    "after": "newest",
    "message": "newest",
    "policy": "first",
    "approval": "first",
    "settlement": "first",
    "followed": "first",
}
"""Selection of the rows shown of a long part."""


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
    for part, (title, columns) in _TITLES.items():
        found = [row for row in plain_rows if row["part"] == part]
        if found:
            cells = [(*_cells(part, row), row["address"] or "") for row in found]
            parts.append(Part(title, (*columns, "at"), cells, _FOLDS.get(part, "")))
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


def _cells(part: str, row: Row) -> tuple[str, ...]:
    value = row["value"] if isinstance(row["value"], dict) else {}

    def say(*names: str) -> tuple[str, ...]:
        return tuple(_text(value.get(name)) for name in names)

    number, name = _text(row["number"]), _text(row["name"])
    match part:
        case "alternative":
            why = "selected" if value.get("selected") else ""
            reasons = [why, *say("reason", "rejected_because")]
            return (number, name, *say("score", "margin"), "; ".join(filter(None, reasons)))
        case "input":
            step = f"#{value['step']}" if value.get("step") is not None else ""
            who = value.get("agent") or value.get("by")
            about = value.get("tool") or value.get("key")
            by = f"{_text(who)}{step} {_text(about)}".strip()
            return (number, name, by, *say("words"))
        case "after" | "followed":
            return (number, name, *say("status", "arguments", "words"))
        case "message":
            return (number, name, *say("words"))
        case "policy":
            return (*say("step", "tool"), name, *say("when", "reason"))
        case "settlement":
            return (*say("step", "tool"), name, *say("by", "because"))
        case "approval":
            return (*say("step", "tool"), name, *say("by", "because", "answered"))
        case "hand-off":
            return (name, *say("because", "payload"))
        case "next":
            return say("words")
        case "outcome":
            return (name, *say("words"))
        case _:
            return (name, _version(value) if "effects" in value else _text(row["value"]))


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
