"""What commands print: tables for people, NDJSON for programs.

Recorded text is shown, never obeyed: control characters are escaped and markup is not read.
"""

from __future__ import annotations

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
from hansard.domain.errors import BadValue
from hansard.domain.steps import Failure, Step

PREVIEW_CHARACTERS = 60
"""Of a value in a table; `--full` and `--json` give all of it."""

LINE_COLUMNS = 1_000_000
"""No line is broken by us: a pipe has no width, and a terminal wraps what is too long."""

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


def write(*parts: RenderableType, style: str = "") -> None:
    """People's text to stdout: without colour in a pipe or under NO_COLOR, no blanks at its ends.

    Texts are escaped as `plain_text` does.
    """
    console = Console(
        file=sys.stdout, width=LINE_COLUMNS, highlight=False, markup=False, emoji=False
    )
    with console.capture() as captured:
        for part in parts:
            shown = plain_text(part, lines=True) if isinstance(part, str) else part
            console.print(shown, style=style, soft_wrap=isinstance(part, str))
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def hint(text: str) -> None:
    """A word on what to do next: stderr, so that stdout holds the answer alone."""
    sys.stderr.write(plain_text(text, lines=True) + "\n")


def _fallback(value: Any) -> Any:
    return str(value)


_encoder = msgspec.json.Encoder(enc_hook=_fallback)


def emit(value: Any) -> None:
    """One line of NDJSON on stdout."""
    sys.stdout.write(_encoder.encode(value).decode() + "\n")


def plain_text(text: str, *, lines: bool = False) -> str:
    """A text that cannot move the cursor or change colours: what does not print is escaped."""
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        char
        if char.isprintable() or char in kept
        else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )


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


def table(columns: Sequence[Column], rows: Iterable[Sequence[Text | str]]) -> Table:
    """A table without lines. On a narrow terminal, what may be cut is cut, and nothing else."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=_PADDING)
    cells = [[item if isinstance(item, Text) else cell(item) for item in row] for row in rows]
    for column in columns:
        made.add_column(column.name, justify="right" if column.right else "left", no_wrap=True)
    for index, width in _cuts(columns, cells).items():
        for row in cells:
            row[index].truncate(width, overflow="ellipsis")
    for row in cells:
        made.add_row(*row)
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
    text = plain_text(text)
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def preview(plain: Any, most: int | None = PREVIEW_CHARACTERS) -> str:
    """A recorded value in one line; what is kept elsewhere is told by its size."""
    short = _shortened(plain)
    if isinstance(plain, dict) and isinstance(short, str):
        return short  # a blob, told by its size
    return cut(msgspec.json.encode(short).decode(), most)


def recorded(raw: msgspec.Raw) -> Any:
    """The plain values of a recorded payload as they are stored, references included."""
    return msgspec.json.decode(bytes(raw))


def arguments_preview(plain: Any, most: int | None = PREVIEW_CHARACTERS) -> str:
    """A call's arguments in one line."""
    if not isinstance(plain, dict):
        return preview(plain, most)
    parts = (
        f"{plain_text(name)}={msgspec.json.encode(_shortened(value)).decode()}"
        for name, value in plain.items()
    )
    return cut(", ".join(parts), most)


def _shortened(plain: Any) -> Any:
    if isinstance(plain, dict):
        if plain.keys() == {"$blob"} and isinstance(plain["$blob"], dict):
            return f"<{plain['$blob'].get('size', 0):,} bytes>"
        if plain.keys() == {"$append"} and isinstance(plain["$append"], dict):
            told = plain["$append"]
            added = _shortened(told.get("items", []))
            rest = added if isinstance(added, list) else [added]
            return [f"<{told.get('count')} items of step {told.get('to')}>", *rest]
        return {key: _shortened(value) for key, value in plain.items()}
    return [_shortened(item) for item in plain] if isinstance(plain, list) else plain


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
        return cut(f"{len(step.items)} items{closed}: {preview(result, None)}", most)
    return preview(result, most)


def jsonable(value: Any) -> Any:
    """A revived value as JSON can say it; what JSON has no word for stays tagged."""
    try:
        return values.plain(value)
    except BadValue:
        return str(value)
