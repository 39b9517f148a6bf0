"""Tools that are run elsewhere; their arguments may have any names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hansard.agents.steps.tools import ToolSpec


class ForwardedTool(ToolSpec, frozen=True, kw_only=True):
    """Tool that another program runs."""

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, unchanged."""
        del args
        return dict(kwargs)

    def passed(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments by name."""
        return (), dict(arguments)
