"""Rules of `hansard calibrate`: a text of a prompt is never hidden unasked."""

import os
import subprocess
from pathlib import Path

import pytest

from hansard.domain.errors import BadValue
from hansard.ext.models.calibration import checked_rule, proposals, read_rules
from hansard.ext.models.providers import Operation
from tests.faults._warm import python
from tests.models.provider import Provider

CHAT = Operation("openai", "chat.completions")
RUNS = "5f0f6dd0-5a0e-4d6e-9f0f-0d3c9a8f4f5e", "c1f7d2a4-6f1b-4b57-8a2d-8f6a51d3b7aa"
TIMES = "2026-01-01 10:00:00", "2026-01-01 10:00:09"

TEXTS = (
    "openai.chat.completions/messages/*/content", "/messages/0/content/0/text", "/messages",
    "/input", "/input/*/content/*/text", "openai.responses/instructions", "/prompt",
    "anthropic.messages/system", "/system/*/text", "/contents/*/parts/*/text", "/*",
    "/systemInstruction/parts/0/text", "/messages/*/content/*/input/customer_id",
    "/requests/*/content", "/tools/*/function/description", "/messages/*/*",
)  # fmt: skip
NO_TEXTS = ("/metadata/run", "openai.responses/user", "/messages/*/id", "/input/*/call_id")


def test_a_time_in_a_prompt_is_no_active_rule():
    """A text is a comment, whatever its values look like, and so is a sentence in another field;
    a field whose whole value is an id is a rule.
    """
    first, second = (
        {
            "messages": [{"role": "system", "content": f"Today is {time}. Be brief."}],
            "input": run,
            "metadata": {"run": f"job:{run}", "at": time, "why": f"due {time}, delete it"},
        }
        for run, time in zip(RUNS, TIMES, strict=True)
    )
    name = CHAT.name
    proposed = proposals([(CHAT, first, second)])
    assert {each.rule for each in proposed if each.active} == {
        f"{name}/metadata/run", f"{name}/metadata/at",
    }  # fmt: skip
    assert {each.rule for each in proposed if each.hides_text} == {
        f"{name}/messages/*/content", f"{name}/input",
    }  # fmt: skip
    assert len(proposed) == 5


@pytest.mark.parametrize("rule", TEXTS)
def test_a_rule_that_hides_a_text_needs_the_word(rule: str, tmp_path: Path):
    """In a file and as an option, it is refused with its danger and the word that accepts it."""
    with pytest.raises(BadValue, match=f"other questions would get .*'text:{rule[:5]}"):
        checked_rule(rule)
    rules = tmp_path / "rules"
    rules.write_text(f"/metadata/run\n{rule}\n")
    with pytest.raises(BadValue, match="other questions would get"):
        read_rules(rules)
    rules.write_text(f"/metadata/run\ntext:{rule} # accepted\n")
    assert read_rules(rules) == ("/metadata/run", rule)


@pytest.mark.parametrize("rule", NO_TEXTS)
def test_other_rules_need_no_word(rule: str):
    """Fields beside the texts, and ids of messages and their parts, are no texts."""
    assert checked_rule(rule) == rule


# ------------------------------------------------------------ `hansard calibrate`


PROGRAM = str(Path(__file__).parent / "programs" / "volatile.py")


@pytest.mark.slow
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
