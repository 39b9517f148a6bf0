"""Everything about one decision, and the decisions of a run: read from the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hansard.bus.errors import NotFound
from hansard.domain.choices import counted
from hansard.domain.errors import CallerError
from hansard.inspect import decision_parts
from hansard.inspect.answer import Answer
from hansard.inspect.comparison_parts import Heading, Paragraph, Said, Table
from hansard.inspect.decision_parts import Told
from hansard.projections.reader import Reader

CANDIDATES_MAX = 8
"""How many decisions or runs an ambiguous text shows."""

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
    """A text that several decisions or runs begin with."""

    def __init__(self, text: str, found: list[str]) -> None:
        shown = "\n  ".join(found[:CANDIDATES_MAX])
        super().__init__(
            f"several decisions or runs begin with {text!r}: give more of the id\n  {shown}"
            + ("\n  and more" if len(found) > CANDIDATES_MAX else "")
        )
        self.text = text
        self.found = found


class NoDecision(CallerError):
    """An address at which there is another event."""

    def __init__(self, address: str, type_: str, run: str | None) -> None:
        remedy = f"see the decisions with 'hansard why {run}'" if run else _REMEDY
        super().__init__(f"the event at {address} is no decision but {type_}: {remedy}")
        self.address = address


class Decisions(Answer):
    """The decisions of a run as of a position: a row of the macro `decided` each."""

    run: str
    position: int
    rows: list[dict[str, Any]]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Each decision, then the run."""
        for row in self.rows:
            at = decision_parts.moment(row["at"])
            yield {"kind": "decision", "run": self.run, **row, "at": at}
        yield {"kind": "decisions", "run": self.run, "position": self.position}


class Explained(Answer):
    """All that is known of a decision as of a position: rows of the macro `why`."""

    decision: str
    position: int
    rows: list[dict[str, Any]]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Each fact, then the decision."""
        for row in self.rows:
            yield {"kind": "fact", "decision": self.decision, **decision_parts.plain(row)}
        yield {"kind": "explained", "decision": self.decision, "position": self.position}


def told(found: Explained) -> Told:
    """A decision in words and tables."""
    return decision_parts.told(found.decision, found.rows)


def blocks(found: Decisions | Explained, *, whole: bool = False) -> Iterator[Said]:
    """The same for people; whole: all rows of what is many."""
    match found:
        case Decisions():
            yield from _of_run(found)
        case Explained():
            yield from _of_decision(found, whole=whole)


def _of_run(found: Decisions) -> Iterator[Said]:
    if found.rows:
        names = ("at", "agent", "question", "selected")
        rows = [
            (row["address"], *(row[name] for name in names[1:]), _signed(row["margin"]))
            for row in found.rows
        ]
        yield Table((*names, ">margin"), rows)
    count = counted(len(found.rows), "decision")
    yield Paragraph(f"{count} of run {found.run}, as of position {found.position}")


def _of_decision(found: Explained, *, whole: bool) -> Iterator[Said]:
    said = told(found)
    yield Heading(f"{said.question}  {said.selected}")
    for sentence in said.sentences:
        yield Paragraph(sentence)
    for part in said.parts:
        shown, _, word = (part.rows, [], "") if whole else part.folded()
        yield Table(part.columns, shown, part.title, word, part.fold == "newest")
    yield Paragraph(f"as of position {found.position}")


def why(answers: Reader, text: str) -> Decisions | Explained:
    """Explain a decision by its id, address or prefix; list the decisions of a run.

    Raises NotFound, Unclear, NoDecision, ProjectionError.
    """
    decision, run = find(answers, text)
    if decision is None:
        rows = answers.rows("SELECT * FROM decided($1)", [run])
        return Decisions(run, answers.position, rows)
    return Explained(decision, answers.position, _rows(answers, decision))


def _rows(answers: Reader, decision: str) -> list[dict[str, Any]]:
    """All that is known of a decision; inputs of other runs are looked for in all of the record,
    which is what costs time, and only where there are any.
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


def _signed(margin: float | None) -> str:
    return "" if margin is None else f"{margin:+g}"


def _is_elsewhere(row: dict[str, Any]) -> bool:
    return bool(row["part"] == "input" and row["name"] == "elsewhere")


def find(answers: Reader, text: str) -> tuple[str | None, str]:
    """A decision's id and its run; or no decision and a run.

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
    asked = "SELECT id, known_as, type, run FROM events WHERE position = $1 AND event_index = $2"
    found = answers.all(asked, [position, index])
    if not found:
        raise NotFound(f"an event at {text}", f"{_REMEDY}; the tables end at {answers.position}")
    [(event, known_as, type_, run)] = found
    if known_as != "decision.made.v1":
        raise NoDecision(text, type_, run)
    return event, run
