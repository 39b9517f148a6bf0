"""A restricted role sees only its own tasks; the existence of others is hidden."""

from typing import Any

import msgspec
import pytest

import hansard
from tests.agents.twins import Lab, TwinRecord
from tests.permits.support import events, rules
from tests.team.support import team_of

pytestmark = pytest.mark.fast(cases=99, slow=0)

WORKER = """
[roles.writer]
may = { kinds = ["task.*", "mail.sent"] }
"""
WATCHER = """
[roles.writer]
may = { kinds = ["task.*"] }
sees = [{ name = "what the clerks have to do", kinds = ["task.*"], roles = ["clerk"] }]
"""
SECRET = "S3CRET"


async def seen_by_writer(
    record: TwinRecord, text: str, *, busy: bool
) -> tuple[list[Any], list[Any]]:
    """Return everything that a writer sees of tasks, with and without tasks of others around it."""
    await record.roles.apply("writer", rules(text))
    run = f"r{busy}"
    seen: list[Any] = []
    async with (
        record.run(run=run, agent="max", role="boss") as boss,
        record.run(run=run, agent=f"{SECRET}-cyd", role="clerk") as clerk,
        record.run(run=run) as session,
    ):
        team = team_of(session)
        if busy:
            for number in range(3):
                await team_of(boss).add(
                    f"{SECRET} {number}", role="clerk", task=f"{SECRET}{number}"
                )
            task = await team_of(clerk).claim()
            await team_of(clerk).complete(task, SECRET)
            await team_of(clerk).claim()
        await team_of(boss).add("for the writer", role="writer", task="mine")
        await team_of(boss).add("for anybody", task="any")
        seen.append([_plain(each) for each in await team.tasks()])
        seen.append(await team.add("my own", role="boss"))
        for wrong in (
            {"title": "t", "waits_for": [f"{SECRET}0"]},
            {"title": "t", "waits_for": ["never added"]},
        ):
            with pytest.raises(hansard.errors.Refused) as refused:
                await team.add(**wrong)
            seen.append(str(refused.value).replace(f"{SECRET}0", "never added"))
        seen.append(await team.wait_for(task=f"{SECRET}0", timeout_s=0.05))
        task = await team.claim()
        seen.append(_plain(task))
        with pytest.raises(hansard.errors.ClaimLost) as lost:
            await team.complete(type(task)(f"{SECRET}1", "", 1))
        seen.append(str(lost.value))
        await team.complete(task, "done")
        seen.append([_plain(each) for each in await team.tasks()])
    own = [
        (tag, data.get("result"), data.get("error"))
        for stream, tag, data in await events(record, run)
        if stream == "agent/writer/ada" and tag in ("step.completed.v1", "step.failed.v1")
    ]
    return seen, own


def _plain(entry: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    plain.pop("lease_left_s", None)
    return plain


@pytest.mark.fast(cases=0, slow=1)
async def test_tasks_of_others_leave_no_trace(lab: Lab):
    """A restricted agent's tasks, ids, errors and waits are the same with and without others'."""
    async with lab.connect() as record:
        alone, own_alone = await seen_by_writer(record, WORKER, busy=False)
        busy, own_busy = await seen_by_writer(record, WORKER, busy=True)
    assert busy == alone
    assert SECRET not in msgspec.json.encode(own_busy).decode().replace(f"{SECRET}0", "").replace(
        f"{SECRET}1", ""
    )
    assert len(own_busy) == len(own_alone)
    listed, added, *_ = alone
    assert [each["id"] for each in listed] == ["mine", "any"]
    assert added == "ada-1"


async def test_tasks_that_its_rules_show_are_seen(record: TwinRecord):
    """A task is seen where the rules show everything stated by the agents involved in it."""
    await record.roles.apply("writer", rules(WATCHER))
    async with (
        record.run(run="r", agent="cyd", role="clerk") as clerk,
        record.run(run="r", agent="max", role="boss") as boss,
        record.run(run="r") as session,
    ):
        await team_of(clerk).add("of clerks", role="clerk", task="theirs")
        await team_of(clerk).add("of the boss", role="boss", task="hers")
        await team_of(boss).add("by the boss", role="clerk", task="by her")
        await team_of(clerk).add("waits", role="clerk", waits_for=["hers"], task="waits")
        seen = {each.id: each for each in await team_of(session).tasks()}
        assert set(seen) == {"theirs", "waits"}
        assert (seen["waits"].status, seen["waits"].waits_for) == ("waiting", [])
        assert len(await team_of(boss).tasks()) == 4


async def test_a_circle_names_no_task_of_others(record: TwinRecord):
    """A dependency cycle is refused without naming tasks of others."""
    await record.roles.apply("writer", rules(WORKER))
    async with (
        record.run(run="r", agent="max", role="boss") as boss,
        record.run(run="r") as session,
    ):
        await team_of(boss).add("x", role="clerk", waits_for_roles=["writer"], task=SECRET)
        with pytest.raises(hansard.errors.Refused, match="would wait for itself") as refused:
            await team_of(session).add("y", role="writer", waits_for_roles=["clerk"], task="mine")
        assert SECRET not in str(refused.value)
        with pytest.raises(hansard.errors.Refused, match="cannot be added under this id"):
            await team_of(session).add("y", role="writer", task=SECRET)


async def test_a_task_that_went_to_others_is_gone(record: TwinRecord):
    """A slow agent learns that its task is no longer its own, but not who has it."""
    await record.roles.apply("writer", rules(WORKER))
    async with (
        record.run(run="r", agent="max", role="boss") as boss,
        record.run(run="r") as session,
        record.run(run="r", agent="bob") as other,
    ):
        await team_of(boss).add("x", role="writer", task="x")
        slow = await team_of(session).claim()
        await team_of(other).tasks()
        await team_of(session).hand_off(slow, role="boss")
        with pytest.raises(hansard.errors.ClaimLost, match="task 'x' is not yours") as lost:
            await team_of(session).complete(slow)
        assert lost.value.holder == ""
        assert await team_of(session).tasks() == []


async def test_messages_of_others_are_not_counted(record: TwinRecord):
    """Other mail changes neither numbers nor inboxes; each message is given once."""

    async def story(record: TwinRecord, run: str, *, busy: bool) -> tuple[list[Any], list[Any]]:
        seen: list[Any] = []
        async with record.run(run=run, agent="max", role="boss") as boss:
            for part in range(3):
                async with record.run(run=run) as session:
                    for number in range(2):
                        if busy:
                            await team_of(boss).send(SECRET, role="clerk")
                        await team_of(boss).send(f"{part} {number}", role="writer")
                    seen.append([_plain(each) for each in await team_of(session).inbox()])
                    seen.append(await team_of(session).inbox())
                    seen.append(await team_of(session).send("hello", role="boss"))
        own = [
            data["result"]
            for stream, tag, data in await events(record, run)
            if stream == "agent/writer/ada" and tag == "step.completed.v1"
        ]
        return seen, own

    await record.roles.apply("writer", rules(WORKER))
    alone = await story(record, "r1", busy=False)
    assert await story(record, "r2", busy=True) == alone
    contents = [each["content"] for each in alone[0][0]]
    assert contents == ["0 0", "0 1"]


async def test_an_inbox_goes_on_where_it_was_before_its_role_was_defined(lab: Lab):
    """Each message is given once: numbers of before and of after mean the same place."""
    async with lab.connect() as record, record.run(run="r", agent="max", role="boss") as boss:
        contents: list[str] = []
        for part in range(4):
            if part == 1:
                await record.roles.apply("writer", rules(WORKER))
            async with record.run(run="r") as session:
                await team_of(boss).send("to others", role="clerk")
                await team_of(boss).send(f"{part}", role="writer")
                for _ in range(part):  # what the sessions before have read
                    await team_of(session).inbox()
                contents += [mail.content for mail in await team_of(session).inbox()]
        assert contents == ["0", "1", "2", "3"]


async def test_a_role_s_refusal_precedes_that_of_its_labels(record: TwinRecord):
    """Whatever the agent was shown: one refusal, by the role."""
    await record.roles.apply("writer", rules("[roles.writer.may]\ntools = ['look']\n"))
    await record.roles.apply("clerk", rules(WORKER))
    async with record.run(run="r") as session:

        @session.tool(effects="pure", gives="secret")
        async def look() -> str:
            return SECRET

        await look()
        for deed in (
            lambda: team_of(session).send("x", role="clerk"),
            lambda: team_of(session).add("x", role="clerk"),
        ):
            with pytest.raises(hansard.Blocked) as refused:
                await deed()
            assert refused.value.rule == "role writer"
    tags = [tag for tag in await record.tags("r") if "refused" in tag or "blocked" in tag]
    assert tags == ["agent.refused.v1"] * 2
