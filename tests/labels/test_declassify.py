"""A label is lowered only by a person who is accountable for it."""

import pytest

import hansard
from hansard.agents.errors import RoleRefused
from hansard.bus.errors import NotFound
from hansard.domain.errors import BadValue, Refused
from hansard.domain.label import parse
from tests.labels.support import apply_roles, history, label_of, read_secret

pytestmark = pytest.mark.later

WHY = {"approver": "eve", "reason": "it was published"}


@pytest.fixture
def shown(record):
    """Return a record with a run in which an agent read a secret and wrote about it."""
    with record.run("w", run="r", agent="ada", role="researcher") as ada:
        read_secret(ada)
        ada.board.put("k", "plan")
    return record


def test_an_agent_is_lowered(shown):
    """A lowered agent writes under its new label; earlier commits keep theirs."""
    assert (
        str(shown.roles.declassify("r", agent="ada", to="untrusted", **WHY)) == "secret untrusted"
    )
    with shown.run("w", run="r", agent="ada", role="researcher") as ada:
        assert str(ada.label) == "untrusted"
        ada.decide("so?", selected="yes")
    assert label_of(shown, "r", "decision.made.v1") == ["untrusted"]
    assert label_of(shown, "r", "board.put.v1") == ["secret untrusted"]
    [stored] = [
        stored
        for stored in history(shown, "r")
        if stored.commit.events[-1].type == "label.declassified.v1"
    ]
    assert stored.commit.actor.agent == "eve"
    assert bytes(stored.commit.events[-1].data) == (
        b'{"to":"untrusted","approver":"eve","because":"it was published",'
        b'"before":"secret untrusted"}'
    )


def test_a_key_is_lowered(shown):
    """A lowered key has the new label for later readers, and keeps its version."""
    with shown.run("w", run="r", agent="bob", role="analyzer") as bob:
        assert str(shown.roles.declassify("r", key="k", to="public", **WHY)) == "secret untrusted"
        assert bob.board.get("k") == "plan"
        assert str(bob.label) == "public"
        assert bob.board.entry("k").version == 1
        bob.board.put("k", "mine", expected=1)
    with shown.run("w", run="r", agent="ada", role="researcher") as ada:
        ada.board.put("k", "plan again", expected="any")
    assert shown.state("r").boards["k"].label == parse("secret untrusted")


def test_a_session_at_work_is_fenced(shown):
    """An open session is fenced by a declassification and has to begin again."""

    def work():
        with shown.run(run="r", agent="ada", role="researcher") as ada:
            shown.roles.declassify("r", agent="ada", **WHY)
            ada.decide("so?", selected="yes")

    with pytest.raises(hansard.errors.Fenced):
        work()


def test_a_call_that_was_refused_goes_through_afterwards(shown):
    """After a declassification the tool's own bound is checked again."""
    for refused in (True, False):
        with shown.run(run="r", agent="ada", role="researcher") as ada:
            post = ada.tool(effects="once", takes="public", name="post")(lambda text: text)
            if refused:
                with pytest.raises(hansard.Blocked):
                    post("plan")
            else:
                assert post("plan") == "plan"
        if refused:
            shown.roles.declassify("r", agent="ada", to="public", **WHY)


def test_after_a_declassification_labels_rise_again(shown):
    """A declassification covers only earlier input."""
    shown.roles.declassify("r", agent="ada", **WHY)
    with shown.run(run="r", agent="ada", role="researcher") as ada:
        assert ada.label == parse("")
        read_secret(ada)  # on record: it was shown that before
        ada.message("user", "news", label="internal")
        assert str(ada.label) == "internal"
    assert shown.state("r").agents["ada"].label == "internal"
    child = shown.fork("r")
    assert shown.state(child).agents["ada"].label == "internal"


@pytest.mark.parametrize("to", ["secret untrusted", "secret untrusted ", "internal"])
def test_what_would_not_lower_is_refused(shown, to):
    """A declassification that would not lower a label is refused, and nothing is written."""
    if to == "internal":
        shown.roles.declassify("r", agent="ada", to="public untrusted", **WHY)
    count = len(history(shown, "r"))
    with pytest.raises(Refused, match="would not lower"):
        shown.roles.declassify("r", agent="ada", to=to, **WHY)
    assert len(history(shown, "r")) == count


def test_who_acts_in_a_role_needs_one_that_may_approve(shown):
    """A role without `approve` may not declassify, and the error names what it lacks."""
    apply_roles(shown)
    with pytest.raises(RoleRefused, match=r"approve = true in \[roles.clerk.may\]"):
        shown.roles.declassify("r", agent="ada", role="clerk", **WHY)
    with pytest.raises(RoleRefused, match="it has no rules"):
        shown.roles.declassify("r", agent="ada", role="laed", **WHY)
    shown.roles.declassify("r", agent="ada", role="lead", **WHY)
    assert shown.state("r").agents["ada"].label == ""


@pytest.mark.fast(cases=4, slow=0)
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, BadValue),
        ({"agent": "ada", "key": "k"}, BadValue),
        ({"agent": "ada", "to": "lower"}, BadValue),
        ({"agent": "ada", "reason": " "}, BadValue),
        ({"agent": "nobody"}, NotFound),
        ({"key": "nothing"}, NotFound),
        ({"key": "team tasks"}, hansard.HansardError),
    ],
)
def test_an_invalid_request_is_refused(shown, arguments, error):
    """An invalid request is refused with the remedy, and nothing is written."""
    count = len(history(shown, "r"))
    with pytest.raises(error):
        shown.roles.declassify("r", **{**WHY, **arguments})
    assert len(history(shown, "r")) == count
