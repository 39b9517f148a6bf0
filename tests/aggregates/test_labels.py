"""Labels go with aggregates: from who saved one to who gets it."""

from decimal import Decimal

import pytest

import hansard
from hansard.domain.roles import check as role_file
from tests.agents.twins import Lab, twins
from tests.aggregates.book import Account
from tests.aggregates.test_session import commits_of

CLEARED = """
[roles.{role}]
clearance = "{clearance}"
[[roles.{role}.sees]]
name = "accounts"
kinds = ["aggregate.*"]
[roles.{role}.may]
tools = ["*"]
kinds = ["aggregate.*"]
"""


@twins
async def test_what_was_saved_after_a_secret_is_labelled(lab: Lab):
    """A saved aggregate has its agent's label, passes it on and is refused without clearance."""
    async with lab.connect() as record:
        for role, clearance in (("writer", "secret"), ("reader", "secret"), ("clerk", "public")):
            text = CLEARED.format(role=role, clearance=clearance)
            await record.apply_role(role, role_file.parse(text)[role])
        account = Account("ada")
        async with record.run(run="r") as session:
            await session.save(account)
            async with record.run(run="r", agent="carl", role="clerk") as clerk:
                early = await clerk.get(Account, account.id)

                @session.tool(effects="pure", gives="secret untrusted")
                async def look() -> str:
                    return "it rises"

                await look()
                account.credit(Decimal(7))
                await session.save(account)
                early.credit(Decimal(1))
                with pytest.raises(hansard.Blocked, match="labelled higher"):
                    await clerk.save(early)
                with pytest.raises(hansard.Blocked, match="labelled higher"):
                    await clerk.get(Account, account.id)
                assert all(b'"7"' not in bytes(s.result) for s in clerk.raw.state.steps.values())
        labels = [each.commit.label for each in await commits_of(record, account.id)]
        assert [str(each) for each in labels] == ["None", "secret untrusted"]
        async with record.run(run="s", agent="rita", role="reader") as session:
            assert (await session.get(Account, account.id, version=1)).balance == 0
            assert str(session.raw.label) == "public"
            assert (await session.get(Account, account.id)).balance == 7
            assert str(session.raw.label) == "secret untrusted"
