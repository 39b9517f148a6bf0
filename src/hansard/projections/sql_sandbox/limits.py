"""What one question may cost, and what a pool of workers may."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

SQL_CHARACTERS_MAX = 100_000
"""Length of a question: a person's are some hundred, a program's some thousand."""

PREVIEW_CHARACTERS = 2_000
"""Of an error's text: DuckDB repeats the question in it."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one question may cost. What is over ends it, what is over of an answer is cut."""

    wall_s: float = 10.0
    """From the question to its answer; then the worker is killed."""

    cpu_s: int = 10
    """Of one core; the kernel kills the worker."""

    memory_mib: int = 512
    """What DuckDB may hold. What escapes it (one huge value) meets the bound of the process, which
    is twice as much above what the process needs for itself."""

    rows_max: int = 10_000
    bytes_max: int = 32 * 1024 * 1024
    """Of an answer, as it is sent."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool may cost."""

    workers_max: int = 2
    """Questions at a time: each is given one core and its memory."""

    spares: int = 1
    """Workers that are started before they are asked for: starting one takes 0.4 s."""

    waiting_max: int = 64
    """Questions that wait for a worker; one more is turned away."""

    queue_s: float = 30.0
    """Longest wait for a worker."""

    answers_max: int = 200
    """Questions that a worker answers before it is replaced."""


ONE_QUESTION = Bounds(workers_max=1, spares=0)
"""For whoever asks once: no worker is started for a question that does not come."""


# What the door and its workers say to each other: a line's length, JSON, and an answer's bytes.

LENGTH = struct.Struct("<I")
HEAD_BYTES_MAX = 1024 * 1024
"""Of the JSON: an answer's rows come after it."""


class Hello(msgspec.Struct, frozen=True):
    """A worker's first word: what it was able to do to itself."""

    network: bool
    """It has a network namespace of its own, with nothing in it."""

    root: bool
    """It sees no files but the generations."""


class TableHeader(msgspec.Struct, frozen=True):
    """A table of whoever asks: `size` bytes of Arrow follow the question."""

    name: str
    size: int


class Ask(msgspec.Struct, frozen=True):
    """A question: `folder` is the generation's name, `position` where it stands; `parameters` are
    for the places of the SQL that are left open (`?`, `$1`); `tables` follow it.

    Of one that is `streamed` the rows come before the answer's head, in chunks: the length of each
    and its bytes, a body of its own, of which there is at least one; 0 ends them.

    A body is an Arrow IPC stream where `arrow` is asked for, which takes a worker that has it; else
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
    """An answer's head: a body of `size` bytes follows; or what is wrong with the question.

    `wrong` is `not allowed`, `failed`, `memory`, `table` (one that was given cannot be taken) or
    `gone` (the generation cannot be opened).
    `cut` is `rows` or `bytes` where there were more.
    """

    size: int = 0
    rows: int = 0
    cut: str | None = None
    engine_ms: float = 0.0
    open_ms: float = 0.0
    wrong: str | None = None
    text: str = ""


def framed(head: Ask | AnswerHead | Hello) -> bytes:
    """A head as it is sent."""
    body = msgspec.json.encode(head)
    return LENGTH.pack(len(body)) + body
