"""Resolve typed text to a run or an event, in the log and in the tables."""

from __future__ import annotations

import re

from hansard.agents.workspace import Workspace, read_lives
from hansard.bus.errors import NotFound
from hansard.domain.choices import counted
from hansard.domain.errors import CallerError
from hansard.domain.roles.model import KIND
from hansard.projections.snapshots import Reader

CANDIDATES_MAX = 8
"""Most runs listed for an ambiguous prefix."""

ID_CHARACTERS = 36
"""Characters of a whole id, a UUID."""

RUN_REMEDY = "see 'hansard runs'"
EVENT_REMEDY = "give an event's id or its address (position.index)"

_ADDRESS = re.compile(r"(?P<position>[0-9]{1,18})\.(?P<index>[0-9]{1,9})")


class Ambiguous(CallerError):
    """Error: several runs or decisions begin with a text."""

    def __init__(self, text: str, candidates: list[str], several: str) -> None:
        shown = "\n  ".join(sorted(candidates)[:CANDIDATES_MAX])
        more = "\n  and more" if len(candidates) > CANDIDATES_MAX else ""
        super().__init__(
            f"{several} begin with {text!r}: give more of the id, or 'last'\n  {shown}{more}"
        )
        self.text = text
        self.candidates = candidates


async def find_run(workspace: Workspace, text: str) -> str:
    """Find a run by its id, a unique prefix, or `last`, the newest that is no fork of a probe.

    Raises NotFound, Ambiguous.
    """
    if text == "last":
        newest = [life for life in await read_lives(workspace.log) if life.probe is None]
        if not newest:
            raise NotFound("the last run", f"workspace {workspace.log.workspace!r} has no runs yet")
        return newest[0].run
    known = await workspace.log.runs()
    if text in known:
        return text
    return only([run for run in known if text and run.startswith(text)], text)


def only(runs: list[str], text: str) -> str:
    """Return the only run found. Raises NotFound, Ambiguous."""
    if not runs:
        raise NotFound(f"run {text!r}", RUN_REMEDY)
    if len(runs) > 1:
        raise Ambiguous(text, runs, counted(len(runs), "run"))
    return runs[0]


def address(text: str) -> tuple[int, int] | None:
    """Parse an event's address into position and index; None if it is none."""
    match = _ADDRESS.fullmatch(text)
    return (int(match["position"]), int(match["index"])) if match is not None else None


_NEWEST = "SELECT run FROM runs WHERE probe IS NULL ORDER BY first_position DESC LIMIT 1"
_RUNS = "SELECT run FROM runs WHERE starts_with(run, $1) ORDER BY run = $1 DESC, run LIMIT $2"
_EVENT = "SELECT position, event_index FROM events WHERE id = $1"
_ROLES = """
    SELECT DISTINCT stream FROM events WHERE run IS NULL AND starts_with(stream, $1) ORDER BY 1
"""


def find_run_in(reader: Reader, text: str) -> str:
    """Find a run as `find_run`, in the tables. Raises NotFound, Ambiguous."""
    if text == "last":
        runs = [run for (run,) in reader.all(_NEWEST)]
    else:
        request = [text, CANDIDATES_MAX + 1]
        runs = [run for (run,) in reader.all(_RUNS, request)] if text else []
    return text if text in runs else only(runs, text)


def find_event(reader: Reader, text: str) -> tuple[int, int]:
    """Return an event's position and index by its id. Raises NotFound."""
    for position, at in reader.all(_EVENT, [text]):
        return position, at
    raise NotFound(f"event {text!r}", EVENT_REMEDY)


def role_names(reader: Reader) -> list[str]:
    """Return every role that was ever defined."""
    head = f"{KIND}/"
    streams = [stream.removeprefix(head) for (stream,) in reader.all(_ROLES, [head])]
    return [stream.replace("%2F", "/").replace("%25", "%") for stream in streams]
