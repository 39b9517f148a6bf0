"""`hansard why`: everything about one decision, or the decisions of a run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from hansard.bus.errors import NotFound
from hansard.commands import _page_file, _show, _why_page, _why_parts
from hansard.commands._answers import Answers, answering
from hansard.commands._open import Options
from hansard.commands._why_parts import Told
from hansard.commands.page import STDOUT, TwoAnswers
from hansard.domain.counted import counted
from hansard.domain.errors import CallerError

CANDIDATES_MAX = 8
"""How many decisions or runs an ambiguous text shows."""

_ADDRESS = re.compile(r"(?P<position>\d{1,18})\.(?P<index>\d{1,9})")

_DECISIONS = """
    SELECT decision FROM decisions WHERE starts_with(decision, $1) ORDER BY decision = $1 DESC,
    position LIMIT $2
"""
_RUNS = "SELECT run FROM runs WHERE starts_with(run, $1) ORDER BY run = $1 DESC, run LIMIT $2"
_NEWEST = "SELECT run FROM runs ORDER BY first_position DESC LIMIT 1"
_REMEDY = "give an event's id, its address (position.index), or a run to list its decisions"


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


async def why(
    options: Options, text: str, html: Path | None, *, json: bool, whole: bool = False
) -> int:
    """Print a decision, or write its page; or list a run's decisions. `whole`: long tables, too.

    Raises NotFound, Unclear, NoDecision, Unwritable, TwoAnswers, ProjectionError.
    """
    if html == STDOUT and json:
        raise TwoAnswers
    async with answering(options) as answers:
        decision, run = find(answers, text)
        if decision is None:
            return _list(answers, run, json=json)
        rows = _rows(answers, decision)
        position = answers.position
    if html is not None:
        return _page(decision, rows, position, html, json=json)
    if json:
        for row in rows:
            _show.emit({"kind": "fact", "decision": decision, **_why_parts.plain(row)})
        _show.emit({"kind": "explained", "decision": decision, "position": position})
    else:
        _print(_why_parts.told(decision, rows), position, whole=whole)
    return 0


def _rows(answers: Answers, decision: str) -> list[dict[str, Any]]:
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


def _is_elsewhere(row: dict[str, Any]) -> bool:
    return bool(row["part"] == "input" and row["name"] == "elsewhere")


def find(answers: Answers, text: str) -> tuple[str | None, str]:
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


def _at(answers: Answers, text: str, position: int, index: int) -> tuple[str, str]:
    asked = "SELECT id, known_as, type, run FROM events WHERE position = $1 AND event_index = $2"
    found = answers.all(asked, [position, index])
    if not found:
        raise NotFound(f"an event at {text}", f"{_REMEDY}; the tables end at {answers.position}")
    [(event, known_as, type_, run)] = found
    if known_as != "decision.made.v1":
        raise NoDecision(text, type_, run)
    return event, run


def _list(answers: Answers, run: str, *, json: bool) -> int:
    rows = answers.rows("SELECT * FROM decided($1)", [run])
    if json:
        for row in rows:
            _show.emit({"kind": "decision", "run": run, **_show_times(row)})
        _show.emit({"kind": "decisions", "run": run, "position": answers.position})
        return 0
    columns = [_show.Column("at", whole=True), *map(_show.Column, ("agent", "question"))]
    columns += [_show.Column("selected"), _show.Column("margin", right=True)]
    shown = [
        [
            row["address"],
            row["agent"],
            _show.cut(row["question"]),
            _show.cut(row["selected"]),
            "" if row["margin"] is None else f"{row['margin']:+g}",
        ]
        for row in rows
    ]
    if shown:
        _show.write(_show.table(columns, shown), "")
        _show.hint(f"one of them: hansard why {rows[0]['address']}")
    _show.write(f"{counted(len(rows), 'decision')} of run {run}, as of position {answers.position}")
    return 0


def _show_times(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "at": _why_parts.moment(row["at"])}


def _page(
    decision: str, rows: list[dict[str, Any]], position: int, path: Path, *, json: bool
) -> int:
    data = _why_page.render(_why_parts.told(decision, rows), position)
    if path == STDOUT:
        sys.stdout.buffer.write(data)
        return 0
    _page_file.write(path, data)
    if json:
        line = {"kind": "page", "decision": decision, "path": str(path), "bytes": len(data)}
        _show.emit({**line, "position": position})
    else:
        _show.write(str(path))
    return 0


def _print(told: Told, position: int, *, whole: bool) -> None:
    _show.write(f"{told.question}  {told.selected}", style="bold")
    _show.write("\n".join(told.sentences))
    for part in told.parts:
        _show.write("", part.title)
        columns = [
            _show.Column(name, whole=number + 1 == len(part.columns))
            for number, name in enumerate(part.columns)
        ]
        shown, _, word = (part.rows, [], "") if whole else part.folded()
        rows = [[_show.cut(text, 120) for text in row] for row in shown]
        if word and part.fold == "newest":
            _show.write(f"{word}; --all lists them")
        _show.write(_show.table(columns, rows))
        if word and part.fold != "newest":
            _show.write(f"{word}; --all lists them")
    _show.write("", f"as of position {position}")
    at = told.address.partition(".")[0]
    _show.hint(f"the run as it stood then: hansard run show {told.run} --at {at}")
