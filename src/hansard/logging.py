"""How the programs of this package log: lines for people on stderr, or JSON when asked for.

A library only logs (`hansard.bus._logging`); the command line alone calls `setup`.
"""

from __future__ import annotations

import logging
import os
import sys

import structlog


def setup(*, json: bool = False, debug: bool = False) -> None:
    """Send log lines to stderr: stdout belongs to what was asked for."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    renderer: list[structlog.typing.Processor] = [structlog.dev.ConsoleRenderer(colors=colours)]
    if json:
        renderer = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[remove, *renderer]
        )
    )
    ours = logging.getLogger("hansard")
    ours.handlers[:] = [handler]
    ours.propagate = False
    ours.setLevel(logging.DEBUG if debug else logging.WARNING)
