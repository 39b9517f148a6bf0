"""Reads: the run or event that a text names, answers, and the escaping of recorded text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from hansard.agents.workspace import Workspace, read_lives
from hansard.bus.errors import NotFound
from hansard.domain.choices import counted
from hansard.domain.errors import CallerError
from hansard.domain.roles.model import KIND
from hansard.domain.steps import Step, Withheld
from hansard.projections.snapshots import Reader

# Typed text, resolved to a run or an event, in the log and in the tables.

CANDIDATES_MAX = 8
"""Most runs listed for an ambiguous prefix."""

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


# Safe rendering of recorded text.


class _Escapes(dict[int, str]):
    """Escapes of unprintable characters, computed on first use."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if not char.isprintable():
            char = char.encode("unicode_escape", "backslashreplace").decode()
        self[code] = char
        return char


_PASSWORD = re.compile(r"(?<=://)[^@/\s]+(?=@)")
_ESCAPES = _Escapes()
_ESCAPES_IN_LINES = _Escapes({ord("\n"): "\n", ord("\t"): "\t"})


def plain_text(text: str, *, lines: bool = False) -> str:
    """Escape unprintable characters, so that a text cannot move the cursor or change colours."""
    if text.isprintable():
        return text
    return text.translate(_ESCAPES_IN_LINES if lines else _ESCAPES)


def masked(text: str) -> str:
    """Remove the passwords from addresses in a text."""
    return _PASSWORD.sub("***", text)


_WITHHELD = {
    Withheld.OUTCOME: "withheld: answered with an outcome on record",
    Withheld.SHADOW: "withheld: answered by its shadow",
    Withheld.REFUSED: "withheld: without an answer",
    Withheld.EDIT: "withheld: answered with an edited result",
}


def withheld_text(step: Step) -> str:
    """Return how a fork withheld a step's effect; empty if it did not."""
    return _WITHHELD[step.withheld] if step.withheld is not None else ""


T = TypeVar("T", bound=msgspec.Struct)


def by_name(kind: type[T], /, *sources: object, **fields: Any) -> T:
    """Build a struct: its required fields that are not given are the attributes of that name of the
    first source that has one.
    """
    for name in _required(kind):
        if name not in fields:
            fields[name] = getattr(next(each for each in sources if hasattr(each, name)), name)
    return kind(**fields)


@cache
def _required(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.required)


class Rows(Protocol):
    """Rows of an SQL query, and the position that they hold for."""

    @property
    def position(self) -> int:
        """Position up to which the tables were made."""
        ...

    def dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dict by column name."""
        ...


class Answer(msgspec.Struct, kw_only=True):
    """Answer with several lines for programs, or with more content than its lines."""

    _lines: ClassVar[tuple[str, ...]] = ()
    """Fields with the lines, in order; without any, the answer itself is the line."""

    def lines(self) -> Iterable[object]:
        """Return the objects that programs get, one per line."""
        if not self._lines:
            return (self,)
        return [each for name in self._lines for each in _each(getattr(self, name))]


def _each(part: Any) -> Iterable[object]:
    if isinstance(part, dict):
        return part.values()
    if isinstance(part, list):
        return part
    return () if part is None else (part,)


class Listed(Answer):
    """Things of one kind, as of a position of the log.

    Attributes:
        position: The position.
    """

    _listed: ClassVar[str]
    """Name of the field that holds the things."""

    position: int

    def lines(self) -> Iterator[object]:
        """Yield each thing, then their number and the position."""
        rows = getattr(self, self._listed)
        yield from rows
        yield {"kind": self._listed, "count": len(rows), "position": self.position}
