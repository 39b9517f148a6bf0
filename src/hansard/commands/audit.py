"""`hansard audit` and `hansard trail`: what is missing or odd, and what happened in a run."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from hansard.bus.errors import NotFound
from hansard.commands import _show
from hansard.commands._answers import Answers, answering
from hansard.commands._open import Ambiguous, Options
from hansard.commands._why_parts import moment
from hansard.domain.counted import counted

VIEWS = {
    "orphan_intents": "intents without a known outcome",
    "late_outcomes": "outcomes that came when their agent had left",
    "policy_overrides": "words of the gate, and doubts, that somebody went over",
    "retries": "retry storms, and calls repeated in vain",
    "threshold_flips": "decisions that turn if their threshold moves by {flip:g}",
    "gaps": "what could be missing, or does not add up",
}
"""The views that find something, and what."""

SHOWN_MAX = 20
"""Findings of one view that people are shown; --json gives all."""

RUNS_MAX = 9

_FINDINGS = """
    SELECT * FROM findings($1) WHERE $2 IS NULL OR run = $2
    ORDER BY view, kind, run, try_cast(split_part(address, '.', 1) AS BIGINT), step, fact
"""


async def audit(options: Options, run: str | None, flip: float, *, json: bool) -> int:
    """Print what the audit views find, in all or in one run; 1 where that is anything.

    `flip` is how far thresholds are moved. Raises NotFound, Ambiguous, ProjectionError.
    """
    async with answering(options) as answers:
        run = find(answers, run) if run is not None else None
        found = answers.rows(_FINDINGS, [flip, run])
        position = answers.position
    if json:
        _emit(found, run, position)
    else:
        _print(found, run, flip, position)
    return 1 if found else 0


async def trail(options: Options, run: str, *, json: bool) -> int:
    """Print what happened in a run. Raises NotFound, Ambiguous, ProjectionError."""
    async with answering(options) as answers:
        run = find(answers, run)
        rows = answers.rows("SELECT * FROM trail($1)", [run])
        position = answers.position
    if json:
        for row in rows:
            _show.emit({"kind": "event", "run": run, **row, "at": moment(row["at"])})
        _show.emit({"kind": "trail", "run": run, "events": len(rows), "position": position})
        return 0
    names = ("at", "time", "who", "what", "call", "detail")
    columns = [_show.Column(name, whole=name == "at") for name in names]
    shown = [
        [
            row["address"],
            moment(row["at"])[11:23],
            _show.cut(row["who"]),
            row["what"],
            _call(row),
            _show.cut(row["detail"] or "", 120),
        ]
        for row in rows
    ]
    _show.write(_show.table(columns, shown), "")
    began = f" from {moment(rows[0]['at'])[:10]} on" if rows else ""
    _show.write(f"{counted(len(rows), 'event')} of run {run}{began}, as of position {position}")
    return 0


def _call(row: dict[str, Any]) -> str:
    if row["step"] is None:
        return ""
    tool = f" {row['tool']}" if row["tool"] is not None else ""
    return _show.cut(f"#{row['step']}{tool}")


def find(answers: Answers, text: str) -> str:
    """A run from its id, a prefix that no other run has, or `last`. Raises NotFound, Ambiguous."""
    if text == "last":
        asked = "SELECT run FROM runs ORDER BY first_position DESC LIMIT 1"
        found = [run for (run,) in answers.all(asked)]
    else:
        asked = "SELECT run FROM runs WHERE starts_with(run, $1) ORDER BY run = $1 DESC, run"
        found = [run for (run,) in answers.all(f"{asked} LIMIT {RUNS_MAX}", [text])] if text else []
    if not found:
        raise NotFound(f"run {text!r}", "see 'hansard runs'")
    if len(found) > 1 and found[0] != text:
        raise Ambiguous(text, found)
    first: str = found[0]
    return first


def _emit(found: list[dict[str, Any]], run: str | None, position: int) -> None:
    for row in found:
        _show.emit({**row, "kind": "finding", "what": row["kind"]})
    counts = {view: sum(row["view"] == view for row in found) for view in VIEWS}
    line = {"kind": "audited", "run": run, "findings": len(found), "views": counts}
    _show.emit({**line, "position": position})


def _print(found: list[dict[str, Any]], run: str | None, flip: float, position: int) -> None:
    rows: list[list[Text | str]] = []
    for view, what in VIEWS.items():
        count = sum(row["view"] == view for row in found)
        rows.append(
            [view, _show.cell(f"{count:,}", "red" if count else ""), what.format(flip=flip)]
        )
    columns = [_show.Column("view", whole=True), _show.Column("found", right=True)]
    _show.write(_show.table([*columns, _show.Column("what it looks for")], rows), "")
    for view in VIEWS:
        of_view = [row for row in found if row["view"] == view]
        for row in of_view[:SHOWN_MAX]:
            where = f" [{row['address']}]" if row["address"] else ""
            of_run = f"run {row['run']}: " if run is None and row["run"] is not None else ""
            _show.write(_show.plain_text(f"{row['kind']}: {of_run}{row['fact']}{where}"))
        if len(of_view) > SHOWN_MAX:
            _show.hint(f"and {len(of_view) - SHOWN_MAX:,} more of {view}: see them with --json")
    of = f"run {run}" if run is not None else "the workspace"
    said = f"{counted(len(found), 'finding')}" if found else "nothing is missing or odd"
    _show.write(f"{of}, as of position {position}: {said}")
