"""Which servers stand behind one door: a file as MCP clients have it, `mcpServers` by their names.

Of an entry are read `command`, `args` and `env`, or `url` and `headers`; `${NAME}` in any of them
is a variable of the environment.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from hansard.domain.errors import BadValue

BETWEEN = "__"
"""Stands between a server's name and a tool's: models' providers take letters, digits, _ and -."""

_NAME = re.compile(r"[A-Za-z0-9](?:_?[A-Za-z0-9-]){0,31}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Declared(msgspec.Struct, frozen=True):
    """A server: by its command, or by its URL."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    url: str | None = None
    headers: dict[str, str] = {}

    @property
    def argv(self) -> list[str]:
        """The whole command."""
        return [self.command or "", *self.args]


class Login(msgspec.Struct, frozen=True):
    """A client that the proxy is to the server, by OAuth's client credentials.

    Attributes:
        client_id: Its id.
        secret: Its secret.
        issuer: The authorization server that gave them; they are sent nowhere else.
        scope: Scopes to ask for; None for those that the server names.
    """

    client_id: str
    secret: str
    issuer: str
    scope: str | None = None


class _File(msgspec.Struct, frozen=True, rename="camel"):
    mcp_servers: dict[str, Declared] = {}
    servers: dict[str, Declared] = {}


def load(path: Path) -> dict[str, Declared]:
    """The servers of a file, by their names. Raises BadValue."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        fact = f"cannot be read ({error.strerror})"
        raise BadValue(f"--servers {path}", fact, "name a file") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        remedy = 'give {"mcpServers": {"NAME": {"command": "...", "args": []}}}, or "url"'
        raise BadValue(f"--servers {path}", f"is no such file ({error})", remedy) from None
    servers = found.mcp_servers or found.servers
    if not servers:
        raise BadValue(f"--servers {path}", "names no server", "add one to its mcpServers")
    return {name: _filled_in(f"{path}: {name}", name, each) for name, each in servers.items()}


def bearer(token: str) -> dict[str, str]:
    """The header of a token."""
    return {"authorization": f"Bearer {token}"}


def _filled_in(where: str, name: str, server: Declared) -> Declared:
    if _NAME.fullmatch(name) is None:
        fact = "is no name that can stand before a tool's"
        raise BadValue(where, fact, "give up to 32 letters, digits, - and single _")
    if (server.command is None) == (server.url is None):
        raise BadValue(where, "has not one of command and url", "give one of the two")

    def filled(text: str) -> str:
        return _VARIABLE.sub(lambda found: _variable(where, found[1]), text)

    return Declared(
        command=None if server.command is None else filled(server.command),
        args=[filled(each) for each in server.args],
        env={key: filled(value) for key, value in server.env.items()},
        url=None if server.url is None else filled(server.url),
        headers={key: filled(value) for key, value in server.headers.items()},
    )


def _variable(where: str, name: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise BadValue(where, f"${{{name}}} is not set", "set the variable, or write the value")
    return found
