"""Claude Code transcripts, read as chats: a session is a run, each sub-agent one of its agents.

A transcript is one JSON object a line; those of type `user` and `assistant` hold a message of
Anthropic's API. The blocks of one response are separate records with the same message id; its usage
counts once, as in the last of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from hansard.agents.importers.chat import TOOL, ChatRun, ImportDefaults, converted

CLAUDE_CODE = "claude-code"

SUBAGENT = "subagent"
"""Role of an agent that another agent started."""

SYNTHETIC = "<synthetic>"
"""Model name of a response that the program wrote itself, such as a request's error."""

_KEPT = ("uuid", "parentUuid", "requestId", "isMeta", "isCompactSummary", "isApiErrorMessage")
"""Fields of a record that are kept with its message."""

_LABELS = {"version": "claude_code_version", "cwd": "cwd", "gitBranch": "git_branch"}


class _Message(msgspec.Struct, frozen=True):
    """A message of Anthropic's API."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None


class _Record(msgspec.Struct, frozen=True):
    """The fields of a line that the importer interprets."""

    type: str
    message: Any = None
    uuid: str | None = None
    timestamp: str | None = None
    session: str | None = msgspec.field(default=None, name="sessionId")
    sidechain: bool | None = msgspec.field(default=None, name="isSidechain")
    agent: str | None = msgspec.field(default=None, name="agentId")
    result: Any = msgspec.field(default=None, name="toolUseResult")


class Session:
    """A transcript while it is read."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._answers: dict[str, dict[str, Any]] = {}
        self._seen: set[str] = set()
        self._labels: dict[str, str] = {}
        self._roles: dict[str, str] = {}
        self._left_out: Counter[str] = Counter()
        self._session = ""
        self._model: str | None = None
        self._main = False

    @property
    def is_empty(self) -> bool:
        """True if no line had a message."""
        return not self._messages

    def take(self, raw: Any) -> None:
        """Add a decoded line. Raises ValidationError."""
        record = msgspec.convert(raw, _Record)
        if record.type not in ("user", "assistant"):
            self._left_out[f"record of type {record.type:.80}"] += 1
            return
        if record.uuid is not None and record.uuid in self._seen:
            self._left_out["record there twice"] += 1
            return
        message = msgspec.convert(record.message, _Message)
        self._seen.add(record.uuid or "")
        self._session = self._session or record.session or ""
        for name, label in _LABELS.items():
            if isinstance(raw.get(name), str) and raw[name]:
                self._labels.setdefault(label, raw[name])
        common = {name: raw[name] for name in _KEPT if raw.get(name) not in (None, False)}
        if record.timestamp:
            common["timestamp"] = record.timestamp
        if record.sidechain:
            common["name"] = f"{SUBAGENT}-{record.agent}" if record.agent else SUBAGENT
            self._roles[common["name"]] = SUBAGENT
        else:
            self._main = True
        if record.type == "assistant":
            self._answer(message, common)
        else:
            self._user(record, message, common)

    def _answer(self, message: _Message, common: dict[str, Any]) -> None:
        blocks = _blocks(message.content)
        calls = [block for block in blocks if block.get("type") == "tool_use"]
        texts = [block for block in blocks if block.get("type") != "tool_use"]
        made = self._answers.get(message.id or "")
        if made is None:
            made = {"role": "assistant", "content": [], **common}
            made |= {"model": message.model} if message.model else {}
            self._messages.append(made)
            if message.id:
                made["message_id"] = message.id
                self._answers[message.id] = made
        if "name" not in common and message.model != SYNTHETIC:
            self._model = self._model or message.model
        made["content"] += texts
        if calls:
            made.setdefault("tool_calls", []).extend(
                {
                    "id": call.get("id"),
                    "name": call.get("name"),
                    "arguments": call.get("input", {}),
                }
                for call in calls
            )
        if message.usage is not None:
            made["usage"] = message.usage
        if message.stop_reason is not None:
            made["stop_reason"] = message.stop_reason

    def _user(self, record: _Record, message: _Message, common: dict[str, Any]) -> None:
        blocks = _blocks(message.content)
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for block in results:
            made = {"role": TOOL, **common, "tool_call_id": block.get("tool_use_id")}
            made["content"] = block.get("content")
            if block.get("is_error") is True:
                made["is_error"] = True
            if record.result is not None and len(results) == 1:
                made["toolUseResult"] = record.result
            self._messages.append(made)
        rest = [block for block in blocks if block.get("type") != "tool_result"]
        if isinstance(message.content, str):
            self._messages.append({"role": "user", "content": message.content, **common})
        elif rest:
            self._messages.append({"role": "user", "content": rest, **common})

    def run(self, defaults: ImportDefaults) -> ChatRun:
        """Return the session as a run; a transcript does not state an outcome. Raises
        CallerError.
        """
        agents = list(self._roles)
        name = self._session
        if not self._main and len(agents) == 1:  # a sub-agent's own file has its session's id
            name += f"/{agents[0]}"
        roles = {**({CLAUDE_CODE: "assistant"} if self._main else {}), **self._roles}
        record = {
            "workflow": CLAUDE_CODE,
            "roles": roles,
            **({"agent": CLAUDE_CODE} if self._main else {}),
            **({"run": name} if name else {}),
            **({"model": self._model} if self._model else {}),
            "labels": self._labels,
            "messages": self._messages,
        }
        return converted(CLAUDE_CODE, record, defaults, left_out=dict(self._left_out))


def _blocks(content: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) else text
