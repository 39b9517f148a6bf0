"""Claude Code's hooks at the listener. The posted hooks were recorded from Claude Code 2.1.332."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import hansard
from hansard import settings
from hansard.client.listening import Address
from hansard.client.opening import find_broker
from hansard.ext.frameworks import claude
from hansard.ext.frameworks.claude_sessions import SessionStore
from hansard.service.http.app import listening
from tests.cli.support import Call
from tests.cli.test_up import up

pytestmark = pytest.mark.later

HOOKS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("claude_hooks.json").read_text(encoding="utf-8")
)
"""Hooks of a session with one prompt and one call of Bash, in order."""

PROMPT, INTENT, OUTCOME, STOP, END = HOOKS
SESSION: str = INTENT["session_id"]
ASK_S = 30.0


@contextlib.asynccontextmanager
async def posting(data_dir: Path, workspace: str) -> AsyncIterator[Any]:
    """Yield a function that posts hooks to a running listener and returns their answers."""
    config = settings.load(workspace=workspace, data_dir=data_dir)
    broker = await find_broker(config)
    try:
        async with (
            listening(config, broker, Address("127.0.0.1", 0)) as url,
            httpx2.AsyncClient(base_url=url, timeout=ASK_S) as http,
        ):

            async def post(hook: dict[str, Any], query: str = "", run: str = "") -> Any:
                headers = {claude.RUN_HEADER: run}
                answer = await http.post(f"{claude.PATH}{query}", json=hook, headers=headers)
                assert answer.status_code == httpx2.codes.OK, answer.text
                return answer.json()

            yield post
    finally:
        await broker.release()


def calls(data_dir: Path, workspace: str, columns: str) -> list[tuple[Any, ...]]:
    """Return columns of the recorded calls, in order."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        answer = record.sql(f"SELECT {columns} FROM steps ORDER BY agent, step")
        return [tuple(row) for row in answer.rows]


async def rows(data_dir: Path, workspace: str, columns: str) -> list[tuple[Any, ...]]:
    """Return `calls`, read in a thread."""
    return await asyncio.to_thread(calls, data_dir, workspace, columns)


async def test_a_session_is_a_run_and_hooks_posted_twice_count_once(
    data_dir: Path, workspace: str
) -> None:
    """A session's hooks, each posted twice, are one run with one call and two messages."""
    async with posting(data_dir, workspace) as post:
        for hook in (PROMPT, INTENT, OUTCOME, STOP):
            assert [*await asyncio.gather(post(hook), post(hook))] == [{}, {}]
        await post(END)
        await post(OUTCOME)  # late, after the run has ended
        await post(INTENT)
    columns = "tool, effects, status, call_id, arguments, result"
    [(tool, effects, status, call_id, arguments, result)] = await rows(data_dir, workspace, columns)
    assert (tool, effects, status, call_id) == ("Bash", "once", "completed", "toolu_1")
    assert json.loads(arguments) == INTENT["tool_input"]
    assert json.loads(result) == OUTCOME["tool_response"]
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        view = await record.workspace.points.view(SESSION)
    assert view.life.status == "completed"
    assert [getattr(each.fact, "role", "") for each in view.agents["claude"].facts] == [
        "user",
        "assistant",
    ]


async def test_a_denied_call_has_the_hooks_own_answer(data_dir: Path, workspace: str) -> None:
    """The gate's denial is the answer of the hook, and the call is blocked on record."""
    async with posting(data_dir, workspace) as post:
        answer = await post(INTENT, "?deny=Write,Ba*")
        await post(END)
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "denied" in answer["hookSpecificOutput"]["permissionDecisionReason"]
    assert await rows(data_dir, workspace, "tool, status") == [("Bash", "blocked")]


async def test_an_outcome_after_a_restart_of_the_listener_settles_its_call(
    data_dir: Path, workspace: str
) -> None:
    """A call that the restart left in doubt is settled by its late hook, once; the next is new."""
    async with posting(data_dir, workspace) as post:
        await post(PROMPT)
        await post(INTENT)
    assert await rows(data_dir, workspace, "status") == [("in_doubt",)]
    async with posting(data_dir, workspace) as post:
        await post(INTENT)
        await asyncio.gather(post(OUTCOME), post(OUTCOME))
        for hook in (INTENT, OUTCOME):
            await post(hook | {"tool_use_id": "toolu_9"})
        await post(END)
    columns = "agent, call_id, verdict, json_extract_string(result, '$.stdout')"
    [first, second] = await rows(data_dir, workspace, columns)
    assert first == ("claude", "toolu_1", "happened", "")
    assert second == ("claude-2", "toolu_9", None, "")


async def test_subagents_are_agents_and_parallel_calls_keep_their_outcomes(
    data_dir: Path, workspace: str
) -> None:
    """Calls under way at once get their own outcomes; a failed one fails; none is mixed up."""
    sub = {"agent_id": "a1", "agent_type": "Explore"}
    async with posting(data_dir, workspace) as post:
        await post(PROMPT | sub | {"hook_event_name": "SubagentStart"})
        named = [{"tool_use_id": f"toolu_{n}", "tool_input": {"command": str(n)}} for n in range(4)]
        await asyncio.gather(*(post(INTENT | each | sub) for each in named))
        for each in reversed(named[1:]):
            await post(OUTCOME | each | sub | {"tool_response": each["tool_use_id"]})
        failure = {"hook_event_name": "PostToolUseFailure", "error": "exit 1"}
        await post(INTENT | named[0] | sub | failure)
        await post(STOP | sub | {"hook_event_name": "SubagentStop"})
        await post(END)
    columns = "agent, role, status, call_id, coalesce(error, result::VARCHAR)"
    by_id = {row[3]: row for row in await rows(data_dir, workspace, columns)}
    assert by_id["toolu_0"][:3] == ("Explore-a1", "Explore", "failed")
    assert "exit 1" in by_id["toolu_0"][4]
    for n in range(1, 4):
        assert by_id[f"toolu_{n}"] == (
            "Explore-a1",
            "Explore",
            "completed",
            f"toolu_{n}",
            f'"toolu_{n}"',
        )


async def test_a_session_in_a_recorded_program_joins_its_run(
    data_dir: Path, workspace: str
) -> None:
    """The run that the environment names is the run of the hooks; an unposted outcome is doubt."""
    async with posting(data_dir, workspace) as post:
        await post(INTENT, "?pure=Nothing", run="night-shift")
        await post(END, run="night-shift")
        refused = {"agent_id": "x"}
        with pytest.raises(AssertionError, match="deni"):
            await post(INTENT | refused, "?deni=Bash")
    assert await rows(data_dir, workspace, "run, status") == [("night-shift", "in_doubt")]


async def test_a_session_store_keeps_transcripts_apart_and_stores_an_entry_once(
    data_dir: Path, workspace: str
) -> None:
    """Entries of two writers and a retry are stored once, and a deletion takes its subagents."""
    main = {"project_key": "shop", "session_id": "s1"}
    sub = main | {"subpath": "subagents/agent-1"}
    long = {"type": "user", "uuid": "long", "text": "x" * 3_000_000}
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        store, other = SessionStore(record), SessionStore(record, prefix="tenant/")
        entries = [{"type": "user", "uuid": str(n)} for n in range(20)]
        await asyncio.gather(*(store.append(main, entries[n : n + 5]) for n in range(16)))
        await store.append(main, [long, {"type": "title"}])
        await store.append(main, [long, {"type": "title"}])
        await store.append(sub, entries[:1])
        loaded = await store.load(main)
        assert loaded is not None
        assert sorted(each["uuid"] for each in loaded if each["type"] == "user") == sorted(
            [each["uuid"] for each in entries] + ["long"]
        )
        assert loaded.count({"type": "title"}) == 2  # no uuid: each is an entry of its own
        assert await store.list_subkeys(main) == ["subagents/agent-1"]
        assert [each["session_id"] for each in await store.list_sessions("shop")] == ["s1"]
        assert await other.list_sessions("shop") == []
        assert await other.load(main) is None
        await store.delete(main)
        assert await store.load(sub) is None
        assert await store.list_sessions("shop") == []
        await store.append(sub, entries[:1])
        assert await store.load(sub) == entries[:1]


def test_the_hooks_are_added_to_settings_beside_others_and_taken_back(
    call: Call, tmp_path: Path
) -> None:
    """A second install replaces the first; other hooks and settings stay as they are."""
    file = tmp_path / ".claude" / "settings.json"
    file.parent.mkdir()
    other = {"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}
    before = json.dumps({"model": "opus", "hooks": {"PreToolUse": [other]}}, indent=2) + "\n"
    file.write_text(before)
    words = ["mcp", "install", "claude", "--folder", tmp_path, "--hooks"]
    for url in ("http://127.0.0.1:1", "http://127.0.0.1:2/workspaces/lab/?deny=Bash"):
        assert call(*words, url, "--write", "--token-env", "TOKEN").code == 0
    settings = json.loads(file.read_text())
    first, ours = settings["hooks"]["PreToolUse"]
    assert first == other
    assert {*settings["hooks"]} == {*claude.EVENTS}
    assert ours["hooks"][0]["url"] == "http://127.0.0.1:2/workspaces/lab/hooks/claude?deny=Bash"
    assert ours["hooks"][0]["onFailure"] == "block"
    assert ours["hooks"][0]["headers"]["Authorization"] == "Bearer $TOKEN"
    assert call(*words, "http://127.0.0.1:2", "--undo", "--write").code == 0
    assert json.loads(file.read_text()) == json.loads(before)
    for wrong in ("http://127.0.0.1:2?denies=x", "nowhere"):
        assert call(*words, wrong).code == 2
    assert call("mcp", "install", "cursor", "--hooks", "http://127.0.0.1:2").code == 2


async def test_a_call_waits_for_its_approval_or_is_called_again(
    data_dir: Path, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An approved call may run; one that waited too long is denied, and its repetition may run."""
    monkeypatch.setattr(claude, "DECIDED_S", 1.0)
    async with (
        posting(data_dir, workspace) as post,
        hansard.connect_async(workspace, data_dir=data_dir) as record,
    ):
        denied = await post(INTENT, "?ask_first=Bash")
        reason = denied["hookSpecificOutput"]["permissionDecisionReason"]
        [waiting] = await record.approvals.list()
        assert waiting.approval.id in reason
        await record.approvals.grant(waiting.approval.id)
        again = {"tool_use_id": "toolu_2"}
        assert await post(INTENT | again, "?ask_first=Bash") == {}
        await post(OUTCOME | again)
        await post(END)
    assert ("completed", "toolu_2") in await rows(data_dir, workspace, "status, call_id")


@pytest.mark.thorough(quick="test_an_outcome_after_a_restart_of_the_listener_settles_its_call")
def test_a_killed_listener_leaves_a_doubt_that_the_late_outcome_settles(
    data_dir: Path, workspace: str
) -> None:
    """After SIGKILL between a call's hooks the call is on record once, with its outcome."""
    for hook, settled in ((INTENT, None), (OUTCOME, "happened")):
        with up(
            data_dir, "--json", "--http", "127.0.0.1:0", HANSARD_WORKSPACE=workspace
        ) as listener:
            assert listener.stdout is not None
            url = json.loads(listener.stdout.readline())["http"]
            answer = httpx2.post(f"{url}{claude.PATH}", json=hook, timeout=ASK_S)
            assert answer.json() == {}
            listener.kill()
        [row] = calls(data_dir, workspace, "tool, verdict, call_id")
        assert row == ("Bash", settled, "toolu_1")


async def test_what_is_no_hook_is_refused_and_leaves_nothing(
    data_dir: Path, workspace: str
) -> None:
    """Other bodies, a tool without a name and unknown events are answered, and make no call."""
    bodies: list[Any] = [[], {"hook_event_name": "PreToolUse"}, INTENT | {"tool_name": ""}]
    async with posting(data_dir, workspace) as post:
        for body in bodies:
            for _ in range(2):
                with pytest.raises(AssertionError, match="remedy"):
                    await post(body)
        assert await post(STOP | {"hook_event_name": "Notification"}) == {}
        await post(END)
    assert await rows(data_dir, workspace, "tool") == []
