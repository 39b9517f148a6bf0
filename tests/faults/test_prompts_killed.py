"""A program that is killed while its prompt grows goes on, and nothing of a prompt is lost."""

from pathlib import Path

import pytest

import hansard
from hansard.agents.exchange.writer import blobs_of
from hansard.agents.steps import payloads
from hansard.domain import payload
from tests.cli.support import environment
from tests.faults._warm import run
from tests.faults.programs import prompts

pytestmark = pytest.mark.slow

KILLS = ["blob:1", "blob:2", "append:1", "append:4", "append:7"]
WAIT_S = 120


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("kill", KILLS)
def test_a_prompt_outlives_a_kill_between_its_parts_and_its_event(tmp_path: Path, kill: str):
    """After a kill each call's prompt reads back, and no part is stored twice."""
    folder = tmp_path / "data"

    def exit_code(where: str) -> int:
        arguments = ["-m", prompts.__name__, str(folder), "w", "r", where]
        root = Path(__file__).parents[2]
        return run(arguments, cwd=root, env=environment(folder), timeout=WAIT_S).returncode

    with hansard.connect("w", data_dir=folder) as record:
        assert exit_code(kill) == -9
        assert exit_code("never") == 0
        state = record.state("r").agent("agent")
        reader = payloads.Reader(lambda: state)
        blobs = record.workspace.blobs

        def get(sha256: str, size: int) -> bytes:
            return record._portal.run(blobs.get(sha256, size))

        stored = [payload.run_fetch(reader.arguments(s), get) for s in state.steps.values()]
        assert stored == [{"prompt": prompts.prompt(n)} for n in range(1, prompts.CALLS + 1)]
        commits = record._portal.run(record.workspace.log.read_run("r"))
        named = {
            sha256: size for stored in commits for sha256, size in blobs_of(stored.commit).items()
        }
        large = 3 * prompts.LARGE_CHARACTERS
        assert 0.9 * large < sum(named.values()) < 1.3 * large
        assert sum(len(stored.body) for stored in commits) < 0.2 * large
