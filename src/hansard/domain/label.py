"""Labels: how confidential what is recorded is, and whether untrusted input is in it.

A label goes along with what is derived: whoever was shown something labelled writes under at least
that label from then on. Labels are joined, never lowered but by a declassification
(`hansard.domain.label_events`). The order is that of D. Denning, "A lattice model of secure
information flow", CACM 19(5), 1976: confidentiality rises, trust falls.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from hansard.domain.errors import BadValue

UNTRUSTED = "untrusted"
"""The word for input that nobody vouches for."""


class Confidentiality(StrEnum):
    """Who may be told, from anybody to few; each takes in those before it."""

    PUBLIC = "public"
    INTERNAL = "internal"
    CONFIDENTIAL = "confidential"
    SECRET = "secret"  # noqa: S105 -- a level, no password

    @property
    def rank(self) -> int:
        """Its place in the order, from 0 for public."""
        return _RANKS[self]


_RANKS = {each: rank for rank, each in enumerate(Confidentiality)}


class Label(msgspec.Struct, frozen=True, omit_defaults=True):
    """How confidential something is, and whether it rests on untrusted input.

    As a text, `secret untrusted`: what is the default is left out, but `public` for all of it.
    `confidentiality` says who may be shown it, `untrusted` that it rests on input that anybody may
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
        """The least label that is as high as both; None is public and trusted."""
        if other is None or other == self:
            return self
        higher = max(self.confidentiality, other.confidentiality, key=_RANKS.__getitem__)
        return Label(higher, self.untrusted or other.untrusted)

    def flows_to(self, clearance: Confidentiality) -> bool:
        """Whether somebody with a clearance may be told. What is untrusted may be read by all."""
        return _RANKS[self.confidentiality] <= _RANKS[clearance]

    @property
    def stored(self) -> Label | None:
        """The label as it is put on record: None for public and trusted."""
        return None if self == LOWEST else self


LOWEST = Label()
"""Public and trusted: what has no label."""


HIGHEST = Label(Confidentiality.SECRET, untrusted=True)
"""As high as any: what is not known to be lower."""


def join(*labels: Label | None) -> Label:
    """The least label that is as high as all of some; of none, public and trusted."""
    found = LOWEST
    for each in labels:
        found = found.join(each)
    return found


def parse(text: str, where: str = "label") -> Label:
    """A label from its words, in any order; no words are public and trusted. Raises BadValue."""
    if not isinstance(text, str):
        raise BadValue(where, f"{text!r:.80}", _remedy())
    found: list[Confidentiality] = []
    untrusted = False
    for word in text.split():
        if word == UNTRUSTED and not untrusted:
            untrusted = True
        elif word in _RANKS and not found:
            found.append(Confidentiality(word))
        else:
            raise BadValue(where, f"{text!r:.80}", _remedy())
    return Label(found[0] if found else Confidentiality.PUBLIC, untrusted)


def text(label: Label) -> str:
    """A label as states keep it: empty for public and trusted."""
    return "" if label == LOWEST else str(label)


def raised(kept: str, label: Label | None) -> str:
    """A label as states keep it, raised by another."""
    return kept if label is None else text(join(parse(kept), label))


def level(name: str, where: str = "clearance") -> Confidentiality:
    """A level of confidentiality by its name; public for an empty one. Raises BadValue."""
    if not name:
        return Confidentiality.PUBLIC
    if name not in _RANKS:
        raise BadValue(where, f"{name!r:.80}", f"give one of {_levels()}")
    return Confidentiality(name)


def _levels() -> str:
    return ", ".join(each.value for each in Confidentiality)


def _remedy() -> str:
    return f"give one of {_levels()}, and {UNTRUSTED} where it is so: 'secret {UNTRUSTED}'"
