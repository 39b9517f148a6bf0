"""The fork of a probe: a recorded value is another one in it, and nothing else is."""

from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.agents.runs import fork_swapped
from hansard.domain.errors import Refused
from hansard.domain.ids import uuid8
from hansard.domain.run import Swap
from hansard.domain.steps import StepStatus
from hansard.inspect.probes import Replacement, search
from tests.agents.twins import Lab

pytestmark = pytest.mark.later

CUSTOMERS: dict[int, dict[str, str | int]] = {1: {"name": "Ada", "gender": "female", "income": 30}}
"""Customers that the program looks up."""


class Program:
    """A program that decides by a lookup; its effects and its real calls."""

    def __init__(
        self,
        *,
        model: str = "",
        look_twice: bool = False,
        mails: bool = False,
        addresses: bool = False,
    ) -> None:
        self.ran: list[str] = []
        self.addresses = addresses
        self.model = model
        self.look_twice = look_twice
        self.mails = mails

    async def run(self, record, **options) -> str:
        """Run it once; return the decision."""
        async with record.run(**options) as session:

            @session.tool(effects="pure")
            def customer(number: int) -> dict[str, str | int]:
                self.ran.append("customer")
                return CUSTOMERS[number]

            @session.tool(effects="pure")
            def limit(income: int) -> int:
                self.ran.append("limit")
                return income // 2

            @session.tool(effects="pure")
            def address(gender: str) -> str:
                return {"male": "Mr", "female": "Ms"}[gender]

            @session.tool(effects="pure", kind="model")
            def judge(prompt: str) -> str:
                self.ran.append(f"judge {prompt}")
                return "fine"

            @session.tool(effects="once")
            def mail(to: str) -> str:
                self.ran.append("mail")
                return f"sent to {to}"

            profile = await customer(1)
            most = await limit(profile["income"])
            if self.addresses:
                await address(profile["gender"])
            if self.model:
                await judge(self.model.format(**profile))
            if self.look_twice:
                profile = await customer(1)
            if self.mails:
                await mail(profile["name"])
            chosen = "approve" if profile["gender"] == "male" or most > 20 else "decline"
            await session.decide(
                "Approve?",
                selected=chosen,
                alternatives=[{"id": "approve"}, {"id": "decline"}],
                inputs=[profile] if not self.look_twice else [],
            )
            return chosen


async def _forked(record, run: str, value: str, *, live: bool = False) -> str:
    """Return the fork of a run in which the customer's gender is another one."""
    workspace = record.workspace
    search_result = await search(workspace, run, "customer.gender")
    site = search_result.site
    assert site is not None, search_result.why
    swap = Swap(
        probe="p",
        path="customer.gender",
        agent=site.agent,
        step=site.step,
        tool=site.tool,
        arguments=site.arguments,
        within=site.within,
        before=msgspec.Raw(msgspec.json.encode(site.value)),
        after=msgspec.Raw(msgspec.json.encode(value)),
        live=live,
    )
    child = uuid8("probe", run, value, str(live))
    assert await fork_swapped(workspace, run, site.at, child, swap) is None
    there = await fork_swapped(workspace, run, site.at, child, swap)
    assert there is not None
    assert there.forked is not None
    assert there.forked.swap == swap
    with pytest.raises(Refused, match="is not the probe"):
        other = msgspec.structs.replace(swap, probe="q")
        await fork_swapped(workspace, run, site.at, child, other)
    return child


@pytest.fixture
def alone(data_dir: Path, workspace: str) -> Lab:
    """Make a fresh workspace for the async client: this fork is a command, which has no twin."""
    return Lab("async", data_dir, workspace)


async def test_the_value_is_swapped_in_the_answer_and_nothing_else(alone: Lab):
    """Only the answer of the probed call changes; the fork's first event names the swap."""
    program = Program()
    async with alone.connect() as record:
        assert await program.run(record, run="r") == "decline"
        before = await record.commits("r")
        program.ran.clear()
        child = await _forked(record, "r", "male")
        assert await program.run(record, run=child) == "approve"
        assert program.ran == ["limit"]
        view = await record.state(child)
        step = view.agent("ada").steps[1]
        assert msgspec.json.decode(step.result) == {**CUSTOMERS[1], "gender": "male"}
        swap = view.life.forked.swap
        assert (swap.tool, swap.within) == ("customer", ("gender",))
        assert (bytes(swap.before), bytes(swap.after)) == (b'"female"', b'"male"')
        assert await record.commits("r") == before
        assert await program.run(record, run=child, mode="strict") == "approve"  # as any run


@pytest.mark.parametrize(
    ("options", "value", "decided"),
    [
        pytest.param({}, "female", "decline", id="the recorded value decides as on record"),
        pytest.param({"look_twice": True}, "male", "approve", id="no call sees both values"),
        pytest.param({"model": "Is {name} fine?"}, "male", "approve", id="the same prompt"),
        pytest.param({"mails": True}, "male", "approve", id="effects are shadowed"),
    ],
)
async def test_the_fork_decides_by_the_swapped_value_alone(alone, options, value, decided):
    """Recorded calls are answered, however often they are made; pure ones after it run."""
    program = Program(**options)
    async with alone.connect() as record:
        await program.run(record, run="r")
        program.ran.clear()
        child = await _forked(record, "r", value)
        assert await program.run(record, run=child) == decided
        assert program.ran == ["limit"]


async def test_a_model_call_with_another_prompt_is_not_answered(alone: Lab):
    """Without `live` such a call is refused, on record, also on resume; with it, it runs."""
    program = Program(model="Is this {gender} fine?")
    async with alone.connect() as record:
        await program.run(record, run="r")
        program.ran.clear()
        child = await _forked(record, "r", "male")
        for _ in range(2):
            with pytest.raises(hansard.errors.NotAnswered, match="no such call"):
                await program.run(record, run=child)
        view = await record.state(child)
        [refused] = [s for s in view.agent("ada").steps.values() if s.kind == "model"]
        assert refused.status is StepStatus.FAILED
        assert refused.error.type == "NotAnswered"
        assert program.ran == ["limit"]
        live = await _forked(record, "r", "male", live=True)
        assert await program.run(record, run=live) == "approve"
        assert program.ran == ["limit", "limit", "judge Is this male fine?"]


@pytest.mark.parametrize("chain", ["result", "full"])
async def test_the_full_chain_answers_a_model_by_its_fingerprint(alone: Lab, chain: str):
    """In the full chain a call after a changed value is another one; by results it is the same."""
    program = Program(model="Is {name} fine?", addresses=True)
    async with alone.connect() as record:
        await program.run(record, run="r", chain=chain)
        same = await _forked(record, "r", "female")
        assert await program.run(record, run=same) == "decline"
        other = await _forked(record, "r", "male")
        if chain == "result":
            assert await program.run(record, run=other) == "approve"
        else:
            with pytest.raises(hansard.errors.NotAnswered):
                await program.run(record, run=other)


async def test_a_fork_of_a_probe_s_fork_is_the_probe_s(alone: Lab):
    """Such a fork is distinguished from a real run, too, and answered the same."""
    program = Program()
    async with alone.connect() as record:
        await program.run(record, run="r")
        child = await _forked(record, "r", "male")
        await program.run(record, run=child)
        again = await record.fork(child)
        assert (await record.state(again)).life.forked.swap.probe == "p"


async def test_a_plain_fork_is_written_as_before(alone: Lab):
    """An event without a swap has no such field."""
    async with alone.connect() as record:
        await Program().run(record, run="r")
        child = await record.fork("r")
        [stored] = await record.commits(child)
        assert b"swap" not in bytes(stored.commit.events[0].data)


async def test_a_path_names_a_value_that_a_call_returned(alone: Lab):
    """The tool's name before the path is optional; a missing path lists the existing ones."""
    async with alone.connect() as record:
        await Program().run(record, run="r")
        workspace = record.workspace
        for path in ("customer.gender", "gender"):
            site = (await search(workspace, "r", path)).site
            assert site is not None
            assert site.value == "female"
        search_result = await search(workspace, "r", "customer.gendre")
        assert search_result.site is None
        assert {"customer.gender", "limit"} <= search_result.paths
        assert (await search(workspace, "r", "number")).argument == "ada#1 customer"
        assert (await search(workspace, "r", "gender", "Decline")).why.startswith("no decision")


@pytest.mark.parametrize(
    ("text", "recorded", "values"),
    [
        ("a.b=female,male", "female", ["female", "male"]),
        ("a.b=1,2", "1", ["1", "2"]),
        ("a.b=1,2", 1, [1, 2]),
        ("a.b=true,false", True, [True, False]),
        ('a.b=["x,y",2]', "x,y", ["x,y", 2]),
    ],
)
def test_values_are_of_the_type_that_they_stand_in_for(text, recorded, values):
    """Texts for a text; else as JSON, where they are that."""
    assert Replacement.of(text).typed(recorded) == values


@pytest.mark.parametrize("text", ["a.b", "=x,y", "a.b=", "a.b=x", "a.b=x,x", 'a.b=["x"', "a=[1]"])
def test_a_swap_needs_a_path_and_two_values(text):
    """Any other text is refused with the expected form."""
    with pytest.raises(hansard.BadValue, match="give"):
        Replacement.of(text)
