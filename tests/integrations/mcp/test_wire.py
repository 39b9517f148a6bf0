"""The record and the forwarded bytes equal those on the wire."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.mcp.http_tee import Exchange, Message, Tee, teed
from tests.integrations.mcp.support import (
    PACKAGES_S_MAX,
    TOGETHER,
    Commands,
    Setup,
    ask,
    everything,
    programs,
)
from tests.integrations.mcp.test_http import listening
from tests.integrations.mcp.test_http_clients import asks, port
from tests.integrations.mcp.test_others import calling

pytestmark = pytest.mark.slow

if TYPE_CHECKING:  # see the support's
    from mcp import Client

TEE = Path(__file__).with_name("programs") / "tee.py"
GIT = Path(__file__).with_name("git.txt")
OWN = "hansard-"
"""Prefix of the proxy's own request ids."""

ERAS = ("2026-07-28", "legacy")


def tee(folder: Path, name: str, command: list[str]) -> list[str]:
    """Return a command behind a tee."""
    return [sys.executable, str(TEE), str(folder), name, *command]


def lines_of(file: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """Return the lines of a file and their content, without the proxy's own."""
    lines = [(line, json.loads(line)) for line in file.read_bytes().splitlines()]
    return [each for each in lines if not str(each[1].get("id", "")).startswith(OWN)]


async def check_wire(
    setup: Setup,
    command: Commands,
    folder: Path,
    server: list[str],
    do: Callable[[Client], Any],
    era: str,
) -> Any:
    """Compare both sides of the proxy and the record; return what the client got."""
    proxy = [*setup.proxy(server=False), "--", *tee(folder, "server", server)]
    got = await ask(setup, tee(folder, "client", proxy), era, do)
    for way in ("in", "out"):
        client, other = lines_of(folder / f"client.{way}"), lines_of(folder / f"server.{way}")
        assert Counter(line for line, _ in client) == Counter(line for line, _ in other)
    calls = {
        frame["id"]: frame["params"]
        for _, frame in lines_of(folder / "server.in")
        if frame.get("method") == "tools/call"
    }
    on_wire = [
        (calls[frame["id"]]["name"], calls[frame["id"]].get("arguments", {}), frame["result"])
        for _, frame in lines_of(folder / "server.out")
        if frame.get("id") in calls and "method" not in frame
    ]
    assert on_wire
    check_steps((await command("run", "trace", "last", "--json")).lines, on_wire)
    return got


def check_steps(
    steps: list[dict[str, Any]], on_wire: list[tuple[str, dict[str, Any], dict[str, Any] | None]]
) -> None:
    """Compare the recorded calls with those on the wire; a result of None is an error."""
    recorded = [
        (step["tool"], step["arguments"], step.get("result"), step["status"])
        for step in steps
        if not step["tool"].startswith("mcp:")
    ]
    assert len(recorded) == len(on_wire)
    for tool, arguments, result in on_wire:
        status = "failed" if result is None or result.get("isError") else "completed"
        kept = result if status == "completed" else None
        mine = [
            each
            for each in recorded
            if each[0] == tool
            and own_arguments(each[1]) == arguments
            and each[2:] == (kept, status)
        ]
        assert mine, (tool, arguments, result)
        recorded.remove(mine[0])


def check_http(before: Tee, behind: Tee, steps: list[dict[str, Any]]) -> int:
    """Compare both sides of an HTTP proxy and the record; return the number of calls."""
    requests, passed = (_counted(tee, lambda each: each.request) for tee in (before, behind))
    refused = {
        json.dumps(frame, sort_keys=True)
        for each in before.exchanges
        for frame in each.request.frames
        if each.response is not None and each.response.first.split()[1].startswith("4")
    }
    assert not passed - requests  # the proxy's own requests have other ids
    assert set(requests - passed) <= refused
    heard, answers = (_counted(tee, lambda each: each.response) for tee in (before, behind))
    own = {key for key in heard - answers if "error" in json.loads(key)}
    assert set(heard - answers) <= own
    assert list(answers - heard - _unheard(before, behind)) == []
    on_wire = calls_of(behind)
    check_steps(steps, on_wire)
    return len(on_wire)


def _counted(tee: Tee, side: Callable[[Exchange], Message | None]) -> Counter[str]:
    """Return the frames of one side, without those of the proxy's own requests."""
    frames: Counter[str] = Counter()
    for each in tee.exchanges:
        message = side(each)
        for frame in [] if message is None else message.frames:
            if not str(frame.get("id", "")).startswith(OWN):
                frames[json.dumps(frame, sort_keys=True)] += 1
    return frames


def _unheard(before: Tee, behind: Tee) -> Counter[str]:
    """Return how much a server sent on streams that their clients gave up."""
    asked_for, asked_on = before.exchanges, behind.exchanges
    taken_up = {each.request.headers.get("last-event-id") for each in asked_for}
    frames: Counter[str] = Counter()
    for each in asked_for:
        ids = [] if each.response is None else each.response.event_ids
        if not each.is_left and (not ids or taken_up.intersection(ids)):
            continue
        for request in each.request.frames:
            heard = _stream(asked_for, each)
            if "id" not in request or any(_answers(frame, request) for frame in heard):
                continue
            streams = [
                stream
                for other in asked_on
                if other.session == each.session and request in other.request.frames
                for stream in [_stream(asked_on, other)]
                if stream[: len(heard)] == heard
            ]
            assert streams, (request, heard)
            frames.update(json.dumps(frame, sort_keys=True) for frame in streams[0][len(heard) :])
    return frames


def _stream(exchanges: list[Exchange], began: Exchange) -> list[dict[str, Any]]:
    """Return the frames on a request's stream and on its resumed streams, in order."""
    ids: set[str | None] = set()
    frames: list[dict[str, Any]] = []
    others = [each for each in exchanges if each is not began]
    now: Exchange | None = began
    while now is not None:
        if now.response is not None:
            ids.update(now.response.event_ids)
            frames += now.response.frames
        now = next(
            (each for each in others if each.request.headers.get("last-event-id") in ids), None
        )
        others = [each for each in others if each is not now]
    return frames


def _answers(frame: dict[str, Any], request: dict[str, Any]) -> bool:
    return "method" not in frame and frame.get("id") == request.get("id")


def calls_of(tee: Tee) -> list[tuple[str, dict[str, Any], dict[str, Any] | None]]:
    """Return the calls that passed, each with its result from any stream of its session."""
    exchanges = tee.exchanges
    calls = []
    for each in exchanges:
        for request in each.request.frames:
            if request.get("method") != "tools/call":
                continue
            near = [] if each.response is None else each.response.frames
            far = [
                frame
                for other in exchanges
                if each.session and other.session == each.session and other.response is not None
                for frame in other.response.frames
            ]
            answer = next(
                candidate
                for candidate in (*near, *far)
                if candidate.get("id") == request["id"] and "method" not in candidate
            )
            params = request["params"]
            calls.append((params["name"], params.get("arguments") or {}, answer.get("result")))
    return calls


def own_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the tool itself: what else a call of 2026 holds has names of its own."""
    return {name: value for name, value in arguments.items() if not name.startswith("mcp:")}


@pytest.mark.thorough(quick="test_the_record_is_the_wire_over_http")
@pytest.mark.parametrize("era", ERAS)
async def test_the_record_is_the_wire(setup: Setup, command: Commands, tmp_path: Path, era: str):
    """The record equals the wire for each kind of request, in both eras."""
    await check_wire(setup, command, tmp_path, setup.server, everything, era)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("era", ERAS)
async def test_the_record_is_the_wire_over_http(setup: Setup, command: Commands, era: str):
    """The record equals the wire on both sides of the proxy's port, and again offline."""
    async with (
        listening(setup) as (url, _),
        teed(url) as behind,
        port(setup, "--url", behind.url) as (front, _),
        teed(front) as before,
    ):
        recorded = await asks(before.url, era, everything)
    steps = (await command("run", "trace", "last", "--json")).lines
    assert check_http(before, behind, steps) >= 6 + TOGETHER
    (run,) = (await command("runs", "--json")).lines
    assert run["labels"]["mcp_server"] == behind.url.split("/")[2]
    effects = setup.effects()
    async with port(setup, "--run", "last", "--mode", "offline") as (front, _):
        assert await asks(front, era, everything) == recorded
    assert setup.effects() == effects


@pytest.mark.thorough(quick="test_the_record_is_the_wire_over_http")
async def test_the_record_is_the_wire_of_other_peoples_servers(setup, command, tmp_path):
    """Two foreign servers: the record is the wire, and git's commit is made once."""
    everything_server = [str(programs(tmp_path) / "mcp-server-everything")]
    do = calling(
        ("echo", {"message": "\u2603 \u0001 \\"}),
        ("get-sum", {"a": 2, "b": 40.5}),
        ("get-tiny-image", {}),
        ("get-structured-content", {"location": "New York"}),
        ("trigger-long-running-operation", {"duration": 1, "steps": 3}),
    )
    (tmp_path / "1").mkdir()
    await check_wire(setup, command, tmp_path / "1", everything_server, do, "legacy")

    repository = tmp_path / "repository"
    git = git_server(tmp_path / "git", repository)
    for era in ERAS:
        folder = tmp_path / era
        folder.mkdir()
        (repository / f"{era}.txt").write_text("whales")
        where = {"repo_path": str(repository)}
        do = calling(
            ("git_status", where),
            ("git_add", where | {"files": [f"{era}.txt"]}),
            ("git_commit", where | {"message": f"whales of {era}"}),
            ("git_log", where | {"max_count": 1}),
            ("git_show", where | {"revision": "nothing"}),
        )
        recorded = await check_wire(setup, command, folder, git, do, era)
        offline = setup.proxy("--run", "last", "--mode", "offline", server=False)
        assert await ask(setup, offline, era, do) == recorded
        assert f"whales of {era}" in recorded[4]["content"][0]["text"]
    assert commits(repository) == [*(f"whales of {era}" for era in reversed(ERAS)), "first"]


def commits(repository: Path) -> list[str]:
    """Return the messages of a repository's commits, the newest first."""
    command = ["git", "-C", str(repository), "log", "--format=%s"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def git_server(folder: Path, repository: Path) -> list[str]:
    """Return the command of mcp-server-git for a repository with one commit."""
    options = ["--no-deps", "--require-hashes", "--requirement", str(GIT), "--target", str(folder)]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *options],
        check=True,
        timeout=PACKAGES_S_MAX,
    )
    run = ["git", "-C", str(repository)]
    repository.mkdir()
    subprocess.run([*run, "init", "--quiet"], check=True)
    for name, value in (("user.name", "ada"), ("user.email", "ada@example.com")):
        subprocess.run([*run, "config", name, value], check=True)
    subprocess.run([*run, "commit", "--quiet", "--allow-empty", "-m", "first"], check=True)
    module = [sys.executable, "-m", "mcp_server_git", "--repository", str(repository)]
    return ["env", f"PYTHONPATH={folder}", *module]
