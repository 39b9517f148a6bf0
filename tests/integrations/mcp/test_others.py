"""Other people's servers and clients, as they are, through the proxy: recorded, then replayed
without the server.

`make check` has one server that is a Python package; npm's servers and the MCP Inspector, which are
fetched by their lock file, are in `make test-full`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.mcp.support import PACKAGES_S_MAX, Commands, Setup, ask, programs

if TYPE_CHECKING:  # see the support's
    from mcp import Client


pytestmark = pytest.mark.slow


def calling(*calls: tuple[str, dict[str, Any]]) -> Callable[[Client], Any]:
    """Return a function that lists the tools and calls some."""

    async def do(client: Client) -> list[Any]:
        results: list[Any] = [await client.list_tools()]
        results += [await client.call_tool(tool, arguments) for tool, arguments in calls]
        return [json.loads(each.model_dump_json()) for each in results]

    return do


def through(setup: Setup, server: list[str]) -> list[str]:
    """Return the command of the proxy in front of a server."""
    return [*setup.proxy(server=False), "--", *server]


def offline(setup: Setup) -> list[str]:
    """Return the command of a replay of the last run."""
    return setup.proxy("--run", "last", "--mode", "offline", server=False)


@pytest.fixture(scope="module")
def npm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs in the lock file."""
    return programs(tmp_path_factory.mktemp("npm"))


@pytest.mark.thorough
async def test_npms_servers(setup: Setup, npm: Path, tmp_path: Path, command: Commands):
    """Servers from npm answer equally from the record, and their files are unchanged."""
    room = tmp_path / "room"
    room.mkdir()
    written = {"path": str(room / "a.txt"), "content": "whales"}
    ada = {"name": "ada", "entityType": "person", "observations": ["reads"]}
    servers: dict[str, tuple[list[str], Callable[[Client], Any]]] = {
        "filesystem": (
            [str(npm / "mcp-server-filesystem"), str(room)],
            calling(
                ("write_file", written),
                ("read_text_file", {"path": written["path"]}),
                (
                    "edit_file",
                    {"path": written["path"], "edits": [{"oldText": "w", "newText": "W"}]},
                ),
                ("list_directory", {"path": str(room)}),
                ("read_text_file", {"path": "/etc/passwd"}),
            ),
        ),
        "memory": (
            [
                "env",
                f"MEMORY_FILE_PATH={tmp_path / 'memory.jsonl'}",
                str(npm / "mcp-server-memory"),
            ],
            calling(
                ("create_entities", {"entities": [ada]}),
                ("read_graph", {}),
                ("delete_entities", {"entityNames": ["ada"]}),
                ("read_graph", {}),
            ),
        ),
    }
    for name, (server, do) in servers.items():
        recorded = await ask(setup, through(setup, server), "legacy", do)
        assert await ask(setup, offline(setup), "legacy", do) == recorded, name
        steps = (await command("run", "trace", "last", "--json")).lines
        failed = [step["tool"] for step in steps if step["status"] == "failed"]
        assert failed == (["read_text_file"] if name == "filesystem" else []), name
    assert (room / "a.txt").read_text() == "Whales"


@pytest.mark.thorough
def test_the_inspector(setup: Setup, npm: Path):
    """The inspector's `--cli` prints the same through the proxy, from the record and directly."""
    inspector = [str(npm / "mcp-inspector"), "--cli"]
    options = ["--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=hi"]
    server = [str(npm / "mcp-server-everything")]

    where = [f"{name}={value}" for name, value in setup.env.items() if name.startswith("HANSARD_")]

    def printed(target: list[str]) -> Any:
        done = subprocess.run(
            [*inspector, "env", *where, *target, *options],
            stdout=subprocess.PIPE,
            check=True,
            timeout=PACKAGES_S_MAX,
        )
        return json.loads(done.stdout)

    direct = printed(server)
    assert direct["content"][0]["text"] == "Echo: hi"
    assert printed(through(setup, server)) == direct
    assert printed(offline(setup)) == direct
