"""Roles, principals, approvals, and views of roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from hansard.agents.access import principals, roles
from hansard.agents.access.roles import DerivedView, OnRecord
from hansard.agents.policy import approvals as requests
from hansard.agents.policy.approvals import ListedApproval
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive, until, whole_at
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, Stored, UpTo, utc
from hansard.bus.reads import own
from hansard.domain.agent import DecisionMade
from hansard.domain.approval import ApprovalStatus
from hansard.domain.errors import BadName, Refused
from hansard.domain.events import Recorded
from hansard.domain.ids import AgentStream, StreamId, run_of
from hansard.domain.principal import PrincipalKind, Token
from hansard.domain.roles.model import RoleDefined
from hansard.domain.roles.view import explain as explained
from hansard.domain.roles.view import judge
from hansard.domain.run import RunState, RunStatus
from hansard.inspect import state
from hansard.inspect.answer import EVENT_REMEDY, Answer, by_name
from hansard.inspect.state import NOW
from hansard.inspect.trace import recorded

# Principals, their tokens, and the label that each carries.


class Validity(StrEnum):
    """Validity of a token."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


class Login(msgspec.Struct, kw_only=True):
    """Token of a principal; a principal without tokens is listed once, without the fields of a
    token.
    """

    principal: str
    kind: PrincipalKind | None
    about: str
    carries: str
    role: str | None = None
    on_behalf_of: tuple[str, ...] = ()
    token: str | None = None
    standing: Validity | None = None
    expires: str | None = None
    because: str = ""


async def list_logins(workspace: Workspace) -> list[Login]:
    """List every principal with its tokens. Raises UnknownEvent, Corrupt."""
    logins: list[Login] = []
    for name, principal in (await principals.known(workspace)).items():
        own = by_name(Login, principal, principal=name, carries=str(principal.carries))
        logins += [_login(workspace, own, token) for token in principal.tokens.values()] or [own]
    return logins


def _login(workspace: Workspace, own: Login, token: Token) -> Login:
    issued = token.issued
    valid = Validity.VALID if token.is_valid(workspace.clock.now()) else Validity.EXPIRED
    return msgspec.structs.replace(
        own,
        role=issued.role,
        on_behalf_of=issued.on_behalf_of,
        token=issued.token,
        standing=Validity.REVOKED if token.revoked else valid,
        expires=issued.expires,
        because=token.because,
    )


# Approvals that agents requested, and their states.


class Question(msgspec.Struct, kw_only=True):
    """Approval that an agent requested.

    `until` is the time from which no answer counts; `by` is the author of the answer. `label` is
    that of all that the agent had been shown; empty for public and trusted. Of a pending one,
    `run_status` is that of its run, and `at_work` says whether the agent's process is at work;
    None if that is not known here. `step` is None for a role: the agent's number counts calls that
    the role may not see.
    """

    approval: str
    standing: ApprovalStatus
    run: str
    agent: str
    role: str
    step: int | None
    tool: str
    arguments: msgspec.Raw
    rule: str
    timeout_ms: int
    asked_at: str
    until: str
    answered_at: str | None
    by: str | None
    because: str | None
    label: str = ""
    run_status: RunStatus | None = None
    at_work: bool | None = None


class Approvals(Answer):
    """Selected approvals, of `all` existing ones."""

    _lines: ClassVar[tuple[str, ...]] = ("questions",)

    questions: list[Question]
    all: int


async def list_approvals(workspace: Workspace, *, every: bool) -> Approvals:
    """List the approvals that wait for an answer, with `every` all."""
    questions = await requests.listed(workspace)
    shown = [each for each in questions if every or each.standing is ApprovalStatus.PENDING]
    made = Approvals(questions=[question(each) for each in shown], all=len(questions))
    pending = [each for each in made.questions if each.standing is ApprovalStatus.PENDING]
    for run in {each.run for each in pending}:
        status = (await workspace.states.life(run)).status
        for each in pending:
            if each.run == run:
                each.run_status = status
    return made


def question(each: ListedApproval) -> Question:
    """Return the state of an approval."""
    it = each.approval
    return by_name(
        Question,
        each,
        it.request,
        approval=it.id,
        asked_at=_time(it.requested_at),
        until=_time(it.expires),
        answered_at=None if it.answered_at is None else _time(it.answered_at),
        by=it.by or None,
        because=it.because or None,
        label="" if it.requester is None else str(it.requester),
    )


def _time(stamp: int) -> str:
    """Format a log time in ns since 1970 as ISO 8601, in whole microseconds."""
    return utc(stamp).isoformat().replace("+00:00", "Z")


_POINT_REMEDY = "give a position (1234) or a time (2026-11-21T10:00:00Z)"


class Role(msgspec.Struct, kw_only=True):
    """Rules of a role as of a position; None if they were withdrawn, for the reason `because`."""

    role: str
    standing: str
    version: int
    rules: RoleDefined | None
    because: str | None
    position: int


class Roles(Answer):
    """Roles as of a position."""

    _lines: ClassVar[tuple[str, ...]] = ("roles",)

    roles: list[Role]
    position: int


class Explanation(msgspec.Struct, kw_only=True):
    """Explanation of why a role may or may not see an event.

    `rule` decided among all `rules` that match; `fields` (None: all) are shown except the
    `masks`; `why` explains it rule by rule, for people.
    """

    role: str
    event: str
    address: str
    type: str
    seen: bool
    rule: str | None
    rules: tuple[str, ...]
    fields: tuple[str, ...] | None
    masks: list[str]
    whole: bool
    why: list[str]


class RoleExplanation(Answer):
    """Explanation, and the event's stream."""

    _lines: ClassVar[tuple[str, ...]] = ("explanation",)

    explanation: Explanation
    stream: StreamId


async def read_roles(workspace: Workspace, names: Iterable[str], at: str | None) -> Roles:
    """Return the roles that were defined at a point. Raises BadName."""
    position = await workspace.log.end(await _up_to(workspace, at))
    answer = Roles(roles=[], position=position)
    for name in names:
        state = await roles.read(workspace, name, AtPosition(position))
        if state.version:
            role = by_name(
                Role,
                state,
                role=name,
                standing="defined" if state.rules is not None else "withdrawn",
                because=state.withdrawn.because if state.withdrawn is not None else None,
                position=position,
            )
            answer.roles.append(role)
    return answer


async def explain(
    workspace: Workspace, name: str, address: tuple[int, int], at: str | None
) -> RoleExplanation:
    """Explain whether a role sees the event at a position and index.

    Names the rule that decided and the unmet condition of every other rule. Raises NotFound,
    BadName, Corrupt, UnknownEvent.
    """
    position, index = address
    state = await roles.read(workspace, name, await _up_to(workspace, at))
    stored = await workspace.log.at(position)
    if index >= len(stored.commit.events):
        raise NotFound(f"event '{position}.{index}'", EVENT_REMEDY)
    recorded = stored.commit.events[index]
    life = await _life(workspace, stored)
    facts = roles.facts_of(stored, recorded, life, _fields(recorded))
    verdict = judge(state.rules, facts)
    report = by_name(
        Explanation,
        verdict,
        recorded,
        role=name,
        event=recorded.id,
        address=f"{position}.{index}",
        seen=verdict.visible,
        rule=verdict.rule or None,
        masks=[mask.name for mask in verdict.masks],
        why=explained(state.rules, facts),
    )
    return RoleExplanation(explanation=report, stream=stored.stream)


async def _up_to(workspace: Workspace, at: str | None) -> UpTo:
    """Return a position or a time as the end of a read; other points belong to runs. Raises
    BadName.
    """
    point: int | datetime | None = None
    if at is not None:
        try:
            point = int(at) if at.isascii() and at.isdigit() else datetime.fromisoformat(at)
        except ValueError:
            raise BadName("point", at, _POINT_REMEDY) from None
    return await workspace.points.up_to("", point)


async def _life(workspace: Workspace, stored: Stored) -> RunState:
    """Return the life of an event's run, as of its commit; an empty one outside of runs."""
    run = run_of(stored.stream)
    if run is None:
        return RunState()
    try:
        life, _ = await workspace.states.vector(run, AtPosition(whole_at(stored)))
    except NotFound:  # the run's only recorded event
        return RunState()
    return life


def _fields(recorded: Recorded) -> tuple[str, ...]:
    """Return the keys of an event's data."""
    fields = msgspec.json.decode(recorded.data)
    return tuple(fields) if isinstance(fields, dict) else ()


class RoleView(Answer):
    """View served to a role."""

    made: DerivedView

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the view, its state, and its events."""
        yield {"kind": "view", **_summary(self.made), "position": self.made.position}
        yield from _lines(self.made)


class Moment(msgspec.Struct, frozen=True):
    """Point of a run, with an agent's history up to it and the version of the agent's stream.

    `event` is the agent's next event, if it was requested. `decisions` counts those of the run if
    the newest was taken because none was named; None otherwise.
    """

    run: str
    agent: str
    role: str
    version: int
    history: Sequence[Stored]
    position: int
    event: Recorded | None = None
    address: str = ""
    decisions: int | None = None


class Knowledge(Answer):
    """Knowledge of an agent: its state, what its role could see, and the views it was served.

    The state is None before its first event, and for another role than its own.
    """

    where: Moment
    made: DerivedView
    data: dict[str, Any] | None
    before: list[OnRecord]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the state, the visible events and the views."""
        where = self.where
        yield {
            "kind": "knew",
            **_summary(self.made),
            "agent": where.agent or None,
            "event": where.event.id if where.event is not None else None,
            "address": where.address or None,
            "type": where.event.type if where.event is not None else None,
            "position": where.position,
            "served": len(self.before),
        }
        if self.data is not None:
            yield {"kind": "agent", "run": where.run, "agent": where.agent, **self.data}
        for each in self.before:
            at = {"view": each.id, "position": each.stored.position}
            yield {"kind": "served", **at, **_plain(each.event)}
        yield from _lines(self.made)


async def role_view(
    workspace: Workspace, role: str, run: str, at: str | None, by: str, key: bytes | None
) -> RoleView:
    """Return what a role may see of a run at a point, and record the access.

    Raises NotFound, BadName, BadValue (the key is too short), UnknownEvent.
    """
    return RoleView(await roles.serve(workspace, role, run, at, by=by, key=key))


def _summary(made: DerivedView) -> dict[str, Any]:
    view = made.view
    return {
        "run": view.run,
        "role": view.role,
        "events": len(view.events),
        "digest": view.digest,
        "upto": made.at,
        "rules": made.rules or None,
    }


def _lines(made: DerivedView) -> Iterator[dict[str, Any]]:
    view = made.view
    yield {"kind": "state", "run": view.run, "role": view.role, **_plain(view.state)}
    for number, line in view.events:
        yield {"kind": "event", "number": number, **_plain(line)}


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = recorded(msgspec.Raw(msgspec.json.encode(record)))
    return fields


async def knew(
    workspace: Workspace, where: Moment, rules_at: str | None, key: bytes | None
) -> Knowledge:
    """Return the state of an agent before it decided, and what its role could see then.

    Raises NotFound, BadName, BadValue, UnknownEvent, Corrupt.
    """
    rules, rules_event = await roles.rules_at(
        workspace.states, where.role, await _rules_end(workspace, rules_at, where.position)
    )
    key = roles.hash_key(workspace.states, where.role, rules, key)
    made = roles.derive_from(
        where.role, where.run, where.history, rules, rules_event, where.position, key
    )
    data = await _state(workspace, where)
    entries = await roles.on_record(
        workspace.states, where.run, where.role, AtPosition(where.position)
    )
    return Knowledge(
        where, made, data, [each for each in entries if each.event.agent == where.agent]
    )


async def _rules_end(workspace: Workspace, at: str | None, position: int) -> AtPosition:
    """Return the position of a role's rules: that of the event unless given."""
    if at is None:
        return AtPosition(position)
    point = None if at == NOW else at
    return AtPosition(await workspace.log.end(await workspace.points.up_to("", point)))


async def before_event(
    workspace: Workspace, text: str, address: tuple[int, int], role: str | None
) -> Moment:
    """Return the author of an event in its state before it. Raises NotFound, Refused."""
    position, index = address
    stored = await workspace.log.at(position)
    if index >= len(stored.commit.events):
        raise NotFound(f"event {text!r}", EVENT_REMEDY)
    run = run_of(stored.stream)
    if run is None:
        message = f"event {text} belongs to no run: give a decision or another event of an agent"
        raise Refused(message)
    history = await workspace.states.history(run, AtPosition(whole_at(stored)))
    items = [each for each in history if each.position < position]
    if index:  # its earlier events in the same commit
        commit = msgspec.structs.replace(stored.commit, events=stored.commit.events[:index])
        items.append(msgspec.structs.replace(stored, commit=commit))
    if not items:
        raise NotFound(f"run {run} before event {text}", "it is the first: give a later one")
    agent, own = await _author(workspace, run, stored)
    version = stored.commit.version + index - 1
    if not isinstance(stored.stream, AgentStream):
        version = _version(items, agent)
    return Moment(
        run,
        agent,
        role or own,
        version,
        items,
        position - 1,
        stored.commit.events[index],
        f"{position}.{index}",
    )


async def _author(workspace: Workspace, run: str, stored: Stored) -> tuple[str, str]:
    """Return the agent that wrote a commit, and its role. Raises Refused."""
    if isinstance(stored.stream, AgentStream):
        return stored.stream.agent, stored.stream.role
    actor = stored.commit.actor.agent
    life: RunState = await workspace.states.life(run)
    if actor not in life.roster:
        known = ", ".join(sorted(life.roster)) or "none"
        message = f"{actor!r} is not an agent of run {run}: give an event of an agent: {known}"
        raise Refused(message)
    return actor, life.roster[actor]


def _version(history: Sequence[Stored], agent: str) -> int:
    own = [s for s in history if isinstance(s.stream, AgentStream) and s.stream.agent == agent]
    return own[-1].commit.last_version if own else 0


async def before_newest_decision(workspace: Workspace, run: str, role: str | None) -> Moment:
    """Return the moment before a run's newest decision; without one, its end."""
    places = [
        (stored.position, index)
        for stored in own(run, await workspace.states.history(run))
        for index, each in enumerate(stored.commit.events)
        if isinstance(revive(each), DecisionMade)
    ]
    if places:
        text = f"{places[-1][0]}.{places[-1][1]}"
        moment = await before_event(workspace, text, places[-1], role)
    else:
        moment = await at_point(workspace, run, None, role)
    return msgspec.structs.replace(moment, decisions=len(places))


async def at_point(workspace: Workspace, run: str, point: str | None, role: str | None) -> Moment:
    """Return the agent that acted last before a point, of a role if given. Raises NotFound."""
    position = await workspace.log.end(await workspace.points.up_to(run, point))
    history = until(await workspace.states.history(run, AtPosition(position)), position)
    for stored in reversed(history):
        stream = stored.stream
        if isinstance(stream, AgentStream) and role in (None, stream.role):
            version = stored.commit.last_version
            return Moment(run, stream.agent, stream.role, version, history, position)
    if role is None:
        raise NotFound(f"an agent of run {run} at {point or NOW}", "give a later point")
    return Moment(run, "", role, 0, history, position)


async def _state(workspace: Workspace, where: Moment) -> dict[str, Any] | None:
    """Return the agent's state as data; None before its first event, and for another role, since
    no mask is applied to it.
    """
    if not where.version:
        return None
    life = await workspace.states.life(where.run)
    if life.roster[where.agent] != where.role:
        return None
    stream = AgentStream(where.run, where.role, where.agent)
    return state.agent(await workspace.states.agent(stream, where.version))
