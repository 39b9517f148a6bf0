"""Default program name of a session."""

import sys

import pytest

from hansard.client.options import program_name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("agent.py", "agent"),
        ("/srv/jobs/nightly.digest.py", "nightly.digest"),
        ("/site-packages/pack/__main__.py", "pack"),
        ("/usr/bin/worker", "worker"),
        ("-c", "interactive"),
        ("-", "interactive"),
        ("", "interactive"),
    ],
)
def test_the_program_names_its_workflow(monkeypatch: pytest.MonkeyPatch, path: str, name: str):
    """The name is the file's, or the executed package's; without either, `interactive`."""
    monkeypatch.setattr(sys, "argv", [path])
    assert program_name() == name


def test_a_prompt_and_a_notebook_are_interactive(monkeypatch: pytest.MonkeyPatch):
    """Python shows it by `sys.ps1`, and so does IPython, however they were started."""
    monkeypatch.setattr(sys, "argv", ["/site-packages/ipykernel_launcher.py"])
    monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
    assert program_name() == "interactive"
