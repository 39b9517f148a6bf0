"""`hansard sql`: one question, answered from the published tables by a worker process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from hansard.cli import output
from hansard.cli.commands._answers import place_of, published
from hansard.cli.commands._role_answers import ask_as
from hansard.cli.commands._whole_file import whole
from hansard.cli.opening import Options
from hansard.domain.counted import counted
from hansard.domain.errors import CallerError
from hansard.projections.sql_sandbox.answer import Answer, as_json, jsonable
from hansard.projections.sql_sandbox.limits import ONE_QUESTION, Limits
from hansard.projections.sql_sandbox.sandbox import Door

Format = Literal["table", "ndjson", "csv", "parquet", "arrow"]

ENDINGS: dict[str, Format] = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".csv": "csv",
    ".txt": "table",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
"""What a file's name says of its format."""


class NotAsked(CallerError):
    """There is no question, or no way to answer it as it was asked."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question and how it is to be answered."""

    sql: str
    format: Format | None = None
    out: Path | None = None
    wait_for: int | None = None
    limits: Limits = Limits()
    role: str | None = None
    by: str = "person"
    csv_formulas: bool = False

    @property
    def chosen(self) -> Format:
        """The format: what was said, else what the file's name says, else a table.

        Raises NotAsked for a name that says something else.
        """
        if self.format is not None or self.out is None or not self.out.suffix:
            return self.format or "table"
        try:
            return ENDINGS[self.out.suffix.lower()]
        except KeyError:
            raise NotAsked(
                f"{self.out.name!r} ends in {self.out.suffix!r}, which is not written: name it "
                f"{', '.join(ENDINGS)}, or say what to write with --format"
            ) from None


def question(text: str | None, file: Path | None) -> str:
    """The SQL: the argument, a file, or stdin. Raises NotAsked."""
    if text is not None and file is not None:
        raise NotAsked("there are two questions, an argument and -f: give one of them")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise NotAsked(f"{str(file)!r} cannot be read ({error}): name a text file") from error
    if text is not None and text != "-":
        return text
    if text is None and sys.stdin.isatty():
        raise NotAsked("there is no question: give SQL as an argument, with -f or on stdin")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise NotAsked(f"stdin cannot be read ({error}): write UTF-8") from error


async def sql(options: Options, asked: Asked) -> int:
    """Answer a question. Raises NotAsked, SqlError, ProjectionError, BusError, Unwritable, and for
    a role NotFound and NotGranted.
    """
    if asked.chosen in {"parquet", "arrow"} and asked.out is None and sys.stdout.isatty():
        raise NotAsked(f"{asked.chosen} is not for a terminal: give -o FILE")
    if asked.role is not None:
        answer = await _as_role(options, asked, asked.role)
    else:
        async with (
            Door(place_of(options), ONE_QUESTION) as door,  # its worker starts meanwhile
            published(options, wait_for=asked.wait_for),
        ):
            answer = await door.ask(asked.sql, asked.limits)
    _give(answer, asked)
    output.hint(_summary(answer, asked))
    return 0


async def _as_role(options: Options, asked: Asked, role: str) -> Answer:
    """Answer from the role's own tables: nothing else is within reach of the question."""
    if asked.wait_for is not None:
        raise NotAsked(
            "--wait-for names a position of the workspace, and a role has its own: leave it out, "
            "a role is always answered as of now"
        )
    return await ask_as(options, role, asked.sql, asked.limits, asked.by)


def _give(answer: Answer, asked: Asked) -> None:
    if asked.out is not None:
        with whole(asked.out) as file:
            file.write(_bytes(answer, asked))
    elif asked.chosen == "table":
        output.write(_table(answer))
    elif asked.chosen == "ndjson":
        for row in answer.dicts():
            output.emit(jsonable(row))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(_bytes(answer, asked))


def _bytes(answer: Answer, asked: Asked) -> bytes:
    match asked.chosen:
        case "table":
            lines = _table(answer).lines
            return "".join(f"{line.plain.rstrip()}\n" for line in lines).encode()
        case "ndjson":
            return "".join(f"{as_json(row)}\n" for row in answer.dicts()).encode()
        case "csv":
            return answer.csv(formulas=asked.csv_formulas)
        case "parquet":
            return answer.parquet()
        case "arrow":
            return answer.arrow()


def _table(answer: Answer) -> output.Lines:
    rows = [[_text(value) for value in row] for row in answer.tuples()]
    numeric = answer.numeric
    columns = [
        output.Column(name, right=name in numeric, whole=name in numeric) for name in answer.columns
    ]
    return output.table(columns, rows)


def _text(value: Any) -> str:
    """A value in a table."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case list() | dict() | bytes() | tuple():
            return as_json(value)
        case _:
            return str(value)


def _summary(answer: Answer, asked: Asked) -> str:
    rows = f"{counted(answer.rows, 'row')}"
    match answer.cut:
        case "rows":
            more = f", and there are more: give --rows (now {asked.limits.rows_max:,})"
        case "bytes":
            size = output.size(asked.limits.bytes_max)
            more = f", and there are more, beyond {size}: ask for fewer columns or rows"
        case _:
            more = ""
    return f"as of position {answer.position}: {rows}{more}"
