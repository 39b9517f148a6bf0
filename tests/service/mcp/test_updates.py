"""Update notifications: a client learns to read its watched resources again, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.broker import access
from tests.integrations.mcp.support import WAIT_S, Setup, wire
from tests.late import LATE
from tests.service.mcp.test_http import TOKEN, asking, serving
from tests.service.mcp.test_serve import ROLES, SECRET, Team, command, sdk

if LATE:
    from hansard.service.mcp import resources


pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed"),
]

SILENCE_S = 1.0
"""Seconds without further notifications after the expected one."""


class Watcher:
    """A client that watches addresses, in either era."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.team: Team
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def options(self) -> dict[str, Any]:
        """Options of its client."""
        return {"message_handler": self._hear} if self.mode == "legacy" else {}

    async def _hear(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            self.heard.put_nowait(str(message.params.uri))

    async def watch(self, *uris: str) -> None:
        """From now on. Raises MCPError."""
        client: Any = self.team.client
        if self.mode == "legacy":
            for uri in uris:
                await client.subscribe_resource(uri)
            return
        stream = await self._stack.enter_async_context(client.listen(resource_subscriptions=uris))
        assert set(stream.honored.resource_subscriptions) == set(uris)
        self._tasks.append(asyncio.create_task(self._listen(stream)))

    async def _listen(self, stream: Any) -> None:
        async for event in stream:
            self.heard.put_nowait(event.uri)

    async def leave(self, *uris: str) -> None:
        """Watch nothing any more."""
        client: Any = self.team.client
        if self.mode == "legacy":
            for uri in uris:
                await client.unsubscribe_resource(uri)
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        await self._stack.aclose()

    async def notified(self, *uris: str) -> None:
        """Wait until each of these addresses was notified, and no other."""
        pending = set(uris)
        async with asyncio.timeout(WAIT_S):
            while pending:
                heard = await self.heard.get()
                assert heard in uris
                pending.discard(heard)

    async def silent(self) -> None:
        """Check that no notification arrives."""
        await asyncio.sleep(SILENCE_S)
        assert self.heard.empty(), self.heard.get_nowait()


@asynccontextmanager
async def watching(
    setup: Setup, folder: Path, transport: str, mode: str, role: str = "reader"
) -> AsyncIterator[Watcher]:
    """Yield rob as a watcher."""
    made = Watcher(mode)
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            client = sdk(setup, "rob", mode, "--role", role, **made.options)
        else:
            opened = serving(setup, folder, agent="rob", role=role)
            url, _ = await stack.enter_async_context(opened)
            client = asking(url, TOKEN, mode, **made.options)
        made.team = await stack.enter_async_context(client)
        try:
            yield made
        finally:
            await made.leave()


@asynccontextmanager
async def other(setup: Setup, run: str | None = None) -> AsyncIterator[hansard.AsyncSession]:
    """Ada, in another process than the server."""
    file = setup.sent.with_name("roles.toml")
    file.write_text(ROLES)
    async with hansard.connect_async(setup.workspace, data_dir=setup.data_dir) as record:
        await record.roles.apply_file(file)
        async with record.run("papers", run=run, agent="ada", role="ada") as ada:
            yield ada


@pytest.mark.thorough(quick="test_a_restricted_agent_is_notified_of_what_it_is_shown")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_watcher_is_notified_of_another_process_s_changes(setup, tmp_path, transport, mode):
    """A watcher learns of changes to what it watches and sees, and of nothing else."""
    async with other(setup) as ada, watching(setup, tmp_path, transport, mode) as rob:
        whole = [f"run://{ada.run}/trace", f"run://{ada.run}/state"]
        view, entry = f"run://{ada.run}/view", f"board://{ada.run}/findings/1"
        await rob.watch(view, entry, *whole)  # its session in the run begins with the first
        async with other(setup) as elsewhere:
            await elsewhere.board.put("findings/1", "squids")
        await rob.silent()
        await ada.board.put("plans/secret", SECRET)
        await rob.notified(*whole)
        await ada.board.put("findings/1", "whales")
        await rob.notified(*whole, view, entry)
        await rob.silent()
        client: Any = rob.team.client
        for uri in (*whole, view, entry):
            assert (await client.read_resource(uri)).contents
        assert await rob.team.get("board_keys", run_id=ada.run) == ["findings/1"]
        await rob.silent()
        await rob.leave(*whole, view, entry)
        await ada.board.put("findings/1", "krill")
        await rob.silent()


@pytest.mark.thorough(quick="test_a_restricted_agent_is_notified_of_what_it_is_shown")
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_what_cannot_be_watched_is_refused_in_the_words_of_reading(setup, tmp_path, mode):
    """Bad addresses, unseen keys and too many subscriptions are refused as reads are."""
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415 -- it is an extra that may be missing

    async with other(setup) as ada, watching(setup, tmp_path, "stdio", mode) as rob:
        client: Any = rob.team.client
        for uri, fact in (
            ("run://nobody/trace", None),
            ("run://nobody/view", None),
            (f"board://{ada.run}/plans/secret", None),
            (f"run://{ada.run}/nothing", None),
            (f"run://{ada.run}/state?at=ada@2", "does not change"),
            (f"decision://{ada.run}", "does not change"),
        ):
            with pytest.raises(MCPError) as refused:
                await rob.watch(uri)
            if fact is None:
                with pytest.raises(MCPError) as unread:
                    await client.read_resource(uri)
                assert str(refused.value) == str(unread.value)
            else:
                assert fact in str(refused.value)
        most = [f"board://{ada.run}/findings/{number}" for number in range(resources.WATCHED_MAX)]
        await rob.watch(*most)
        with pytest.raises(MCPError, match=f"holds {resources.WATCHED_MAX} subscriptions"):
            await rob.watch(f"run://{ada.run}/trace")
        await rob.leave(*most)
        await rob.watch(f"run://{ada.run}/trace")
        await ada.board.put("findings/1", 1)
        await rob.notified(f"run://{ada.run}/trace")


@pytest.mark.thorough(quick="test_a_restricted_agent_is_notified_of_what_it_is_shown")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_much_at_once_is_little_word(setup: Setup, tmp_path: Path, mode: str):
    """200 changes give few notifications, the last of them after the last change."""
    async with other(setup) as ada, watching(setup, tmp_path, "stdio", mode) as rob:
        uri = f"board://{ada.run}/findings/1"
        await rob.watch(uri)
        began_s = time.monotonic()
        for number in range(200):
            await ada.board.put("findings/1", number)
        took_s = time.monotonic() - began_s
        await rob.notified(uri)
        cues = 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                while True:
                    await rob.heard.get()
                    cues += 1
        assert cues <= 2 + (took_s + SILENCE_S) / resources.QUIET_S
        assert (await rob.team.get("board_entry", run_id=ada.run, key="findings/1"))["value"] == 199


async def test_a_restricted_agent_is_notified_of_what_it_is_shown(
    setup, house, tmp_path, monkeypatch
):
    """A finding notifies a restricted watcher; a secret and a hidden run do not."""
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415 -- it is an extra that may be missing

    await asyncio.to_thread(house.apply, ROLES)
    login = await asyncio.to_thread(house.login, "rob", "reader")
    home = Setup(house.data_dir, house.workspace, setup.sent)
    file = tmp_path / "elsewhere.json"
    file.write_bytes(login.read_bytes())
    file.chmod(0o600)
    token = access.load(file).token
    async with AsyncExitStack() as stack:
        ada = await stack.enter_async_context(other(home))
        hidden = await stack.enter_async_context(other(home))
        await ada.board.put("findings/1", "whales")
        await hidden.board.put("plans/secret", SECRET)
        url, _ = await stack.enter_async_context(serving(home, tmp_path))
        rob = Watcher("auto")
        rob.team = await stack.enter_async_context(asking(url, token, "auto"))
        stack.push_async_callback(rob.leave)
        for run in (hidden.run, "nobody"):
            for path in ("view", "trace"):
                with pytest.raises(MCPError) as refused:
                    await rob.watch(f"run://{run}/{path}")
                assert (
                    str(refused.value).replace(run, "RUN")
                    == {
                        "view": str(refused.value).replace(run, "RUN"),
                        "trace": str(refused.value),
                    }[path]
                )
        uris = [f"run://{ada.run}/view", f"board://{ada.run}/findings/1"]
        await rob.watch(*uris)
        await ada.board.put("plans/secret", SECRET)
        await asyncio.sleep(resources.POLL_S_MIN * (1 + resources.POLL_GROWTH))
        await rob.silent()
        await ada.board.put("findings/1", "krill")
        await rob.notified(*uris)


@pytest.mark.thorough(quick="test_a_restricted_agent_is_notified_of_what_it_is_shown")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_who_has_left_watches_no_more(setup: Setup, tmp_path: Path, mode: str):
    """The watches of a closed connection are free for the client's next one."""
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415 -- it is an extra that may be missing

    async with other(setup) as ada, serving(setup, tmp_path, agent="rob") as (url, _):
        most = [f"board://{ada.run}/findings/{number}" for number in range(resources.WATCHED_MAX)]
        for _ in range(2):
            rob = Watcher(mode)
            async with asking(url, TOKEN, mode, **rob.options) as rob.team, asyncio.timeout(WAIT_S):
                while True:
                    try:
                        await rob.watch(*most)
                        break
                    except MCPError:  # that the one before has left is noticed a moment later
                        await asyncio.sleep(0.05)
                await ada.board.put("findings/1", "whales")
                await rob.notified(f"board://{ada.run}/findings/1")
                await rob.silent()
                assert rob.heard.empty()  # its own 100 readings were no news to it
                if mode == "auto":
                    await rob.leave()


async def test_no_list_notifies(setup: Setup):
    """Both eras declare no list changes, and honor none."""
    new = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    capabilities: list[dict[str, Any]] = []
    async with wire(setup, command("ada")) as older:
        capabilities.append((await older.greet())["result"]["capabilities"])
    async with wire(setup, command("ada")) as newer:
        capabilities.append(
            (await newer.ask("server/discover", _meta=new))["result"]["capabilities"]
        )
        notifications = {f"{each}ListChanged": True for each in ("tools", "prompts", "resources")}
        await newer.begin("subscriptions/listen", notifications=notifications, _meta=new)
        acknowledged = await newer.hear()
    for each in capabilities:
        assert not any(each[name]["listChanged"] for name in ("tools", "prompts", "resources"))
        assert each["resources"]["subscribe"] is True
    assert acknowledged["params"]["notifications"] == {}
