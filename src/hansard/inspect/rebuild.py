"""What a rebuild of the tables came to."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from hansard.inspect.answer import Answer
from hansard.projections.rebuild import Rebuilt


class Table(msgspec.Struct, tag_field="kind", tag="table", kw_only=True):
    """A table in short; `equal` where it was compared."""

    table: str
    rows: int
    digest: str
    equal: bool | UnsetType = UNSET


class Summary(msgspec.Struct, tag_field="kind", tag="rebuilt", kw_only=True):
    """How far the tables go, and which differ where they were compared."""

    position: int
    seconds: float
    differing: list[str] | UnsetType = UNSET


class Rebuild(Answer):
    """What a rebuild or a comparison made, in so many seconds."""

    made: Rebuilt
    took_s: float

    @property
    def tables(self) -> list[Table]:
        """Each table."""
        made = self.made
        return [
            Table(
                table=name,
                rows=digest.rows,
                digest=digest.sum,
                equal=UNSET if made.before is None else name not in made.differing,
            )
            for name, digest in made.tables.items()
        ]

    def lines(self) -> Iterator[Table | Summary]:
        """Each table, then the summary."""
        yield from self.tables
        yield Summary(
            position=self.made.position,
            seconds=round(self.took_s, 3),
            differing=UNSET if self.made.before is None else self.made.differing,
        )
