"""Bodies that do not fit: published by a bare client with the login that trusted agents have."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import nats

from hansard.broker.files import ServerInfo
from hansard.broker.lease import peek
from hansard.bus import subjects
from hansard.bus.commits import encode, record
from hansard.domain import access, agent, steps, team
from hansard.domain.board import ValuePut
from hansard.domain.decider import Quarantined
from hansard.domain.events import Actor, Commit, Event, Recorded
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId
from hansard.domain.run import AgentJoined, RunAgentLeft

PLANTED = "planted-by-a-forger"
"""Text in every forged body that can hold one."""

RUN = "r-1"
ADA = AgentStream(RUN, "writer", "ada")
KEY = KeyStream(RUN, "plan")


def publish(home: Path, *messages: tuple[str, bytes]) -> None:
    """Publish to subjects of the log as the runtime login; each must be stored."""

    async def work() -> None:
        info = peek(home)
        assert isinstance(info, ServerInfo)
        login = info.runtime
        client = await nats.connect(info.url, user=login.user, password=login.password)
        try:
            for subject, body in messages:
                answer = await client.request(subject, body, timeout=5)
                assert b'"error"' not in answer.data, (subject, answer.data)
        finally:
            await client.close()

    asyncio.run(work())


def forged(version: int, *events: Event | Recorded, by: str = "ada", **fields: Any) -> Commit:
    """Return a commit as anybody could write it."""
    return Commit(
        id=str(uuid4()),
        version=version,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        actor=fields.pop("actor", Actor(by)),
        events=tuple(
            event if isinstance(event, Recorded) else record(event, str(uuid4()))
            for event in events
        ),
        **fields,
    )


def message_added(text: str = PLANTED) -> agent.MessageAdded:
    """Return a message in an agent's context."""
    return agent.MessageAdded(
        role="user", content=msgspec.Raw(msgspec.json.encode(text)), fingerprint=str(uuid4())
    )


def began(agent_: str, role: str, epoch: int, purpose: str = "run") -> agent.SessionBegan:
    """Return a session of an agent."""
    return agent.SessionBegan(
        agent=agent_,
        role=role,
        epoch=epoch,
        server_version=PLANTED,
        protocol_version="1",
        purpose=purpose,
    )


def put(role: str) -> ValuePut:
    """Return a put to a key."""
    return ValuePut(value=msgspec.Raw(msgspec.json.encode(PLANTED)), role=role)


def served(role: str, agent_: str) -> access.ViewServed:
    """Return a view that was served."""
    return access.ViewServed(role=role, agent=agent_, at=PLANTED, events=1, digest="d")


def claimed(agent_: str, role: str) -> team.TaskClaimed:
    """Return a claim of the run's task."""
    return team.TaskClaimed(task="t", number=1, agent=agent_, role=role, lease_ms=60_000)


def sent(role: str) -> team.MailSent:
    """Return a message to bob."""
    content = msgspec.Raw(msgspec.json.encode(PLANTED))
    return team.MailSent(content=content, sender_role=role, agent="bob")


def misplaced(type_: str, data: bytes) -> Recorded:
    """Return an event with arbitrary data."""
    return Recorded(type_, str(uuid4()), msgspec.Raw(data))


Forge = Callable[[int], tuple[StreamId, Commit | bytes]]
"""Function from the next version of a stream to the stream and the published bytes."""

FORGERIES: dict[str, tuple[StreamId, Forge]] = {
    "another agent": (ADA, lambda n: (ADA, forged(n, message_added(), by="bob", epoch=1))),
    "a stranger": (ADA, lambda n: (ADA, forged(n, message_added(), by="mallory", epoch=1))),
    "an import on behalf of another": (
        ADA,
        lambda n: (ADA, forged(n, message_added(), actor=Actor("import", ("bob",)), epoch=1)),
    ),
    "an epoch to come": (ADA, lambda n: (ADA, forged(n, message_added(), epoch=7))),
    "no epoch": (ADA, lambda n: (ADA, forged(n, message_added()))),
    "a session that skips epochs": (
        ADA,
        lambda n: (ADA, forged(n, began("ada", "writer", 9), epoch=9)),
    ),
    "a session for another": (
        ADA,
        lambda n: (ADA, forged(n, began("ada", "writer", 2), by="bob", epoch=2)),
    ),
    "a session as another role": (
        ADA,
        lambda n: (ADA, forged(n, began("ada", "boss", 2), epoch=2)),
    ),
    "another role's stream": (
        AgentStream(RUN, "boss", "ada"),
        lambda n: (AgentStream(RUN, "boss", "ada"), forged(n, began("ada", "boss", 1), epoch=1)),
    ),
    "an agent that never joined": (
        AgentStream(RUN, "boss", "mallory"),
        lambda n: (
            AgentStream(RUN, "boss", "mallory"),
            forged(n, began("mallory", "boss", 1), by="mallory", epoch=1),
        ),
    ),
    "another agent joined": (
        RunStream(RUN),
        lambda n: (RunStream(RUN), forged(n, AgentJoined(agent=PLANTED, role="boss"))),
    ),
    "another agent left": (
        RunStream(RUN),
        lambda n: (RunStream(RUN), forged(n, RunAgentLeft(agent=PLANTED, outcome="completed"))),
    ),
    "a put as another role": (KEY, lambda n: (KEY, forged(n, put("boss")))),
    "a put by a stranger": (KEY, lambda n: (KEY, forged(n, put("writer"), by="mallory"))),
    "a view of another agent": (
        KeyStream(RUN, "view writer"),
        lambda n: (KeyStream(RUN, "view writer"), forged(n, served("writer", "ada"), by="bob")),
    ),
    "a view of another role": (
        KeyStream(RUN, "view boss"),
        lambda n: (KeyStream(RUN, "view boss"), forged(n, served("boss", "ada"))),
    ),
    "a view under another role's key": (
        KeyStream(RUN, "view boss"),
        lambda n: (KeyStream(RUN, "view boss"), forged(n, served("writer", "ada"))),
    ),
    "a claim for another": (
        KeyStream(RUN, team.TASKS_KEY),
        lambda n: (KeyStream(RUN, team.TASKS_KEY), forged(n, claimed("bob", "reader"))),
    ),
    "a message as another role": (
        KeyStream(RUN, team.MAIL_KEY),
        lambda n: (KeyStream(RUN, team.MAIL_KEY), forged(n, sent("boss"))),
    ),
    "a task under a key": (KEY, lambda n: (KEY, forged(n, claimed("ada", "writer")))),
    "a put among the tasks": (
        KeyStream(RUN, team.TASKS_KEY),
        lambda n: (KeyStream(RUN, team.TASKS_KEY), forged(n, put("writer"))),
    ),
    "an event of a run's life": (
        ADA,
        lambda n: (ADA, forged(n, AgentJoined(agent=PLANTED, role="boss"), epoch=1)),
    ),
    "data of another type": (
        ADA,
        lambda n: (
            ADA,
            forged(n, misplaced(steps.StepBlocked.tag, b'{"step":"x"}'), message_added(), epoch=1),
        ),
    ),
    "what is never stored": (
        ADA,
        lambda n: (ADA, forged(n, misplaced(Quarantined.tag, b'{"reason":"r"}'), epoch=1)),
    ),
    "in the name of what is quarantined": (
        ADA,
        lambda n: (ADA, forged(n, message_added(), by="quarantine", epoch=1)),
    ),
    "another version": (ADA, lambda n: (ADA, encode(ADA, forged(n + 3, message_added(), epoch=1)))),
    "another stream": (
        ADA,
        lambda n: (
            ADA,
            encode(ADA, msgspec.structs.replace(forged(n, message_added(), epoch=1), stream=KEY)),
        ),
    ),
    "no events": (ADA, lambda n: (ADA, encode(ADA, forged(n, epoch=1)))),
    "nothing": (ADA, lambda _n: (ADA, b"")),
    "garbage": (ADA, lambda _n: (ADA, b"\xff\x00" + PLANTED.encode())),
    "deep garbage": (KEY, lambda _n: (KEY, b"[" * 50_000)),
}


def message(
    workspace: str, version: int, made: tuple[StreamId, Commit | bytes]
) -> tuple[str, bytes]:
    """Return the subject and bytes published for a forgery at a version of its stream."""
    stream, what = made
    body = what if isinstance(what, bytes) else encode(stream, what)
    return subjects.subject(workspace, stream, version), body
