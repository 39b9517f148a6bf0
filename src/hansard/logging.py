"""How the programs of this package log: lines for people at a terminal; JSON, one object a line,
for whatever else reads stderr, and always of a service.

A library only logs (`hansard.bus.loggers`); the command line alone calls `setup`. structlog is
imported when the first line is logged: with what it brings along, that is a quarter of what a
command costs, and most commands log nothing.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import cached_property
from typing import Any


def setup(
    *, json: bool = False, debug: bool = False, service: bool = False, stream: Any = None
) -> None:
    """Send log lines to stderr: stdout belongs to what was asked for.

    A program that has configured structlog says itself where lines go and what they look like:
    it is left alone.

    Keyword Args:
        json: Write JSON at a terminal, too.
        debug: Write all lines, else warnings.
        service: Somebody collects the lines of this program, wherever it was started: JSON.
        stream: Where lines go in stderr's place: has `write`, `flush` and `isatty`.
    """
    if _configured():
        return
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    terminal = stream.isatty()
    json = json or service or not terminal
    colours = terminal and not os.environ.get("NO_COLOR")
    handler.setFormatter(_Later(json=json, colours=colours))
    ours = logging.getLogger("hansard")
    ours.handlers[:] = [handler]
    ours.propagate = False
    ours.setLevel(logging.DEBUG if debug else logging.WARNING)


def _configured() -> bool:
    """Whether the program has configured structlog; it is not imported to see that."""
    structlog = sys.modules.get("structlog")
    return structlog is not None and structlog.is_configured()


class _Later(logging.Formatter):
    """structlog's formatter, made when it is used."""

    def __init__(self, *, json: bool, colours: bool) -> None:
        super().__init__()
        self._json = json
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        return self._made.format(record)

    @cached_property
    def _made(self) -> logging.Formatter:
        import structlog  # noqa: PLC0415 -- imported when something is logged, see above

        shared: list[structlog.typing.Processor] = [
            structlog.stdlib.add_log_level,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ]
        renderer: list[structlog.typing.Processor] = [
            structlog.dev.ConsoleRenderer(colors=self._colours)
        ]
        if self._json:
            renderer = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
        return structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[remove, *renderer]
        )
