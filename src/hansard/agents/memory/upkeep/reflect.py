"""Reflection: the runs that a space was not told of yet, each once, and what they have to teach.

Which runs were taken and what came of them is one event: a reflection that is killed was made or
was not, and the next one takes what is left. No file is changed; what is proposed a person makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from hansard.agents.memory.drafts import commanded
from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive, revive_all
from hansard.bus.log import Stored
from hansard.domain import values
from hansard.domain.agent import MessageAdded
from hansard.domain.counted import counted
from hansard.domain.errors import BadValue, Refused
from hansard.domain.label import Label, join
from hansard.domain.memory import paths, space
from hansard.domain.memory.events import (
    MemoryChanged,
    MemoryProposal,
    MemoryReflected,
    digest_of,
    stream_of,
)
from hansard.domain.run import RunStatus

WORKFLOW = "memory-reflect"
"""The workflow of reflections themselves, which are not reflected on."""

RUNS_MAX = 50
"""Runs of one reflection: what a model is given at once. What is left is the next one's."""

MESSAGES_MAX = 200
"""Of each run that are given, the newest ones."""

MESSAGE_CHARACTERS_MAX = 4_000
"""Of each message that are given."""

PROPOSALS_MAX = 50
"""Most of one reflection: somebody has to read them."""

PROPOSED_CHARACTERS_MAX = 100_000
"""Of all of them together: they stand in one event."""

ASKED_FOR = "a user asked for it"
"""Why that is proposed."""

NOTES = "AGENTS.md"
"""Where that is put."""

_ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})


class SaidMessage(msgspec.Struct, frozen=True):
    """A message of a run.

    Attributes:
        event: The id of its event: a source.
        agent: Whose context it stands in.
        role: `user`, `assistant`, `tool` ...
        text: What it says, cut to 4,000 characters.
    """

    event: str
    agent: str
    role: str
    text: str


class RunTold(msgspec.Struct, frozen=True):
    """A run as a reflection is given it.

    Attributes:
        run: Its id.
        workflow: What it was an execution of.
        status: How it ended.
        messages: The newest of its messages, in the log's order.
        left_out: How many earlier ones there are.
    """

    run: str
    workflow: str
    status: str
    messages: list[SaidMessage] = []
    left_out: int = 0


class Propose(Protocol):
    """Makes proposals of runs and of the files as they stand; or a coroutine that does."""

    def __call__(self, runs: list[RunTold], files: dict[str, str], /) -> Any:
        """The proposals, each a `MemoryProposal` or a dict of its fields."""
        ...


async def demand_unreflected(workspace: Workspace, name: str, run: str) -> None:
    """Raise Refused where a space was told of a run already or it goes on, NotFound for no run."""
    life = await workspace.states.life(run)
    if life.status not in _ENDED:
        message = f"run {run} goes on: each is taken once, so wait until it has ended"
        raise Refused(message)
    if run in _taken(await reflections(workspace, name)):
        message = (
            f"{name} was told of run {run} already: see 'hansard memory proposals {name}' for what "
            "came of it"
        )
        raise Refused(message)


async def unreflected(workspace: Workspace, name: str, limit: int = RUNS_MAX) -> list[str]:
    """The runs that have ended and that a space was not told of, the oldest first.

    Raises BadName.
    """
    done = _taken(await reflections(workspace, name))
    found = [
        run
        for run, life in await workspace.runs()
        if run not in done and life.status in _ENDED and life.workflow != WORKFLOW
    ]
    return found[::-1][:limit]


async def reflections(workspace: Workspace, name: str) -> list[MemoryReflected]:
    """What a space was told of, in order. Raises BadName."""
    return _reflections(await workspace.log.read(stream_of(name)))


def _reflections(stored: Iterable[Stored]) -> list[MemoryReflected]:
    return [
        event
        for each in stored
        for event in revive_all([each.commit])
        if isinstance(event, MemoryReflected)
    ]


def _taken(told: Iterable[MemoryReflected]) -> set[str]:
    return {run for event in told for run in event.runs}


async def told(workspace: Workspace, run: str) -> tuple[RunTold, Label]:
    """A run as a reflection is given it, and the label of all that stands in it."""
    life = await workspace.states.life(run)
    messages: list[SaidMessage] = []
    label = join()
    for stored in await workspace.states.history(run):
        label = join(label, stored.commit.label)
        for recorded in stored.commit.events:
            if recorded.type == MessageAdded.tag:
                event = revive(recorded)
                if isinstance(event, MessageAdded):
                    text = _text(values.load(bytes(event.content)))
                    agent = stored.commit.actor.agent
                    messages.append(SaidMessage(recorded.id, agent, event.role, text))
    newest = messages[-MESSAGES_MAX:]
    told = RunTold(run, life.workflow, life.status.value, newest, len(messages) - len(newest))
    return told, label


def _text(content: object) -> str:
    """What a message says in words, where it does."""
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        content = "\n".join(part for part in parts if isinstance(part, str) and part)
    made = content if isinstance(content, str) else ""
    return made[:MESSAGE_CHARACTERS_MAX]


def asked_for(runs: list[RunTold], files: dict[str, str], /) -> list[MemoryProposal]:
    """What users asked to be remembered: messages that begin with `/remember`. A page or a tool's
    result that says so is nobody's word, and neither is a model's.
    """
    found: dict[str, list[str]] = {}
    for run in runs:
        for message in run.messages:
            said = commanded(message.text) if message.role == "user" else None
            if said is not None:
                found.setdefault(said, []).append(message.event)
    stands = files.get(NOTES, "")
    return [
        MemoryProposal(NOTES, f"- {text}\n", ASKED_FOR, tuple(sources))
        for text, sources in found.items()
        if text not in stands
    ]


def checked(
    given: Any, files: Mapping[str, str], runs: Sequence[RunTold]
) -> tuple[MemoryProposal, ...]:
    """Proposals as they may be recorded. Raises BadValue, with which and why."""
    if not isinstance(given, list | tuple):
        raise BadValue("proposals", f"a {type(given).__name__}", "return a list of proposals")
    known = {message.event for run in runs for message in run.messages} | {r.run for r in runs}
    made: list[MemoryProposal] = []
    for number, each in enumerate(given, 1):
        where = f"proposal {number}"
        try:
            plain = msgspec.to_builtins(each)
            wanted = msgspec.convert(plain, MemoryProposal, strict=True)
        except (msgspec.ValidationError, TypeError) as error:
            raise BadValue(where, f"{error}", "give path, text, because and sources") from error
        strange = [source for source in wanted.sources if source not in known]
        if strange:
            fact = f"its source {strange[0]!r:.80} is no event of these runs"
            raise BadValue(where, fact, "name the events of the messages that it rests on")
        path = paths.normal(wanted.path)
        space.text_of(path, wanted.text)
        stood = files.get(path)
        goes_by = stood if wanted.whole or wanted.gone else None
        before = digest_of(goes_by) if goes_by is not None else ""
        made.append(msgspec.structs.replace(wanted, path=path, before=before))
    size = sum(len(each.text) for each in made)
    if len(made) > PROPOSALS_MAX or size > PROPOSED_CHARACTERS_MAX:
        fact = f"{counted(len(made), 'proposal')} of {size:,} characters"
        remedy = f"propose at most {PROPOSALS_MAX}, of {PROPOSED_CHARACTERS_MAX:,} in all"
        raise BadValue("proposals", fact, remedy)
    return tuple(made)


async def label_of(workspace: Workspace, name: str, files: Mapping[str, str]) -> Label:
    """The label of texts by path, taken from a space's files: where one is not what stands there
    now, of all that the space ever held. Raises BadName.
    """
    stands = (await workspace.memories.state(name)).files
    known = {path: stands[path] for path in files.keys() & stands.keys()}
    if all(path in known and known[path].text == text for path, text in files.items()):
        return join(*(file.label for file in known.values()))
    history = await workspace.memories.history(name)
    changes = (each for each in history if isinstance(each.event, MemoryChanged))
    return join(*(each.stored.commit.label for each in changes))


async def propose(
    workspace: Workspace,
    name: str,
    by: str,
    state: space.MemoryState,
    changes: Mapping[str, str | None],
    label: Label | None = None,
) -> bool:
    """Put on record what a compaction would have in files as they stood: their texts, or None where
    they go. label: of all that the compaction rests on; of all files, if it is not given.
    """
    files = state.files
    proposals = tuple(
        MemoryProposal(
            path=path,
            text=text or "",
            because="compaction",
            whole=text is not None,
            before=files[path].digest if path in files else "",
            gone=text is None,
        )
        for path, text in changes.items()
    )
    if label is None:
        label = join(*(file.label for file in files.values()))
    return await record(workspace, name, by, MemoryReflected(runs=(), proposals=proposals), label)


async def record(
    workspace: Workspace, name: str, by: str, event: MemoryReflected, label: Label
) -> bool:
    """Put on record that runs were reflected on, and what came of it: one event. Raises Refused
    where another reflection took one of them meanwhile: nothing of this one is on record then.
    """

    def decide(stored: list[Stored]) -> Sequence[MemoryReflected]:
        taken = _taken(_reflections(stored)) & set(event.runs)
        if taken:
            message = f"run {min(taken)} was reflected on meanwhile; reflect again"
            raise Refused(message)
        return (event,) if event.runs or event.proposals else ()

    return await workspace.tell_lasting(stream_of(name), by, decide, label.stored)
