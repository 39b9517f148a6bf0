"""Messages between the agents of a run. One aggregate a run.

The events are the storage format: a tag never changes its meaning, a field is only added with a
default. The sender of a message is its commit's actor.
"""

from __future__ import annotations

import msgspec

from hansard.domain.events import Event, event

KEY = "team mail"
"""The key of the run's board that messages are kept under; no agent may write it as a key."""


@event("mail.sent.v1")
class MailSent(Event, frozen=True, kw_only=True):
    """A message to an agent, or to every agent of a role. `content` is plain JSON in the form of
    `hansard.domain.values`, a large one a blob reference; `sender_role` is the sender's role.
    """

    content: msgspec.Raw
    sender_role: str
    role: str = ""
    agent: str = ""


def is_for(mail: MailSent, agent: str, role: str) -> bool:
    """Return whether a message is for an agent of a role."""
    return mail.agent == agent or (bool(mail.role) and mail.role == role)
