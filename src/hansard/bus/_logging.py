"""Loggers for a library: silent below a warning until the program says otherwise.

structlog's own default prints everything to stdout, which belongs to whoever uses this package.
"""

from __future__ import annotations

import logging
from typing import cast

import structlog


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """A structlog logger over the standard library's; fields become a record's `extra`."""
    wrapped = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.render_to_log_kwargs,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("structlog.stdlib.BoundLogger", wrapped)
