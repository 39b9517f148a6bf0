"""A session's memory as a backend of deepagents: what its file tools, and its middleware for memory
and skills, read and write.

    agent = create_deep_agent(backend=MemoryBackend(session.memory), memory=["/AGENTS.md"],
                              skills=["/skills/"])

`/AGENTS.md` of the backend is `AGENTS.md` of the agent's tree. What is refused is the tool's
result, with file, line, rule and what is allowed. Takes a session of the sync client: deepagents
asks it in threads of its own where the agent is asynchronous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from deepagents.backends.protocol import (
    BackendProtocol,
    DeleteResult,
    EditResult,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    GlobResult,
    GrepMatch,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.utils import slice_read_response

from hansard.agents.memory.twins import Memory
from hansard.bus.errors import NotFound
from hansard.domain.memory import edits
from hansard.integrations.memory._told import FOR_THE_MODEL

T = TypeVar("T")

LINES_MAX = 2_000
"""Read at once where nothing else is asked for."""

_SPECIAL = frozenset(r"\.+*?()|[]{}^$")


class MemoryBackend(BackendProtocol):
    """Reads and writes the files that the agent sees; each call is a step."""

    def __init__(self, memory: Memory, *, because: str = "") -> None:
        self._memory = memory
        self._because = because

    def ls(self, path: str) -> LsResult:
        """Files and folders directly in a folder."""
        folder = _named(path)
        found = _tried(lambda: self._memory.ls(folder))
        if isinstance(found, str):
            return LsResult(error=found)
        within = f"{folder}/" if folder else ""
        entries: dict[str, FileInfo] = {}
        for each in found:
            name, is_folder, _ = each.removeprefix(within).partition("/")
            full = f"/{within}{name}{is_folder}"
            entries[full] = FileInfo(path=full, is_dir=bool(is_folder))
        return LsResult(entries=[entries[name] for name in sorted(entries)])

    def read(self, file_path: str, offset: int = 0, limit: int = LINES_MAX) -> ReadResult:
        """Lines of a file."""
        text = self._text(file_path)
        if isinstance(text, _Refused):
            return ReadResult(error=text.why)
        return slice_read_response({"content": text, "encoding": "utf-8"}, offset, limit)

    def write(self, file_path: str, content: str) -> WriteResult:
        """Have a file hold a text."""
        refused = self._create(file_path, content)
        return WriteResult(error=refused.why) if refused else WriteResult(path=file_path)

    def edit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,  # noqa: FBT001, FBT002 -- as the protocol has it
    ) -> EditResult:
        """Replace a part of a file, or each one of many that are alike."""
        if not replace_all:
            refused = self._changed(
                lambda: self._memory.edit(
                    _named(file_path), old_string, new_string, because=self._because
                )
            )
            if refused:
                return EditResult(error=refused.why)
            return EditResult(path=file_path, occurrences=1)
        text = self._text(file_path)
        if isinstance(text, _Refused):
            return EditResult(error=text.why)
        places = edits.occurrences(text, old_string) if old_string else []
        if not places:
            fact = f"{old_string!r:.120} stands there not at all"
            return EditResult(error=f"{fact}: read it, and give a part of it")
        refused = self._create(file_path, edits.replaced(text, places, new_string))
        if refused:
            return EditResult(error=refused.why)
        return EditResult(path=file_path, occurrences=len(places))

    def delete(self, file_path: str) -> DeleteResult:
        """Delete a file, or a folder with all that is in it, as one change."""
        name = _named(file_path)
        found = _tried(lambda: self._memory.ls(name) if name else [])
        if isinstance(found, str):
            return DeleteResult(error=found)

        def delete() -> None:
            with self._memory.change(self._because) as change:
                for path in found or [name]:
                    change.delete(path)

        refused = _tried(delete)
        return DeleteResult(error=refused) if refused else DeleteResult(path=file_path)

    def grep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        """Lines that hold a text, which is no pattern."""
        literal = "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in pattern)
        found = _tried(lambda: self._memory.grep(literal, glob=_globbed(path, glob)))
        if isinstance(found, str):
            return GrepResult(error=found)
        matches = [GrepMatch(path=f"/{at}", line=line, text=text) for at, line, text in found]
        more = max_count is not None and len(matches) > max_count
        return GrepResult(matches=matches[:max_count], truncated=more)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Files by a pattern, under a folder."""
        found = _tried(lambda: self._memory.glob(_globbed(path, pattern)))
        if isinstance(found, str):
            return GlobResult(error=found)
        return GlobResult(matches=[FileInfo(path=f"/{each}", is_dir=False) for each in found])

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Have several files hold what is given; each is told by itself."""
        found: list[FileUploadResponse] = []
        for path, content in files:
            try:
                refused = self._create(path, content.decode())
            except UnicodeDecodeError:
                refused = _Refused("it is no UTF-8: memory holds texts")
            found.append(FileUploadResponse(path=path, error=refused.why if refused else None))
        return found

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """The contents of several files."""
        found: list[FileDownloadResponse] = []
        for path in paths:
            text = self._text(path)
            if isinstance(text, _Refused):
                error = "file_not_found" if text.is_absent else text.why
                found.append(FileDownloadResponse(path=path, error=error))
            else:
                found.append(FileDownloadResponse(path=path, content=text.encode()))
        return found

    def _text(self, path: str) -> str | _Refused:
        try:
            return self._memory.view(_named(path))
        except FOR_THE_MODEL as error:
            return _Refused(str(error), is_absent=isinstance(error, NotFound))

    def _create(self, path: str, text: str) -> _Refused | None:
        return self._changed(lambda: self._memory.create(_named(path), text, because=self._because))

    def _changed(self, change: Callable[[], None]) -> _Refused | None:
        try:
            change()
        except FOR_THE_MODEL as error:
            return _Refused(str(error))
        return None


class _Refused:
    def __init__(self, why: str, *, is_absent: bool = False) -> None:
        self.why = why
        self.is_absent = is_absent


def _named(path: str) -> str:
    return path.strip("/")


def _globbed(path: str | None, pattern: str | None) -> str:
    """A pattern under a folder; one without a slash is for names at any depth, as deepagents has
    it.
    """
    if pattern is None:
        pattern = "**"
    elif "/" not in pattern:
        pattern = f"**/{pattern}"
    folder = _named(path or "")
    return f"{folder}/{pattern.lstrip('/')}" if folder else pattern.lstrip("/")


def _tried(do: Callable[[], T]) -> T | str:
    """What is asked for, or why a model is not given it."""
    try:
        return do()
    except FOR_THE_MODEL as error:
        return str(error)
