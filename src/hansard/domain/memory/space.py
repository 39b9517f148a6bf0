"""A space of memory: its files at a version of its stream. One aggregate a space.

State, fold, decide. A change is conditional on the digest of each file as its writer had read it:
so changes to different files commute, and apply in any order; of two to one file the second is a
`MemoryConflict`, which has both texts.

A stored change whose digests do not match the current ones (written by another client directly to
the broker) changes nothing, for every reader alike; `unfit` lists it. A text is derived from its
changes, and checked by its digest, on first use: a reader pays only for the files that it uses.
"""

from __future__ import annotations

import base64
import binascii
import copy
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    MutableMapping,
    Sequence,
)
from datetime import UTC, datetime, timedelta
from typing import ClassVar, assert_never

import msgspec

from hansard.domain.choices import Brief, counted
from hansard.domain.decider import By, State, evolve
from hansard.domain.errors import BadValue, Corrupt, HansardError, Refused, WithFacts, fact_at
from hansard.domain.events import Event
from hansard.domain.label import Label, join
from hansard.domain.memory import files as paths
from hansard.domain.memory import lines
from hansard.domain.memory.files import (
    STOOD_MAX,
    TEXT,
    FileChange,
    FileForm,
    FileOp,
    MemoryApproval,
    MemoryChanged,
    MemoryEvent,
    MemoryPolicySet,
    MemoryReflected,
    MemoryRejected,
    Problem,
    digest_of,
)
from hansard.domain.roles.model import SLASH, any_matches, read
from hansard.domain.steps import NULL
from hansard.domain.values import dump

FILE_BYTES_MAX = 1024 * 1024
"""Largest text, in bytes of UTF-8."""

BINARY_BYTES_MAX = 16 * 1024 * 1024
"""Largest binary file."""

FILES_MAX = 20_000
"""Most files of a space: every reader reads all of them."""

SPACE_BYTES_MAX = 256 * 1024 * 1024
"""Most text of a space over all of its files, in characters."""

CHANGE_FILES_MAX = 500
"""Most files of one change: it is one message."""

SOURCES_MAX = 1_000
"""Most source events of a change."""

BECAUSE_MAX = 4_000
"""Most characters of a reason."""

PROBLEMS_MAX = 100
"""Most problems recorded for a refusal; the others are counted in the last."""

REFUSALS_BEFORE_ASKING = 3
"""After so many refusals in a row, the error advises a writer to ask a person."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryFile(Brief, msgspec.Struct, frozen=True, kw_only=True):
    """A file of a space at a version.

    Attributes:
        path: From the root of the tree.
        body: Its text, derived on use.
        digest: Digest of its text.
        version: The version of the space's stream that changed it last.
        author: The author of the last change.
        role: That agent's role; empty for a person.
        event: The id of the event that changed it last.
        label: The join of the labels of all sources of its text; None is public and trusted.
        link: True for a symbolic link.
        binary: True if it is no text; its text is then the base64 of its bytes.
        executable: True if its owner may execute it.
        created: The time of its creation, by the log's time in ns; a rename keeps it.
        changed: The time of the last change, likewise.
        size: Largest possible size of its text, in characters (`lines.size_after`).
    """

    path: str
    body: lines.FileText
    digest: str
    version: int
    author: str = ""
    role: str = ""
    event: str = ""
    label: Label | None = None
    link: bool = False
    created: int = 0
    changed: int = 0
    binary: bool = False
    executable: bool = False
    size: int = 0

    @property
    def text(self) -> str:
        """Its text; for a link the path of its target. Raises Corrupt; Unfetched where it needs
        blobs that were not fetched (`Memories.load`).
        """
        return self.body.text()

    @property
    def form(self) -> FileForm:
        """The type of the file."""
        return FileForm(self.link, self.binary, self.executable)

    @property
    def content(self) -> bytes:
        """Its bytes."""
        return content_of(self.text, self.form)

    @property
    def shown(self) -> str:
        """Its text as readers see it; for a binary file its number of bytes."""
        return shown(self.text, self.form)

    @property
    def kind(self) -> paths.MemoryKind:
        """The kind of memory."""
        return paths.kind_of(self.path)

    def _brief(self) -> dict[str, object]:
        facts = {name: getattr(self, name) for name in self.__struct_fields__}
        return facts | {"body": self.body.known}


class Files(MutableMapping[str, MemoryFile]):
    """The files of a space by path. Those of a snapshot are decoded on use, and a copy costs
    O(changes since the snapshot).
    """

    def __init__(
        self, stored: Collection[str] = (), stored_at: Callable[[str], MemoryFile] | None = None
    ) -> None:
        """Start from the paths of a snapshot, if given. stored_at: returns the file at a path."""
        self._stored, self._stored_at = stored, stored_at
        self._count = len(stored)
        self.changed: dict[str, MemoryFile | None] = {}
        """The files changed since the snapshot; None for a deleted one."""

    def __getitem__(self, path: str) -> MemoryFile:
        file = self.changed.get(path)
        if file is None and path not in self.changed and self._stored_at and path in self._stored:
            return self._stored_at(path)
        if file is None:
            raise KeyError(path)
        return file

    def __setitem__(self, path: str, file: MemoryFile) -> None:
        self._count += path not in self
        self.changed[path] = file

    def __delitem__(self, path: str) -> None:
        self._count -= bool(self[path])
        self.changed[path] = None

    def __iter__(self) -> Iterator[str]:
        yield from (path for path in self._stored if path not in self.changed)
        yield from (path for path, file in self.changed.items() if file is not None)

    def __len__(self) -> int:
        return self._count

    def copy(self) -> Files:
        """Return files that can be changed without changing these."""
        copied = copy.copy(self)
        copied.changed = dict(self.changed)
        return copied


class MemoryState(Brief, State, kw_only=True):
    """A space at a version of its stream. The fold owns its state: `copy()` before changing it.

    Attributes:
        version: The version of the space's stream.
        files: The files, by path.
        size: Largest possible size of all of them, in characters.
        policy: The approval policy; None until it is set.
        refused: The consecutive refusals of each writer, and their run.
        unfit: Versions of events that change nothing, and the reasons.
        reflected: The runs that were reflected on, each with the id of its event.
        links: The text of each link, by its path.
        known_names: The names of the files and their folders; None until they are used.
        end: The first version and the id of the newest commit read from the log.
    """

    noun: ClassVar[str] = "a memory"

    files: Files = msgspec.field(default_factory=Files)
    size: int = 0
    policy: MemoryPolicySet | None = None
    refused: dict[str, tuple[str, int]] = msgspec.field(default_factory=dict)
    unfit: list[tuple[int, str]] = msgspec.field(default_factory=list)
    reflected: dict[str, str] = msgspec.field(default_factory=dict)
    links: dict[str, str] = msgspec.field(default_factory=dict)
    known_names: paths.Names | None = None
    end: tuple[int, str] = (0, "")

    @property
    def names(self) -> paths.Names:
        """The names of the files and their folders."""
        if self.known_names is None:
            self.known_names = paths.Names(self.files)
        return self.known_names

    def copy(self) -> MemoryState:
        """Return a copy that can be folded on without changing this one; O(changed files)."""
        return msgspec.structs.replace(
            self,
            files=self.files.copy(),
            refused=dict(self.refused),
            unfit=list(self.unfit),
            reflected=dict(self.reflected),
            links=dict(self.links),
            known_names=self.known_names.copy() if self.known_names is not None else None,
        )

    def _evolve(self, event: Event, by: By) -> None:
        match event:
            case MemoryChanged():
                made = _made(self, event, by)
                if isinstance(made, str):
                    self.unfit.append((self.version, made))
                    return
                for change in event.files:  # all of them first: files may swap their paths
                    self.take(change.was or change.path)
                for file in made:
                    self.take(file.path)
                    self.put(file)
                self.refused.pop(by.author, None)
            case MemoryRejected():
                count = self.refusals(by.author, event.run)
                self.refused[by.author] = (event.run, count + 1)
            case MemoryPolicySet():
                self.policy = event
            case MemoryReflected():
                self.reflected.update(dict.fromkeys(event.runs, by.event))
            case _:
                super()._evolve(event, by)

    def limited_to(self, files: Iterable[MemoryFile]) -> MemoryState:
        """Return the state with some of its files only; O(those files)."""
        state = msgspec.structs.replace(self, files=Files(), size=0, links={}, known_names=None)
        for file in files:
            state.put(file)
        return state

    def put(self, file: MemoryFile) -> None:
        """Add a file at a free path. Only for the owner of the state."""
        self.files[file.path] = file
        self.size += file.size
        if self.known_names is not None:
            self.known_names.add(file.path)
        if file.link:
            self.links[file.path] = file.text

    def take(self, path: str) -> None:
        """Remove a file, if it exists. Only for the owner of the state."""
        file = self.files.pop(path, None)
        if file is not None:
            self.size -= file.size
            if self.known_names is not None:
                self.known_names.remove(path)
            self.links.pop(path, None)

    def file(self, path: str) -> MemoryFile | None:
        """Return the file at a path, with links followed; None where there is none.

        Raises BadValue for links that lead in a circle.
        """
        entry = self.files.get(path)
        if entry is not None and not entry.link:
            return entry
        return self.files.get(paths.followed(path, self.links))

    def file_or_none(self, path: str) -> MemoryFile | None:
        """Return the file as `file`; None, too, for links that lead in a circle."""
        try:
            return self.file(path)
        except BadValue:
            return None

    def refusals(self, author: str, run: str) -> int:
        """Return the number of consecutive refusals of a writer in a run."""
        of, count = self.refused.get(author, ("", 0))
        return count if of == run else 0

    @property
    def depends_on_time(self) -> bool:
        """True if the approval of a change depends on the time."""
        return self.policy is not None and self.policy.until is not None

    def asks(self, now: int | None, label: Label | None, changed: Iterable[str]) -> bool:
        """Return whether a change of some paths, made under a label at a log time in ns, needs a
        person's approval; it does where that depends on the time and the time is unknown (None).
        """
        policy = self.policy
        if policy is None or policy.approval is MemoryApproval.ASK or _has_ended(policy, now):
            return True
        if label is None or not label.untrusted:
            return False
        return not all(any_matches(policy.untrusted, SLASH, path) for path in changed)


def _has_ended(policy: MemoryPolicySet, now: int | None) -> bool:
    if policy.until is None:
        return False
    ends_us = (policy.until - _EPOCH) // timedelta(microseconds=1)
    return now is None or ends_us <= now // 1_000


class MemoryConflict(WithFacts, HansardError):
    """A change started from a text of a file that is not the current one.

    State: nothing was written.
    Remedy: view the file and decide again.

    `expected` and `found` are digests (empty: no file), `mine` and `theirs` the two texts,
    `author` and `version` the writer and the version of the current text.
    """

    def __init__(
        self, space: str, path: str, expected: str, mine: str, theirs: MemoryFile | None
    ) -> None:
        digest = theirs.digest if theirs is not None else ""
        current = "there is none" if theirs is None else f"{theirs.author!r} wrote the current one"
        what = "is not what was read" if expected else "was not read before"
        text = (
            f"file {path!r} of {space} {what}: {current}"
            f"{f' (version {theirs.version})' if theirs is not None else ''}; nothing was written: "
            "view it and decide again"
        )
        value = ("", "", 0) if theirs is None else (theirs.shown, theirs.author, theirs.version)
        super().__init__(text, space, path, expected, digest, mine, *value)

    space, path, expected, found, mine, theirs, author = map(fact_at, range(1, 8))
    version = fact_at(8, 0)


class MemoryInvalid(WithFacts, HansardError):
    """A change would make a file of memory invalid.

    State: nothing was written; the refusal is on record.
    Remedy: correct each of `problems`: path, line, rule, text, and what is allowed.
    """

    def __init__(self, space: str, problems: Sequence[Problem], in_row: int = 1) -> None:
        words = ". ".join(map(str, problems[:PROBLEMS_MAX]))
        ask = (
            f" This is refusal {in_row} in a row: stop, and ask the user for the content."
            if in_row >= REFUSALS_BEFORE_ASKING
            else ""
        )
        text = f"nothing was written to {space}: {words}.{ask}"
        plain = [list(msgspec.structs.astuple(each)) for each in problems[:PROBLEMS_MAX]]
        super().__init__(text, space, plain, in_row)

    @property
    def problems(self) -> list[Problem]:
        """The problems of the change."""
        return [Problem(*each) for each in self.args[2]] if len(self.args) > 2 else []  # noqa: PLR2004 -- text, space, problems


def problem(path: str, line: int, rule: str, stood: str, allowed: str) -> Problem:
    """Return a problem, with the rejected text cut to STOOD_MAX characters."""
    cut = stood if len(stood) <= STOOD_MAX else f"{stood[: STOOD_MAX - 1]}…"
    return Problem(path, line, rule, cut, allowed)


# Fold


def _made(state: MemoryState, event: MemoryChanged, by: By) -> list[MemoryFile] | str:
    """Return the files after a change, or the reason why it does not fit the current ones."""
    made: list[MemoryFile] = []
    renamed = _renamed(event)
    for change in event.files:
        current = _before(state, renamed, change)
        if (current.digest if current is not None else "") != change.before:
            return f"{change.path!r:.80} is not what it was changed from"
        if change.op is FileOp.DELETED:
            continue
        body = lines.FileText.after(change, current.body if current else None, state.version)
        if change.link:  # its target decides which file a path names: needed by every reader
            try:
                body.text()
            except (Corrupt, msgspec.DecodeError) as error:
                return str(error)
        label = join(by.label, current.label if current is not None else None).stored
        made.append(
            MemoryFile(
                path=change.path,
                body=body,
                digest=change.after,
                version=state.version,
                author=by.author,
                role=event.role,
                event=by.event,
                label=label,
                link=change.link,
                binary=change.binary,
                executable=change.executable,
                created=current.created if current is not None else by.stamp,
                changed=by.stamp,
                size=lines.size_after(change, current.size if current is not None else 0),
            )
        )
    return made


def _renamed(event: MemoryChanged) -> set[str]:
    """Return the earlier paths of the files that a change renames."""
    return {each.was for each in event.files if each.was}


def _before(state: MemoryState, renamed: Container[str], change: FileChange) -> MemoryFile | None:
    """Return the file that a change modifies: none, where the file at its path is renamed by it."""
    if not change.was and change.path in renamed:
        return None
    return state.files.get(change.was or change.path)


def text_after(change: FileChange, current: MemoryFile | None) -> str:
    """Return the text of a file after a change of it. Raises Corrupt where the change does not
    fit.
    """
    return lines.FileText.after(change, current.body if current is not None else None).text()


# Changes


def change_of(
    path: str, current: MemoryFile | None, text: str | None, form: FileForm = TEXT
) -> FileChange | None:
    """Return the change from a file as it was read to another text, or to none (None); None where
    nothing changes. A file at another path is renamed.
    """
    if text is None:
        if current is None:
            return None
        return FileChange(path=path, op=FileOp.DELETED, before=current.digest, link=current.link)
    after = digest_of(text, form)
    formed = msgspec.structs.asdict(form)
    if current is None:
        return FileChange(path=path, op=FileOp.CREATED, after=after, edit=dump(text), **formed)
    was = current.path if current.path != path else ""
    if after == current.digest and not was:
        return None
    edit = dump([list(part) for part in lines.between(current.text, text)])
    return FileChange(
        path=path,
        op=FileOp.RENAMED if was else FileOp.EDITED,
        before=current.digest,
        after=after,
        edit=NULL if text == current.text else edit,
        was=was,
        **formed,
    )


def decide(space: str, state: MemoryState, command: MemoryEvent) -> Sequence[MemoryEvent]:
    """Return the events of a change, a refusal or a policy; none where nothing changes.

    Raises MemoryConflict, BadValue, Refused.
    """
    match command:
        case MemoryChanged():
            return _decide(space, state, command)
        case MemoryRejected():
            return (command,) if command.problems else ()
        case MemoryPolicySet():
            _check_policy(command)
            return () if state.policy == command else (command,)
        case MemoryReflected():
            repeated = state.reflected.keys() & set(command.runs)
            if repeated:
                message = (
                    f"run {min(repeated)} was reflected on meanwhile: reflect again without it"
                )
                raise Refused(message)
            return (command,) if command.runs or command.proposals else ()
        case _:
            assert_never(command)


def _decide(space: str, state: MemoryState, command: MemoryChanged) -> Sequence[MemoryEvent]:
    if not command.files:
        return ()
    _check_terms(space, command)
    renamed = _renamed(command)
    for change in command.files:
        current = _before(state, renamed, change)
        digest = current.digest if current is not None else ""
        if digest != change.before:
            raise MemoryConflict(space, change.path, change.before, _mine(change, current), current)
        other = state.files.get(change.path) if change.was else None
        if other is not None and change.path not in renamed:
            raise MemoryConflict(space, change.path, "", current.text if current else "", other)
    if any(each.path not in state.files for each in command.files if each.after):
        _ = state.names  # computed here, so that the next change can reuse them
    _check_after(space, state, command, _after(state, command))
    return (command,)


def _mine(change: FileChange, current: MemoryFile | None) -> str:
    """Return the text after a change, or an empty one where it cannot be derived."""
    if change.op is FileOp.DELETED:
        return ""
    try:
        return shown(text_after(change, current), change.form)
    except (Corrupt, binascii.Error):
        return ""


def _after(state: MemoryState, command: MemoryChanged) -> MemoryState:
    after = state.copy()
    after.version, event = state.version, command
    evolve(after, event, By())
    if after.unfit != state.unfit:
        raise BadValue("change", after.unfit[-1][1], "make it again from the current files")
    return after


def _check_terms(space: str, command: MemoryChanged) -> None:
    where = f"change of {space}"
    if len(command.files) > CHANGE_FILES_MAX:
        fact = f"{counted(len(command.files), 'file')}, the limit is {CHANGE_FILES_MAX}"
        raise BadValue(where, fact, "make it in several changes")
    if len(command.because) > BECAUSE_MAX:
        fact = f"its reason has {len(command.because):,} characters"
        raise BadValue(where, fact, f"give at most {BECAUSE_MAX:,}")
    if len(command.sources) > SOURCES_MAX:
        fact = f"{len(command.sources):,} sources, the limit is {SOURCES_MAX:,}"
        raise BadValue(where, fact, "name those that it rests on most")
    for item in ([each.path for each in command.files], [e.was for e in command.files if e.was]):
        twice = next((path for path, count in Counter(item).items() if count > 1), None)
        if twice is not None:
            raise BadValue(where, f"{twice!r:.120} is changed twice", "change a file once")


def _check_after(
    space: str, state: MemoryState, command: MemoryChanged, after: MemoryState
) -> None:
    """Check the number, size, paths and texts of files after a change. Raises BadValue."""
    if len(after.files) > FILES_MAX:
        fact = f"{len(after.files):,} files, the limit is {FILES_MAX:,}"
        raise BadValue(space, fact, "delete some first")
    if after.size > SPACE_BYTES_MAX:
        raise BadValue(space, f"more than {SPACE_BYTES_MAX:,} characters", "delete some first")
    for change in command.files:
        if change.op is FileOp.DELETED:
            continue
        file = after.files[change.path]
        if paths.normal(change.path) != change.path:
            fact = "it is not normalised"
            raise BadValue(f"path {change.path!r:.120}", fact, f"give {paths.normal(change.path)}")
        if change.path not in state.files:
            _check_new(change.path, after)
        if not file.binary:
            check_text(change.path, file.text)
        if file.link:
            paths.target(change.path, file.text)


def _check_new(path: str, after: MemoryState) -> None:
    if path.split("/", 1)[0].casefold() == paths.RUNS:
        fact = f"files under {paths.RUNS}/ are generated from the log when they are read"
        raise BadValue(f"path {path!r:.120}", fact, "write it elsewhere")
    other, why = after.names.twin(path, after.files)
    if other:
        fact = f"{other!r:.120} is there already, and {why}"
        raise BadValue(f"path {path!r:.120}", fact, "use that one, or rename it first")


def check_text(path: str, text: str) -> None:
    """Check that a text has no NUL and is not too large. Raises BadValue."""
    where = f"file {path!r:.120}"
    if "\0" in text:
        at = text.index("\0")
        fact = f"it is binary: character {at:,} is NUL"
        raise BadValue(where, fact, "keep texts here, and hand other data over by reference")
    size = len(text.encode()) if len(text) * 4 > FILE_BYTES_MAX else 0
    if size > FILE_BYTES_MAX:
        fact = f"it has {size:,} bytes, the limit is {FILE_BYTES_MAX:,}"
        raise BadValue(where, fact, "split it into several files")


def content_of(text: str, form: FileForm) -> bytes:
    """Return the bytes of a file from its text and type."""
    return base64.b64decode(text) if form.binary else text.encode()


def shown(text: str, form: FileForm) -> str:
    """Return a file's text as readers see it; for a binary file its number of bytes."""
    return f"(binary file, {counted(len(content_of(text, form)), 'byte')})" if form.binary else text


def formed(path: str, content: bytes, *, executable: bool = False) -> tuple[str, FileForm]:
    """Return a file's text and type: binary where it is no UTF-8, has a NUL or is too large for a
    text.

    Raises BadValue where it is too large.
    """
    try:
        return text_of(path, content), FileForm(executable=executable)
    except BadValue:
        if len(content) <= BINARY_BYTES_MAX:
            return base64.b64encode(content).decode(), FileForm(binary=True, executable=executable)
    fact = f"it has {len(content):,} bytes, the limit is {BINARY_BYTES_MAX:,}"
    raise BadValue(f"file {path!r:.120}", fact, "leave it out, or split it")


def text_of(path: str, content: object) -> str:
    """Return a file's content as text. Raises BadValue where it is no UTF-8, or too large."""
    where = f"file {path!r:.120}"
    if isinstance(content, str):
        try:
            content.encode()
        except UnicodeEncodeError as error:
            fact = f"character {error.start:,} is a lone surrogate"
            raise BadValue(where, fact, "leave it out") from error
        check_text(path, content)
        return content
    if not isinstance(content, bytes):
        raise BadValue(where, f"its content is a {type(content).__name__}", "give a text")
    if len(content) > FILE_BYTES_MAX:
        fact = f"it has {len(content):,} bytes, the limit is {FILE_BYTES_MAX:,}"
        raise BadValue(where, fact, "split it into several files")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        fact = f"it is no UTF-8: byte {error.start:,} is 0x{content[error.start]:02X}"
        raise BadValue(where, fact, "give texts in UTF-8; other data by reference") from error
    check_text(path, text)
    return text


def _check_policy(policy: MemoryPolicySet) -> None:
    if policy.until is not None and policy.until.utcoffset() is None:
        fact = f"{policy.until.isoformat()} has no zone"
        raise BadValue("until", fact, "give one, such as 2026-11-24T18:00:00Z")
    for pattern in policy.untrusted:
        read(pattern, SLASH, "untrusted of the policy")
    if policy.approval is MemoryApproval.ASK and (policy.until or policy.untrusted):
        fact = "until and untrusted are given with approval 'ask'"
        raise BadValue("policy", fact, "give them with approval 'off' alone")
