"""Clients' configuration files: other entries are kept, and an installation can be undone."""

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from hansard.ext.mcp.install import CLIENTS, parse
from tests.cli.support import Call

BY_URL = [name for name, each in CLIENTS.items() if each.takes_url]
SERVERS: dict[str, Any] = {
    "time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"TZ": "UTC"}},
    "plain": {"command": "files"},
    "far": {"type": "http", "url": "http://127.0.0.1:1/mcp"},
}


def written(folder: Path, client: str, indent: int | str = 2) -> Path:
    """Write a client's file as its documentation shows it."""
    kind = CLIENTS[client]
    path = kind.path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    typed = {"type": "stdio"} if kind.typed else {}
    servers = {name: typed | each for name, each in SERVERS.items()}
    document = {"inputs": [{"id": "k\u00e9y"}], kind.servers: servers, "more": {"of": "yours"}}
    path.write_text(json.dumps(document, indent=indent, ensure_ascii=False) + "\n")
    return path


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("indent", [2, 4, "\t"])
def test_a_server_is_put_behind_the_proxy_and_back(
    call: Call, tmp_path: Path, data_dir: Path, workspace: str, client: str, indent: int | str
):
    """Installing and undoing is byte-exact; installing twice changes nothing more."""
    path = written(tmp_path, client, indent)
    before = path.read_text()
    servers = CLIENTS[client].servers
    for name in ("time", "plain"):
        here = ["--folder", tmp_path, "--write"]
        assert call("mcp", "install", client, name, *here, "--agent", "ada").code == 0
        document = json.loads(path.read_text())
        args = document[servers][name]["args"]
        behind = [SERVERS[name]["command"], *SERVERS[name].get("args", [])]
        assert args[args.index("--") + 1 :] == behind
        assert args[args.index("mcp") : args.index("--")] == [
            *("mcp", "proxy", "--workflow", name, "--agent", "ada")
        ]
        assert str(data_dir) in args
        assert workspace in args
        assert document[servers]["far"]["url"] == SERVERS["far"]["url"]
        after = path.read_text()
        assert "nothing to do" in call("mcp", "install", client, name, *here).err
        assert path.read_text() == after
        assert call("mcp", "install", client, name, *here, "--undo").code == 0
        assert path.read_text() == before


@pytest.mark.parametrize("client", CLIENTS)
def test_the_record_is_added_and_taken_out(call: Call, tmp_path: Path, client: str):
    """The record is added to a new or existing file and removed; only --write changes files."""
    kind = CLIENTS[client]
    path = kind.path(tmp_path)
    shown = call("mcp", "install", client, "--folder", tmp_path)
    assert shown.code == 0
    assert not path.exists()
    assert "add --write" in shown.err
    assert call("mcp", "install", client, "--folder", tmp_path, "--write").code == 0
    assert path.read_text() == shown.out
    entry = json.loads(shown.out)[kind.servers]["hansard"]
    assert entry["args"][-2:] == ["mcp", "serve"]
    assert ("type" in entry) == kind.typed
    path.unlink()
    before = written(tmp_path, client).read_text()
    assert call("mcp", "install", client, "--folder", tmp_path, "--write").code == 0
    (line,) = call(
        "mcp", "install", client, "--folder", tmp_path, "--undo", "--write", "--json"
    ).lines
    assert line["changes"] is True
    assert path.read_text() == before


COMMENTED = """// of the team
{
    "servers": { // all of them
        "time": {
            "command": "uvx", /* fast */
            "args": ["mcp-server-time"],
        },
    },
    "more": [1,
             2], // yours
}
"""


def test_comments_layout_and_mode_are_kept_and_the_former_file_too(call: Call, tmp_path: Path):
    """Comments, layout and mode survive, and undoing restores the former file."""
    path = tmp_path / ".vscode" / "mcp.json"
    path.parent.mkdir()
    path.write_text(COMMENTED)
    path.chmod(0o664)
    for name in ([], ["time"]):
        here = [*name, "--folder", tmp_path, "--write"]
        assert call("mcp", "install", "vscode", *here).code == 0
        text = path.read_text()
        for kept in (
            "// of the team",
            "// all of them",
            "/* fast */",
            "1,\n             2], // yours",
        ):
            assert kept in text
        assert stat.S_IMODE(path.stat().st_mode) == 0o664
        assert path.with_name("mcp.json.bak").read_text() == COMMENTED
        assert call("mcp", "install", "vscode", *here, "--undo").code == 0
        undone = path.read_text()
        assert parse(undone) == parse(COMMENTED)
        path.write_text(COMMENTED)


@pytest.mark.parametrize(
    ("client", "file"),
    [
        ("claude", ".claude.json"),
        ("claude-desktop", ".config/Claude/claude_desktop_config.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".config/Code/User/mcp.json"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="where programs keep settings differs")
def test_the_users_own_configuration_can_be_changed(call, tmp_path, client, file):
    """--user changes the user's configuration; Claude Desktop has no other, and no addresses."""
    options = [] if client == "claude-desktop" else ["--user"]
    assert call("mcp", "install", client, *options, "--write").code == 0
    document = json.loads((tmp_path / "home" / file).read_text())
    assert "hansard" in document[CLIENTS[client].servers]
    if client == "claude-desktop":
        refused = call("mcp", "install", client, "--url", "http://127.0.0.1:1/mcp")
        assert "names only commands" in refused.err


OF_A_TOKEN = {
    "claude": "Bearer ${PAPERS}",
    "cursor": "Bearer ${env:PAPERS}",
    "vscode": "Bearer ${input:papers}",
}
"""Notation for a secret in a header, from each client's documentation."""


@pytest.mark.parametrize("client", BY_URL)
def test_a_server_at_an_address_is_put_behind_the_proxy_and_back(call, tmp_path, client):
    """A server at an address is put behind the proxy, without secrets, and back unchanged."""
    kind = CLIENTS[client]
    path = kind.path(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    far = {"url": "https://x.example/mcp", "headers": {"Authorization": OF_A_TOKEN[client]}}
    far |= {"note": "kept"} if client == "cursor" else {}
    typed = {"type": "http"} if kind.typed_url else {}
    path.write_text(json.dumps({kind.servers: {"far": typed | far}}, indent=2) + "\n")
    before = path.read_text()
    here = ["--folder", tmp_path, "--write"]
    assert call("mcp", "install", client, "far", *here).code == 0
    entry = json.loads(path.read_text())[kind.servers]["far"]
    assert entry["env"] == {"HANSARD_HEADER_AUTHORIZATION": OF_A_TOKEN[client]}
    assert OF_A_TOKEN[client] not in entry["args"]
    assert ("type" in entry, entry.get("type", "stdio")) == (kind.typed_url, "stdio")
    args = entry["args"][entry["args"].index("mcp") :]
    refused = call(*args, "--http", "0", "--", "true")  # the options are its own
    assert "HANSARD_HEADER_AUTHORIZATION' is not set" in refused.err
    after = path.read_text()
    assert "nothing to do" in call("mcp", "install", client, "far", *here).err
    assert path.read_text() == after
    assert call("mcp", "install", client, "far", *here, "--undo").code == 0
    assert path.read_text() == before


@pytest.mark.parametrize("client", BY_URL)
def test_the_record_at_an_address_is_added_and_taken_out(call: Call, tmp_path: Path, client: str):
    """The token is written as the client's documentation has it; VS Code asks the user for it."""
    kind = CLIENTS[client]
    before = written(tmp_path, client).read_text()
    path = kind.path(tmp_path)
    here = ["--folder", tmp_path, "--write"]
    at = ["--url", "http://127.0.0.1:8931/mcp", "--token-env", "PAPERS"]
    for _ in range(2):
        assert call("mcp", "install", client, *here, *at).code == 0
    document = json.loads(path.read_text())
    entry = document[kind.servers]["hansard"]
    expected = OF_A_TOKEN[client].replace("input:papers", "input:hansard-token")
    assert entry.pop("headers") == {"Authorization": expected}
    assert entry == ({"type": "http"} if kind.typed_url else {}) | {"url": at[1]}
    inputs = [each for each in document["inputs"] if each["id"] == "hansard-token"]
    assert len(inputs) == (client == "vscode")
    assert all(each["password"] is True for each in inputs)
    assert call("mcp", "install", client, *here, "--undo").code == 0
    assert path.read_text() == before
    for wrong in (["--url", "ftp://x"], ["--token-env", "X"], ["far", "--url", at[1]]):
        assert call("mcp", "install", client, "--folder", tmp_path, *wrong).code == 2


@pytest.mark.parametrize(
    ("text", "name", "fact"),
    [
        ("{ // mine\n", "time", "is not JSON"),
        ("[]", "time", "holds a list"),
        ('{"mcpServers": []}', "time", "is a list"),
        ('{"mcpServers": {"time": {"command": "x"}}}', "tiem", "did you mean 'time'?"),
        ('{"mcpServers": {"time": {"type": "sse", "url": "x"}}}', "time", "HTTP+SSE"),
        (
            '{"mcpServers": {"time": {"type": "sse", "url": "x"}}}',
            "time",
            "streamable HTTP address",
        ),
        ('{"mcpServers": {"time": {"url": "x", "oauth": {}}}}', "time", "logs in by oauth"),
        ('{"mcpServers": {"time": {"url": "x", "headers": {"a": 1}}}}', "time", "its headers are"),
        ('{"mcpServers": {"time": 7}}', "time", "no command"),
    ],
)
def test_a_file_that_is_not_understood_is_left_alone(call, tmp_path, text, name, fact):
    """The error of an invalid file names the fault."""
    path = tmp_path / ".mcp.json"
    path.write_text(text)
    for more in ([],) if '"url"' in text else ([], ["--undo"]):
        result = call("mcp", "install", "claude", name, "--folder", tmp_path, "--write", *more)
        assert result.code == 2
        assert fact in result.err
    assert path.read_text() == text
