"""How the programs of this package log: lines for people on stderr, or JSON when asked for.

A library that uses `hansard` sets up structlog as it likes; only the command line calls `setup`.
"""

from __future__ import annotations

import logging
import os
import sys

import structlog


def setup(*, json: bool = False, debug: bool = False) -> None:
    """Send log lines to stderr: stdout belongs to what was asked for."""
    stamped = structlog.processors.TimeStamper(fmt="iso", utc=True)
    shared: list[structlog.typing.Processor] = [structlog.processors.add_log_level, stamped]
    if json:
        shared += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        shared.append(structlog.dev.ConsoleRenderer(colors=colours))
    structlog.configure(
        processors=shared,
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.DEBUG if debug else logging.WARNING
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
