"""The cost of a message does not grow with the messages before it."""

from collections import Counter
from pathlib import Path

import pytest

import hansard
from hansard.agents.team.tasks import Mailbox
from hansard.domain.team import MailSent, is_for
from hansard.state import replay
from tests.agents.twins import Lab, twins
from tests.team.support import team_of

MESSAGES = 40


@pytest.mark.slow(cases=1)
@twins
async def test_each_message_is_looked_at_once(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """Sender and inbox reader process each message once, however many there are."""
    looked: Counter[str] = Counter()

    def counted(mail: MailSent, agent: str, role: str) -> bool:
        looked[agent] += 1
        return is_for(mail, agent, role)

    monkeypatch.setattr("hansard.agents.team.tasks.is_for", counted)
    async with (
        lab.connect() as record,
        record.run("w", run="r", agent="ada", role="writer") as ada,
        record.run("w", run="r", agent="bob", role="reader") as bob,
    ):
        for number in range(MESSAGES):
            await team_of(ada).send(number, agent="bob")
            [mail] = await team_of(bob).inbox()
            assert (mail.number, mail.content) == (number + 1, number)
        assert await team_of(bob).inbox() == []
    # A resumed session is given what is new alone, whatever the others read.
    async with lab.connect() as record, record.run("w", run="r", agent="bob", role="reader") as bob:
        for _ in range(MESSAGES):
            assert len(await team_of(bob).inbox()) == 1
        assert await team_of(bob).inbox() == []
        assert await team_of(bob).inbox() == []
    assert looked["ada"] <= MESSAGES
    assert looked["bob"] <= 3 * MESSAGES


async def test_a_box_takes_no_message_twice(data_dir: Path, workspace: str):
    """Two reads at once, the later one answered first."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with (
            record.run("w", run="r", agent="ada", role="writer") as ada,
            record.run("w", run="r", agent="bob", role="reader"),
        ):
            for number in range(4):
                to = {"agent": "bob"} if number % 2 else {"role": "writer"}
                await ada.team.send(number, **to)
        commits = await record.workspace.log.read(replay.mail_of("r"))
    box = Mailbox("bob", "reader")
    box.take(commits)
    box.take(commits[:2])
    box.take(commits)
    assert [mail.version for mail in box.between(0, 9)] == [2, 4]
    assert [mail.version for mail in box.between(2, 4)] == [4]
    assert [box.count_to(version) for version in range(5)] == [0, 0, 1, 1, 2]
    assert [box.up_to(count) for count in range(3)] == [0, 2, 4]
    assert (box.version, box.sent) == (4, 0)
