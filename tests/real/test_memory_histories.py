"""Real histories of agents' memory and prompt files: each version, blame, stored size."""

import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hansard.domain.ids import WorkspaceStream
from hansard.domain.memory import lines

pytestmark = pytest.mark.real

VERSIONS = {
    "deepagents-AGENTS": 51,
    "letta-code-history-analyzer": 17,
    "letta-code-letta": 15,
    "letta-code-memory": 15,
    "letta-code-reflection": 26,
}
"""Number of versions of each history."""


def history(folder: Path, name: str) -> list[str]:
    """Return the texts of a file, oldest first."""
    with gzip.open(folder / "memory" / "histories" / f"{name}.jsonl.gz", "rt") as file:
        versions: list[dict[str, Any]] = [json.loads(line) for line in file]
    return [each["text"] for each in versions]


def changed(before: str, after: str) -> int:
    """Return the lines that one version lost and the other gained."""
    old, new = lines.split(before), lines.split(after)
    return sum(
        len(
            "".join([*old[block.start : block.end], *new[block.new_start : block.new_end]]).encode()
        )
        for block in lines.diff(old, new)
    )


def git_blame(folder: Path, texts: list[str]) -> list[int]:
    """By git: the version that brought each line of the last text, from 1."""
    plain = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = {
        f"GIT_{part}_{kind}": "x" for part in ("AUTHOR", "COMMITTER") for kind in ("NAME", "EMAIL")
    }

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**os.environ, **plain, **who},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    git("init", "-q")
    for number, text in enumerate(texts, 1):
        (folder / "file").write_bytes(text.encode())
        git("add", "file")
        git("commit", "-q", "-m", str(number))
    commits = git("rev-list", "--reverse", "HEAD").split()
    numbers = {commit: number for number, commit in enumerate(commits, 1)}
    blamed = git("blame", "-l", "-s", "--root", "file").split("\n")
    return [numbers[line.split()[0]] for line in blamed if line]


@pytest.mark.parametrize(
    "name",
    [
        "letta-code-letta",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in VERSIONS
            if name != "letta-code-letta"
        ),
    ],
)
def test_each_version_is_there_and_blame_is_mostly_gits(name, real_data, record, tmp_path):
    """Each version is exact; nine in ten lines are blamed on git's version."""
    texts = history(real_data, name)
    assert len(texts) == VERSIONS[name]
    space = record.memory("agent/ada")
    for text in texts:
        space.create("prompts/file.md", text, by="alice")
    for number, text in enumerate(texts, 1):
        assert space.view("prompts/file.md", at=f"@{number}") == text
    blamed = space.blame("prompts/file.md")
    pairs = zip(blamed, git_blame(tmp_path, texts), strict=True)
    same = [line.version == version for line, version in pairs if line.text.strip()]
    assert sum(same) >= 0.9 * len(same)
    stored = record._portal.run(record.workspace.log.read(WorkspaceStream("memory", "agent/ada")))
    edits = sum(changed(before, after) for before, after in zip(["", *texts], texts, strict=False))
    assert sum(len(each.body) for each in stored) <= 2 * edits
