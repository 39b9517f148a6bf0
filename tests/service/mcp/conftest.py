"""A fresh record, for programs that reach it by the environment."""

from pathlib import Path

import pytest

from tests.integrations.mcp.support import Setup


@pytest.fixture
def setup(data_dir: Path, workspace: str, tmp_path: Path) -> Setup:
    """Return a fresh workspace."""
    return Setup(data_dir, workspace, tmp_path / "sent.txt")
