"""Rules for which budgets a role may count and which experiments it may place runs in."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.approval import key_of
from hansard.domain.ids import RunStream
from hansard.domain.roles.authorize import may_count
from hansard.domain.roles.model import Mask, Masking, May, RoleDefined, RoleRule
from hansard.domain.roles.view import Facts, facts, may_be_placed, sees_arm, sees_plan
from hansard.domain.run import RunAssigned

KEY = key_of("calls")
COUNTS = May(kinds=("budget.*",))


def run(role: str = "writer", **labels: str) -> Facts:
    """Return the facts of a run's place, as an agent of a role began it."""
    return facts(RunAssigned.tag, RunStream("r1"), "ada", {"ada": role}, labels)


@pytest.mark.parametrize(
    ("sees", "may", "allowed"),
    [
        (RoleRule("r", kinds=("budget.*",)), COUNTS, True),
        (RoleRule("r", kinds=("**",)), May(kinds=("**",)), True),
        (RoleRule("r", keys=("budget *",)), COUNTS, True),
        (RoleRule("r", keys=("**",)), May(kinds=("budget.reserved", "budget.spent")), True),
        (RoleRule("r", keys=("budget *",)), May(kinds=("budget.reserved",)), False),
        (RoleRule("r", kinds=("budget.spent",)), COUNTS, False),
        (RoleRule("r", keys=("budget tokens",)), COUNTS, False),
        (RoleRule("r", kinds=("budget.*",), roles=("writer",)), COUNTS, False),
        (RoleRule("r", kinds=("budget.*",), labels={"a": "b"}), COUNTS, False),
        (RoleRule("r", kinds=("budget.*",), fields=("amount",)), COUNTS, False),
        (RoleRule("r", kinds=("board.*",)), COUNTS, False),
        (RoleRule("r", kinds=("budget.*",)), May(kinds=("board.*",), keys=("**",)), False),
    ],
)
def test_a_budget_is_counted_where_all_of_it_is_seen(sees, may, allowed):
    """Only a role that sees all usage of a budget may count it, since a refusal reveals usage."""
    decision = may_count(RoleDefined(sees=(sees,), may=may), KEY)
    assert decision.allowed is allowed
    assert not may_count(None, KEY).allowed


def test_a_mask_of_budgets_hides_them() -> None:
    """A budget that a mask may touch is not counted; a mask of other keys has no effect."""
    rules = RoleDefined(sees=(RoleRule("r", kinds=("**",)),), may=COUNTS)
    for keys, allowed in ((None, False), (("budget *",), False), (("notes/*",), True)):
        mask = Mask("m", fields=("amount",), how=Masking.DROP, kinds=("**",), keys=keys)
        masked = msgspec.structs.replace(rules, masks=(mask,))
        assert may_count(masked, KEY).allowed is allowed


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20))
def test_what_to_ask_for_is_enough(name: str) -> None:
    """Granting what each refusal names, one after the other, is enough to count."""
    rules = RoleDefined()
    key = key_of(name)
    first = may_count(rules, key)
    assert (first.where, first.ask_for) == ("may", 'kinds = ["budget.*"]')
    rules = msgspec.structs.replace(rules, may=COUNTS)
    second = may_count(rules, key)
    assert second.where == "sees"
    kinds, _, keys = second.ask_for.partition(", ")
    assert kinds == 'kinds = ["budget.*"]'
    pattern = msgspec.json.decode(keys.removeprefix("keys = "))
    rule = RoleRule("asked", kinds=("budget.*",), keys=tuple(pattern))
    assert may_count(msgspec.structs.replace(rules, sees=(rule,)), key).allowed


ASSIGNED = RoleRule("a", kinds=("run.assigned",))
OWN = RoleRule("own", roles=("writer",))
EXPERIMENTS = RoleRule("e", kinds=("experiment.*",))


@pytest.mark.parametrize(
    ("sees", "begins", "lacking"),
    [
        ((ASSIGNED, EXPERIMENTS), True, ""),
        ((OWN, EXPERIMENTS), True, ""),
        ((RoleRule("all", kinds=("**",)),), True, ""),
        ((OWN,), True, '"experiment.registered", "experiment.stopped"'),
        ((EXPERIMENTS,), True, '"run.assigned"'),
        ((OWN, RoleRule("p", kinds=("experiment.registered",))), True, '"experiment.stopped"'),
        ((RoleRule("x", roles=("boss",)), EXPERIMENTS), True, '"run.assigned"'),
        ((OWN,), False, ""),
        ((ASSIGNED,), False, ""),
        ((EXPERIMENTS,), False, '"run.assigned"'),
        ((RoleRule("f", kinds=("run.assigned",), fields=("task",)),), False, '"run.assigned"'),
        ((), False, '"run.assigned"'),
    ],
)
def test_a_run_is_placed_where_all_that_decides_is_seen(sees, begins, lacking):
    """The run's place, and, for one that begins, plans and whether they stand."""
    decision = may_be_placed(RoleDefined(sees=sees), run(), begins=begins)
    assert decision.allowed is (not lacking)
    assert decision.ask_for == (f"kinds = [{lacking}]" if lacking else "")
    assert not may_be_placed(None, run(), begins=begins).allowed


def test_a_mask_of_the_place_hides_it() -> None:
    """A masked place is not seen whole, and the refusal names the mask."""
    mask = Mask("m", fields=("arms",), how=Masking.DROP, kinds=("experiment.*",))
    rules = RoleDefined(sees=(ASSIGNED, EXPERIMENTS), masks=(mask,))
    assert may_be_placed(rules, run(), begins=False).allowed
    assert "mask 'm'" in may_be_placed(rules, run(), begins=True).ask_for
    assert sees_arm(rules, run())
    assert not sees_plan(rules)


def test_an_arm_is_seen_with_its_event() -> None:
    """An arm's name is visible with the place field of its event, by the run's creator and
    labels.
    """
    assert sees_arm(RoleDefined(sees=(OWN,)), run())
    assert not sees_arm(RoleDefined(sees=(OWN,)), run("boss"))
    labelled = RoleDefined(sees=(RoleRule("x", labels={"team": "x"}),))
    assert sees_arm(labelled, run(team="x"))
    assert not sees_arm(labelled, run(team="y"))
    fields = RoleDefined(sees=(RoleRule("f", kinds=("run.assigned",), fields=("arm",)),))
    assert sees_arm(fields, run())
    mask = Mask("m", fields=("arm",), how=Masking.HASH, kinds=("run.*",))
    assert not sees_arm(msgspec.structs.replace(fields, masks=(mask,)), run())
    assert not sees_arm(None, run())
