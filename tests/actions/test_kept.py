"""Action caches in the record: their versions, and the effect of heals."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard import testing
from hansard.agents.artifacts import caches, versions
from hansard.client.record import Record
from hansard.domain import actions as kept
from hansard.domain.actions import (
    ActionsHealed,
    ActionsLookedAt,
    ActionsReverted,
    ActionsSaved,
    decode,
    encode,
)
from hansard.domain.errors import BadValue, Refused
from tests.actions.test_browser import FORM, recorded
from tests.actions.test_cache import cache, entry
from tests.cli.support import Call

action_events = st.one_of(
    st.builds(
        lambda n: ActionsSaved(version=0, cache=msgspec.Raw(b"{}"), digest=f"d{n}"),
        st.integers(0, 1),
    ),
    st.builds(
        lambda at, before, x: ActionsHealed(
            version=0, before=before, entry=at, after=entry(at, xpath=f"/{x}")
        ),
        st.integers(0, 1),
        st.integers(1, 6),
        st.sampled_from("abc"),
    ),
    st.builds(lambda to: ActionsReverted(version=0, to=to), st.integers(1, 6)),
    st.builds(lambda at: ActionsLookedAt(version=at), st.integers(1, 6)),
)

MOVED = """<main><h1>Welcome</h1><section><p>News</p>
<form onsubmit="event.preventDefault(); sent.textContent = 'ok'">
<div><div><input aria-label="Your name"></div></div>
<button type=submit>Anmelden</button></form></section></main><p id=sent></p>"""


@given(st.lists(action_events, max_size=10))
def test_every_version_is_what_it_was_made_of(events):
    """Versions have no hole and never change; a revert equals the earlier, repeats add nothing."""
    state = kept.initial()
    known: dict[int, object] = {}
    for event in events:
        try:
            made = kept.decide(state, event)
        except Refused:
            continue
        after = kept.fold(state, made)
        assert sorted(after.versions) == list(range(1, after.newest + 1))
        assert all(kept.made_of(after, number) == was for number, was in known.items())
        for each in made:
            if isinstance(each, ActionsReverted):
                assert kept.made_of(after, each.version) == kept.made_of(state, each.to)
            if isinstance(each, ActionsHealed):
                assert kept.made_of(after, each.version)[1][each.entry] == each.after
        assert not kept.decide(after, event)
        known = {number: kept.made_of(after, number) for number in after.versions}
        state = after


def test_a_heal_does_not_undo_somebody_else_s_word():
    """A heal of an older version counts only where the newest has the same entry."""
    first = ActionsSaved(version=1, cache=msgspec.Raw(b"{}"), digest="d")
    state = kept.fold(kept.initial(), [first])

    def heal(at: int, xpath: str) -> ActionsHealed:
        return ActionsHealed(version=0, before=1, entry=at, after=entry(at, xpath=xpath))

    state = kept.fold(state, kept.decide(state, heal(0, "/a")))
    assert kept.decide(state, heal(0, "/b")) == ()
    [other] = kept.decide(state, heal(1, "/b"))
    assert isinstance(other, ActionsHealed)
    assert (other.version, other.before) == (3, 2)


@pytest.mark.slow
def test_versions_of_a_cache_are_kept_reverted_and_looked_at(record, call, tmp_path):
    """A cache can be read at any version, with its history; the audit lists unreviewed heals."""
    large = cache(*(entry(at, instruction="x" * 400) for at in range(400)), run="r0")
    assert record.actions.keep("big", large) == record.actions.keep("big", large) == 1
    assert record.actions.get("big").actions == large.actions
    file = tmp_path / "login.json"
    file.write_bytes(encode(cache(entry(0), entry(1))))
    assert "login is at version 1" in call("actions", "import", file, "login").out
    first = record.actions.get("login")
    assert (first.name, first.version) == ("login", 1)
    for at in (0, 1):
        after = entry(at, xpath="/html[1]/a[1]")
        done = caches.heal(record.workspace, "login", 1, after, reason="moved", run="r", by="ada")
        assert record._portal.run(done).version == at + 2
    healed = record.actions.get("login")
    assert [each.xpath for each in healed.actions] == ["/html[1]/a[1]"] * 2
    assert [(each.version, each.by, each.why) for each in healed.history] == [
        (2, "ada", "moved"), (3, "ada", "moved"),
    ]  # fmt: skip
    assert record.actions.get("login", 1).actions == first.actions
    [listed, _, count] = call("actions", "list", "--json").lines
    assert (listed["cache"], count["count"]) == ("big", 2)
    unseen = "SELECT fact FROM odd_actions ORDER BY address"
    assert len(record.sql(unseen).rows) == 2
    assert record.actions.review("login", 2, by="eve") == 2
    assert ["version 3" in fact for (fact,) in record.sql(unseen).rows] == [True]
    assert call("actions", "revert", "login", 1, "--reason", "wrong").code == 0
    assert record.sql(unseen).rows == []
    assert record.actions.revert("login", 1) == 4  # it is so already
    lines = call("actions", "log", "login", "--json").lines
    assert [(each["change"], each["reviewed"]) for each in lines[:-1]] == [
        ("saved", True), ("healed", True), ("healed", False), ("reverted", False),
    ]  # fmt: skip
    assert call("actions", "review", "login", "--by", "eve").code == 0
    out = tmp_path / "out.json"
    assert call("actions", "export", "login", "-o", out).code == 0
    assert decode(out.read_bytes()).actions == first.actions
    assert "reverted" in call("actions", "log", "login").out
    assert "login" in call("actions", "list").out
    assert "/a[1]" in call("actions", "script", "login@2").out
    assert "no version 9" in call("actions", "export", "login@9").err
    assert "was not found" in call("actions", "log", "none").err
    assert "looks like a file path" in call("actions", "import", file, "login.json").err
    assert [each.cache for each in record.actions.list().caches] == ["big", "login"]
    assert len(record.actions.log("login").versions) == 4
    with pytest.raises(hansard.NotFound, match="actions import"):
        record.actions.get("none")
    with pytest.raises(BadValue, match="one stepIndex"):
        record.actions.keep("bad", cache(entry(0), entry(0)))


def test_a_cache_of_a_run_with_a_label_has_it(record: Record, call: Call, tmp_path: Path):
    """Labels outside this record are unknown; a later version keeps the cache's labels."""
    with record.run("w", run="told") as session:
        session.message("user", "fill in", label="secret")
    for name, run in (("open", ""), ("elsewhere", "no run"), ("form", "told")):
        assert record.actions.keep(name, cache(entry(0), run=run)) == 1
    assert record.actions.keep("form", cache(entry(0), entry(1))) == 2
    file = tmp_path / "told.json"
    file.write_bytes(encode(cache(entry(0), run="told")))
    assert call("actions", "import", file, "shell").code == 0

    def label_of(name: str) -> str:
        history = record._portal.run(versions.read(record.workspace, kept.ACTIONS, name))
        return str(history.label or "")

    labels = [*map(label_of, ("open", "elsewhere", "form", "shell"))]
    assert labels == ["", "", "secret", "secret"]


async def test_who_replays_what_is_kept_with_a_label_has_it(data_dir: Path):
    """From before the first action is done."""
    async with hansard.connect_async("labels", data_dir=data_dir) as record:
        async with record.run("w", run="told") as session:
            await session.message("user", "fill in", label="secret")
        await record.actions.keep("form", cache(entry(0, action_type="tool"), run="told"))
        kept_form = await record.actions.get("form")
        async with record.run("w") as session:
            with pytest.raises(BadValue):
                # Its tool is missing.
                await hansard.actions.AsyncReplays(session).run_actions(kept_form)
            assert str(session.label) == "secret"


@pytest.mark.thorough(
    quick="tests/actions/test_changed_pages.py::test_a_change_is_healed_or_refused_and_nothing_else_is_touched"
)
@pytest.mark.asyncio(loop_scope="session")
async def test_what_a_model_found_is_the_next_version_in_the_record(page, site):
    """A kept cache is healed with author, reason and run; after a revert the model is called."""
    questions = []

    def model(question):  # a key written by hand: no recording of such an answer exists
        questions.append(question)
        tag = "<input" if "enter the user" in question else "<button"
        line = next(each for each in question.splitlines() if tag in each)
        return json.dumps({"id": line.split()[0]})

    async with testing.record_async() as record:
        run = await recorded(record, page, site(FORM), effects="idempotent")
        recording = await record.actions.of_run(run)
        _, user, _, click = recording.actions
        goto = msgspec.structs.replace(recording.actions[0], arguments=[site(MOVED, "moved.html")])
        recording = msgspec.structs.replace(recording, actions=[goto, user, click])
        assert await record.actions.keep("login", recording) == 1

        async def again(name):
            async with record.run(name, agent="ada", role="agent") as session:
                browser = hansard.actions.AsyncBrowser(session, page, timeout_s=3.0)
                result = await browser.run_actions(
                    await record.actions.get("login"), fallback=model
                )
                assert result.success, result.error
                return session.run, result

        first, result = await again("a")
        assert (result.model_calls, result.cache.version, len(questions)) == (2, 3, 2)
        kept_now = await record.actions.get("login")
        assert [(each.by, each.step_index) for each in kept_now.history] == [("ada", 1), ("ada", 3)]
        assert "matches 0" in kept_now.history[0].why
        _, result = await again("b")
        assert (result.model_calls, result.cache.version) == (0, 3)
        assert await record.actions.revert("login", 1, reason="look again") == 4
        _, result = await again("c")
        assert (result.model_calls, len(questions)) == (2, 4)
        state = (await versions.read(record.workspace, kept.ACTIONS, "login")).state
        kinds = [
            (type(each).__name__, getattr(each, "run", "")) for each in state.versions.values()
        ]
        assert kinds[1:4] == [*[("ActionsHealed", first)] * 2, ("ActionsReverted", "")]
