"""The plan of a fork: what it states of each call is what happens when the program runs in it."""

from __future__ import annotations

from typing import Any

import pytest

import hansard
from tests.http.conftest import Lab
from tests.http.test_reads import get

pytestmark = pytest.mark.later


class Shop:
    """A program whose calls depend on each other in several ways."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def run(self, record: hansard.AsyncRecord, run: str | None = None) -> str:
        """Run it; return its run."""
        ran = self.ran

        @hansard.tool(effects="pure")
        async def find_order(number: int) -> str:
            ran.append("find_order")
            return "lost somewhere in the north"

        @hansard.tool(effects="idempotent", kind="model")
        async def ask(text: str) -> str:
            ran.append("ask")
            return "refund"

        @hansard.tool(effects="once")
        async def refund(amount: int) -> str:
            ran.append("refund")
            return f"paid {amount}"

        @hansard.tool(effects="pure")
        async def weather(city: str) -> str:
            ran.append("weather")
            return "rain"

        async with record.run("shop", run=run, agent="clerk", role="r") as s:
            await weather("Oslo")
            order = await find_order(17)
            await ask(f"the order is {order}")
            await refund(20)
            await weather("Rome")

            async def apart() -> None:
                await weather("Bern")

            await s.gather(apart())
            name: str = s.run
        return name


EDIT = "clerk#2"


def action(plan: dict[str, Any]) -> dict[str, str]:
    """Return the planned action of each step."""
    return {each["step"]: each["action"] for each in plan["calls"]}


async def test_plan_and_run_agree(lab: Lab) -> None:
    """With an edit, calls run, are withheld or are answered as the plan states."""
    shop = Shop()
    parent = await shop.run(lab.record)
    plan = await get(lab, f"/runs/{parent}/plan", edit=EDIT)
    assert action(plan) == {
        "clerk#2": "edited",
        "clerk#3": "runs",
        "clerk#4": "withheld",
        "clerk#5": "served",
        "clerk#6": "served",
    }
    assert (plan["before"], plan["effects"], plan["workflow"]) == (1, "models", "shop")
    assert plan["counts"] == {"edited": 1, "runs": 1, "withheld": 1, "served": 2}
    [edited] = plan["edits"]
    assert (edited["name"], edited["edit"], edited["what"]) == (EDIT, "result", "find_order")
    assert edited["value"] == "lost somewhere in the north"
    edits = [hansard.replace(EDIT, result="delivered to the south")]
    fork = await lab.record.fork(parent, edits=edits)
    shop.ran.clear()
    await shop.run(lab.record, fork)
    assert shop.ran == ["ask"]
    position = (await get(lab, f"/runs/{fork}/outline"))["rows"]["position"]
    assert plan["position"] < position[-1]


class Desk:
    """A program with a message, a key of shared state and a prompt."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def run(self, record: hansard.AsyncRecord, run: str | None = None) -> str:
        """Run it; return its run."""
        asked = self.asked

        @hansard.tool(effects="idempotent", kind="model")
        async def ask(messages: list[Any]) -> str:
            asked.append(messages[0])
            return "an answer"

        prompt = await record.prompts.get("desk@1")
        async with record.run("desk", run=run, agent="clerk", role="r") as s:
            await s.message("user", "the parcel is lost")
            await s.board.put("plan", "refund")
            await ask(["the parcel is lost"])
            await ask([await s.board.get("plan")])
            await ask([prompt.format(name="Ann")])
            name: str = s.run
        return name


async def test_messages_keys_and_prompts(lab: Lab) -> None:
    """The page's edits of a message, a key and a prompt: the plan states what then happens."""
    await lab.record.prompts.add("desk", "Good day, {name}.")
    await lab.record.prompts.add("desk", "Hey {name}!")
    desk = Desk()
    parent = await desk.run(lab.record)
    statement = "SELECT type, address_of(position, event_index) FROM events WHERE run = ?"
    place = dict((await lab.record.sql(statement, parent)).rows)
    cases = [
        ({"edit": place["message.added.v1"]}, "message", "the parcel is lost", "found it", ["ask"]),
        ({"edit": place["board.put.v1"]}, "content", "refund", "wait", ["board.get"]),
        ({"prompt": "clerk#5=desk"}, "prompt", "desk@1", "Hey Ann!", ["ask"]),
    ]
    for query, kind, value, asked, runs in cases:
        plan = await get(lab, f"/runs/{parent}/plan", **query)
        [edit] = plan["edits"]
        assert (edit["edit"], edit["value"]) == (kind, value)
        certain = [each for each in plan["calls"] if each["is_certain"]]
        assert [each["tool"] for each in certain if each["action"] == "runs"] == runs
        body: dict[str, Any] = {"step": edit["name"]}
        body |= {"prompt": edit["versions"][1]} if kind == "prompt" else {"result": asked}
        path = lab.at("/record/fork")
        headers = {"Idempotency-Key": kind}
        fork = await lab.http.post(path, json={"run": parent, "edits": [body]}, headers=headers)
        assert fork.status_code == 200, fork.text
        desk.asked.clear()
        await desk.run(lab.record, fork.json())
        assert desk.asked == [asked]


@pytest.mark.parametrize(
    ("effects", "model", "payment"), [("shadow", "withheld", "withheld"), ("live", "runs", "stops")]
)
async def test_effects(lab: Lab, effects: str, model: str, payment: str) -> None:
    """The handling of effects decides about calls that the record does not answer."""
    parent = await Shop().run(lab.record)
    plan = await get(lab, f"/runs/{parent}/plan", edit=EDIT, effects=effects)
    assert action(plan)["clerk#3"] == model
    assert action(plan).get("clerk#4") in {payment, "served"}


async def test_a_point_and_refusals(lab: Lab) -> None:
    """At a point the program goes on by itself; impossible plans are refused with a remedy."""
    parent = await Shop().run(lab.record)
    plan = await get(lab, f"/runs/{parent}/plan", at="clerk#2")
    assert [each["is_certain"] for each in plan["calls"]] == [False] * len(plan["calls"])
    for query in ({"edit": "clerk#99"}, {"edit": EDIT, "at": "3"}, {"edit": "x"}):
        answer = await lab.http.get(lab.at(f"/runs/{parent}/plan"), params=query)
        assert answer.status_code in {400, 404}
        assert answer.json()["remedy"]


async def test_fork_and_request(lab: Lab) -> None:
    """The page makes a fork with an edit, and requests a run of it; a worker sees the request."""
    parent = await Shop().run(lab.record)
    body = {"run": parent, "edits": [{"step": EDIT, "result": "delivered"}], "reason": "a test"}
    headers = {"Idempotency-Key": "one"}
    path = lab.at("/record/fork")
    first, again = [await lab.http.post(path, json=body, headers=headers) for _ in range(2)]
    assert first.status_code == 200, first.text
    assert first.json() == again.json()
    fork = first.json()
    question = {"run": fork, "reason": "a test"}
    headers = {"Idempotency-Key": "two"}
    request = await lab.http.post(lab.at("/queue/request"), json=question, headers=headers)
    assert request.status_code == 200, request.text
    [waiting] = await get(lab, "/record/queue/list")
    assert (waiting["run"], waiting["status"], waiting["workflow"]) == (fork, "requested", "shop")


async def test_origin_and_use_of_a_result(lab: Lab) -> None:
    """Of a result: the calls made after it, and events with its text; of arguments their source."""
    parent = await Shop().run(lab.record)
    trail = await get(lab, f"/runs/{parent}/result/clerk%232")
    assert (trail["step"], trail["result"]) == (EDIT, "lost somewhere in the north")
    used = [(each["type"], each["step"], each["is_next"]) for each in trail["uses"]]
    assert used == [("step.requested", "3", True)]
    later = await get(lab, f"/runs/{parent}/result/clerk%233")
    assert [(each["type"], each["step"]) for each in later["sources"]] == [("step.completed", "2")]
    assert [each["name"] for each in later["uses"]] == ["refund"]
