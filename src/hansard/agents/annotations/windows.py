"""Conversations across runs, and the context window of an agent: its conversation before this run,
its own messages, and the summaries in place of what was compacted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from hansard.agents.annotations.statements import Annotations, Form, content_of, form_of
from hansard.agents.errors import ToolError
from hansard.agents.flow import Flow, Io, is_coroutine_function
from hansard.agents.steps import payloads
from hansard.agents.steps.tools import Tool, ToolSpec, tool
from hansard.agents.workspace import Workspace
from hansard.bus.commits import drive_fetch, revive, revive_all
from hansard.bus.log import AtPosition, Stored
from hansard.domain.agent import MessageAdded
from hansard.domain.choices import Brief, counted
from hansard.domain.conversation import (
    KIND,
    Bound,
    ContextCompacted,
    Line,
    RunJoined,
    check_free,
    dropped,
    ranges,
    replaced,
    total,
)
from hansard.domain.errors import BadValue, Refused
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import AgentStream, WorkspaceStream
from hansard.domain.label import Label

# Conversations: turns and context across several runs.


class Conversation(Brief, msgspec.Struct, frozen=True):
    """Content of a conversation.

    `messages` are all its messages in the provider's form, in the order of the record, ready to be
    sent again together with the next one. `turns` counts the user's messages.

    Attributes:
        id: The conversation's id.
        runs: Its runs, oldest first.
        messages: All its messages, in the provider's form.
        total_tokens: Sum over the messages whose tokens were counted.
        window: The context to continue with: the messages, with summaries in place of those that
            were compacted.
    """

    id: str
    runs: list[str]
    messages: list[dict[str, Any]]
    total_tokens: int
    window: list[dict[str, Any]] = []

    @property
    def turns(self) -> int:
        """Number of messages from the user."""
        return sum(message["role"] == "user" for message in self.messages)


async def conversation(workspace: Workspace, name: str, before: str | None = None) -> Conversation:
    """Return a conversation by its id, up to before a run of it; an unknown one is empty."""
    runs = await _runs(workspace, name)
    if before in runs:
        runs = runs[: runs.index(before)]
    facts = [each for run in runs for each in placed(await workspace.states.history(run))]
    fetch = workspace.blobs.get
    forms = {each.id: form_of(await drive_fetch(content_of(each.fact), fetch)) for each in facts}
    added = [each for each in facts if isinstance(each.fact, MessageAdded)]
    return Conversation(
        name,
        runs,
        [forms[each.id] for each in added],
        sum(each.fact.tokens or 0 for each in added),
        [forms[each.id] for each in window_after(facts)],
    )


class PlacedFact(msgspec.Struct, frozen=True):
    """A message or a summary, with its event's id and position."""

    id: str
    run: str
    agent: str
    version: int
    position: int
    index: int
    fact: MessageAdded | ContextCompacted
    label: Label | None = None

    @property
    def address(self) -> str:
        """The event's address: position and index."""
        return f"{self.position}.{self.index}"


def placed(commits: list[Stored]) -> list[PlacedFact]:
    """Return the messages and summaries of a run, from all agents, in the order of the record."""
    facts: list[PlacedFact] = []
    for stored in commits:
        stream = stored.stream
        if not isinstance(stream, AgentStream):
            continue
        for index, recorded in enumerate(stored.commit.events):
            if recorded.type in (MessageAdded.tag, ContextCompacted.tag):
                event = revive(recorded)
                if isinstance(event, MessageAdded | ContextCompacted):
                    facts.append(
                        PlacedFact(
                            recorded.id,
                            stream.run,
                            stream.agent,
                            stored.commit.version + index,
                            stored.position,
                            index,
                            event,
                            stored.commit.label,
                        )
                    )
    return facts


def window_after(facts: list[PlacedFact]) -> list[PlacedFact]:
    """Return the window that results from messages and summaries.

    Each summary, oldest first, replaces what it summarises. A summary is ignored unless all that it
    summarises is still in the window.
    """
    window = [each for each in facts if isinstance(each.fact, MessageAdded)]
    for summary in sorted(facts, key=lambda each: (each.position, each.index)):
        if isinstance(summary.fact, ContextCompacted):
            replaced_ids = frozenset(summary.fact.stands_for)
            if replaced_ids and replaced_ids <= {each.id for each in window}:
                window = replaced(window, functools.partial(_in, replaced_ids), summary)
    return window


def _in(replaced_ids: frozenset[str], each: PlacedFact) -> bool:
    return each.id in replaced_ids


async def earlier_facts(workspace: Workspace, name: str, run: str) -> list[PlacedFact]:
    """Return the messages and summaries of earlier runs of a conversation, as recorded when this
    run began. A fork's are its first parent's.
    """
    return placed(await earlier_commits(workspace, name, run))


async def earlier_commits(workspace: Workspace, name: str, run: str) -> list[Stored]:
    """Return the commits of the conversation's earlier runs, as of the start of this run."""
    stored = await workspace.log.read(WorkspaceStream(KIND, name))
    joined = {event.run: each.position for each, event in _joins(stored)}
    while run not in joined:
        forked = await workspace.states.forked(run)
        if forked is None:
            return []
        run = forked.parent
    begun = AtPosition(joined[run])
    commits: list[Stored] = []
    for each in joined:
        if each == run:
            break
        commits += await workspace.states.history(each, begun)
    return commits


def _joins(stored: list[Stored]) -> Iterator[tuple[Stored, RunJoined]]:
    for each in stored:
        for event in revive_all([each.commit]):
            if isinstance(event, RunJoined):
                yield each, event


async def turns(workspace: Workspace, name: str, run: str) -> int:
    """Count the user's messages in the conversation's earlier runs."""
    count = 0
    for earlier in await _runs(workspace, name):
        if earlier == run:
            break
        facts = placed(await workspace.states.history(earlier))
        messages = [each.fact for each in facts if isinstance(each.fact, MessageAdded)]
        count += sum(message.role == "user" for message in messages)
    return count


async def _runs(workspace: Workspace, name: str) -> list[str]:
    stored = await workspace.log.read(WorkspaceStream(KIND, name))
    events = revive_all(item.commit for item in stored)
    return [event.run for event in events if isinstance(event, RunJoined)]


Count = Callable[[Form], int]
"""Returns the number of tokens of a message."""

ANSWERS = ("tool", "function")
"""Roles of messages that answer a call."""


class Compaction(Brief, msgspec.Struct, frozen=True, kw_only=True):
    """A context window after a summary replaced its earlier messages.

    Attributes:
        summary: The summary.
        window: The window now, in the provider's form.
        dropped: The messages that the summary replaced, in the provider's form.
        tokens_before: Tokens of the window before; None unless those of each message are known.
        tokens_after: Tokens of the window now; None likewise.
    """

    summary: str
    window: list[Form]
    dropped: list[Form]
    tokens_before: int | None
    tokens_after: int | None


class _Entry(msgspec.Struct, frozen=True):
    """An entry of a window. `version` is that in the agent's stream, 0 for an entry of another
    run.
    """

    id: str
    version: int
    fact: MessageAdded | ContextCompacted


class _Content(msgspec.Struct, frozen=True):
    """An entry of a window with its content: as recorded, and in the provider's form."""

    entry: _Entry
    plain: list[Any]
    form: Form
    tokens: int | None


class Plan(msgspec.Struct, frozen=True):
    """A window over its bound, with the range of entries that a summary is to replace."""

    window: list[_Content]
    start: int
    end: int
    count: Count | None
    role: str

    @property
    def dropped(self) -> list[_Content]:
        """Entries that the summary is to replace."""
        return self.window[self.start : self.end]

    @property
    def messages(self) -> list[Form]:
        """The entries to replace, in the provider's form."""
        return [each.form for each in self.dropped]

    @property
    def kept(self) -> list[_Content]:
        """Entries that stay in the window."""
        return self.window[: self.start] + self.window[self.end :]

    def tokens_of(self, summary: str) -> int | None:
        """Return the number of tokens of a summary."""
        return _counted(self.count, {"role": self.role, "content": summary}, None)

    def check(self, summary: object) -> str:
        """Return the summary. Raises BadValue if it is empty, or longer than what it replaces."""
        if not isinstance(summary, str) or not summary.strip():
            raise BadValue("the summary", f"{summary!r:.80}", "return a non-empty text")
        many, unit = self.tokens_of(summary), "tokens"
        before = total(each.tokens for each in self.dropped)
        if many is None or before is None:
            many, unit = len(summary), "characters"
            before = sum(_characters(each.plain) for each in self.dropped)
        if many > before:
            raise BadValue(
                "the summary",
                f"it has {many:,} {unit}, and the "
                f"{counted(len(self.dropped), 'message')} that it replaces "
                f"have {before:,}",
                "return a shorter one, or compact later, when there is more to summarise",
            )
        return summary


class Windows:
    """Reads and compacts a session's context window."""

    def __init__(self, facts: Annotations) -> None:
        self._facts = facts
        self._engine = facts.engine
        self._workspace = facts.engine.workspace
        self._earlier: list[PlacedFact] | None = None

    def _before(self) -> Flow[list[PlacedFact]]:
        """Return the conversation before this run. It is read once, since it no longer changes."""
        conversation = self._engine.ledger.state.conversation_id
        if conversation is None:
            return []
        if self._earlier is None:
            read = functools.partial(
                earlier_facts, self._workspace, conversation, self._engine.stream.run
            )
            self._earlier = yield Io(read)
        for each in self._earlier or []:
            self._engine.ledger.shown(each.label)
        return self._earlier or []

    def _entries(self, *, full: bool) -> Flow[list[_Entry]]:
        """Return the window as this session has stated it; `full`: all messages, without
        summaries.
        """
        self._engine.ledger.demand_open()
        before = yield from self._before()
        if full:
            before = [each for each in before if isinstance(each.fact, MessageAdded)]
        else:
            before = window_after(before)
        window = [_Entry(each.id, 0, each.fact) for each in before]
        for noted in self._facts.stated():
            fact = noted.fact
            if isinstance(fact, MessageAdded):
                window.append(_Entry("", noted.version, fact))
            elif isinstance(fact, ContextCompacted) and not full:
                is_replaced = functools.partial(_is_replaced, fact)
                window = replaced(window, is_replaced, _Entry("", noted.version, fact))
        return window

    def _contents(self, entries: Sequence[_Entry], count: Count | None) -> Flow[list[_Content]]:
        contents: list[_Content] = []
        for each in entries:
            content = yield from self._engine.outcomes.fetch(content_of(each.fact))
            form = form_of(content)
            tokens = _counted(count, form, each.fact.tokens)
            contents.append(_Content(each, content, form, tokens))
        return contents

    def window(self, *, full: bool, close: bool = True) -> Flow[list[Form]]:
        """Return the window in the provider's form; `close` adds an answer to each call that has
        none and can no longer get one.
        """
        entries = yield from self._entries(full=full)
        whole = yield from self._contents(entries, None)
        if close:
            return closed([(each.form, each.entry.version > 0) for each in whole])
        return [each.form for each in whole]

    def planned(self, bound: Bound, count: Count | None, role: str) -> Flow[Plan | None]:
        """Return the plan for a summary, or None if the window is within its bound.

        Raises BadValue, and Refused if there is nothing to drop or another agent compacted it.
        """
        bound.check()
        entries = yield from self._entries(full=False)
        whole = yield from self._contents(entries, count)
        lines = [
            Line(
                each.entry.fact.role,
                bool(_answered(each.form)),
                each.tokens,
                isinstance(each.entry.fact, ContextCompacted),
            )
            for each in whole
        ]
        span = dropped(lines, bound)
        if span is None:
            return None
        ids = yield from self._ids()
        named = [msgspec.structs.replace(each, entry=_named(each.entry, ids)) for each in whole]
        plan = Plan(named, *span, count, role)
        yield from self._demand_free(plan)
        return plan

    def _ids(self) -> Flow[dict[int, str]]:
        """Return the ids of this stream's events, by version."""
        stream = self._engine.stream
        commits: list[Stored] = yield Io(functools.partial(self._workspace.states.commits, stream))
        return {
            version: recorded.id
            for stored in commits
            for version, recorded in enumerate(stored.commit.events, stored.commit.version)
        }

    def _demand_free(self, plan: Plan) -> Flow[None]:
        """Raise Refused if another agent of the run has compacted some of the entries."""
        if self._engine.ledger.state.conversation_id is None:
            return
        stream = self._engine.stream
        history: list[Stored] = yield Io(
            functools.partial(self._workspace.states.history, stream.run)
        )
        mine = [each.entry.id for each in plan.dropped]
        for stored in history:
            if isinstance(stored.stream, AgentStream) and stored.stream.agent != stream.agent:
                for recorded in stored.commit.events:
                    if recorded.type == ContextCompacted.tag:
                        event = revive(recorded)
                        if isinstance(event, ContextCompacted):
                            check_free(mine, event.stands_for, stored.stream.agent)

    def summarized(self, spec: ToolSpec, plan: Plan) -> Flow[str]:
        """Return the summary, from a step of its own or from the record. Raises as any call
        does.
        """
        call = self._engine.begin(spec, (plan.messages,), {})
        answered, value = self._engine.answer(call)
        summary: str = value if answered else (yield from self._engine.execute(call))
        return summary

    def compacted(self, plan: Plan, text: str) -> Flow[Compaction]:
        """Record a summary together with the ids of what it replaces."""
        if not self._engine.settings.mode.reads_only:
            yield from self._demand_free(plan)
        entries = yield from self._entries(full=False)
        here = {(each.version or each.id) for each in entries}
        if not all((each.entry.version or each.entry.id) in here for each in plan.dropped):
            message = (
                "another call of this session compacted some of these messages meanwhile: compact "
                "in one place, after the calls that it covers have ended"
            )
            raise Refused(message)
        tokens = plan.tokens_of(text)
        before = total(each.tokens for each in plan.window)
        after = total([*(each.tokens for each in plan.kept), tokens])
        packed = payloads.pack(self._facts.plain(text, "the summary"), "the summary")
        fact = ContextCompacted(
            role=plan.role,
            summary=packed.raw,
            fingerprint="",
            stands_for=tuple(each.entry.id for each in plan.dropped),
            versions=ranges(each.entry.version for each in plan.dropped if each.entry.version),
            kept=tuple(each.entry.id for each in plan.kept),
            digest=digest(canonical([each.plain for each in plan.dropped])),
            tokens=tokens,
            tokens_before=before,
            tokens_after=after,
        )
        yield from self._facts.compacted(fact, packed.blobs)
        window = yield from self.window(full=False)
        return Compaction(
            summary=text,
            window=window,
            dropped=plan.messages,
            tokens_before=before,
            tokens_after=after,
        )


def _named(entry: _Entry, ids: dict[int, str]) -> _Entry:
    return msgspec.structs.replace(entry, id=ids[entry.version]) if entry.version else entry


def _is_replaced(event: ContextCompacted, entry: _Entry) -> bool:
    if entry.version:
        return event.replaces_version(entry.version)
    return entry.id in event.stands_for


def _counted(count: Count | None, form: Form, recorded: int | None) -> int | None:
    if count is None:
        return recorded
    tokens = count(form)
    if type(tokens) is not int or tokens < 0:
        raise BadValue(
            "compact(count)", f"it returned {tokens!r:.80}", "return a whole number of tokens"
        )
    return tokens


def _characters(plain: Any) -> int:
    """Count the characters of a message's content and fields: texts unchanged, all else as JSON."""
    _, content, fields = plain
    text = content if isinstance(content, str) else canonical(content).decode()
    return len(text) + (len(canonical(fields)) if fields else 0)


NO_ANSWER = "[no answer: the run ended before this call was answered]"
"""Placeholder for an answer that is not recorded. It is sent to models, and not recorded."""


def closed(window: Sequence[tuple[Form, bool]]) -> list[Form]:
    """Return a window that providers accept.

    Each assistant call without an answer before the conversation continues gets `NO_ANSWER`. Calls
    at the end that were made in this run (True) stay open: the program is about to answer them.
    """
    made: list[Form] = []
    waiting: dict[str, bool] = {}
    here = True
    for form, is_here in window:
        answered = _answered(form)
        if not answered:
            made += _no_answers(waiting)
            waiting = _called(form)
            here = is_here
        for each in answered:
            waiting.pop(each, None)
        made.append(form)
    return made if here else made + _no_answers(waiting)


def _called(form: Form) -> dict[str, bool]:
    """Return the ids of a message's calls, each with whether it is a content block."""
    ids: dict[str, bool] = {}
    calls = form.get("tool_calls")
    for each in calls if isinstance(calls, list) else ():
        if isinstance(each, dict) and isinstance(each.get("id"), str):
            ids[each["id"]] = False
    for each in _blocks(form):
        if each.get("type") == "tool_use" and isinstance(each.get("id"), str):
            ids[each["id"]] = True
    return ids


def _answered(form: Form) -> list[Any]:
    """Return the ids of the calls that a message answers."""
    if form["role"] in ANSWERS:
        return [form.get("tool_call_id")]
    return [each.get("tool_use_id") for each in _blocks(form) if each.get("type") == "tool_result"]


def _blocks(form: Form) -> list[dict[str, Any]]:
    content = form["content"]
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


def _no_answers(waiting: dict[str, bool]) -> list[Form]:
    blocks = [
        {"type": "tool_result", "tool_use_id": each, "content": NO_ANSWER, "is_error": True}
        for each, is_block in waiting.items()
        if is_block
    ]
    messages: list[Form] = [
        {"role": "tool", "content": NO_ANSWER, "tool_call_id": each}
        for each, is_block in waiting.items()
        if not is_block
    ]
    return [*messages, {"role": "user", "content": blocks}] if blocks else messages


def summarizer(function: Callable[..., Any], plan: Plan) -> ToolSpec:
    """Return the tool that makes a summary, as declared; a plain function becomes a `pure` tool of
    kind model. Its result is checked before it is recorded. Raises ToolError, BadName.
    """
    made = function if isinstance(function, Tool) else tool(effects="pure", kind="model")(function)
    if made.spec.is_stream:
        raise ToolError(f"{made.spec.name} is a generator: return the summary as one text")
    inner = made.spec.function

    if is_coroutine_function(inner):

        @functools.wraps(inner)
        async def checked_async(*args: Any, **kwargs: Any) -> str:
            return plan.check(await inner(*args, **kwargs))

        return msgspec.structs.replace(made.spec, function=checked_async)

    @functools.wraps(inner)
    def checked(*args: Any, **kwargs: Any) -> str:
        return plan.check(inner(*args, **kwargs))

    return msgspec.structs.replace(made.spec, function=checked)
