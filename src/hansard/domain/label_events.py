"""Declassification: the lowered label of an agent or a key, its approver and the reason.

This is the storage format: a tag never changes its meaning, a field is only added with a default.
The event is in the stream of the agent or key whose label it lowers.
"""

from __future__ import annotations

from hansard.domain.errors import Refused
from hansard.domain.events import Event, event
from hansard.domain.label import Label, join, parse, text


@event("label.declassified.v1")
class LabelDeclassified(Event, frozen=True, kw_only=True):
    """The label is `to` from here on, whatever it was before.

    Labels are texts (`hansard.domain.label`); an empty `to` is public and trusted. `approver` is
    responsible for the change, `because` is the reason, `before` the label until then.
    """

    to: str
    approver: str
    because: str
    before: str


def decide(before: Label, to: Label, approver: str, reason: str) -> LabelDeclassified:
    """Build the event that lowers a label. Raises Refused where `to` is not lower."""
    if to == before or join(to, before) != before:
        message = (
            f"its label is {str(before)!r}, which {str(to)!r} would not lower: "
            "a declassification takes away confidentiality or distrust, and adds none"
        )
        raise Refused(message)
    return LabelDeclassified(to=text(to), approver=approver, because=reason, before=str(before))


def after(event: LabelDeclassified) -> Label:
    """Return the label that an event sets. Raises BadValue for a text that no version wrote."""
    return parse(event.to, "label of a declassification")
