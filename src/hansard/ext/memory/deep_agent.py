"""Run an agent from its files by deepagents, every action as a step.

A model call is a step keyed by its exact messages, so that a resumed run pays for no answer twice;
files are read and written through a session's memory; a call of an MCP server's tool is a step with
the effects that the proxy uses, and its result is untrusted input.
"""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import msgspec
from deepagents import SubAgent, create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend
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
from langchain.agents.middleware import AgentMiddleware
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from hansard.agents.errors import Blocked, NotDone
from hansard.agents.memory import store as stores
from hansard.agents.memory.formats import Tool
from hansard.agents.memory.store import FOR_THE_MODEL
from hansard.agents.memory.twins import Memory
from hansard.bus.errors import NotFound
from hansard.client.session import Session
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.domain.memory import lines
from hansard.domain.memory.files import AGENTS
from hansard.ext.mcp import http_server
from hansard.ext.mcp.recording import ToolEffects
from hansard.ext.memory import harnesses
from hansard.ext.memory.agent_runs import AgentRun
from hansard.ext.memory.harnesses import AgentFiles

P = ParamSpec("P")
R = TypeVar("R")

LINES_MAX = 2_000
"""Default number of lines read at once."""

_SPECIAL = frozenset(r"\.+*?()|[]{}^$")


def _attempted(kind: Callable[..., R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: a refusal that a model can act on becomes the `error` of the result."""

    def attempting(method: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(method)
        def attempt(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return method(*args, **kwargs)
            except FOR_THE_MODEL as error:
                return kind(error=str(error))

        return attempt

    return attempting


class MemoryBackend(BackendProtocol):
    """Backend of the files that the agent sees; each call is a step."""

    def __init__(self, memory: Memory, *, reason: str = "") -> None:
        self._memory = memory
        self._reason = reason

    @_attempted(LsResult)
    def ls(self, path: str) -> LsResult:
        """List files and folders directly in a folder."""
        folder = _named(path)
        within = f"{folder}/" if folder else ""
        entries: dict[str, FileInfo] = {}
        for each in self._memory.ls(folder):
            name, is_folder, _ = each.removeprefix(within).partition("/")
            full = f"/{within}{name}{is_folder}"
            entries[full] = FileInfo(path=full, is_dir=bool(is_folder))
        return LsResult(entries=[entries[name] for name in sorted(entries)])

    @_attempted(ReadResult)
    def read(self, file_path: str, offset: int = 0, limit: int = LINES_MAX) -> ReadResult:
        """Read lines of a file."""
        text = self._memory.view(_named(file_path))
        return slice_read_response({"content": text, "encoding": "utf-8"}, offset, limit)

    @_attempted(WriteResult)
    def write(self, file_path: str, content: str) -> WriteResult:
        """Write a file."""
        self._create(file_path, content)
        return WriteResult(path=file_path)

    @_attempted(EditResult)
    def edit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,  # noqa: FBT001, FBT002 -- as the protocol has it
    ) -> EditResult:
        """Replace the one occurrence of a text in a file, or all of them."""
        name = _named(file_path)
        if not replace_all:
            self._memory.edit(name, old_string, new_string, reason=self._reason)
            return EditResult(path=file_path, occurrences=1)
        text = self._memory.view(name)
        places = lines.occurrences(text, old_string) if old_string else []
        if not places:
            fact = f"{old_string!r:.120} occurs not at all"
            return EditResult(error=f"{fact}: read the file, and give a text that it contains")
        self._create(file_path, lines.replaced(text, places, new_string))
        return EditResult(path=file_path, occurrences=len(places))

    @_attempted(DeleteResult)
    def delete(self, file_path: str) -> DeleteResult:
        """Delete a file, or a folder with all that is in it, as one change."""
        name = _named(file_path)
        paths = self._memory.ls(name) if name else []
        with self._memory.change(self._reason) as change:
            for path in paths or [name]:
                change.delete(path)
        return DeleteResult(path=file_path)

    @_attempted(GrepResult)
    def grep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        """Find lines that contain a literal text."""
        literal = "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in pattern)
        hits = self._memory.grep(literal, glob=_pattern_under(path, glob))
        matches = [GrepMatch(path=f"/{at}", line=line, text=text) for at, line, text in hits]
        more = max_count is not None and len(matches) > max_count
        return GrepResult(matches=matches[:max_count], truncated=more)

    @_attempted(GlobResult)
    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Find files under a folder by a pattern."""
        paths = self._memory.glob(_pattern_under(path, pattern))
        return GlobResult(matches=[FileInfo(path=f"/{each}", is_dir=False) for each in paths])

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write several files; each has its own result."""
        return [self._upload(*file) for file in files]

    def _upload(self, path: str, content: bytes) -> FileUploadResponse:
        error = None
        try:
            self._create(path, content.decode())
        except UnicodeDecodeError:
            error = "it is not UTF-8: memory holds only texts"
        except FOR_THE_MODEL as refused:
            error = str(refused)
        return FileUploadResponse(path=path, error=error)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read several files."""
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        try:
            text = self._memory.view(_named(path))
        except FOR_THE_MODEL as refused:
            error = "file_not_found" if isinstance(refused, NotFound) else str(refused)
            return FileDownloadResponse(path=path, error=error)
        return FileDownloadResponse(path=path, content=text.encode())

    def _create(self, path: str, text: str) -> None:
        self._memory.create(_named(path), text, reason=self._reason)


def _named(path: str) -> str:
    return path.strip("/")


def _pattern_under(path: str | None, pattern: str | None) -> str:
    """Return a pattern under a folder.

    A pattern without a slash matches names at any depth, as in deepagents.
    """
    if pattern is None:
        pattern = "**"
    elif "/" not in pattern:
        pattern = f"**/{pattern}"
    folder = _named(path or "")
    return f"{folder}/{pattern.lstrip('/')}" if folder else pattern.lstrip("/")


STEPS_MAX = 1_000
"""Most turns of deepagents' graph in one run: each is a model's answer or the execution of its
calls.
"""

OWN_TOOLS = frozenset(
    {"ls", "read_file", "write_file", "edit_file", "delete", "glob", "grep", "execute", "task"}
    | {"write_todos"}
)
"""Names of deepagents' own tools, which no other tool may have."""

ASIDE = ("/large_tool_results/", "/conversation_history/")
"""Folders in which deepagents stores texts too long for a window: not in memory, and lost after the
run.
"""

MESSAGE_FIELDS = {"type", "content", "tool_calls", "tool_call_id", "name", "status"}
"""Fields of a message that are part of a call's key; its id is random."""


def work(session: Session, prompt: str, *, model: str | None, effects: ToolEffects) -> AgentRun:
    """Run the agent whose files are in a session's memory on a prompt.

    Args:
        session: The session, of the sync client; recorded calls are not repeated.
        prompt: The task.
        model: As `provider:model`; the one of its `agent.json` if None.
        effects: The effects of tools.

    Raises:
        BadValue: No model is named, or a server lacks a named tool.
        ToolException: deepagents' error for the model, raised unchanged.
    """
    texts = _read(session)
    named = model or texts.model
    if named is None:
        remedy = "name one as provider:model in agent.json, or with --model"
        raise BadValue("model", f"{texts.name or session.agent} has none", remedy)
    tools = _tools(session, texts.all_tools, effects)
    models: dict[str, BaseChatModel] = {}

    def model_of(name: str) -> BaseChatModel:
        if name not in models:
            models[name] = _as_steps(init_chat_model(name, disable_streaming=True), name, session)
        return models[name]

    subagents = [_subagent(each, tools, model_of(each.model or named)) for each in texts.subagents]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations of these packages
        graph = create_deep_agent(
            model_of(named),
            [tools[tool.name] for tool in texts.tools],
            subagents=subagents,
            skills=[f"/{texts.skills}"] if texts.skills else None,
            memory=[f"/{AGENTS}"],
            middleware=[_News(session)],
            backend=CompositeBackend(
                default=MemoryBackend(session.memory, reason=prompt[:200]),
                routes={folder: StateBackend() for folder in ASIDE},
            ),
            name=session.agent,
        )
        session.memory.news()  # the current content is in the prompt
        session.message("user", prompt)
        question = {"messages": [{"role": "user", "content": prompt}]}
        # One at a time, in the order of the model's calls, so that a replay makes the same calls.
        ended = graph.invoke(question, {"max_concurrency": 1, "recursion_limit": STEPS_MAX})  # type: ignore[call-overload]  # the state's type is deepagents' own
    text = str(ended["messages"][-1].text)
    session.message("assistant", text)
    return AgentRun(
        run=session.run,
        agent=session.agent,
        text=text,
        tools=sorted(tools),
        subagents=sorted(each["name"] for each in subagents),
    )


def _read(session: Session) -> AgentFiles:
    """Read the agent's files in steps: a resumed run sees them as they were."""
    paths = session.memory.ls()
    texts = {path: session.memory.view(path) for path in paths if harnesses.is_agent_setting(path)}
    return harnesses.agent_in(texts, paths)


def _subagent(files: AgentFiles, tools: Mapping[str, BaseTool], model: BaseChatModel) -> SubAgent:
    subagent = SubAgent(
        name=files.name,
        description=files.description,
        system_prompt=files.instructions,
        tools=[tools[tool.name] for tool in files.tools],
        model=model,
    )
    if files.skills:
        subagent["skills"] = [f"/{files.skills}"]
    return subagent


class _News(AgentMiddleware):
    """Middleware that reports changes of instructions and skills by others to the model.

    deepagents reads these files only once.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Return a message to add before a model call, if there is news."""
        del state, runtime
        own = self._session.agent
        news = [each for each in self._session.memory.news() if each.author != own]
        if not news:
            return None
        words = "\n".join(
            f"- {each.file}: {each.what}{f' by {each.author}' if each.author else ''}"
            for each in news
        )
        text = f"Memory has changed; read these files again before you rely on them:\n{words}"
        return {"messages": [HumanMessage(text)]}


# ---------------------------------------------------------------- the model


def _as_steps(model: BaseChatModel, name: str, session: Session) -> BaseChatModel:
    """Wrap a model so that each of its answers is a step: called once, and then on record."""
    kind = type(model)

    def generate(
        self: BaseChatModel,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        @session.tool(effects="pure", kind="model", name=f"model.{name.partition(':')[2] or name}")
        def ask(messages: list[dict[str, Any]], given: dict[str, Any]) -> dict[str, Any]:
            del messages, given
            made = kind._generate(self, raw, stop, run_manager, **kwargs)  # noqa: SLF001 -- what a chat model is made of
            message = made.generations[0].message
            used = message.usage_metadata if isinstance(message, AIMessage) else None
            if used is not None:
                session.usage(
                    input_tokens=used["input_tokens"], output_tokens=used["output_tokens"]
                )
            plain: dict[str, Any] = message.model_dump(mode="json")
            return plain

        raw = messages
        fields = ask([_plain(each) for each in messages], _model_inputs(kwargs, stop))
        return ChatResult(generations=[ChatGeneration(message=AIMessage.model_validate(fields))])

    made = type(kind.__name__, (kind,), {"_generate": generate, "__module__": kind.__module__})
    wrapped = model.model_copy()
    object.__setattr__(wrapped, "__class__", made)
    return wrapped


def _plain(message: BaseMessage) -> dict[str, Any]:
    plain = message.model_dump(mode="json", include=MESSAGE_FIELDS)
    return {name: value for name, value in plain.items() if value not in (None, [], "")}


def _model_inputs(kwargs: Mapping[str, Any], stop: list[str] | None) -> dict[str, Any]:
    """Return the other inputs of a model call: its tools and settings."""
    inputs = {name: value for name, value in kwargs.items() if value is not None}
    plain: dict[str, Any] = msgspec.to_builtins({**inputs, "stop": stop or []}, enc_hook=str)
    return plain


# ---------------------------------------------------------------- tools of MCP servers


def _tools(session: Session, named: list[Tool], effects: ToolEffects) -> dict[str, BaseTool]:
    """Return the named tools, and no others of their servers. Raises BadValue."""

    @session.tool(effects="pure", kind="resource", name=stores.LISTED, gives="untrusted")
    def listed(url: str) -> list[dict[str, Any]]:
        return asyncio.run(http_server.tools_of(url))

    tools: dict[str, BaseTool] = {}
    for url in dict.fromkeys(tool.mcp_server_url for tool in named):
        has = {str(each.get("name")): each for each in listed(url)}
        effects.learn(list(has.values()))
        for tool in named:
            if tool.mcp_server_url != url:
                continue
            if tool.name in OWN_TOOLS:
                remedy = "rename it in its server: deepagents has a tool of that name"
                raise BadValue("tools.json", f"{tool.name!r} of {url}", remedy)
            if tool.name not in has:
                some = ", ".join(sorted(has)[:10]) or "none"
                fact = f"{url} has no tool {tool.name!r}"
                remedy = f"name one of its {counted(len(has), 'tool')}: {some}"
                raise BadValue("tools.json", fact, remedy)
            tools[tool.name] = _tool(session, url, has[tool.name], effects)
    return tools


def _tool(session: Session, url: str, fields: Mapping[str, Any], effects: ToolEffects) -> BaseTool:
    name = str(fields["name"])

    @session.tool(effects=effects.of(name), name=name, gives="untrusted")
    def call(arguments: dict[str, Any]) -> dict[str, Any]:
        return asyncio.run(http_server.call_tool(url, name, arguments))

    def run(**arguments: Any) -> str:
        try:
            return _text(call(arguments))
        except (Blocked, NotDone, http_server.McpError) as error:
            raise ToolException(str(error)) from error

    return StructuredTool(
        name=name,
        description=str(fields.get("description") or name),
        args_schema=dict(fields.get("inputSchema") or {"type": "object", "properties": {}}),
        func=run,
        handle_tool_error=True,
    )


def _text(result: Mapping[str, Any]) -> str:
    """Return the text of a tool's result. Raises ToolException for a failed one."""
    parts = [
        str(part.get("text", "")) if part.get("type") == "text" else f"({part.get('type')})"
        for part in result.get("content", [])
    ]
    text = "\n".join(parts)
    if result.get("isError"):
        raise ToolException(text or "it failed")
    return text
