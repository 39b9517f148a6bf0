"""The loans of examples/fairness: the planted bias is found, and the fair rule is not accused."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.cli.support import SRC, Call
from tests.examples.support import EXAMPLES
from tests.faults._warm import python, run

SWAP = "applicant.gender=female,male"
NEAR_THE_THRESHOLD = (3, 6, 7, 12, 14, 19, 20, 21)
"""Applicants whose decision depends on the biased rule's bonus."""
FAR = (1, 8, 11)


@pytest.fixture
def loans(
    tmp_path: Path, data_dir: Path, workspace: str, call: Call, monkeypatch: pytest.MonkeyPatch
):
    """Return functions that review applicants by a rule and probe the workspace's runs."""
    folder = shutil.copytree(EXAMPLES / "fairness", tmp_path / "fairness")
    program = str(folder / "loan.py")
    monkeypatch.setenv("PYTHONPATH", str(SRC))
    monkeypatch.setenv("HANSARD_DATA_DIR", str(data_dir))
    monkeypatch.setenv("HANSARD_WORKSPACE", workspace)

    def review(rule: str, *numbers: int) -> None:
        arguments = [program, *map(str, numbers), "--rule", rule]
        made = run(arguments, cwd=folder, env=os.environ, timeout=60)
        assert made.returncode == 0, made.stderr

    def probe(rule: str, *options: object):
        command = ("--", python(), program, "{label.applicant}", "--rule", rule)
        return call("probe", "all", "--swap", SWAP, "--jobs", 2, *options, *command)

    return review, probe


@pytest.mark.slow
def test_the_biased_rule_decides_otherwise_with_another_gender(loans):
    """One of two pairs differs, which is too few to show a bias."""
    review, probe = loans
    review("biased", NEAR_THE_THRESHOLD[0], FAR[0])
    made = probe("biased")
    assert made.code == 0, made.err
    assert "1 of 2 pairs decided otherwise with male than with female" in made.out
    assert "selected approve, male against female: cannot tell" in made.out
    assert "With the value on record 2 of 2 forks decided as their runs had." in made.out


@pytest.mark.thorough(
    quick="tests/examples/test_fairness.py::"
    "test_the_biased_rule_decides_otherwise_with_another_gender"
)
def test_the_planted_bias_is_detected(loans):
    """Six of seven get a loan as men and not as women, all in the same direction."""
    review, probe = loans
    review("biased", *NEAR_THE_THRESHOLD[:6], *FAR[:1])
    made = probe("biased")
    assert made.code == 1, made.err
    assert "6 of 7 pairs decided otherwise with male than with female" in made.out
    assert "selected approve, male against female: differs" in made.out
    assert "score approve, male against female: differs" in made.out
    assert "With the value on record 7 of 7 forks decided as their runs had." in made.out


@pytest.mark.thorough(
    quick="tests/statistics/test_probes.py::test_no_difference_is_reported_only_within_a_named_margin"
)
def test_the_fair_rule_is_not_accused_and_not_acquitted_unasked(loans):
    """Only a named margin shows no difference; the second probe answers from its forks."""
    review, probe = loans
    review("fair", *NEAR_THE_THRESHOLD[:2], *FAR[:2])
    made = probe("fair")
    assert made.code == 0, made.err
    assert "0 of 4 pairs decided otherwise" in made.out
    assert "selected approve, male against female: cannot tell" in made.out
    assert "8 forks: 8 ran now, 0 were there from before" in made.out
    named = probe("fair", "--margin", 0.8)
    assert "selected approve, male against female: within the margin" in named.out
    assert "8 forks: 0 ran now, 8 were there from before" in named.out


@pytest.mark.thorough(quick="statistics/test_probes.py::test_noise_is_what_differs_from_the_record")
def test_the_bias_taken_out_is_another_program(loans):
    """The fair rule reports that it does not reproduce the decisions of the biased one."""
    review, probe = loans
    review("biased", 6)  # a man who was granted a loan for being one
    made = probe("fair")
    assert (
        "With the value on record 0 of 1 fork decided as their runs had: the program is not "
        in (made.out)
    )


def test_the_applicants_are_as_many_women_as_men():
    """Half of the applicants are women, also near the threshold, so the sample has no bias."""
    people = json.loads((EXAMPLES / "fairness" / "applicants.json").read_text("utf-8"))
    genders = [person["gender"] for person in people]
    assert genders.count("female") == genders.count("male") == len(people) / 2
    near = [genders[number - 1] for number in NEAR_THE_THRESHOLD]
    assert near.count("female") == near.count("male")
