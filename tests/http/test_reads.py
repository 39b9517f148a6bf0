"""The reads of the page: each answers as the fold of the log does, at any point."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents.workspace import RunFilter
from hansard.inspect import run as runs
from hansard.inspect.run import list_runs
from tests.http.conftest import Lab

pytestmark = pytest.mark.later


@hansard.tool
async def search(q: str) -> str:
    """Return something."""
    return q * 3


async def recorded(record: hansard.AsyncRecord, workflow: str = "review") -> str:
    """Record a run with one event of most kinds; return its id."""
    async with record.run(workflow, agent="ada", role="reviewer", labels={"team": "blue"}) as s:
        await search("hello world")
        await s.message("user", "please look at this")
        await s.board.put("plan", {"todo": [1, 2]})
        await s.team.add("check the numbers")
        await s.decide("which?", selected="A", alternatives=["A", "B"], reason="it is first")
        await s.hand_off("bob")
        await s.board.put("plan", {"todo": [2]})
        run: str = s.run
    return run


async def get(lab: Lab, path: str, **query: Any) -> Any:
    """Return the JSON of a read."""
    answer = await lab.http.get(lab.at(path), params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def plain(value: Any) -> Any:
    """Return a value as a client decodes it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def pairs(rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the rows of an outline, with names in place of numbers."""
    named = zip(
        rows["position"],
        rows["index"],
        rows["time"],
        (rows["agents"][each] for each in rows["agent"]),
        (rows["types"][each] for each in rows["type"]),
        rows["step"],
        (rows["statuses"][each] for each in rows["status"]),
        rows["text"],
        strict=True,
    )
    return list(named)


class TestRuns:
    async def test_list(self, lab: Lab) -> None:
        """The list is that of `hansard runs --json`, page by page, filtered by text and status."""
        names = [await recorded(lab.record, workflow) for workflow in ("one", "two", "three")]
        listed = await list_runs(lab.record.workspace, RunFilter(), 0)
        whole = await get(lab, "/runs")
        assert whole["runs"] == plain(listed.runs)
        assert (whole["found"], whole["next"]) == (3, None)
        first = await get(lab, "/runs", limit=2)
        rest = await get(lab, "/runs", limit=2, cursor=first["next"])
        assert [each["run"] for each in (*first["runs"], *rest["runs"])] == names[::-1]
        assert [each["run"] for each in (await get(lab, "/runs", text="TW"))["runs"]] == [names[1]]
        assert len((await get(lab, "/runs", text="blue", status="completed"))["runs"]) == 3
        assert (await get(lab, "/runs", status="failed"))["found"] == 0

    async def test_file(self, lab: Lab) -> None:
        """A run is one file to share; redacted, it has names and numbers, and no recorded text."""
        run = await recorded(lab.record)
        whole, redacted = [
            (await lab.http.get(lab.at(f"/runs/{run}/file"), params={"redacted": each})).text
            for each in ("false", "true")
        ]
        for text in ("hello world", "please look at this", "check the numbers", "it is first"):
            assert (text in whole, text in redacted) == (True, False)
        assert "ada" in redacted
        assert "11 characters]" in redacted

    async def test_order(self, lab: Lab) -> None:
        """The server orders all runs, page by page, and states what each has cost."""
        names: list[str] = []
        for cost in (0.5, 2.0, None):
            async with lab.record.run("priced") as s:
                for _ in range(3 if cost is None else 1):

                    @hansard.tool(kind="model")
                    async def ask(number: int, cost: float | None = cost) -> str:
                        if cost is not None:
                            s.usage(cost=cost, input_tokens=7)
                        return "x"

                    await ask(len(names))
            names.append(s.run)
        first = await get(lab, "/runs", sort="cost", limit=2)
        rest = await get(lab, "/runs", sort="cost", limit=2, cursor=first["next"])
        costs = [(each["run"], each["cost"], each["tokens"]) for each in first["runs"]]
        assert costs == [(names[1], 2.0, 7), (names[0], 0.5, 7)]
        assert ([each["run"] for each in rest["runs"]], rest["next"]) == ([names[2]], None)
        assert (await get(lab, "/runs", sort="steps"))["runs"][0]["run"] == names[2]
        for order in ("began", "in_doubt", "failed", "longest", "tokens"):
            assert len((await get(lab, "/runs", sort=order))["runs"]) == len(names)

    async def test_long_runs_and_changes(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        """Runs that are read from chunks, or kept from the last list, are listed as they are."""
        monkeypatch.setattr(runs, "LONG_VERSIONS", 1)
        run = await recorded(lab.record)
        for _ in range(2):
            listed = await list_runs(lab.record.workspace, RunFilter(), 0)
            assert (await get(lab, "/runs"))["runs"] == plain(listed.runs)
        async with lab.record.run("review", run=run, agent="bob", role="reviewer") as s:
            await s.message("user", "one more")
            listed = await list_runs(lab.record.workspace, RunFilter(), 0)
            [row] = (await get(lab, "/runs"))["runs"]
            assert (row["status"], row["position"]) == ("open", listed.runs[0].position)

    async def test_show(self, lab: Lab) -> None:
        """A run at each of its positions is that of `hansard run show --at`."""
        run = await recorded(lab.record)
        head = await lab.record.workspace.log.head()
        for position in range(2, head + 1, 3):
            report: Any = await runs.show(lab.record.workspace, run, str(position), None)
            shown = await get(lab, f"/runs/{run}", at=position)
            assert shown["run"] == plain(report.run)
            assert shown["agents"] == plain(report.agents)

    async def test_missing(self, lab: Lab) -> None:
        """A run, a point and an event that do not exist are 404 with a remedy."""
        run = await recorded(lab.record)
        for path in ("/runs/none", "/runs/none/outline", f"/runs/{run}/events/999.0"):
            answer = await lab.http.get(lab.at(path))
            assert answer.status_code == 404
            assert answer.json()["remedy"]

    async def test_missing_key(self, lab: Lab) -> None:
        """The remedy of a missing key is the command that lists keys; the fact is without it."""
        run = await recorded(lab.record)
        problem = (await lab.http.get(lab.at(f"/runs/{run}/origin/nope"))).json()
        assert problem["fact"].endswith("was not found")
        assert problem["remedy"] == f"see 'hansard board {run}'"
        assert problem["detail"] == f"{problem['fact']}: {problem['remedy']}"


class TestOutline:
    async def test_pages(self, lab: Lab) -> None:
        """Pages of any size hold each event once, in order."""
        run = await recorded(lab.record)
        whole = await get(lab, f"/runs/{run}/outline")
        assert whole["next"] is None
        history = await lab.record.workspace.states.history(run)
        assert [row[:2] for row in pairs(whole["rows"])] == [
            (stored.position, index)
            for stored in history
            for index in range(len(stored.commit.events))
        ]
        for limit in (1, 3, 7):
            rows: list[Any] = []
            after: int | None = 0
            while after is not None:
                page = await get(lab, f"/runs/{run}/outline", after=after, limit=limit)
                rows += pairs(page["rows"])
                after = page["next"]
            assert rows == pairs(whole["rows"])

    async def test_parts(self, lab: Lab) -> None:
        """The end, some positions, and rows without first words are parts of the whole."""
        run = await recorded(lab.record)
        path = f"/runs/{run}/outline"
        whole = (await get(lab, path))["rows"]
        rows = pairs(whole)
        for limit in (1, 4, len(rows), 500):
            end = await get(lab, path, part="end", limit=limit)
            shown = pairs(end["rows"])
            assert len(shown) >= min(limit, len(rows))
            assert (shown, end["next"]) == (rows[-len(shown) :], None)
        places = sorted(set(whole["position"]))[1::2]
        some = await get(lab, path, at=",".join(map(str, places)))
        assert pairs(some["rows"]) == [row for row in rows if row[0] in places]
        bare = (await get(lab, path, words=False))["rows"]
        assert bare == {**whole, "text": []}
        assert (await lab.http.get(lab.at(path), params={"at": "1,x"})).status_code == 400

    async def test_first_words(self, lab: Lab) -> None:
        """A row has the first words of its event, its step and the status it leaves."""
        run = await recorded(lab.record)
        rows = pairs((await get(lab, f"/runs/{run}/outline"))["rows"])
        words = {row[4]: row[5:] for row in rows}
        assert words["message.added.v1"] == (1, "", "user: please look at this")
        assert words["decision.made.v1"] == (None, "", "which? → A")
        assert words["board.put.v1"] == (None, "", 'plan = {"todo":[2]}')
        assert (1, "requested", "search(q=hello world)") in [row[5:] for row in rows]

    async def test_fork(self, lab: Lab) -> None:
        """The outline of a fork begins with its parent's events up to the cut."""
        parent = await recorded(lab.record)
        rows = pairs((await get(lab, f"/runs/{parent}/outline"))["rows"])
        cut = rows[len(rows) // 2][0]
        fork = await lab.record.fork(parent, at=cut)
        whole = pairs((await get(lab, f"/runs/{fork}/outline"))["rows"])
        ours = [row for row in whole if row[4] == "run.forked.v1"]
        assert len(ours) == 1
        history = await lab.record.workspace.states.history(fork)
        assert {row[0] for row in whole} == {stored.position for stored in history}
        assert whole[:-1] == rows[: len(whole) - 1]
        first = await get(lab, f"/runs/{fork}/outline", limit=3)
        rest = await get(lab, f"/runs/{fork}/outline", after=first["next"])
        assert pairs(first["rows"]) + pairs(rest["rows"]) == whole

    async def test_event(self, lab: Lab) -> None:
        """An event is found by its address and by its id, with exactly its data."""
        run = await recorded(lab.record)
        for stored in await lab.record.workspace.states.history(run):
            for index, each in enumerate(stored.commit.events):
                address = f"{stored.position}.{index}"
                event = await get(lab, f"/runs/{run}/events/{address}")
                assert event == await get(lab, f"/runs/{run}/events/{each.id}")
                assert (event["address"], event["id"], event["type"]) == (
                    address,
                    each.id,
                    each.type,
                )
                assert event["data"] == msgspec.json.decode(each.data)


@pytest.mark.parametrize(
    "path",
    ["/state", "/changes?since=2", "/context", "/board", "/board?key=plan", "/tasks", "/knew"],
)
async def test_other_reads(lab: Lab, path: str) -> None:
    """Each read of a run answers for a run with one event of most kinds."""
    run = await recorded(lab.record)
    answer = await lab.http.get(lab.at(f"/runs/{run}{path}"))
    assert answer.status_code == 200, answer.text
