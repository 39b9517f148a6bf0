"""Fixtures and hooks for every test: `rounds`, `evidence`, `real_data`."""

import atexit
import gc
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from hansard.agents.steps import scope

ROOT = Path(__file__).parents[1]

# Last, also where `python -m pytest` has put it first: the links at the root are called `agents`,
# `domain` ..., and must not shadow an installed package of that name.
sys.path[:] = [*(each for each in sys.path if Path(each or ".").resolve() != ROOT), str(ROOT)]

# Compiled modules are kept, whatever the machine says: tests start processes by the hundred, and
# each worker would compile, and rewrite, all tests again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = ["tests.evidence", "tests.folders", "tests.fixtures", "tests.tiers"]

ROUNDS_DEFAULT = 1
"""Rounds of a test marked `long` when the environment says nothing: a quick run."""

ROUNDS_THOROUGH = 100
"""From so many rounds on, property tests look at fifty times as many examples."""

ROUNDS = int(os.environ.get("ROUNDS", ROUNDS_DEFAULT))
REAL_DATA = Path(os.environ.get("HANSARD_REAL_DATA", ROOT.parent / "shared" / "data"))

NO_REAL_DATA = "no recorded real data here: set HANSARD_REAL_DATA"

THOROUGH = ROUNDS >= ROUNDS_THOROUGH

# A broker that has one core spends a seventh less; several share two in a quick run. With larger
# steps between its garbage collections it spends another seventh less, for 8 MB.
if not THOROUGH:
    os.environ.setdefault("GOMAXPROCS", "1")
    os.environ.setdefault("GOGC", "400")

SEED_QUICK = 1
"""Seed of everything drawn in a quick run, so that a failure comes from a change, never from
chance.
"""

GARBAGE_MIN = 10_000
"""So many new objects are looked through for garbage at once, and not Python's own 700."""

# No deadline: two cores are shared with servers, and a slow example is not a wrong one.
settings.register_profile(
    "quick", deadline=None, print_blob=True, max_examples=20, derandomize=True
)
settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("thorough" if THOROUGH else "quick")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Fix one seed for the test order, all draws and hypothesis: constant in a quick run, random in
    a thorough one; SEED or --randomly-seed sets it.

    Objects still frozen at the very end are never released, which DuckDB's binding reports as a
    leak. A script that starts the tests in the background makes them ignore SIGINT, and the
    programs that they start and interrupt would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    seed = getattr(config.option, "randomly_seed", "default")  # absent with `-p no:randomly`
    if seed == "default":
        drawn = random.SystemRandom().getrandbits(32) if THOROUGH else SEED_QUICK
        seed = config.option.randomly_seed = int(os.environ.get("SEED", drawn))
    if THOROUGH and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(seed)
    os.environ["SEED"] = str(seed)  # also for what is drawn at import
    atexit.register(gc.unfreeze)


def pytest_report_header() -> str:
    """Return the line that says how to repeat the run."""
    return f"SEED={os.environ['SEED']} ROUNDS={ROUNDS} repeats what is drawn here"


@pytest.fixture(scope="session")
def rounds() -> Callable[[int, int], int]:
    """Return `rounds(quick, full)`: the number of rounds by ROUNDS, within the bounds of the test.

    `quick` is the least number that still shows something, `full` the largest worth its time.
    """

    def between(quick: int, full: int) -> int:
        return max(quick, min(ROUNDS, full))

    return between


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of recorded real data; tests that read it are marked `real`."""
    return REAL_DATA


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of real data where it is missing, with a note."""
    if not REAL_DATA.is_dir():
        for item in items:
            if item.get_closest_marker("real"):
                item.add_marker(pytest.mark.skip(reason=NO_REAL_DATA))


def pytest_collection() -> None:
    """Freeze collected items: garbage collection over them takes a fifth of the collection time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Freeze what collection allocated, so that the garbage collector does not scan it again."""
    gc.freeze()
    gc.set_threshold(GARBAGE_MIN)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Collect the garbage of the last tests once; pytest would scan everything ten times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_session_stays_current() -> Iterator[None]:
    """Hide a session that a test leaves open, as a kill would, from the calls of the next test."""
    yield
    scope.back(())
