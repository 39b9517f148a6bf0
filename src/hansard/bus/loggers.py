"""Loggers for a library: silent below a warning until the program says otherwise.

structlog's own default prints everything to stdout, which belongs to whoever uses this package. It
is imported when there is something to log: with what it brings along, that is half of the time that
a first `connect` would take.
"""

from __future__ import annotations

import logging
import traceback
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger


def logger(name: str) -> BoundLogger:
    """A structlog logger over the standard library's; fields become a record's `extra`."""
    return cast("BoundLogger", _Later(name))


def unexpected(error: BaseException) -> dict[str, str]:
    """What a line says of an error that nobody expected: its type, and where it was raised.

    Not its message, nor the lines of a traceback: what somebody gave may stand in either.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return {"error": type(error).__name__}
    last = frames[-1]
    return {"error": type(error).__name__, "where": f"{Path(last.filename).name}:{last.lineno}"}


class _Later:
    """A logger that is made when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        def say(*given: object, **fields: object) -> Any:
            level = _QUIET.get(method)
            if level is not None and not logging.getLogger(self._name).isEnabledFor(level):
                return None
            return getattr(_made(self._name), method)(*given, **fields)

        return say  # also to who only passes it on, and may never say anything


_QUIET = {"debug": logging.DEBUG, "info": logging.INFO}
"""What nobody hears unless the program says so: nothing is imported for it."""


@cache
def _made(name: str) -> BoundLogger:
    import structlog  # noqa: PLC0415 -- imported when something is logged, see above

    wrapped = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.render_to_log_kwargs,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("BoundLogger", wrapped)
