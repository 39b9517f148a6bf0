"""`session.memory`: files that outlive runs, read and changed by steps of the agent.

A read records the file's version, so that a resumed session gets the same text. A change is
committed together with its step, so that it is made exactly once even if the process is killed. One
tree combines all levels: the agent's own space, that of the user it acts for, and the shared one.
If several levels have a file of the same path, the nearest one is visible, and changes apply to it.

A change waits for a person's approval unless the space's policy allows it. The question shows the
change as a diff; an approval covers that text on those file versions only.

Written once for both clients as flows (see `hansard.agents.flow`). Long because each operation is
one function here, with its question, its step and its commit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from hansard.agents.errors import RoleRefused
from hansard.agents.flow import Flow, Io
from hansard.agents.memory import drafts, reading
from hansard.agents.memory.drafts import Op, apply_ops
from hansard.agents.memory.formats import FrontMatter, Text, front_matter
from hansard.agents.memory.reading import (
    MemoryEntry,
    MemoryNews,
    MemoryVersion,
    VisibilityFilter,
    entry_of,
    undo_of,
)
from hansard.agents.memory.search import (
    HITS_MAX,
    Embedder,
    Rankers,
    SearchResult,
    grep,
    matches,
    paths_matching,
    search,
)
from hansard.agents.memory.store import ChangeRequest, MemoryWrite, check_change
from hansard.agents.policy.gate import AskFirst
from hansard.agents.policy.permits import changes_file
from hansard.agents.steps.atomic import JointSteps
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.gating import Basis, cleared_of, demand_cleared
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.tools import operation
from hansard.bus.errors import NotFound
from hansard.domain.agent import MessageAdded, StatedFact
from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.label import Label, text
from hansard.domain.memory import files as paths
from hansard.domain.memory.files import (
    AGENT,
    AGENTS,
    ORG,
    SKILLS,
    USER,
    FileChange,
    MemoryChanged,
    MemoryKind,
    digest_of,
    space_name,
)
from hansard.domain.memory.space import MemoryConflict, MemoryFile, MemoryInvalid, MemoryState
from hansard.domain.roles.model import RoleDefined
from hansard.domain.values import load
from hansard.state.memories import Memories

# The memory block of a system prompt: every AGENTS.md, and a list of skills.
#
# Instructions are ordered from farthest to nearest (shared, user, agent) and within each level from
# the root into the folders, so that later ones take precedence, as agents.md says. A skill is
# listed by name and description; its file is read when it is needed.

SKILL = "SKILL.md"
BUDGET_MIN, COUNTED_MIN = 200, 50
"""Smallest budget, in characters and in counted units: less holds no instruction."""

Count = Callable[[str], int]
"""Return the size of a text, such as a tokenizer's number of tokens. Must not fall as a text grows.
"""

DESCRIPTION_MAX = 1_024
"""Most characters of a skill's description, as its specification allows."""


class PromptPart(msgspec.Struct, frozen=True):
    """A file that a prompt includes or lists."""

    space: str
    file: MemoryFile


def mentions_file(path: str) -> bool:
    """Return whether a prompt includes or lists a file."""
    *folders, name = path.split("/")
    return name == AGENTS or (name == SKILL and SKILLS in folders)


def compose(
    parts: Iterable[PromptPart],
    spaces: tuple[str, ...],
    budget: int | None,
    count: Count | None = None,
) -> str:
    """Compose the memory block of a system prompt, at most `budget` characters or counted units.

    parts: every AGENTS.md of all levels, and the visible skills. spaces: nearest first. If the
    budget is too small, the farthest instructions are cut first, with a note where to find them.
    Raises BadValue for a budget below BUDGET_MIN, or COUNTED_MIN.
    """
    least, what = (BUDGET_MIN, "characters") if count is None else (COUNTED_MIN, "as it is counted")
    if budget is not None and budget < least:
        raise BadValue("budget", f"{budget} {what}", f"give {least} or more, or none")
    all_parts = list(parts)
    items = [each for each in all_parts if each.file.path.split("/")[-1] == AGENTS]
    items.sort(key=lambda it: (-spaces.index(it.space), it.file.path.count("/"), it.file.path))
    skills = [each for each in all_parts if each not in items]
    lines = sorted(_skill(each) for each in skills)
    ending = ""
    if lines:
        head = "## Skills\n\nView a skill's file before you use the skill.\n\n"
        ending = head + "".join(lines)
    blocks = [_instructions(each) for each in items]
    if budget is not None:
        ending = _cut(ending, "", budget, count or len)
        blocks = _fit(items, blocks, ending, budget, count or len)
    return _joined([*blocks, ending])


def _joined(blocks: Iterable[str]) -> str:
    return "\n".join(block for block in blocks if block)


def _instructions(part: PromptPart) -> str:
    text = part.file.text.rstrip("\n")
    return f"## {part.file.path} ({part.space})\n\n{text}\n" if text else ""


def _fit(
    items: list[PromptPart], blocks: list[str], ending: str, budget: int, size: Count
) -> list[str]:
    """Return the blocks that fit before an ending, nearest first to be kept whole; each cut block
    ends with a note that names its file.
    """
    kept: list[str] = []
    for part, block in reversed(list(zip(items, blocks, strict=True))):
        left = _joined([*kept, ending])
        if size(_joined([block, left])) <= budget:
            kept.insert(0, block)
            continue
        note = f"\n(cut: view {part.file.path} of {part.space})\n"
        kept.insert(0, _cut(block, note, budget, functools.partial(_size_with, size, left)))
    return kept


def _size_with(size: Count, left: str, text: str) -> int:
    """Return the size of a text together with the text that follows it."""
    return size(_joined([text, left]))


def _cut(text: str, note: str, budget: int, size: Count) -> str:
    """Return as much of a text as fits; if it is cut, followed by a note. Empty if not even the
    note fits.
    """
    if size(text) <= budget:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle] + note) <= budget else (low, middle - 1)
    return text[:low] + note if low else ""


def _skill(part: PromptPart) -> str:
    """Return a skill in one line, from the readable part of its front matter."""
    name, about = part.file.path.split("/")[-2], ""
    read = front_matter(part.file.path, part.file.text, flow=True)
    if isinstance(read, FrontMatter):
        fields = read.fields.fields
        name, about = _text(fields.get("name")) or name, _text(fields.get("description"))
    words = " ".join(about.split())[:DESCRIPTION_MAX]
    return f"- {name} ({part.file.path}){f': {words}' if words else ''}\n"


def _text(value: object) -> str:
    return value.value if isinstance(value, Text) else ""


KIND = "memory"
"""Kind of these steps."""

T = TypeVar("T")

_memory = functools.partial(operation, kind=KIND)
_writes = functools.partial(_memory, writes=True)

# Recorded arguments of each operation.
SPECS = {
    "view": _memory("memory.view", "path", "space", "at"),
    "ls": _memory("memory.ls", "folder"),
    "glob": _memory("memory.glob", "pattern"),
    "grep": _memory("memory.grep", "pattern", "glob"),
    "search": _memory("memory.search", "question", "by", "glob", "limit", "embedder"),
    "search_of_kind": _memory(
        "memory.search", "question", "by", "glob", "limit", "embedder", "kind"
    ),
    "prompt": _memory("memory.prompt", "budget"),
    "news": _memory("memory.news"),
    "history": _memory("memory.history", "path", "space"),
    "revert": _writes("memory.revert", "change", "because", "space"),
    "change": _writes("memory.change", "ops", "because", "space", "sources"),
}

REQUESTED_BY_USER = "a user asked for it"
"""Reason recorded with a line that a user requested by `/remember`."""

DEFAULT_RULE = AskFirst(tool="memory.*", name="memory")
"""Rule used for changes that no rule of the gate covers."""


class TreeFile(msgspec.Struct, frozen=True):
    """A visible file in the tree of all levels."""

    space: str
    file: MemoryFile


class MemoryFlows(JointSteps):
    """A session's operations on memory."""

    outlives_runs = True

    def __init__(self, engine: StepEngine, rankers: Callable[[Embedder | None], Rankers]) -> None:
        super().__init__(engine)
        self._rankers = rankers
        self._sight = VisibilityFilter(engine.settings.permit, engine.clearances.own)
        self._seen: dict[str, dict[str, str]] = {}
        """Digests of the files as this session last read them, by space and path."""
        self._prompted: dict[str, str] = {}
        """Digests of the files that the prompt used, by space and path."""
        self._now: int | None = None
        """Log time when a policy was last evaluated, in ns; None if the policy does not depend on
        time.
        """

    @property
    def spaces(self) -> tuple[str, ...]:
        """Spaces of the tree, nearest first."""
        actor = self.engine.ledger.actor
        users = tuple(f"{USER}{who}" for who in actor.on_behalf_of[:1])
        return (f"{AGENT}{self.engine.stream.agent}", *users, ORG)

    def begin(self, name: str, *arguments: Any) -> Call:
        """Build the call of an operation, with its place in the record. Raises BadValue, NoScope,
        ToolError.
        """
        self.engine.ledger.demand_open()
        call = self.engine.begin(SPECS[name], arguments, {})
        call.needs = ()
        return call

    # ------------------------------------------------------------ reads

    def view(self, path: object, space: str | None, at: object) -> Flow[MemoryEntry]:
        """Return a file, now or at a point. Raises NotFound."""
        named = paths.normal(path)
        call = self.begin("view", named, _space(space), at)
        if (of_run := reading.run_of(named)) is not None:
            return (yield from self._run_file(call, *of_run))
        read: list[TreeFile] = []
        run = functools.partial(self._view, read=read)
        recorded = yield from self.ask(call, run)
        if recorded is None:
            self._note(space or self.spaces[0], named, "")
            raise NotFound(f"file {named!r}{f' at {at}' if at is not None else ''}", drafts.SEE_LS)
        viewed = read[0] if read else (yield from self._viewed(recorded))
        if at is None:
            self._note(viewed.space, viewed.file.path, viewed.file.digest)
        return self._entry(viewed)

    def _run_file(self, call: Call, run: str, name: str) -> Flow[MemoryEntry]:
        """Return a file derived from a run, limited to what the agent's role may see."""
        engine = self.engine

        def read() -> Flow[Any]:
            work = functools.partial(
                reading.derive, engine.boards.states, engine.stream.role, self._rules, run
            )
            derived = yield Io(work)
            yield from demand_cleared(engine, call, derived.label, f"run {run:.80}")
            label = text(derived.label) if derived.label is not None else ""
            value = reading.text_of(name, run, derived.view.events, derived.view.state)
            return {"text": value, "label": label}

        value = yield from self._reading(call, read)
        return MemoryEntry(
            space="",
            path=call.arguments["path"],
            text=value["text"],
            digest=digest_of(value["text"]),
            version=0,
            kind=MemoryKind.EPISODIC,
            author="",
            role="",
            event="",
            label=value["label"],
        )

    @property
    def _rules(self) -> RoleDefined | None:
        """Rules that say what the agent's role may see of runs."""
        permit = self.engine.settings.permit
        return permit.rules if permit.enforced else reading.ALL

    def _reading(self, call: Call, read: Callable[[], Flow[Any]]) -> Flow[Any]:
        """Return the recorded result of a read, or read now and record it."""
        return (yield from self.ask(call, lambda of: self._recorded(of, read)))

    def _entry(self, tree_file: TreeFile) -> MemoryEntry:
        """Return a file for the agent. A limited role gets no version, which would reveal how much
        changed elsewhere.
        """
        entry = entry_of(tree_file.space, tree_file.file)
        return msgspec.structs.replace(entry, version=0) if self._sight.is_limited else entry

    def _view(self, call: Call, read: list[TreeFile]) -> Flow[Any]:
        return (yield from self._recorded(call, lambda: self._read(call, read)))

    def _read(self, call: Call, read: list[TreeFile]) -> Flow[Any]:
        """Return the fields that a view records: which file, and at which version."""
        arguments = call.arguments
        nearest = yield from self._nearest(arguments["path"], arguments["space"], arguments["at"])
        if nearest is None:
            return None
        what = f"file {nearest.file.path!r:.200} of {nearest.space}"
        yield from demand_cleared(self.engine, call, nearest.file.label, what)
        yield from self._load([nearest.file])
        read.append(nearest)
        return {
            "space": nearest.space,
            "path": nearest.file.path,
            "digest": nearest.file.digest,
            "event": nearest.file.event,
        }

    def _nearest(self, path: str, space: str | None, at: object) -> Flow[TreeFile | None]:
        """Return the nearest file of a path that the agent's role may see."""
        for each in (space,) if space else self.spaces:
            try:
                state = yield from self._state(each, at)
            except NotFound:
                continue  # the point belongs to another space
            file = state.file(path)
            if file is not None:
                return TreeFile(each, file)
        return None

    def _state(self, space: str, at: object = None) -> Flow[MemoryState]:
        """Return a space as the agent's role may see it."""
        work = functools.partial(self._sight.at, self._memories, space, at)
        state: MemoryState = yield Io(work)
        return state

    @property
    def _memories(self) -> Memories:
        return self.engine.workspace.memories

    def _load(self, files: Iterable[MemoryFile | None]) -> Flow[None]:
        """Load the texts of some files."""
        yield Io(functools.partial(self._memories.load, files))

    def _using(self, work: Callable[[], T], first: Iterable[MemoryFile | None]) -> Flow[T]:
        """Run `work` on texts: those of some files, and any others that it turns out to need."""
        result: T = yield Io(functools.partial(self._memories.using, work, first))
        return result

    def _viewed(self, fields: dict[str, Any]) -> Flow[TreeFile]:
        """Return a file as an earlier, recorded view read it."""
        state = yield from self._state(fields["space"], fields["event"])
        file = state.files.get(fields["path"])
        if file is None or file.digest != fields["digest"]:
            raise NotFound(f"file {fields['path']!r} of {fields['space']} as it was read", "")
        yield from self._load([file])
        return TreeFile(fields["space"], file)

    def _note(self, space: str, path: str, mark: str) -> None:
        self._seen.setdefault(space, {})[path] = mark

    def tree(self, of_runs: Callable[[str], bool] | None = None) -> Flow[dict[str, TreeFile]]:
        """Return all files that the agent may see, by path; the nearest level takes precedence.
        `of_runs`: selects the paths of files of runs to include.
        """
        files: dict[str, TreeFile] = {}
        for space in self.spaces:
            state = yield from self._state(space)
            for path, file in state.files.items():
                files.setdefault(path, TreeFile(space, file))
        if of_runs is not None:
            engine = self.engine
            states, role = engine.boards.states, engine.stream.role
            work = functools.partial(reading.files, states, role, self._rules, of_runs)
            for file in (yield Io(work)):
                files[file.path] = TreeFile("", file)
        labels = {path: each.file.label for path, each in files.items()}
        return {path: files[path] for path in (yield from cleared_of(self.engine, labels))}

    def _record_listing(
        self,
        call: Call,
        made: Callable[[dict[str, TreeFile]], Any],
        of_runs: Callable[[str], bool] | None = None,
        texts: Callable[[str], bool] | None = None,
    ) -> Flow[Any]:
        """Return the recorded result of a look at the tree, or record it now. `texts`: selects the
        paths whose texts are needed.
        """

        def read() -> Flow[Any]:
            tree = yield from self.tree(of_runs)
            if texts is not None:
                yield from self._load(each.file for path, each in tree.items() if texts(path))
            return made(tree)

        return (yield from self._reading(call, read))

    def ls(self, folder: str) -> Flow[list[str]]:
        """Return the paths under a folder, sorted."""
        within = f"{paths.normal(folder.rstrip('/'))}/" if folder.strip("/.") else ""
        if reading.run_of(f"{within}{reading.FILES[0]}") is not None:
            return [f"{within}{name}" for name in reading.FILES]
        call = self.begin("ls", folder)
        listed: list[str] = yield from self._record_listing(
            call,
            lambda tree: sorted(path for path in tree if path.startswith(within)),
            (lambda path: path.startswith(within)) if reading.are_in(within) else None,
        )
        return listed

    def glob(self, pattern: str) -> Flow[list[str]]:
        """Return the matching paths, sorted."""
        call = self.begin("glob", pattern)
        listed: list[str] = yield from self._record_listing(
            call, lambda tree: paths_matching(tree, pattern).paths, _of_runs(pattern)
        )
        return listed

    def grep(self, pattern: str, glob: str) -> Flow[list[list[Any]]]:
        """Return the matching lines, as (path, line, text)."""
        call = self.begin("grep", pattern, glob)

        def made(tree: dict[str, TreeFile]) -> Any:
            lines = grep(_texts(tree, glob), pattern, glob=glob)
            return [[line.path, line.line, line.text] for line in lines.lines]

        texts = functools.partial(_is_in, glob)
        hits: list[list[Any]] = yield from self._record_listing(call, made, _of_runs(glob), texts)
        return hits

    def search(
        self,
        question: str,
        embedder: Embedder | None = None,
        *,
        by: str | None = None,
        glob: str = "",
        kind: str = "",
        limit: int = HITS_MAX,
    ) -> Flow[SearchResult]:
        """Return the files that match a question, best first."""
        named = f"{embedder.name}@{embedder.digest}" if embedder is not None else ""
        arguments = (question, by or "", glob, limit, named)
        # Recorded without a kind, as in older records, so that a replay matches these.
        extra, name = ((kind,), "search_of_kind") if kind else ((), "search")
        call = self.begin(name, *arguments, *extra)

        def made(tree: dict[str, TreeFile]) -> Any:
            texts, ranked = _texts(tree, glob), self._rankers(embedder)
            result = search(
                texts, question, ranked, by=by or None, glob=glob, kind=kind, limit=limit
            )
            return msgspec.to_builtins(result)

        texts = functools.partial(_is_in, glob)
        recorded = yield from self._record_listing(call, made, _of_runs(glob), texts)
        return msgspec.convert(recorded, SearchResult)

    def history(self, path: object, space: str | None) -> Flow[list[MemoryVersion]]:
        """Return the versions of a file, oldest first."""
        named = paths.normal(path)
        call = self.begin("history", named, _space(space))

        def read() -> Flow[Any]:
            nearest = yield from self._nearest(named, call.arguments["space"], None)
            where = nearest.space if nearest is not None else (space or self.spaces[0])
            history = yield Io(functools.partial(self._memories.history, where))
            work = functools.partial(self._sight.versions, where, history, named)
            versions, label = yield Io(work)
            yield from demand_cleared(self.engine, call, label, named)
            return [msgspec.to_builtins(each) for each in versions]

        recorded = yield from self._reading(call, read)
        return [msgspec.convert(each, MemoryVersion) for each in recorded]

    # ------------------------------------------------------------ prompts

    def prompt(self, budget: int | None, count: Count | None = None) -> Flow[str]:
        """Return the memory block of the system prompt."""
        call = self.begin("prompt", budget)

        def read() -> Flow[Any]:
            parts = yield from self._parts()
            yield from self._load(each.file for each in parts)
            marks = {f"{each.space}/{each.file.path}": each.file.digest for each in parts}
            return {"text": compose(parts, self.spaces, budget, count), "files": marks}

        recorded = yield from self._reading(call, read)
        self._prompted = dict(recorded["files"])
        block: str = recorded["text"]
        return block

    def _parts(self) -> Flow[list[PromptPart]]:
        """Return the files of the prompt: instructions of all levels, and the nearest of each
        skill.
        """
        nearest: dict[str, PromptPart] = {}
        paths_seen: set[str] = set()
        for space in self.spaces:
            state = yield from self._state(space)
            for path in state.files:
                file = state.file(path)
                if file is None or not mentions_file(path):
                    continue
                if path.endswith(AGENTS) or path not in paths_seen:
                    nearest[f"{space}/{path}"] = PromptPart(space, file)
                    paths_seen.add(path)
        labels = {name: part.file.label for name, part in nearest.items()}
        return [nearest[name] for name in (yield from cleared_of(self.engine, labels))]

    def news(self) -> Flow[list[MemoryNews]]:
        """Return the changes of the prompt's files since the prompt was made or since the last
        call.
        """
        call = self.begin("news")
        before = self._prompted

        def read() -> Flow[Any]:
            parts = {
                f"{each.space}/{each.file.path}": each.file for each in (yield from self._parts())
            }
            items = [
                [name, "changed" if name in before else "new", file.author]
                for name, file in parts.items()
                if before.get(name) != file.digest
            ]
            items += [[name, "gone", ""] for name in before if name not in parts]
            return {"news": items, "files": {name: file.digest for name, file in parts.items()}}

        items = yield from self._reading(call, read)
        self._prompted = dict(items["files"])
        return [MemoryNews(*each) for each in items["news"]]

    # ------------------------------------------------------------ changes

    def command(self, message: str, path: str, space: str | None) -> Flow[str]:
        """Run the command in a user's message; return the remembered text, empty if there is no
        command.
        """
        text = drafts.remember_command(message)
        if text is not None:
            source = yield from self._user_message_id(message)
            yield from self.change(
                [drafts.remember(path, text)], REQUESTED_BY_USER, space, [source]
            )
        return text or ""

    def _user_message_id(self, message: str) -> Flow[str]:
        """Return the id of the event of the first message with which a user of this run gave this
        text. Raises BadValue.
        """
        version = next((each.version for each in self._of_users() if _says(each, message)), None)
        if version is None:
            remedy = "record it first: session.message('user', text)"
            raise BadValue("command", f"no user message {message!r:.80} in this run", remedy)
        read = functools.partial(self.engine.workspace.log.read, self.engine.stream, to=version)
        for stored in (yield Io(read)):
            at = version - stored.commit.version
            if 0 <= at < len(stored.commit.events):
                return str(stored.commit.events[at].id)
        return ""  # the message belongs to the fork's parent

    def _of_users(self) -> Iterator[StatedFact]:
        for each in self.engine.ledger.state.facts:
            if isinstance(each.fact, MessageAdded) and each.fact.role == "user":
                yield each

    def change(
        self, ops: Sequence[Op], reason: str, space: str | None, sources: Sequence[str]
    ) -> Flow[dict[str, Any]]:
        """Make a change, or return its recorded result."""
        call = self.begin("change", list(ops), reason, _space(space), list(sources))
        return (yield from self._changed(call, self._change))

    def _changed(self, call: Call, run: Callable[[Call], Flow[Any]]) -> Flow[dict[str, Any]]:
        recorded = yield from self.ask(call, run)
        for each in recorded["files"]:
            self._note_written(recorded["space"], each)
        change: dict[str, Any] = recorded
        return change

    def _note_written(self, space: str, fields: dict[str, Any]) -> None:
        """Note a file that this session wrote as read by it, unless it changed only part of a text
        that it had not read. Older records lack the digest of that text.
        """
        before = fields.get("before", "")
        if not before or before in self._seen.get(space, {}).values():
            self._note(space, fields["path"], fields["digest"])

    def _change(self, call: Call) -> Flow[Any]:
        arguments = call.arguments
        ops: list[Op] = arguments["ops"]
        space, trouble = arguments["space"] or self.spaces[0], None
        try:
            space = arguments["space"] or (yield from self._space_of(ops))
        except BadValue as error:
            trouble = error
        command = ChangeRequest(
            space=space,
            ops=ops,
            because=arguments["because"],
            sources=tuple(arguments["sources"]),
            seen=self._seen.get(space, {}),
        )
        return (yield from self._make(call, command, trouble))

    def _make(
        self,
        call: Call,
        request: ChangeRequest,
        trouble: Exception | None = None,
        used: Label | None = None,
    ) -> Flow[Any]:
        """Make a change after any approval it needs. A failure becomes the outcome of its step.
        used: the label of the change's sources, in addition to the agent's.
        """
        space, ops = request.space, request.ops
        touched = drafts.touched_paths(ops)
        call.needs = tuple(changes_file(space, path) for path in touched)
        _, verdict = yield from self.engine.ask_rules(call)
        frozen = None
        try:
            if trouble is None:
                frozen = yield from self._request_approval(call, request, verdict.asks)
        except (BadValue, NotFound, MemoryConflict, MemoryInvalid, RoleRefused) as error:
            trouble = error
        write = MemoryWrite(self.engine, call, request, self._sight, frozen, trouble, self._now)
        write.used = used
        try:
            return (yield from self._jointly(call, [], write))
        finally:
            for path in touched if write.error is not None else ():
                self._seen.get(space, {}).pop(
                    path, None
                )  # must be read again before the next change

    def _space_of(self, ops: Sequence[Op]) -> Flow[str]:
        """Return the space for a change that names none: that of the files it changes."""
        path_by_space: dict[str, str] = {}
        for op in ops:
            at = yield from self._nearest(op["path"], None, None)
            if at is not None:
                path_by_space.setdefault(at.space, op["path"])
        if len(path_by_space) > 1:
            fact = " and ".join(
                f"{path!r:.80} is of {space}" for space, path in path_by_space.items()
            )
            raise BadValue("change", fact, "make a change a space")
        return next(iter(path_by_space), self.spaces[0])

    def _request_approval(
        self, call: Call, request: ChangeRequest, rule: AskFirst | None
    ) -> Flow[tuple[FileChange, ...] | None]:
        """Request approval of a valid change if the space's policy or a rule requires it. Return
        the approved change; None if no approval was needed.
        """
        state = yield from self._state(request.space)
        first = [state.file_or_none(path) for path in drafts.touched_paths(request.ops)]
        work = functools.partial(apply_ops, request.space, state, request.ops, request.seen)
        changes = yield from self._using(work, first)
        self._sight.demand_changes(request.space, changes)
        if not changes:
            return None
        changed = [path for each in changes for path in (each.path, each.was) if path]
        self._now = (yield Io(self.engine.boards.log_time)) if state.depends_on_time else None
        if rule is None and not state.asks(self._now, self.engine.ledger.label, changed):
            return None
        yield from self._check(request, changes)
        basis = {each.path: [each.before, each.after] for each in changes}
        scrub = self.engine.settings.scrub
        work_diff = functools.partial(drafts.render_diff, state, changes, scrub)
        shown = {"diff": (yield from self._using(work_diff, first)), "space": request.space}
        mark = digest(canonical(basis))
        yield from self.engine.ask_first(call, rule or DEFAULT_RULE, Basis(mark, shown))
        return changes

    def _check(self, request: ChangeRequest, changes: tuple[FileChange, ...]) -> Flow[None]:
        """Raise the error for which a change would be refused, before approval is requested."""
        engine, space = self.engine, request.space
        whole: MemoryState = yield Io(functools.partial(self._memories.state, space))
        change = MemoryChanged(
            files=changes, because=request.because, sources=request.sources, run=engine.stream.run
        )
        refusals = whole.refusals(engine.stream.agent, engine.stream.run)
        scrub = engine.settings.scrub
        yield Io(
            functools.partial(
                check_change, engine.workspace, self._sight, space, whole, change, refusals, scrub
            )
        )

    def revert(self, event: str, reason: str, space: str | None) -> Flow[dict[str, Any]]:
        """Undo a change of a space, named by its version ('@3') or its id."""
        call = self.begin("revert", event, reason, space_name(space) if space else self.spaces[0])
        return (yield from self._changed(call, self._revert))

    def _revert(self, call: Call) -> Flow[Any]:
        arguments = call.arguments
        named, event = arguments["space"], arguments["change"]
        history = yield Io(functools.partial(self._memories.history, named))
        because = arguments["because"] or f"revert of {event}"
        try:
            yield Io(functools.partial(self._sight.demand_whole, named, history, event))
            undo = undo_of(named, history, event)
            yield Io(functools.partial(self._sight.demand_returned, named, event, undo.label))
        except NotFound as error:
            return (yield from self._make(call, ChangeRequest(named, [], because), error))
        what = f"what the undoing of change {event!r:.80} of {named} brings back"
        yield from demand_cleared(self.engine, call, undo.label, what)
        state = yield from self._state(named)
        ops: list[Op] = []
        trouble: MemoryConflict | None = None
        try:
            ops = yield from self._using(functools.partial(undo.ops, state), undo.read)
        except MemoryConflict as error:
            trouble = error
        seen = {path: file.digest for path, file in state.files.items()}
        command = ChangeRequest(named, ops, because, seen=seen)
        return (yield from self._make(call, command, trouble, undo.label))


def _says(stated: StatedFact, message: str) -> bool:
    fact = stated.fact
    return isinstance(fact, MessageAdded) and load(bytes(fact.content)) == message


def _of_runs(glob: str) -> Callable[[str], bool] | None:
    """Return the predicate that selects the files of runs by a glob; None if it does not begin with
    their folder.
    """
    return functools.partial(_is_in, glob) if reading.are_in(glob) else None


def _is_in(glob: str, path: str) -> bool:
    return not glob or matches(path, glob)


def _texts(tree: Mapping[str, TreeFile], glob: str) -> dict[str, str]:
    """Return the texts of a tree's files, limited to those that match a glob if there is one."""
    return {
        path: each.file.text
        for path, each in tree.items()
        if not each.file.link and _is_in(glob, path)
    }


def _space(space: str | None) -> str | None:
    return space_name(space) if space else None
