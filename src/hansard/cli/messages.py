"""Messages rendered for people, and the command `hansard conversation`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Protocol

import msgspec
from rich.text import Text

from hansard.bus.times import Time
from hansard.cli import output
from hansard.cli.common import At, Commands, argument
from hansard.cli.opening import reading
from hansard.cli.output import Column, Part
from hansard.domain.choices import counted
from hansard.inspect import state as reads
from hansard.inspect.answer import plain_text
from hansard.inspect.state import Compacted, Conversation, Message, RunPart, Summary
from hansard.inspect.trace import Payloads

app = Commands()

FOLD_LINES = 8
"""Most lines shown of a message's content; `--json` has all of it."""

FOLD_CHARACTERS = 600
CALLS_SHOWN_MAX = 50
"""Most calls of one message shown; the rest are counted."""

_INDENT = "      "

ROLES = {"user": "green", "assistant": "cyan", "tool": "magenta", "system": "yellow"}


class Figures(Protocol):
    """Totals of messages; `tokens` is None where they were not counted."""

    messages: int
    tokens: int | None
    usage: dict[str, float]


def text(found: Message) -> output.Lines:
    """Render a recorded message as lines."""
    head = Text(f"{found.index:>4}  ")
    head.append(output.cut(found.role), style=f"bold {ROLES.get(found.role, '')}")
    about = (
        counted(found.tokens, "token") if found.tokens is not None else "",
        output.usage_text(found.usage),
        output.shown_time(Time(found.at, found.clock)),
        f"{output.cut(found.agent)}@{found.version}",
        f"position {found.position}",
    )
    head.append("  " + "  ".join(part for part in about if part), style="dim")
    body = [Text(_INDENT + plain_text(line, lines=True)) for line in readable(found.message)]
    return output.Lines([head, *body])


def readable(message: dict[str, Any]) -> Iterator[str]:
    """Yield a message's lines: its content, its calls, and its other fields."""
    line, calls = _content(message.get("content"))
    yield from folded(line)
    calls += _calls(message)
    yield from calls[:CALLS_SHOWN_MAX]
    if len(calls) > CALLS_SHOWN_MAX:
        yield f"… and {counted(len(calls) - CALLS_SHOWN_MAX, 'call')} more"
    known = {"role", "content", "tool_calls", "function_call"}
    for name, value in message.items():
        if name not in known and value is not None:
            yield f"{output.cut(name)}: {output.preview(value)}"


def folded(text: str) -> Iterator[str]:
    """Yield a text's first lines, and the number of characters left out."""
    text = text.replace("\r\n", "\n")
    kept = text[:FOLD_CHARACTERS]
    lines = kept.split("\n", FOLD_LINES)
    rest = len(lines.pop()) if len(lines) > FOLD_LINES else 0
    rest += len(text) - len(kept)
    if lines != [""]:
        yield from lines
    if rest:
        yield f"… {counted(rest, 'character')} more: --json has them"


def _content(content: Any) -> tuple[str, list[str]]:
    """Return the text of a message's content, and the calls among its parts."""
    if not isinstance(content, list):
        return (content if isinstance(content, str) else _other(content)), []
    parts: list[str] = []
    calls: list[str] = []
    for part in content:
        match part:
            case str():
                parts.append(part)
            case {"type": "tool_use", "name": str(name)}:
                calls.append(_call(name, part.get("input"), part.get("id")))
            case {"type": "tool_result"}:
                inner, _ = _content(part.get("content"))
                parts.append(f"result of {output.cut(str(part.get('tool_use_id')))}: {inner}")
            case {"text": str(text)}:
                parts.append(text)
            case _:
                parts.append(_other(part))
    return "\n".join(parts), calls


def _other(content: Any) -> str:
    return "" if content is None else output.preview(content, FOLD_CHARACTERS)


def _calls(message: dict[str, Any]) -> list[str]:
    found = message.get("tool_calls")
    request: Sequence[Any] = found if isinstance(found, list) else []
    items = [*request, *([message["function_call"]] if message.get("function_call") else [])]
    return [_call_fields(call) for call in items]


def _call_fields(call: Any) -> str:
    """Render a call from any of the providers' formats."""
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
    """Render a call in one line; arguments that are JSON in a string are parsed."""
    if isinstance(arguments, str):
        shown = output.cut(arguments, FOLD_CHARACTERS)
        with contextlib.suppress(msgspec.DecodeError, RecursionError):  # a text like any other
            shown = output.arguments_preview(msgspec.json.decode(arguments), FOLD_CHARACTERS)
    else:
        shown = "" if arguments is None else output.arguments_preview(arguments, FOLD_CHARACTERS)
    called = f"  [{output.cut(str(call_id))}]" if call_id is not None else ""
    return f"→ {output.cut(name)}({shown}){called}"


def apart(found: Message) -> list[Part]:
    """Return an empty line and a recorded message."""
    return [Text(), text(found)]


def part(found: Message | Summary | Compacted, *, every: bool) -> list[Part]:
    """Return an empty line and a part of a context window."""
    if isinstance(found, Message):
        return apart(found)
    if isinstance(found, Compacted):
        if isinstance(found.original, Message):
            return [Text(), Text(_INDENT + "compacted:", style="dim"), text(found.original)]
        return [Text(), _summary(found.original, "")]
    return [Text(), _summary(found, "" if every else "; --all shows them")]


def _summary(found: Summary, more: str) -> output.Lines:
    """Render a summary and the messages it replaced."""
    head = Text(f"{found.index:>4}  ")
    head.append(output.cut(found.role), style=f"bold {ROLES.get(found.role, '')}")
    where = f", {found.first}-{found.last}" if found.first is not None else ""
    head.append(f"  summary of {counted(found.messages, 'message')}{where}{more}", style="bold")
    window = ""
    if found.tokens_before is not None and found.tokens_after is not None:
        window = f"window {found.tokens_before:,} to {counted(found.tokens_after, 'token')}"
    about = (
        counted(found.tokens, "token") if found.tokens is not None else "",
        window,
        output.shown_time(Time(found.at, found.clock)),
        f"{output.cut(found.agent)}@{found.version}",
        f"position {found.position}",
    )
    head.append("  " + "  ".join(each for each in about if each), style="dim")
    body = [Text(_INDENT + plain_text(line, lines=True)) for line in readable(found.message)]
    return output.Lines([head, *body])


def total_text(total: Figures) -> str:
    """Render the totals of messages."""
    used = output.usage_text(total.usage)
    return f"{count_text(total)}, {used}" if used else count_text(total)


def count_text(total: Figures) -> str:
    """Render the number of messages and, if they were counted, of tokens."""
    line = counted(total.messages, "message")
    return line if total.tokens is None else f"{line}, {counted(total.tokens, 'token')}"


RUNS = (
    Column("run", whole=True),
    Column("workflow"),
    Column("status", lambda run: output.status_cell(run.status)),
    Column("began", lambda run: output.shown_time(run.began), whole=True),
    Column("messages", total_text),
)


@app.command()
async def show(
    conversation: Annotated[str, argument("ID", "The conversation's id.")], at: At = None
) -> None:
    """Show a conversation's runs and messages."""
    async with reading() as workspace:
        found = await reads.conversation(workspace, conversation, at)
        for error in found.left_out:
            output.hint(f"a run of the conversation is left out: {error}")
        output.show(found, _render)
        fetch = Payloads(workspace)
        for part in found.parts:
            output.show(part, _heading)
            async for message in found.messages(part, fetch):
                output.hint_erased(fetch)
                output.show(message, apart)


def _render(found: Conversation) -> Iterator[Part]:
    facts = found.figures
    line = f"{total_text(facts)}, {counted(facts.turns, 'turn')}"
    yield f"conversation {facts.conversation} as of position {facts.position}: {line}"
    yield from output.imported(found.imported) or [""]
    yield output.listing(RUNS, [part.line for part in found.parts])


def _heading(part: RunPart) -> Iterator[Part]:
    yield ""
    title = f"run {part.line.run}, {counted(len(part.messages), 'message')}"
    yield output.Lines([output.cell(title, "bold")])
