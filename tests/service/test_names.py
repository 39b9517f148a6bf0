"""A name that holds a secret does not leave a restricted agent's program."""

import asyncio
from typing import Any

import pytest

import hansard
from tests.agents.test_names import NAME, OPENING, REDACT, RESTRICTED, SAYING, SECRET
from tests.agents.twins import TwinSession, at_once
from tests.service.support import House

pytestmark = pytest.mark.later


def stored(house: House) -> str:
    """Return all stored subjects and bodies of a workspace."""
    with house.trusted() as record:
        portal, log = record._portal, record.workspace.log
        commits = [portal.run(log.at(i)) for i in range(1, portal.run(log.head()) + 1)]
    return "\n".join(f"{each.stream} {each.body!r}" for each in commits)


@pytest.mark.fast(cases=4, slow=0)
@pytest.mark.parametrize("what", sorted(RESTRICTED))
def test_a_run_is_opened_by_no_name_that_holds_a_secret(house: House, what: str) -> None:
    """A run whose opening has a secret in any name does not begin, and no request is sent."""
    before = stored(house)
    with house.connect(redact=REDACT) as record:
        options: dict[str, Any] = {"workflow": "w", "run": "r", **OPENING[what]}
        with pytest.raises(hansard.BadValue, match="holds a secret"), record.run(**options):
            raise AssertionError
    content = stored(house)
    assert SECRET not in content
    assert '"r"' not in content[len(before) :]


@pytest.mark.fast(cases=4, slow=0)
@pytest.mark.parametrize("what", SAYING)
def test_a_session_says_no_name_that_holds_a_secret(house: House, what: str, client: str) -> None:
    """Whatever is named, it is refused, and neither a subject nor a body holds the secret."""
    login = house.login()

    async def play() -> None:
        async with (
            hansard.connect_async(credentials=login, redact=REDACT) as record,
            record.run("w", run="r") as session,
        ):
            await check_refused(TwinSession(session, is_async=True))

    async def check_refused(session: TwinSession) -> None:
        with pytest.raises(hansard.BadValue, match="secret") as refusal:
            await SAYING[what](session)
        assert SECRET not in str(refusal.value)

    if client == "async":
        asyncio.run(play())
    else:
        with house.connect(redact=REDACT) as record, record.run("w", run="r") as session:
            at_once(check_refused(TwinSession(session, is_async=False)))
    assert SECRET not in stored(house)


def test_a_rule_s_words_leave_the_program_without_the_secret(house: House) -> None:
    """A rule's name and reason are sent with the secret replaced."""
    rule = hansard.deny(name=NAME, reason=NAME)
    with house.connect(redact=REDACT, gate=[rule]) as record, record.run("w", run="r") as session:

        @session.tool(effects="once")
        def send() -> None: ...

        with pytest.raises(hansard.Blocked):
            send()
    content = stored(house)
    assert SECRET not in content
    assert "of <secret:key>!" in content
