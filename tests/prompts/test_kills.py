"""A promotion or an optimisation that is killed at any append is gone on with, and made once."""

import itertools
import os
import random
from pathlib import Path

import pytest

import hansard
from tests.cli.killed import killed_at, was_killed

pytestmark = pytest.mark.slow

OPTIMIZER = Path(__file__).with_name("programs") / "small_optimizer.py"
LAST = 240
"""Points at which it may be killed; beyond them it is done."""


@pytest.mark.long
def test_a_killed_promotion_moves_the_alias_once(
    call, record, data_dir, workspace, rounds, evidence
):
    """Or not at all; run again it is moved once, with its reason."""
    chance = random.Random(os.environ["SEED"])
    killed = killed_at(data_dir, workspace)
    record.prompts.add("rag", "Version 1.")
    record.prompts.alias("rag@1", "production", reason="the first one")
    kills, kills_min, versions = 0, rounds(quick=1, full=50), itertools.count(2)
    while kills < kills_min:  # a point may lie past the end
        number = next(versions)
        record.prompts.add("rag", f"Version {number}.")
        command = ("prompt", "promote", f"rag@{number}", "--reason", f"round {number}")
        kills += killed(chance.randrange(1, 4), *command)
        assert record.prompts.get("rag@production").version in {number - 1, number}
        call(*command)
        assert record.prompts.get("rag@production").version == number
        moves = [each for each in record.prompts.log("rag").moves if each.version == number]
        assert [each.because for each in moves] == [f"round {number}"]
    evidence.record("prompts.promote.kills", kills=kills, rounds=next(versions) - 2)


@pytest.mark.thorough(
    quick="prompts/test_interrupts.py::test_an_interrupt_ends_an_optimization_at_once"
)
@pytest.mark.long
def test_a_killed_optimisation_is_gone_on_with(record, data_dir, workspace, rounds, evidence):
    """A killed optimisation resumes to the result of an undisturbed one."""
    chance = random.Random(os.environ["SEED"])
    program = OPTIMIZER.read_text(encoding="utf-8")

    def come_to(name: str, point: int) -> bool:
        return was_killed(data_dir, point, program, name, data_dir)

    def state_of(name: str) -> object:
        with hansard.connect(name, data_dir=data_dir) as opened:
            log = opened.prompts.log("p")
            return (
                [(each.version, each.parents, each.aliases) for each in log.versions],
                [(each.alias, each.version) for each in log.moves],
                opened.sql(
                    "SELECT status, count(*), (SELECT count(*) FROM outcomes), "
                    "(SELECT count(DISTINCT run) FROM outcomes) FROM runs GROUP BY 1"
                ).rows,
            )

    assert not come_to(workspace, 0)
    whole = state_of(workspace)
    kills = 0
    for number in range(rounds(quick=1, full=50)):
        name = f"{workspace}-{number}"
        while come_to(name, chance.randrange(2, LAST)):
            kills += 1
            if chance.random() < 0.5:  # as often as not nobody kills it the next time
                assert not come_to(name, 0)
                break
        assert state_of(name) == whole
    evidence.record("prompts.optimize.kills", kills=kills, rounds=rounds(quick=1, full=50))
