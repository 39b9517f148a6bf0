"""Fields of events: those that a path of a rule reaches, and those that reveal other data.

Paths are patterns of segments (`result.items.price`, `usage.*`); lists are passed through, so that
a path reaches into every item. A path shows or masks everything under it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import msgspec
from msgspec import inspect

from hansard.domain import streams as _all_types  # noqa: F401 # pyright: ignore[reportUnusedImport] -- registers all
from hansard.domain.events import REGISTRY
from hansard.domain.roles import model as role_patterns
from hansard.domain.roles.model import DOT, Pattern, read, segment_matches

ELSEWHERE = frozenset(
    {
        "anew",
        "by_result",
        "call",
        "expected",
        "fingerprint",
        "full",
        "head",
        "joins",
        "scope",
        "turns_before",
    }
)
"""Fields of any kind that reveal other events: digests derived from earlier results, versions and
counts of earlier events. They are shown only to a role that sees the whole record."""

_ELSEWHERE: Mapping[str, frozenset[str]] = {
    "actions.healed.v1": frozenset({"run"}),
    "actions.saved.v1": frozenset({"run"}),
    "agent.left.v1": frozenset({"answered"}),
    "aggregate.changed.v1": frozenset({"run", "step"}),
    "aggregate.followed.v1": frozenset({"notification"}),
    "approval.requested.v1": frozenset({"step"}),
    "context.compacted.v1": frozenset(
        {
            "digest",
            "kept",
            "role",
            "stands_for",
            "step",
            "summary",
            "tokens",
            "tokens_after",
            "tokens_before",
            "versions",
        }
    ),
    "experience.distilled.v1": frozenset({"failed", "sources"}),
    "experience.healed.v1": frozenset({"run"}),
    "experience.replayed.v1": frozenset({"agent", "run", "step"}),
    "memory.changed.v1": frozenset({"run", "sources", "step"}),
    "memory.reflected.v1": frozenset({"reflection", "runs", "sources"}),
    "memory.rejected.v1": frozenset({"run", "step"}),
    "query.answered.v1": frozenset({"at", "cut", "position", "rows"}),
    "run.forked.v1": frozenset({"at", "swap"}),
    "reuse.offered.v1": frozenset({"digest", "key", "outcome", "run", "stale", "step"}),
    "step.completed.v1": frozenset({"reused_from"}),
    "step.requested.v1": frozenset({"key"}),
    "view.served.v1": frozenset({"at", "digest", "events", "seen"}),
}
"""Further such fields, where only one kind has a field of that name with this meaning."""

DIGESTS: Mapping[str, Mapping[str, str]] = {
    "actions.saved.v1": {"digest": "cache"},
    "experience.confirmed.v1": {"digest": "content"},
    "experience.distilled.v1": {"digest": "content"},
    "experience.healed.v1": {"digest": "content"},
    "experience.installed.v1": {"digest": "content"},
    "prompt.version_added.v1": {"digest": "text"},
    "step.completed.v1": {"digest": "result"},
    "step.failed.v1": {"digest": "error"},
    "step.settled.v1": {"digest": "result"},
}
"""Bare digests, and the field they are derived from: shown only together with all of it."""

SIZES: Mapping[str, Mapping[str, str]] = {
    "step.completed.v1": {"usage": "result", "items": "result"},
    "step.failed.v1": {"usage": "error"},
    "message.added.v1": {"tokens": "content", "usage": "content"},
}
"""Fields that reveal the size of another field: hidden with it, unless a rule names them."""


APART = frozenset({"access", "aggregate", "memory", "principal", "query", "reuse", "view"})
"""Families of kinds that only a rule which names them shows, never a wider pattern.

Records of served views and answers are not part of what is served, so that reading does not feed
itself; logins and refusals are for their administrators alone. The content of a program's own
aggregates belongs to the program, and memory to its agent or user: access must be granted
explicitly. A reuse offer reveals its source runs."""


def known() -> Mapping[str, type[msgspec.Struct]]:
    """Return every event type by tag."""
    return REGISTRY


def names_family(kinds: tuple[str, ...], tag: str) -> bool:
    """Return whether kinds name the family of a tag explicitly, where that is required."""
    family = tag.partition(".")[0]
    return family not in APART or any(
        role_patterns.kind_matches(kind, tag) and kind.partition(".")[0] == family for kind in kinds
    )


def elsewhere(tag: str) -> frozenset[str]:
    """Return the fields of a kind that reveal other events."""
    return ELSEWHERE | _ELSEWHERE.get(tag, frozenset())


def top_matches(path: Pattern, field: str) -> bool:
    """Return whether a path begins with a field of the data."""
    return segment_matches(path.segments[0], field)


def is_whole(paths: tuple[str, ...] | None, field: str) -> bool:
    """Return whether paths show all of a field."""
    if paths is None:
        return True
    patterns = (read(path, DOT) for path in paths)
    return any(len(path.segments) == 1 and top_matches(path, field) for path in patterns)


def touches(paths: tuple[str, ...], field: str) -> bool:
    """Return whether one of some paths leads to a field or into it."""
    return any(top_matches(read(path, DOT), field) for path in paths)


@lru_cache(maxsize=4_096)
def reached(tag: str, path: str) -> tuple[inspect.Type, ...]:
    """Return the types that a path reaches in events of a known kind; () where there is no such
    field.

    Every path into a recorded payload (any JSON value) reaches it.
    """
    return tuple(_reached(inspect.type_info(known()[tag]), read(path, DOT).segments))


def _reached(kind: inspect.Type, segments: tuple[tuple[str, ...], ...]) -> Iterator[inspect.Type]:
    match kind:
        case inspect.UnionType():
            for each in kind.types:
                yield from _reached(each, segments)
        case inspect.RawType() | inspect.AnyType():
            yield kind
        case _ if not segments:
            yield kind
        case inspect.StructType():
            for field in kind.fields:
                if segment_matches(segments[0], field.encode_name):
                    yield from _reached(field.type, segments[1:])
        case inspect.DictType():
            yield from _reached(kind.value_type, segments[1:])
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType():
            yield from _reached(kind.item_type, segments)
        case _:
            return


_TEXTS = (
    inspect.StrType,
    inspect.EnumType,
    inspect.LiteralType,
    inspect.DateTimeType,
    inspect.RawType,
    inspect.AnyType,
)


def may_be_text(tag: str, path: str) -> bool:
    """Return whether a path can reach a text, which is the only value that can be cut."""
    return any(isinstance(found, _TEXTS) for found in reached(tag, path))


def kinds_of(patterns: tuple[str, ...] | None) -> list[str]:
    """Return the known kinds that match some patterns; None matches all."""
    return [
        tag
        for tag in sorted(known())
        if patterns is None or any(role_patterns.kind_matches(each, tag) for each in patterns)
    ]
