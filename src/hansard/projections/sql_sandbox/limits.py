"""What one question may cost, and what a pool of workers may."""

from __future__ import annotations

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
