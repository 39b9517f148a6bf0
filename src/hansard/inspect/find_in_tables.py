"""What `find` finds, and the names of roles, for what is answered from the tables."""

from __future__ import annotations

from hansard.bus.errors import NotFound
from hansard.domain.roles.model import KIND
from hansard.inspect.find import CANDIDATES_MAX, only
from hansard.inspect.roles import EVENT_REMEDY
from hansard.projections.reader import Reader

_NEWEST = "SELECT run FROM runs WHERE probe IS NULL ORDER BY first_position DESC LIMIT 1"
_RUNS = "SELECT run FROM runs WHERE starts_with(run, $1) ORDER BY run = $1 DESC, run LIMIT $2"
_EVENT = "SELECT position, event_index FROM events WHERE id = $1"
_ROLES = """
    SELECT DISTINCT stream FROM events WHERE run IS NULL AND starts_with(stream, $1) ORDER BY 1
"""


def find_run(reader: Reader, text: str) -> str:
    """A run from its id, a prefix that no other run has, or `last`, the newest that is no fork of a
    probe. Raises NotFound, Ambiguous.
    """
    if text == "last":
        found = [run for (run,) in reader.all(_NEWEST)]
    else:
        asked = [text, CANDIDATES_MAX + 1]
        found = [run for (run,) in reader.all(_RUNS, asked)] if text else []
    return text if text in found else only(found, text)


def find_event(reader: Reader, text: str) -> tuple[int, int]:
    """Where an event stands, from its id: position and index. Raises NotFound."""
    for position, index in reader.all(_EVENT, [text]):
        return position, index
    raise NotFound(f"event {text!r}", EVENT_REMEDY)


def role_names(reader: Reader) -> list[str]:
    """Every role that was ever defined."""
    head = f"{KIND}/"
    streams = [stream.removeprefix(head) for (stream,) in reader.all(_ROLES, [head])]
    return [stream.replace("%2F", "/").replace("%25", "%") for stream in streams]
