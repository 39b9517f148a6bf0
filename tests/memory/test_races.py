"""Changes that are only valid apart, made by racing and killed processes, leave every version of
the space valid.
"""

import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hansard.agents.memory.drafts import problems
from hansard.agents.memory.formats import of_space
from hansard.bus.portal import portal
from hansard.client.record import Record
from hansard.domain.memory.files import stream_of
from hansard.domain.memory.space import MemoryState
from tests.evidence import Evidence
from tests.faults._warm import python

pytestmark = pytest.mark.thorough

PROGRAM = Path(__file__).with_name("programs") / "racing.py"
SPACE = "org"
WRITERS = 3
TOLD_MAX = 25
"""Changes reported before a writer is killed; the first writer runs until every kind of answer."""
ANSWERS_MAX = 200
"""Largest number of answers for one writer; every kind of answer occurs within it."""
ANSWERS = {"made", "refused", "lost"}


@pytest.mark.thorough(quick="memory/test_session.py::test_a_change_goes_by_what_its_session_saw")
@pytest.mark.long
def test_nothing_that_is_not_valid_is_at_any_version(
    record: Record,
    data_dir: Path,
    workspace: str,
    rounds: Callable[[int, int], int],
    evidence: Evidence,
):
    """Whatever races and kills happen, each version of a space is valid."""
    chance = random.Random(os.environ["SEED"])
    space = record.memory(SPACE)
    space.set_policy("off", by="eve")
    kills, tries = 0, rounds(1, 50)
    outcomes: Counter[str] = Counter()
    for number in range(tries):
        writers = [
            start(data_dir, workspace, f"w{number}-{writer}", chance.random())
            for writer in range(WRITERS)
        ]
        for place, writer in enumerate(writers):  # the others go on meanwhile
            assert writer.stdout is not None
            least = chance.randrange(5, TOLD_MAX)
            for count in range(1, ANSWERS_MAX):
                answer = writer.stdout.readline().strip()
                assert answer in ANSWERS
                outcomes[answer] += 1
                if count >= least and (place > 0 or set(outcomes) == ANSWERS):
                    break
            writer.kill()
            kills += writer.wait() == -9
            writer.stdout.close()
    assert kills == WRITERS * tries
    assert set(outcomes) == ANSWERS
    state = MemoryState()
    for stored in portal().run(record.workspace.log.read(stream_of(SPACE))):
        state = portal().run(record.workspace.memories.folded(state, [stored]))
        assert (problems(of_space(state.files)), state.unfit) == ([], []), state.version
    refused = record.sql("SELECT count(DISTINCT (run, step)) FROM memory_rejections").rows[0][0]
    assert refused >= outcomes["refused"]
    evidence.record("memory.races", kills=kills, versions=state.version, invalid=0, refused=refused)


def start(data_dir: Path, workspace: str, name: str, seed: float) -> subprocess.Popen[str]:
    """Start a writer."""
    command = [python(), str(PROGRAM), str(data_dir), workspace, name, str(seed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
