"""Which lines changed between two texts, as git says it, so that a blame of ours is git's.

The shortest edit by E. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica
1(2), 1986, and what git lays on top of it:

* lines that the other side does not have are left out beforehand, and so are very frequent ones
  that stand among such;
* a group of changed lines that could as well stand some lines further up or down goes where the
  other side has a group, too, else where the indentation makes the best border (M. Haggerty's
  heuristic, with git's weights; see `diff.indentHeuristic` in git's manual).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

COST_MIN = 256
"""Differences up to which the shortest edit is sought between two texts, at least; above it (and
the root of the number of lines) a short one will do. Bounds what a comparison costs."""

FREQUENT_MAX = 1_024
"""Most often that a line may stand on the other side before it counts as frequent, at most."""

NEIGHBOURS_MAX = 100
"""Lines on each side of a frequent one that are looked at."""

NEIGHBOURS_SHARE = 4
"""A frequent line is left out where the lines around it without a partner are more than one in so
many of those that are frequent themselves."""

SLIDE_MAX = 100
"""Most lines that a group of changes slides in search of a better border."""

INDENT_MAX = 200
"""Indentation is counted up to here."""

BLANKS_MAX = 20
"""Blank lines in a row are counted up to here."""

TAB_WIDTH = 8
_FAR = 1 << 62


class Block(msgspec.Struct, frozen=True):
    """Lines `start` to `end` of the text before became `new_start` to `new_end` of the one after;
    from 0, ends excluded.
    """

    start: int
    end: int
    new_start: int
    new_end: int


def split(text: str) -> list[str]:
    """The lines of a text, each with its newline; what stands after the last one is a line, too."""
    found = text.split("\n")
    last = found.pop()
    lines = [line + "\n" for line in found]
    if last:
        lines.append(last)
    return lines


def diff(before: Sequence[str], after: Sequence[str]) -> list[Block]:
    """The blocks of lines that changed, in order; none touch each other. O((n + m) d), bounded by
    COST_MIN.
    """
    names: dict[str, int] = {}
    old = [names.setdefault(line, len(names)) for line in before]
    new = [names.setdefault(line, len(names)) for line in after]
    gone, came = _changed(old, new)
    _compact(before, old, gone, came)
    _compact(after, new, came, gone)
    return _blocks(gone, came)


def _blocks(gone: Sequence[bool], came: Sequence[bool]) -> list[Block]:
    found: list[Block] = []
    at = to = 0
    while at < len(gone) or to < len(came):
        start, new_start = at, to
        while at < len(gone) and gone[at]:
            at += 1
        while to < len(came) and came[to]:
            to += 1
        if (at, to) != (start, new_start):
            found.append(Block(start, at, new_start, to))
        at, to = at + 1, to + 1
    return found


# What changed


def _changed(old: list[int], new: list[int]) -> tuple[list[bool], list[bool]]:
    """Of each line of both sides whether it changed."""
    shared = min(len(old), len(new))
    head = 0
    while head < shared and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shared - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    gone, came = [False] * len(old), [False] * len(new)
    kept_old = _kept(old, new, head, len(old) - tail, gone)
    kept_new = _kept(new, old, head, len(new) - tail, came)
    inside = _Search([old[at] for at in kept_old], [new[at] for at in kept_new])
    inside.run()
    for at, changed in zip(kept_old, inside.gone, strict=True):
        gone[at] = changed
    for at, changed in zip(kept_new, inside.came, strict=True):
        came[at] = changed
    return gone, came


def _kept(
    mine: list[int], theirs: list[int], start: int, end: int, changed: list[bool]
) -> list[int]:
    """The lines that are compared at all; the others are marked as changed."""
    counts = Counter(theirs)
    limit = min(_root(len(mine)), FREQUENT_MAX)
    sorts = [
        0 if not counts[line] else 2 if counts[line] >= limit else 1 for line in mine[start:end]
    ]
    kept: list[int] = []
    for index, sort in enumerate(sorts):
        if sort == 1 or (sort == 2 and not _is_noise(sorts, index)):  # noqa: PLR2004 -- frequent
            kept.append(start + index)
        else:
            changed[start + index] = True
    return kept


def _root(number: int) -> int:
    """A power of two that is about the root, as git counts it."""
    found = 1
    while number > 0:
        found <<= 1
        number >>= 2
    return found


def _is_noise(sorts: list[int], index: int) -> bool:
    """Whether a frequent line stands among lines without a partner, on both sides of it."""
    lonely, frequent = 0, 2  # it counts itself, once a side
    before = range(index - 1, max(index - NEIGHBOURS_MAX, 0) - 1, -1)
    after = range(index + 1, min(index + NEIGHBOURS_MAX, len(sorts) - 1) + 1)
    for side in (before, after):
        here = 0
        for at in side:
            if sorts[at] == 0:
                here += 1
            elif sorts[at] == 2:  # noqa: PLR2004 -- frequent
                frequent += 1
            else:
                break
        if not here:
            return False
        lonely += here
    return frequent * NEIGHBOURS_SHARE < frequent + lonely


class _Search:
    """The shortest edit between two sequences, by divide and conquer at its middle."""

    def __init__(self, old: list[int], new: list[int]) -> None:
        self.old, self.new = old, new
        self.gone, self.came = [False] * len(old), [False] * len(new)
        self._cost_max = max(_root(len(old) + len(new) + 3), COST_MIN)

    def run(self) -> None:
        """Mark what changed. With a stack of its own: texts may be long."""
        waiting = [(0, len(self.old), 0, len(self.new), False)]
        while waiting:
            start, end, new_start, new_end, exact = waiting.pop()
            old, new = self.old, self.new
            while start < end and new_start < new_end and old[start] == new[new_start]:
                start, new_start = start + 1, new_start + 1
            while start < end and new_start < new_end and old[end - 1] == new[new_end - 1]:
                end, new_end = end - 1, new_end - 1
            if start == end:
                self.came[new_start:new_end] = [True] * (new_end - new_start)
            elif new_start == new_end:
                self.gone[start:end] = [True] * (end - start)
            else:
                at, to, low, high = self._middle(start, end, new_start, new_end, exact=exact)
                waiting.append((at, end, to, new_end, high))
                waiting.append((start, at, new_start, to, low))

    def _middle(
        self, start: int, end: int, new_start: int, new_end: int, *, exact: bool
    ) -> tuple[int, int, bool, bool]:
        """Where an edit of the whole can be cut in two; whether each half is to be exact."""
        old, new = self.old, self.new
        low, high = start - new_end, end - new_start
        forth, back = start - new_start, end - new_end
        odd = (forth - back) & 1
        reach, touch = {forth: start}, {back: end}
        f_low = f_high = forth
        b_low = b_high = back
        cost = 0
        while True:
            cost += 1
            f_low, f_high = _wider(reach, f_low, f_high, low, high, -1)
            for d in range(f_high, f_low - 1, -2):
                at = max(reach[d - 1] + 1, reach[d + 1])
                to = at - d
                while at < end and to < new_end and old[at] == new[to]:
                    at, to = at + 1, to + 1
                reach[d] = at
                if odd and b_low <= d <= b_high and touch[d] <= at:
                    return at, to, True, True
            b_low, b_high = _wider(touch, b_low, b_high, low, high, _FAR)
            for d in range(b_high, b_low - 1, -2):
                at = min(touch[d - 1], touch[d + 1] - 1)
                to = at - d
                while at > start and to > new_start and old[at - 1] == new[to - 1]:
                    at, to = at - 1, to - 1
                touch[d] = at
                if not odd and f_low <= d <= f_high and at <= reach[d]:
                    return at, to, True, True
            if not exact and cost >= self._cost_max:
                forward = _furthest(reach, range(f_high, f_low - 1, -2), end, new_end)
                backward = _nearest(touch, range(b_high, b_low - 1, -2), start, new_start)
                if end + new_end - sum(backward) < sum(forward) - start - new_start:
                    return *forward, True, False
                return *backward, False, True


def _wider(
    found: dict[int, int], low: int, high: int, least: int, most: int, none: int
) -> tuple[int, int]:
    """The diagonals of one more difference, with borders that lead nowhere."""
    if low > least:
        low -= 1
        found[low - 1] = none
    else:
        low += 1
    if high < most:
        high += 1
        found[high + 1] = none
    else:
        high -= 1
    return low, high


def _furthest(reach: dict[int, int], diagonals: range, end: int, new_end: int) -> tuple[int, int]:
    best, found = -1, (0, 0)
    for d in diagonals:
        at = min(reach[d], end)
        to = at - d
        if to > new_end:
            at, to = new_end + d, new_end
        if at + to > best:
            best, found = at + to, (at, to)
    return found


def _nearest(
    touch: dict[int, int], diagonals: range, start: int, new_start: int
) -> tuple[int, int]:
    best, found = _FAR, (0, 0)
    for d in diagonals:
        at = max(touch[d], start)
        to = at - d
        if to < new_start:
            at, to = new_start + d, new_start
        if at + to < best:
            best, found = at + to, (at, to)
    return found


# Where a group of changed lines that could stand elsewhere does stand


class _Groups:
    """The groups of changed lines of one side, with empty ones between all other lines."""

    def __init__(self, changed: list[bool]) -> None:
        self.changed = changed
        self.start = 0
        self.end = self._end(0)

    def _end(self, at: int) -> int:
        while at < len(self.changed) and self.changed[at]:
            at += 1
        return at

    def next(self) -> bool:
        if self.end == len(self.changed):
            return False
        self.start = self.end + 1
        self.end = self._end(self.start)
        return True

    def previous(self) -> bool:
        if self.start == 0:
            return False
        self.end = self.start - 1
        self.start = self.end
        while self.start > 0 and self.changed[self.start - 1]:
            self.start -= 1
        return True

    def up(self, ids: list[int]) -> bool:
        """Slide the group up by a line, if what it holds allows; it takes in a group it meets."""
        if self.start == 0 or ids[self.start - 1] != ids[self.end - 1]:
            return False
        self.start, self.end = self.start - 1, self.end - 1
        self.changed[self.start], self.changed[self.end] = True, False
        while self.start > 0 and self.changed[self.start - 1]:
            self.start -= 1
        return True

    def down(self, ids: list[int]) -> bool:
        """The same, down."""
        if self.end == len(ids) or ids[self.start] != ids[self.end]:
            return False
        self.changed[self.start], self.changed[self.end] = False, True
        self.start, self.end = self.start + 1, self._end(self.end + 1)
        return True


def _compact(lines: Sequence[str], ids: list[int], mine: list[bool], other: list[bool]) -> None:
    group, beside = _Groups(mine), _Groups(other)
    while True:
        if group.end > group.start:
            _settle(lines, ids, group, beside)
        if not group.next():
            return
        beside.next()


def _settle(lines: Sequence[str], ids: list[int], group: _Groups, beside: _Groups) -> None:
    """Bring one group to where it stands best."""
    while True:
        size = group.end - group.start
        partner = -1
        while group.up(ids):
            beside.previous()
        earliest = group.end
        if beside.end > beside.start:
            partner = group.end
        while group.down(ids):
            beside.next()
            if beside.end > beside.start:
                partner = group.end
        if size == group.end - group.start:
            break
    if group.end == earliest:
        return
    if partner != -1:
        while beside.end == beside.start:
            group.up(ids)
            beside.previous()
        return
    size = group.end - group.start
    best, best_cost = -1, (0, 0)
    for shift in range(max(earliest, group.end - size - 1, group.end - SLIDE_MAX), group.end + 1):
        cost = _border(lines, shift, (0, 0))
        cost = _border(lines, shift - size, cost)
        if best == -1 or _no_worse(cost, best_cost):
            best, best_cost = shift, cost
    while group.end > best:
        group.up(ids)
        beside.previous()


def _no_worse(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Compares (indentation, penalty) of two borders: a smaller indentation weighs 60."""
    weighed = (one[0] > other[0]) - (one[0] < other[0])
    return 60 * weighed + one[1] - other[1] <= 0


def _indent(line: str) -> int:
    """The width of a line's indentation; -1 for a blank line."""
    width = 0
    for char in line:
        if char not in " \t\n\r\f\v":
            return width
        if char == " ":
            width += 1
        elif char == "\t":
            width += TAB_WIDTH - width % TAB_WIDTH
        if width >= INDENT_MAX:
            return INDENT_MAX
    return -1


def _around(lines: Sequence[str], places: range) -> tuple[int, int]:
    """The blank lines up to the first that is not, and the indentation of that; -1 for none."""
    blanks = 0
    for at in places:
        indent = _indent(lines[at])
        if indent != -1:
            return blanks, indent
        blanks += 1
        if blanks == BLANKS_MAX:
            return blanks, 0
    return blanks, -1


def _border(lines: Sequence[str], at: int, cost: tuple[int, int]) -> tuple[int, int]:
    """What a border before a line costs, added to (indentation, penalty)."""
    is_end = at >= len(lines)
    indent = -1 if is_end else _indent(lines[at])
    pre_blank, pre_indent = _around(lines, range(at - 1, -1, -1))
    post_blank, post_indent = _around(lines, range(at + 1, len(lines)))
    penalty = 0
    if pre_indent == -1 and pre_blank == 0:
        penalty += 1
    if is_end:
        penalty += 21
    blanks_after = 1 + post_blank if indent == -1 else 0
    blanks = pre_blank + blanks_after
    penalty += -30 * blanks + 6 * blanks_after
    here = indent if indent != -1 else post_indent
    penalty += _step(here, pre_indent, post_indent, any_blank=blanks != 0)
    return cost[0] + here, cost[1] + penalty


def _step(here: int, before: int, after: int, *, any_blank: bool) -> int:
    """What a change of the indentation at a border costs."""
    if here == -1 or before in (-1, here):
        return 0
    if here > before:
        return 10 if any_blank else -4
    if after != -1 and after > here:
        return 17 if any_blank else 24
    return 17 if any_blank else 23
