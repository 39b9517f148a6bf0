"""Log output of the command line and the service.

Lines for people at a terminal; JSON, one object a line, for any other reader of stderr and always
for a service.

The library only emits log events (`hansard.bus.loggers`); only the command line calls `setup`.
structlog is imported when the first line is logged: importing it takes a quarter of a command's run
time, and most commands log nothing.
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
    """Send log lines to stderr; stdout is reserved for a command's result.

    Does nothing if the program has configured structlog itself.

    Keyword Args:
        json: Write JSON at a terminal, too.
        debug: Write all lines; otherwise warnings and above.
        service: The lines are collected by another program, so write JSON wherever this was
            started.
        stream: A stream to use instead of stderr; has `write`, `flush` and `isatty`.
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
    """Return whether the program has configured structlog, without importing it."""
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
