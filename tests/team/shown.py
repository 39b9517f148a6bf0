"""Visibility of the roles of examples/research_team, restated as plain code instead of rules.

`check` holds every view that a run's agents were served against it, event by event, derives it
again by the rules of that time, and compares it with the result in the agent's own step.
"""

import json

import msgspec

import hansard
from hansard.agents.access import roles
from hansard.bus.commits import revive
from hansard.bus.portal import portal
from hansard.domain.access import versions
from hansard.domain.ids import AgentStream, KeyStream, WorkspaceStream
from hansard.domain.roles.view import served
from hansard.domain.run import AgentJoined

SEES = {"researcher": (), "analyzer": ("researcher",), "writer": ("researcher", "analyzer")}
"""Other roles whose decisions and tasks each role sees."""

DECISION_FIELDS = {"question", "selected", "because"}
REASON_CHARACTERS = 60


class RunEvent(msgspec.Struct, frozen=True):
    """An event of the run, with its writer and role."""

    position: int
    stream: str
    version: int
    id: str
    author: str
    key: str
    tag: str


def may_see(role: str, event: RunEvent) -> bool:
    """Return whether a role is shown an event."""
    if event.tag.startswith("view."):
        return False
    shared = event.key == "analysis" and role != "researcher"
    if event.author == role or event.key.startswith("findings/") or shared:
        return True
    is_shared = event.tag == "decision.made.v1" or event.tag.startswith("task.")
    return event.author in SEES[role] and is_shared


def events_of(record: hansard.Record, run: str) -> tuple[list[RunEvent], dict[str, int]]:
    """Every event of a run in its order, and the positions of its commits by their ids."""
    roster: dict[str, str] = {}
    events: list[RunEvent] = []
    history = portal().run(record.workspace.states.history(run))
    for stored in history:
        for event in map(revive, stored.commit.events):
            if isinstance(event, AgentJoined):
                roster[event.agent] = event.role
        stream, actor = stored.stream, stored.commit.actor.agent
        author = stream.role if isinstance(stream, AgentStream) else roster.get(actor, "")
        key = stream.key if isinstance(stream, KeyStream) else ""
        events += [
            RunEvent(stored.position, str(stream), version, event.id, author, key, event.type)
            for version, event in enumerate(stored.commit.events, stored.commit.version)
        ]
    return events, {stored.commit.id: stored.position for stored in history}


def check(record: hansard.Record, run: str) -> dict[str, int]:
    """Check every view of a run that was served to an agent; how many each was served."""
    states = record.workspace.states
    happened, positions = events_of(record, run)
    agents = record.state(run).agents
    count: dict[str, int] = {}
    for role in SEES:
        commits = portal().run(record.workspace.log.read(WorkspaceStream("role", role)))
        for one in portal().run(roles.on_record(states, run, role)):
            event = one.event
            if not event.agent:
                continue
            count[event.agent] = count.get(event.agent, 0) + 1
            at = positions[event.at]
            by_then = [each for each in commits if each.position <= at]
            assert event.rules == by_then[-1].commit.events[-1].id
            expected = [each for each in happened if each.position <= at and may_see(role, each)]
            assert places(event.seen) == {(each.stream, each.version) for each in expected}
            again = portal().run(roles.derive_again(states, one)).view
            assert [number for number, _ in again.events] == list(range(1, len(expected) + 1))
            assert [line.id for _, line in again.events] == [each.id for each in expected]
            assert (event.events, event.digest) == (len(expected), served(again.events).digest)
            check_lines(role, [line for _, line in again.events])
            records = [
                json.loads(bytes(step.result))
                for step in agents[event.agent].steps.values()
                if step.tool == "view" and one.id.encode() in bytes(step.result)
            ]
            assert records == [{"events": event.events, "digest": event.digest, "served": one.id}]
    return count


def places(seen: dict[str, str]) -> set[tuple[str, int]]:
    """Return the stream and version of the events that a view names."""
    return {(stream, number) for stream, parts in seen.items() for number in versions(parts)}


def check_lines(role, lines):
    """Check that three fields of other roles' decisions are shown, and to the writer short
    reasons.
    """
    for line in lines:
        if line.role == role or line.type != "decision.made.v1":
            continue
        data = json.loads(bytes(line.data))
        assert data.keys() == DECISION_FIELDS
        if role == "writer":
            assert data["because"].keys() == {"$cut"}
            assert len(data["because"]["$cut"]) <= REASON_CHARACTERS
