"""Labels: the confidentiality of a record, and whether it rests on untrusted input.

A label follows derived content: an agent that was shown something labelled writes under at least
that label from then on. Labels are joined, and lowered only by a declassification
(`hansard.domain.decider`). The order is that of D. Denning, "A lattice model of secure
information flow", CACM 19(5), 1976: confidentiality rises, trust falls.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from hansard.domain.errors import BadValue

UNTRUSTED = "untrusted"
"""The word for input that nobody vouches for."""


class Confidentiality(StrEnum):
    """The levels of confidentiality, from all readers to few; each includes the levels before
    it.
    """

    PUBLIC = "public"
    INTERNAL = "internal"
    CONFIDENTIAL = "confidential"
    SECRET = "secret"  # noqa: S105 -- a level, no password

    @property
    def rank(self) -> int:
        """The level's index in the order, from 0 for public."""
        return _RANKS[self]


_RANKS = {each: rank for rank, each in enumerate(Confidentiality)}


class Label(msgspec.Struct, frozen=True, omit_defaults=True):
    """The confidentiality of a value, and whether it rests on untrusted input.

    As a text: `secret untrusted`; defaults are left out, and both defaults together are `public`.
    `confidentiality` limits the readers, `untrusted` is true if it rests on input that anybody may
    have written.
    """

    confidentiality: Confidentiality = Confidentiality.PUBLIC
    untrusted: bool = False

    def __str__(self) -> str:
        words = [UNTRUSTED] if self.untrusted else []
        if self.confidentiality is not Confidentiality.PUBLIC or not words:
            words.insert(0, self.confidentiality.value)
        return " ".join(words)

    def join(self, other: Label | None) -> Label:
        """Return the lowest label that is at least as high as both; None is public and trusted."""
        if other is None or other == self:
            return self
        higher = max(self.confidentiality, other.confidentiality, key=_RANKS.__getitem__)
        return Label(higher, self.untrusted or other.untrusted)

    def flows_to(self, clearance: Confidentiality) -> bool:
        """Return whether a reader with a clearance may see it. Trust does not limit readers."""
        return _RANKS[self.confidentiality] <= _RANKS[clearance]

    @property
    def stored(self) -> Label | None:
        """The label as it is recorded: None for public and trusted."""
        return None if self == LOWEST else self


LOWEST = Label()
"""Public and trusted: the label of a value without one."""


HIGHEST = Label(Confidentiality.SECRET, untrusted=True)
"""The highest label, for a value whose label is unknown."""


def join(*labels: Label | None) -> Label:
    """Return the lowest label at least as high as all the given ones; of none, public and
    trusted.
    """
    joined = LOWEST
    for each in labels:
        joined = joined.join(each)
    return joined


def parse(text: str, where: str = "label") -> Label:
    """Parse a label from its words, in any order; no words are public and trusted. Raises
    BadValue.
    """
    if not isinstance(text, str):
        raise BadValue(where, f"{text!r:.80}", _remedy())
    levels: list[Confidentiality] = []
    untrusted = False
    for word in text.split():
        if word == UNTRUSTED and not untrusted:
            untrusted = True
        elif word in _RANKS and not levels:
            levels.append(Confidentiality(word))
        else:
            raise BadValue(where, f"{text!r:.80}", _remedy())
    return Label(levels[0] if levels else Confidentiality.PUBLIC, untrusted)


def text(label: Label) -> str:
    """Return a label in the form that states keep: empty for public and trusted."""
    return "" if label == LOWEST else str(label)


def raised(kept: str, label: Label | None) -> str:
    """Return a label in the form that states keep, joined with another."""
    return kept if label is None else text(join(parse(kept), label))


def level(name: str, where: str = "clearance") -> Confidentiality:
    """Return a level of confidentiality by its name; public for an empty one. Raises BadValue."""
    if not name:
        return Confidentiality.PUBLIC
    if name not in _RANKS:
        raise BadValue(where, f"{name!r:.80}", f"give one of {_levels()}")
    return Confidentiality(name)


def _levels() -> str:
    return ", ".join(each.value for each in Confidentiality)


def _remedy() -> str:
    return f"give one of {_levels()}, and {UNTRUSTED} where it is so: 'secret {UNTRUSTED}'"
