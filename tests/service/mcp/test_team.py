"""Three kinds of MCP clients do a research team's job through the record's server."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hansard.broker import access
from tests.integrations.mcp.support import (
    PACKAGES_S_MAX,
    WAIT_S,
    Setup,
    free_port,
    programs,
)
from tests.service.mcp.test_http import TOKEN, asking, serving
from tests.service.mcp.test_serve import SECRET, Team
from tests.service.support import House

pytestmark = pytest.mark.thorough

MEMBER = Path(__file__).with_name("programs") / "member.mjs"
LEASE_S = 2.0

CHECKER = """
[roles.checker]
sees = [
    { name = "findings", kinds = ["board.*"], keys = ["findings/**"] },
    { name = "its own work", roles = ["checker"] },
]
[roles.checker.may]
tools = ["**"]
kinds = ["board.*", "message.*", "task.claimed", "task.completed"]
keys = ["findings/**"]
"""


class Npm:
    """Ben: a program with npm's client."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, verb: str, /, **fields: Any) -> dict[str, Any]:
        """Return the outcome: `result` or `error`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"verb": verb, **fields}).encode() + b"\n")
        async with asyncio.timeout(WAIT_S):
            line = await self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def get(self, tool: str, /, **arguments: Any) -> Any:
        """Return a tool's result."""
        answer = await self.ask("call", tool=tool, arguments=arguments)
        assert not answer["result"].get("isError"), answer
        return answer["result"]["structuredContent"]["result"]


@asynccontextmanager
async def member(modules: Path) -> AsyncIterator[Npm]:
    """Yield ben, a client that survives the end of a server."""
    node = shutil.which("node")
    assert node is not None
    process = await asyncio.create_subprocess_exec(
        *(node, str(MEMBER), str(modules)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    try:
        yield Npm(process)
    finally:
        process.kill()
        await process.wait()


class Inspector:
    """Rob: a command for each call. All that it printed is kept."""

    def __init__(self, program: Path, url: str, token: str) -> None:
        self._command = [str(program), "--cli", url, "--transport", "http"]
        self._command += ["--header", f"Authorization: Bearer {token}", "--method"]
        self.printed = ""

    async def ask(self, *method: str) -> tuple[int | None, str]:
        """Return the exit code and the output of a method."""
        process = await asyncio.create_subprocess_exec(
            *(*self._command, *method),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PACKAGES_S_MAX):
            out, err = await process.communicate()
        self.printed += out.decode() + err.decode()
        return process.returncode, out.decode() or err.decode()

    async def get(self, tool: str, /, **arguments: Any) -> Any:
        """Return a tool's result."""
        pairs = [
            each
            for name, value in arguments.items()
            for each in (
                "--tool-arg",
                f"{name}={value if isinstance(value, str) else json.dumps(value)}",
            )
        ]
        _, out = await self.ask("tools/call", "--tool-name", tool, *pairs)
        answer = json.loads(out)
        assert not answer.get("isError"), answer
        return answer["structuredContent"]["result"]


class Job:
    """The team's work in one run, and its task."""

    def __init__(self, ben: Npm, rob: Inspector) -> None:
        self.ben = ben
        self.rob = rob
        self.run = self.lead = ""
        self.task = ""

    async def plan(self, lena: Team) -> None:
        """Lena begins the run, with a secret and a task."""
        begun = await lena.get("start_run", workflow="papers")
        self.run, self.lead = begun["run_id"], begun["agent"]
        await lena.get("board_put", run_id=self.run, key="plans/secret", value=SECRET)
        await lena.get("team_add", run_id=self.run, title="read", what={"pages": 9})

    async def read(self, server: asyncio.subprocess.Process) -> None:
        """Claim as ben, share the finding, and wait; the server is killed."""
        ben, run = self.ben, self.run
        self.task = (await ben.get("team_claim", run_id=run, lease_s=LEASE_S))["id"]
        await ben.get("board_put", run_id=run, key="findings/1", value="whales \u2603")
        assert await ben.get("board_add", run_id=run, key="findings/count") == 1
        await ben.get("checkpoint", run_id=run, name="half", data={"page": 7})
        wait = {"run_id": run, "key": "verdict"}
        waiting = asyncio.create_task(ben.ask("call", tool="team_wait_for", arguments=wait))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        server.kill()
        await server.wait()
        assert "error" in await waiting

    async def go_on(self) -> None:
        """He resumes, claims it again when the lease has run out, and hands it over."""
        ben, run = self.ben, self.run
        assert (await ben.get("resume_run", run_id=run))["checkpoint"]["data"] == {"page": 7}
        task = await ben.get("team_claim", run_id=run, timeout_s=LEASE_S * 3)
        assert (task["id"], task["number"]) == (self.task, 2)
        assert await ben.get("board_add", run_id=run, key="findings/count") == 2
        assert "error" not in await ben.ask("subscribe", uri=f"board://{run}/findings/2")
        held = {name: task[name] for name in ("id", "number")}
        handed = {"run_id": run, "task": held, "role": "checker", "reason": "check it"}
        await ben.get("team_hand_off", **handed)

    async def check(self) -> None:
        """Read as rob what he may, do the task, and report it."""
        rob, run = self.rob, self.run
        assert await rob.get("board_keys", run_id=run) == ["findings/1", "findings/count"]
        entry = await rob.get("board_entry", run_id=run, key="findings/1")
        assert (entry["value"], entry["author"]) == ("whales \u2603", "ben")
        task = await rob.get("team_claim", run_id=run)
        assert task["id"] == self.task
        await rob.get("board_put", run_id=run, key="findings/2", value="checked")
        held = {name: task[name] for name in ("id", "number")}
        await rob.get("team_complete", run_id=run, task=held, result="done")
        assert await rob.get("view_run", run_id=run)

    async def pry(self) -> None:
        """Request as rob hidden data in each possible way."""
        call = ("tools/call", "--tool-name")
        run = ("--tool-arg", f"run_id={self.run}")
        for method in (
            (*call, "board_entry", *run, "--tool-arg", "key=plans/secret"),
            (*call, "why", "--tool-arg", f"decision={self.run}"),
            (*call, "list_runs"),
            (*call, "fork_run", *run),
            ("resources/read", "--uri", f"run://{self.run}/trace"),
            ("resources/read", "--uri", f"run://{self.run}/state"),
            ("resources/read", "--uri", f"board://{self.run}/plans/secret"),
        ):
            code, output = await self.rob.ask(*method)
            assert code != 0 or json.loads(output)["isError"] is True, output
        for allowed in (
            ("tools/list",),
            ("resources/list",),
            ("resources/read", "--uri", f"run://{self.run}/view"),
            ("resources/read", "--uri", f"board://{self.run}/findings/2"),
        ):
            code, output = await self.rob.ask(*allowed)
            assert code == 0, output

    async def publish(self, lena: Team) -> None:
        """Lena sees that it is done, decides, asks why, and the run ends with the last of them."""
        (done,) = await lena.get("team_tasks", run_id=self.run)
        assert (done["status"], done["result"]) == ("done", "done")
        await lena.get("decide", run_id=self.run, question="Publish?", selected="yes")
        why = await lena.get("why", decision=self.run)
        assert any("Publish?" in str(each) and "yes" in str(each) for each in why)
        for member_ in (self.ben, self.rob, lena):
            await member_.get("leave_run", run_id=self.run)
        (listed,) = [each for each in await lena.get("list_runs") if each["run_id"] == self.run]
        assert listed["status"] == "completed"


async def test_three_kinds_of_clients_do_the_teams_job(setup: Setup, house: House, tmp_path: Path):
    """Three kinds of clients share the tasks through a server kill; rob never sees the plan."""
    await asyncio.to_thread(house.apply, CHECKER)
    files = [
        await asyncio.to_thread(house.login, name, role)
        for name, role in (("ben", "writer"), ("rob", "checker"))
    ]
    bens, robs = [access.load(file).token for file in files]
    folder = tmp_path / "npm"
    folder.mkdir()
    binaries = await asyncio.to_thread(programs, folder)
    port = free_port()
    home = Setup(house.data_dir, house.workspace, setup.sent)
    async with member(binaries.parent) as ben:
        async with serving(home, tmp_path, port) as (url, server):
            job = Job(ben, Inspector(binaries / "mcp-inspector", url, robs))
            async with asking(url, TOKEN, "auto") as lena:
                await job.plan(lena)
            assert (await ben.ask("connect", url=url, token=bens))["result"] == "hansard"
            await job.read(server)
        async with serving(home, tmp_path, port):
            assert (await ben.ask("connect", url=url, token=bens))["result"] == "hansard"
            await job.go_on()
            await job.check()
            await job.pry()
            heard = await ben.ask("heard", uri=f"board://{job.run}/findings/2")
            assert heard["result"] == [f"board://{job.run}/findings/2"]
            async with asking(url, TOKEN, "auto") as lena:
                await job.publish(lena)
    for hidden in (SECRET, "swordfish"):
        assert hidden not in job.rob.printed
