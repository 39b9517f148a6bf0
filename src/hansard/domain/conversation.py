"""A conversation, which continues over several runs. A run belongs to at most one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event, event

# A context window that grew too long: a summary replaces its earlier messages.
#
# Nothing is removed: the messages stay on record in their place, and the event names those that the
# summary replaces.

T = TypeVar("T")

SYSTEM = ("system", "developer")
"""Roles of messages that are an agent's instructions: those at the start of a window stay."""


@event("context.compacted.v1")
class ContextCompacted(Event, frozen=True, kw_only=True):
    """A summary replaces earlier messages in the context window from here on.

    Attributes:
        role: The role of the summary's message.
        summary: Its content, or a reference to it.
        fingerprint: Identifies the summary in a replay.
        stands_for: Ids of the events that it replaces, in the order of the window: messages, also
            those of earlier runs of the conversation, and an earlier summary.
        versions: Those of them in this very stream: ranges of versions, first, last.
        kept: Ids of the other events in the window, in its order.
        digest: Digest of the canonical JSON of the replaced content, as sent to a model.
        tokens: Tokens of the summary; None if they were not counted.
        tokens_before: Tokens of the window before; None if those of a message are unknown.
        tokens_after: Tokens of the window with the summary; None as before.
        step: The step that made the summary.
    """

    role: str
    summary: msgspec.Raw
    fingerprint: str
    stands_for: tuple[str, ...]
    digest: str
    versions: tuple[tuple[int, int], ...] = ()
    kept: tuple[str, ...] = ()
    tokens: int | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    step: int | None = None

    def replaces_version(self, version: int) -> bool:
        """Return whether it replaces the event at a version of its own stream."""
        return any(first <= version <= last for first, last in self.versions)


def ranges(versions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return versions, or other numbers, as ranges, first and last."""
    joined: list[tuple[int, int]] = []
    for version in sorted(set(versions)):
        if joined and joined[-1][1] == version - 1:
            joined[-1] = (joined[-1][0], version)
        else:
            joined.append((version, version))
    return tuple(joined)


def replaced(window: Sequence[T], gone: Callable[[T], bool], summary: T) -> list[T]:
    """Return a window with a summary in the place of the first message that it replaces; at the
    start where all of them are in earlier runs.
    """
    places = [index for index, each in enumerate(window) if gone(each)]
    kept = [each for each in window if not gone(each)]
    kept.insert(places[0] if places else 0, summary)
    return kept


class Line(msgspec.Struct, frozen=True):
    """One message as a decision on a window sees it: its role, true if it answers a call of the
    message before it, and its tokens; None if they were not counted.
    """

    role: str
    answers: bool
    tokens: int | None
    is_summary: bool = False


class Bound(msgspec.Struct, frozen=True):
    """The length from which on a window is too long, and the number of its newest messages that
    stay; None is no bound.
    """

    keep: int
    messages: int | None = None
    tokens: int | None = None

    def check(self) -> None:
        """Check the bound. Raises BadValue for a value that is no whole number."""
        for name in ("keep", "messages", "tokens"):
            value = getattr(self, name)
            if name != "keep" and value is None:
                continue
            if type(value) is not int or value < 0:
                shown = name if name == "keep" else f"max_{name}"
                raise BadValue(
                    f"compact({shown})", f"{value!r:.80}", "give a whole number, 0 or more"
                )


def dropped(window: Sequence[Line], bound: Bound) -> tuple[int, int] | None:
    """Return the range of a window that a summary is to replace: from and up to before these
    indices.

    None where the window is within its bound. Instructions at its start stay, and so do the newest
    messages; an answer to a call stays with that call. Raises Refused where nothing is left to
    drop, BadValue where tokens are bounded and not counted.
    """
    if not _too_long(window, bound):
        return None
    start = 0
    while start < len(window) and window[start].role in SYSTEM and not window[start].is_summary:
        start += 1
    end = max(start, len(window) - bound.keep)
    while start < end < len(window) and window[end].answers:
        end -= 1
    if end == start or (end - start == 1 and window[start].is_summary):
        message = (
            f"nothing to compact: of the {len(window)} messages of the window {start} are "
            f"instructions, and keep={bound.keep} keeps the others: keep fewer"
        )
        raise Refused(message)
    return start, end


def _too_long(window: Sequence[Line], bound: Bound) -> bool:
    if bound.messages is None and bound.tokens is None:
        return True
    if bound.messages is not None and len(window) > bound.messages:
        return True
    if bound.tokens is None:
        return False
    counted = total(line.tokens for line in window)
    if counted is None:
        unknown = sum(line.tokens is None for line in window)
        raise BadValue(
            "compact(max_tokens)",
            f"nobody counted the tokens of {unknown} of the {len(window)} messages",
            "give tokens= with each message, or count= here, a function of a message",
        )
    return counted > bound.tokens


def total(tokens: Iterable[int | None]) -> int | None:
    """Return the sum; None where the tokens of one message are unknown."""
    counts = list(tokens)
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


def check_free(stands_for: Iterable[str], replaced_ids: Iterable[str], by: str) -> None:
    """Check that no other agent's summary replaces some of these messages. Raises Refused."""
    both = set(stands_for) & set(replaced_ids)
    if both:
        message = (
            f"agent {by!r} compacted {len(both)} of these messages in this run: one agent of a run "
            "compacts its conversation; let that one, or keep them (keep=)"
        )
        raise Refused(message)


KIND = "conversation"
"""The kind of its stream."""


@event("conversation.run_joined.v1")
class RunJoined(Event, frozen=True, kw_only=True):
    """A run is part of the conversation from here on."""

    run: str
