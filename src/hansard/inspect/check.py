"""What the recheck of a workspace tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hansard.bus.validation.check import Finding, Summary
from hansard.inspect.answer import Answer


class Found(Answer):
    """A finding."""

    finding: Finding

    def lines(self) -> Iterator[dict[str, Any]]:
        """The finding, its kind first."""
        fields = msgspec.structs.asdict(self.finding)
        yield {"finding": fields.pop("kind"), "wrong": fields.pop("wrong"), **fields}


class Checked(Answer):
    """What a recheck came to."""

    summary: Summary

    def lines(self) -> Iterator[dict[str, Any]]:
        """The summary of the workspace."""
        yield {"summary": self.summary.workspace, **msgspec.structs.asdict(self.summary)}
