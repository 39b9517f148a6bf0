"""Packages of an extra: brought in where they are first needed, with the remedy where they lack."""

from __future__ import annotations

import importlib
from typing import Any

from hansard.domain.errors import CallerError


class ExtraMissing(CallerError):
    """What was asked for takes a package that is not installed; nothing was read.

    Attributes:
        package: Its name.
        extra: Of which extra of Hansard it is.
    """

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            f"{what} takes {package}, which is not installed: pip install 'hansard[{extra}]'"
        )
        self.package = package
        self.extra = extra


def imported(module: str, what: str, package: str, extra: str) -> Any:
    """A module of an extra. Raises ExtraMissing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ExtraMissing(what, package, extra) from error
