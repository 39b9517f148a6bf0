"""Rows of an answer as a worker sends them without Arrow: MessagePack, with extensions for missing
types.

Dates, times, decimals and numbers beyond 64 bits are extensions with a text each. A body is a
sequence of parts, each preceded by its length (`hansard.projections.sql_sandbox._wire.LENGTH`): the
columns, then any number of lists of rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cached_property
from typing import Any

import msgspec

# Limits of one query, and of a pool of workers.

SQL_CHARACTERS_MAX = 100_000
"""Longest query, in characters: a person's has some hundred, a program's some thousand."""

PREVIEW_CHARACTERS = 2_000
"""Most characters of an error's text: DuckDB repeats the query in it."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one query. A query that exceeds one is stopped; an answer that does is cut."""

    wall_s: float = 10.0
    """Time from the query to its answer, in seconds; then the worker is killed."""

    cpu_s: int = 10
    """CPU time on one core, in seconds; then the kernel kills the worker."""

    memory_mib: int = 512
    """Memory of DuckDB. An allocation that evades it (one huge value) meets the limit of the
    process, which is twice as much on top of the process's own needs.
    """

    rows_max: int = 10_000
    bytes_max: int = 32 * 1024 * 1024
    """Bytes of an answer, as sent."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a pool."""

    workers_max: int = 2
    """Most concurrent queries: each has one core and its memory."""

    spares: int = 1
    """Workers started in advance: starting one takes 0.4 s."""

    waiting_max: int = 64
    """Most queries that wait for a worker; one more is refused."""

    queue_s: float = 30.0
    """Longest wait for a worker, in seconds."""

    answers_max: int = 200
    """Queries that a worker answers before it is replaced."""


ONE_QUESTION = Bounds(workers_max=1, spares=0)
"""For a single query: no spare worker is started."""


# Messages between the door and its workers: a length, JSON, and an answer's bytes.

LENGTH = struct.Struct("<I")
HEAD_BYTES_MAX = 1024 * 1024
"""Most bytes of the JSON head, after which an answer's rows follow."""


class Hello(msgspec.Struct, frozen=True):
    """A worker's first message: the restrictions that it could apply to itself."""

    network: bool
    """True if it has its own, empty network namespace."""

    root: bool
    """True if it sees no files but the generations."""


class TableHeader(msgspec.Struct, frozen=True):
    """A table of the caller's: `size` bytes of Arrow follow the query."""

    name: str
    size: int


class Query(msgspec.Struct, frozen=True):
    """A query.

    `folder` is the generation's name, `position` its position; `parameters` fill the placeholders
    of the SQL (`?`, `$1`); `tables` follow it. If `streamed`, the rows are sent before the answer's
    head, in
    chunks: the length of each and its bytes, a body of its own, of which there is at least one; 0
        ends
    them. A body is an Arrow IPC stream if `arrow` is set, which needs a worker with pyarrow; else
    rows (`hansard.projections.sql_sandbox.rows`).
    """

    folder: str
    position: int
    sql: str
    limits: Limits
    parameters: list[Any] = []
    tables: list[TableHeader] = []
    streamed: bool = False
    arrow: bool = False


class AnswerHead(msgspec.Struct, frozen=True):
    """An answer's head, followed by a body of `size` bytes; or an error.

    `wrong` is `not allowed`, `failed`, `memory`, `table` (one that was passed is invalid) or `gone`
    (the generation cannot be opened). `cut` is `rows` or `bytes` if there were more.
    """

    size: int = 0
    rows: int = 0
    cut: str | None = None
    engine_ms: float = 0.0
    open_ms: float = 0.0
    wrong: str | None = None
    text: str = ""


def framed(head: Query | AnswerHead | Hello) -> bytes:
    """Encode a head for sending."""
    body = msgspec.json.encode(head)
    return LENGTH.pack(len(body)) + body


Make = Callable[[Any], Any]
Pack = Callable[[Sequence[tuple[Any, ...]]], bytes]

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
"""Range of integers in MessagePack."""

_EXTENSIONS: dict[type, int] = {int: 1, Decimal: 2, date: 3, datetime: 4, time: 5}
_READ: dict[int, Callable[[str], Any]] = {
    1: int,
    2: Decimal,
    3: date.fromisoformat,
    4: datetime.fromisoformat,
    5: time.fromisoformat,
}

_AS_THEY_ARE = frozenset(
    {
        *(
            "boolean",
            "tinyint",
            "smallint",
            "integer",
            "bigint",
            "utinyint",
            "usmallint",
            "uinteger",
        ),
        *("ubigint", "float", "double", "varchar", "blob", "enum"),
    }
)
"""DuckDB's types whose values MessagePack has; by the `id` of its DuckDBPyType."""

_SENT_AS_TEXT = frozenset(
    {*("interval", "bit", "bignum", "time with time zone", "variant", "geometry")}
)
"""Types that other programs read differently, or not at all: they are sent as DuckDB's text."""

_ZONED = "timestamp with time zone"
_NESTED_KEYS = frozenset({"list", "array", "struct", "map", "tuple", "union"})

_NUMBERS = (
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER"),
    *("UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL"),
)


class Column(msgspec.Struct, frozen=True, array_like=True):
    """A column: its name, and its DuckDB type."""

    name: str
    kind: str

    @property
    def is_number(self) -> bool:
        """True if it holds numbers."""
        return self.kind.partition("(")[0] in _NUMBERS and not self.kind.endswith("]")


# ---------------------------------------------------------------- encoding


def portable(kind: Any, *, zoned: bool) -> str:
    """Return the DuckDB type in which a type's values are sent: the same, or one with texts for
    types that only DuckDB has. `zoned`: times with a zone may be sent unchanged.
    """
    match kind.id:
        case name if name in _SENT_AS_TEXT:
            return "VARCHAR"
        case name if name == _ZONED and not zoned:
            return "TIMESTAMP"
        case "list":
            return f"{portable(kind.children[0][1], zoned=zoned)}[]"
        case "array":
            (_, child), (_, size) = kind.children
            return f"{portable(child, zoned=zoned)}[{size}]"
        case "map":
            key, value = (portable(each, zoned=zoned) for _, each in kind.children)
            return f"MAP({key}, {value})"
        case "struct":
            fields = (
                f"{quoted(name)} {portable(each, zoned=zoned)}" for name, each in kind.children
            )
            return f"STRUCT({', '.join(fields)})"
        case _:
            return str(kind)


def recast(query: str, columns: Sequence[tuple[str, Any]], *, zoned: bool) -> str | None:
    """Return a query that casts these columns (names and types) to portable types; None if they
    are.
    """
    targets = [portable(kind, zoned=zoned) for _, kind in columns]
    if targets == [str(kind) for _, kind in columns]:
        return None
    casts = (
        f"CAST(#{at} AS {kind}) AS {quoted(name)}"
        for at, (kind, (name, _)) in enumerate(zip(targets, columns, strict=True), 1)
    )
    return f"SELECT {', '.join(casts)} FROM ({_unended(query)}\n)"  # noqa: S608 -- the asker's own


def _unended(query: str) -> str:
    """Return one statement without its semicolon and trailing comments."""
    from hansard.projections._engine import engine  # noqa: PLC0415 -- who reads rows has none

    data = query.encode()
    tokens = engine.tokenize(query)
    while tokens and tokens[-1][1] == engine.token_type.comment:
        tokens.pop()
    last = tokens[-1][0] if tokens else len(data)
    return data[:last].decode() if data[last : last + 1] == b";" else query


def quoted(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def makes(kinds: Sequence[Any]) -> Pack:
    """Return a function that encodes a list of rows, for columns of these types."""
    converters = [_make(kind) for kind in kinds]
    encode = msgspec.msgpack.Encoder().encode
    if not any(converters):
        return encode

    def packed(rows: Sequence[tuple[Any, ...]]) -> bytes:
        return encode(
            [
                [
                    value if make is None else make(value)
                    for make, value in zip(converters, row, strict=True)
                ]
                for row in rows
            ]
        )

    return packed


class Batch:
    """Rows fetched together; like pyarrow's batches, they know their size."""

    def __init__(self, rows: Sequence[tuple[Any, ...]], pack: Pack) -> None:
        self._rows = rows
        self._pack = pack

    @cached_property
    def packed(self) -> bytes:
        """The encoded rows."""
        return self._pack(self._rows)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """Size of the encoded rows, in bytes."""
        return len(self.packed)

    def slice(self, first: int, count: int) -> Batch:
        """Return some of the rows."""
        return Batch(self._rows[first : first + count], self._pack)


def body(columns: Sequence[Column], batches: Sequence[Batch]) -> bytes:
    """Encode columns and rows as a body."""
    parts = [msgspec.msgpack.encode(columns), *(each.packed for each in batches)]
    return b"".join(piece for part in parts for piece in (LENGTH.pack(len(part)), part))


def _make(kind: Any) -> Make | None:
    """Return a function that converts a type's values for MessagePack; None if it is not needed."""
    match kind.id:
        case name if name in _AS_THEY_ARE:
            return None
        case name if name == _ZONED:
            return _zoned
        case "list" | "array":
            child = _make(kind.children[0][1]) or _same
            return lambda value: None if value is None else [child(each) for each in value]
        case "struct":
            fields = {name: _make(each) or _same for name, each in kind.children}
            return lambda value: (
                None
                if value is None
                else {name: make(value[name]) for name, make in fields.items()}
            )
        case "map":
            return _make_map(kind.children[0][1], kind.children[1][1])
        case _:
            return _sent


def _make_map(key_kind: Any, value_kind: Any) -> Make:
    """Return a converter of maps to pairs, since a key may be of any type: DuckDB returns those
    with nested keys as two lists.
    """
    key, value = _make(key_kind) or _same, _make(value_kind) or _same
    is_nested = key_kind.id in _NESTED_KEYS

    def pairs(data: Any) -> Any:
        if data is None:
            return None
        items = zip(data["key"], data["value"], strict=True) if is_nested else dict.items(data)
        return [[key(one), value(other)] for one, other in items]

    return pairs


def _same(value: Any) -> Any:
    return value


def _zoned(value: Any) -> Any:
    return _sent(value.replace(tzinfo=UTC) if isinstance(value, datetime) else value)


def _sent(value: Any) -> Any:
    """Convert a value by its Python type."""
    match value:
        case None | bool() | float() | str() | bytes():
            return value
        case int():
            fits = INTEGER_MIN <= value <= INTEGER_MAX
            return value if fits else msgspec.msgpack.Ext(_EXTENSIONS[int], str(value).encode())
        case list() | tuple():
            return [_sent(each) for each in value]
        case dict():
            return {str(name): _sent(each) for name, each in value.items()}
        case datetime() | date() | time():
            return msgspec.msgpack.Ext(_EXTENSIONS[type(value)], value.isoformat().encode())
        case Decimal():
            return msgspec.msgpack.Ext(_EXTENSIONS[Decimal], str(value).encode())
        case _:
            return str(value)


# ---------------------------------------------------------------- decoding


def columns(data: bytes) -> list[Column]:
    """Decode the columns of a body. Raises ValueError if it is invalid."""
    return msgspec.msgpack.decode(next(_parts(data)), type=list[Column])


def rows(data: bytes) -> Iterator[tuple[Any, ...]]:
    """Decode the rows of a body. Raises ValueError if it is invalid."""
    parts = _parts(data)
    width = len(msgspec.msgpack.decode(next(parts), type=list[Column]))
    decoder = msgspec.msgpack.Decoder(list[tuple[Any, ...]], ext_hook=_read)
    for part in parts:
        for row in decoder.decode(part):
            if len(row) != width:
                message = f"a row has {len(row)} values, and there are {width} columns"
                raise ValueError(message)
            yield row


def _parts(data: bytes) -> Iterator[memoryview]:
    view, at = memoryview(data), 0
    while at < len(view):
        if len(view) - at < LENGTH.size:
            raise ValueError("an answer ends within a length")
        (length,) = LENGTH.unpack_from(view, at)
        at += LENGTH.size
        if len(view) - at < length:
            raise ValueError("an answer ends within its rows")
        yield view[at : at + length]
        at += length


def _read(code: int, data: memoryview) -> Any:
    if code not in _READ:
        message = f"an answer has a value of the unknown kind {code}"
        raise ValueError(message)
    return _READ[code](str(data, "utf-8"))
