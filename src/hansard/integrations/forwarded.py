"""Tools of others: what runs them is elsewhere, and their arguments may have any names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hansard.agents.steps.tools import ToolSpec


class ForwardedTool(ToolSpec, frozen=True, kw_only=True):
    """A tool that somebody else runs."""

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """As they are, all by name."""
        del args
        return dict(kwargs)

    def passed(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All by name."""
        return (), dict(arguments)
