"""Action caches that are kept in the record: which there are, and their versions, by the tables."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from hansard.agents import artifacts
from hansard.domain.actions.kept import ACTIONS
from hansard.inspect.answer import Listed
from hansard.projections.reader import Reader


class KeptCache(msgspec.Struct, tag_field="kind", tag="cache", kw_only=True):
    """An action cache that is kept.

    Attributes:
        cache: Its name.
        versions: How many versions it has.
        heals: How many of them are heals.
        looked_at: The newest version that somebody looked at; 0 for none.
        not_looked_at: How many heals are newer than that.
        changed_at: When it had its newest version, UTC.
    """

    cache: str
    versions: int
    heals: int
    looked_at: int
    not_looked_at: int
    changed_at: datetime


class KeptCaches(Listed):
    """The caches that are kept.

    Attributes:
        position: As of which position of the log.
        caches: By their names.
    """

    _listed: ClassVar[str] = "caches"
    caches: list[KeptCache]


class KeptVersion(msgspec.Struct, tag_field="kind", tag="version", kw_only=True):
    """A version of a cache.

    Attributes:
        cache: Its name.
        version: The number.
        change: saved, healed or reverted.
        entry: Of a heal: the entry's stepIndex.
        again: Of a revert: the version that it is again.
        run: The run that it is of, or whose replay healed it.
        author: Who wrote it.
        because: Why.
        at: When, UTC.
        looked_at: Whether somebody has looked at it.
    """

    cache: str
    version: int
    change: str
    entry: int | None
    again: int | None
    run: str | None
    author: str
    because: str | None
    at: datetime
    looked_at: bool


class ActionsLog(Listed):
    """The versions of a cache.

    Attributes:
        position: As of which position of the log.
        versions: The oldest first.
    """

    _listed: ClassVar[str] = "versions"
    versions: list[KeptVersion]


_CACHES = """
    SELECT cache, versions, heals, looked_at, not_looked_at, changed_at
    FROM action_caches ORDER BY cache
"""
_LOG = """
    SELECT v.cache, v.version, v.kind AS change, v.entry, v.again, v.run, v.author, v.because,
        v.happened_at AS at, v.version <= c.looked_at AS looked_at
    FROM action_versions AS v JOIN action_caches AS c ON c.cache = v.cache
    WHERE v.cache = $1 ORDER BY v.version
"""


def caches(reader: Reader) -> KeptCaches:
    """The caches that are kept, by name."""
    found = msgspec.convert(reader.rows(_CACHES, []), list[KeptCache])
    return KeptCaches(position=reader.position, caches=found)


def log(reader: Reader, name: str) -> ActionsLog:
    """The versions of a cache. Raises NotFound."""
    found = msgspec.convert(reader.rows(_LOG, [name]), list[KeptVersion])
    if not found:
        raise artifacts.missing(ACTIONS, name)
    return ActionsLog(position=reader.position, versions=found)
