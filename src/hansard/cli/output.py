"""Output of commands: tables for people, NDJSON for programs.

A command queries `hansard.inspect` or `hansard.agents` and passes the answer to `show` with its
rendering for people. Only `show` knows which of the two formats was requested.

Recorded text is shown literally: control characters are escaped and markup is not interpreted.

rich is imported only where styled output is written: NDJSON and output to a pipe do not load it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import msgspec

from hansard.bus.file_lock import write_whole
from hansard.bus.reads import Clock, EventTime, Time
from hansard.cli.common import GlobalOptions
from hansard.domain.choices import counted
from hansard.domain.errors import CallerError
from hansard.domain.values import SAFE_INT
from hansard.inspect.answer import Answer, plain_text

if TYPE_CHECKING:
    from rich.text import Text

    from hansard.domain.steps import Step
    from hansard.inspect.trace import Payloads


T = TypeVar("T")

PREVIEW_CHARACTERS = 60
"""Most characters of a value in a table; `--full` and `--json` give all of it."""

LINE_COLUMNS = 1_000_000
"""Line length without limit: a pipe has no width, and a terminal wraps by itself."""

WHOLE = 2**40
"""Width without limit, in characters."""

DEPTH_MAX = 32
"""Deepest nesting that a preview shows, far more than one line can hold."""

CUT_COLUMNS_MIN = 10
"""Smallest width to which a column of names or values may be cut on a narrow terminal."""

GAP = 2
"""Blanks between two columns."""

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


class _Plain:
    """Replacement for rich's Text where no colour is shown, with the methods that tables use."""

    def __init__(self, plain: str = "") -> None:
        self.plain = plain

    @property
    def cell_len(self) -> int:
        from rich.cells import cell_len

        return cell_len(self.plain)

    def append(self, text: str, style: str = "") -> None:  # noqa: ARG002 -- as Text has it
        self.plain += text

    def append_text(self, text: Text) -> None:
        self.plain += text.plain


def text(plain: str = "", style: str = "") -> Text:
    """Return a text in a style, or a plain one where stdout shows no styles."""
    if not _may_show_styles():
        return cast("Text", _Plain(plain))
    from rich.text import Text

    return Text(plain, style=style)


def _may_show_styles() -> bool:
    """Return whether rich may show a style on stdout; if so, rich decides."""
    return sys.stdout.isatty() or not os.environ.keys().isdisjoint(_SHOWN_ANYWHERE)


_SHOWN_ANYWHERE = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Environment variables that make rich show styles without a terminal."""


class Lines(msgspec.Struct, frozen=True):
    """Lines of text, printed as they are."""

    lines: list[Text]


class Hint(msgspec.Struct, frozen=True):
    """Hint for people, printed on stderr."""

    text: str


class Bytes(msgspec.Struct, frozen=True):
    """Bytes printed unchanged: a page, a file's content."""

    data: bytes


Part: TypeAlias = "str | Text | Lines | Hint | Bytes"

STDOUT = Path("-")
"""File name that means stdout."""


def check_one_answer(path: Path | None) -> None:
    """Raise CallerError if a page and --json would both use stdout."""
    if path == STDOUT and GlobalOptions.json:
        message = "-o - writes the page to stdout, where --json would write too: leave one"
        raise CallerError(message)


def show(answer: object, people: str | Iterable[Part]) -> None:
    """Print an answer: a line of NDJSON for each of its lines, or its parts for people.

    A generator of parts is not begun if NDJSON was requested.
    """
    if GlobalOptions.json:
        for line in lines(answer):
            emit(line)
        return
    for part in [people] if isinstance(people, str) else people:
        if isinstance(part, Hint):
            hint(part.text)
        else:
            write(part)


def deliver(data: bytes, path: Path | None) -> None:
    """Write data to a file, or to stdout without one. Raises Unwritable."""
    if path is None or path == STDOUT:
        write(Bytes(data))
    else:
        write_whole(path, data)


def page(data: bytes, path: Path, plain: object, *more: Hint) -> None:
    """Write a page to a file and print its path, or write it to stdout alone. Raises Unwritable."""
    deliver(data, path)
    if path != STDOUT:
        show(plain, [str(path), *more])


def lines(answer: Any) -> Iterator[Any]:
    """Yield an answer's objects for programs: each item of a list, else the answer itself."""
    if isinstance(answer, list):
        for each in answer:
            yield from lines(each)
    elif isinstance(answer, Answer):
        yield from answer.lines()
    else:
        yield answer


def write(part: Text | str | Lines | Bytes) -> None:
    """Write text for people to stdout.

    Without colour in a pipe or under NO_COLOR, and without trailing blanks. Texts are escaped as in
    `plain_text`.
    """
    if isinstance(part, Bytes):
        sys.stdout.flush()
        sys.stdout.buffer.write(part.data)
        sys.stdout.flush()
        return
    lines = styled(part).lines if isinstance(part, str) else getattr(part, "lines", [part])
    if _may_show_styles():
        from rich.console import Console

        console = Console(
            file=sys.stdout, width=LINE_COLUMNS, highlight=False, markup=False, emoji=False
        )
        if console.color_system is not None:
            with console.capture() as captured:
                for line in lines:
                    console.print(line, soft_wrap=True)
            sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())
            return
    sys.stdout.writelines(f"{line.plain.rstrip()}\n" for line in lines)


def plain(parts: Iterable[Part]) -> bytes:
    """Return the lines of text parts as a file has them, without styles."""
    texts = [styled(part) if isinstance(part, str) else part for part in parts]
    lines = [line.plain.rstrip() for part in texts for line in getattr(part, "lines", [part])]
    return ("\n".join(lines) + "\n").encode()


def styled(plain: str, style: str = "") -> Lines:
    """Return a text's lines in one style, escaped."""
    return Lines([text(line, style) for line in plain_text(plain, lines=True).split("\n")])


def hint(text: str) -> None:
    """Print a hint about the next command on stderr, so that stdout holds only the answer."""
    sys.stderr.write(plain_text(text, lines=True) + "\n")


def hint_erased(fetch: Payloads) -> None:
    """Print each payload that was missing when it was fetched, once."""
    while fetch.erased:
        hint(f"shown as a reference: {fetch.erased.pop(0)}")


Update: TypeAlias = Callable[[str, int, "int | None"], None]
"""Updates a progress bar: its name, the work done and the total, None if it is unknown."""


@contextlib.contextmanager
def progress(*names: str, in_bytes: bool = False) -> Generator[Update]:
    """Yield a function that updates progress bars.

    The bars are shown on stderr if it is a terminal, from the first call on that leaves work to do.
    """
    with contextlib.ExitStack() as stack:
        update: Update | None = None

        def report(name: str, done: int, total: int | None) -> None:
            nonlocal update
            if update is None and (total is None or done < total) and sys.stderr.isatty():
                update = stack.enter_context(_bars(names, in_bytes=in_bytes))
            if update is not None:
                update(name, done, total)

        yield report


@contextlib.contextmanager
def _bars(names: Iterable[str], *, in_bytes: bool) -> Generator[Update]:
    from rich import progress as bars
    from rich.console import Console

    amount = bars.DownloadColumn() if in_bytes else bars.MofNCompleteColumn()
    text = bars.TextColumn("{task.description}")
    columns = (text, bars.BarColumn(), amount, bars.TimeRemainingColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        tasks = {name: shown.add_task(name, total=None) for name in names}
        yield lambda name, done, total: shown.update(tasks[name], completed=done, total=total)


@contextlib.contextmanager
def positions() -> Generator[Callable[[int, int], None]]:
    """Yield a function that shows the position read so far, and the log's length."""
    with progress("positions") as update:
        yield lambda done, total: update("positions", done, total)


_ENDS = re.compile("[\x7f-\x9f\u2028\u2029]")
"""Line ends and control characters; in JSON they occur only inside strings."""

_encoder = msgspec.json.Encoder(enc_hook=str)


def emit(value: Any) -> None:
    """Write one line of NDJSON to stdout.

    Characters that some readers take for line ends, and C1 control characters, are escaped. A value
    nested too deep for this process is cut, with a note on stderr.
    """
    try:
        line = _encoder.encode(value)
    except RecursionError:
        hint("a value is nested too deep to be shown whole: it ends in '…'")
        line = _encoder.encode(_shortened(value, WHOLE))
    text = _ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", line.decode())
    sys.stdout.write(text + "\n")


def cell(value: object, style: str = "") -> Text:
    """Return a table cell, escaped; empty for None."""
    return text(plain_text("" if value is None else str(value)), style)


def status_cell(status: str) -> Text:
    """Return a status in its colour; a doubt has its own."""
    head, _, rest = status.partition(", ")
    return cell(status, STYLES.get("in_doubt" if rest.startswith("in doubt") else head, ""))


class Column(msgspec.Struct, frozen=True):
    """Column of a table.

    `right` aligns numbers to the right; `whole` forbids cutting to fit the terminal; `short` cuts a
    value to a preview; `optional` leaves out a column without a value; `bare` writes a number
    without separators. `of` computes the value from a row, or names the row's attribute, or a
    dict's item; the default is the column's name. `styles` maps values to colours.
    """

    name: str
    of: Callable[[Any], object] | str = ""
    right: bool = False
    whole: bool = False
    short: bool = False
    optional: bool = False
    bare: bool = False
    styles: Mapping[Any, str] = {}

    def cell(self, row: Any) -> Text:
        """Return the cell of this column for a row."""
        of = self.of or self.name.replace(" ", "_")
        value = _field(row, of) if isinstance(of, str) else of(row)
        if hasattr(value, "plain"):
            return cast("Text", value)
        words = str(value) if self.bare else _in_words(value)
        return cell(cut(words) if self.short else words, self.styles.get(words, ""))


_MARKS = {"right": ">", "whole": "!", "short": "~", "optional": "?", "bare": "#"}


def columns(
    names: str, styles: Mapping[str, Mapping[Any, str]] = {}, **of: Callable[[Any], object]
) -> tuple[Column, ...]:
    """Declare a table's columns by names with marks, as in `run! steps> changed=changed_at!`.

    A mark after a name sets a field of `Column`: `>` right, `!` whole, `~` short, `?` optional, `#`
    bare. After `=` an attribute of another name is named; `of` has functions, by name. `_` is shown
    as a blank.
    """
    made: list[Column] = []
    for each in names.split():
        name, _, attribute = each.rstrip("".join(_MARKS.values())).partition("=")
        value = of.get(name, of.get(f"{name}_", attribute))
        marked: Any = {field: mark in each for field, mark in _MARKS.items()}
        made.append(Column(name.replace("_", " "), value, **marked, styles=styles.get(name, {})))
    return tuple(made)


def _field(row: Any, name: str) -> object:
    return row.get(name) if isinstance(row, dict) else getattr(row, name)


def _in_words(value: object) -> str:
    """Render a value in a table cell."""
    match value:
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case float():
            return number(value)
        case datetime():
            return moment(value)
        case list() | tuple() | dict():
            return ", ".join(map(str, value))
        case None:
            return ""
        case _:
            return str(value)


def listing(columns: Sequence[Column], rows: Iterable[object], nothing: str = "") -> Lines:
    """Build a table with one row for each object; without rows, the sentence `nothing` if given."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    if nothing and not cells:
        return styled(nothing)
    shown = [
        index
        for index, column in enumerate(columns)
        if not column.optional or any(row[index].plain for row in cells)
    ]
    return table(
        [columns[index] for index in shown], [[row[index] for index in shown] for row in cells]
    )


def counted_listing(
    columns: Sequence[Column], rows: Sequence[object], one: str, position: int
) -> Iterator[Part]:
    """Yield a table, if it has rows, their number with the noun `one`, and the log's position."""
    if rows:
        yield listing(columns, rows)
    yield f"{counted(len(rows), one)}, as of position {position}"


def table(columns: Sequence[Column], rows: Iterable[Sequence[Text | str]]) -> Lines:
    """Build a table without rules. On a narrow terminal only columns that may be cut are cut."""
    cells = [[cell(item) if isinstance(item, str) else item for item in row] for row in rows]
    for index, width in _cuts(columns, cells).items():
        for row in cells:
            row[index].truncate(width, overflow="ellipsis")
    cells.insert(0, [cell(column.name, "bold") for column in columns])
    widths = [max(row[index].cell_len for row in cells) for index in range(len(columns))]
    return Lines([_line(row, columns, widths) for row in cells])


def _line(row: Sequence[Text], columns: Sequence[Column], widths: Sequence[int]) -> Text:
    """Join a table's cells into one line."""
    made = text()
    for item, column, width in zip(row, columns, widths, strict=True):
        missing = " " * (width - item.cell_len)
        made.append(missing if column.right else "")
        made.append_text(item)
        made.append((0 if column.right else width - item.cell_len) * " " + GAP * " ")
    return made


def _cuts(columns: Sequence[Column], cells: list[list[Text]]) -> dict[int, int]:
    """Choose the columns to cut and their widths, so that a line fits the terminal if it can."""
    if not sys.stdout.isatty():
        return {}
    widths = [
        max([len(column.name), *(row[index].cell_len for row in cells)])
        for index, column in enumerate(columns)
    ]
    soft = {i: widths[i] for i, c in enumerate(columns) if not c.whole and not c.right}
    over = sum(widths) + GAP * len(widths) - shutil.get_terminal_size().columns
    while over > 0 and soft and max(soft.values()) > CUT_COLUMNS_MIN:
        widest = max(soft, key=soft.__getitem__)
        soft[widest] -= 1
        over -= 1
    return {index: width for index, width in soft.items() if width < widths[index]}


def pairs(rows: Iterable[tuple[str, object]]) -> Lines:
    """Build a table of names and values, one pair per line; without pairs that have no value."""
    shown = [(name, value) for name, value in rows if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    lines: list[Text] = []
    for name, value in shown:
        line = text(name.ljust(width + GAP), "bold")
        line.append_text(cast("Text", value) if hasattr(value, "plain") else cell(value))
        lines.append(line)
    return Lines(lines)


def moment(time: datetime) -> str:
    """Format a time for people: UTC, to the second."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def time(text: str | None) -> str:
    """Format an ISO 8601 time for people."""
    return moment(datetime.fromisoformat(text)) if text else ""


def duration(ms: float) -> str:
    """Format a duration in milliseconds for people."""
    if not ms:
        return ""
    return f"{ms:,.1f} ms" if ms < 1_000 else f"{ms / 1_000:,.2f} s"  # noqa: PLR2004 -- ms a second


def size(count: int) -> str:
    """Format a number of bytes for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1_024:  # noqa: PLR2004 -- bytes a KiB
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1_024
    return f"{amount:,.1f} TiB"


def cut(text: str, most: int | None = PREVIEW_CHARACTERS) -> str:
    """Cut a text to at most `most` characters."""
    text = plain_text(text if most is None else text[: most + 1])
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def preview(plain: Any, most: int | None = PREVIEW_CHARACTERS) -> str:
    """Render a recorded value in one line; a value stored as a blob is shown by its size."""
    short = _shortened(plain, most)
    if isinstance(plain, dict) and isinstance(short, str):
        return short  # a blob, shown by its size
    return cut(_scalar_text(short), most)


def _scalar_text(short: Any) -> str:
    try:
        return msgspec.json.encode(short).decode()
    except RecursionError:  # only of a whole value
        return _scalar_text(_shortened(short, WHOLE))


def arguments_preview(plain: Any, most: int | None = PREVIEW_CHARACTERS) -> str:
    """Render a call's arguments in one line."""
    if not isinstance(plain, dict) or "$blob" in plain:
        return preview(plain, most)
    parts = (
        f"{plain_text(name)}={_scalar_text(_shortened(value, most))}"
        for name, value in itertools.islice(plain.items(), most)
    )
    return cut(", ".join(parts), most)


def _shortened(plain: Any, most: int | None, depth: int = 0) -> Any:
    """Shorten a value to what a preview of `most` characters can show."""
    if most is None:
        return plain
    if depth > DEPTH_MAX:
        return "…" if isinstance(plain, dict | list) else plain
    match plain:
        case str():
            return plain[: most + 1]
        case {"$blob": dict() as tail} if len(plain) == 1:
            return f"<{counted(tail.get('size', 0), 'byte')}>"
        case {"$parts": dict() as tail} if len(plain) == 1:
            of = tail.get("of", [])
            new = [it for it in of if isinstance(it, str)] if isinstance(of, list) else []
            return [
                f"<{counted(tail.get('size', 0), 'byte')}, new in it:>",
                "".join(new)[: most + 1],
            ]
        case {"$append": dict() as tail} if len(plain) == 1:
            added = _shortened(tail.get("items", []), most, depth + 1)
            rest = added if isinstance(added, list) else [added]
            return [f"<{tail.get('count')} items of step {tail.get('to')}>", *rest]
        case dict():
            kept = itertools.islice(plain.items(), most + 1)
            return {key: _shortened(value, most, depth + 1) for key, value in kept}
        case list():
            return [_shortened(item, most, depth + 1) for item in plain[: most + 1]]
        case msgspec.Struct():
            return {
                name: _shortened(value, most, depth + 1) for name, value in _fields(plain).items()
            }
        case _:
            return plain


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    """Return a record's fields by their encoded names."""
    config = record.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag_field else {}
    names = zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True)
    return {**tag, **{item: getattr(record, name) for item, name in names}}


def result_preview(step: Step, result: Any, most: int | None = PREVIEW_CHARACTERS) -> str:
    """Render a step's result in one line."""
    if step.error is not None:
        why = step.error.text
        return cut(f"rule {step.rule!r}: {step.error.message}" if step.rule else why, most)
    if step.status.value != "completed":
        return ""
    if step.streamed:
        closed = ", reader stopped" if step.closed else ""
        return cut(f"{counted(len(step.items), 'item')}{closed}: {preview(result, None)}", most)
    return preview(result, most)


CLOCKS = {
    Clock.LOG: "the log's time",
    Clock.ORIGIN: "the time of the log that the run was copied from",
    Clock.OCCURRED_AT: "as the source says",
    Clock.IMPORT: "the moment of the import: the source says no times",
}
"""Descriptions of clocks."""


def event_time(time: EventTime) -> str:
    """Format an event's time to the second."""
    at = time.moment
    if at is None:
        return cut(time.at)
    return moment(at) if at.tzinfo else f"{at:%Y-%m-%d %H:%M:%S}"


def shown_time(time: EventTime | Time) -> str:
    """Format a time, with its clock if that is not the log's; empty if the time is unknown."""
    if time.at is None or time.clock is Clock.IMPORT:
        return ""
    text = event_time(EventTime(time.at, time.clock))
    return text if time.clock is Clock.LOG else f"{text} ({time.clock.value})"


def imported(time: EventTime | None) -> list[str]:
    """Return the note that is printed once if times are unknown."""
    if time is None:
        return []
    return [f"imported {event_time(time)}: a missing time is one that the source does not give"]


def offset(ms: float) -> str:
    """Format a time offset in milliseconds."""
    sign, whole = ("-" if ms < 0 else "+"), abs(ms) / 1_000
    minutes, seconds = divmod(whole, 60)
    if not minutes:
        return f"{sign}{seconds:.3f} s"
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    clock = (
        f"{hours}:{minutes:02}:{int(seconds):02}" if hours or days else f"{minutes}:{seconds:04.1f}"
    )
    return f"{sign}{days} d {clock}" if days else f"{sign}{clock}"


def usage_text(used: dict[str, float]) -> str:
    """Render resource usage; `cost` is in US dollars."""
    return ", ".join(
        f"cost ${number(amount)}" if name == "cost" else f"{cut(name)} {number(amount)}"
        for name, amount in used.items()
    )


def number(amount: float) -> str:
    """Format a number: an integer as such, else with six digits."""
    whole = float(amount).is_integer() and abs(amount) <= SAFE_INT
    return f"{amount:,.0f}" if whole else f"{amount:,.6g}"
