"""What roles see and may do at a point, and why one sees an event or not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from hansard.agents.access import principals as recorded
from hansard.agents.access import roles
from hansard.agents.policy import approvals as asked
from hansard.agents.policy.approvals import ListedApproval
from hansard.agents.workspace import Workspace
from hansard.bus.commits import whole_at
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, Stored, UpTo
from hansard.domain.approval import ApprovalStatus
from hansard.domain.errors import BadName
from hansard.domain.events import Recorded
from hansard.domain.ids import StreamId, run_of
from hansard.domain.principal import PrincipalKind, Token
from hansard.domain.roles.judge import explain as explained
from hansard.domain.roles.judge import judge
from hansard.domain.roles.model import RoleDefined
from hansard.domain.run import RunState
from hansard.inspect.answer import Answer
from hansard.inspect.find import ID_CHARACTERS

# Who may log in: principals, their tokens, and the label that each carries.


class Standing(StrEnum):
    """Whether a token is good for anything."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


class Login(msgspec.Struct, kw_only=True):
    """A token of a principal; one without tokens is told once, without what is a token's."""

    principal: str
    kind: PrincipalKind | None
    about: str
    carries: str
    role: str | None = None
    on_behalf_of: tuple[str, ...] = ()
    token: str | None = None
    standing: Standing | None = None
    expires: str | None = None
    because: str = ""


async def list_logins(workspace: Workspace) -> list[Login]:
    """Every principal with its tokens. Raises UnknownEvent, Corrupt."""
    found: list[Login] = []
    for name, state in (await recorded.known(workspace)).items():
        own = Login(principal=name, kind=state.kind, about=state.about, carries=str(state.carries))
        found += [_login(workspace, own, token) for token in state.tokens.values()] or [own]
    return found


def _login(workspace: Workspace, own: Login, token: Token) -> Login:
    issued = token.issued
    valid = Standing.VALID if token.is_valid(workspace.clock.now()) else Standing.EXPIRED
    return msgspec.structs.replace(
        own,
        role=issued.role,
        on_behalf_of=issued.on_behalf_of,
        token=issued.token,
        standing=Standing.REVOKED if token.revoked else valid,
        expires=issued.expires,
        because=token.because,
    )


# What agents ask before a call runs, and how each question stands.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Question(msgspec.Struct, kw_only=True):
    """What an agent asks. `until` is from when on no answer counts; `by` who answered."""

    approval: str
    standing: ApprovalStatus
    run: str
    agent: str
    role: str
    step: int
    tool: str
    arguments: msgspec.Raw
    rule: str
    timeout_ms: int
    asked_at: str
    until: str
    answered_at: str | None
    by: str | None
    because: str | None


class Approvals(Answer):
    """The questions that were asked for, of `all` that there are."""

    questions: list[Question]
    all: int

    def lines(self) -> Iterable[Question]:
        """Each question."""
        return self.questions


async def list_approvals(workspace: Workspace, *, every: bool) -> Approvals:
    """What waits for an answer, and with `every` all that was asked."""
    found = await asked.listed(workspace)
    given = [each for each in found if every or each.standing is ApprovalStatus.PENDING]
    return Approvals(questions=[question(each) for each in given], all=len(found))


def question(each: ListedApproval) -> Question:
    """A question as it stands."""
    it = each.approval
    return Question(
        approval=it.id,
        standing=each.standing,
        run=each.run,
        agent=it.asked.agent,
        role=it.asked.role,
        step=it.asked.step,
        tool=it.asked.tool,
        arguments=it.asked.arguments,
        rule=it.asked.rule,
        timeout_ms=it.asked.timeout_ms,
        asked_at=_time(it.asked_at),
        until=_time(it.expires),
        answered_at=None if it.answered_at is None else _time(it.answered_at),
        by=it.by or None,
        because=it.because or None,
    )


def _time(stamp: int) -> str:
    """A log time in ns since 1970 as ISO 8601, whole microseconds."""
    return (_EPOCH + timedelta(microseconds=stamp // 1_000)).isoformat().replace("+00:00", "Z")


async def find_approval(workspace: Workspace, text: str) -> ListedApproval:
    """A question by its id, or by a prefix that no other has: for that all questions are read.

    Raises NotFound, BadName.
    """
    if len(text) == ID_CHARACTERS:
        return await asked.find(workspace, text)
    listed = await asked.listed(workspace)
    found = [each for each in listed if each.approval.id.startswith(text)]
    same = [each for each in found if each.approval.id == text]
    if not text or not found:
        raise NotFound(f"approval {text!r:.80}", "see 'hansard approvals --all'")
    if len(same or found) > 1:
        raise BadName("approval", text, f"{len(found)} begin so: give more of it")
    return (same or found)[0]


EVENT_REMEDY = "give an event's id or its address (position.index)"
_POINT_REMEDY = "give a position (1234) or a time (2026-11-21T10:00:00Z)"


class Role(msgspec.Struct, kw_only=True):
    """A role's rules as of a position: None where they were withdrawn, `because` of what."""

    role: str
    standing: str
    version: int
    rules: RoleDefined | None
    because: str | None
    position: int


class Roles(Answer):
    """Roles as of a position."""

    roles: list[Role]
    position: int

    def lines(self) -> Iterable[Role]:
        """Each role."""
        return self.roles


class Explanation(msgspec.Struct, kw_only=True):
    """Whether a role sees an event: `rule` decided of all `rules` that match, `fields` (None: all)
    are shown less the `masks`; `why` says it for people, rule by rule.
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


class Explained(Answer):
    """An explanation, and the stream that the event stands in."""

    told: Explanation
    stream: StreamId

    def lines(self) -> Iterable[Explanation]:
        """The explanation."""
        return (self.told,)


async def read_roles(workspace: Workspace, names: Iterable[str], at: str | None) -> Roles:
    """Those of the roles that were defined by a point. Raises BadName."""
    position = await workspace.log.end(await _up_to(workspace, at))
    found = Roles(roles=[], position=position)
    for name in names:
        state = await roles.read(workspace, name, AtPosition(position))
        if state.version:
            role = Role(
                role=name,
                standing="defined" if state.rules is not None else "withdrawn",
                version=state.version,
                rules=state.rules,
                because=state.withdrawn.because if state.withdrawn is not None else None,
                position=position,
            )
            found.roles.append(role)
    return found


async def explain(
    workspace: Workspace, name: str, address: tuple[int, int], at: str | None
) -> Explained:
    """Whether a role sees the event at a position and index, which rule decided, and what each
    other rule lacked. Raises NotFound, BadName, Corrupt, UnknownEvent.
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
    told = Explanation(
        role=name,
        event=recorded.id,
        address=f"{position}.{index}",
        type=recorded.type,
        seen=verdict.visible,
        rule=verdict.rule or None,
        rules=verdict.rules,
        fields=verdict.fields,
        masks=[mask.name for mask in verdict.masks],
        whole=verdict.whole,
        why=explained(state.rules, facts),
    )
    return Explained(told=told, stream=stored.stream)


async def _up_to(workspace: Workspace, at: str | None) -> UpTo:
    """A position or a time as the end of a read; other points are of runs. Raises BadName."""
    point: int | datetime | None = None
    if at is not None:
        try:
            point = int(at) if at.isascii() and at.isdigit() else datetime.fromisoformat(at)
        except ValueError:
            raise BadName("point", at, _POINT_REMEDY) from None
    return await workspace.points.up_to("", point)


async def _life(workspace: Workspace, stored: Stored) -> RunState:
    """The life of the run an event is in, as of its commit; an empty one outside of runs."""
    run = run_of(stored.stream)
    if run is None:
        return RunState()
    try:
        life, _ = await workspace.states.vector(run, AtPosition(whole_at(stored)))
    except NotFound:  # nothing is on record of the run but this
        return RunState()
    return life


def _fields(recorded: Recorded) -> tuple[str, ...]:
    """The keys of an event's data."""
    told = msgspec.json.decode(recorded.data)
    return tuple(told) if isinstance(told, dict) else ()
