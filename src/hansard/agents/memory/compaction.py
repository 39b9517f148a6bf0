"""Compaction of memory: shorter files, proposed; and what refuses a proposal.

A proposal is what becomes of some files: a text, or None for a file that goes. It is refused where
it drops more than a stated share, or where a probe is found no more. A probe is what must stay: a
phrase, and where one is given the question that must still lead to it. Probes stand in the tree
itself, in `keep.md`, which no compaction changes: an item `- phrase`, or `- question => phrase`.
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

SIMILAR_MIN = 0.7
"""Least share of their words in pairs (Jaccard) that two lines have in common to count as one."""

WORDS_MIN = 5
"""Least words of a line that is compared: shorter ones are alike by chance."""

VALUES_MIN = 6
"""Least values of a list that wants a rule: fewer are quickly read."""

VALUE_WORDS_MAX = 4
"""Most words of a value."""

COMMON_MAX = 200
"""Lines with one pair of words in common, past which the pair is too common to tell by."""

ITEMS_SHOWN = 200
"""Lines that one finding names."""

DIRECTIVES = frozenset(
    {
        *("ignore", "ignored", "skip", "exclude", "excluded", "block", "blocked", "mute", "muted"),
        *("unsubscribe", "discard", "archive", "blacklist", "blocklist", "denylist", "whitelist"),
        *("allowlist", "spam", "reject", "decline", "filter"),
    }
)
"""What the lead of a list says to do with each of its values, where a rule could say it of all."""

OPPOSITES = frozenset(
    {"not", "no", "never", "always", "only", "except", "without", "don't", "cannot"}
)
"""Where one of these is all that differs, two lines say opposite things."""

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?")
_WORD = re.compile(r"[^\W_]+(?:['.&-][^\W_]+)*")
_PLAIN_VALUE = re.compile(r"^[\w][\w .,&'@-]*$")
_CODE = re.compile(r"[`<>{}()\[\]|=/\\$*_#]|::|->|\.\w{1,4}\b")


class Kind(StrEnum):
    """What was found.

    Attributes:
        NEAR_DUPLICATE: Lines that say the same.
        VALUE_LIST: Values of which the same is said one by one.
        NEVER_READ: A file that nobody has read.
    """

    NEAR_DUPLICATE = "near_duplicate"
    VALUE_LIST = "value_list"
    NEVER_READ = "never_read"


class Spot(msgspec.Struct, frozen=True, order=True):
    """A line of a file, from 1; 0 is the file as a whole."""

    path: str
    line: int = 0
    text: str = ""


class Finding(msgspec.Struct, frozen=True):
    """Something that could be shorter.

    Attributes:
        kind: What.
        spots: Where, in order; of near-duplicates the one to keep first.
        says: In words.
        lead: Of a list of values, what is said of each.
        values: The values.
    """

    kind: Kind
    spots: tuple[Spot, ...]
    says: str
    lead: str = ""
    values: tuple[str, ...] = ()


def find(tree: Mapping[str, str], reads: Mapping[str, int] | None = None) -> list[Finding]:
    """All that is found in a tree. `reads` says how often each file was read; None where nobody
    counted.
    """
    lines = [spot for path in sorted(tree) for spot in prose(path, tree[path])]
    lists = [*_repeated(lines), *_listed(lines)]
    listed = {spot for finding in lists for spot in finding.spots}
    alike = _near_duplicates([spot for spot in lines if spot not in listed])
    unread = [] if reads is None else _never_read(tree, reads)
    return [*alike, *lists, *unread]


def prose(path: str, text: str) -> Iterator[Spot]:
    """The lines of a file that are prose: no code, no heading, no table, no front matter."""
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
    """The words of a line without its bullet, in small letters."""
    even = _ITEM.sub("", text).replace("\u2019", "'")
    return [word.casefold() for word in _WORD.findall(even)]


# ---------------------------------------------------------------- near-duplicates


def _near_duplicates(lines: Sequence[Spot]) -> list[Finding]:
    """Groups of lines each of which is nearly the first: the longest, of equals the first."""
    pairs = [(spot, _pairs(spot.text)) for spot in lines]
    pairs = [(spot, found) for spot, found in pairs if len(found) >= WORDS_MIN - 1]
    having: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, (_, found) in enumerate(pairs):
        for each in found:
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
    found = words(text)
    return frozenset(itertools.pairwise(found))


def _candidates(
    number: int, mine: Iterable[tuple[str, str]], having: Mapping[tuple[str, str], Sequence[int]]
) -> Counter[int]:
    """Earlier lines that have pairs of words in common which not all have, and how many."""
    found: Counter[int] = Counter()
    for each in mine:
        if len(having[each]) <= COMMON_MAX:
            found.update(other for other in having[each] if other < number)
    return found


def _alike(one: frozenset[tuple[str, str]], other: frozenset[tuple[str, str]]) -> bool:
    """Whether two lines have most pairs in common, and differ in no number and no negation."""
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


def _repeated(lines: Sequence[Spot]) -> list[Finding]:
    """Lines that are the same but for one value each: `Ignore mails from Acme`."""
    groups: dict[tuple[str, str, str], dict[str, Spot]] = defaultdict(dict)
    for spot in lines:
        text = _ITEM.sub("", spot.text).strip().rstrip(".;,")
        for lead, value, tail in _slots(text):
            groups[spot.path, lead, tail].setdefault(value, spot)
    found: list[Finding] = []
    used: set[Spot] = set()
    ordered = sorted(groups.items(), key=_most_said)
    for (_, lead, tail), values in ordered:
        fresh = {value: spot for value, spot in values.items() if spot not in used}
        if len(fresh) < VALUES_MIN or not _is_rule(lead, tail):
            continue
        used.update(fresh.values())
        found.append(_list_of(f"{lead} … {tail}".strip(), list(fresh), list(fresh.values())))
    return found


def _most_said(group: tuple[tuple[str, str, str], dict[str, Spot]]) -> Any:
    """The most values first, then the shortest ones: what is said of each is the longest."""
    (path, lead, tail), values = group
    return -len(values), -len(lead) - len(tail), path, lead, tail


def _slots(text: str) -> Iterator[tuple[str, str, str]]:
    """A line as lead, value and tail, for each place of a value in it."""
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
    """Whether a text can be a value: short, no code, and a name, a number or an address."""
    if not _PLAIN_VALUE.match(text) or len(text.split()) > VALUE_WORDS_MAX:
        return False
    return any(char.isupper() or char.isdigit() or char == "@" for char in text)


def _listed(lines: Sequence[Spot]) -> list[Finding]:
    """Lists under a lead that says what to do with each value, or in one line after a colon."""
    found: list[Finding] = []
    for number, spot in enumerate(lines):
        text = spot.text.strip()
        head, colon, rest = text.partition(":")
        lead = _ITEM.sub("", head)
        if not colon or _CODE.search(lead) or not DIRECTIVES & set(words(lead)):
            continue
        if rest.strip():
            values = [each.strip(" .*") for each in re.split(r"[,;]", rest)]
            if len(values) >= VALUES_MIN and all(map(_is_short, values)):
                found.append(_list_of(lead, values, [spot]))
            continue
        items = _items(lines[number + 1 :], spot)
        values = [_ITEM.sub("", each.text).strip() for each in items]
        if len(values) >= VALUES_MIN and sum(map(_is_short, values)) >= 0.9 * len(values):
            found.append(_list_of(lead, values, items))
    return found


def _items(lines: Sequence[Spot], lead: Spot) -> list[Spot]:
    """The items of the list that follows a line."""
    found: list[Spot] = []
    for spot in lines:
        if spot.path != lead.path or not _ITEM.match(spot.text):
            break
        found.append(spot)
    return found


def _is_short(value: str) -> bool:
    return bool(value) and not _CODE.search(value) and len(value.split()) <= VALUE_WORDS_MAX


def _list_of(lead: str, values: Sequence[str], spots: Sequence[Spot]) -> Finding:
    says = f"{len(values)} values of which one rule could be said: {lead!r:.80}"
    shown = tuple(spots[:ITEMS_SHOWN])
    return Finding(Kind.VALUE_LIST, shown, says, lead, tuple(dict.fromkeys(values)))


# ---------------------------------------------------------------- files never read


def _never_read(tree: Mapping[str, str], reads: Mapping[str, int]) -> list[Finding]:
    return [
        Finding(Kind.NEVER_READ, (Spot(path),), f"nobody has read {path!r} on record")
        for path in sorted(tree)
        if not reads.get(path)
    ]


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
                value = _PROBE.match(line)
                if value is not None:
                    found[Probe(value["phrase"], value["question"] or "")] = None
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
    target = proposed(tree, findings) if changes is None else _real(tree, changes)
    probes = list(dict.fromkeys([*probes_in(tree), *keep]))
    held = [probe for probe in probes if is_held(tree, probe, rankers)]
    refused = refusals(tree, target, held, rankers, drop_max)
    before, left = _tokens(tree, target)
    return Compacted(
        changes={} if refused else target,
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
