"""Live streams: each event once and in order, from any position, across restarts and for slow
clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest

from hansard.client.listening import CLOSING_S
from hansard.service.http import live
from tests.http.conftest import Lab
from tests.http.test_reads import get, pairs, recorded

pytestmark = pytest.mark.later


class Event(msgspec.Struct):
    """A server-sent event."""

    name: str
    data: Any
    id: str


async def events(answer: httpx2.Response) -> AsyncGenerator[Event]:
    """Yield the events of a stream."""
    name, data, at = "", "", ""
    async for line in answer.aiter_lines():
        field, _, text = line.partition(": ")
        if field == "event":
            name = text
        elif field == "data":
            data = text
        elif field == "id":
            at = text
        elif not line and data:
            yield Event(name, json.loads(data), at)
            name, data = "", ""


@contextlib.asynccontextmanager
async def stream(
    http: httpx2.AsyncClient, path: str, **headers: str
) -> AsyncIterator[AsyncGenerator[Event]]:
    """Yield the events of a path while the block runs."""
    sent = {name.replace("_", "-"): text for name, text in headers.items()}
    async with http.stream("GET", path, headers=sent) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events(answer)


async def rows_until(
    following: AsyncGenerator[Event], last: int
) -> tuple[list[tuple[Any, ...]], str]:
    """Return the rows of a stream up to a position, and the last id."""
    rows: list[tuple[Any, ...]] = []
    async with asyncio.timeout(30):
        async for event in following:
            if event.name == "rows":
                rows += pairs(event.data)
                if rows[-1][0] >= last:
                    return rows, event.id
    raise AssertionError(rows)


class TestRun:
    async def test_rows_as_they_are_recorded(self, lab: Lab) -> None:
        """A stream has the rows of the outline, each once; the intent before its outcome."""
        async with lab.record.run("w", agent="ada", role="r") as s:
            async with stream(lab.http, lab.at(f"/runs/{s.run}/live?after=0")) as following:
                opened = await anext(following)
                assert (opened.name, opened.id) == ("open", "0")
                for number in range(20):
                    await s.message("user", f"number {number}")
                last = await lab.record.workspace.log.head()
                rows, _ = await rows_until(following, last)
            whole = await get(lab, f"/runs/{s.run}/outline")
            assert rows == pairs(whole["rows"])

    async def test_continues_at_each_id(self, lab: Lab) -> None:
        """`Last-Event-ID` continues exactly, wherever the stream was cut."""
        run = await recorded(lab.record)
        whole = pairs((await get(lab, f"/runs/{run}/outline"))["rows"])
        path = lab.at(f"/runs/{run}/live")
        for position in sorted({row[0] for row in whole})[:-1:3]:
            async with stream(lab.http, path, last_event_id=f"{position}") as following:
                rows, last = await rows_until(following, whole[-1][0])
            assert rows == [row for row in whole if row[0] > position]
            assert last == f"{whole[-1][0]}"

    async def test_many_streams_while_writing(self, lab: Lab) -> None:
        """Streams that join while several agents write have each row once, in order."""
        count = 40

        async def write(name: str, run: str) -> None:
            async with lab.record.run("w", run=run, agent=name, role="r") as s:
                for number in range(count):
                    await s.message("user", f"{name} {number}")

        async def follow(delay_s: float, path: str) -> list[tuple[Any, ...]]:
            await asyncio.sleep(delay_s)
            async with stream(lab.http, path) as following:
                done: list[tuple[Any, ...]] = []
                async for event in following:
                    done += pairs(event.data) if event.name == "rows" else []
                    if sum(row[4] == "message.added.v1" for row in done) == 3 * count:
                        return done
            raise AssertionError(done)

        async with lab.record.run("w", agent="ada", role="r") as s:
            path = lab.at(f"/runs/{s.run}/live?after=0")
            streams = [asyncio.create_task(follow(each / 50, path)) for each in range(8)]
            await asyncio.gather(*(write(name, s.run) for name in ("bob", "cy", "di")))
            async with asyncio.timeout(30):
                received = await asyncio.gather(*streams)
            whole = pairs((await get(lab, f"/runs/{s.run}/outline"))["rows"])
        for rows in received:
            assert rows == whole[: len(rows)]

    async def test_slow_client(self, lab: Lab, monkeypatch: Any) -> None:
        """What is dropped for a slow client is read again from the log: nothing is missing."""
        monkeypatch.setattr(live, "FRAMES_MAX", 2)
        monkeypatch.setattr(live, "FLUSH_S", 0.0)
        hub = live.Hub(lab.record.workspace)
        async with lab.record.run("w", agent="ada", role="r") as s:
            again = live.rows_again(lab.record.workspace, s.run)
            texts: list[str] = []
            async with contextlib.aclosing(live.events_of(hub, s.run, 0, again)) as following:
                assert b"event: open" in await anext(following)
                for number in range(30):
                    await s.message("user", f"number {number}")
                    if number % 10 == 9:
                        texts += _texts(await anext(following))
                async with asyncio.timeout(20):
                    while len([text for text in texts if "number" in text]) < 30:
                        texts += _texts(await anext(following))
            assert [text for text in texts if "number" in text] == [
                f"user: number {number}" for number in range(30)
            ]
        assert not hub.streams
        assert not hub.is_following

    async def test_too_far_behind(self, lab: Lab, monkeypatch: Any) -> None:
        """A client too far behind is made to reload from its last position."""
        monkeypatch.setattr(live, "CATCH_UP_ROWS_MAX", 4)
        monkeypatch.setattr(live, "BATCH_ROWS_MAX", 2)
        run = await recorded(lab.record)
        async with stream(lab.http, lab.at(f"/runs/{run}/live?after=0")) as following:
            received = [event async for event in following]
        assert [event.name for event in received] == ["open", "rows", "rows", "reload"] or (
            received[-1].name == "reload"
        )
        rows = [row for event in received[1:-1] for row in pairs(event.data)]
        rest = await get(lab, f"/runs/{run}/outline", after=received[-1].data["after"])
        whole = await get(lab, f"/runs/{run}/outline")
        assert rows + pairs(rest["rows"]) == pairs(whole["rows"])

    async def test_bad_position(self, lab: Lab) -> None:
        """A position that the log has not reached, or no position, is refused."""
        run = await recorded(lab.record)
        for after in ("99999", "x", "-1"):
            answer = await lab.http.get(lab.at(f"/runs/{run}/live?after={after}"))
            assert answer.status_code == 400
        assert (await lab.http.get(lab.at("/runs/none/live"))).status_code == 404


def _texts(event: bytes) -> list[str]:
    if not event.startswith(b"id") or b"event: rows" not in event:
        return []
    return [row[7] for row in pairs(json.loads(event.split(b"data: ", 1)[1]))]


class TestRuns:
    async def test_runs_that_change(self, lab: Lab) -> None:
        """The stream of all runs names each run that changed, also of before, by `after`."""
        before = await lab.record.workspace.log.head()
        first = await recorded(lab.record)
        async with stream(lab.http, lab.at(f"/live?after={before}")) as following:
            named = [await anext(following) for _ in range(2)]
            assert [event.name for event in named] == ["open", "runs"]
            assert [each["run"] for each in named[1].data["runs"]] == [first]
            second = await recorded(lab.record)
            async with asyncio.timeout(20):
                event = await anext(following)
            assert {each["run"] for each in event.data["runs"]} == {second}


async def test_leaving(lab: Lab) -> None:
    """When the last client has left, nothing follows the log any more."""
    async with lab.record.run("w", agent="ada", role="r") as s:
        async with stream(lab.http, lab.at(f"/runs/{s.run}/live")) as following:
            assert (await anext(following)).name == "open"
            hubs = [each for each in gc.get_objects() if type(each) is live.Hub]
            [hub] = [each for each in hubs if each.streams]
            assert hub.is_following
        for _ in range(200):
            if not hub.streams:
                break
            await asyncio.sleep(0.05)
        assert not hub.streams
        assert not hub.is_following


async def test_the_end_of_the_service(lab: Lab) -> None:
    """A service that ends closes its streams at once, in order: the client sees a whole answer."""
    async with contextlib.AsyncExitStack() as service:
        url = (await service.enter_async_context(lab.listening())).base_url
        async with (
            httpx2.AsyncClient(base_url=url, headers=lab.http.headers) as http,
            stream(http, lab.at("/live")) as following,
        ):
            assert (await anext(following)).name == "open"
            began_s = time.monotonic()
            ending = asyncio.create_task(service.aclose())
            assert [event async for event in following] == []
            await ending
            assert time.monotonic() - began_s < CLOSING_S
