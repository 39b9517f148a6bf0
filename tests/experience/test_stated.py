"""Events of a kept experience's replay: its end, its heals, and what was learned."""

import functools
import json

import pytest

import hansard
from hansard.agents.artifacts import versions
from hansard.domain.experience.experience import EXPERIENCES, ExperienceHealed
from tests.experience.parties import FORM, GUESTS, learned, sent
from tests.experience.test_doing import TASK, done

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

TWICE = FORM.replace("<form", "<button type=button>Invite</button><form")
"""A form with two buttons of one name, so that no recorded way is unique."""


def names_the_last(question: str) -> str:
    """Answer as a key by hand: the last of the buttons with the name."""
    lines = [each for each in question.splitlines() if each.endswith("> Invite")]
    return json.dumps({"id": lines[-1].split()[0]})


async def confirmed(record, taught):
    """Keep and confirm an experience, as its second version."""
    await record.experiences.keep(taught)
    return await record.experiences.confirm("invite-a-guest")


async def changes(record):
    """Return the recorded changes of the experience, in order."""
    return [each.change for each in (await record.experiences.log("invite-a-guest")).changes]


async def test_what_a_model_found_is_the_next_version_and_no_model_is_called_again(
    page, site, data_dir, workspace
):
    """The element becomes the node's, unconfirmed, which the audit reports."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        await confirmed(record, await learned(record, page, site(FORM), GUESTS[::2]))
        twice = site(TWICE, "twice.html")
        run, result = await done(record, page, twice, "invite-a-guest", fallback=names_the_last)
        assert (result.success, result.model_calls, len(result.healed)) == (True, 1, 1), (
            result.error
        )
        history = await versions.read(record.workspace, EXPERIENCES, "invite-a-guest")
        state = history.state
        heal = state.versions[3]
        assert isinstance(heal, ExperienceHealed)
        assert (heal.parent, heal.run, [heal.node]) == (2, run, result.healed)
        assert await changes(record) == ["distilled", "confirmed", "healed", "replayed"]
        now = await record.experiences.get("invite-a-guest")
        assert now.checks
        assert now.procedure != (await record.experiences.get("invite-a-guest", 2)).procedure
        _, result = await done(record, page, twice, "invite-a-guest", fallback=names_the_last)
        assert (result.success, result.model_calls, result.healed) == (True, 0, []), result.error
        assert await sent(page) == 1
        unseen = "SELECT count(*) FROM odd_experiences WHERE kind = 'heal unreviewed'"
        assert (await record.sql(unseen)).rows == [(1,)]


@pytest.mark.thorough(
    quick="tests/experience/test_doing.py::test_what_a_check_refuses_is_not_done_and_the_next_way_is_taken"
)
async def test_what_a_check_refuses_heals_nothing(page, site, taught, data_dir, workspace):
    """A model's choice that a check refuses is not clicked, and no version is made of it."""

    def other(question):
        line = next(each for each in question.splitlines() if each.endswith("> Drop"))
        return json.dumps({"id": line.split()[0]})

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        await confirmed(record, taught)
        moved = site(TWICE.replace("<form", "<button>Drop</button><form"), "drop.html")
        _, result = await done(record, page, moved, "invite-a-guest", fallback=other)
        assert not result.success
        assert result.healed == []
        assert await changes(record) == ["distilled", "confirmed", "replayed"]


@pytest.mark.thorough(
    quick="tests/experience/test_doing.py::test_a_function_goes_on_with_tools_and_is_learned_from_where_enabled"
)
async def test_what_was_done_freely_is_kept_where_that_is_asked_for(
    page, site, data_dir, workspace
):
    """Free actions become the next version, which may guide, but not act until confirmed."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        await confirmed(record, await learned(record, page, site(FORM), GUESTS[:3]))
        moved = site(FORM.replace(">Invite<", ">Ask<"), "moved.html")

        async def freely(browser, guide):
            await browser.act("ask", at="text=Ask")

        name = "invite-a-guest"
        _, result = await done(record, page, moved, name, freely, learn="keep")
        assert (result.success, result.not_learned) == (True, "")
        assert await changes(record) == ["distilled", "confirmed", "replayed", "distilled"]
        third = await record.experiences.get(name, 3)
        assert (third.sources, third.checks) == (result.learned.sources, ())
        with pytest.raises(hansard.errors.Refused, match="may guide, not act"):
            await done(record, page, moved, name)
        assert await record.experiences.confirm(name) == 4


@pytest.mark.thorough(
    quick="tests/experience/test_kept.py::test_what_is_done_by_name_is_on_record_of_it_once"
)
async def test_what_ends_in_an_error_is_a_replay_that_failed(
    page, site, taught, data_dir, workspace
):
    """An attempt that ends in an error is recorded as a failed replay, with the reason."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        address = site(FORM)
        await confirmed(record, taught)
        await page.goto(address)
        async with record.run("again", agent="host", role="host") as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=1.0)
            await page.close()
            again = functools.partial(browser.run_experience, "invite-a-guest", task=TASK)
            with pytest.raises(hansard.errors.PageGone):
                await again(once="allow")
        change = (await record.experiences.log("invite-a-guest")).changes[-1]
        assert (change.change, change.success) == ("replayed", False)
        assert (change.because or "").startswith("PageGone: ")
