"""Compaction of memory: shorter files, proposed; and what refuses a proposal.

A proposal is what becomes of some files: a text, or None for a file that goes. It is refused where
it drops more than a stated share, or where a probe is found no more. A probe is what must stay: a
phrase, and where one is given the question that must still lead to it. Probes stand in the tree
itself, in `keep.md`, which no compaction changes: an item `- phrase`, or `- question => phrase`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from hansard.agents.memory.search.ranked import By, Rankers, search
from hansard.agents.memory.upkeep.findings import Finding, Kind, find, words
from hansard.domain.counted import counted
from hansard.domain.errors import BadValue

KEEP = "keep.md"
"""The file of the probes, in whichever folder it stands."""

DROP_MAX = 0.4
"""Largest share of the tokens, and of the lines, that one compaction drops if not told otherwise.
A file that is merely tidied loses a third; what loses more was written again."""

SMALL_TOKENS = 200
"""Files with fewer tokens in all may lose any share: what they lose is read at a glance."""

FOUND_AMONG = 5
"""A question leads to a phrase where one of the first so many files has it."""

PROBES_MAX = 1_000
"""Most probes of a tree."""

_TOKEN = re.compile(r"\w+|[^\w\s]")
_PROBE = re.compile(r"^\s*[-*+]\s+(?:(?P<question>.+?)\s*=>\s*)?(?P<phrase>.+?)\s*$")

Changes = Mapping[str, str | None]
"""What becomes of files: their new text, or None where they go."""


class Probe(msgspec.Struct, frozen=True, order=True):
    """What must stay in memory.

    Attributes:
        phrase: It stands in some file, whatever the case and the white space.
        question: It leads to a file with the phrase; empty where nobody asks one.
    """

    phrase: str
    question: str = ""

    def __str__(self) -> str:
        return f"{self.question} => {self.phrase}" if self.question else self.phrase


class Compacted(msgspec.Struct, frozen=True):
    """What a compaction comes to.

    Attributes:
        changes: What becomes of files; empty where nothing is proposed, or it is refused.
        findings: What was found without a model.
        refused: Why a proposal is refused, each reason; empty where it may be made.
        tokens_before: Words and marks of the files that it changes, before.
        tokens_after: And after.
        probes: How many probes there are, all of which are found after it.
        unmet: Probes that were not found before it either: nothing can be lost of them.
    """

    changes: dict[str, str | None]
    findings: list[Finding]
    refused: list[str] = []
    tokens_before: int = 0
    tokens_after: int = 0
    probes: int = 0
    unmet: list[Probe] = []


def tokens(text: str) -> int:
    """Words and marks of a text: near enough to a model's tokens to compare two texts by."""
    return len(_TOKEN.findall(text))


def probes_in(tree: Mapping[str, str]) -> list[Probe]:
    """The probes that a tree holds, in order, each once. Raises BadValue for too many."""
    found: dict[Probe, None] = {}
    for path in sorted(tree):
        if is_keep(path):
            for line in tree[path].splitlines():
                told = _PROBE.match(line)
                if told is not None:
                    found[Probe(told["phrase"], told["question"] or "")] = None
    if len(found) > PROBES_MAX:
        raise BadValue(KEEP, counted(len(found), "probe"), f"keep at most {PROBES_MAX:,}")
    return list(found)


def is_keep(path: str) -> bool:
    """Whether a path is that of a file of probes."""
    return path.rsplit("/", 1)[-1].casefold() == KEEP


def after(tree: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """A tree as changes leave it."""
    left = {path: text for path, text in tree.items() if path not in changes}
    return left | {path: text for path, text in changes.items() if text is not None}


def proposed(tree: Mapping[str, str], findings: Sequence[Finding]) -> dict[str, str | None]:
    """What can be shorter without a model, and without a word less: a line that has the very words
    of another, whatever its bullet and its marks, goes; the first stays.
    """
    gone: dict[str, set[int]] = {}
    for finding in findings:
        if finding.kind is not Kind.NEAR_DUPLICATE:
            continue
        said = {tuple(words(finding.spots[0].text))}
        for spot in finding.spots[1:]:
            if tuple(words(spot.text)) in said and not is_keep(spot.path):
                gone.setdefault(spot.path, set()).add(spot.line)
    return {path: _without(tree[path], numbers) for path, numbers in sorted(gone.items())}


def _without(text: str, numbers: set[int]) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for number, line in enumerate(lines, 1) if number not in numbers)


def compact(
    tree: Mapping[str, str],
    rankers: Rankers,
    changes: Changes | None = None,
    *,
    reads: Mapping[str, int] | None = None,
    keep: Iterable[Probe] = (),
    drop_max: float = DROP_MAX,
) -> Compacted:
    """Judge a proposal, or make one of what is found without a model.

    Args:
        tree: The files as they stand.
        rankers: What finds files by the probes' questions: by words.
        changes: What is proposed; if None, lines that have the very words of others go.
        reads: How often each file was read; None where nobody counted.
        keep: Probes besides those in the tree.
        drop_max: Largest share of tokens and lines to be dropped, 0 to 1.

    Raises:
        BadValue: `drop_max` is no share, or a changed text is no text.
    """
    if not 0 <= drop_max <= 1:
        raise BadValue("drop_max", f"{drop_max}", "give a share from 0 to 1, such as 0.4")
    findings = find(tree, reads)
    wanted = proposed(tree, findings) if changes is None else _real(tree, changes)
    probes = list(dict.fromkeys([*probes_in(tree), *keep]))
    held = [probe for probe in probes if is_held(tree, probe, rankers)]
    refused = refusals(tree, wanted, held, rankers, drop_max)
    before, left = _tokens(tree, wanted)
    return Compacted(
        changes={} if refused else wanted,
        findings=findings,
        refused=refused,
        tokens_before=before,
        tokens_after=left,
        probes=len(held),
        unmet=[probe for probe in probes if probe not in held],
    )


def _real(tree: Mapping[str, str], changes: Mapping[str, Any]) -> dict[str, str | None]:
    """Changes that change something. Raises BadValue for what is no text."""
    for path, text in changes.items():
        if not isinstance(text, str | None):
            fact = f"a {type(text).__name__} for {path!r:.80}"
            raise BadValue("proposal", fact, "give the file's whole text, or None")
    return {path: text for path, text in changes.items() if tree.get(path) != text}


def _tokens(tree: Mapping[str, str], changes: Changes) -> tuple[int, int]:
    before = sum(tokens(tree.get(path, "")) for path in changes)
    return before, sum(tokens(text or "") for text in changes.values())


def refusals(
    tree: Mapping[str, str],
    changes: Changes,
    held: Sequence[Probe],
    rankers: Rankers,
    drop_max: float = DROP_MAX,
) -> list[str]:
    """Why a proposal is refused: each share that is too large, and each probe that is lost."""
    found = [
        f"it changes {path!r}, which says what must stay: change it by hand"
        for path in changes
        if is_keep(path)
    ]
    before, left = _tokens(tree, changes)
    lines = _lines(tree.get(path, "") for path in changes)
    lines_left = _lines(text or "" for text in changes.values())
    for what, had, has in (("tokens", before, left), ("lines", lines, lines_left)):
        if before > SMALL_TOKENS and had - has > drop_max * had:
            share = (had - has) / had
            found.append(
                f"it drops {share:.0%} of the {what} ({had:,} to {has:,}), at most {drop_max:.0%} "
                "may go at once: propose less, or several steps"
            )
    made = after(tree, changes)
    lost = [str(probe) for probe in held if not is_held(made, probe, rankers)]
    return found + [f"it loses what must stay: {probe!r:.200}" for probe in lost]


def _lines(texts: Iterable[str]) -> int:
    return sum(bool(line.strip()) for text in texts for line in text.splitlines())


def is_held(tree: Mapping[str, str], probe: Probe, rankers: Rankers) -> bool:
    """Whether a probe's phrase stands in a file, and its question leads to it. The files of probes
    themselves do not count.
    """
    phrase = _even(probe.phrase)
    files = {path: text for path, text in tree.items() if not is_keep(path)}
    holding = {path for path, text in files.items() if phrase in _even(text)}
    if not probe.question or not holding:
        return bool(holding)
    found = search(files, probe.question, rankers, by=By.WORDS, limit=FOUND_AMONG)
    return any(hit.path in holding for hit in found.hits)


def _even(text: str) -> str:
    return " ".join(text.casefold().split())
