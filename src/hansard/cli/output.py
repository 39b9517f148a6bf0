"""What commands print: tables for people, NDJSON for programs.

A command asks `hansard.inspect` or `hansard.agents` and hands the answer to `show`, with what
people are to read of it. That alone knows which of the two is wanted.

Recorded text is shown, never obeyed: control characters are escaped and markup is not read.

rich is imported by what is shown to people: programs, which take NDJSON, wait for none of it. Nor
does a table, or a line, in a pipe.
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
from hansard.bus.times import Clock, EventTime, Time
from hansard.domain.choices import counted
from hansard.domain.errors import CallerError
from hansard.domain.values import SAFE_INT
from hansard.inspect.answer import Answer, plain_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from hansard.domain.steps import Step
    from hansard.inspect.payloads import Payloads


T = TypeVar("T")

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


class _Plain:
    """What a table takes of rich's Text, where no colour is shown."""

    def __init__(self, plain: str = "") -> None:
        self.plain = plain

    @property
    def cell_len(self) -> int:
        from rich.cells import cell_len

        return cell_len(self.plain)

    def append(self, text: str) -> None:
        self.plain += text

    def append_text(self, text: Text) -> None:
        self.plain += text.plain


def _text(plain: str = "", style: str = "") -> Text:
    """A text in a style; where stdout shows none, one without."""
    if not _may_show_styles():
        return cast("Text", _Plain(plain))
    from rich.text import Text

    return Text(plain, style=style)


def _may_show_styles() -> bool:
    """Whether rich may show a style on stdout; where it may, rich decides."""
    return sys.stdout.isatty() or not os.environ.keys().isdisjoint(_SHOWN_ANYWHERE)


_SHOWN_ANYWHERE = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables by which rich shows styles also where there is no terminal."""


class Lines(msgspec.Struct, frozen=True):
    """Lines of text, each as it is to stand there."""

    lines: list[Text]


class Hint(msgspec.Struct, frozen=True):
    """A word for people alone, on stderr."""

    text: str


class Bytes(msgspec.Struct, frozen=True):
    """Bytes as they are: a page, a file's content."""

    data: bytes


Part: TypeAlias = "RenderableType | Lines | Hint | Bytes"

STDOUT = Path("-")
"""A file's name that is stdout."""


class TwoAnswers(CallerError):
    """The page and the line about it cannot both be what stdout holds."""

    def __init__(self) -> None:
        super().__init__("-o - writes the page to stdout, where --json would write too: leave one")


def check_one_answer(path: Path | None, *, json: bool) -> None:
    """Raise TwoAnswers where a page is to go where --json writes."""
    if path == STDOUT and json:
        raise TwoAnswers


def show(answer: T, people: str | Callable[[T], Iterable[Part]], *, json: bool) -> None:
    """An answer: a line of NDJSON for each of its lines, or what people are to read of it."""
    if json:
        for line in lines(answer):
            emit(line)
        return
    for part in [people] if isinstance(people, str) else people(answer):
        if isinstance(part, Hint):
            hint(part.text)
        else:
            write(part)


def page(data: bytes, path: Path, plain: object, *more: Hint, json: bool) -> None:
    """A page to a file, and where it is; or to stdout and nothing else. Raises Unwritable."""
    if path == STDOUT:
        write(Bytes(data))
        return
    write_whole(path, data)
    show(plain, lambda _: [str(path), *more], json=json)


def lines(answer: Any) -> Iterator[Any]:
    """An answer as objects for programs: a list is each of its own, what is whole one."""
    if isinstance(answer, list):
        for each in answer:
            yield from lines(each)
    elif isinstance(answer, Answer):
        yield from answer.lines()
    else:
        yield answer


def write(*parts: RenderableType | Lines | Bytes, style: str = "") -> None:
    """People's text to stdout: without colour in a pipe or under NO_COLOR, no blanks at its ends.

    Texts are escaped as `plain_text` does.
    """
    for part in parts:
        if isinstance(part, Bytes):
            sys.stdout.flush()
            sys.stdout.buffer.write(part.data)
            sys.stdout.flush()
            continue
        if isinstance(part, str):
            part = styled(part, style)  # noqa: PLW2901 -- a text is its lines
        if isinstance(part, Lines) and not _may_show_styles():
            sys.stdout.writelines(f"{line.plain.rstrip()}\n" for line in part.lines)
            continue
        from rich.console import Console

        console = Console(
            file=sys.stdout, width=LINE_COLUMNS, highlight=False, markup=False, emoji=False
        )
        if isinstance(part, Lines) and console.color_system is None:
            sys.stdout.writelines(f"{line.plain.rstrip()}\n" for line in part.lines)
            continue
        with console.capture() as captured:
            for shown in part.lines if isinstance(part, Lines) else [part]:
                console.print(shown, style=style, soft_wrap=isinstance(part, Lines))
        sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def styled(text: str, style: str = "") -> Lines:
    """A text's lines in one style, escaped."""
    return Lines([_text(line, style) for line in plain_text(text, lines=True).split("\n")])


def hint(text: str) -> None:
    """A word on what to do next: stderr, so that stdout holds the answer alone."""
    sys.stderr.write(plain_text(text, lines=True) + "\n")


def hint_erased(fetch: Payloads) -> None:
    """Say which payloads were not there when they were fetched, each once."""
    while fetch.erased:
        hint(f"shown as a reference: {fetch.erased.pop(0)}")


@contextlib.contextmanager
def progress(*whats: str) -> Generator[Callable[[str, int, int], None]]:
    """Yield a function that takes the name of a bar, how much is done, and of how much.

    The bars are on stderr, where that is a terminal, from the first call on that leaves work to do.
    """
    with contextlib.ExitStack() as stack:
        update: Callable[[str, int, int], None] | None = None

        def report(what: str, done: int, total: int) -> None:
            nonlocal update
            if update is None and done < total and sys.stderr.isatty():
                update = stack.enter_context(_bars(whats))
            if update is not None:
                update(what, done, total)

        yield report


@contextlib.contextmanager
def _bars(whats: Iterable[str]) -> Generator[Callable[[str, int, int], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        tasks = {what: shown.add_task(what, total=None) for what in whats}
        yield lambda what, done, total: shown.update(tasks[what], completed=done, total=total)


@contextlib.contextmanager
def positions() -> Generator[Callable[[int, int], None]]:
    """Yield a function that shows how far a log is read, and how long it is."""
    with progress("positions") as update:
        yield lambda done, total: update("positions", done, total)


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


def cell(text: object, style: str = "") -> Text:
    """A table's cell."""
    from rich.text import Text

    return Text(plain_text("" if text is None else str(text)), style=style)


def _cell(text: str, style: str = "") -> Text:
    """A cell of a table that is shown as lines."""
    return _text(plain_text(text), style)


def status_cell(status: str) -> Text:
    """A status in its colour."""
    return cell(status, STYLES.get(status, ""))


class Column(msgspec.Struct, frozen=True):
    """A column: `right` for numbers, `whole` where no character may be cut to fit the terminal,
    `short` where a value is cut to a preview.

    `of` says what stands there of a row; else it is the row's attribute of the column's name.
    `styles` has the colours of what may stand there.
    """

    name: str
    of: Callable[[Any], object] | None = None
    right: bool = False
    whole: bool = False
    short: bool = False
    styles: Mapping[Any, str] = {}

    def cell(self, row: Any) -> Text:
        """What stands in this column of a row."""
        value = self.of(row) if self.of else getattr(row, self.name.replace(" ", "_"))
        if hasattr(value, "plain"):
            return cast("Text", value)
        text = _in_words(value)
        return _cell(cut(text) if self.short else text, self.styles.get(text, ""))


def _in_words(value: object) -> str:
    """A value in a table's cell."""
    match value:
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case datetime():
            return moment(value)
        case list() | tuple() | dict():
            return ", ".join(map(str, value))
        case None:
            return ""
        case _:
            return str(value)


def listing(columns: Sequence[Column], rows: Iterable[object]) -> Lines:
    """A table of what each column says of each row."""
    return table(columns, [[column.cell(row) for column in columns] for row in rows])


def table(columns: Sequence[Column], rows: Iterable[Sequence[Text | str]]) -> Lines:
    """A table without lines. On a narrow terminal, what may be cut is cut, and nothing else."""
    cells = [[_cell(item) if isinstance(item, str) else item for item in row] for row in rows]
    for index, width in _cuts(columns, cells).items():
        for row in cells:
            row[index].truncate(width, overflow="ellipsis")
    cells.insert(0, [_cell(column.name, "bold") for column in columns])
    widths = [max(row[index].cell_len for row in cells) for index in range(len(columns))]
    return Lines([_line(row, columns, widths) for row in cells])


def _line(row: Sequence[Text], columns: Sequence[Column], widths: Sequence[int]) -> Text:
    """A table's cells side by side."""
    made = _text()
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
    from rich.table import Table
    from rich.text import Text

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


def time(text: str | None) -> str:
    """The same of a time as it is told to programs (ISO 8601)."""
    return moment(datetime.fromisoformat(text)) if text else ""


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
    return cut(_scalar_text(short), most)


def _scalar_text(short: Any) -> str:
    try:
        return msgspec.json.encode(short).decode()
    except RecursionError:  # only of a whole value
        return _scalar_text(_shortened(short, WHOLE))


def arguments_preview(plain: Any, most: int | None = PREVIEW_CHARACTERS) -> str:
    """A call's arguments in one line."""
    if not isinstance(plain, dict) or "$blob" in plain:
        return preview(plain, most)
    parts = (
        f"{plain_text(name)}={_scalar_text(_shortened(value, most))}"
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
    """A record's fields by the names that it is told by."""
    config = record.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag_field else {}
    names = zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True)
    return {**tag, **{item: getattr(record, name) for item, name in names}}


def result_preview(step: Step, result: Any, most: int | None = PREVIEW_CHARACTERS) -> str:
    """What came of a step, in one line."""
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
"""Each clock in words."""


def event_time(time: EventTime) -> str:
    """A time to the second."""
    at = time.moment
    if at is None:
        return cut(time.at)
    return moment(at) if at.tzinfo else f"{at:%Y-%m-%d %H:%M:%S}"


def shown_time(time: EventTime | Time) -> str:
    """The same with the clock's name where it is not the log's; empty where nobody knows."""
    if time.at is None or time.clock is Clock.IMPORT:
        return ""
    text = event_time(EventTime(time.at, time.clock))
    return text if time.clock is Clock.LOG else f"{text} ({time.clock.value})"


def imported(time: EventTime | None) -> list[str]:
    """What is to be said once where times are not known."""
    if time is None:
        return []
    return [f"imported {event_time(time)}: where no time stands, its source gives none"]


def offset(ms: float) -> str:
    """How long after a beginning."""
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
    """What was used up: `cost` is in US dollars."""
    return ", ".join(
        f"cost ${number(amount)}" if name == "cost" else f"{cut(name)} {number(amount)}"
        for name, amount in used.items()
    )


def number(amount: float) -> str:
    """A number: whole where it is, else to six digits."""
    whole = float(amount).is_integer() and abs(amount) <= SAFE_INT
    return f"{amount:,.0f}" if whole else f"{amount:,.6g}"
