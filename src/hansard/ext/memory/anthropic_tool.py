"""Anthropic's memory tool (`memory_20250818`) over a session's memory.

    tool = AsyncMemoryTool(session.memory)
    client.beta.messages.tool_runner(tools=[tool], ...)

`/memories/AGENTS.md` of the tool is `AGENTS.md` of the agent's tree. A refusal is the
tool's result, with file, line, rule and what is allowed. `MemoryTool` is the same for the
sync client.
"""

from __future__ import annotations

from collections.abc import Iterable

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
from anthropic.types.beta import (
    BetaCacheControlEphemeralParam,
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)

from hansard.agents.flow import sync
from hansard.agents.memory.store import FOR_THE_MODEL
from hansard.agents.memory.twins import AsyncMemory, Memory, awaited
from hansard.bus.errors import NotFound
from hansard.domain.choices import counted
from hansard.domain.memory import lines

ROOT = "/memories"
RANGE = 2
"""Ends of `view_range`; the second is -1 for the end of the file."""

SNIPPET_LINES = 2
"""Lines shown around a change, on each side."""

DEPTH_SHOWN = 2
"""Levels of folders in a listing."""


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """Tool for a session of the async client."""

    def __init__(
        self,
        memory: AsyncMemory,
        *,
        reason: str = "",
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._memory = memory
        self._reason = reason

    async def execute(self, command: object) -> str:
        """Do what a model asks for. Raises ToolError for what it can do something about."""
        try:
            return str(await super().execute(command))  # type: ignore[arg-type]  # any of the commands
        except FOR_THE_MODEL as error:
            raise ToolError(str(error)) from error

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Return a file with numbered lines, or the entries of a folder."""
        path = _path(command.path)
        if path:
            try:
                text = await self._memory.view(path)
            except NotFound:
                pass
            else:
                return _viewed(command.path, text, command.view_range)
        paths = await self._memory.ls(path)
        if path and not paths:
            raise ToolError(f"{command.path} does not exist: view {ROOT} for the files that do")
        within = f"{path}/" if path else ""
        names = [f"{ROOT}/{within}{name}" for name in listing(paths, within)]
        return "\n".join([f"Files and folders in {command.path}, two levels deep:", *names])

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Write a file."""
        await self._memory.create(_file(command.path), command.file_text, reason=self._reason)
        return f"{command.path} is written"

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a part of a file, which must occur exactly once."""
        path = _file(command.path)
        before = await self._memory.view(path)
        await self._memory.edit(path, command.old_str, command.new_str, reason=self._reason)
        places = lines.occurrences(before, command.old_str)[:1]
        after = lines.replaced(before, places, command.new_str)
        at = places[0][0] if places else 0
        return f"{command.path} is edited; the lines around:\n{excerpt(after, at)}"

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text after a line."""
        path = _file(command.path)
        await self._memory.insert(
            path, command.insert_line, command.insert_text, reason=self._reason
        )
        return f"{command.path} has the text after line {command.insert_line}"

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a file, or a folder with all that is in it, as one change."""
        path = _file(command.path)
        paths = await self._memory.ls(path) if path else []
        if not paths:
            await self._memory.delete(path, reason=self._reason)
            return f"{command.path} is deleted"
        async with self._memory.change(self._reason) as change:
            for each in paths:
                change.delete(each)
        return f"{command.path} is deleted with its {counted(len(paths), 'file')}"

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Move a file, or a folder with all that is in it, as one change."""
        old, new = _file(command.old_path), _file(command.new_path)
        paths = await self._memory.ls(old)
        if not paths:
            await self._memory.rename(old, new, reason=self._reason)
        else:
            async with self._memory.change(self._reason) as change:
                for each in paths:
                    change.rename(each, new + each.removeprefix(old))
        return f"{command.old_path} is renamed to {command.new_path}"

    async def clear_all_memory(self) -> str:
        """Refuse to clear the memory: files are deleted one by one, each on record."""
        raise ToolError("memory cannot be cleared at once: delete files one by one")


def _path(path: str) -> str:
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"{path!r} is not a path of memory: give one under {ROOT}/")
    return path.removeprefix(ROOT).strip("/")


def _file(path: str) -> str:
    file = _path(path)
    if not file:
        raise ToolError(f"{path!r} is all of memory: give a file or folder under {ROOT}/")
    return file


def _viewed(path: str, text: str, names: list[int] | None) -> str:
    lines = text.split("\n")
    first, last = (names[0], names[1]) if names and len(names) == RANGE else (1, -1)
    begin = max(first, 1)
    shown = lines[begin - 1 : None if last == -1 else last]
    return f"{path}, lines numbered:\n{numbered(shown, begin)}"


class MemoryTool(BetaAbstractMemoryTool):
    """Tool for a session of the sync client: the methods of `AsyncMemoryTool`."""

    def __init__(
        self,
        memory: Memory,
        *,
        reason: str = "",
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._memory = awaited(memory)
        self._reason = reason

    def execute(self, command: object) -> str:
        """Do what a model asks for. Raises ToolError for what it can do something about."""
        try:
            return str(super().execute(command))  # type: ignore[arg-type]  # any of the commands
        except FOR_THE_MODEL as error:
            raise ToolError(str(error)) from error

    view = sync(AsyncMemoryTool.view)
    create = sync(AsyncMemoryTool.create)
    str_replace = sync(AsyncMemoryTool.str_replace)
    insert = sync(AsyncMemoryTool.insert)
    delete = sync(AsyncMemoryTool.delete)
    rename = sync(AsyncMemoryTool.rename)
    clear_all_memory = sync(AsyncMemoryTool.clear_all_memory)


def numbered(lines: Iterable[str], first: int = 1) -> str:
    """Return the lines with numbers, as `cat -n` does."""
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


def excerpt(text: str, at: int) -> str:
    """Return the lines around a character, numbered."""
    line = text.count("\n", 0, at)
    begin = max(line - SNIPPET_LINES, 0)
    return numbered(text.split("\n")[begin : line + SNIPPET_LINES + 1], begin + 1)


def listing(paths: Iterable[str], within: str) -> list[str]:
    """List files and folders under a folder, two levels deep; folders end with a slash."""
    names: set[str] = set()
    for path in paths:
        parts = path.removeprefix(within).split("/")
        for depth in range(1, min(len(parts), DEPTH_SHOWN) + 1):
            names.add("/".join(parts[:depth]) + ("/" if depth < len(parts) else ""))
    return sorted(names)
