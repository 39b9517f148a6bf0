"""Input of an agent never reaches an uncleared reader; only the refusal is on record."""

import pytest

import hansard
from hansard.domain.steps import StepStatus
from tests.fixtures import together
from tests.labels.support import apply_roles, history, label_of, read_secret

pytestmark = pytest.mark.later


@pytest.fixture
def pair(record):
    """Yield a researcher who read a secret, and a clerk."""
    apply_roles(record)
    with together(record, ada="researcher", cyd="clerk") as (ada, cyd):
        yield ada, cyd


def blocked(record, agent: str) -> list[tuple[str, str]]:
    """Return the tools of an agent's blocked steps, with the rules."""
    steps = record.state("r").agents[agent].steps.values()
    return [(step.tool, step.rule) for step in steps if step.status is StepStatus.BLOCKED]


def test_a_tool_takes_so_much_and_no_more(record, pair):
    """A tool with a bound runs before its agent reads a secret, and is refused afterwards."""
    ada, _ = pair
    sent = []

    @ada.tool(effects="once", takes="internal")
    def post(text):
        sent.append(text)

    post("hello")
    read_secret(ada)
    with pytest.raises(hansard.Blocked, match="post takes 'internal' at most; ask an approver"):
        post("the plan")
    assert sent == ["hello"]
    assert blocked(record, "ada") == [("post", "label")]


def test_a_tool_that_says_nothing_takes_all(pair):
    """A tool without a bound takes every label; distrust blocks no call, which is up to gates."""
    ada, _ = pair
    read_secret(ada)
    post = ada.tool(effects="once", name="post")(lambda text: text)
    assert post("the plan") == "the plan"


SENDS = {
    "a message to a role": lambda s: s.team.send("plan", role="clerk"),
    "a message to an agent": lambda s: s.team.send("plan", agent="cyd"),
    "a task for a role": lambda s: s.team.add("plan", role="clerk"),
    "a task for an agent": lambda s: s.team.add("plan", agent="cyd"),
}


@pytest.mark.parametrize("what", SENDS)
def test_nothing_is_sent_to_who_is_not_cleared(record, pair, what):
    """Nothing labelled is sent to an uncleared agent or role; before the secret all can receive."""
    ada, _ = pair
    SENDS[what](ada)
    count = len(history(record, "r"))
    read_secret(ada)
    with pytest.raises(hansard.Blocked, match="role 'clerk' is cleared for 'public' alone"):
        SENDS[what](ada)
    tags = [each.type for stored in history(record, "r")[count:] for each in stored.commit.events]
    assert not {"mail.sent.v1", "task.added.v1"} & set(tags)
    assert [rule for _, rule in blocked(record, "ada")] == ["label"]
    ada.team.send("plan", role="researcher")
    ada.team.add("plan", role="lead")


def test_a_hand_off_is_refused(record, pair):
    """Both kinds of hand-off to an uncleared role are refused and on record."""
    ada, _ = pair
    ada.team.add("report", role="researcher")
    task = ada.team.claim()
    read_secret(ada)
    with pytest.raises(hansard.Blocked, match="clerk"):
        ada.team.hand_off(task, role="clerk", with_="the plan")
    for to in ("clerk", "cyd"):
        with pytest.raises(hansard.Blocked, match=r'clearance = "secret" in \[roles.clerk\]'):
            ada.hand_off(to, {"plan": "the plan"})
    ada.hand_off("lead", {"plan": "the plan"})
    assert label_of(record, "r", "agent.refused.v1") == ["secret untrusted"] * 2
    assert len(label_of(record, "r", "agent.handed_off.v1")) == 1
    refused = record.state("r").agents["ada"].refused
    assert {each.event.rule for each in refused.values()} == {"label"}


def test_who_is_not_cleared_reads_nothing_of_it(record, pair):
    """An uncleared role reads no such key, task or message, and carries nothing from it."""
    ada, cyd = pair
    ada.board.put("open", 1)
    ada.team.add("clear")
    read_secret(ada)
    ada.board.put("k", "plan")
    ada.board.add("n", 5)
    ada.team.add("secret one")
    ada.team.send("plan", agent="eve")
    for read in (
        lambda: cyd.board.get("k"),
        lambda: cyd.board.put("k", 1),
        lambda: cyd.board.put("k", 1, resolve="last writer"),
        lambda: cyd.board.put("k", 1, expected="any"),
        lambda: cyd.board.add("n", 1),
        lambda: cyd.board.remove("k"),
    ):
        with pytest.raises(hansard.Blocked, match="labelled higher than role 'clerk'") as refused:
            read()
        assert "plan" not in str(refused.value)
    assert cyd.board.keys() == ["open"]
    assert [task.title for task in cyd.team.tasks()] == ["clear"]
    assert cyd.team.claim().title == "clear"
    assert cyd.team.claim() is None
    assert cyd.team.claim(timeout_s=0.3) is None
    with record.run("w", run="r", agent="eve", role="clerk") as eve:
        assert eve.team.inbox() == []
        assert eve.board.get("open") == 1
    assert {rule for _, rule in blocked(record, "cyd")} == {"label"}
    assert str(cyd.label) == "public"
    assert ada.board.get("n") == 5


def test_a_transaction_of_a_key_that_is_too_high_writes_nothing(record, pair):
    """A transaction with an uncleared key writes none of its keys."""
    ada, cyd = pair
    read_secret(ada)
    ada.board.put("k", "plan")

    def work():
        with cyd.board.transaction() as tx:
            tx.put("mine", 1)
            tx.append("k", 2)

    with pytest.raises(hansard.Blocked):
        work()
    assert ada.board.keys() == ["k"]


def test_a_role_that_was_never_defined_is_a_name(record):
    """Without defined roles every reader gets the content, with its label."""
    with together(record, ada="researcher", bob="analyzer") as (ada, bob):
        read_secret(ada)
        ada.team.send("plan", role="analyzer")
        assert [mail.content for mail in bob.team.inbox()] == ["plan"]


def test_a_refused_call_runs_when_the_role_is_cleared(record, pair):
    """A call is checked by the current rules; a withdrawn role has no clearance."""
    ada, cyd = pair
    read_secret(ada)
    ada.board.put("k", "plan")
    with pytest.raises(hansard.Blocked):
        cyd.board.get("k")
    clerk = record._portal.run(hansard.agents.access.roles.read(record.workspace, "clerk")).rules
    record.roles.apply("clerk", type(clerk)(sees=clerk.sees, may=clerk.may, clearance="secret"))
    assert cyd.board.get("k") == "plan"
    assert str(cyd.label) == "secret untrusted"


def test_explain_says_that_the_clearance_decided(record, pair, call):
    """`explain` names the clearance as the reason and the remedy; a cleared role sees the event."""
    ada, _ = pair
    read_secret(ada)
    ada.decide("so?", selected="yes")
    [event] = [
        f"{stored.position}.0"
        for stored in history(record, "r")
        if stored.commit.events[0].type == "decision.made.v1"
    ]
    output = call("roles", "explain", "clerk", event)
    assert "not seen: it is labelled 'secret untrusted'" in output.out
    assert 'clearance = "secret"' in output.out
    assert "seen: rule 'all' matches" in call("roles", "explain", "lead", event).out


def test_what_it_is_not_cleared_for_never_comes(pair):
    """An uncleared role waits in vain; a cleared one is woken and labelled."""
    ada, cyd = pair
    read_secret(ada)
    ada.board.put("k", 1)
    ada.team.add("t", role="researcher", task="t")
    ada.team.complete(ada.team.claim(), 1)
    assert not cyd.wait_for(key="k", timeout_s=0.05)
    assert not cyd.wait_for(task="t", timeout_s=0.05)
    assert str(cyd.label) == "public"


@pytest.mark.parametrize("what", [{"key": "k"}, {"task": "t"}])
def test_what_is_waited_for_is_shown(record, what):
    """The end of a wait shows the label of the awaited key or task."""
    apply_roles(record)
    with together(record, ada="researcher", bob="researcher") as (ada, bob):
        read_secret(ada)
        ada.board.put("k", 1)
        ada.team.add("t", task="t")
        ada.team.complete(ada.team.claim(), 1)
        assert bob.wait_for(**what, timeout_s=5)
        assert str(bob.label) == "secret untrusted"
