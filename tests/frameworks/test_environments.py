"""Google ADK and the Claude Agent SDK with Claude Code, each in a folder of packages of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.ext.frameworks import claude
from tests.cli.support import environment
from tests.cli.test_up import up
from tests.frameworks import scripted

pytestmark = pytest.mark.thorough

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
PROGRAMS = Path(__file__).with_name("programs")
INSTALLED_S_MAX = 900
RUN_S_MAX = 120
CONTRACTS = 13
"""Contracts that the SDK ships, each with a store of its own; one has none of its own."""

CLAUDE = "claude_agent_sdk/_bundled/claude"


def packages(name: str, folder: Path) -> Path:
    """Install the locked packages of a name into a folder."""
    options = ["--quiet", "--require-hashes", "--target", str(folder)]
    locked = ["--requirement", str(REQUIREMENTS / f"{name}.txt")]
    command = [sys.executable, "-m", "pip", "install", *options, *locked]
    subprocess.run(command, check=True, timeout=INSTALLED_S_MAX)
    return folder


def with_packages(env: dict[str, str], folder: Path) -> dict[str, str]:
    """Return an environment in which a folder's packages are importable."""
    return env | {"PYTHONPATH": os.pathsep.join((env["PYTHONPATH"], str(folder)))}


@pytest.mark.thorough(
    quick="frameworks/test_killed.py::"
    "test_a_killed_run_is_resumed_with_one_effect_and_replayed_with_none"
)
def test_an_adk_agent_is_killed_resumed_and_replayed(
    data_dir: Path, workspace: str, tmp_path: Path
) -> None:
    """One mail over a kill and a resumption, and no call of the model or a tool in a replay."""
    env = with_packages(
        environment(data_dir, HANSARD_WORKSPACE=workspace), packages("adk", tmp_path / "packages")
    )
    log = tmp_path / "log"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(PROGRAMS / "adk_agent.py"), "r", str(log), *words]
        return subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, timeout=RUN_S_MAX
        )

    before = ["model", "look_up ada", "look_up bob", "model", "mail ada@example.org"]
    assert run("live", "KILL").returncode == -signal.SIGKILL
    assert log.read_text().splitlines() == before
    in_doubt = run("live")
    assert "whether its effect happened is not known" in in_doubt.stderr
    assert log.read_text().splitlines() == before
    with hansard.connect(workspace, data_dir=data_dir) as record:
        record.settle("r", "agent#5", "happened", result={"status": "sent"})
    resumed = run("live")
    assert log.read_text().splitlines() == [*before, "model"]
    replayed = run("strict")
    assert log.read_text().splitlines() == [*before, "model"]
    state = {"ada": "ada@example.org", "bob": "bob@example.org"}
    assert json.loads(resumed.stdout) == {"texts": ["Sent."], "state": state}
    assert replayed.stdout == resumed.stdout

    words = ["-m", "hansard", "quickstart", "adk", "--json", "--dir", str(tmp_path / "quickstart")]
    started = subprocess.run(
        [sys.executable, *words], env=env, check=True, stdout=subprocess.PIPE, timeout=RUN_S_MAX
    )
    report = json.loads(started.stdout)
    assert (report["without"]["mails"], report["recorded"]["mails"]) == (2, 1)


@pytest.mark.thorough(
    quick="frameworks/test_claude.py::test_a_session_is_a_run_and_hooks_posted_twice_count_once"
)
def test_claude_code_posts_its_hooks_and_the_sdk_stores_its_transcript(
    data_dir: Path, workspace: str, tmp_path: Path
) -> None:
    """Hooks and transcript of the real Claude Code are on record, and its model calls replay."""
    folder, project = packages("claude", tmp_path / "packages"), tmp_path / "project"
    place = environment(data_dir, HANSARD_WORKSPACE=workspace)
    with (
        scripted.provider("echo sent >> mails") as (provider, requests),
        up(data_dir, "--json", "--http", "127.0.0.1:0", HANSARD_WORKSPACE=workspace) as listener,
    ):
        assert listener.stdout is not None
        url = json.loads(listener.stdout.readline())["http"]
        home = tmp_path / "home"
        for each in (home, project / ".claude"):
            each.mkdir(parents=True)
        hooks = {"hooks": claude.block(url + claude.PATH)}
        (project / ".claude" / "settings.json").write_text(json.dumps(hooks))
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}
        env = with_packages(place, folder) | quiet | {"ANTHROPIC_BASE_URL": provider}
        env |= {"ANTHROPIC_API_KEY": "sk-ant-none", "CLAUDE_CONFIG_DIR": str(home)}
        command = [sys.executable, str(PROGRAMS / "claude_agent.py"), str(project)]
        output = subprocess.run(
            command, env=env, check=True, timeout=RUN_S_MAX, stdout=subprocess.PIPE
        )
        report: dict[str, Any] = json.loads(output.stdout)
        assert report["stores"] > CONTRACTS
        assert {"user", "assistant"} <= {*report["types"]}
        assert (project / "mails").read_text() == "sent\n"
        count = len(requests)

        words = [str(folder / CLAUDE), "-p", "Send the mail", "--allowedTools", "Bash"]
        hansard_ = [sys.executable, "-m", "hansard", "record", "--workflow", "code", "--"]
        subprocess.run([*hansard_, *words], env=env, cwd=project, check=True, timeout=RUN_S_MAX)
        assert len(requests) > count
    with hansard.connect(workspace, data_dir=data_dir) as record:
        answer = record.sql("SELECT run, tool, status FROM steps WHERE kind = 'tool' ORDER BY ALL")
        assert (report["session"], "Bash", "completed") in [tuple(row) for row in answer.rows]
        models = record.sql("SELECT count(*) FROM steps WHERE tool = 'anthropic.messages'")
        assert models.rows[0][0] == len(requests) - count
