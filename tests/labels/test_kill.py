"""A killed process leaves no commit with a label below that of its input."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from hansard.domain.label import LOWEST
from tests.conftest import ROUNDS
from tests.labels.support import history

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
import hansard

with hansard.connect(sys.argv[1], data_dir=sys.argv[2]) as record:
    with record.run("w", run="r", agent="ada", role="researcher") as ada:
        @ada.tool(effects="pure", gives="secret")
        def read(n):
            return n
        @ada.tool(effects="idempotent")  # killed in its middle, a `once` tool would be in doubt
        def note(n):
            return n
        for n in range(100_000):
            print(n, flush=True)
            if n == 3:
                read(n)
            ada.board.append("found", n)
            note(n)
            ada.board.add("count", n)
            ada.decide(f"{n}?", selected="yes")
"""


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("round_", range(min(ROUNDS, 3)))
def test_after_a_kill_no_commit_is_labelled_too_low(record, data_dir, workspace, round_):
    """After two kills the agent writes under the label of what it was shown."""
    rng = random.Random(round_)
    for turns in (rng.randrange(2, 8), rng.randrange(5, 12)):
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, workspace, str(data_dir)], stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            for turn in range(turns):
                assert child.stdout.readline() == b"%d\n" % turn
            time.sleep(rng.uniform(0, 0.05))
            os.kill(child.pid, signal.SIGKILL)
    shown = LOWEST
    secrets = 0
    for stored in history(record, "r"):
        label = stored.commit.label or LOWEST
        if stored.commit.actor.agent == "ada":
            assert label == shown.join(label), stored
            shown = label
            secrets += label != LOWEST
    assert secrets > 0
    assert record.state("r").agents["ada"].label == "secret"
    with record.run("w", run="r", agent="bob", role="analyzer") as bob:
        bob.board.get("count")
        assert str(bob.label) == "secret"
