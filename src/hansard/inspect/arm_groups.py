"""Arms that cannot be told apart, as groups: the letters of a compact letter display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

GROUPS_MAX = 200
"""Groups that are looked for: from more on, which arms are alike is told of each arm alone."""


def groups(order: Sequence[str], alike: Mapping[str, AbstractSet[str]]) -> list[list[str]]:
    """The groups of arms of which no two were told apart, as large as they can be; each in the
    order given, and they in that of their first arms. An arm may be in several. None where there
    would be more than GROUPS_MAX.

    Piepho, An Algorithm for a Letter-Based Representation of All-Pairwise Comparisons (2004):
    a group of all is split at each pair that differs, and groups within others are dropped.
    """
    found = [frozenset(order)]
    for place, one in enumerate(order):
        for other in order[place + 1 :]:
            if other in alike[one]:
                continue
            split = [group for group in found if {one, other} <= group]
            kept = [group for group in found if group not in split]
            parts = {group - {name} for group in split for name in (one, other)}
            found = kept + [
                part
                for part in parts
                if not any(part < each for each in (*kept, *parts)) and part not in kept
            ]
            if len(found) > GROUPS_MAX:
                return []
    ordered = [[name for name in order if name in group] for group in found]
    return sorted(ordered, key=lambda group: [order.index(name) for name in group])
