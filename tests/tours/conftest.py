"""Fixtures of the tours: processes are forked; commands read the record in the test's folder."""

from pathlib import Path
from typing import Any

import pytest

from tests.actions.conftest import chromium, page, seldom_looked_at, site
from tests.cli.support import Ran, ran

__all__ = ["chromium", "page", "seldom_looked_at", "site"]


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Any:
    """Run a command on the record in this folder."""
    monkeypatch.setenv("HANSARD_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("HANSARD_WORKSPACE", "lab")

    def called(*arguments: object) -> Ran:
        return ran(capsysbinary, monkeypatch, arguments)

    return called
