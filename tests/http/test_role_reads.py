"""A role's reads and streams: only what its view holds, with its own numbers, recorded as shown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

import hansard
from hansard import settings
from hansard.agents.access import roles
from hansard.client.credentials import CredentialsRequest, make
from hansard.domain.roles import check as role_file
from tests.http.conftest import Lab
from tests.http.test_live import rows_until, stream
from tests.http.test_reads import get, pairs, recorded

pytestmark = pytest.mark.later

RULES = """
[roles.reader]
[[roles.reader.sees]]
name = "messages"
kinds = ["message.added", "run.started", "run.completed", "run.forked"]
[roles.reader.may]
query = true
[roles.approver]
[[roles.approver.sees]]
name = "requests"
kinds = ["approval.requested", "step.*"]
[[roles.approver.masks]]
name = "passwords"
kinds = ["step.requested"]
fields = ["arguments.password"]
[roles.approver.may]
query = true
[roles.editor]
[[roles.editor.sees]]
name = "prompts"
kinds = ["prompt.*"]
[roles.editor.may]
query = true
[roles.hashed]
[[roles.hashed.sees]]
name = "messages"
kinds = ["message.added", "run.*"]
[[roles.hashed.masks]]
name = "texts"
kinds = ["message.added"]
fields = ["content"]
how = "hash"
[roles.hashed.may]
query = true
[roles.blind]
"""


@contextlib.asynccontextmanager
async def caller(lab: Lab, folder: Path, role: str) -> AsyncIterator[Lab]:
    """Yield the listener with a client of a principal in a role."""
    await roles.apply_all(lab.record.workspace, role_file.parse(RULES))
    config = settings.load(workspace=lab.name, data_dir=lab.folder)
    place = folder / f"{role}.json"
    await make(config, CredentialsRequest(role=role, name=f"{role}_1", output=place))
    token = msgspec.json.decode(place.read_bytes())["token"]
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(
        base_url=lab.http.base_url, timeout=30, headers=headers
    ) as client:
        yield Lab(client, lab.record, lab.name, lab.folder)


async def test_reads(lab: Lab, tmp_path: Path) -> None:
    """Every read of a run is of the role's view; positions are numbers of its events."""
    before = await recorded(lab.record)
    async with caller(lab, tmp_path, "reader") as reader:
        answer = await reader.http.get(reader.at(f"/runs/{before}/state?at=1"))
        assert answer.status_code == 404, "the role had no rules then"
        run = await recorded(lab.record)
        [row, _] = (await get(reader, "/runs"))["runs"]
        assert (row["run"], row["status"], row["position"]) == (run, "completed", 3)
        rows = pairs((await get(reader, f"/runs/{run}/outline"))["rows"])
        assert [(each[0], each[4], each[7]) for each in rows] == [
            (1, "run.started.v1", "review"),
            (2, "message.added.v1", "user: please look at this"),
            (3, "run.completed.v1", ""),
        ]
        event = await get(reader, f"/runs/{run}/events/2")
        assert event["data"]["content"] == "please look at this"
        assert event == await get(reader, f"/runs/{run}/events/{event['id']}")
        shown = await get(reader, f"/runs/{run}")
        assert shown["run"]["position"] == 3
        early = await get(reader, f"/runs/{run}/state", at=1)
        assert (early["position"], early["life"]["status"]) == (1, "open")
        changed = await get(reader, f"/runs/{run}/changes", since=1)
        assert ["status"] in [each["path"] for each in changed["changes"]]
        assert (await get(reader, f"/runs/{run}/board"))["keys"] == []
        assert await get(reader, "/inbox") == {"approvals": [], "doubts": None}
        assert (await get(reader, "/audit"))["lines"][-1]["kind"] == "audited"
        answer = await reader.http.get(reader.at("/runs"), params={"text": "blue"})
        assert len(answer.json()["runs"]) == 2, "labels are part of run.started"
        for path in ("/tasks", "/knew", "/diff/last", "/events/1.1", "/events/14.0"):
            answer = await reader.http.get(reader.at(f"/runs/{run}{path}"))
            assert answer.status_code in {403, 404}, path
    served = await roles.on_record(lab.record.workspace.states, run, "reader")
    assert len(served) >= 6, "each look is on record"


async def test_a_role_sees_a_fork_as_the_operator_does(lab: Lab, tmp_path: Path) -> None:
    """Its parent, its own beginning and all of its labels; no gap is found in it."""
    async with caller(lab, tmp_path, "reader") as reader:
        run = await recorded(lab.record)
        fork = await lab.record.fork(run, labels={"n": "two"})
        names = ("run", "forked_from", "labels", "status")
        rows = (await get(reader, "/runs"))["runs"]
        seen = [{name: row[name] for name in names} for row in rows]
        assert seen == [
            {name: row[name] for name in names} for row in (await get(lab, "/runs"))["runs"]
        ]
        both = {"team": "blue", "n": "two"}
        assert seen[0] == {"run": fork, "forked_from": run, "labels": both, "status": "open"}
        child, parent = rows
        began = datetime.fromisoformat(child["began"]["at"])
        assert began >= datetime.fromisoformat(parent["last"]["at"])
        assert "version hole" not in str(await get(reader, "/audit"))


async def test_a_role_gets_an_approval_as_it_sees_the_call(lab: Lab, tmp_path: Path) -> None:
    """A mask of the call's arguments holds in the request, too; label and status follow from events
    that the role may not see. The operator gets all.
    """
    gate = [hansard.ask_first(tool="send", timeout_s=60)]
    async with (
        caller(lab, tmp_path, "approver") as approver,
        lab.record.run("w", agent="ada", role="r", gate=gate) as session,
    ):

        @session.tool(effects="pure", gives="untrusted")
        async def look() -> str:
            return "a page"

        @session.tool(effects="once")
        async def send(page: int, password: str) -> None: ...

        await look()
        sending = asyncio.create_task(send(1, "hunter2"))
        approvals: list[Any] = []
        while not approvals:
            await asyncio.sleep(0.05)
            approvals = (await get(lab, "/inbox"))["approvals"]
        [request] = approvals
        assert (request["label"], request["run_status"]) == ("untrusted", "open")
        assert request["at_work"] is True
        [shown] = (await get(approver, "/inbox"))["approvals"]
        assert request["arguments"] == {"page": 1, "password": "hunter2"}
        hidden = {"step": None, "label": "", "run_status": None, "at_work": None}
        assert shown == request | hidden | {"arguments": {"page": 1}}
        await lab.record.approvals.grant(request["approval"], by="eva")
        await sending
        query = {"statement": "SELECT type, data FROM events"}
        answer = await approver.http.post(approver.at("/sql"), json=query)
        view = msgspec.json.encode(await lab.record.roles.view(session.run, role="approver"))
        for shown_text in (answer.text, view.decode()):
            assert "approval.requested.v1" in shown_text
            assert "hunter2" not in shown_text


async def test_a_value_has_one_hash_everywhere(lab: Lab, tmp_path: Path) -> None:
    """The role's own key is used by HTTP, Python and SQL; it is private to its owner."""
    async with caller(lab, tmp_path, "hashed") as reader:
        run = await recorded(lab.record)
        assert run in [row["run"] for row in (await get(reader, "/runs"))["runs"]]
        view = await lab.record.roles.view(run, role="hashed")
        [(number, message)] = [
            (number, each) for number, each in view.events if each.type == "message.added.v1"
        ]
        value = msgspec.json.decode(message.data)["content"]
        assert list(value) == ["$hash"]
        assert (await get(reader, f"/runs/{run}/events/{number}"))["data"]["content"] == value
        query = {"statement": "SELECT content FROM messages"}
        answer = await reader.http.post(reader.at("/sql"), json=query)
        assert value["$hash"] in answer.text
    [key] = (lab.folder / "projections" / "roles" / lab.name).glob("hashed.key")
    assert (key.stat().st_size, key.stat().st_mode & 0o077) == (32, 0)


async def test_a_prompt_is_read_by_its_name(lab: Lab, tmp_path: Path) -> None:
    """By the operator, and by a role that sees its events; to another role it does not exist."""
    await lab.record.prompts.add("tone", "Be brief.")
    async with caller(lab, tmp_path, "reader") as reader, caller(lab, tmp_path, "editor") as editor:
        for each in (lab, editor):
            [version] = (await get(each, "/prompts/tone"))["versions"]
            assert version["version"] == 1
        hidden = await reader.http.get(reader.at("/prompts/tone"))
        assert hidden.status_code == 404


async def test_hidden_is_absent(lab: Lab, tmp_path: Path) -> None:
    """A run of which a role sees nothing is answered as one that does not exist."""
    run = await recorded(lab.record)
    async with caller(lab, tmp_path, "blind") as blind:
        assert (await get(blind, "/runs"))["runs"] == []
        for path in ("", "/state", "/outline", "/events/1", "/board", "/context", "/live"):
            hidden = await blind.http.get(blind.at(f"/runs/{run}{path}"))
            absent = await blind.http.get(blind.at(f"/runs/{run[:-1]}x{path}"))
            assert hidden.status_code == absent.status_code == 404, path
            assert hidden.text.replace(run, "R") == absent.text.replace(f"{run[:-1]}x", "R")
            assert dict(hidden.headers).keys() == dict(absent.headers).keys()


async def test_stream(lab: Lab, tmp_path: Path) -> None:
    """A role's stream has the rows of its view alone, and continues by its own numbers."""
    async with (
        caller(lab, tmp_path, "reader") as reader,
        lab.record.run("w", agent="ada", role="r") as s,
    ):
        path = reader.at(f"/runs/{s.run}/live")
        async with stream(reader.http, f"{path}?after=0") as following:
            assert (await anext(following)).name == "open"
            for number in range(3):
                await s.board.put("hidden", number)
                await s.message("user", f"number {number}")
            rows, last = await rows_until(following, 4)
        assert [row[0] for row in rows] == [1, 2, 3, 4]
        assert [row[7] for row in rows[1:]] == [f"user: number {n}" for n in range(3)]
        await s.board.put("hidden", 9)
        await s.message("user", "number 3")
        async with stream(reader.http, path, last_event_id=last) as following:
            rows, _ = await rows_until(following, 5)
        assert [row[0] for row in rows] == [5]


async def test_hidden_changes_send_nothing(lab: Lab, tmp_path: Path) -> None:
    """A hidden change sends nothing: neither on the run's stream, nor on that of all runs."""
    async with (
        caller(lab, tmp_path, "reader") as reader,
        lab.record.run("w", agent="ada", role="r") as s,
        stream(reader.http, reader.at(f"/runs/{s.run}/live")) as rows,
        stream(reader.http, reader.at("/live")) as runs,
    ):
        assert (await anext(rows)).name == (await anext(runs)).name == "open"
        waiting = [asyncio.ensure_future(anext(each)) for each in (rows, runs)]
        for number in range(3):
            await s.board.put("hidden", number)
        done, _ = await asyncio.wait(waiting, timeout=2)
        assert not done
        await s.message("user", "shown")
        async with asyncio.timeout(20):
            one, other = await asyncio.gather(*waiting)
        assert pairs(one.data)[0][7] == "user: shown"
        assert [each["run"] for each in other.data["runs"]] == [s.run]


@pytest.mark.parametrize("role", ["reader", "blind"])
async def test_other_rules_reload(lab: Lab, tmp_path: Path, role: str) -> None:
    """After a change of the rules an id of before makes the client reload."""
    async with caller(lab, tmp_path, "reader") as reader:
        run = await recorded(lab.record)
        path = reader.at(f"/runs/{run}/live")
        async with stream(reader.http, path) as following:
            last = (await anext(following)).id
        other: Any = role_file.parse(RULES.replace('"run.started", ', ""))["reader"]
        if role == "blind":
            await roles.withdraw(lab.record.workspace, "reader")
            assert (await reader.http.get(path)).status_code in {401, 403, 404}
            return
        await roles.apply(lab.record.workspace, "reader", other)
        async with stream(reader.http, path, last_event_id=last) as following:
            assert (await anext(following)).name == "reload"
