"""The configuration files of MCP clients: an entry for the record's server, or the proxy before one
that is there; and back.

Of a project, as each client's own documentation has it: Claude Code reads `.mcp.json` and Cursor
`.cursor/mcp.json` (`mcpServers`), VS Code `.vscode/mcp.json` (`servers`, with a `type`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from hansard.bus.whole_file import write_whole
from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue, CallerError

OWN = "hansard"
"""The name of the entry for the record's own server."""

INDENT = 2
"""Of a file that is made."""


class Client(msgspec.Struct, frozen=True):
    """A client's file in a project, the field of its servers, and whether an entry has a type."""

    file: str
    servers: str
    typed: bool = False


CLIENTS = {
    "claude": Client(".mcp.json", "mcpServers"),
    "cursor": Client(".cursor/mcp.json", "mcpServers"),
    "vscode": Client(".vscode/mcp.json", "servers", typed=True),
}


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """What a client's file is to say.

    Attributes:
        path: The file.
        name: Of which server.
        entry: Its entry; None where it is taken out.
        text: The file's new text.
        changes: Whether that is another text than it has.
        relaid: Whether its layout changes besides.
    """

    path: str
    name: str
    entry: dict[str, Any] | None
    text: str
    changes: bool
    relaid: bool

    def write(self) -> None:
        """Replace the file as a whole; its folder is made where it is missing."""
        path = Path(self.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, self.text.encode())


class NoSuchServer(CallerError):
    """A client's file has no server of that name."""

    def __init__(self, path: Path, name: str, known: Sequence[str]) -> None:
        there = ", ".join(known) or "none"
        super().__init__(
            f"{path} has no server {name!r}: {nearest(name, known)}there are {there}; without a "
            "name the record's own server is added"
        )


def installed(
    client: Client, folder: Path, name: str | None, command: Sequence[str], proxy: Sequence[str]
) -> Installed:
    """The record's server added by its `command`; with a name, the `proxy` before that server.
    Asked for twice it is the same. Raises BadValue, NoSuchServer.
    """
    path = folder / client.file
    before, told = _read(path)
    servers = _servers(client, path, told)
    if name is None:
        entry: dict[str, Any] = {"type": "stdio"} if client.typed else {}
        servers[OWN] = entry | {"command": command[0], "args": list(command[1:])}
        return _made(path, OWN, servers[OWN], before, told)
    entry = _entry(path, name, servers)
    if _proxied(entry) is None:
        whole = [*proxy, "--", entry["command"], *entry.get("args", [])]
        entry["command"], entry["args"] = whole[0], whole[1:]
    return _made(path, name, entry, before, told)


def taken_back(client: Client, folder: Path, name: str | None) -> Installed:
    """The record's server taken out; with a name, the proxy taken from before that server. Raises
    BadValue, NoSuchServer.
    """
    path = folder / client.file
    before, told = _read(path)
    servers = _servers(client, path, told)
    entry = _entry(path, name or OWN, servers)
    if name is None:
        del servers[OWN]
        return _made(path, OWN, None, before, told)
    behind = _proxied(entry)
    if behind is not None:
        entry["command"], entry["args"] = behind[0], behind[1:]
        if not entry["args"]:
            del entry["args"]
    return _made(path, name, entry, before, told)


def _read(path: Path) -> tuple[str | None, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None, {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue(str(path), f"cannot be read ({error})", "name another folder") from None
    try:
        told = json.loads(text)
    except ValueError as error:
        fact = f"is no plain JSON ({error})"
        raise BadValue(str(path), fact, "leave --write out, and add what is printed") from None
    if not isinstance(told, dict):
        raise BadValue(str(path), f"holds a {type(told).__name__}", "it is to hold an object")
    return text, told


def _servers(client: Client, path: Path, told: dict[str, Any]) -> dict[str, Any]:
    servers = told.setdefault(client.servers, {})
    if not isinstance(servers, dict):
        fact = f"{client.servers} is a {type(servers).__name__}"
        raise BadValue(str(path), fact, "it is to hold servers by their names")
    return servers


def _entry(path: Path, name: str, servers: dict[str, Any]) -> dict[str, Any]:
    entry = servers.get(name)
    if entry is None:
        raise NoSuchServer(path, name, list(servers))
    args = entry.get("args", []) if isinstance(entry, dict) else None
    if not isinstance(args, list) or not isinstance(entry.get("command"), str):
        remedy = "for one at a URL write the command by hand: hansard mcp proxy --url URL"
        raise BadValue(f"{path}: {name}", "has no command with arguments", remedy)
    found: dict[str, Any] = entry
    return found


def _proxied(entry: dict[str, Any]) -> list[str] | None:
    """The command behind the proxy; None where there is none before it."""
    args = [str(each) for each in entry.get("args", [])]
    if "--" not in args or not _mentions(args[: args.index("--")]):
        return None
    return args[args.index("--") + 1 :]


def _mentions(args: list[str]) -> bool:
    return any(args[n : n + 2] == ["mcp", "proxy"] for n in range(len(args)))


def _made(
    path: Path, name: str, entry: dict[str, Any] | None, before: str | None, told: dict[str, Any]
) -> Installed:
    indent = _indent(before)
    text = _text(told, indent, before)
    same = before is not None and _text(json.loads(before), indent, before) == before
    return Installed(
        path=str(path),
        name=name,
        entry=entry,
        text=text,
        changes=before is None or json.loads(before) != told,
        relaid=before is not None and not same,
    )


def _text(told: dict[str, Any], indent: int | str | None, before: str | None) -> str:
    end = "\n" if before is None or before.endswith("\n") else ""
    return json.dumps(told, indent=indent, ensure_ascii=False) + end


def _indent(before: str | None) -> int | str | None:
    """How a file is indented: by so many spaces, or by tabs."""
    lines = (before or "").splitlines()[1:2]
    if not lines:
        return INDENT
    blank = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    return blank or INDENT
