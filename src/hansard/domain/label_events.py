"""Declassification: who lowered the label of an agent or a key, and why. The storage format.

A tag never changes its meaning, a field is only added with a default. The event stands in the
stream of the agent or key whose label it lowers.
"""

from __future__ import annotations

from hansard.domain.errors import Refused
from hansard.domain.events import Event, event
from hansard.domain.label import Label, join, parse, text


@event("label.declassified.v1")
class LabelDeclassified(Event, frozen=True, kw_only=True):
    """From here on the label is `to`, whatever it was; labels as texts (`hansard.domain.label`),
    `to` empty for public and trusted. `approver` answers for it, `before` is what it was.
    """

    to: str
    approver: str
    because: str
    before: str


def decide(before: Label, to: Label, approver: str, because: str) -> LabelDeclassified:
    """The event that lowers a label. Raises Refused where that would not lower it."""
    if to == before or join(to, before) != before:
        message = (
            f"its label is {str(before)!r}, which {str(to)!r} would not lower: "
            "a declassification takes away confidentiality or distrust, and adds none"
        )
        raise Refused(message)
    return LabelDeclassified(to=text(to), approver=approver, because=because, before=str(before))


def after(event: LabelDeclassified) -> Label:
    """The label from an event on. Raises BadValue for what no version wrote."""
    return parse(event.to, "label of a declassification")
