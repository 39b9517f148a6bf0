"""A resume without the redaction of the run's record warns."""

import warnings
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.errors import SecretsNotRedacted

KEY = "sk-live-0123456789"


def _start(folder: Path, **options: Any) -> list[str]:
    """Run the program once; return the texts of its warnings."""
    with (
        warnings.catch_warnings(record=True, action="always") as caught,
        hansard.connect(data_dir=folder, **options) as record,
        record.run("w", run="r", agent="ada") as session,
    ):

        @session.tool(effects="pure")
        def fetch(url: str) -> str:
            return f"fetched with {KEY}"

        @session.tool(effects="pure")
        def sign(key: hansard.Secret) -> str:
            return "signed"

        fetch("https://example.org")
        sign(hansard.Secret("other"))
    return [str(each.message) for each in caught if each.category is SecretsNotRedacted]


@pytest.mark.slow
def test_a_resume_without_the_redaction_warns(tmp_path: Path):
    """The warning names the secret and the remedy; there is none with it, or in a run without
    marks.
    """
    secrets = {"other": "value-of-other"}
    assert _start(tmp_path, redact={"api-key": KEY}, secrets=secrets) == []
    assert _start(tmp_path, redact={"api-key": KEY}, secrets=secrets) == []
    [text] = _start(tmp_path, secrets=secrets)
    assert text.startswith("run r has 1 secret redacted on record (api-key)")
    assert "HANSARD_REDACT" in text
