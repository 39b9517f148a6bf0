"""Copies of runs as a role sees them: commits that another workspace can read, replay and fork.

A copy is made of the lines of the role's view alone (`hansard.domain.roles.view`), so it holds no
trace of what the role does not see. A line that lacks a field gets an empty one; fingerprints that
are hidden are derived again from what is shown. Lines that a run cannot hold without what is hidden
are left out, and counted.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

import msgspec

from hansard.agents.access import roles
from hansard.agents.artifacts import experiences, versions
from hansard.agents.exchange.writer import YIELD_EVERY, CommitLine
from hansard.agents.steps import failures, payloads
from hansard.agents.workspace import Workspace
from hansard.bus.commits import drive_fetch, encode, revive
from hansard.bus.errors import NotFound
from hansard.bus.log import COMMIT_BYTES_MAX, Blobs, Origin, Stored, UpTo
from hansard.domain import board, fingerprint, ids, placeholders, prompt, run, values
from hansard.domain.agent import AgentState, SessionBegan
from hansard.domain.decider import State, evolve
from hansard.domain.errors import BadValue, Corrupt, HansardError
from hansard.domain.events import REGISTRY, Actor, Commit, Recorded
from hansard.domain.experience import experience
from hansard.domain.experience.experience import EXPERIENCES, ExperienceInstalled
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream, uuid8
from hansard.domain.integrity import may_hold
from hansard.domain.label import Label, join
from hansard.domain.payload import PartsLine, parts_of
from hansard.domain.roles import view
from hansard.domain.roles.model import RoleDefined
from hansard.domain.roles.view import ShownEvent, UnjudgedEvent, data_fields
from hansard.domain.steps import IMPORTER, NULL, Failure
from hansard.state.aggregates import in_full

OWN = ("run.started", "run.forked", "run.agent_joined", "run.resumed", "run.assigned")
"""Events that a copy does not repeat: it has a start of its own, and belongs to no experiment."""

ALSO = (prompt.KIND, ids.MEMORY, experience.KIND)
"""Kinds of streams beside runs that can be copied."""

_fields_of = functools.cache(msgspec.structs.fields)


@functools.cache
def _values_of(tag: str) -> set[str]:
    """Return the fields of an event that may be in a blob; none of an unknown one."""
    fields = _fields_of(REGISTRY[tag]) if tag in REGISTRY else ()
    return {each.encode_name for each in fields if each.type is msgspec.Raw}


Fields = dict[str, msgspec.Raw]
Lines = list[tuple[ShownEvent, Label | None]]
"""The lines of a view, each with its label."""

_EMPTY: Mapping[Any, msgspec.Raw] = {
    msgspec.Raw: NULL,
    str: msgspec.Raw(b'""'),
    Failure: msgspec.Raw(b'{"type":"Hidden","message":"hidden from the role"}'),
}
"""What takes the place of a required field that is hidden."""

_DECISION = "question selected alternatives inputs threshold confidence because"
_FACTS = {
    "message.added": ("message", "role content tokens fields"),
    "checkpoint.saved": ("checkpoint", "name data"),
    "resource.accessed": ("resource", "uri operation"),
    "agent.handed_off": ("hand_off", "to because payload"),
    "decision.made": ("decision", _DECISION),
}
"""What the fingerprints of facts cover, in order; those of a decision by name."""

_NAME_CHARACTERS_MAX = 50
"""Most characters of an experience's name before the digits that tell publishers apart."""

_OF_EXPERIENCE = {"about", "content"}
"""Fields of which the copy of an experience is made."""

_FINDINGS_MAX = 5
"""Most places that a refusal names."""

_IDENTIFIERS = frozenset(
    {"digest", "failed", "look", "rests_on", "restsOn", "run", "sha256", "sources"}
)
"""Fields of an experience with ids and digests: digits in them are no phone number."""

_IDENTIFIER = re.compile(r"[A-Za-z0-9_.-]{0,200}")
_ELEMENT_ID = re.compile(r"(?:\d{1,4}-\d{1,10})?")

_MARKS = (b'"$hash"', b'"$cut"', b'"$parts"', b'"$append"')


class Copy(msgspec.Struct):
    """A copy of a run, a prompt, a memory space or an experience.

    Attributes:
        run: Its id: derived from the publisher, the run and what is shown of it.
        of: The run that it shows; the name of anything else where it is added.
        shown: The digest of the view of a run.
        commits: Its commits, in order: their positions are numbers of the view's lines.
        blobs: Large values that its commits name.
        left_out: The number of lines that it lacks, by kind.
    """

    run: str
    of: str
    shown: str
    commits: list[CommitLine] = []
    blobs: list[bytes] = []
    left_out: Counter[str] = msgspec.field(default_factory=Counter)


def id_of(publisher: str, workspace: str, role: str, of: str, shown: str) -> str:
    """Return the id of a copy: no other run has it, also in the workspace that it comes from."""
    return uuid8("hansard.copy", publisher, workspace, role, of, shown)


def stream_of(named: str) -> WorkspaceStream:
    """Return the stream of a prompt, memory space or experience. Raises BadValue, BadName."""
    kind, _, name = named.partition("/")
    if kind not in ALSO or not name:
        raise BadValue("also", f"{named!r:.80}", "give prompt/NAME, memory/NAME or experience/NAME")
    return WorkspaceStream(kind, ids.name(kind, name))


def name_of(publisher: str, workspace: str, experience: str, event: str) -> str:
    """Return the name of the copy of an experience: no publisher takes a name without digits."""
    copy = id_of(publisher, workspace, "", experience, event)
    return f"{experience[:_NAME_CHARACTERS_MAX].rstrip('-')}-{copy[:8]}"


def commit_id(copy: str, stream: StreamId, version: int, event: str) -> str:
    """Return the id of a commit of a copy."""
    return uuid8("hansard.copy", copy, str(stream), str(version), event)


def origin_of(workspace: str, role: str, of: str) -> str:
    """Return the label of a copy that states its origin, and by which it is read-only."""
    return f"{workspace}/{of} as {role}"


async def rules_of(workspace: Workspace, role: str, up_to: UpTo = None) -> RoleDefined:
    """Return a role's rules at a point. Raises BadValue if it has none."""
    rules, _ = await roles.rules_at(workspace.states, role, up_to)
    if rules is None:
        raise BadValue("as", f"role {role!r:.80} has no rules", "see 'hansard roles apply'")
    return rules


async def copied(
    workspace: Workspace,
    of: str,
    up_to: UpTo,
    role: str,
    rules: RoleDefined,
    publisher: str,
    key: bytes,
) -> Copy:
    """Return a copy of a run at a point, as a role with the rules of that point sees it; `key`
    hashes masked values.

    Raises NotFound, and BadValue where the role sees nothing of it.
    """
    history = await workspace.states.history(of, up_to)
    lines, _ = await _lines(workspace.blobs, of, history, rules, key)
    if not lines:
        fact = f"role {role!r} sees nothing of run {of}"
        raise BadValue("runs", fact, f"see 'hansard roles view {role} {of}'")
    shown = view.served(enumerate((line for line, _ in lines), 1)).digest
    name = workspace.log.workspace
    made = Copy(id_of(publisher, name, role, of, shown), of, shown)
    await _Builder(workspace, made, whole=view.sees_all(rules)).build(lines, role)
    return made


async def also(
    workspace: Workspace,
    named: str,
    up_to: UpTo,
    rules: RoleDefined,
    publisher: str,
    key: bytes,
    terms: str,
) -> Copy:
    """Return a publisher's copy of a prompt, a memory space or an experience.

    Raises BadValue where the role does not see all of it, and for an experience with secret or
    personal values; Refused for an experience that may not be used.
    """
    stream = stream_of(named)
    history = await workspace.log.read(stream, up_to=up_to)
    lines, hidden = await _lines(workspace.blobs, "", history, rules, key)
    if stream.kind == experience.KIND:
        hidden += not _shows_experience(rules, history)
    if stream.kind == experience.KIND and lines and not hidden:
        line = await _installed(workspace, stream.id, history, publisher, terms)
        event = msgspec.json.decode(line[0].data, type=ExperienceInstalled)
        content: dict[str, str] = await versions.fetched(workspace, event.content)
        name = name_of(publisher, workspace.log.workspace, experience.of(content).name, line[0].id)
        stream, lines = WorkspaceStream(experience.KIND, name), [line]
    of = str(stream)
    made = Copy(id_of(publisher, workspace.log.workspace, "", of, ""), of, "")
    builder = _Builder(workspace, made, whole=True)
    if hidden or not lines or not all(builder.repeat(stream, *line) for line in lines):
        fact = f"there is no {named}, or the role does not see all of it"
        raise BadValue("also", fact, "leave it out, or let the role see it")
    return made


def _shows_experience(rules: RoleDefined, history: Sequence[Stored]) -> bool:
    """Return whether a role sees all fields of which the copy of an experience is made."""
    return all(
        view.shows_whole(view.judge(rules, event.facts), field)
        for event in roles.facts_of_run("", history, shares=False)
        for field in data_fields(bytes(event.data)).keys() & _OF_EXPERIENCE
    )


async def _installed(
    workspace: Workspace, name: str, history: Sequence[Stored], publisher: str, terms: str
) -> tuple[ShownEvent, Label | None]:
    """Return the newest version of an experience as another workspace gets it: untrusted until a
    person there confirms its digest. Raises Refused, BadValue.
    """
    artifact = versions.of_commits(EXPERIENCES, history)
    number = artifact.state.newest
    experience.demand_usable(artifact.state, name, number)
    version = await experiences.version_of(workspace, name, artifact, number)
    demand_clean(version.content)
    event = ExperienceInstalled(
        version=1,
        digest=version.digest,
        content=await experiences.packed(workspace, version.content),
        about=experience.about(version.experience),
        bundle="",
        sources=version.experience.sources,
        key=publisher,
        license=terms,
    )
    of = f"{workspace.log.workspace}/{name}"
    own = uuid8("hansard.copy", publisher, of, version.digest, terms)
    at, data = artifact.by_version()[number].commit.at, _raw(event)
    line = ShownEvent(type=event.tag, id=own, at=at, data=data)
    return line, join(version.label, Label(untrusted=True)).stored


def demand_clean(content: Mapping[str, str]) -> None:
    """Raise BadValue if an experience's files hold a secret or personal value: an e-mail address, a
    phone or card number, an IBAN or a key. The error has none of them.
    """
    findings = [
        f"{kind.lower()} in {path}" for path, text in content.items() for kind in _kinds(path, text)
    ]
    if findings:
        first = "; ".join(list(dict.fromkeys(findings))[:_FINDINGS_MAX])
        remedy = "distil it from runs in which the value differs, or pass the value as a secret"
        raise BadValue("also", f"it holds secret or personal values: {first:.600}", remedy)


def _kinds(path: str, text: str) -> Iterator[str]:
    """Yield the kinds of secret and personal values in a file, each with its field."""
    fields: list[tuple[tuple[str, ...], Any]] = [((), text)]
    if path.endswith(".json"):
        whole = msgspec.json.decode(text)
        fields = [*values.leaves(whole), *(((), name) for name in _names(whole))]
    for within, value in fields:
        if type(value) not in (str, int):
            continue
        plain = str(value)
        field = next((name for name in reversed(within) if not name.isdigit()), "")
        is_id = field in _IDENTIFIERS and _IDENTIFIER.fullmatch(plain)
        if field == "elementId":
            is_id = _ELEMENT_ID.fullmatch(plain)
            if not is_id:
                yield f"no element's id at {field}"
        names = ("email", "key") if is_id else placeholders.DETECTORS
        for *_, kind in placeholders.spans(plain, [placeholders.DETECTORS[each] for each in names]):
            if kind != placeholders.TEXT:
                yield f"{kind} at {field!r:.60}"


def _names(value: Any) -> Iterator[str]:
    """Yield the names of all fields in a JSON value, also of those that hold nothing."""
    if type(value) is dict:
        yield from value
    for each in value.values() if type(value) is dict else value if type(value) is list else ():
        yield from _names(each)


async def _lines(
    blobs: Blobs, of: str, history: Sequence[Stored], rules: RoleDefined, key: bytes
) -> tuple[Lines, int]:
    """Return what a role sees of a history, and the number of hidden events."""
    parts: dict[str, PartsLine] = {}
    events: list[UnjudgedEvent] = []
    for number, event in enumerate(roles.facts_of_run(of, history, shares=False), 1):
        values = parts.setdefault(event.facts.agent, PartsLine())
        events.append(await _expanded(blobs, values, number, event))
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
    judged = zip(events, view.each_judged(rules, events, key), strict=True)
    lines = [(line[1], event.facts.label) for event, line in judged if line is not None]
    return lines, len(events) - len(lines)


async def _expanded(
    blobs: Blobs, values: PartsLine, number: int, event: UnjudgedEvent
) -> UnjudgedEvent:
    """Return an event with the values of its call whole, so that a role is judged by them."""
    tag, data = event.facts.tag, bytes(event.data)
    if not isinstance(event.facts.stream, AgentStream):
        return event
    values.note(tag, number, data)
    try:
        parts = values.by_parts(tag, number, data)
        whole = {each.sha256: await drive_fetch(fetch, blobs.get) for each, fetch in parts}

        async def read(raw: msgspec.Raw) -> msgspec.Raw:
            """Return a value of parts, or one that is kept apart, as a whole."""
            part = parts_of(bytes(raw), event.id)
            if part is not None:
                return msgspec.Raw(whole[part.sha256].encode())
            value = _plain(raw) if bytes(raw).startswith(b'{"$blob"') else None
            match value:
                case {"$blob": {"sha256": str() as sha256, "size": int() as size}}:
                    return msgspec.Raw(await blobs.get(sha256, size))
                case _:
                    return raw

        fields = data_fields(data) if whole or b'"$blob"' in data else {}
        if "arguments" in fields:
            arguments = data_fields(bytes(fields["arguments"]))
            fields["arguments"] = _raw({n: await read(each) for n, each in arguments.items()})
        if "result" in fields:
            fields["result"] = await read(fields["result"])
    except (NotFound, Corrupt):  # an erased blob: its value is shown as missing
        return event
    return msgspec.structs.replace(event, data=_raw(fields)) if fields else event


class _Chain(msgspec.Struct):
    """The calls of an agent: its numbers of them, and what their fingerprints follow from."""

    head: str = ""
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    numbers: dict[int, int] = {}
    unordered: set[int] = set()
    versions: dict[str, str] = {}

    def occurrence(self, base: str) -> int:
        """Return how many equal calls or facts there were before."""
        self.counts[base] += 1
        return self.counts[base] - 1


class _Builder:
    """Builds the commits of a copy, one for each line."""

    def __init__(self, workspace: Workspace, made: Copy, *, whole: bool) -> None:
        self._blobs, self._log = workspace.blobs, workspace.log.workspace
        self._made, self._whole = made, whole
        self._states: dict[StreamId, State] = {}
        self._versions: Counter[StreamId] = Counter()
        self._chains: dict[str, _Chain] = {}
        self._roster: dict[str, str] = {}
        self._seen: set[str] = set()
        self._number = 0

    async def build(self, lines: Lines, role: str) -> None:
        """Build the copy of a view's lines."""
        self._begin(lines, role)
        for self._number, (line, label) in enumerate(lines, 1):
            if not await self._take(line, label):
                self._made.left_out[line.type.rpartition(".")[0]] += 1
            if self._number % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    def _begin(self, lines: Lines, role: str) -> None:
        """Begin the run, and have the agents of the lines join it."""
        begins = [each for each in lines if each[0].type in ("run.started.v1", "run.forked.v1")]
        facts = {"workflow": "shared"}
        labels: dict[str, str] = {}
        for line, _ in begins:
            data = msgspec.json.decode(line.data)
            labels |= _texts(data.get("labels"))
            facts |= _texts({key: data.get(key) for key in ("workflow", "program", "chain")})
        labels[run.SHARED] = origin_of(self._log, role, self._made.of)
        life, first = RunStream(self._made.run), lines[0][0]
        under = join(*(label for _, label in begins or lines[:1])).stored
        self._own(life, run.RunStarted, first, {**facts, "labels": labels}, under)
        for line, label in lines:
            if line.role and line.agent not in self._roster:
                self._roster[line.agent] = line.role
                joined = {"agent": line.agent, "role": line.role}
                self._own(life, run.AgentJoined, first, joined, label)

    def _own(
        self, stream: StreamId, kind: Any, at: ShownEvent, fields: Any, label: Label | None
    ) -> None:
        """Add an event of the copy's own, at the time of a line."""
        own = uuid8(self._made.run, str(stream), kind.tag, str(fields))
        line = msgspec.structs.replace(at, id=own, type=kind.tag, data=_raw(fields))
        if not self.repeat(stream, line, label):
            raise BadValue("runs", f"{kind.tag} cannot be repeated: {fields!r:.80}", "report it")

    async def _take(self, line: ShownEvent, label: Label | None) -> bool:
        """Add a line; return False if it is left out."""
        kind, event = line.type.rpartition(".")[0], REGISTRY.get(line.type)
        if event is None or kind in OWN:
            return kind in OWN
        stream: StreamId = RunStream(self._made.run)
        if line.key:
            if kind.startswith("view.") or not (self._whole or kind.startswith("board.")):
                return False
            stream = KeyStream(self._made.run, line.key)
        elif not may_hold(stream, event):
            if line.agent not in self._roster:
                return False
            stream = AgentStream(self._made.run, self._roster[line.agent], line.agent)
            if stream not in self._states and event is not SessionBegan:
                began = {"epoch": 1, "agent": stream.agent, "role": stream.role}
                versions = dict.fromkeys(("server_version", "protocol_version"), "")
                self._own(stream, SessionBegan, line, began | versions, label)
        fields = self._filled(event, data_fields(bytes(line.data)))
        if isinstance(stream, AgentStream) and not await self._of_agent(stream, event, fields):
            return False
        return self.repeat(stream, msgspec.structs.replace(line, data=_raw(fields)), label)

    def _filled(self, event: type[msgspec.Struct], fields: Fields) -> Fields:
        """Return the fields without masks' marks, and empty ones for those that are hidden."""
        filled: Fields = {}
        for field in _fields_of(event):
            raw = fields.get(field.encode_name, _EMPTY.get(field.type) if field.required else None)
            if raw is not None:
                if any(mark in bytes(raw) for mark in _MARKS):
                    raw = _raw(_unmasked(msgspec.json.decode(raw), is_text=field.type is str))
                filled[field.encode_name] = raw
        return filled

    async def _of_agent(self, stream: AgentStream, event: Any, fields: Fields) -> bool:
        """Renumber the steps of an agent's line, and derive its hidden fingerprints; return False
        for one of a call whose request is hidden.
        """
        kind, chain = event.tag.rpartition(".")[0], self._chains.setdefault(stream.agent, _Chain())
        state = self._states.get(stream)
        if event is SessionBegan:
            epoch = state.epoch + 1 if isinstance(state, AgentState) else 1
            own = {"epoch": epoch, "agent": stream.agent, "role": stream.role}
            fields |= {name: _raw(value) for name, value in own.items()}
        if kind != "step.requested" and _plain(fields.get("step", NULL)) not in chain.numbers:
            if kind.startswith("step."):
                return False
            fields.pop("step", None)
        renumbered = view.renumber(fields, chain.numbers, self._seen)
        fields.clear()
        fields.update(renumbered)
        if not self._whole:
            marks = await self._marks(stream.agent, event, chain, fields)
            fields |= {name: _raw(mark) for name, mark in marks.items()}
        return True

    async def _marks(self, agent: str, event: Any, chain: _Chain, fields: Fields) -> dict[str, str]:
        """Return the fingerprints and digests of a line, from what is shown."""
        kind = event.tag.rpartition(".")[0]
        if kind == "tool.declared":
            chain.versions[_plain(fields["tool"])] = _plain(fields.get("version", _EMPTY[str]))
        elif kind == "step.requested":
            hidden = _plain(fields.get("defaults", NULL)) or ()
            arguments = await in_full(self._blobs, fields["arguments"])
            if isinstance(arguments, dict):
                arguments = {name: each for name, each in arguments.items() if name not in hidden}
            tool: str = _plain(fields["tool"])
            version, content = chain.versions.get(tool, ""), fingerprint.canonical(arguments)
            base = fingerprint.call_base(tool, version, agent, "", content)
            call, head = fingerprint.call_key(base, chain.occurrence(base)), chain.head
            if _plain(fields.get("unordered", NULL)):
                chain.unordered.add(_plain(fields["step"]))
                head = fingerprint.UNORDERED
            return {"call": call, "fingerprint": fingerprint.fingerprint(call, head)}
        elif kind in ("step.completed", "step.failed", "step.settled"):
            if kind == "step.failed":
                error = msgspec.json.decode(fields["error"], type=Failure)
                digest = failures.failure_digest(error)
            else:
                result = await in_full(self._blobs, fields.get("result", NULL))
                digest = fingerprint.digest(fingerprint.canonical(result))
            if _plain(fields["step"]) not in chain.unordered:
                chain.head = digest
            return {"digest": digest}
        elif kind in _FACTS:
            what, names = _FACTS[kind]
            fact = msgspec.json.decode(_raw(fields), type=event)
            values: dict[str, Any] = {}
            for name in names.split():
                value = getattr(fact, name)
                is_raw = isinstance(value, msgspec.Raw)
                values[name] = await in_full(self._blobs, value) if is_raw else _plain(value)
                if name in ("fields", "payload") and values[name] is None:
                    values[name] = {}
            plain = values if what == "decision" else list(values.values())
            base = fingerprint.fact_base(what, "", fingerprint.canonical(plain))
            number = chain.occurrence(base)
            return {"fingerprint": fingerprint.fact_fingerprint(base, number, chain.head)}
        return {}

    def repeat(self, stream: StreamId, line: ShownEvent, label: Label | None) -> bool:
        """Add a line to its stream; return False if it cannot follow on what is there."""
        fields = data_fields(bytes(line.data))
        for name, raw in fields.items():
            if len(bytes(raw)) > payloads.INLINE_BYTES_MAX and name in _values_of(line.type):
                plain, is_call = _plain(raw), line.type == "step.requested.v1"
                packed = payloads.pack_arguments(plain) if is_call else payloads.pack(plain, name)
                self._made.blobs += packed.blobs
                fields[name] = packed.raw
        recorded = Recorded(line.type, line.id, _raw(fields), None, line.occurred_at)
        state = self._states.get(stream) or _NEW.get(type(stream), State)()
        try:
            happened = revive(recorded)
            if type(state) is not State and not (
                isinstance(stream, KeyStream) and not line.type.startswith("board.")
            ):
                evolve(state, happened)
        except (HansardError, ArithmeticError, LookupError, TypeError, ValueError):
            state.version = self._versions[stream]
            return False
        self._states[stream] = state
        self._versions[stream] += 1
        version = self._versions[stream]
        actor = Actor(line.agent if isinstance(stream, KeyStream) and line.agent else IMPORTER)
        if isinstance(stream, AgentStream):
            actor = Actor(IMPORTER, (stream.agent,))
        commit = Commit(
            id=commit_id(self._made.run, stream, version, line.id),
            version=version,
            at=line.at,
            actor=actor,
            epoch=state.epoch if isinstance(state, AgentState) else 0,
            label=label,
            events=(recorded,),
        )
        body = encode(stream, commit)
        if len(body) > COMMIT_BYTES_MAX:
            raise BadValue(f"event {line.id}", f"{len(body):,} bytes", "mask its largest field")
        self._seen |= {line.id, commit.id}
        at = f"{line.at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z"
        origin = Origin(self._log, max(1, self._number), at)
        self._made.commits.append(CommitLine(0, stream, version, body.decode(), origin))
        return True


_States = Mapping[Any, type[State]]
_NEW: _States = {AgentStream: AgentState, RunStream: run.RunState, KeyStream: board.BoardState}


def _unmasked(value: Any, *, is_text: bool) -> Any:
    """Return a value in which cut parts are texts, and hashed ones secrets by name."""
    match value:
        case {"$cut": str(text)}:
            return f"{text}…"
        case {"$hash": str(text)}:
            return f"(hash {text})" if is_text else {"$secret": f"hash {text}"}
        case {"$parts": {"size": size}}:
            return f"({size} bytes that are not shown)"
        case {"$append": {"items": items}}:
            return items
        case dict():
            return {key: _unmasked(each, is_text=False) for key, each in value.items()}
        case list():
            return [_unmasked(each, is_text=False) for each in value]
        case _:
            return value


def _texts(value: Any) -> dict[str, str]:
    items = value.items() if isinstance(value, dict) else ()
    return {name: each for name, each in items if isinstance(each, str)}


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
