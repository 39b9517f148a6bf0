"""Edits of a fork: other results, contents, messages and prompt versions than those on record."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from hansard.agents.artifacts import prompts
from hansard.agents.board import CONTENT as BOARD_CONTENT
from hansard.agents.steps import payloads
from hansard.agents.steps.substitution import PromptVersion, Substitutes
from hansard.agents.team.tasks import SEND
from hansard.agents.workspace import Workspace
from hansard.bus import slices
from hansard.bus.commits import drive_fetch, revive
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.domain import ids, payload, values
from hansard.domain.agent import MessageAdded
from hansard.domain.errors import BadName, BadValue, Refused
from hansard.domain.events import Actor
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import AgentStream, KeyStream
from hansard.domain.label import LOWEST, Label, join, parse, raised
from hansard.domain.prompt import variables
from hansard.domain.run import EditedResult, EditKind
from hansard.domain.steps import KINDS_IN_RECORD, NULL, Step, StepRequested, StepStatus
from hansard.domain.team import MAIL_KEY
from hansard.state.replay import RunView

CONTENT = {**BOARD_CONTENT, SEND.name: "content"}
"""The argument of each write of shared state that an edit replaces."""

_EVENT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"[0-9]{1,18}\.[0-9]{1,9}")


class Replacement(msgspec.Struct, frozen=True):
    """A value for a fork to go on from, in place of one on record.

    Attributes:
        step: The step, as `agent#number` or the address of one of its events; the address or id of
            a message, or of a write to a key of shared state.
        result: The new value: of a call, the result as the tool would return it; of a write of
            shared state or a message, its content.
        prompt: The version of a prompt, such as `rag@4`, in place of a value: the call and those
            after it use it instead of their version of that prompt.
    """

    step: str
    result: Any = None
    prompt: str = ""


def replace(step: str, *, result: Any = None, prompt: str = "") -> Replacement:
    """Return an edit for `record.fork(run, edits=[...])`: a value other than that on record.

    Args:
        step: The step, as `agent#number` as `hansard run trace` shows it, or the address of one of
            its events (`1234.2`). Also the address of a message, or of a write to a key.
        result: The result that the fork's call returns. For a tool that yields, a list of its
            items; for a call of a model that `hansard record` recorded, the provider's JSON body.
            For a write to a key of shared state, or a message, the content.
        prompt: A version of a prompt, such as `rag@4`: the fork's calls from this one on use it
            instead of theirs.

    Raises:
        BadName: `step` is not a text.
        BadValue: Both `result` and `prompt` are given.
    """
    if not isinstance(step, str):
        raise BadName("step", step, "give agent#number as 'hansard run trace' shows it")
    if prompt and result is not None:
        raise BadValue("edit", f"a result and prompt {prompt!r:.80}", "give one of them")
    return Replacement(step, result, prompt)


def find_step(view: RunView, text: str) -> tuple[str, Step]:
    """Return an agent and its step from `agent#17`, or `17` if the run has one agent.

    Raises BadName, NotFound.
    """
    agent, _, number = text.rpartition("#")
    if not number.isdigit():
        raise BadName("step", text, "give agent#number as 'hansard run trace' shows it")
    if not agent:
        if len(view.agents) != 1:
            raise BadName("step", text, f"name its agent: {', '.join(sorted(view.agents))}")
        [agent] = view.agents
    step = view.agent(agent).steps.get(int(number))
    if step is None:
        raise NotFound(
            f"step {number} of {agent!r} in run {view.run}", f"see 'hansard run trace {view.run}'"
        )
    return agent, step


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A value on record that a fork can replace.

    Attributes:
        name: `agent#number`, or the address of a message.
        agent: The agent that made the call, or added the message.
        kind: The kind of value.
        step: The call; None for a message.
        key: The key of shared state that a write changes; empty for none.
        message: The message; None for a call.
        prompt: The prompt; empty unless the edit is one of its version.
        used: The version of the prompt that the call uses.
        before: The value on record.
        start: The position of the first commit that the fork does not have.
    """

    name: str
    agent: str
    kind: EditKind
    step: Step | None = None
    key: str = ""
    message: MessageAdded | None = None
    prompt: str = ""
    used: int = 0
    before: Any = None
    start: int

    @property
    def call(self) -> str:
        """The identity of the edited value among those of its agent."""
        if self.prompt:
            return self.prompt
        if self.message is not None:
            return self.message.fingerprint
        return self.step.call if self.step is not None else ""


class Targets:
    """Finds the values of a run that a fork can replace."""

    def __init__(self, workspace: Workspace, view: RunView) -> None:
        self._workspace = workspace
        self._view = view

    async def find(self, text: str, prompt: str = "") -> Target:
        """Return the value that an edit names. Raises NotFound, BadName, BadValue, Refused."""
        points, run = self._workspace.points, self._view.run
        if _EVENT_ID.fullmatch(text):
            text = await self._address(text)
        if _ADDRESS.fullmatch(text):
            stored, version = await points.event(run, text)
            recorded = stored.commit.events[version - stored.commit.version]
            if isinstance(stored.stream, AgentStream) and recorded.type == MessageAdded.tag:
                return await self._message(text, stored, version)
            if isinstance(stored.stream, KeyStream):
                text = self._writer(text, stored.stream, stored.commit.actor.agent, version)
        agent, step = find_step(self._view, await points.step_name(run, text))
        name = f"{agent}#{step.number}"
        self._demand_own(agent, step.version, f"step {name}")
        start = await self._start(agent, step.version)
        if prompt:
            return await self._prompt(name, agent, step, prompt, start)
        kind = EditKind.CONTENT if step.kind in KINDS_IN_RECORD else EditKind.RESULT
        if kind is EditKind.CONTENT and step.tool not in CONTENT:
            fact = f"step {name} ({step.tool}) is a call of kind {step.kind}, decided by its state"
            remedy = "edit the call whose result it was made with, or the write that it reads"
            raise BadValue("edits", fact, remedy)
        reader = payloads.Reader(lambda: self._view.agents[agent])
        before: Any
        key = ""
        if kind is EditKind.CONTENT:
            arguments = await self._fetched(reader.arguments(step))
            before, key = arguments[CONTENT[step.tool]], arguments.get("key", "")
        elif step.streamed:
            before = [await self._fetched(payload.unpack(item)) for item in step.items]
        else:
            before = await self._fetched(reader.result(step))
        return Target(
            name=name, agent=agent, kind=kind, step=step, key=key, before=before, start=start
        )

    async def _address(self, event: str) -> str:
        """Return the address of an event by its id, which costs a read of the run."""
        for stored in await self._workspace.states.history(self._view.run):
            for index, each in enumerate(stored.commit.events):
                if each.id == event:
                    return f"{stored.position}.{index}"
        raise NotFound(f"event {event} in run {self._view.run}", "see 'hansard trail'")

    async def _message(self, name: str, stored: Stored, version: int) -> Target:
        """Return a message of a context window.

        The recorder of a model's calls states the messages of a request after its end: the fork
        then begins before that call.
        """
        message = revive(stored.commit.events[version - stored.commit.version])
        assert isinstance(message, MessageAdded)  # noqa: S101 -- by its tag
        assert isinstance(stored.stream, AgentStream)  # noqa: S101 -- by its tag
        agent = stored.stream.agent
        self._demand_own(agent, version, f"message {name}")
        before = await self._fetched(payload.unpack(message.content))
        start = await self._start(agent, version)
        state = self._view.agents[agent]
        step = state.steps.get(message.step or 0)
        if step is not None and step.kind == "model":
            arguments = await self._fetched(payloads.Reader(lambda: state).arguments(step))
            if Substitutes([(before, None)], {}).arguments(arguments, "model") is not arguments:
                self._demand_own(agent, step.version, f"step {agent}#{step.number}")
                start = min(start, await self._start(agent, step.version))
        return Target(
            name=name,
            agent=agent,
            kind=EditKind.MESSAGE,
            message=message,
            before=before,
            start=start,
        )

    async def _prompt(self, name: str, agent: str, step: Step, text: str, start: int) -> Target:
        """Return the use of a prompt by a call; `text` may name a version of it."""
        prompt = text.rpartition("@")[0] or text
        stream = self._view.stream_of(agent)
        position = await self._workspace.states.position_of(stream, step.version)
        commit = (await self._workspace.log.at(position or 0)).commit
        intent = revive(commit.events[step.version - commit.version])
        uses = intent.prompts if isinstance(intent, StepRequested) else ()
        if {"path", "identity"} <= payload.arguments_in(step.arguments).keys():
            fact = f"step {name} is a request to a provider that has the prompt's text in it"
            raise BadValue("edits", fact, "edit the message that has the text")
        used = next((each.version for each in uses if each.prompt == prompt), None)
        if used is None:
            names = ", ".join(f"{each.prompt}@{each.version}" for each in uses) or "none"
            fact = f"step {name} does not use prompt {prompt!r:.80}: its prompts are {names}"
            raise BadValue("edits", fact, "name a call that uses it ('hansard run trace')")
        return Target(
            name=name,
            agent=agent,
            kind=EditKind.PROMPT,
            step=step,
            prompt=prompt,
            used=used,
            before=f"{prompt}@{used}",
            start=start,
        )

    def _writer(self, name: str, stream: KeyStream, agent: str, version: int) -> str:
        """Return the step that wrote a version of a key or sent a message. Raises BadValue."""
        state = self._view.agents.get(agent)
        for step in state.steps.values() if state is not None else ():
            if step.tool not in CONTENT or step.status is not StepStatus.COMPLETED:
                continue
            result = msgspec.json.decode(step.result)
            if stream.key == MAIL_KEY:
                if step.tool == SEND.name and result.get("number") == version:
                    return f"{agent}#{step.number}"
            elif (
                result.get("key") == stream.key
                and result["version"] - result["changed"] < version <= result["version"]
            ):
                return f"{agent}#{step.number}"
        fact = f"event {name} was not written by one write of its own of {agent!r}"
        remedy = "edit the call whose result it was made with: a transaction cannot be edited"
        raise BadValue("edits", fact, remedy)

    def _demand_own(self, agent: str, version: int, what: str) -> None:
        """Raise Refused for an event that the run has from its parent."""
        forked = self._view.life.forked
        stream = str(self._view.stream_of(agent))
        if forked is not None and version <= forked.at.get(stream, 0):
            message = (
                f"run {self._view.run} inherited {what} from {forked.parent}: fork that run instead"
            )
            raise Refused(message)

    async def _start(self, agent: str, version: int) -> int:
        """Return the position of the commit, or of the transaction, that holds an event."""
        stream = self._view.stream_of(agent)
        position = await self._workspace.states.position_of(stream, version)
        stored = await self._workspace.log.at(position or 0)
        return stored.position - (stored.commit.tx.index if stored.commit.tx else 0)

    async def _fetched(self, fetch: payload.Fetch) -> Any:
        return await drive_fetch(fetch, self._workspace.blobs.get)


async def edited(
    workspace: Workspace, run: str, edits: Sequence[Replacement], by: str | Actor, reason: str
) -> tuple[int, dict[tuple[str, str], EditedResult], Label]:
    """Return the position before the first edited value, the edits by agent and identity, and the
    label of their data, after storing the blobs of large values.

    Raises NotFound, BadName, BadValue, Refused.
    """
    actor = Actor.of(by)
    ids.name("by", actor.agent)
    view = await workspace.points.view(run)
    targets = Targets(workspace, view)
    items: dict[tuple[str, str], EditedResult] = {}
    starts: list[int] = []
    label = LOWEST
    for edit in edits:
        if not isinstance(edit, Replacement):
            raise BadValue("edits", f"{edit!r:.80}", "give hansard.replace(step, result=...)")
        target = await targets.find(edit.step, edit.prompt)
        if (target.agent, target.call) in items:
            raise BadValue("edits", f"two results for step {target.name}", "give one")
        if edit.prompt:
            value, own = await _version(workspace, target, edit.prompt)
        else:
            what = f"{target.kind.value} of {target.name}"
            value = values.plain(edit.result, what, workspace.redaction)
            _check(target, value)
            own = _label(view, target)
        what = f"{target.kind.value} of {target.name}"
        raw = await payloads.stored(workspace.blobs, value, what)
        message, step = target.message, target.step
        number = step.number if step is not None else (message.step or 0) if message else 0
        items[target.agent, target.call] = EditedResult(
            agent=target.agent,
            step=number,
            tool=step.tool if step is not None else "",
            call=target.call,
            result=raw,
            digest=digest(canonical(value)),
            by=actor.agent,
            reason=reason,
            kind=target.kind,
            before=message.content if message is not None else NULL,
        )
        label = join(label, own)
        starts.append(target.start)
    return min(starts) - 1, items, label


async def _version(workspace: Workspace, target: Target, text: str) -> tuple[Any, Label | None]:
    """Return a version of a prompt for the calls of a fork, and its label. Raises BadValue."""
    new = await prompts.get(workspace, text)
    old = await prompts.get(workspace, f"{target.prompt}@{target.used}")
    if new.retired is not None or not new.text:
        why = "is retired" if new.retired is not None else "has no text on record"
        raise BadValue("edits", f"prompt {new.reference} {why}", "give another version")
    if set(variables(new.text)) != set(variables(old.text)):
        fact = f"{new.reference} has other variables than {old.reference}, which the call uses"
        raise BadValue("edits", fact, "give a version with the same variables")
    version = PromptVersion(new.version, new.text, new.label)
    return msgspec.to_builtins(version), new.label


def _label(view: RunView, target: Target) -> Label | None:
    """Return the label of an edited value: it has the type, and the label, of that on record."""
    state = view.agents[target.agent]
    declared = state.tools.get(target.step.tool) if target.step is not None else None
    gives = parse(declared.gives) if declared is not None else None
    return parse(raised(state.label, gives))


def _check(target: Target, value: Any) -> None:
    """Raise BadValue for a value that the edited step cannot return or write."""
    if target.kind is EditKind.RESULT and target.step is not None:
        check_result(target.name, target.step, value)
    if target.kind is EditKind.CONTENT and target.step is not None:
        tool = target.step.tool
        if tool == "board.add" and type(value) is not int:
            raise BadValue(f"content of {target.name}", f"{value!r:.80}", "give a whole number")


def check_result(name: str, step: Step, result: Any) -> None:
    """Raise BadValue for a result that a step of a slice cannot return."""
    for each in slices.installed():
        if each.check_edit is not None:
            each.check_edit(name, step, result)
