"""Rechecks labels: what is written for a principal has the label that the principal carries."""

from __future__ import annotations

from hansard.domain import label_events, principal
from hansard.domain.events import Commit, Event
from hansard.domain.ids import StreamId, WorkspaceStream
from hansard.domain.label import LOWEST, Label, join, parse
from hansard.domain.label_events import LabelDeclassified
from hansard.domain.principal import PrincipalShown


class Carried:
    """What each principal carries; commits and events come by position."""

    def __init__(self) -> None:
        self._labels: dict[str, Label] = {}

    def event(self, stream: StreamId, event: Event) -> None:
        """Take in what a principal's stream says. Raises BadValue for what is no label."""
        if not isinstance(stream, WorkspaceStream) or stream.kind != principal.KIND:
            return
        match event:
            case PrincipalShown():
                before = self._labels.get(stream.id, LOWEST)
                self._labels[stream.id] = join(before, parse(event.label))
            case LabelDeclassified():
                self._labels[stream.id] = label_events.after(event)
            case _:
                pass

    def lacks(self, stream: StreamId, commit: Commit) -> str:
        """What is odd about the label of a commit; nothing where it is as high as it should be. The
        service names a principal as who writes, and as the first of those for whom that is done.
        """
        name = commit.actor.agent
        if commit.actor.on_behalf_of[:1] != (name,):
            return ""
        if isinstance(stream, WorkspaceStream) and stream.kind == principal.KIND:
            return ""
        carries, label = self._labels.get(name, LOWEST), commit.label or LOWEST
        if join(label, carries) == label:
            return ""
        return (
            f"it is labelled {str(label)!r}, but principal {name!r}, for whom it says that it was "
            f"written, carried {str(carries)!r}: no service wrote it, but a program with the "
            "broker's own credentials"
        )
