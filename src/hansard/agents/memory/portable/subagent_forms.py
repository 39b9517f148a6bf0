"""One subagent in the forms of four harnesses.

Claude Code's form (Markdown, front matter `name`, `description`, `tools`, `model`) is the one that
a space has. Reads and writes the others: deepagents (`agent.json` and `AGENTS.md` in a folder),
OpenCode (Markdown, ordered `permissions`), Codex (TOML, `developer_instructions`).
"""

from __future__ import annotations

import json
import tomllib

import msgspec

from hansard.agents.memory.validation import fields, frontmatter, subagents
from hansard.agents.memory.validation.frontmatter import Items, Text
from hansard.domain.memory.events import Problem

SHORT_NAMES = {"sonnet", "opus", "haiku", "fable"}
"""What Claude Code calls models, and nobody else."""

_ACTIONS = {
    "Read": "read",
    "Grep": "grep",
    "Glob": "glob",
    "Bash": "shell",
    "Edit": "edit",
    "Write": "edit",
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "WebFetch": "webfetch",
    "WebSearch": "websearch",
    "Agent": "subagent",
    "Task": "subagent",
    "Skill": "skill",
}
_WRITES = {"Bash", "Edit", "Write", "MultiEdit", "NotebookEdit"}
_FIELDS = {"name", "description", "tools", "model"}


class Subagent(msgspec.Struct, frozen=True):
    """A subagent, whatever the form.

    Attributes:
        name: What it is called.
        description: When to hand work to it.
        instructions: Its system prompt, as it is written.
        tools: What it may use, in Claude Code's words; all that its parent has if None.
        model: Its model, as it is written; its parent's if None.
        others: Further fields of Claude Code's, which no other form has.
    """

    name: str
    description: str
    instructions: str
    tools: list[str] | None = None
    model: str | None = None
    others: list[str] = []


def read(path: str, content: bytes) -> Subagent | None:
    """A subagent in Claude Code's form; None if it is not valid."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    front = frontmatter.read(path, text, flow=True)
    if isinstance(front, Problem) or subagents.problems(path, text):
        return None
    has = front.fields.fields
    tools = has.get("tools")
    named: list[str] | None = None
    match tools:
        case Text() if tools.value.strip():
            named = [word.strip() for word in fields.split(tools.value, ",")]
        case Items():
            named = [item.value for item in tools.items if isinstance(item, Text)]
        case _:
            pass
    return Subagent(
        name=_text(has, "name") or "",
        description=_text(has, "description") or "",
        instructions=front.body.removeprefix("\n"),
        tools=named,
        model=_text(has, "model"),
        others=[name for name in has if name not in _FIELDS],
    )


def _text(has: dict[str, frontmatter.Value], name: str) -> str | None:
    value = has.get(name)
    return value.value if isinstance(value, Text) and value.value else None


def _quoted(value: str) -> str:
    """A text as YAML, JSON and TOML all read it."""
    return json.dumps(value, ensure_ascii=False)


def claude_code(subagent: Subagent) -> bytes:
    """In Claude Code's form."""
    lines = [f"name: {subagent.name}", f"description: {_quoted(subagent.description)}"]
    if subagent.tools is not None:
        lines.append(f"tools: {', '.join(subagent.tools)}")
    if subagent.model is not None:
        lines.append(f"model: {subagent.model}")
    return _marked(lines, subagent.instructions)


def _marked(lines: list[str], text: str) -> bytes:
    front = "\n".join(lines)
    return f"---\n{front}\n---\n{text}".encode()


def _model(subagent: Subagent, separator: str, notes: list[str]) -> str | None:
    """Its model with its provider before it, or None where only Claude Code knows it."""
    model = subagent.model
    if model is None or model == "inherit":
        return None
    if model in SHORT_NAMES:
        notes.append(f"only Claude Code knows the model {model!r}: it has its parent's")
        return None
    provider, has_provider, name = model.replace("/", ":", 1).partition(":")
    return f"{provider}{separator}{name}" if has_provider else model


def model_of(subagent: Subagent) -> str | None:
    """Its model as `provider:model`; None for its parent's."""
    return _model(subagent, ":", [])


def _others(subagent: Subagent) -> list[str]:
    return [f"only Claude Code has {name!r}" for name in subagent.others]


def deepagents(subagent: Subagent) -> tuple[list[str], bytes, bytes]:
    """What is left out, `agent.json` and `AGENTS.md`."""
    notes = _others(subagent)
    agent = {"description": subagent.description}
    model = _model(subagent, ":", notes)
    if model is not None:
        agent["model"] = model
    if subagent.tools is not None:
        notes.append("deepagents names tools in tools.json: it has its parent's")
    return notes, f"{json.dumps(agent, indent=2)}\n".encode(), subagent.instructions.encode()


def opencode(subagent: Subagent) -> tuple[list[str], bytes]:
    """What is left out, and the file; what it may not use is denied."""
    notes = _others(subagent)
    lines = [f"description: {_quoted(subagent.description)}", "mode: subagent"]
    model = _model(subagent, "/", notes)
    if model is not None:
        lines.append(f"model: {model}")
    if subagent.tools is not None:
        lines += ["permissions:", *_rule("*", "deny")]
        for action in _actions(subagent.tools, notes):
            lines += _rule(action, "allow")
    return notes, _marked(lines, subagent.instructions)


def _rule(action: str, effect: str) -> list[str]:
    return [f"  - action: {_quoted(action)}", '    resource: "*"', f"    effect: {effect}"]


def _actions(tools: list[str], notes: list[str]) -> list[str]:
    found: list[str] = []
    for tool in tools:
        name, has_pattern, _ = tool.partition("(")
        action = _ACTIONS.get(name)
        if name.startswith("mcp__"):
            action = name.removeprefix("mcp__").replace("__", "_", 1)
        if action is None or has_pattern:
            notes.append(f"OpenCode has no word for the tool {tool!r}: it stays denied")
        elif action not in found:
            found.append(action)
    return found


def codex(subagent: Subagent) -> tuple[list[str], bytes]:
    """What is left out, and the file; who may not write has a sandbox that cannot."""
    notes = _others(subagent)
    lines = [f"name = {_toml(subagent.name)}", f"description = {_toml(subagent.description)}"]
    model = _model(subagent, "/", notes)
    if model is not None:
        lines.append(f"model = {_toml(model)}")
    if subagent.tools is not None:
        writes = {tool.partition("(")[0] for tool in subagent.tools} & _WRITES
        notes.append("Codex has no list of tools for one agent")
        if not writes:
            lines.append('sandbox_mode = "read-only"')
    lines.append(f"developer_instructions = {_toml_lines(subagent.instructions)}")
    return notes, "".join(f"{line}\n" for line in lines).encode()


def _toml(value: str) -> str:
    return _quoted(value).replace("\x7f", "\\u007f")


def _toml_lines(value: str) -> str:
    escaped = "\n".join(_toml(line)[1:-1] for line in value.split("\n"))
    return f'"""\n{escaped}"""'


def from_deepagents(name: str, agent: bytes, instructions: bytes) -> Subagent | None:
    """A subagent in deepagents' form; None if it is not valid."""
    try:
        value = json.loads(agent)
        return Subagent(
            name=name,
            description=value.get("description") or name,
            instructions=instructions.decode(),
            model=value.get("model") or value.get("model_id"),
        )
    except (ValueError, AttributeError, msgspec.ValidationError):
        return None


def from_codex(stem: str, content: bytes) -> Subagent | None:
    """A subagent in Codex's form; None if it says what Claude Code's cannot."""
    try:
        value = tomllib.loads(content.decode())
        return Subagent(
            name=_same(value["name"], stem),
            description=value["description"],
            instructions=value["developer_instructions"],
            model=value.get("model"),
        )
    except (ValueError, LookupError):
        return None


def from_opencode(stem: str, content: bytes) -> Subagent | None:
    """A subagent in OpenCode's form; None if it says what Claude Code's cannot."""
    try:
        front = frontmatter.read(stem, content.decode(), flow=True)
    except UnicodeDecodeError:
        return None
    if isinstance(front, Problem):
        return None
    has = front.fields.fields
    if not has.keys() <= {"description", "mode", "model"}:
        return None
    return Subagent(
        name=stem,
        description=_text(has, "description") or "",
        instructions=front.body.removeprefix("\n"),
        model=_text(has, "model"),
    )


def _same(name: str, stem: str) -> str:
    if name != stem:
        raise ValueError(name)
    return name
