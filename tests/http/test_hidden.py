"""What a role does not see has no influence on any answer over HTTP, byte for byte.

Every route that reads is requested, with runs, events and names that are visible, hidden and
absent; then the hidden part of the record grows, and each is requested again.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import httpx2
import msgspec
import pytest

import hansard
from hansard import settings
from hansard.broker import access
from hansard.client.credentials import CredentialsRequest, make
from hansard.domain.roles import check
from hansard.service.http import live
from hansard.service.http.routes import Parameter, Place, RouteTable
from tests.http.conftest import Lab

pytestmark = pytest.mark.later

ROLES = """
[roles.reader]
sees = [
    { name = "messages", kinds = ["message.*", "run.*", "agent.*"], roles = ["writer"] },
    { name = "findings", kinds = ["board.*"], keys = ["findings/**"] },
]
[roles.reader.may]
query = true
settle = true
approve = true
view = ["clerk"]
[roles.clerk]
sees = [{ name = "messages", kinds = ["message.*"], roles = ["writer"] }]
[roles.blind]
sees = []
[roles.writer]
sees = [{ name = "all", kinds = ["**"] }]
may = { tools = ["**"], kinds = ["**"], keys = ["**"] }
[roles.boss]
sees = [{ name = "all", kinds = ["**", "memory.*"] }]
may = { tools = ["**"], kinds = ["**"], keys = ["**"], paths = ["**"] }
"""
SECRET = "hidden-word-4711"
ABSENT = "01a1c000-0000-7000-8000-000000000000"
IGNORED = {"date"}
SHOWN_TO_ALL = {"inbox", "me", "record/roles/permitted", "record/roles/viewable", "runs"}


@contextlib.asynccontextmanager
async def visible(record: hansard.AsyncRecord) -> AsyncIterator[str]:
    """Act in a role that `reader` sees; yield the run, which goes on."""
    async with record.run("work", agent="ada", role="writer", labels={"n": "one"}) as session:
        await session.message("user", "to be seen")
        await session.board.put("findings/a", {"n": 1}, expected="any")
        await session.message("assistant", "seen, too")
        yield session.run


async def hidden(record: hansard.AsyncRecord, run: str, many: int) -> str:
    """Act in a role that `reader` does not see, in its run and in others; return a hidden run."""
    session: Any
    async with record.run(run=run, agent="eve", role="boss") as session:
        for number in range(many):
            await session.message("user", f"{SECRET} {number}")
            await session.board.put(f"plans/{number}", SECRET, expected="any")
            await session.team.add(f"{SECRET} {number}", role="boss")
            await session.decide(SECRET, selected=f"{number}", reason=SECRET)
            await session.checkpoint(f"{SECRET} {number}")
    last = ""
    for number in range(many):
        label = {"n": SECRET}
        async with record.run("secret", agent=f"zoe{number}", role="boss", labels=label) as session:
            await session.message("user", SECRET)
            last = session.run
    await record.sql("SELECT count(*) FROM events")  # the tables are up to date
    return last


class Sent(msgspec.Struct, frozen=True):
    """A request: its route, method, address and JSON."""

    path: str
    method: str
    address: str
    body: str = ""

    def but(self, old: str, new: str) -> Sent:
        """Return the request with another name in it."""
        return Sent(
            self.path, self.method, self.address.replace(old, new), self.body.replace(old, new)
        )


def requests(lab: Lab, run: str, other: str) -> Iterator[Sent]:
    """Yield requests of each route.

    Reads name things that are visible, hidden and absent, writes those that are not visible.
    """
    for route in RouteTable.of_modules().routes:
        if not route.in_workspace or route.path.endswith(("live", "/logins")):
            continue
        needed = [each for each in route.parameters if each.required]
        first = run if route.method == "GET" else other
        count = max((len(_values(each, first, other)) for each in needed), default=1)
        for number in range(count):
            path = route.path.replace("{workspace}", lab.name)
            query: dict[str, str] = {}
            body: dict[str, str] = {}
            for each in needed:
                values = _values(each, first, other)
                value = values[number % len(values)]
                if each.place is Place.PATH:
                    path = path.replace(f"{{{each.name}}}", quote(value, safe=""))
                else:
                    (query if each.place is Place.QUERY else body)[each.name] = value
            address = path + (f"?{urlencode(query)}" if query else "")
            sent = Sent(route.path, route.method, address, msgspec.json.encode(body).decode())
            yield sent if route.method == "POST" else msgspec.structs.replace(sent, body="")


def _values(parameter: Parameter, run: str, other: str) -> list[str]:
    """Return values of a parameter."""
    match parameter.name:
        case "run":
            return [run, other, "last"]
        case "other":
            return [other, run, run]
        case "since" | "before" | "id":
            return ["1", "2", "9999"]
        case "q" | "text":
            return ["seen", SECRET]
        case "key":
            return ["findings/a", "plans/0"]
        case "space":
            return ["org"]
        case "question":
            return ["{}"]
        case "statement":
            return ["SELECT run, type, agent FROM events ORDER BY 1, 2, 3"]
        case "step":
            return ["eve#1"]
        case "verdict":
            return ["happened"]
        case _:
            return ["notes/1-0.md", SECRET]


async def answers(
    http: httpx2.AsyncClient, several: list[Sent]
) -> list[tuple[int, dict[str, str], str]]:
    """Return all of the answers but the time, several at once; send again what came too early."""
    places = asyncio.Semaphore(4)

    async def answer(sent: Sent) -> tuple[int, dict[str, str], str]:
        key = {"idempotency-key": uuid4().hex} if sent.method == "POST" else {}
        async with places:
            while True:
                got = await http.request(
                    sent.method, sent.address, content=sent.body or None, headers=key
                )
                if "too many requests are under way" not in got.text:
                    break
                await asyncio.sleep(float(got.headers["retry-after"]))
        headers = {name: text for name, text in got.headers.items() if name not in IGNORED}
        return got.status_code, headers, got.text

    return await asyncio.gather(*map(answer, several))


@contextlib.asynccontextmanager
async def logged_in(lab: Lab, folder: Path, role: str) -> Any:
    """Yield a client of a principal in a role."""
    config = settings.load(workspace=lab.name, data_dir=lab.folder)
    place = folder / f"{role}-{uuid4().hex}.json"
    await make(config, CredentialsRequest(role=role, name=f"{role}_1", output=place))
    headers = {"authorization": f"Bearer {access.load(place).token}"}
    async with httpx2.AsyncClient(base_url=lab.http.base_url, timeout=60, headers=headers) as http:
        yield http


@pytest.mark.parametrize(
    ("role", "every"),
    [
        pytest.param("reader", 4, marks=pytest.mark.slow),
        pytest.param(
            "reader", 1, marks=pytest.mark.thorough(quick="test_hidden_parts_change_no_answer")
        ),
        pytest.param(
            "blind", 1, marks=pytest.mark.thorough(quick="test_hidden_parts_change_no_answer")
        ),
    ],
)
async def test_hidden_parts_change_no_answer(lab: Lab, tmp_path: Path, role: str, every: int):
    """Each request of a role has one answer, however much that it does not see is added.

    In `make check` this is shown for one request in four.
    """
    for name, rules in check.parse(ROLES).items():
        await lab.record.roles.apply(name, rules)
    async with visible(lab.record) as run, logged_in(lab, tmp_path, role) as http:
        other = await hidden(lab.record, run, 1)
        several = list(requests(lab, run, other))
        assert len({each.path for each in several}) >= 60
        chosen = random.Random(1)
        naming = [each for each in several if other in f"{each}"]
        several = [each for each in several if each not in naming]
        several = chosen.sample(several, len(several) // every)
        several += chosen.sample(naming, math.ceil(len(naming) / every))
        before = await answers(http, several)
        assert [
            (sent, answer) for sent, answer in zip(several, before, strict=True) if answer[0] >= 500
        ] == []
        shown = [
            sent.path.rpartition("{workspace}/")[2]
            for sent, (status, _, _) in zip(several, before, strict=True)
            if status == 200
        ]
        assert set(shown) == SHOWN_TO_ALL if role == "blind" else len(shown) >= 5
        await hidden(lab.record, run, 3)
        after = await answers(http, several)
        for sent, one, two in zip(several, before, after, strict=True):
            assert one == two, sent
            assert SECRET not in two[2] or SECRET in f"{sent}", sent
        named = [each for each in several if other in f"{each}"]
        assert len(named) >= 10
        absent = await answers(http, [each.but(other, ABSENT) for each in named])
        for sent, (status, headers, text) in zip(named, absent, strict=True):
            same = (status, headers, text.replace(ABSENT, other))
            assert same == before[several.index(sent)], sent


async def test_nothing_is_shown_without_a_login(lab: Lab):
    """Every route of the document but those of the server itself is 401, whatever it names."""
    document = (await lab.http.get("/api/v1/openapi.json")).json()
    several = [
        Sent(path, method.upper(), path.format_map(defaultdict(lambda: "x", workspace=lab.name)))
        for path, methods in document["paths"].items()
        for method in methods
        if path.startswith("/api/v1/{workspace}")
    ]
    assert len(several) >= 70
    several += [each.but(lab.name, "absent") for each in several]
    async with httpx2.AsyncClient(base_url=lab.http.base_url, timeout=30) as stranger:
        for sent, (status, _, text) in zip(several, await answers(stranger, several), strict=True):
            assert (status, "no valid login" in text) == (401, True), sent


@pytest.mark.slow
async def test_a_flood_of_hidden_runs_sends_nothing(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A stream that cannot keep up with hidden runs shows no trace of them."""
    monkeypatch.setattr(live, "FRAMES_MAX", 1)
    monkeypatch.setattr(live, "CATCH_UP_ROWS_MAX", 1)
    for name, rules in check.parse(ROLES).items():
        await lab.record.roles.apply(name, rules)
    async with (
        lab.record.run("work", agent="ada", role="writer") as session,
        logged_in(lab, tmp_path, "reader") as http,
        http.stream("GET", lab.at("/live"), timeout=20) as answer,
    ):
        lines = answer.aiter_lines()
        while await anext(lines) != "event: open":
            pass
        await hidden(lab.record, session.run, 5)
        await session.message("user", "to be seen")
        names = []
        async for line in lines:
            if line.startswith("event: "):
                names.append(line)
            if f'"run":"{session.run}"' in line:
                break
    assert names == ["event: runs"]
