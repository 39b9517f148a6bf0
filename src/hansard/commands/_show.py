"""What commands print: tables for people, NDJSON for programs.

Recorded text is shown, never obeyed: control characters are escaped and markup is not read.
"""

from __future__ import annotations

import itertools
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from hansard.domain import values
from hansard.domain.counted import counted
from hansard.domain.errors import BadValue
from hansard.domain.steps import Failure, Step

PREVIEW_CHARACTERS = 60
"""Of a value in a table; `--full` and `--json` give all of it."""

LINE_COLUMNS = 1_000_000
"""No line is broken by us: a pipe has no width, and a terminal wraps what is too long."""

WHOLE = 2**40
"""Characters: more than any value has."""

DEPTH_MAX = 32
"""Deepest nesting that a preview shows; it is far beyond what fits into one."""

CUT_COLUMNS_MIN = 10
"""To this a narrow terminal may cut a column of names or values."""

_PADDING = (0, 2, 0, 0)

STYLES = {
    "completed": "green",
    "failed": "red",
    "blocked": "red",
    "in_doubt": "bold yellow",
    "requested": "yellow",
    "not_done": "yellow",
    "open": "yellow",
    "cancelled": "yellow",
}


class Lines(msgspec.Struct, frozen=True):
    """Lines of text, each as it is to stand there."""

    lines: list[Text]


def write(*parts: RenderableType | Lines, style: str = "") -> None:
    """People's text to stdout: without colour in a pipe or under NO_COLOR, no blanks at its ends.

    Texts are escaped as `plain_text` does.
    """
    console = Console(
        file=sys.stdout, width=LINE_COLUMNS, highlight=False, markup=False, emoji=False
    )
    for part in parts:
        if isinstance(part, str):
            part = Lines([Text(line, style) for line in plain_text(part, lines=True).split("\n")])  # noqa: PLW2901 -- a text is its lines
        if isinstance(part, Lines) and console.color_system is None:
            sys.stdout.writelines(f"{line.plain.rstrip()}\n" for line in part.lines)
            continue
        with console.capture() as captured:
            for shown in part.lines if isinstance(part, Lines) else [part]:
                console.print(shown, style=style, soft_wrap=isinstance(part, Lines))
        sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def hint(text: str) -> None:
    """A word on what to do next: stderr, so that stdout holds the answer alone."""
    sys.stderr.write(plain_text(text, lines=True) + "\n")


def _fallback(value: Any) -> Any:
    return str(value)


_ENDS = re.compile("[\x7f-\x9f\u2028\u2029]")
"""In JSON these stand in texts alone."""

_encoder = msgspec.json.Encoder(enc_hook=_fallback)


def emit(value: Any) -> None:
    """One line of NDJSON on stdout, as whoever splits lines sees it: what else ends a line, and C1
    controls, are escaped. What is nested too deep for this process is cut, aloud.
    """
    try:
        line = _encoder.encode(value)
    except RecursionError:
        hint("a value is nested too deep to be shown whole: it ends in '…'")
        line = _encoder.encode(_shortened(value, WHOLE))
    text = _ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", line.decode())
    sys.stdout.write(text + "\n")


class _Escapes(dict[int, str]):
    """Each character that does not print as an escape, found out when it is first met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if not char.isprintable():
            char = char.encode("unicode_escape", "backslashreplace").decode()
        self[code] = char
        return char


_ESCAPES = _Escapes()
_ESCAPES_IN_LINES = _Escapes({ord("\n"): "\n", ord("\t"): "\t"})


def plain_text(text: str, *, lines: bool = False) -> str:
    """A text that cannot move the cursor or change colours: what does not print is escaped."""
    if text.isprintable():
        return text
    return text.translate(_ESCAPES_IN_LINES if lines else _ESCAPES)


def cell(text: object, style: str = "") -> Text:
    """A table's cell."""
    return Text(plain_text("" if text is None else str(text)), style=style)


def status_cell(status: str) -> Text:
    """A status in its colour."""
    return cell(status, STYLES.get(status, ""))


class Column(msgspec.Struct, frozen=True):
    """A column: `right` for numbers, `whole` where no character may be cut."""

    name: str
    right: bool = False
    whole: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[Text | str]]) -> Lines:
    """A table without lines. On a narrow terminal, what may be cut is cut, and nothing else."""
    cells = [[item if isinstance(item, Text) else cell(item) for item in row] for row in rows]
    for index, width in _cuts(columns, cells).items():
        for row in cells:
            row[index].truncate(width, overflow="ellipsis")
    cells.insert(0, [cell(column.name, "bold") for column in columns])
    widths = [max(row[index].cell_len for row in cells) for index in range(len(columns))]
    return Lines([_line(row, columns, widths) for row in cells])


def _line(row: Sequence[Text], columns: Sequence[Column], widths: Sequence[int]) -> Text:
    """A table's cells side by side."""
    made = Text()
    for item, column, width in zip(row, columns, widths, strict=True):
        missing = " " * (width - item.cell_len)
        gap = " " * _PADDING[1]
        made.append(missing if column.right else "")
        made.append_text(item)
        made.append(gap if column.right else missing + gap)
    return made


def _cuts(columns: Sequence[Column], cells: list[list[Text]]) -> dict[int, int]:
    """The columns to cut and their widths, so that a line fits the terminal if it can."""
    if not sys.stdout.isatty():
        return {}
    widths = [
        max([len(column.name), *(row[index].cell_len for row in cells)])
        for index, column in enumerate(columns)
    ]
    soft = {i: widths[i] for i, c in enumerate(columns) if not c.whole and not c.right}
    over = sum(widths) + _PADDING[1] * len(widths) - shutil.get_terminal_size().columns
    while over > 0 and soft and max(soft.values()) > CUT_COLUMNS_MIN:
        widest = max(soft, key=soft.__getitem__)
        soft[widest] -= 1
        over -= 1
    return {index: width for index, width in soft.items() if width < widths[index]}


def pairs(rows: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one a line."""
    made = Table(box=None, pad_edge=False, show_header=False, padding=_PADDING)
    made.add_column(no_wrap=True, style="bold")
    made.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, ""):
            made.add_row(cell(name), value if isinstance(value, Text) else cell(value))
    return made


def moment(time: datetime) -> str:
    """A time for people: UTC, to the second."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def duration(ms: float) -> str:
    """A duration for people."""
    if not ms:
        return ""
    return f"{ms:,.1f} ms" if ms < 1_000 else f"{ms / 1_000:,.2f} s"  # noqa: PLR2004 -- ms a second


def size(count: int) -> str:
    """A number of bytes for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1_024:  # noqa: PLR2004 -- bytes a KiB
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1_024
    return f"{amount:,.1f} TiB"


def cut(text: str, most: int | None = PREVIEW_CHARACTERS) -> str:
    """A text of at most so many characters."""
    text = plain_text(text if most is None else text[: most + 1])
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def preview(plain: Any, most: int | None = PREVIEW_CHARACTERS) -> str:
    """A recorded value in one line; what is kept elsewhere is told by its size."""
    short = _shortened(plain, most)
    if isinstance(plain, dict) and isinstance(short, str):
        return short  # a blob, told by its size
    return cut(_said(short), most)


def _said(short: Any) -> str:
    try:
        return msgspec.json.encode(short).decode()
    except RecursionError:  # only of a whole value
        return _said(_shortened(short, WHOLE))


def recorded(raw: msgspec.Raw) -> Any:
    """The plain values of a recorded payload as they are stored, references included.

    What is nested too deep for this process is told by its size.
    """
    try:
        return msgspec.json.decode(bytes(raw))
    except RecursionError:
        return {"$blob": {"size": len(bytes(raw))}}


def arguments_preview(plain: Any, most: int | None = PREVIEW_CHARACTERS) -> str:
    """A call's arguments in one line."""
    if not isinstance(plain, dict) or "$blob" in plain:
        return preview(plain, most)
    parts = (
        f"{plain_text(name)}={_said(_shortened(value, most))}"
        for name, value in itertools.islice(plain.items(), most)
    )
    return cut(", ".join(parts), most)


def _shortened(plain: Any, most: int | None, depth: int = 0) -> Any:
    """A value of which no more is left than a preview of so many characters can show."""
    if most is None:
        return plain
    if depth > DEPTH_MAX:
        return "…" if isinstance(plain, dict | list) else plain
    match plain:
        case str():
            return plain[: most + 1]
        case {"$blob": dict() as told} if len(plain) == 1:
            return f"<{told.get('size', 0):,} bytes>"
        case {"$parts": dict() as told} if len(plain) == 1:
            of = told.get("of", [])
            new = [it for it in of if isinstance(it, str)] if isinstance(of, list) else []
            return [f"<{told.get('size', 0):,} bytes, new in it:>", "".join(new)[: most + 1]]
        case {"$append": dict() as told} if len(plain) == 1:
            added = _shortened(told.get("items", []), most, depth + 1)
            rest = added if isinstance(added, list) else [added]
            return [f"<{told.get('count')} items of step {told.get('to')}>", *rest]
        case dict():
            kept = itertools.islice(plain.items(), most + 1)
            return {key: _shortened(value, most, depth + 1) for key, value in kept}
        case list():
            return [_shortened(item, most, depth + 1) for item in plain[: most + 1]]
        case _:
            return plain


def failure_text(error: Failure) -> str:
    """A recorded error in one line."""
    return f"{error.type}: {error.message}" if error.message else error.type


def result_preview(step: Step, result: Any, most: int | None = PREVIEW_CHARACTERS) -> str:
    """What came of a step, in one line."""
    if step.error is not None:
        why = failure_text(step.error)
        return cut(f"rule {step.rule!r}: {step.error.message}" if step.rule else why, most)
    if step.status.value != "completed":
        return ""
    if step.streamed:
        closed = ", reader stopped" if step.closed else ""
        return cut(f"{counted(len(step.items), 'item')}{closed}: {preview(result, None)}", most)
    return preview(result, most)


def jsonable(value: Any) -> Any:
    """A revived value as JSON can say it; what JSON has no word for stays tagged."""
    try:
        return values.plain(value)
    except BadValue:
        return str(value)
