"""The API of `hansard up --http`: workspaces, problems and positions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hansard.client import opening
from hansard.service.http import app, records
from tests.http.conftest import Lab


async def test_a_read_answers_with_the_position_of_the_log(lab: Lab):
    """The header has the position of the newest commit."""
    async with lab.record.run("work", agent="a", role="worker"):
        pass
    head = await lab.record.workspace.log.head()
    answer = await lab.http.get(lab.at(""))
    assert answer.json() == {"workspace": lab.name, "role": None, "position": head}
    assert answer.headers["hansard-position"] == f"{head}"


async def test_an_unknown_parameter_and_workspace_are_problems(lab: Lab):
    """Each problem has its fact, value and remedy."""
    cases: list[tuple[str, int, dict[str, Any]]] = [
        (lab.at("?a=1"), 400, {"value": "a", "title": "Bad option"}),
        ("/api/v1/other", 404, {"value": "workspace 'other'", "title": "Not found"}),
        ("/api/v1/UPPER", 400, {"value": "UPPER", "title": "Bad name"}),
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


async def test_wait_for_waits_for_a_position(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """The answer holds as of that position; one that is not reached is a problem."""
    waiting = asyncio.create_task(lab.http.get(lab.at("?wait_for=2")))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    async with lab.record.run("work", agent="a", role="worker"):
        pass
    assert int((await waiting).headers["hansard-position"]) >= 2
    monkeypatch.setattr(app, "WAIT_FOR_S", 0.1)
    late = await lab.http.get(lab.at("?wait_for=1000000"))
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
        assert (await http.get(lab.at(""))).status_code == 200
        waiting = asyncio.create_task(http.get(lab.at("?wait_for=1")))
        await asyncio.sleep(0.05)
        monkeypatch.setattr(records, "IDLE_S", 0.0)
        await asyncio.sleep(0.1)
        await lab.record.prompts.add("tone", "Be brief.")
        assert (await waiting).status_code == 200
        await asyncio.sleep(0.2)
        assert (await http.get(lab.at(""))).status_code == 200
    assert opened == [lab.name] * 2
