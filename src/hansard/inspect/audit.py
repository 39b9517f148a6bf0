"""What is missing or odd in the record, and what happened in a run: from the tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from hansard.inspect.answer import Answer
from hansard.inspect.decision_parts import moment
from hansard.projections.reader import Reader

VIEWS = {
    "orphan_intents": "intents without a known outcome",
    "late_outcomes": "outcomes that came when their agent had left",
    "policy_overrides": "words of the gate, and doubts, that somebody went over",
    "retries": "retry storms, and calls repeated in vain",
    "threshold_flips": "decisions that turn if their threshold moves by {flip:g}",
    "gaps": "what could be missing, or does not add up",
}
"""The views that find something, and what."""

_FINDINGS = """
    SELECT * FROM findings($1)
    WHERE run = $2 OR ($2 IS NULL
        AND (run IS NULL OR run NOT IN (SELECT r.run FROM runs AS r WHERE r.probe IS NOT NULL)))
    ORDER BY view, kind, run, try_cast(split_part(address, '.', 1) AS BIGINT), step, fact
"""


class Audited(msgspec.Struct, tag_field="kind", tag="audited", kw_only=True):
    """Of a run, or (None) of the workspace, less the forks of probes: how much was found, by view,
    as of a position.
    """

    run: str | None
    findings: int
    views: dict[str, int]
    position: int


class Audit(Answer):
    """What was found, as the tables have it, thresholds moved by `flip`."""

    found: list[dict[str, Any]]
    flip: float
    summary: Audited

    def lines(self) -> Iterable[object]:
        """Each finding, then the summary."""
        findings = [{**row, "kind": "finding", "what": row["kind"]} for row in self.found]
        return (*findings, self.summary)


class Walked(msgspec.Struct, tag_field="kind", tag="trail", kw_only=True):
    """How many events of a run there are, as of a position."""

    run: str
    events: int
    position: int


class Trail(Answer):
    """What happened in a run, in order, as the tables have it; times as programs are told them."""

    events: list[dict[str, Any]]
    summary: Walked

    def lines(self) -> Iterable[object]:
        """Each event, then how many."""
        return (*self.events, self.summary)


def audit(reader: Reader, run: str | None, flip: float) -> Audit:
    """What the audit views find, in all real runs or in one, which may be a probe's fork; `flip` is
    how far thresholds are moved.
    """
    found = reader.rows(_FINDINGS, [flip, run])
    views = {view: sum(row["view"] == view for row in found) for view in VIEWS}
    summary = Audited(run=run, findings=len(found), views=views, position=reader.position)
    return Audit(found=found, flip=flip, summary=summary)


def trail(reader: Reader, run: str) -> Trail:
    """What happened in a run."""
    rows = reader.rows("SELECT * FROM trail($1)", [run])
    events = [{"kind": "event", "run": run, **row, "at": moment(row["at"])} for row in rows]
    return Trail(events=events, summary=Walked(run=run, events=len(rows), position=reader.position))
