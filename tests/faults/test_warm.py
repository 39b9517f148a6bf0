"""The process that forks the tests' programs survives kills of those that request them."""

import subprocess

import pytest

from tests.faults._warm import python

pytestmark = pytest.mark.slow

FORK_S = 30
KILLED_AFTER_S = [number / 500 for number in range(25)]


def test_who_is_killed_while_it_asks_for_a_program_ends_nothing_but_that():
    """A process killed while it requests a program ends only itself."""
    for wait_s in KILLED_AFTER_S:
        asking = subprocess.Popen([python(), "-c", "import time; time.sleep(60)"])
        try:
            asking.wait(wait_s)
        except subprocess.TimeoutExpired:
            asking.kill()
        assert asking.wait() == -9
    process = subprocess.run(
        [python(), "-c", "print(7)"], capture_output=True, check=True, timeout=FORK_S
    )
    assert process.stdout == b"7\n"
