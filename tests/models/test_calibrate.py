"""`hansard calibrate`: a program's volatile fields, proposed as rules that replay applies."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.faults._warm import python
from tests.models.provider import Provider

PROGRAM = str(Path(__file__).parent / "programs" / "volatile.py")

pytestmark = pytest.mark.slow


def test_proposed_rules_are_applied_where_they_are_given(provider: Provider, tmp_path: Path):
    """Two starts propose the id that a program draws; the second start calls no provider. Replay
    misses without the rule, names the field, and finds the calls with it, also those that were
    recorded before the rule; another text is a miss with it, too. A time in a prompt is a comment.
    """
    rules = tmp_path / "rules"
    warm = python("openai")  # as other files of this folder start it

    def hansard(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        place = {"HANSARD_DATA_DIR": str(tmp_path / "data"), "HANSARD_WORKSPACE": "w"}
        command = [warm, "-m", "hansard", *arguments, "--", warm, PROGRAM]
        environment = os.environ | place | variables
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    done = hansard("calibrate", "--write", str(rules))
    assert done.returncode == 1, done.stderr
    assert len(provider.calls) == 2
    text = rules.read_text()
    assert "# in 2 calls: a UUID\n" in text
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "openai.chat.completions/metadata/run"
    ]
    for calls in (2, 4):  # the run that was recorded without the rule, and one with it
        if calls == 4:
            assert hansard("record", "--rules", str(rules)).returncode == 0
        replayed = hansard("replay", "last", "--rules", str(rules))
        assert (replayed.returncode, replayed.stdout) == (0, "Grüße aus Köln.\n"), replayed.stderr
        assert len(provider.calls) == calls
    missed = hansard("replay", "last")
    assert missed.returncode == 1
    assert "/metadata/run" in missed.stderr
    other = hansard("replay", "last", "--rules", str(rules), MORE=" Really?")
    assert other.returncode == 1
    assert "/messages/0/content" in other.stderr
    assert len(provider.calls) == 4
    timed = hansard("calibrate", TIMED="1")
    active = [line for line in timed.stdout.splitlines() if line[:1] not in ("#", "G")]
    assert active == ["openai.chat.completions/metadata/run"], timed.stdout
    assert "# text:openai.chat.completions/messages/*/content\n" in timed.stdout
