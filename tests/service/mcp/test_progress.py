"""Progress notifications of long calls to their caller."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.integrations.mcp.support import WAIT_S, Setup
from tests.late import LATE
from tests.service.mcp.test_http import TOKEN, asking, serving
from tests.service.mcp.test_serve import Team, sdk

if LATE:
    from hansard.service.mcp import server as progress


pytestmark = pytest.mark.slow


class Heard:
    """Notifications that a client received about its calls."""

    def __init__(self, team: Team) -> None:
        self.client: Any = team.client
        self.something = asyncio.Event()
        self.words: list[tuple[float, float | None, str | None]] = []

    async def note(self, done: float, total: float | None, message: str | None) -> None:
        """Note one call's progress."""
        self.words.append((done, total, message))
        self.something.set()

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Return a tool's result."""
        return await self.client.call_tool(tool, arguments, progress_callback=self.note)


@pytest.mark.thorough(quick="test_a_wait_for_a_person_names_the_command")
@pytest.mark.parametrize(
    ("transport", "mode"),
    [
        ("http", "auto"),
        pytest.param("stdio", "legacy", marks=pytest.mark.thorough),
        pytest.param("stdio", "auto", marks=pytest.mark.thorough),
        pytest.param("http", "legacy", marks=pytest.mark.thorough),
    ],
)
async def test_a_long_wait_is_reported_with_its_cause(
    setup: Setup, tmp_path: Path, transport: str, mode: str
):
    """A long wait is reported after a second, then less often; a quick call is not."""
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            opened = sdk(setup, "rob", mode)
        else:
            url, _ = await stack.enter_async_context(serving(setup, tmp_path, agent="rob"))
            opened = asking(url, TOKEN, mode)
        heard = Heard(await stack.enter_async_context(opened))
        run = (await heard.call("start_run")).structured_content["result"]["run_id"]
        await heard.call("board_put", run_id=run, key="findings/1", value=1)
        assert heard.words == []
        wait = {"run_id": run, "key": "findings/2", "timeout_s": 3.5}
        assert (await heard.call("team_wait_for", **wait)).structured_content == {"result": False}
        passed = [done for done, _, _ in heard.words]
        assert 1 <= len(passed) <= 2
        assert passed == sorted(set(passed))
        assert passed[0] >= progress.FIRST_S
        assert {(total, what) for _, total, what in heard.words} == {
            (3.5, "waiting for key 'findings/2'")
        }


async def test_a_wait_for_a_person_names_the_command(data_dir: Path, workspace: str):
    """A caller that waits for a person receives the call and the question's id."""
    from mcp import Client  # noqa: PLC0415 -- it is an extra that may be missing

    from hansard.service.mcp.offers import Sessions  # noqa: PLC0415 -- as the server's
    from hansard.service.mcp.server import serving as server_of  # noqa: PLC0415 -- as its own import

    async with hansard.connect_async(
        workspace, data_dir=data_dir, gate=[hansard.ask_first("send_mail", timeout_s=WAIT_S)]
    ) as record:
        sessions = Sessions(record, "ada", "ada")
        server, _ = server_of(sessions)
        async with Client(server, mode="legacy") as client:
            heard = Heard(Team(client))
            run = (await heard.call("start_run")).structured_content["result"]["run_id"]
            sent = asyncio.create_task(heard.call("record_step", run_id=run, tool="send_mail"))
            async with asyncio.timeout(WAIT_S):
                await heard.something.wait()
            (question,) = await record.approvals.list()
            await record.approvals.grant(question.approval.id, reason="read it")
            assert not (await sent).is_error
        await sessions.close()
    expected = f"send_mail waits for a person: hansard approvals grant {question.approval.id}"
    assert {what for _, _, what in heard.words} == {expected}
