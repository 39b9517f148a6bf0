"""Permissions of a role for aggregates: only those that its rules state."""

from decimal import Decimal

import msgspec
import pytest

import hansard
from hansard.domain.ids import WorkspaceStream
from hansard.domain.roles import authorize
from hansard.domain.roles import check as role_file
from hansard.domain.roles.model import RoleDefined
from hansard.domain.roles.view import facts, judge
from tests.agents.twins import TwinRecord
from tests.aggregates.book import Account, Order
from tests.aggregates.test_session import changes, commits_of

SEES = """
[[roles.writer.sees]]
name = "accounts"
kinds = ["aggregate.*"]
aggregates = ["account/*"]
"""
MAY = """
[roles.writer.may]
kinds = ["aggregate.*"]
"""
MASK = """
[[roles.writer.masks]]
name = "owners"
kinds = ["aggregate.*"]
fields = ["state.owner"]
aggregates = ["acc*/account-opened.v1"]
"""


def rules(text: str) -> RoleDefined:
    """Return the rules of the role `writer`."""
    return role_file.parse("[roles.writer]\n" + text)["writer"]


async def test_a_role_saves_and_gets_what_it_sees_whole(record: TwinRecord):
    """One that may save accounts saves no order, and of both nothing: the refusal is on record."""
    await record.roles.apply("writer", rules(SEES + MAY))
    async with record.run(run="r") as session:
        account, order = Account("ada"), Order("SYN", 1, Decimal(1))
        with pytest.raises(hansard.errors.RoleRefused, match=r"aggregates = \[\\?\"order/\*"):
            await session.save(account, order)
        assert not await changes(record, account.id)
        assert await session.save(account) == [1]
        with pytest.raises(hansard.errors.RoleRefused, match="order"):
            await session.get(Order, order.id)
        assert await session.get(Account, account.id) == account
    assert (await record.tags("r")).count("agent.refused.v1") == 2


CASES = [
    ("", False, False),
    (SEES, True, False),
    (MAY, False, False),
    (SEES + MAY, True, True),
    (SEES + MASK + MAY, False, False),
    (SEES.replace("aggregate.*", "**") + MAY, False, False),
    (SEES.replace("account/*", "account/account-opened.v1") + MAY, False, False),
    (SEES.replace("account/*", "**") + MAY, True, True),
    (SEES.replace("account/*", "account/**") + MAY, True, True),
    (SEES.replace("account/*", "order/*") + MAY, False, False),
    (SEES + 'fields = ["event"]\n' + MAY, False, False),
    (SEES + 'agents = ["ada"]\n' + MAY, False, False),
]


@pytest.mark.parametrize(("text", "gets", "saves"), CASES)
def test_who_sees_less_than_all_gets_nothing(text: str, gets: bool, saves: bool):
    """An aggregate's state reveals all its events, and a lost race reveals others' events."""
    definition = rules(text)
    assert authorize.sees_whole_aggregate(definition, "account").allowed is gets
    assert authorize.may_save(definition, "account").allowed is saves


SEEN = [
    ('kinds = ["**"]', False),
    ('kinds = ["aggregate.*"]', True),
    ('kinds = ["aggregate.changed.v1"]', True),
    ('kinds = ["aggregate.*"]\naggregates = ["order/*"]', True),
    ('kinds = ["aggregate.*"]\naggregates = ["*/order-placed.v1"]', True),
    ('kinds = ["aggregate.*"]\naggregates = ["order"]', False),
    ('kinds = ["aggregate.*"]\naggregates = ["order/order-cancelled.*"]', False),
    ('kinds = ["aggregate.*"]\nroles = ["trader"]', False),
    ('aggregates = ["**"]', False),
]


@pytest.mark.parametrize(("matchers", "seen"), SEEN)
def test_a_rule_that_names_the_kind_shows_what_its_patterns_take_in(matchers: str, seen: bool):
    """By name and tag, and by nothing that does not name it."""
    definition = rules(f'[[roles.writer.sees]]\nname = "it"\n{matchers}\n')
    about = facts("aggregate.changed.v1", WorkspaceStream("aggregate", "7"), "ada", {}, {})
    about = msgspec.structs.replace(about, aggregate="order/order-placed.v1")
    assert judge(definition, about).visible is seen


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


async def test_what_was_saved_after_a_secret_is_labelled(record: TwinRecord):
    """A saved aggregate has its agent's label, passes it on and is refused without clearance."""
    for role, clearance in (("writer", "secret"), ("reader", "secret"), ("clerk", "public")):
        text = CLEARED.format(role=role, clearance=clearance)
        await record.roles.apply(role, role_file.parse(text)[role])
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
