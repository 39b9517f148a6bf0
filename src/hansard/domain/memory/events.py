"""A space's events: files changed, a change refused, what asks a person. The storage format.

A tag never changes its meaning, a field is only added with a default. A space is the memory of an
agent (`agent/<name>`), of a user (`user/<principal>`) or of all (`org`). Who wrote an event is its
commit's actor, and the commit's label is that of what it rests on.
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
"""The space of all."""

AGENT, USER = "agent/", "user/"
"""What the names of an agent's and of a user's space begin with."""

STOOD_MAX = 200
"""Most characters of what stood there that a problem tells."""


class FileOp(StrEnum):
    """What happened to a file."""

    CREATED = "created"
    EDITED = "edited"
    RENAMED = "renamed"
    DELETED = "deleted"


class FileForm(msgspec.Struct, frozen=True):
    """What a file is, beside its text.

    Attributes:
        link: Whether it is a symbolic link; its text is then the path it leads to.
        binary: Whether it is no text; its text is then the base64 of its bytes.
        executable: Whether its owner may execute it.
    """

    link: bool = False
    binary: bool = False
    executable: bool = False


TEXT, LINK = FileForm(), FileForm(link=True)


class FileChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a change did to one file.

    Attributes:
        path: The file, from the root of the tree.
        op: What happened to it.
        before: The digest of its text before (`digest_of`); empty where there was none.
        after: The digest of its text after; empty where there is none.
        edit: What changed. Of a created file its text; of an edited or renamed one a list of
            `[at, count, text]` (`hansard.domain.memory.space`), null where a renamed one stays as
            it is; null of a deleted one. A large one is a blob reference.
        was: The path that a renamed file had.
        link: Whether it is a symbolic link; its text is then the path it leads to.
        binary: Whether it is no text; its text is then the base64 of its bytes.
        executable: Whether its owner may execute it.
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
        """What it is, beside its text."""
        return FileForm(self.link, self.binary, self.executable)


class Problem(msgspec.Struct, frozen=True, order=True):
    """Why a file is not valid. In the order of paths and lines.

    Attributes:
        path: The file.
        line: Where in it, from 1; 0 for the file as a whole.
        rule: The rule's name, such as `skill.name`.
        stood: What stood there, cut to STOOD_MAX characters; empty where that is not told.
        allowed: What may stand there.
    """

    path: str
    line: int
    rule: str
    stood: str
    allowed: str

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        stood = f": {self.stood!r} stands there" if self.stood else ""
        return f"{where}: {self.rule}{stood}; {self.allowed}"


@event("memory.changed.v1")
class MemoryChanged(Event, frozen=True, kw_only=True):
    """Files of a space changed, all of them or none.

    Attributes:
        files: What happened to each, a path once.
        because: Why.
        sources: The ids of the events that it rests on.
        role: The role of the agent that wrote it; empty where that is a person.
        run: The run whose step wrote it, and which step; empty and 0 where none did.
        step: That step's number.
    """

    files: tuple[FileChange, ...]
    because: str = ""
    sources: tuple[str, ...] = ()
    role: str = ""
    run: str = ""
    step: int = 0


@event("memory.rejected.v1")
class MemoryRejected(Event, frozen=True, kw_only=True):
    """A change was refused, and nothing of it was written.

    Attributes:
        problems: What is wrong with it; `stood` without secrets.
        because: Why it was to be made.
        role: The role of the agent that wanted it.
        run: The run whose step wanted it, and which step; empty and 0 where none did.
        step: That step's number.
    """

    problems: tuple[Problem, ...]
    because: str = ""
    role: str = ""
    run: str = ""
    step: int = 0


class MemoryApproval(StrEnum):
    """Whether a change of a space waits for a person's word."""

    ASK = "ask"
    OFF = "off"


@event("memory.policy_set.v1")
class MemoryPolicySet(Event, frozen=True, kw_only=True):
    """Whether changes of the space are asked about, from here on.

    Attributes:
        approval: `ask`, or `off`: they are made unasked.
        until: When it is `ask` again, by the log's time; None for never.
        untrusted: Patterns of the paths whose changes are made unasked though they rest on
            untrusted input, where `approval` is off; none: all of these ask.
        because: Why.
    """

    approval: MemoryApproval
    until: datetime | None = None
    untrusted: tuple[str, ...] = ()
    because: str = ""


class MemoryProposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a reflection would have in a file.

    Attributes:
        path: The file.
        text: What is added at its end, or with `whole` all of it.
        because: Why.
        sources: The ids of the events that it rests on.
        whole: Whether the text takes the place of what stands there.
        before: With `whole`, the digest of the text that it goes by; empty where there was none.
        gone: Whether the file goes; its text is empty then.
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
    """Runs were reflected on, or files compacted, and these changes are proposed; no file is
    changed by it. A run is reflected on once.

    Attributes:
        runs: The ids of the runs; none of a compaction.
        proposals: What came of it; none where there was nothing to learn.
        reflection: The id of the reflection's own run.
    """

    runs: tuple[str, ...]
    proposals: tuple[MemoryProposal, ...] = ()
    reflection: str = ""


MemoryEvent = MemoryChanged | MemoryRejected | MemoryPolicySet | MemoryReflected


def digest_of(text: str, form: FileForm = TEXT) -> str:
    """The digest of a file's text and form."""
    kind = b"link" if form.link else b"binary" if form.binary else b"file"
    return digest(kind + b" executable" * form.executable, text.encode())


def space_name(value: object) -> str:
    """A space's name, checked: `agent/<name>`, `user/<principal>` or `org`. Raises BadName."""
    name = ids.name("memory space", value)
    owner = name.partition("/")[2]
    if name != ORG and not (name.startswith((AGENT, USER)) and owner):
        raise BadName("memory space", value, f"give {AGENT}NAME, {USER}PRINCIPAL or {ORG}")
    return name


def stream_of(space: str) -> WorkspaceStream:
    """The stream of a space. Raises BadName."""
    return WorkspaceStream(KIND, space_name(space))
