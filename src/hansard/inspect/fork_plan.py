"""What a fork with edits will do, before it is made: which calls are answered, and which run.

The program decides what it calls; the plan follows from the calls that its parent has on record. A
call is answered if it and the result before it in its scope are the same (docs/forks.md). So it is
certain only for the calls next to an edit; behind a call that runs, it depends on that result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any

import msgspec

from hansard.agents.artifacts.versions import read as versions_of
from hansard.agents.edits import Target, Targets
from hansard.agents.runs import refuse_observed
from hansard.agents.steps import payloads
from hansard.agents.steps.substitution import Substitutes
from hansard.agents.team.tasks import INBOX
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive_all
from hansard.domain import values
from hansard.domain.agent import AgentState
from hansard.domain.errors import BadValue
from hansard.domain.payload import BlobsNeeded, arguments_in, without_blobs
from hansard.domain.prompt import PROMPTS
from hansard.domain.run import Chain, EditKind, ForkEffects
from hansard.domain.steps import KINDS_IN_RECORD, Effects, Step, StepRequested
from hansard.inspect.answer import Answer
from hansard.inspect.trace import recorded
from hansard.state.replay import RunView

STEPS_MAX = 2_000
"""Most steps after the cut that a plan lists; the others are counted."""

MENTION_CHARACTERS_MIN = 12
"""Shortest text of a result whose occurrence in the arguments of a later call counts as its use."""

MENTIONS_MAX = 50
"""Most texts of a result that are searched."""


class Action(StrEnum):
    """What a fork does with a call that its parent made."""

    EDITED = "edited"
    """It returns the new result; the tool does not run."""
    SERVED = "served"
    """It is answered from the record."""
    RUNS = "runs"
    """The tool runs."""
    WITHHELD = "withheld"
    """Its effect does not happen: the parent's outcome or the tool's shadow answers, or nothing."""
    STOPS = "stops"
    """The fork stops, and asks whether to use the recorded outcome or to run it again."""


class PlannedCall(msgspec.Struct, kw_only=True):
    """A call of the parent after the cut.

    Attributes:
        step: The call, as `agent#number`.
        tool: The tool.
        kind: The kind of call.
        effects: The tool's effect on the world.
        action: What the fork does with it.
        is_certain: False if it depends on the result of a call that runs before it.
        why: The reason in words.
        version: The version of its intent in its agent's stream.
    """

    step: str
    tool: str
    kind: str
    effects: Effects
    action: Action
    is_certain: bool
    why: str
    version: int


class PlannedEdit(msgspec.Struct, kw_only=True):
    """A value that the fork replaces.

    Attributes:
        name: The call as `agent#number`, or the address of a message.
        edit: The kind of value.
        what: The tool, the message's role or the prompt.
        value: The value on record; the items of a stream.
        versions: The versions of a prompt that may be used.
    """

    name: str
    edit: EditKind
    what: str
    value: Any
    versions: list[str] = []


class ForkPlan(Answer, kw_only=True):
    """The plan of a fork.

    Attributes:
        run: The parent.
        position: The position up to which the fork has its parent's events.
        effects: The handling of tools with effects.
        before: Number of calls before the cut: they are on record in the fork.
        counts: Number of calls after the cut by action.
        calls: The calls after the cut, by agent and in order, at most `STEPS_MAX`.
        more: Number of calls that are not listed.
        workflow: The workflow whose worker can run the fork.
        edits: The values that the fork replaces, as they are on record.
    """

    run: str
    position: int
    effects: ForkEffects
    before: int
    counts: dict[str, int]
    calls: list[PlannedCall]
    more: int
    workflow: str
    edits: list[PlannedEdit]


async def fork_plan(
    workspace: Workspace,
    run: str,
    edits: Sequence[str] = (),
    at: str | None = None,
    effects: ForkEffects | None = None,
    uses: Sequence[tuple[str, str]] = (),
) -> ForkPlan:
    """Return the plan of a fork of a run at a point, or with other values.

    Args:
        workspace: The workspace.
        run: The run.
        edits: The edited values, as in `hansard.replace`.
        at: The point; None with edits, and for the run's end.
        effects: The handling of tools with effects.
        uses: Calls that get another version of a prompt, each with the prompt.

    Raises:
        NotFound, BadName: A point, call or event does not exist.
        BadValue: Edits beside a point, or of a value that cannot be replaced.
        Refused: The value is its parent's.
    """
    is_edited = bool(edits or uses)
    if is_edited and at is not None:
        raise BadValue("at", f"{at!r:.80} beside edits", "leave it out: the cut is before the edit")
    view = await workspace.states.run(run)
    refuse_observed(run, view.life)
    mode = effects or (ForkEffects.MODELS if is_edited else ForkEffects.SHADOW)
    finder = Targets(workspace, view)
    targets = [await finder.find(text) for text in edits]
    targets += [await finder.find(text, prompt) for text, prompt in uses]
    if targets:
        cut = min(each.start for each in targets) - 1
    else:
        cut = await workspace.log.end(await workspace.points.up_to(run, at))
    prompts = await _prompts_used(workspace, view) if uses else {}
    _, vector = await workspace.points.vector(run, cut)
    calls: list[PlannedCall] = []
    before = 0
    for name, state in view.agents.items():
        planned = _Agent(name, state, mode, targets, prompts)
        planned.is_full = view.life.chain is Chain.FULL
        since = vector.get(str(view.stream_of(name)), 0)
        ours = list(planned.calls(name, since))
        before += len(state.steps) - len(ours)
        calls += ours
    return ForkPlan(
        run=run,
        position=cut,
        effects=mode,
        before=before,
        counts=dict(Counter(each.action.value for each in calls)),
        calls=calls[:STEPS_MAX],
        more=max(0, len(calls) - STEPS_MAX),
        workflow=view.life.workflow,
        edits=[await _planned_edit(workspace, each) for each in targets],
    )


async def _planned_edit(workspace: Workspace, target: Target) -> PlannedEdit:
    """Return a value that the fork replaces, in the form of the page and of programs."""
    message, step = target.message, target.step
    what = f"message of {message.role}" if message is not None else step.tool if step else ""
    versions: list[str] = []
    if target.prompt:
        log = await versions_of(workspace, PROMPTS, target.prompt)
        usable = sorted(log.state.versions.keys() - log.state.retired)
        versions = [f"{target.prompt}@{number}" for number in usable]
        what = f"prompt {target.prompt}"
    return PlannedEdit(
        name=target.name,
        edit=target.kind,
        what=f"{what}, key {target.key}" if target.key else what,
        value=target.before,
        versions=versions,
    )


async def _prompts_used(workspace: Workspace, view: RunView) -> dict[tuple[str, int], set[str]]:
    """Return the prompts that each call of a run uses, by its agent and number."""
    used: dict[tuple[str, int], set[str]] = {}
    for stored in await workspace.states.history(view.run):
        for event in revive_all([stored.commit]):
            if isinstance(event, StepRequested) and event.prompts:
                agent = stored.commit.actor.agent
                used[agent, event.step] = {each.prompt for each in event.prompts}
    return used


class _Agent:
    """The plan of one agent's calls."""

    is_full = False
    """True if a call's fingerprint includes all calls before it."""

    def __init__(
        self,
        agent: str,
        state: AgentState,
        mode: ForkEffects,
        targets: Sequence[Target],
        prompts: Mapping[tuple[str, int], set[str]],
    ) -> None:
        self._name = agent
        self._state = state
        self._mode = mode
        self._reader = payloads.Reader(lambda: state)
        self._is_edited = bool(targets)
        self._edited = {
            each.step.number: each.kind
            for each in targets
            if each.step is not None and each.agent == agent and not each.prompt
        }
        self._keys = {each.key for each in targets if each.key}
        sends = [each for each in targets if each.step is not None and each.step.kind == "team"]
        self._has_mail = bool(sends)
        messages = [(values.revive(each.before), None) for each in targets if each.message]
        self._messages = Substitutes(messages, {}) if messages else None
        self._edited_prompts = {each.prompt for each in targets if each.prompt}
        self._prompts = prompts
        self._changed: dict[int, bool] = {}
        """Calls whose result may differ, and whether it certainly does."""
        self._mentions: dict[int, list[str]] = {}
        """Texts of their results on record."""

    def calls(self, agent: str, since: int) -> list[PlannedCall]:
        """Return the plan of the calls after a version, in order."""
        steps = sorted(self._state.steps.values(), key=lambda step: step.version)
        return [self._call(agent, step) for step in steps if step.version > since]

    def _call(self, agent: str, step: Step) -> PlannedCall:
        action, certain, why = self._plan(step)
        writes = self._edited.get(step.number) is EditKind.CONTENT  # its result is the same
        if not writes and (
            action in (Action.EDITED, Action.RUNS, Action.STOPS)
            or (action is Action.WITHHELD and not certain)
        ):
            self._changed[step.number] = action is Action.EDITED
            self._mentions[step.number] = _texts(step)
        return PlannedCall(
            step=f"{agent}#{step.number}",
            tool=step.tool,
            kind=step.kind,
            effects=step.effects,
            action=action,
            is_certain=certain,
            why=why,
            version=step.version,
        )

    def _plan(self, step: Step) -> tuple[Action, bool, str]:
        """Return what happens to a call, whether that is certain, and why."""
        if step.number in self._edited:
            is_write = self._edited[step.number] is EditKind.CONTENT
            why = "it writes the new value" if is_write else "its result is the new one"
            return Action.EDITED, True, why
        if not self._is_edited:
            action, why = self._again(step)
            return action, False, f"after the cut the program goes on by itself; {why}"
        why = self._reads(step)
        if why:
            return Action.RUNS, True, why
        why = self._differs(step)
        if why:
            action, again = self._again(step)
            return action, True, f"{why}; {again}"
        used = self._used(step)
        if used is not None:
            action, why = self._again(step)
            return action, False, f"its arguments have text of the result of #{used}; {why}"
        before = [number for number in step.after if number in self._changed]
        if self.is_full and self._changed:
            before = before or [max(self._changed)]
        if not before:
            why = "the result before it is the same; it runs if its arguments differ"
            return Action.SERVED, True, why
        action, why = self._again(step)
        nearest = before[0]
        if self._changed[nearest] or self.is_full:
            return action, True, f"the result of #{nearest} before it is another; {why}"
        if action is Action.WITHHELD:
            return action, True, why
        return action, False, f"unless #{nearest} before it has the same result again; {why}"

    def _reads(self, step: Step) -> str:
        """Return why a read of shared state may return an edited value; empty if it does not."""
        if step.tool == "board.get" and arguments_in(step.arguments).get("key") in self._keys:
            return "it reads a key that has another value, unless a later write replaces it"
        if step.tool == INBOX.name and self._has_mail:
            return "it may receive the new message"
        return ""

    def _differs(self, step: Step) -> str:
        """Return the reason why a call has other arguments than on record; empty if it has none."""
        prompts = self._prompts.get((self._name, step.number), set()) & self._edited_prompts
        if prompts:
            return f"it uses another version of prompt {', '.join(sorted(prompts))}"
        if self._messages is None or step.kind != "model":
            return ""
        try:
            arguments = without_blobs(self._reader.arguments(step))
        except BlobsNeeded:
            return "its arguments are large and may have the message"
        is_same = self._messages.arguments(arguments, step.kind) is arguments
        return "" if is_same else "a message in it is another"

    def _again(self, step: Step) -> tuple[Action, str]:
        """Return what happens to a call that the record does not answer."""
        if step.kind in KINDS_IN_RECORD and step.kind != "memory":
            return Action.RUNS, "it changes the fork's own state alone"
        if not step.has_effect:
            return Action.RUNS, "it has no effect"
        if self._mode is ForkEffects.LIVE:
            if step.effects is Effects.IDEMPOTENT:
                return Action.RUNS, "with its old key"
            return Action.STOPS, "its effect may happen twice"
        is_model = step.kind == "model" and step.effects is Effects.IDEMPOTENT
        if is_model and self._mode is ForkEffects.MODELS:
            return Action.RUNS, "calls of models run"
        return Action.WITHHELD, "its effect does not happen"

    def _used(self, step: Step) -> int | None:
        """Return a call whose changed result occurs in the arguments of this one."""
        arguments = _flat(step.arguments)
        for number, texts in self._mentions.items():
            if any(text in arguments for text in texts):
                return number
        return None


def _flat(raw: msgspec.Raw) -> str:
    return "\0".join(strings(recorded(raw)))


def _texts(step: Step) -> list[str]:
    """Return texts of a call's result on record that are long enough to recognise."""
    return mentioned([recorded(raw) for raw in (step.result, *step.items)[:MENTIONS_MAX]])


def mentioned(value: Any) -> list[str]:
    """Return the texts of a value by whose occurrence elsewhere its use is recognised."""
    texts = (text for text in strings(value) if len(text) >= MENTION_CHARACTERS_MIN)
    return [*islice(texts, MENTIONS_MAX)]


def strings(value: Any) -> list[str]:
    """Return the texts in a value, in order."""
    texts: list[str] = []
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                texts.append(text)
            case dict() as inner:
                waiting += reversed(inner.values())
            case list() as inner:
                waiting += reversed(inner)
            case _:
                pass
    return texts
