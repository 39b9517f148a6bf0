"""Messages for people: who said what, calls readably, long contents folded.

A message is in its provider's form, which differs: content is a text or a list of parts; calls
stand in `tool_calls` or among the parts. What is not understood is shown as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from rich.text import Text

from hansard.commands import _look, _show
from hansard.commands._look import Payloads, Told
from hansard.domain.agent import AgentState, MessageAdded
from hansard.domain.counted import counted

FOLD_LINES = 8
"""Of a content; `--json` gives all of it."""

FOLD_CHARACTERS = 600
CALLS_SHOWN_MAX = 50
"""Calls of one message that are shown; the rest are counted."""

_INDENT = "      "

ROLES = {"user": "green", "assistant": "cyan", "tool": "magenta", "system": "yellow"}


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the record, with where it stands. `index` counts the window from 1."""

    run: str
    agent: str
    index: int
    version: int
    told: Told
    added: MessageAdded
    message: dict[str, Any]

    def line(self) -> dict[str, Any]:
        """As one object for programs: the message whole, and what is on record beside it."""
        stored = self.told.stored
        found = self.told.when
        return {
            "kind": "message",
            "run": self.run,
            "agent": self.agent,
            "index": self.index,
            "role": self.added.role,
            "message": self.message,
            "tokens": self.added.tokens,
            "usage": self.added.usage,
            "occurred_at": self.told.event.occurred_at,
            **found.data,
            "version": self.version,
            "position": stored.position,
            "step": self.added.step,
        }

    def text(self) -> _show.Lines:
        """For people."""
        head = Text(f"{self.index:>4}  ")
        head.append(_show.cut(self.added.role), style=f"bold {ROLES.get(self.added.role, '')}")
        tokens = f"{counted(self.added.tokens, 'token')}" if self.added.tokens is not None else ""
        about = (
            tokens,
            _look.usage_text(self.added.usage),
            self.told.when.shown,
            f"{_show.cut(self.agent)}@{self.version}",
            f"position {self.told.stored.position}",
        )
        head.append("  " + "  ".join(part for part in about if part), style="dim")
        body = [
            Text(_INDENT + _show.plain_text(line, lines=True)) for line in readable(self.message)
        ]
        return _show.Lines([head, *body])


def window(state: AgentState) -> list[tuple[int, MessageAdded]]:
    """An agent's messages with their versions, in order."""
    return [
        (noted.version, noted.fact) for noted in state.facts if isinstance(noted.fact, MessageAdded)
    ]


async def provider_form(added: MessageAdded, fetch: Payloads) -> dict[str, Any]:
    """A message as it is sent to a model, large parts fetched; what JSON has no word for stays
    tagged. Raises Corrupt.
    """
    content, fields = await fetch.value(added.content), await fetch.value(added.fields)
    if fields is None:
        return {"role": added.role, "content": content}
    if isinstance(fields, dict) and not any(name.startswith("$") for name in fields):
        return {"role": added.role, "content": content, **fields}
    return {"role": added.role, "content": content, "fields": fields}


# ---------------------------------------------------------------- for people


def readable(message: dict[str, Any]) -> Iterator[str]:
    """A message's lines: its content, its calls, and what else it has."""
    said, calls = _content(message.get("content"))
    yield from folded(said)
    calls += _calls(message)
    yield from calls[:CALLS_SHOWN_MAX]
    if len(calls) > CALLS_SHOWN_MAX:
        yield f"… and {len(calls) - CALLS_SHOWN_MAX:,} calls more"
    known = {"role", "content", "tool_calls", "function_call"}
    for name, value in message.items():
        if name not in known and value is not None:
            yield f"{_show.cut(name)}: {_show.preview(value)}"


def folded(text: str) -> Iterator[str]:
    """A text's first lines; what was left out is counted."""
    text = text.replace("\r\n", "\n")
    kept = text[:FOLD_CHARACTERS]
    lines = kept.split("\n", FOLD_LINES)
    rest = len(lines.pop()) if len(lines) > FOLD_LINES else 0
    rest += len(text) - len(kept)
    if lines != [""]:
        yield from lines
    if rest:
        yield f"… {rest:,} characters more: --json has them"


def _content(content: Any) -> tuple[str, list[str]]:
    """What was said, and the calls among its parts."""
    if not isinstance(content, list):
        return (content if isinstance(content, str) else _other(content)), []
    said: list[str] = []
    calls: list[str] = []
    for part in content:
        match part:
            case str():
                said.append(part)
            case {"type": "tool_use", "name": str(name)}:
                calls.append(_call(name, part.get("input"), part.get("id")))
            case {"type": "tool_result"}:
                inner, _ = _content(part.get("content"))
                said.append(f"result of {_show.cut(str(part.get('tool_use_id')))}: {inner}")
            case {"text": str(text)}:
                said.append(text)
            case _:
                said.append(_other(part))
    return "\n".join(said), calls


def _other(content: Any) -> str:
    return "" if content is None else _show.preview(content, FOLD_CHARACTERS)


def _calls(message: dict[str, Any]) -> list[str]:
    found = message.get("tool_calls")
    asked: Sequence[Any] = found if isinstance(found, list) else []
    told = [*asked, *([message["function_call"]] if message.get("function_call") else [])]
    return [_asked(call) for call in told]


def _asked(call: Any) -> str:
    """A call as any of the providers' forms has it."""
    match call:
        case {"function": {"name": str(name)}}:
            return _call(name, call["function"].get("arguments"), call.get("id"))
        case {"custom": {"name": str(name)}}:
            return _call(name, call["custom"].get("input"), call.get("id"))
        case {"name": str(name)}:
            return _call(name, call.get("arguments"), call.get("id"))
        case _:
            return f"→ {_other(call)}"


def _call(name: str, arguments: Any, call_id: Any) -> str:
    """A call in one line; arguments told as JSON in a text are read."""
    if isinstance(arguments, str):
        given = _show.cut(arguments, FOLD_CHARACTERS)
        with contextlib.suppress(msgspec.DecodeError, RecursionError):  # a text like any other
            given = _show.arguments_preview(msgspec.json.decode(arguments), FOLD_CHARACTERS)
    else:
        given = "" if arguments is None else _show.arguments_preview(arguments, FOLD_CHARACTERS)
    called = f"  [{_show.cut(str(call_id))}]" if call_id is not None else ""
    return f"→ {_show.cut(name)}({given}){called}"


def total(messages: Iterable[MessageAdded]) -> dict[str, Any]:
    """How many messages, their tokens (None where none were told) and what they used up."""
    found = list(messages)
    tokens = [message.tokens for message in found if message.tokens is not None]
    return {
        "messages": len(found),
        "tokens": sum(tokens) if tokens else None,
        "usage": _look.summed([message.usage for message in found]),
    }


def total_text(told: dict[str, Any]) -> str:
    """The totals for people."""
    used = _look.usage_text(told["usage"])
    return f"{count_text(told)}, {used}" if used else count_text(told)


def count_text(told: dict[str, Any]) -> str:
    """How many messages and, where anybody counted them, tokens."""
    count, tokens = told["messages"], told["tokens"]
    said = f"{counted(count, 'message')}"
    return said if tokens is None else f"{said}, {counted(tokens, 'token')}"
