"""Compaction of memory: proposals for shorter files, and the checks that refuse one.

A proposal gives the new text of some files, or None to delete a file. It is refused if it drops
more than a set share, or if a probe is no longer found. A probe is a phrase that must stay,
optionally with a question whose search must still find it. Probes are kept in the tree itself, in
`keep.md`, which no compaction changes: an item `- phrase`, or `- question => phrase`.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from hansard.agents.memory.search import By, Rankers, search
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.domain.memory.files import AGENTS
from hansard.domain.memory.space import MemoryState
from hansard.inspect.memory import texts_of
from hansard.projections.file_search import FileWords
from hansard.projections.snapshots import Reader
from hansard.projections.table_files import statements

_SQL = statements(__file__)

SIMILAR_MIN = 0.7
"""Least share of word pairs (Jaccard) that two lines have in common to count as near-duplicates."""

WORDS_MIN = 5
"""Least words of a compared line: shorter ones are alike by chance."""

VALUES_MIN = 6
"""Least values of a list that is reported: shorter ones are quickly read."""

VALUE_WORDS_MAX = 4
"""Most words of a value."""

COMMON_MAX = 200
"""Most lines with the same word pair; a more frequent pair is ignored."""

ITEMS_SHOWN = 200
"""Most lines that one finding lists."""

DIRECTIVES = frozenset(
    {
        *("ignore", "ignored", "skip", "exclude", "excluded", "block", "blocked", "mute", "muted"),
        *("unsubscribe", "discard", "archive", "blacklist", "blocklist", "denylist", "whitelist"),
        *("allowlist", "spam", "reject", "decline", "filter"),
    }
)
"""Words in the lead of a list that say what to do with each of its values: one rule could replace
such a list.
"""

OPPOSITES = frozenset(
    {"not", "no", "never", "always", "only", "except", "without", "don't", "cannot"}
)
"""Two lines that differ only in one of these words contradict each other."""

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?")
_WORD = re.compile(r"[^\W_]+(?:['.&-][^\W_]+)*")
_PLAIN_VALUE = re.compile(r"^[\w][\w .,&'@-]*$")
_CODE = re.compile(r"[`<>{}()\[\]|=/\\$*_#]|::|->|\.\w{1,4}\b")


class Kind(StrEnum):
    """Kind of a finding.

    Attributes:
        NEAR_DUPLICATE: Lines that state the same thing.
        VALUE_LIST: Values that are each given the same instruction.
        NEVER_READ: A file without a recorded read.
    """

    NEAR_DUPLICATE = "near_duplicate"
    VALUE_LIST = "value_list"
    NEVER_READ = "never_read"


class Spot(msgspec.Struct, frozen=True, order=True):
    """A line of a file, from 1; 0 for the file as a whole."""

    path: str
    line: int = 0
    text: str = ""


class Finding(msgspec.Struct, frozen=True):
    """Something that could be shorter.

    Attributes:
        kind: Kind of the finding.
        spots: Places, in order; of near-duplicates the line to keep is first.
        says: Description for people.
        lead: Of a value list, the instruction that applies to each value.
        values: Values of the list.
    """

    kind: Kind
    spots: tuple[Spot, ...]
    says: str
    lead: str = ""
    values: tuple[str, ...] = ()


def find(tree: Mapping[str, str], reads: Mapping[str, int] | None = None) -> list[Finding]:
    """Return all findings in a tree. `reads` maps a file to its number of reads; None if reads were
    not counted.
    """
    lines = [spot for path in sorted(tree) for spot in prose(path, tree[path])]
    lists = [*_repeated_lines(lines), *_headed_lists(lines)]
    listed = {spot for finding in lists for spot in finding.spots}
    alike = _near_duplicates([spot for spot in lines if spot not in listed])
    unread = [] if reads is None else _never_read(tree, reads)
    return [*alike, *lists, *unread]


def prose(path: str, text: str) -> Iterator[Spot]:
    """Yield the lines of a file that are prose: no code, heading, table or front matter."""
    fenced = False
    lines = text.splitlines()
    begin = _after_front_matter(lines)
    for number, line in enumerate(lines[begin:], begin + 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and line.strip() and not line.lstrip().startswith(("#", "|", ">", "<")):
            yield Spot(path, number, line)


def _after_front_matter(lines: Sequence[str]) -> int:
    if lines and lines[0].strip() == "---":
        for number, line in enumerate(lines[1:], 1):
            if line.strip() == "---":
                return number + 1
    return 0


def words(text: str) -> list[str]:
    """Return the words of a line in lower case, without its bullet."""
    even = _ITEM.sub("", text).replace("\u2019", "'")
    return [word.casefold() for word in _WORD.findall(even)]


# ---------------------------------------------------------------- near-duplicates


def _near_duplicates(lines: Sequence[Spot]) -> list[Finding]:
    """Group lines that nearly equal the first line of their group: the longest one, the earliest of
    equally long ones.
    """
    pairs = [(spot, _pairs(spot.text)) for spot in lines]
    pairs = [(spot, words_of) for spot, words_of in pairs if len(words_of) >= WORDS_MIN - 1]
    having: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, (_, words_of) in enumerate(pairs):
        for each in words_of:
            having[each].append(number)
    group = list(range(len(pairs)))
    for number, (_, mine) in enumerate(pairs):
        common = sum(len(having[each]) > COMMON_MAX for each in mine)
        for other, shared in sorted(_candidates(number, mine, having).items()):
            enough = SIMILAR_MIN * max(len(mine), len(pairs[other][1]))
            if shared + common >= enough and _alike(mine, pairs[other][1]):
                group[number] = group[other]
                break
    groups: dict[int, list[Spot]] = defaultdict(list)
    for number, (spot, _) in enumerate(pairs):
        groups[group[number]].append(spot)
    return [_duplicates(spots) for spots in groups.values() if len(spots) > 1]


def _pairs(text: str) -> frozenset[tuple[str, str]]:
    listed = words(text)
    return frozenset(itertools.pairwise(listed))


def _candidates(
    number: int, mine: Iterable[tuple[str, str]], having: Mapping[tuple[str, str], Sequence[int]]
) -> Counter[int]:
    """Return earlier lines that share word pairs with this one, common pairs aside, and how
    many.
    """
    shared: Counter[int] = Counter()
    for each in mine:
        if len(having[each]) <= COMMON_MAX:
            shared.update(other for other in having[each] if other < number)
    return shared


def _alike(one: frozenset[tuple[str, str]], other: frozenset[tuple[str, str]]) -> bool:
    """Return whether two lines share most word pairs and differ in no number and no negation."""
    if len(one & other) < SIMILAR_MIN * len(one | other):
        return False
    differ = {word for pair in one for word in pair} ^ {word for pair in other for word in pair}
    return not any(word in OPPOSITES or any(map(str.isdigit, word)) for word in differ)


def _duplicates(spots: Sequence[Spot]) -> Finding:
    best = max(spots, key=lambda spot: len(spot.text.strip()))
    kept = next(spot for spot in spots if len(spot.text.strip()) == len(best.text.strip()))
    others = [spot for spot in spots if spot != kept]
    says = f"{len(spots)} lines say nearly the same; the first can stand for the others"
    return Finding(Kind.NEAR_DUPLICATE, (kept, *others[: ITEMS_SHOWN - 1]), says)


# ---------------------------------------------------------------- lists of values


def _repeated_lines(lines: Sequence[Spot]) -> list[Finding]:
    """Return groups of lines that differ in one value only: `Ignore mails from Acme`."""
    groups: dict[tuple[str, str, str], dict[str, Spot]] = defaultdict(dict)
    for spot in lines:
        text = _ITEM.sub("", spot.text).strip().rstrip(".;,")
        for lead, value, tail in _slots(text):
            groups[spot.path, lead, tail].setdefault(value, spot)
    findings: list[Finding] = []
    used: set[Spot] = set()
    ordered = sorted(groups.items(), key=_list_order)
    for (_, lead, tail), values in ordered:
        fresh = {value: spot for value, spot in values.items() if spot not in used}
        if len(fresh) < VALUES_MIN or not _is_rule(lead, tail):
            continue
        used.update(fresh.values())
        findings.append(_list_of(f"{lead} … {tail}".strip(), list(fresh), list(fresh.values())))
    return findings


def _list_order(group: tuple[tuple[str, str, str], dict[str, Spot]]) -> Any:
    """Return the sort key of a value list: most values first, then the longest instruction."""
    (path, lead, tail), values = group
    return -len(values), -len(lead) - len(tail), path, lead, tail


def _slots(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield a line as lead, value and tail, once for each place in it that may hold a value."""
    if _CODE.search(text):
        return
    parts = text.split()
    for begin in range(2, len(parts)):
        for end in range(begin + 1, min(begin + VALUE_WORDS_MAX, len(parts)) + 1):
            value = " ".join(parts[begin:end])
            if _is_value(value):
                yield " ".join(parts[:begin]).casefold(), value, " ".join(parts[end:]).casefold()


def _is_rule(lead: str, tail: str) -> bool:
    return bool(DIRECTIVES & {*words(lead), *words(tail)})


def _is_value(text: str) -> bool:
    """Return whether a text can be a value: short, no code, and a name, a number or an address."""
    if not _PLAIN_VALUE.match(text) or len(text.split()) > VALUE_WORDS_MAX:
        return False
    return any(char.isupper() or char.isdigit() or char == "@" for char in text)


def _headed_lists(lines: Sequence[Spot]) -> list[Finding]:
    """Return lists, as items or in one line after a colon, whose lead says what to do with each
    value.
    """
    findings: list[Finding] = []
    for number, spot in enumerate(lines):
        text = spot.text.strip()
        head, colon, rest = text.partition(":")
        lead = _ITEM.sub("", head)
        if not colon or _CODE.search(lead) or not DIRECTIVES & set(words(lead)):
            continue
        if rest.strip():
            values = [each.strip(" .*") for each in re.split(r"[,;]", rest)]
            if len(values) >= VALUES_MIN and all(map(_is_short, values)):
                findings.append(_list_of(lead, values, [spot]))
            continue
        items = _items(lines[number + 1 :], spot)
        values = [_ITEM.sub("", each.text).strip() for each in items]
        if len(values) >= VALUES_MIN and sum(map(_is_short, values)) >= 0.9 * len(values):
            findings.append(_list_of(lead, values, items))
    return findings


def _items(lines: Sequence[Spot], lead: Spot) -> list[Spot]:
    """Return the items of the list that follows a line."""
    items: list[Spot] = []
    for spot in lines:
        if spot.path != lead.path or not _ITEM.match(spot.text):
            break
        items.append(spot)
    return items


def _is_short(value: str) -> bool:
    return bool(value) and not _CODE.search(value) and len(value.split()) <= VALUE_WORDS_MAX


def _list_of(lead: str, values: Sequence[str], spots: Sequence[Spot]) -> Finding:
    says = f"{len(values)} values that one rule could cover: {lead!r:.80}"
    shown = tuple(spots[:ITEMS_SHOWN])
    return Finding(Kind.VALUE_LIST, shown, says, lead, tuple(dict.fromkeys(values)))


# ---------------------------------------------------------------- files never read


def _never_read(tree: Mapping[str, str], reads: Mapping[str, int]) -> list[Finding]:
    return [
        Finding(Kind.NEVER_READ, (Spot(path),), f"no recorded read of {path!r}")
        for path in sorted(tree)
        if not reads.get(path)
    ]


KEEP = "keep.md"
"""Name of a file of probes, in any folder."""

DROP_MAX = 0.4
"""Default for the largest share of the tokens, and of the lines, that one compaction may drop. A
file that is merely tidied loses a third; one that loses more was rewritten.
"""

SMALL_TOKENS = 200
"""Trees with fewer tokens in all may lose any share: the loss is seen at a glance."""

FOUND_AMONG = 5
"""Rank up to which a file with the phrase counts as found by the question."""

PROBES_MAX = 1_000
"""Most probes of a tree."""

_TOKEN = re.compile(r"\w+|[^\w\s]")
_PROBE = re.compile(r"^\s*[-*+]\s+(?:(?P<question>.+?)\s*=>\s*)?(?P<phrase>.+?)\s*$")

Changes = Mapping[str, str | None]
"""Files to change, by path: the new text, or None to delete the file."""


class Probe(msgspec.Struct, frozen=True, order=True):
    """A phrase that must stay in memory.

    Attributes:
        phrase: Some file contains it; case and white space are ignored.
        question: A search for it finds a file with the phrase; empty for no question.
    """

    phrase: str
    question: str = ""

    def __str__(self) -> str:
        return f"{self.question} => {self.phrase}" if self.question else self.phrase


class CompactionResult(msgspec.Struct, frozen=True):
    """Result of a compaction.

    Attributes:
        changes: Changed files; empty if nothing is proposed or the proposal is refused.
        findings: Findings made without a model.
        refused: Reasons for refusing the proposal; empty if it may be made.
        tokens_before: Words and punctuation marks of the changed files, before the compaction.
        tokens_after: The same, after the compaction.
        probes: Number of probes; all of them are still found after the compaction.
        unmet: Probes that were not found before the compaction either.
    """

    changes: dict[str, str | None]
    findings: list[Finding]
    refused: list[str] = []
    tokens_before: int = 0
    tokens_after: int = 0
    probes: int = 0
    unmet: list[Probe] = []


def tokens(text: str) -> int:
    """Return the number of words and punctuation marks: close enough to a model's tokens to compare
    texts.
    """
    return len(_TOKEN.findall(text))


def probes_in(tree: Mapping[str, str]) -> list[Probe]:
    """Return the probes in a tree, in order, without duplicates. Raises BadValue for too many."""
    probes: dict[Probe, None] = {}
    for path in sorted(tree):
        if is_keep(path):
            for line in tree[path].splitlines():
                value = _PROBE.match(line)
                if value is not None:
                    probes[Probe(value["phrase"], value["question"] or "")] = None
    if len(probes) > PROBES_MAX:
        raise BadValue(KEEP, counted(len(probes), "probe"), f"keep at most {PROBES_MAX:,}")
    return list(probes)


def is_keep(path: str) -> bool:
    """Return whether a path names a file of probes."""
    return path.rsplit("/", 1)[-1].casefold() == KEEP


def after(tree: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """Apply changes to a tree."""
    left = {path: text for path, text in tree.items() if path not in changes}
    return left | {path: text for path, text in changes.items() if text is not None}


def proposal_without_model(
    tree: Mapping[str, str], findings: Sequence[Finding]
) -> dict[str, str | None]:
    """Return the changes that need no model: a line with the same words as an earlier one, whatever
    its bullet and punctuation, is removed.
    """
    gone: dict[str, set[int]] = {}
    for finding in findings:
        if finding.kind is not Kind.NEAR_DUPLICATE:
            continue
        parts = {tuple(words(finding.spots[0].text))}
        for spot in finding.spots[1:]:
            if tuple(words(spot.text)) in parts and not is_keep(spot.path):
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
) -> CompactionResult:
    """Check a proposal, or make one from the findings that need no model.

    Args:
        tree: Current files.
        rankers: Rank files for the probes' questions, by words.
        changes: Proposed changes; None removes lines whose words repeat another line.
        reads: Number of reads of each file; None if not counted.
        keep: Probes in addition to those in the tree.
        drop_max: Largest share of tokens and lines that may be dropped, 0 to 1.

    Raises:
        BadValue: `drop_max` is no share, or a changed text is no text.
    """
    if not 0 <= drop_max <= 1:
        raise BadValue("drop_max", f"{drop_max}", "give a share from 0 to 1, such as 0.4")
    findings = find(tree, reads)
    target = proposal_without_model(tree, findings) if changes is None else _real(tree, changes)
    probes = list(dict.fromkeys([*probes_in(tree), *keep]))
    held = [probe for probe in probes if is_held(tree, probe, rankers)]
    refused = refusals(tree, target, held, rankers, drop_max)
    before, left = _tokens(tree, target)
    return CompactionResult(
        changes={} if refused else target,
        findings=findings,
        refused=refused,
        tokens_before=before,
        tokens_after=left,
        probes=len(held),
        unmet=[probe for probe in probes if probe not in held],
    )


def _real(tree: Mapping[str, str], changes: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the changes that have an effect. Raises BadValue for a value that is no text."""
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
    """Return the reasons to refuse a proposal: each share that is too large, and each lost
    probe.
    """
    reasons = [
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
            reasons.append(
                f"it drops {share:.0%} of the {what} ({had:,} to {has:,}), at most {drop_max:.0%} "
                "may go at once: propose less, or several steps"
            )
    made = after(tree, changes)
    lost = [str(probe) for probe in held if not is_held(made, probe, rankers)]
    return reasons + [f"it loses what must stay: {probe!r:.200}" for probe in lost]


def _lines(texts: Iterable[str]) -> int:
    return sum(bool(line.strip()) for text in texts for line in text.splitlines())


def is_held(tree: Mapping[str, str], probe: Probe, rankers: Rankers) -> bool:
    """Return whether a file contains a probe's phrase and its question finds that file. Files of
    probes do not count.
    """
    phrase = _even(probe.phrase)
    files = {path: text for path, text in tree.items() if not is_keep(path)}
    holding = {path for path, text in files.items() if phrase in _even(text)}
    if not probe.question or not holding:
        return bool(holding)
    result = search(files, probe.question, rankers, by=By.WORDS, limit=FOUND_AMONG)
    return any(hit.path in holding for hit in result.hits)


def _even(text: str) -> str:
    return " ".join(text.casefold().split())


class MemoryCompaction(msgspec.Struct, kw_only=True):
    """Result of a compaction of a space: whether it was applied or waits as a proposal."""

    space: str
    compacted: CompactionResult
    version: int | None = None
    proposed: bool = False


def judged(
    space: str,
    state: MemoryState,
    changes: Changes | None = None,
    *,
    reads: Mapping[str, int] | None = None,
    keep: Iterable[Probe] = (),
    drop_max: float = DROP_MAX,
) -> MemoryCompaction:
    """Judge a proposed compaction of a space's state, or the one found without a model.

    Nothing is changed. `reads` are the numbers of reads by file. Raises BadValue.
    """
    rankers = Rankers(FileWords())
    compaction = compact(
        texts_of(state), rankers, changes, reads=reads, keep=keep, drop_max=drop_max
    )
    return MemoryCompaction(space=space, compacted=compaction)


def reads(reader: Reader, space: str) -> dict[str, int]:
    """Return the number of recorded reads of each file of a space.

    A read is a view, or the inclusion of an instruction file in a prompt.
    """
    return {
        str(path): int(count) for path, count in reader.all(_SQL["reads"], [space, f"/{AGENTS}"])
    }
