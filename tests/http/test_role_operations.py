"""Operations, SQL and exact bytes over HTTP, as a principal in a role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

import hansard
from hansard import settings
from hansard.client.credentials import CredentialsRequest, make
from hansard.domain.roles import check
from hansard.service.running import served
from tests.http.conftest import Lab

pytestmark = pytest.mark.slow

RULES = """
[[roles.author.sees]]
name = "messages and prompts"
kinds = ["message.*", "prompt.*", "run.*"]
[roles.author.may]
query = true
kinds = ["prompt.version_added", "run.cancelled"]
[[roles.reader.sees]]
name = "messages"
kinds = ["message.*"]
"""


async def credentials(lab: Lab, folder: Path, role: str, name: str) -> Path:
    """Return the file of a principal in a role."""
    for each, rules in check.parse(RULES).items():
        await lab.record.roles.apply(each, rules)
    config = settings.load(workspace=lab.name, data_dir=lab.folder)
    place = folder / f"{name}.json"
    await make(config, CredentialsRequest(role=role, name=name, output=place))
    return place


async def caller(lab: Lab, folder: Path, role: str) -> Lab:
    """Return the listener with a client of a principal; the test closes the client."""
    file = await credentials(lab, folder, role, f"{role}_1")
    token = msgspec.json.decode(file.read_bytes())["token"]
    headers = {"authorization": f"Bearer {token}"}
    http = httpx2.AsyncClient(base_url=lab.http.base_url, timeout=30, headers=headers)
    return Lab(http, lab.record, lab.name, lab.folder)


async def test_an_operation_needs_what_it_needs_over_the_broker(lab: Lab, tmp_path: Path):
    """What the role may is done in its name; the rest is refused, and nothing is written."""
    author = await caller(lab, tmp_path, "author")
    async with author.http:
        body = {"name": "tone", "text": "Be brief."}
        added = await author.post("/prompts/add", body)
        assert (added.status_code, added.json()) == (200, 1)
        assert "hansard-position" not in added.headers
        prompt = (await lab.record.prompts.log("tone")).versions[0]
        assert prompt.by == "author_1"
        other = await author.post("/prompts/add", body | {"by": "ada"})
        assert (other.status_code, "by" in other.json()["detail"]) == (403, True)
        shown = await author.http.get(author.at("/record/prompts/get?reference=tone"))
        assert shown.json()["text"] == "Be brief."
        for path, wrong in (
            ("/prompts/retire", {"reference": "tone@1"}),
            ("/experiments/stop", {"name": "x"}),
        ):
            assert (await author.post(path, wrong)).status_code == 403, path
    reader = await caller(lab, tmp_path, "reader")
    async with reader.http:
        assert (await reader.post("/prompts/add", body)).status_code == 403
        hidden = await reader.http.get(reader.at("/record/prompts/get?reference=tone"))
        absent = await reader.http.get(reader.at("/record/prompts/get?reference=none"))
        assert (hidden.status_code, hidden.text.replace("tone", "none")) == (403, absent.text)
    assert len((await lab.record.prompts.log("tone")).versions) == 1


async def test_reads_of_trusted_programs_are_refused(lab: Lab, tmp_path: Path):
    """Alike for what exists and what does not."""
    async with lab.record.run("w", agent="a", role="r") as session:
        await session.message("user", "hello")
    author = await caller(lab, tmp_path, "author")
    async with author.http:
        for path in (
            f"/record/state?run={session.run}",
            "/record/state?run=none",
            "/record/runs",
            "/commits/1/raw",
            "/commits/999/raw",
            "/events/1.0/raw",
            "/record/runs?wait_for=1",
        ):
            answer = await author.http.get(author.at(path))
            assert answer.status_code == 403, path
            assert "hansard-position" not in answer.headers


async def test_sql_answers_from_the_tables_of_the_role(lab: Lab, tmp_path: Path):
    """In each format; a role without the permission gets none, and positions are its own."""
    async with lab.record.run("w", agent="a", role="r") as session:
        await session.message("user", "hello")
        await session.board.put("secret", 1)
    statement = (
        "SELECT count(*) FILTER (type LIKE 'board.%') AS keys, count(*) > 0 AS some FROM events"
    )
    author = await caller(lab, tmp_path, "author")
    head = await lab.record.workspace.log.head()
    async with author.http:
        for form, body in (
            ("json", b'"rows":[[0,true]]'),
            ("ndjson", b'{"keys":0,"some":true}'),
            ("csv", b"0,true"),
        ):
            query = {"statement": statement, "format": form}
            answer = await author.http.post(author.at("/sql"), json=query)
            assert body in answer.content, answer.text
            assert 0 < int(answer.headers["hansard-position"]) < head
    reader = await caller(lab, tmp_path, "reader")
    async with reader.http:
        refused = await reader.http.post(reader.at("/sql"), json={"statement": "SELECT 1"})
        assert refused.status_code == 403


async def test_the_broker_and_http_leave_equal_records(lab: Lab, tmp_path: Path):
    """The same writes of a principal make the same events, but for ids and times."""
    file = await credentials(lab, tmp_path, "author", "author_1")
    runs = []
    for _ in range(2):
        async with lab.record.run("w", agent="a", role="r") as session:
            runs.append(session.run)
    author = await caller(lab, tmp_path, "author")
    log = lab.record.workspace.log
    begun = await log.head()
    async with author.http:
        body: dict[str, Any] = {"name": "a", "text": "Be brief.", "parameters": {"top": 1}}
        assert (await author.post("/prompts/add", body)).json() == 1
    middle = await log.head()
    async with (
        served(lab.config, lab.broker, lambda _: None),
        hansard.connect_async(credentials=file) as record,
    ):
        await record.prompts.add("b", "Be brief.", parameters={"top": 1})
    end = await log.head()

    async def events(after: int, until: int) -> list[Any]:
        rows = []
        for position in range(after + 1, until + 1):
            stored = await log.at(position)
            rows += [
                (each.type, stored.commit.actor, msgspec.json.decode(each.data))
                for each in stored.commit.events
                if each.type.startswith("prompt.")
            ]
        return rows

    by_http, by_broker = await events(begun, middle), await events(middle, end)
    assert by_http == by_broker
    assert len(by_http) == 1
