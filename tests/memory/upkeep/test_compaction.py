"""Compaction proposes without a model, refuses what loses a probe, and loses none over time."""

import random

import pytest

from hansard.agents.memory.search import Rankers
from hansard.domain.errors import BadValue
from hansard.ext.memory.compaction import Probe, compact, probes_in, refusals, tokens
from hansard.projections.file_search import FileWords

pytestmark = pytest.mark.later

TREE = {
    "AGENTS.md": "Answer in bullets, and please briefly.\n- answer in bullets and please briefly\n",
    "keep.md": "What stays:\n\n- in bullets\n- where is the office => Paris\n- nowhere at all\n",
    "notes.md": "The office is in Paris.\n",
}


@pytest.fixture
def rankers():
    """Words alone: a compaction asks for nothing else."""
    return Rankers(FileWords())


def test_without_a_model_only_lines_with_the_very_words_of_others_go(rankers):
    """Without a model only duplicate lines go; an unmet probe is reported, not counted as lost."""
    made = compact(TREE, rankers)
    assert made.changes == {"AGENTS.md": "Answer in bullets, and please briefly.\n"}
    assert (made.refused, made.probes) == ([], 2)
    assert made.unmet == [Probe("nowhere at all")]


def test_probes_stand_in_the_tree(rankers):
    """A probe is a phrase, or a question that leads to one."""
    assert probes_in(TREE)[1] == Probe("Paris", "where is the office")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"AGENTS.md": "Answer briefly."}, "loses what must stay: 'in bullets'"),
        ({"notes.md": None}, "where is the office => Paris"),
        ({"keep.md": None}, "change it by hand"),
    ],
)
def test_what_loses_a_probe_is_refused(rankers, changes, why):
    """A compaction that loses a probe is refused, and nothing is proposed."""
    made = compact(TREE, rankers, changes)
    assert why in " ".join(made.refused)
    assert made.changes == {}


def test_eighteen_thousand_tokens_to_a_hundred_in_one_step_is_refused(rankers, evidence):
    """The published case of a memory that collapsed: 18,282 tokens to 122."""
    words = " ".join(f"word{number}" for number in range(12))
    tree = {"AGENTS.md": "\n".join([words] * 1_523 + [" ".join(["more"] * 6)])}
    assert tokens(tree["AGENTS.md"]) == 18_282
    made = compact(tree, rankers, {"AGENTS.md": " ".join(["gone"] * 122)})
    evidence.record("memory.compact.collapse", refused=len(made.refused))
    assert made.changes == {}
    assert "18,282 to 122" in made.refused[0]


@pytest.mark.parametrize("drop_max", [-0.1, 1.1])
def test_a_share_that_is_none_is_refused(rankers, drop_max):
    """An invalid share is refused, with the valid range."""
    with pytest.raises(BadValue, match="share"):
        compact(TREE, rankers, drop_max=drop_max)


def test_a_proposal_that_is_no_text_is_refused(rankers):
    """A function's proposal that is no text is refused."""
    with pytest.raises(BadValue, match="whole text"):
        compact(TREE, rankers, {"notes.md": 3})  # type: ignore[dict-item] # that is the point


DAYS = 730
"""Days in a full run, which is evidence."""


@pytest.mark.slow
@pytest.mark.parametrize("days", [200, pytest.param(DAYS, marks=pytest.mark.thorough)])
def test_rounds_in_a_row_lose_no_probe(rankers, evidence, days):
    """Rounds of cutting in a row lose no probe."""
    draw = random.Random(17)
    facts = [f"fact {number} is {draw.randrange(10**6)}" for number in range(20)]
    keep = [Probe(fact) for fact in facts]
    tree = {f"notes/{number}.md": f"- {fact}\n" for number, fact in enumerate(facts)}
    accepted = 0
    for day in range(days):
        path = draw.choice(sorted(tree))
        tree[path] += f"- seen on day {day}: {draw.randrange(10**9)}\n"
        victim = draw.choice(sorted(tree))
        lines = tree[victim].splitlines(keepends=True)
        cut = "".join(line for line in lines if draw.random() < 0.6)
        if not refusals(tree, {victim: cut}, keep, rankers):
            accepted += cut != tree[victim]
            tree[victim] = cut
    if days == DAYS:
        evidence.record("memory.compact.rounds", rounds=days, accepted=accepted, lost=0)
    whole = "".join(tree.values())
    assert all(fact in whole for fact in facts)
    assert days / 8 < accepted < days
