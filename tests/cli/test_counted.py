"""Commands count in words that fit the number: 1 decision, 2 decisions."""

import re
from pathlib import Path

import pytest

import hansard
from hansard.domain.choices import counted

COMMANDS = sorted(
    path
    for room in ("cli", "inspect", "web")
    for path in (Path(hansard.__file__).parent / room).rglob("*.py")
)
BARE = re.compile(
    r"""\{len\([^{}]*\)(?::,)?\} (?!is\b)[a-z]+s\b|'' if [^{}]* == 1 else 's'"""
    r"""|\{[a-z_.]+\} (?:steps|calls|events|runs|messages|tasks|rows|lines|files|times)\b"""
    r"""|\{(?:tally\.[^{}]*|[^{}]*:,)\} (?!is\b)[a-z]+s\b(?<!FILE_BYTES_MAX:,\} bytes)"""
)


@pytest.mark.parametrize(
    ("number", "one", "phrase"),
    [
        (0, "event", "0 events"),
        (1, "event", "1 event"),
        (2, "branch", "2 branches"),
        (1200, "entry", "1,200 entries"),
    ],
)
def test_a_number_and_its_word_agree(number: int, one: str, phrase: str) -> None:
    """The singular is used for one."""
    assert counted(number, one) == phrase


def test_no_command_counts_by_itself() -> None:
    """A plural behind a number is made in one place."""
    assert not [
        f"{path.name}: {match[0]}"
        for path in COMMANDS
        for match in BARE.finditer(path.read_text(encoding="utf-8"))
    ]
