"""Reflection on runs, once per run and space, and proposals for files of memory.

The reflected runs and the resulting proposals are one event: a killed reflection was either
recorded or not, and the next one takes the remaining runs. No file is changed; a person applies the
proposals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec

from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op, apply_ops, remember_command
from hansard.agents.memory.store import MemoryStore
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.domain.agent import MessageAdded
from hansard.domain.choices import Brief, counted
from hansard.domain.errors import BadValue, Refused
from hansard.domain.label import Label, join
from hansard.domain.label import text as label_text
from hansard.domain.memory import files as paths
from hansard.domain.memory import space
from hansard.domain.memory.files import (
    MemoryChanged,
    MemoryProposal,
    MemoryReflected,
    digest_of,
    space_name,
)
from hansard.domain.memory.lines import unified
from hansard.domain.memory.space import BECAUSE_MAX, SOURCES_MAX, MemoryConflict, MemoryFile
from hansard.domain.run import RunStatus
from hansard.domain.values import load
from hansard.inspect.answer import Answer
from hansard.state.memories import MemoryEventAt

# A proposal is open until it is applied. It is based on one version of a file: if that has changed
# since, applying it is refused with both texts.

LAST = "last"
"""Selects the newest event with proposals."""


class ProposalStanding(StrEnum):
    """State of a proposal."""

    OPEN = "open"
    MADE = "made"
    CHANGED = "changed"


class ListedProposal(Brief, msgspec.Struct, frozen=True):
    """A proposal for a file.

    Attributes:
        proposal: Id of the event that proposes it.
        path: Path of the file.
        standing: `open`; `made`; `changed`: the file has changed since, so it cannot be applied.
        because: Reason.
        sources: Ids of the events that it rests on.
        label: Label of its sources; empty for public and trusted.
        diff: Its change in git's unified format; empty unless it is open.
    """

    proposal: str
    path: str
    standing: ProposalStanding
    because: str
    sources: tuple[str, ...]
    label: str
    diff: str


class _FileProposal(msgspec.Struct, frozen=True):
    """All proposals of one event for one file, in order."""

    at: MemoryEventAt
    path: str
    parts: list[MemoryProposal]

    @property
    def because(self) -> str:
        return "; ".join(dict.fromkeys(each.because for each in self.parts if each.because))

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for part in self.parts for each in part.sources))

    @property
    def label(self) -> Label | None:
        return self.at.stored.commit.label

    def text(self, current: MemoryFile | None) -> str | None:
        """Return the proposed text of the file; None to delete it."""
        text = current.text if current is not None else ""
        for part in self.parts:
            if part.gone:
                return None
            between = "" if text.endswith("\n") or not text else "\n"
            text = part.text if part.whole else f"{text}{between}{part.text}"
        return text


async def list_proposals(workspace: Workspace, space: str) -> list[ListedProposal]:
    """Return the proposals for a space's files, newest last. Raises BadName."""
    history = await workspace.memories.history(space)
    now = await workspace.memories.state(space)
    items: list[ListedProposal] = []
    for each in _proposals(history):
        standing = await _standing(workspace, space, history, each)
        current = now.file(each.path)
        await workspace.memories.load([current])
        is_open = standing is ProposalStanding.OPEN
        before = current.text if current is not None else None
        items.append(
            ListedProposal(
                proposal=each.at.id,
                path=each.path,
                standing=standing,
                because=each.because,
                sources=each.sources,
                label=label_text(each.label) if each.label is not None else "",
                diff=unified(each.path, before, each.text(current)) if is_open else "",
            )
        )
    return items


async def make(
    workspace: Workspace, space: str, proposal: str, paths: Sequence[str], by: str
) -> tuple[int, str]:
    """Apply the proposals of an event as a change by a person; return the space's version and the
    change as a diff. Proposals that are already applied are skipped.

    Args:
        workspace: Workspace of the space.
        space: Name of the space.
        proposal: Id of the event, or `last` for the newest.
        paths: Files to change; all files of the event if empty.
        by: Person who applies them.

    Raises:
        NotFound: There is no such proposal.
        BadValue: All proposals are already applied.
        MemoryConflict: A file has changed since it was proposed; nothing was changed.
        MemoryInvalid: A file would become invalid.
    """
    history = await workspace.memories.history(space)
    chosen = _select(_proposals(history), space, proposal, paths)
    now = await workspace.memories.state(space)
    ops: list[Op] = []
    made: list[_FileProposal] = []
    for each in chosen:
        standing = await _standing(workspace, space, history, each)
        current = now.file(each.path)
        await workspace.memories.load([current])
        text = each.text(current)
        if standing is ProposalStanding.CHANGED:
            previous = (await workspace.memories.at(space, f"@{each.at.version}")).file(each.path)
            expected = previous.digest if previous is not None else ""
            raise MemoryConflict(space, each.path, expected, text or "", current)
        if standing is ProposalStanding.OPEN:
            ops.append(drafts.delete(each.path) if text is None else drafts.create(each.path, text))
            made.append(each)
    if not ops:
        raise BadValue("proposal", f"{proposal} is already applied", "see 'hansard memory log'")
    seen = {path: file.digest for path, file in now.files.items()}
    diff = drafts.render_diff(now, apply_ops(space, now, ops, seen))
    because = "; ".join(dict.fromkeys(each.because for each in made if each.because))
    sources = dict.fromkeys([made[0].at.id, *(each for it in made for each in it.sources)])
    version = await MemoryStore(workspace, space).change(
        ops,
        by,
        f"proposed: {because}"[:BECAUSE_MAX] if because else "proposed",
        list(sources)[:SOURCES_MAX],
        seen=seen,
        label=made[0].label,
    )
    return version, diff


def _proposals(history: Sequence[MemoryEventAt]) -> list[_FileProposal]:
    items: list[_FileProposal] = []
    for each in history:
        if isinstance(each.event, MemoryReflected):
            parts: dict[str, list[MemoryProposal]] = {}
            for part in each.event.proposals:
                parts.setdefault(part.path, []).append(part)
            items += [_FileProposal(each, path, of_it) for path, of_it in parts.items()]
    return items


def _select(
    items: Sequence[_FileProposal], space: str, proposal: str, paths: Sequence[str]
) -> list[_FileProposal]:
    """Return the proposals selected by id and paths. Raises NotFound."""
    target = items[-1].at.id if proposal == LAST and items else proposal
    of_it = [each for each in items if each.at.id == target]
    has = {each.path for each in of_it}
    missing = [path for path in paths if path not in has]
    if not of_it or missing:
        what = f"proposal {proposal!r:.80} of {space}"
        what += f" for {missing[0]!r:.200}" if of_it else ""
        raise NotFound(what, "see 'hansard memory proposals'")
    return [each for each in of_it if not paths or each.path in paths]


async def _standing(
    workspace: Workspace, space: str, history: Sequence[MemoryEventAt], proposed: _FileProposal
) -> ProposalStanding:
    """Derive the state of a proposal from later changes of the same file: one that names the event
    as a source has applied it; any other has changed the file.
    """
    for each in history:
        if each.version <= proposed.at.version or not isinstance(each.event, MemoryChanged):
            continue
        paths = {path for file in each.event.files for path in (file.path, file.was)}
        if proposed.path in paths:
            ours = proposed.at.id in each.event.sources
            return ProposalStanding.MADE if ours else ProposalStanding.CHANGED
    whole = [each for each in proposed.parts if each.whole or each.gone]
    if whole:
        previous = (await workspace.memories.at(space, f"@{proposed.at.version}")).file(
            proposed.path
        )
        before = previous.digest if previous is not None else ""
        if any(each.before != before for each in whole):
            return ProposalStanding.CHANGED
    return ProposalStanding.OPEN


WORKFLOW = "memory-reflect"
"""Workflow of reflections themselves, which are not reflected on."""

RUNS_MAX = 50
"""Most runs of one reflection, as a model gets them at once. The next one takes the rest."""

MESSAGES_MAX = 200
"""Most messages of a run that a reflection gets, the newest ones."""

MESSAGE_CHARACTERS_MAX = 4_000
"""Most characters of a message that a reflection gets."""

PROPOSALS_MAX = 50
"""Most proposals of one reflection: a person has to read them."""

PROPOSED_CHARACTERS_MAX = 100_000
"""Most characters of all proposals of a reflection: they are stored in one event."""

USER_REQUEST = "a user asked for it"
"""Reason of a proposal that a user requested."""

NOTES = "AGENTS.md"
"""File that requested lines are added to."""

_ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})


class RunMessage(msgspec.Struct, frozen=True):
    """A message of a run.

    Attributes:
        event: Id of its event, to be named as a source.
        agent: Agent whose context holds it.
        role: `user`, `assistant`, `tool` ...
        text: Content, cut to 4,000 characters.
    """

    event: str
    agent: str
    role: str
    text: str


class RunInput(msgspec.Struct, frozen=True):
    """A run as input of a reflection.

    Attributes:
        run: Id of the run.
        workflow: Workflow of the run.
        status: Final status.
        messages: Newest messages, in the log's order.
        left_out: Number of earlier messages.
    """

    run: str
    workflow: str
    status: str
    messages: list[RunMessage] = []
    left_out: int = 0


class Propose(Protocol):
    """Makes proposals from runs and the current files, or returns a coroutine that does."""

    def __call__(self, runs: list[RunInput], files: dict[str, str], /) -> Any:
        """Return the proposals, each a `MemoryProposal` or a dict of its fields."""
        ...


async def demand_unreflected(workspace: Workspace, name: str, run: str) -> None:
    """Raise Refused if the run has not ended or was already reflected on for this space, and
    NotFound if there is no such run.
    """
    life = await workspace.states.life(run)
    if life.status not in _ENDED:
        message = f"run {run} has not ended: each run is reflected on once; wait until it has ended"
        raise Refused(message)
    if run in (await workspace.memories.state(name)).reflected:
        message = (
            f"run {run} was already reflected on for {name}: see 'hansard memory proposals {name}'"
        )
        raise Refused(message)


async def unreflected(workspace: Workspace, name: str, limit: int = RUNS_MAX) -> list[str]:
    """Return the ended runs that were not reflected on for this space, oldest first.

    Raises BadName.
    """
    done = (await workspace.memories.state(name)).reflected
    runs = [
        run
        for run, life in await workspace.runs()
        if run not in done and life.status in _ENDED and life.workflow != WORKFLOW
    ]
    return runs[::-1][:limit]


async def reflections(workspace: Workspace, name: str) -> list[MemoryReflected]:
    """Return the reflections of a space, in order. Raises BadName."""
    history = await workspace.memories.history(name)
    return [each.event for each in history if isinstance(each.event, MemoryReflected)]


async def run_input(workspace: Workspace, run: str) -> tuple[RunInput, Label]:
    """Return a run as input of a reflection, and the label of all that it holds."""
    life = await workspace.states.life(run)
    messages: list[RunMessage] = []
    label = join()
    for stored in await workspace.states.history(run):
        label = join(label, stored.commit.label)
        for recorded in stored.commit.events:
            if recorded.type == MessageAdded.tag:
                event = revive(recorded)
                if isinstance(event, MessageAdded):
                    text = _text(load(bytes(event.content)))
                    agent = stored.commit.actor.agent
                    messages.append(RunMessage(recorded.id, agent, event.role, text))
    newest = messages[-MESSAGES_MAX:]
    change = RunInput(run, life.workflow, life.status.value, newest, len(messages) - len(newest))
    return change, label


def _text(content: object) -> str:
    """Return the text of a message's content; empty if it has none."""
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        content = "\n".join(part for part in parts if isinstance(part, str) and part)
    made = content if isinstance(content, str) else ""
    return made[:MESSAGE_CHARACTERS_MAX]


def user_requests(runs: list[RunInput], files: dict[str, str], /) -> list[MemoryProposal]:
    """Propose the lines that users requested: messages that begin with `/remember`. The same text
    from a page, a tool's result or a model is ignored.
    """
    sources_by_line: dict[str, list[str]] = {}
    for run in runs:
        for message in run.messages:
            line = remember_command(message.text) if message.role == "user" else None
            if line is not None:
                sources_by_line.setdefault(line, []).append(message.event)
    current = files.get(NOTES, "")
    return [
        MemoryProposal(NOTES, f"- {text}\n", USER_REQUEST, tuple(sources))
        for text, sources in sources_by_line.items()
        if text not in current
    ]


def check_proposals(
    proposals: Any, files: Mapping[str, str], runs: Sequence[RunInput]
) -> tuple[MemoryProposal, ...]:
    """Convert proposals to the form that is recorded. Raises BadValue, with the number of the
    proposal and the reason.
    """
    if not isinstance(proposals, list | tuple):
        raise BadValue("proposals", f"a {type(proposals).__name__}", "return a list of proposals")
    known = {message.event for run in runs for message in run.messages} | {r.run for r in runs}
    made: list[MemoryProposal] = []
    for number, each in enumerate(proposals, 1):
        where = f"proposal {number}"
        try:
            plain = msgspec.to_builtins(each)
            target = msgspec.convert(plain, MemoryProposal, strict=True)
        except (msgspec.ValidationError, TypeError) as error:
            raise BadValue(where, f"{error}", "give path, text, because and sources") from error
        strange = [source for source in target.sources if source not in known]
        if strange:
            fact = f"its source {strange[0]!r:.80} is not an event of these runs"
            raise BadValue(where, fact, "name the events of the messages that it rests on")
        path = paths.normal(target.path)
        space.text_of(path, target.text)
        previous = files.get(path)
        goes_by = previous if target.whole or target.gone else None
        before = digest_of(goes_by) if goes_by is not None else ""
        made.append(msgspec.structs.replace(target, path=path, before=before))
    size = sum(len(each.text) for each in made)
    if len(made) > PROPOSALS_MAX or size > PROPOSED_CHARACTERS_MAX:
        fact = f"{counted(len(made), 'proposal')} of {size:,} characters"
        remedy = f"propose at most {PROPOSALS_MAX}, of {PROPOSED_CHARACTERS_MAX:,} in all"
        raise BadValue("proposals", fact, remedy)
    return tuple(made)


async def label_of(workspace: Workspace, name: str, files: Mapping[str, str]) -> Label:
    """Return the label of texts by path, taken from a space's files; if a text differs from the
    current file, the label of the space's whole history. Raises BadName.
    """
    current = (await workspace.memories.state(name)).files
    known = {path: current[path] for path in files.keys() & current.keys()}
    await workspace.memories.load(known.values())
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
    """Record the changes that a compaction proposes for the current files: their texts, or None to
    delete one. label: of all that the compaction rests on; default: of all files.
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
    """Record reflected runs and the resulting proposals as one event. Raises Refused, and records
    nothing, if another reflection took one of the runs meanwhile.
    """
    return await MemoryStore(workspace, name).record(event, by, label.stored)


# The prompt that proposes what to remember, on the stream of `memory-remember`, and the score of
# its answer against a key.

PROMPT = "memory-remember"
"""Name of the prompt. Another version of it is used once its alias points to that."""

ALIAS = "production"

TEXT = Path(__file__).with_name("remember.md").read_text("utf-8")
"""The prompt of a reflection; its variables are `files` and `runs`."""

FILES_CHARACTERS_MAX, RUNS_CHARACTERS_MAX = 100_000, 400_000
"""Most characters of files and of runs in a prompt."""

_ARRAY = re.compile(r"\[[\s\S]*\]")


class ExpectedLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line that an answer key expects.

    Attributes:
        path: Path of the file.
        words: Words that it contains, in any case.
        never: Words that it does not contain, as they hold for one case only.
    """

    path: str
    words: tuple[str, ...]
    never: tuple[str, ...] = ()


class ReflectionScore(msgspec.Struct, frozen=True):
    """Score of a reflection against an answer key.

    Attributes:
        wanted: Number of expected lines.
        right: In the right file, and as general as required.
        missed: Not proposed.
        spurious: Proposals that are not in the key.
        misplaced: In another file.
        too_specific: With a word that holds for one case only.
    """

    wanted: int = 0
    right: int = 0
    missed: int = 0
    spurious: int = 0
    misplaced: int = 0
    too_specific: int = 0

    @property
    def scores(self) -> dict[str, float]:
        """Scores as outcomes of the reflection's run."""
        return {f"remember_{name}": float(getattr(self, name)) for name in self.__struct_fields__}


def variables(runs: Iterable[RunInput], files: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the prompt."""
    items = [
        f"run {run.run} ({run.workflow}, {run.status})\n"
        + "".join(f"[{each.event}] {each.role}: {each.text}\n" for each in run.messages)
        for run in runs
    ]
    has = [f"--- {path}\n{text}\n" for path, text in sorted(files.items())]
    return {
        "files": "\n".join(has)[:FILES_CHARACTERS_MAX] or "(none)",
        "runs": "\n".join(items)[:RUNS_CHARACTERS_MAX],
    }


def proposals_in(answer: object) -> list[Any]:
    """Return the proposals in a model's answer. Raises BadValue if it holds no JSON array."""
    array = _ARRAY.search(answer) if isinstance(answer, str) else None
    try:
        value = json.loads(array[0]) if array is not None else None
    except ValueError:
        value = None
    if not isinstance(value, list):
        shown = f"{answer!r:.120}"
        raise BadValue("the model's answer", shown, "it must be a JSON array, [] for nothing")
    return value


def score_proposals(
    proposals: Sequence[MemoryProposal], key: Sequence[ExpectedLine]
) -> ReflectionScore:
    """Score proposals against a key: each item is met by at most one proposal, preferably one in
    the right file.
    """
    left = list(proposals)
    right = misplaced = too_specific = 0
    for item in key:
        having = [each for each in left if _has_all(each.text, item.words)]
        at = [each for each in having if each.path == item.path]
        fits = at or having
        if not fits:
            continue
        left.remove(fits[0])
        if fits[0].path != item.path:
            misplaced += 1
        elif any(_has(fits[0].text, word) for word in item.never):
            too_specific += 1
        else:
            right += 1
    met = right + misplaced + too_specific
    return ReflectionScore(len(key), right, len(key) - met, len(left), misplaced, too_specific)


def _has_all(text: str, words: Iterable[str]) -> bool:
    return all(_has(text, word) for word in words)


def _has(text: str, word: str) -> bool:
    return word.casefold() in text.casefold()


class MemoryChangeMade(msgspec.Struct, kw_only=True):
    """Recorded change or policy of a space.

    Attributes:
        space: The space.
        version: The version of the space.
        changed: Whether it is new.
    """

    space: str
    version: int
    changed: bool


class MemoryProposals(Answer, kw_only=True):
    """Proposed changes of a space's files, newest last."""

    _lines: ClassVar[tuple[str, ...]] = ("proposals",)

    space: str
    proposals: list[ListedProposal]


class MemoryProposalMade(msgspec.Struct, kw_only=True):
    """Proposal that a person applied.

    Attributes:
        space: The space.
        version: The version of the space.
        diff: The change, in git's unified format.
    """

    space: str
    version: int
    diff: str


async def proposals(workspace: Workspace, space: str) -> MemoryProposals:
    """Return the proposed changes of a space's files. Raises BadName."""
    waiting = await list_proposals(workspace, space_name(space))
    return MemoryProposals(space=space, proposals=waiting)
