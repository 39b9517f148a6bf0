"""`session.team.send` and `inbox`: messages between the agents of a run.

An inbox read is a step that says up to which message it read: each message is given once to each
agent, whatever became of the session that was given it, for a resumed one is given what is on
record. A message to a role is given to every agent of it, also to one that joins later.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hansard.agents.flow import Flow, Io
from hansard.agents.policy.permits import states
from hansard.agents.steps import payloads
from hansard.agents.steps.atomic import JointSteps, never
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.gating import cleared_of, demand_receiver
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import operation
from hansard.agents.team.store import Mailbox, TeamStore
from hansard.agents.team.write import MailWrite
from hansard.domain import ids
from hansard.domain.brief import Brief
from hansard.domain.errors import BadValue
from hansard.domain.steps import StepStatus
from hansard.domain.team.mail import MailSent


class Mail(Brief, msgspec.Struct, frozen=True):
    """A message. `number` counts the run's messages from 1 (under a role's rules those for this
    agent, and of `send` those that it sent); `sender` is an agent, `role` its role;
    `to_role` is empty where it was sent to this agent alone.

    Attributes:
        number: From 1, among the run's messages; under a role's rules among those for this agent,
            or that it sent.
        sender: The agent that sent it.
        role: The sender's role.
        to_role: The role that it was sent to; empty where it was for this agent alone.
        content: What it says.
    """

    number: int
    sender: str
    role: str
    to_role: str
    content: Any


SEND = operation("team.send", "content", "role", "agent", kind="team", writes=True)
# An inbox that was read before an earlier step was edited is not read again, but given as it was:
# else its messages would be lost to the agent.
INBOX = operation("team.inbox", kind="team", writes=True)


class MailFlows(JointSteps):
    """A session's messages."""

    def __init__(self, engine: StepEngine, store: TeamStore) -> None:
        super().__init__(engine)
        self._store = store
        self._read = 0
        """Up to which message this session has taken some."""
        self._before: int | None = None
        """The same of inboxes on record before; None while that was not asked."""

    def send(self, content: Any, role: str | None, agent: str | None) -> Flow[int]:
        """Send a message; its number."""
        if bool(role) == bool(agent):
            fact = f"to role {role!r} and agent {agent!r}"
            raise BadValue("message", fact, "give role= or agent=, one of them")
        ids.name("role or agent", role or agent)
        call = self.engine.begin(SEND, (content, role or "", agent or ""), {})
        call.needs = (states(MailSent.tag),)
        if any(call.plain[name] != call.arguments[name] for name in ("role", "agent")):
            raise BadValue("message", "its role or agent holds a secret", "leave the secret out")
        packed = payloads.pack(call.plain["content"], "message")
        sent = MailSent(
            content=packed.raw,
            sender_role=self.engine.stream.role,
            role=role or "",
            agent=agent or "",
        )

        def make(_: Scope) -> MailWrite:
            return MailWrite(self.engine, call, self._store, sent)

        def run(call: Call) -> Flow[Any]:
            yield from self.engine.permitted(call)
            yield from demand_receiver(self.engine, call, sent.role, sent.agent)
            return (yield from self._jointly(call, packed.blobs, make, never))

        told = yield from self.ask(call, run)
        number: int = told["number"]
        return number

    def inbox(self) -> Flow[list[Mail]]:
        """The messages for this agent that it was not given yet."""
        call = self.engine.begin(INBOX, (), {})
        call.needs = ()

        def run(call: Call) -> Flow[Any]:
            return (yield from self._recorded(call, self._new))

        told = yield from self.ask(call, run)
        return [Mail(**each) for each in told["messages"]]

    def _new(self) -> Flow[Any]:
        box: Mailbox = yield Io(self._store.mailbox)
        version = box.version
        recorded = yield from self._on_record(box)
        with self.engine.ledger.lock:  # two inboxes side by side share no message
            after = max(self._read, recorded)
            to = self._read = max(after, version)
        mine = box.between(after, to)
        cleared = yield from cleared_of(self.engine, {mail.version: mail.label for mail in mine})
        shown = set(cleared)
        is_limited = self.engine.settings.permit.is_limited
        return {
            **({"given": box.given(to)} if is_limited else {"up_to": to}),
            "messages": [
                {
                    "number": box.given(mail.version) if is_limited else mail.version,
                    "sender": mail.sender,
                    "role": mail.sent.sender_role,
                    "to_role": mail.sent.role,
                    "content": msgspec.json.decode(mail.sent.content),
                }
                for mail in mine
                if mail.version in shown
            ],
        }

    def _on_record(self, box: Mailbox) -> Flow[int]:
        """Up to which message inboxes of this agent have read that were on record when this session
        first asked: those that it reads itself it knows. Under a role's rules what is on record
        counts the agent's own messages alone: how many others there are is not for it to know.
        """
        if self._before is None:
            found, outcomes = 0, self.engine.outcomes
            for step in list(self.engine.ledger.state.steps.values()):
                if step.tool == INBOX.name and step.status is StepStatus.COMPLETED:
                    told = yield from outcomes.fetch(outcomes.reader.result(step))
                    up_to = box.up_to(told["given"]) if "given" in told else told["up_to"]
                    found = max(found, up_to)
            self._before = found
            return found
        return self._before
