"""Files of memory: their valid paths and kinds, targets of links, and the events of a space.

A path is relative, of segments separated by `/`, in Unicode's form NFC. Refused are combinations
that a usual file system cannot hold: two paths that differ by case alone, a file where there is a
folder, `.git`, a backslash, control characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from hansard.domain import ids
from hansard.domain.errors import BadName, BadValue
from hansard.domain.events import Event, event
from hansard.domain.fingerprint import digest
from hansard.domain.ids import WorkspaceStream
from hansard.domain.steps import NULL

# A space's events: changed files, refused changes, the approval policy. The storage format.
#
# A tag never changes its meaning, a field is only added with a default. A space is the memory of
# an agent (`agent/<name>`), of a user (`user/<principal>`) or of all (`org`). The writer of an
# event is its commit's actor, and the commit's label is that of its sources.

KIND = ids.MEMORY
"""The kind of its stream; its id is the space's name."""

ORG = "org"
"""The space of all agents and users."""

AGENT, USER = "agent/", "user/"
"""Prefixes of the names of an agent's and of a user's space."""

STOOD_MAX = 200
"""Most characters of the rejected text in a problem."""


class FileOp(StrEnum):
    """The operation on a file."""

    CREATED = "created"
    EDITED = "edited"
    RENAMED = "renamed"
    DELETED = "deleted"


class FileForm(msgspec.Struct, frozen=True):
    """The type of a file.

    Attributes:
        link: True for a symbolic link; its text is then its target path.
        binary: True if it is no text; its text is then the base64 of its bytes.
        executable: True if its owner may execute it.
    """

    link: bool = False
    binary: bool = False
    executable: bool = False


TEXT, LINK = FileForm(), FileForm(link=True)


class FileChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change of one file.

    Attributes:
        path: The file, from the root of the tree.
        op: The operation.
        before: The digest of its text before (`digest_of`); empty where there was none.
        after: The digest of its text after; empty where there is none.
        edit: The difference. For a created file its text; for an edited or renamed one a list of
            `[at, count, text]` (`hansard.domain.memory.lines`), null where a renamed one is
            unchanged; null for a deleted one. A large one is a blob reference.
        was: The earlier path of a renamed file.
        link: True for a symbolic link; its text is then its target path.
        binary: True if it is no text; its text is then the base64 of its bytes.
        executable: True if its owner may execute it.
    """

    path: str
    op: FileOp
    before: str = ""
    after: str = ""
    edit: msgspec.Raw = NULL
    was: str = ""
    link: bool = False
    binary: bool = False
    executable: bool = False

    @property
    def form(self) -> FileForm:
        """The type of the file."""
        return FileForm(self.link, self.binary, self.executable)


class Problem(msgspec.Struct, frozen=True, order=True):
    """The reason why a file is not valid. In the order of paths and lines.

    Attributes:
        path: The file.
        line: The line, from 1; 0 for the file as a whole.
        rule: The rule's name, such as `skill.name`.
        stood: The rejected text, cut to STOOD_MAX characters; empty where it is not shown.
        allowed: The permitted content.
    """

    path: str
    line: int
    rule: str
    stood: str
    allowed: str

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        stood = f": found {self.stood!r}" if self.stood else ""
        return f"{where}: {self.rule}{stood}; {self.allowed}"


@event("memory.changed.v1")
class MemoryChanged(Event, frozen=True, kw_only=True):
    """Files of a space changed, all of them or none.

    Attributes:
        files: The change of each, a path once.
        because: The reason.
        sources: The ids of the events that it rests on.
        role: The role of the agent that wrote it; empty for a person.
        run: The run whose step wrote it; empty for none.
        step: That step's number; 0 for none.
    """

    files: tuple[FileChange, ...]
    because: str = ""
    sources: tuple[str, ...] = ()
    role: str = ""
    run: str = ""
    step: int = 0


@event("memory.rejected.v1")
class MemoryRejected(Event, frozen=True, kw_only=True):
    """A change was refused, and no part of it was written.

    Attributes:
        problems: Its problems; `stood` without secrets.
        because: The reason for the change.
        role: The role of the agent that requested it.
        run: The run whose step requested it; empty for none.
        step: That step's number; 0 for none.
    """

    problems: tuple[Problem, ...]
    because: str = ""
    role: str = ""
    run: str = ""
    step: int = 0


class MemoryApproval(StrEnum):
    """The approval that changes of a space need."""

    ASK = "ask"
    OFF = "off"


@event("memory.policy_set.v1")
class MemoryPolicySet(Event, frozen=True, kw_only=True):
    """The approval of changes of the space, from here on.

    Attributes:
        approval: `ask`, or `off`: changes need no approval.
        until: The log time from which it is `ask` again; None for never.
        untrusted: Patterns of the paths whose changes need no approval although they rest on
            untrusted input, where `approval` is off; none: all of these need it.
        because: The reason.
    """

    approval: MemoryApproval
    until: datetime | None = None
    untrusted: tuple[str, ...] = ()
    because: str = ""


class MemoryProposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of a file that a reflection proposes.

    Attributes:
        path: The file.
        text: The text to append, or with `whole` all of it.
        because: The reason.
        sources: The ids of the events that it rests on.
        whole: True if the text replaces the current one.
        before: With `whole`, the digest of the text that it was made from; empty where there was
            none.
        gone: True if the file is to be deleted; its text is empty then.
    """

    path: str
    text: str
    because: str = ""
    sources: tuple[str, ...] = ()
    whole: bool = False
    before: str = ""
    gone: bool = False


@event("memory.reflected.v1")
class MemoryReflected(Event, frozen=True, kw_only=True):
    """Runs were reflected on, or files compacted, and these changes are proposed; the event itself
    changes no file. A run is reflected on once.

    Attributes:
        runs: The ids of the runs; none for a compaction.
        proposals: The proposed changes; none where there was nothing to learn.
        reflection: The id of the reflection's own run.
    """

    runs: tuple[str, ...]
    proposals: tuple[MemoryProposal, ...] = ()
    reflection: str = ""


MemoryEvent = MemoryChanged | MemoryRejected | MemoryPolicySet | MemoryReflected


def digest_of(text: str, form: FileForm = TEXT) -> str:
    """Return the digest of a file's text and type."""
    kind = b"link" if form.link else b"binary" if form.binary else b"file"
    return digest(kind + b" executable" * form.executable, text.encode())


def space_name(value: object) -> str:
    """Return a space's name, checked: `agent/<name>`, `user/<principal>` or `org`. Raises
    BadName.
    """
    name = ids.name("memory space", value)
    owner = name.partition("/")[2]
    if name != ORG and not (name.startswith((AGENT, USER)) and owner):
        raise BadName("memory space", value, f"give {AGENT}NAME, {USER}PRINCIPAL or {ORG}")
    return name


def stream_of(space: str) -> WorkspaceStream:
    """Return the stream of a space. Raises BadName."""
    return WorkspaceStream(KIND, space_name(space))


PATH_BYTES_MAX = 512
"""Longest path, in bytes of UTF-8."""

SEGMENT_BYTES_MAX = 255
"""Longest segment of a path, in bytes of UTF-8: the limit of usual file systems."""

SEGMENTS_MAX = 32
"""Most segments of a path."""

LINKS_MAX = 8
"""Most links that are followed in a row."""

AGENTS = "AGENTS.md"
"""The file of instructions for agents, in any folder."""

TOOLS = "tools.json"
SUBAGENTS, SKILLS, RUNS = "subagents", "skills", "runs"
"""Folders with a special meaning."""

_SETTINGS = re.compile(
    r"(.*/)?(\.mcp\.json|opencode\.jsonc?|\.git(attributes|config|modules)|"
    r"\.claude/(settings(\.local)?\.json|hooks/.*)|\.(cursor|vscode)/.*\.json|"
    r"\.codex/(config\.toml|hooks(\.json|/.*)|rules/.*)|\.gemini/settings\.json)",
    re.IGNORECASE | re.DOTALL,
)
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class MemoryKind(StrEnum):
    """The purpose of a file, by its path: how to act, facts, past events (T. Sumers et al.,
    "Cognitive Architectures for Language Agents", TMLR 2024).
    """

    PROCEDURAL = "procedural"
    SEMANTIC = "semantic"
    EPISODIC = "episodic"


def kind_of(path: str) -> MemoryKind:
    """Return the kind of memory of a path."""
    *folders, name = path.split("/")
    if folders[:1] == [RUNS]:
        return MemoryKind.EPISODIC
    if name in (AGENTS, TOOLS) or SUBAGENTS in folders:
        return MemoryKind.PROCEDURAL
    return MemoryKind.SEMANTIC


def normal(path: object) -> str:
    """Return a path normalised: in NFC, without `./` and doubled slashes.

    Raises BadValue for a path that is not inside a tree.
    """
    if not isinstance(path, str) or not path:
        raise _bad(path, "it is no text, or empty", "give a path such as skills/billing/SKILL.md")
    text = unicodedata.normalize("NFC", path) if not path.isascii() else path
    if _UNPRINTABLE.search(text):
        raise _bad(path, "it has a control character or a lone surrogate", "leave it out")
    if text.startswith("/"):
        raise _bad(path, "it is absolute", "give it from the root of the tree: AGENTS.md")
    if "\\" in text:
        raise _bad(path, "it has a backslash", "separate folders by /")
    segments = [segment for segment in text.split("/") if segment not in ("", ".")]
    if not segments or text.endswith("/"):
        raise _bad(path, "it names a folder", "give the path of a file")
    for segment in segments:
        _check_segment(path, segment)
    if len(segments) > SEGMENTS_MAX:
        raise _bad(path, f"it has {len(segments)} segments", f"use at most {SEGMENTS_MAX}")
    joined = "/".join(segments)
    size = len(joined.encode())
    if size > PATH_BYTES_MAX:
        raise _bad(path, f"it has {size:,} bytes", f"use at most {PATH_BYTES_MAX}")
    return joined


def _check_segment(path: str, segment: str) -> None:
    if segment == "..":
        raise _bad(path, "it has '..'", "give it from the root of the tree, without '..'")
    if segment.casefold() == ".git":
        raise _bad(path, f"it has a segment {segment!r}", "that folder is git's own: use another")
    if len(segment.encode()) > SEGMENT_BYTES_MAX:
        fact = f"a segment has {len(segment.encode())} bytes"
        raise _bad(path, fact, f"use at most {SEGMENT_BYTES_MAX}")


def _bad(path: object, fact: str, remedy: str) -> BadValue:
    return BadValue(f"path {path!r:.120}", fact, remedy)


def target(path: str, link: str) -> str:
    """Return the target path of a link. Raises BadValue where that is outside of the tree.

    `..` is permitted at its start only: after another link it would lead elsewhere.
    """
    where = f"link {path!r:.120}"
    if not link or link.startswith("/") or _UNPRINTABLE.search(link) or "\\" in link:
        raise BadValue(where, f"it leads to {link!r:.80}", "give a relative path inside the tree")
    folder = path.split("/")[:-1]
    parts = [part for part in link.split("/") if part not in ("", ".")]
    while parts[:1] == [".."]:
        if not folder:
            fact = f"it leads to {link!r:.80}, outside of the tree"
            raise BadValue(where, fact, "have it lead to a file inside")
        folder, parts = folder[:-1], parts[1:]
    if ".." in parts or not [*folder, *parts]:
        fact = f"it leads to {link!r:.80}"
        raise BadValue(where, fact, "give '..' at its begin alone, and the path of a file")
    return normal("/".join([*folder, *parts]))


def followed(path: str, links: Mapping[str, str]) -> str:
    """Return the path at the end of a path's links; `links` maps each link's path to its text.

    Links of folders are followed, too. Raises BadValue for a circle, or more than LINKS_MAX.
    """
    target_path = path
    for _ in range(LINKS_MAX + 1):
        segments = target_path.split("/")
        for count in range(1, len(segments) + 1):
            head = "/".join(segments[:count])
            if head in links:
                target_path = "/".join([target(head, links[head]), *segments[count:]])
                break
        else:
            return target_path
    fact = f"more than {LINKS_MAX} links follow on one another, or they lead in a circle"
    raise BadValue(f"path {path!r:.120}", fact, "have a link lead to a file")


def configures_harness(path: str) -> bool:
    """Return whether a harness, an editor or git reads a file as its own settings: which programs
    it may run, whose approval it needs, which servers it starts. No agent may write one.
    """
    return _SETTINGS.fullmatch(path) is not None


class Names:
    """The names of a tree's files and folders, to find those that conflict with a new path.

    Every operation costs one step a segment of its path, for any number of paths.
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._counts: dict[str, int] = {}
        """Number of files at or under each file or folder."""
        self._spellings: dict[str, tuple[str, ...]] = {}
        """Existing spellings of each casefolded file or folder."""
        files = list(paths)
        self._counts |= Counter(files)
        folders = Counter(path.rpartition("/")[0] for path in files)  # each folder's names once
        for folder, count in folders.items():
            for head in _heads(folder) if folder else ():
                self._counts[head] = self._counts.get(head, 0) + count
        for name in self._counts:
            folded = name.casefold()
            self._spellings[folded] = (*self._spellings.get(folded, ()), name)

    def copy(self) -> Names:
        """Return a copy that can be changed without changing this one; O(paths), shallow."""
        copied = Names()
        copied._counts, copied._spellings = dict(self._counts), dict(self._spellings)
        return copied

    def __contains__(self, path: object) -> bool:
        return path in self._counts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names) and self._counts == other._counts

    __hash__ = None  # type: ignore[assignment]  # it changes

    def add(self, path: str) -> None:
        """Add the path of a file."""
        for head in _heads(path):
            count = self._counts.get(head, 0)
            self._counts[head] = count + 1
            if not count:
                folded = head.casefold()
                self._spellings[folded] = (*self._spellings.get(folded, ()), head)

    def remove(self, path: str) -> None:
        """Remove the path of a file that was added."""
        for head in _heads(path):
            count = self._counts.pop(head) - 1
            if count:
                self._counts[head] = count
                continue
            folded = head.casefold()
            left = tuple(each for each in self._spellings.pop(folded) if each != head)
            if left:
                self._spellings[folded] = left

    def has_twins(self, files: Iterable[str]) -> bool:
        """Return whether any two names conflict. files: the paths of the tree's files."""
        return any(len(each) > 1 for each in self._spellings.values()) or any(
            self._counts[path] > 1 for path in files
        )

    def twin(self, path: str, files: Container[str]) -> tuple[str, str]:
        """Return a file or folder that conflicts with a path, and the reason; two empty texts for
        none.

        files: the paths of the tree's files.
        """
        for head in _heads(path):
            for spelling in self._spellings.get(head.casefold(), ()):
                if spelling != head:
                    return spelling, "they differ by case alone"
            if head == path and self._counts.get(head, 0) > (path in files):
                return head, "it is a folder"
            if head != path and head in files:
                return head, "that is a file, and no folder"
        return "", ""


def _heads(path: str) -> Iterator[str]:
    """Yield the folders of a path, the outermost first, and the path itself."""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)
    yield path
