"""Limits of one query, and of a pool of workers."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

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
