"""The configuration files of MCP clients: an entry for the record's server, or the proxy before one
that is there; and back.

Of a project, as each client's own documentation has it: Claude Code
(https://code.claude.com/docs/en/mcp) reads `.mcp.json` and Cursor (https://cursor.com/docs/mcp)
`.cursor/mcp.json`, both `mcpServers`; VS Code
(https://code.visualstudio.com/docs/copilot/reference/mcp-configuration) reads `.vscode/mcp.json`
(`servers`, with a `type`). A server over HTTP has a `url` and perhaps `headers`; in Claude Code and
VS Code its `type` is `http`. A secret is `${NAME}` of the environment in Claude Code, `${env:NAME}`
in Cursor, `${input:ID}` in VS Code, which asks for it. All three fill them in in `env`, too.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from hansard.bus.file_lock import write_whole
from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue

# ------------------------------------------------------------ JSON with comments

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
_SPACE = re.compile(r"\s*")
_INDENT = re.compile(r"\n([ \t]+)\S")
_decoder = json.JSONDecoder()


class _Member(NamedTuple):
    """Member of an object, by places in the text; from `lead` on is what precedes it."""

    key: str
    lead: int
    begin: int
    value: int
    end: int
    after: int


def parse(text: str) -> Any:
    """Parse a text. Raises ValueError."""
    return json.loads(_plain(text))


def changed(text: str, config: dict[str, Any]) -> str:
    """Return the text of an object changed to hold `config`. Raises ValueError.

    Comments, and the layout of what does not change, stay.
    """
    plain = _plain(text)
    at = _skip(plain, 0)
    _, end = _decoder.raw_decode(plain, at)
    indent = _INDENT.search(text)
    unit = None if "\n" not in text.strip() else indent[1] if indent else "  "
    return text[:at] + _object(text, plain, at, config, unit, "") + text[end:]


def _plain(text: str) -> str:
    """Blank out comments and trailing commas; every other character keeps its place."""

    def blank(match: re.Match[str]) -> str:
        return match[1] or re.sub(r"[^\n]", " ", match[0])

    return _TRAILING.sub(blank, _COMMENT.sub(blank, text))


def _skip(plain: str, at: int) -> int:
    space = _SPACE.match(plain, at)
    return at if space is None else space.end()


def _members(plain: str, at: int) -> tuple[list[_Member], int]:
    """Return the members of the object at a place, and the place of its `}`."""
    lead, members = at + 1, list[_Member]()
    at = _skip(plain, lead)
    while plain[at] != "}":
        key, colon = _decoder.raw_decode(plain, at)
        value = _skip(plain, _skip(plain, colon) + 1)
        _, end = _decoder.raw_decode(plain, value)
        after = _skip(plain, end)
        members.append(_Member(key, lead, at, value, end, after))
        lead = after + (plain[after] == ",")
        at = _skip(plain, lead)
    return members, at


def _object(
    text: str, plain: str, at: int, config: Mapping[str, Any], unit: str | None, outer: str
) -> str:
    """Return the text of the object at a place, changed to hold `config`.

    `unit` is the indentation, None for all in one line, and `outer` that of the line of the object.
    """
    members, close = _members(plain, at)
    margin = "" if unit is None else outer + unit
    parts: list[str] = []
    tail = "" if unit is None else f"\n{outer}"
    if members:
        tail = text[members[-1].end : close]
        line = text[text.rfind("\n", 0, members[0].begin) + 1 : members[0].begin]
        margin = margin if unit is None else line[: len(line) - len(line.lstrip())]
    lead: str | None = None
    for each in members:
        if lead is None:  # else it is that of a removed member
            lead = text[each.lead : each.begin]
        if each.key in config:
            old, new = json.loads(plain[each.value : each.end]), config[each.key]
            if old == new:
                shown = text[each.value : each.end]
            elif isinstance(old, dict) and isinstance(new, dict) and _is_appended(old, new):
                shown = _object(text, plain, each.value, new, unit, margin)
            else:
                shown = _shown(new, unit, margin)
            rest = "" if each is members[-1] else text[each.end : each.after]
            parts.append(lead + text[each.begin : each.value] + shown + rest)
            lead = None
    known = {each.key for each in members}
    for key in [key for key in config if key not in known]:
        before = "" if members or parts else text[at + 1 : close].rstrip()
        before += " " * bool(parts) if unit is None else f"\n{margin}"
        parts.append(f"{before}{_shown(key, None, '')}: {_shown(config[key], unit, margin)}")
    if not parts:
        return "{}" if members else text[at : close + 1]
    return "{" + ",".join(parts) + tail + "}"


def _is_appended(before: dict[str, Any], config: dict[str, Any]) -> bool:
    """Return whether members were only changed, removed, or added at the end."""
    kept = [key for key in before if key in config]
    return [*config][: len(kept)] == kept


def _shown(value: Any, unit: str | None, margin: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", f"\n{margin}")


OWN = "hansard"
"""Name of the entry for the record's own server."""

INDENT = 2
"""Indentation of a new file."""


class Client(msgspec.Struct, frozen=True):
    """Configuration files of a client.

    The file in a project and the user's own (relative to the home folder; {config} is the folder of
    settings), the field of its servers, whether an entry with a command or an address has a type,
    and the syntax of an environment variable (None: the client prompts).
    """

    file: str
    servers: str
    user_file: str
    typed: bool = False
    typed_url: bool = True
    variable: str | None = None
    takes_url: bool = True

    def path(self, folder: Path | None) -> Path:
        """Return its file in a project's folder, or the user's own without one. Raises BadValue."""
        if folder is not None and self.file:
            return folder / self.file
        config = {"darwin": "Library/Application Support", "win32": "AppData/Roaming"}
        here = config.get(sys.platform) or os.environ.get("XDG_CONFIG_HOME") or ".config"
        return Path.home() / self.user_file.replace("{config}", here)


CLIENTS = {
    "claude": Client(".mcp.json", "mcpServers", ".claude.json", variable="${%s}"),
    "claude-desktop": Client(
        "", "mcpServers", "{config}/Claude/claude_desktop_config.json", takes_url=False
    ),
    "cursor": Client(
        ".cursor/mcp.json", "mcpServers", ".cursor/mcp.json", typed_url=False, variable="${env:%s}"
    ),
    "vscode": Client(".vscode/mcp.json", "servers", "{config}/Code/User/mcp.json", typed=True),
}

HTTP = "http"
"""Type of an entry with an address."""

STDIO, SSE = "stdio", "sse"

SIGNS_IN = ("auth", "oauth", "headersHelper")
"""Fields by which a client logs in itself; the proxy cannot use such a login."""

HEADER = "HANSARD_HEADER_"
"""Prefix of the variables with the headers of a server behind the proxy."""

INPUT = "hansard-token"
"""Id of VS Code's prompt for the token."""


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """New content of a client's file.

    Attributes:
        path: The file.
        name: The server's name.
        entry: Its entry; None if it is removed.
        text: The file's new text.
        changes: Whether the text differs from the current one.
    """

    path: str
    name: str
    entry: dict[str, Any] | None
    text: str
    changes: bool

    def write(self) -> str:
        """Replace the file atomically, keeping its mode; a missing folder is created.

        Returns the path of a copy of the former file; empty if there was none.
        """
        path, backup = Path(self.path), ""
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = None
        if path.exists():
            mode, backup = stat.S_IMODE(path.stat().st_mode), f"{path}.bak"
            write_whole(Path(backup), path.read_bytes())
        write_whole(path, self.text.encode())
        if mode is not None:
            path.chmod(mode)
        return backup


def installed(
    client: Client,
    folder: Path | None,
    name: str | None,
    command: Sequence[str],
    proxy: Sequence[str],
) -> Installed:
    """Add the record's server by its `command`; with a name, put the `proxy` before that server.

    Idempotent. Raises BadValue.
    """
    path = client.path(folder)
    before, config = _read(path)
    servers = _servers(client, path, config)
    if name is None:
        entry: dict[str, Any] = {"type": STDIO} if client.typed else {}
        servers[OWN] = entry | {"command": command[0], "args": list(command[1:])}
        return _made(path, OWN, servers[OWN], before, config)
    entry = _put_proxy(path, name, servers, proxy)
    return _made(path, name, entry, before, config)


def behind_proxies(path: Path, proxy: Callable[[str], Sequence[str]]) -> str:
    """Return a configuration's text with a proxy before each of its servers, by their names.

    Raises BadValue.
    """
    before, config = _read(path)
    if before is None:
        raise BadValue(str(path), "is no file", "name an MCP client's configuration")
    client = CLIENTS["vscode" if CLIENTS["vscode"].servers in config else "claude"]
    servers = _servers(client, path, config)
    for name in servers:
        _put_proxy(path, name, servers, proxy(name))
    return changed(before, config) if before.strip() else before


def _put_proxy(
    path: Path, name: str, servers: dict[str, Any], proxy: Sequence[str]
) -> dict[str, Any]:
    """Put a proxy before a server, unless there is one; return its entry."""
    entry = _entry(path, name, servers)
    if "url" in entry:
        servers[name] = entry = _proxy_before_url(path, name, entry, proxy)
    elif _command_behind(entry) is None and _entry_behind(entry) is None:
        whole = [*proxy, "--", entry["command"], *entry.get("args", [])]
        entry["command"], entry["args"] = whole[0], whole[1:]
    return entry


def installed_at(client: Client, folder: Path | None, url: str, token_env: str | None) -> Installed:
    """Add the record's server by its address, with the variable that holds its token.

    Raises BadValue.
    """
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise BadValue("--url", f"{url!r:.80}", "give http://HOST:PORT/mcp, or https://")
    path = client.path(folder)
    if not client.takes_url:
        fact, remedy = "its file names only commands", "leave --url out, or add a connector in it"
        raise BadValue("--url", fact, remedy)
    before, config = _read(path)
    servers = _servers(client, path, config)
    servers[OWN] = ({"type": HTTP} if client.typed_url else {}) | {"url": url}
    if token_env is not None:
        value = client.variable % token_env if client.variable else f"${{input:{INPUT}}}"
        servers[OWN]["headers"] = {"Authorization": f"Bearer {value}"}
        if client.variable is None and not _prompts_for_token(config):
            prompt = {"type": "promptString", "id": INPUT, "password": True}
            about = {"description": "The token of the record's server (hansard up --http)"}
            config.setdefault("inputs", []).append(prompt | about)
    return _made(path, OWN, servers[OWN], before, config)


def hooked(folder: Path | None, path: str, hooks: dict[str, Any]) -> Installed:
    """Replace the hooks of Claude Code that post to a path of a listener by others, or by none.

    Args:
        folder: The project's folder; None for the user's own settings.
        path: The path of the listener.
        hooks: The new hooks by event, as in a settings file.

    Raises BadValue.
    """
    file = (folder or Path.home()) / ".claude" / "settings.json"
    before, config = _read(file)
    present = config.get("hooks", {})
    if not isinstance(present, dict) or not all(
        isinstance(each, list) for each in present.values()
    ):
        raise BadValue(str(file), f"its hooks are {present!r:.80}", "give lists by event")
    others = {
        event: [each for each in groups if not _posts_to(each, path)]
        for event, groups in present.items()
    }
    merged = {
        event: [*others.get(event, ()), *hooks.get(event, ())]
        for event in dict.fromkeys([*present, *hooks])
    }
    config["hooks"] = {event: groups for event, groups in merged.items() if groups}
    if not config["hooks"]:
        del config["hooks"]
    return _made(file, "hooks", config.get("hooks"), before, config)


def _posts_to(group: Any, path: str) -> bool:
    """Return whether a group of hooks posts to a path of a listener."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    return isinstance(hooks, list) and any(
        isinstance(each, dict) and urlsplit(str(each.get("url", ""))).path.endswith(path)
        for each in hooks
    )


def taken_back(client: Client, folder: Path | None, name: str | None) -> Installed:
    """Remove the record's server; with a name, remove the proxy from before that server.

    Raises BadValue.
    """
    path = client.path(folder)
    before, config = _read(path)
    servers = _servers(client, path, config)
    entry = _entry(path, name or OWN, servers)
    if name is None:
        del servers[OWN]
        if _prompts_for_token(config):
            config["inputs"] = [each for each in config["inputs"] if each.get("id") != INPUT]
            if not config["inputs"]:
                del config["inputs"]
        return _made(path, OWN, None, before, config)
    behind, behind_url = _command_behind(entry), _entry_behind(entry)
    if behind is not None:
        entry["command"], entry["args"] = behind[0], behind[1:]
        if not entry["args"]:
            del entry["args"]
    elif behind_url is not None:
        servers[name] = entry = behind_url
    return _made(path, name, entry, before, config)


def _prompts_for_token(config: dict[str, Any]) -> bool:
    """Return whether VS Code already prompts for the token."""
    inputs = config.get("inputs", [])
    return isinstance(inputs, list) and any(
        isinstance(each, dict) and each.get("id") == INPUT for each in inputs
    )


def _proxy_before_url(
    path: Path, name: str, entry: dict[str, Any], proxy: Sequence[str]
) -> dict[str, Any]:
    """Put the proxy before a server at an address.

    The values of its headers are passed in variables, which the client sets and no list of
    processes shows.
    """
    where, kind = f"{path}: {name}", entry.get("type", HTTP)
    if kind == SSE:
        remedy = "give its streamable HTTP address (often /mcp in place of /sse) and type http"
        raise BadValue(
            where, "it speaks the former HTTP+SSE transport, which the proxy does not", remedy
        )
    if kind not in (HTTP, "streamable-http"):
        raise BadValue(
            where, f"its type is {kind!r:.40}", "the proxy connects to servers of type http"
        )
    by_itself = [each for each in SIGNS_IN if each in entry]
    if by_itself:
        fact = f"its client logs in by {', '.join(by_itself)}, and the proxy does not"
        raise BadValue(where, fact, "give it a token in headers, or leave it as it is")
    args, env = [*proxy[1:], "--url", entry["url"]], {}
    for header, value in _texts(where, "headers", entry.get("headers", {})).items():
        variable = HEADER + re.sub(r"[^A-Za-z0-9]", "_", header).upper()
        args += ["--header-env", f"{header}={variable}"]
        env[variable] = value
    proxied: dict[str, Any] = {"type": STDIO} if "type" in entry else {}
    proxied |= {"command": proxy[0], "args": args} | ({"env": env} if env else {})
    return proxied | {
        key: each for key, each in entry.items() if key not in ("type", "url", "headers")
    }


def _texts(where: str, field: str, values: Any) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(each, str) for each in values.values()):
        raise BadValue(where, f"its {field} are {values!r:.80}", "give strings by name")
    return values


def _entry_behind(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return the entry of the server at an address behind the proxy; None if there is none."""
    args = [str(each) for each in entry.get("args", [])]
    if "--url" not in args or "--" in args or not _mentions(args):
        return None
    env = entry.get("env", {})
    headers = [args[n + 1] for n in range(len(args) - 1) if args[n] == "--header-env"]
    pairs = [each.partition("=")[::2] for each in headers]
    behind: dict[str, Any] = {"type": HTTP} if "type" in entry else {}
    behind["url"] = args[args.index("--url") + 1]
    if pairs:
        behind["headers"] = {header: env.get(variable, "") for header, variable in pairs}
    kept = {
        key: each for key, each in entry.items() if key not in ("type", "command", "args", "env")
    }
    return behind | kept


def _read(path: Path) -> tuple[str | None, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None, {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue(str(path), f"cannot be read ({error})", "name another folder") from None
    try:
        config = parse(text) if text.strip() else {}
    except ValueError as error:
        fact = f"is not JSON ({error})"
        raise BadValue(str(path), fact, "leave --write out, and add the printed text") from None
    if not isinstance(config, dict):
        raise BadValue(str(path), f"holds a {type(config).__name__}", "it must hold an object")
    return text, config


def _servers(client: Client, path: Path, config: dict[str, Any]) -> dict[str, Any]:
    servers = config.setdefault(client.servers, {})
    if not isinstance(servers, dict):
        fact = f"{client.servers} is a {type(servers).__name__}"
        raise BadValue(str(path), fact, "it must hold servers by name")
    return servers


def _entry(path: Path, name: str, servers: dict[str, Any]) -> dict[str, Any]:
    entry = servers.get(name)
    if entry is None:
        remedy = (
            f"{nearest(name, list(servers))}there are {', '.join(servers) or 'none'}; without a "
        )
        raise BadValue(
            str(path), f"has no server {name!r}", remedy + "name the record's own server is added"
        )
    args = entry.get("args", []) if isinstance(entry, dict) else None
    known = isinstance(args, list) and any(
        isinstance(entry.get(x), str) for x in ("command", "url")
    )
    if not known:
        remedy = "write one of the two, as its client's documentation says"
        raise BadValue(f"{path}: {name}", "has no command with arguments, and no url", remedy)
    checked: dict[str, Any] = entry
    return checked


def _command_behind(entry: dict[str, Any]) -> list[str] | None:
    """Return the command behind the proxy; None if there is no proxy."""
    args = [str(each) for each in entry.get("args", [])]
    if "--" not in args or not _mentions(args[: args.index("--")]):
        return None
    return args[args.index("--") + 1 :]


def _mentions(args: list[str]) -> bool:
    return any(args[n : n + 2] == ["mcp", "proxy"] for n in range(len(args)))


def _made(
    path: Path, name: str, entry: dict[str, Any] | None, before: str | None, config: dict[str, Any]
) -> Installed:
    if before is None or not before.strip():
        text = json.dumps(config, indent=INDENT, ensure_ascii=False) + "\n"
        return Installed(path=str(path), name=name, entry=entry, text=text, changes=True)
    text = changed(before, config)
    return Installed(path=str(path), name=name, entry=entry, text=text, changes=text != before)
