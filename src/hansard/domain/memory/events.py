"""A space's events: changed files, refused changes, the approval policy. The storage format.

A tag never changes its meaning, a field is only added with a default. A space is the memory of an
agent (`agent/<name>`), of a user (`user/<principal>`) or of all (`org`). The writer of an event is
its commit's actor, and the commit's label is that of its sources.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from hansard.domain import ids
from hansard.domain.errors import BadName
from hansard.domain.events import Event, event
from hansard.domain.fingerprint import digest
from hansard.domain.ids import WorkspaceStream
from hansard.domain.steps import NULL

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
