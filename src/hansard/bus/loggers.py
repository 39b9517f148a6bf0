"""Loggers for a library: silent below a warning unless the program configures logging.

structlog's own default prints to stdout, which belongs to the program. structlog is imported on the
first log line: importing it would take half the time of a first `connect`.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, MutableMapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger


def logger(name: str) -> BoundLogger:
    """Return a structlog logger over the standard library's; fields become a record's `extra`."""
    return cast("BoundLogger", _Later(name))


def unexpected(error: BaseException) -> dict[str, str]:
    """Return the fields of a log line for an unexpected error: its type, and where it was raised.

    Neither its message nor traceback lines: both may contain users' data.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return {"error": type(error).__name__}
    last = frames[-1]
    return {"error": type(error).__name__, "where": f"{Path(last.filename).name}:{last.lineno}"}


NO_FIELDS: Mapping[str, object] = MappingProxyType({})


class _Later:
    """A logger that is created on first use, with the fields of each of its lines."""

    def __init__(self, name: str, fields: Mapping[str, object] = NO_FIELDS) -> None:
        self._name = name
        self._fields = fields

    def bind(self, **fields: object) -> _Later:
        """Return a logger whose lines have these fields, too."""
        return _Later(self._name, {**self._fields, **fields})

    def __getattr__(self, method: str) -> Any:
        def say(*arguments: object, **fields: object) -> Any:
            level = _QUIET.get(method)
            if level is not None and not logging.getLogger(self._name).isEnabledFor(level):
                return None
            return getattr(_made(self._name), method)(*arguments, **{**self._fields, **fields})

        return say  # also for a caller that only passes it on and may never log


_QUIET = {"debug": logging.DEBUG, "info": logging.INFO}
"""Levels that are silent by default: nothing is imported for them."""


@cache
def _made(name: str) -> BoundLogger:
    import structlog  # noqa: PLC0415 -- imported when something is logged, see above

    wrapped = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            _complete,
            structlog.stdlib.render_to_log_kwargs,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("BoundLogger", wrapped)


def _complete(log: logging.Logger, _: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Add the fields to the text where no logging is configured: Python then prints only that."""
    if not log.hasHandlers():
        fields = ", ".join(f"{name}={value}" for name, value in line.items() if name != "event")
        line["event"] = f"hansard: {line['event']}" + (f" ({fields})" if fields else "")
    return line
