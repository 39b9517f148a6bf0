"""The API of `hansard up --http`: workspaces, problems and positions."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import pytest
from pyarrow import ipc

from hansard.bus.archive import archive_at
from hansard.client import opening
from hansard.client.listening import Address
from hansard.service.http import app, records, server
from hansard.service.http.app import listening
from tests.http.conftest import OPERATOR, TOKEN, Lab


async def test_a_read_answers_with_the_position_of_the_log(lab: Lab):
    """The header has the position of the newest commit."""
    async with lab.record.run("work", agent="a", role="worker"):
        pass
    head = await lab.record.workspace.log.head()
    answer = await lab.http.get(lab.at("/me"))
    assert answer.json()["workspaces"] == [lab.name]
    assert answer.headers["hansard-position"] == f"{head}"


async def test_an_unknown_parameter_and_workspace_are_problems(lab: Lab):
    """Each problem has its fact, value and remedy."""
    cases: list[tuple[str, int, dict[str, Any]]] = [
        (lab.at("/me?a=1"), 400, {"value": "a", "title": "Bad option"}),
        ("/api/v1/other/me", 404, {"value": "workspace 'other'", "title": "Not found"}),
        ("/api/v1/UPPER/me", 400, {"value": "UPPER", "title": "Bad name"}),
    ]
    for path, status, fields in cases:
        answer = await lab.http.get(path)
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert (answer.status_code, problem["status"]) == (status, status)
        assert fields.items() <= problem.items()
        assert problem["remedy"]
        assert problem["fact"] in problem["detail"]


async def test_operations_answer_over_http_as_in_the_record(lab: Lab):
    """Reads are GET, writes POST with a key; results are those of the record's methods."""
    added = await lab.post("/prompts/add", {"name": "tone", "text": "Be brief."})
    assert (added.status_code, added.json()) == (200, 1)
    [prompt] = (await lab.http.get(lab.at("/record/prompts/list"))).json()
    assert (prompt["name"], prompt["text"]) == ("tone", "Be brief.")
    assert (await lab.record.prompts.get("tone")).text == prompt["text"]
    async with lab.record.run("work", agent="a", role="worker") as session:
        run = session.run
    rows = (await lab.http.get(lab.at("/record/runs?status=completed"))).json()
    assert [name for name, _ in rows] == [run]
    state = (await lab.http.get(lab.at(f"/record/state?run={run}"))).json()
    assert state["run"] == run
    missing = await lab.http.get(lab.at("/record/state"))
    assert (missing.status_code, missing.json()["value"]) == (400, "run")


async def test_a_write_with_the_same_key_is_made_once(lab: Lab):
    """Its answer is kept; another body under the key, and a post without one, are refused."""
    body = {"name": "tone", "text": "Be brief."}
    several = await asyncio.gather(*(lab.post("/prompts/add", body, key="k") for _ in range(5)))
    assert {(each.status_code, each.text) for each in several} == {(200, "1")}
    again = await lab.post("/prompts/add", body, key="k")
    assert (again.text, again.headers["idempotency-replayed"]) == ("1", "true")
    assert again.headers["hansard-position"] == several[0].headers["hansard-position"]
    other = await lab.post("/prompts/add", body | {"text": "Be kind."}, key="k")
    assert (other.status_code, "another request" in other.text) == (422, True)
    bare = await lab.http.post(lab.at("/prompts/add"), json=body)
    assert (bare.status_code, bare.json()["value"]) == (400, "Idempotency-Key")
    prompt = await lab.record.prompts.get("tone")
    assert prompt.version == 1


async def test_a_write_that_a_kill_interrupted_is_in_doubt(lab: Lab):
    """A refused write may be sent again; one without an answer on file may not."""
    refused = await lab.post("/prompts/retire", {"reference": "none@1"}, key="r")
    assert (refused.status_code, refused.headers.get("idempotency-replayed")) == (404, None)
    again = await lab.post("/prompts/retire", {"reference": "none@1"}, key="r")
    assert (again.status_code, again.headers.get("idempotency-replayed")) == (404, None)
    body = {"name": "tone", "text": "Be brief."}
    assert (await lab.post("/prompts/add", body, key="k")).text == "1"
    with sqlite3.connect(lab.folder / "http" / "writes.sqlite") as file:  # as a kill leaves it
        file.execute("UPDATE writes SET status = NULL WHERE caller = ?", [f"{lab.name}//"])
    doubt = await lab.post("/prompts/add", body, key="k")
    assert (doubt.status_code, doubt.json()["type"]) == (409, "urn:hansard:problem:in-doubt")
    assert (await lab.record.prompts.get("tone")).version == 1


async def test_wait_for_waits_for_a_position(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """The answer holds as of that position; one that is not reached is a problem."""
    waiting = asyncio.create_task(lab.http.get(lab.at("/me?wait_for=2")))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    async with lab.record.run("work", agent="a", role="worker"):
        pass
    assert int((await waiting).headers["hansard-position"]) >= 2
    monkeypatch.setattr(app, "WAIT_FOR_S", 0.1)
    late = await lab.http.get(lab.at("/me?wait_for=1000000"))
    assert (late.status_code, late.json()["value"]) == (503, "1000000")


async def test_an_idle_workspace_is_closed_and_opened_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    """A request meanwhile keeps it open."""
    monkeypatch.setattr(records, "SWEEP_S", 0.01)
    opened: list[str] = []
    opens = opening.open_with_tables

    async def counting(settings: Any) -> Any:
        opened.append(settings.workspace)
        return await opens(settings)

    monkeypatch.setattr(records, "open_with_tables", counting)
    async with lab.listening() as http:
        assert (await http.get(lab.at("/me"))).status_code == 200
        waiting = asyncio.create_task(http.get(lab.at("/me?wait_for=1")))
        await asyncio.sleep(0.05)
        monkeypatch.setattr(records, "IDLE_S", 0.0)
        await asyncio.sleep(0.1)
        await lab.record.prompts.add("tone", "Be brief.")
        assert (await waiting).status_code == 200
        await asyncio.sleep(0.2)
        assert (await http.get(lab.at("/me"))).status_code == 200
    assert opened == [lab.name] * 2


@pytest.mark.slow
async def test_sql_answers_in_each_format(lab: Lab):
    """JSON is cut at its rows; the other formats hold all, with the position in the header."""
    await lab.record.prompts.add("tone", "Be brief.")
    head = await lab.record.workspace.log.head()
    statement = "SELECT i, '=' || $1 AS t FROM range(20000) AS r(i) ORDER BY i"
    query: dict[str, Any] = {"statement": statement, "parameters": ["x"]}
    answer = (await lab.http.post(lab.at("/sql"), json=query | {"rows": 2})).json()
    assert answer == {
        "columns": ["i", "t"],
        "rows": [[0, "=x"], [1, "=x"]],
        "position": head,
        "cut": "rows",
    }
    lines = await lab.http.post(lab.at("/sql"), json=query | {"format": "ndjson"})
    assert lines.headers["hansard-position"] == f"{head}"
    rows = [msgspec.json.decode(line) for line in lines.content.splitlines()]
    assert rows == [{"i": i, "t": "=x"} for i in range(20_000)]
    address = f"/sql?statement={quote(statement)}&parameters=x"
    table = await lab.http.get(lab.at(address), headers={"accept": "text/csv"})
    assert table.text.splitlines()[:2] == ['"i","t"', """0,"'=x\""""]
    arrow = await lab.http.post(lab.at("/sql"), json=query | {"format": "arrow"})
    assert ipc.open_stream(arrow.content).read_all().num_rows == 20_000
    wrong = await lab.http.get(lab.at("/sql?statement=SELECT%20nothing&format=csv"))
    assert (wrong.status_code, wrong.json()["title"]) == (400, "Query failed")


@pytest.mark.slow
async def test_a_query_ends_when_its_client_leaves(lab: Lab):
    """The worker of the query is killed, and its place is free."""
    endless = {
        "statement": "SELECT sum(hash(a.i + b.i)) FROM range(10000000) a(i), range(100000000) b(i)"
    }
    with pytest.raises(httpx2.ReadTimeout):
        await lab.http.post(lab.at("/sql"), json=endless, timeout=1.5)
    async with asyncio.timeout(5):
        while any(b"sql_sandbox.worker" in line for line in children()):  # noqa: ASYNC110 -- others' work
            await asyncio.sleep(0.05)


def children() -> list[bytes]:
    """Return the command lines of this process's children."""
    ids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [Path(f"/proc/{each}/cmdline").read_bytes() for each in ids]


@pytest.mark.slow
async def test_the_bytes_of_events_and_commits_are_those_of_the_log(lab: Lab):
    """An event is found by its address and its id; an absent one is a problem."""
    async with lab.record.run("work", agent="a", role="worker") as session:
        await session.checkpoint("first")
    log = lab.record.workspace.log
    head = await log.head()
    for position in range(1, head + 1):
        stored = await log.at(position)
        raw = await lab.http.get(lab.at(f"/commits/{position}/raw"))
        assert raw.content == stored.body
        for index, recorded in enumerate(stored.commit.events):
            by_address = await lab.http.get(lab.at(f"/events/{position}.{index}/raw"))
            assert by_address.content in stored.body
            assert by_address.json()["id"] == recorded.id
    last = (await log.at(head)).commit.events[-1]
    by_id = await lab.http.get(lab.at(f"/events/{last.id}/raw"))
    assert by_id.json()["id"] == last.id
    for absent in (f"{head + 1}.0", f"{head}.99", "none"):
        assert (await lab.http.get(lab.at(f"/events/{absent}/raw"))).status_code == 404


async def test_the_document_describes_each_route(lab: Lab):
    """It needs no login, since it shows nothing of a record."""
    answer = await lab.http.get("/api/v1/openapi.json", headers={"authorization": ""})
    document = answer.json()
    assert document["openapi"] == "3.1.0"
    add = document["paths"]["/api/v1/{workspace}/prompts/add"]["post"]
    body = add["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["name", "text"]
    assert {each["name"] for each in add["parameters"]} == {
        "workspace",
        "wait_for",
        "Idempotency-Key",
    }
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path


@pytest.mark.slow
async def test_readiness_and_figures(lab: Lab, tmp_path: Path):
    """Health needs no login; the figures need the operator's token."""
    await lab.record.prompts.add("tone", "Be brief.")
    await lab.http.post(lab.at("/sql"), json={"statement": "SELECT 1"})
    bare = {"authorization": ""}
    for path, status in (("/healthz", "ok"), ("/readyz", "ready")):
        answer = await lab.http.get(path, headers=bare)
        assert (answer.status_code, answer.json()["status"]) == (200, status)
    assert (await lab.http.get("/metrics", headers=bare)).status_code == 401
    place = archive_at(lab.name, str(tmp_path / "archive")).place
    text = (await lab.http.get("/metrics")).text
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    head = await lab.record.workspace.log.head()
    here = f'{{workspace="{lab.name}"}}'
    assert float(figures[f"hansard_commits{here}"]) == head
    assert float(figures[f"hansard_published_lag_commits{here}"]) == 0
    assert float(figures[f"hansard_in_doubt_calls{here}"]) == 0
    assert float(figures["hansard_broker_memory_bytes"]) > 1_000_000
    for tier in ("L1", "L2", "L3"):
        of = f'{{archive="{place}",tier="{tier}"}}'
        assert float(figures[f"hansard_archive_bytes{of}"]) == 0
        assert float(figures[f"hansard_archive_hits_total{of}"]) == 0
    assert float(figures["hansard_append_seconds_count"]) >= 1
    route = 'method="POST",route="/api/v1/{workspace}/sql",status="200"'
    assert float(figures[f"hansard_http_request_seconds_count{{{route}}}"]) == 1


async def test_a_service_without_its_broker_is_not_ready(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """It still answers, with the reason."""
    monkeypatch.setattr(server, "READY_S", 0.2)
    gone = msgspec.structs.replace(lab.broker.runtime, urls=("nats://127.0.0.1:1",), host=None)
    broker = msgspec.structs.replace(lab.broker, runtime=gone)
    async with (
        listening(lab.config, broker, Address("127.0.0.1", 0), token=TOKEN) as url,
        httpx2.AsyncClient(base_url=url, headers=OPERATOR) as http,
    ):
        assert (await http.get("/healthz")).status_code == 200
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
