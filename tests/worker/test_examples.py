"""The three use cases, edited over HTTP, run by a worker, killed, run again, and compared."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
import pytest

from hansard import settings
from hansard.client.listening import Address
from hansard.client.opening import find_broker
from hansard.service.http.app import listening
from tests.examples.support import (
    PAPER_PIPELINE,
    ROOT,
    SUPPORT_DESK,
    TRADING,
    WATCHED,
    Desk,
    UseCase,
    new_desk,
)
from tests.faults._warm import python

TOKEN = "a-token-of-enough-characters"


class Change(msgspec.Struct, frozen=True):
    """An edit of a use case, where its fork is killed, and what the fork then does."""

    case: UseCase
    workflow: str
    tool: str
    """The tool whose last result is edited."""
    result: Any
    kill_at: str
    expected: str
    """Text in the last line of the fork's program."""
    runs: tuple[str, ...]
    """Tools that run in the fork; none of them has an effect."""


CHANGES = [
    Change(
        TRADING,
        "trading",
        "judge",
        {"buy": 0.1, "sell": 0.9, "hold": 0.5},
        "return limit_risk",
        "order 0: sell",
        (),
    ),
    Change(
        SUPPORT_DESK,
        "support",
        "search_documents",
        [{"document": "phone.md", "text": "Call us."}],
        "return quoting_reply",
        "not sent to customer-1",
        ("quoting_reply",),
    ),
    Change(
        PAPER_PIPELINE,
        "papers",
        "analyze",
        ["It is one.", "It is two.", "It is new."],
        "return extractive_summary",
        "It is new.",
        ("extractive_summary",),
    ),
]


@pytest.fixture
async def made(
    request: pytest.FixtureRequest, tmp_path: Path, data_dir: Path
) -> AsyncIterator[tuple[Change, Desk, httpx2.AsyncClient]]:
    """Yield a change, a desk whose program has run once, and a client of its workspace."""
    change: Change = request.param
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in ("docs", "README.md"):
        (texts / name).symlink_to(ROOT / name)
    (tmp_path / "desk").mkdir()
    name = f"edited-{uuid4().hex[:12]}"
    desk = new_desk(change.case, tmp_path / "desk", texts, data_dir, name)
    assert desk.start().returncode == 0
    config = settings.load(workspace=name, data_dir=data_dir)
    broker = await find_broker(config)
    try:
        served = listening(config, broker, Address("127.0.0.1", 0), token=TOKEN)
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with served as url:
            base = f"{url}/api/v1/{name}"
            async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=60) as http:
                yield change, desk, http
    finally:
        await broker.release()


async def post(http: httpx2.AsyncClient, path: str, body: Any) -> Any:
    """Post a write as the page does."""
    answer = await http.post(path, json=body, headers={"idempotency-key": uuid4().hex})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def get(http: httpx2.AsyncClient, path: str, **query: Any) -> Any:
    """Return what a read answers."""
    answer = await http.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def worked(desk: Desk, change: Change, kill_at: str = "0") -> tuple[Any, list[str]]:
    """Have a worker run what is requested; return its last line, and the calls of the example."""
    places = desk.folder / f"places-{uuid4().hex}"
    watched = (str(WATCHED), str(desk.folder / change.case.program), str(places), kill_at)
    # The trading example's one argument is the run, which is the fork's here.
    arguments = () if change.case is TRADING else change.case.arguments
    command = ("worker", change.workflow, "--once", "--json", "--", python(), *watched)
    done = subprocess.run(
        [python(), "-m", "hansard", *command, *arguments],
        cwd=desk.folder,
        env=desk.environment(),
        capture_output=True,
        text=True,
        timeout=170,
        check=True,
    )
    calls = [each.removeprefix("call ") for each in places.read_text().splitlines()]
    return msgspec.json.decode(done.stdout.splitlines()[-1]), calls


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("made", CHANGES, indirect=True, ids=lambda each: each.case.name)
async def test_edited_killed_resumed_and_compared(
    made: tuple[Change, Desk, httpx2.AsyncClient],
) -> None:
    """The fork ends as the edit says, differs at the edited call, and the world stays as it was."""
    change, desk, http = made
    before = change.case.effects(desk.folder)
    statement = "SELECT agent || '#' || step FROM steps WHERE run = $1 AND tool = $2 ORDER BY step"
    query = {"statement": statement, "parameters": [change.case.run, change.tool]}
    step = (await http.post("/sql", json=query)).json()["rows"][-1][0]
    plan = await get(http, f"/runs/{change.case.run}/plan", edit=step)
    assert (plan["counts"]["edited"], plan["workflow"]) == (1, change.workflow)
    edits = [{"step": step, "result": change.result}]
    fork = await post(http, "/record/fork", {"run": change.case.run, "edits": edits})
    assert await post(http, "/queue/request", {"run": fork, "reason": "another result"})

    killed, _ = worked(desk, change, change.kill_at)
    assert (killed["status"], killed["code"]) == ("ended", 137), killed["last"]
    assert (await get(http, f"/runs/{fork}"))["run"]["status"] != "completed"
    assert await post(http, "/queue/request", {"run": fork, "reason": "it was killed"})
    ended, calls = worked(desk, change)
    assert (ended["code"], change.expected in ended["last"]) == (0, True), ended

    assert change.case.effects(desk.folder) == before
    assert tuple(each for each in calls if each in change.case.workers) == change.runs
    assert (await get(http, f"/runs/{fork}"))["run"]["status"] == "completed"
    [request] = await get(http, "/record/queue/list", run=fork)
    assert (request["claims"], request["code"]) == (2, 0)
    report = await get(http, f"/runs/{change.case.run}/diff/{fork}")
    assert step in msgspec.json.encode(report).decode()
