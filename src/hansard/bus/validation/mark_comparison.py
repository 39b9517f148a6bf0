"""A log beside the marks that were kept of it (`hansard.bus.marks`), while it is read in order."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from msgspec.structs import replace

from hansard.bus.marks import Known, Mark, link
from hansard.bus.validation._recheck import Count
from hansard.domain.counted import counted


class Compared:
    """Takes the messages of a log in order and counts what the marks know otherwise."""

    def __init__(self, known: Iterable[Known], count: Count) -> None:
        self._known = _together(known)
        self._count = count
        self._chain = ""
        self._messages = 0
        self._wanted = sorted({each.mark.chained for each in self._known if each.mark.chain})
        self._counted = sorted({each.mark.position for each in self._known})
        self._chains: dict[int, str] = {}
        self._counts: dict[int, int] = {}

    def message(self, position: int, subject: str, body: bytes) -> None:
        """Take the next message."""
        self._before(position)
        if not self._wanted:
            return
        self._chain = link(self._chain, position, subject, body)

    def _before(self, position: int) -> None:
        """Note what the log was up to the marks that are passed now, and one message more."""
        while self._wanted and self._wanted[0] < position:
            self._chains[self._wanted.pop(0)] = self._chain
        while self._counted and self._counted[0] < position:
            self._counts[self._counted.pop(0)] = self._messages
        self._messages += 1

    def end(self, last: int) -> None:
        """Count what differs, of a log that ends there."""
        self._before(last + 1)
        agreed = [
            each.mark.chained
            for each in self._known
            if self._chains.get(each.mark.chained) == each.mark.chain
        ]
        for each in self._known:
            if not self._shorter(each, last) and not self._fewer(each):
                self._other(each, sorted(agreed))

    def _shorter(self, known: Known, last: int) -> bool:
        mark = known.mark
        if mark.position <= last:
            return False
        many = mark.position - last
        fact = (
            f"the log ends at position {last}, and {known.who} knew it up to {mark.position}: "
            f"{many} acknowledged commit{'s are' if many > 1 else ' is'} gone. {known.aside}"
        )
        self._count("loss", fact.strip(), {"position": last})
        return True

    def _fewer(self, known: Known) -> bool:
        mark = known.mark
        has = self._counts.get(mark.position)
        if has is None or has >= mark.count:
            return False
        fact = (
            f"up to position {mark.position} the log holds "
            f"{counted(has, 'commit')}, and {known.who} counted "
            f"{mark.count}: {mark.count - has} are gone. {known.aside}"
        )
        self._count("loss", fact.strip(), {"position": mark.position})
        return True

    def _other(self, known: Known, agreed: list[int]) -> None:
        mark = known.mark
        has = self._chains.get(mark.chained)
        if not mark.chain or has is None or has == mark.chain:
            return
        before = bisect.bisect_left(agreed, mark.chained)
        since = agreed[before - 1] if before else 0
        fact = (
            f"what stands from position {since + 1} to {mark.chained} is not what {known.who} read "
            "there: commits are gone or changed, or an older copy of the broker's files or another "
            f"log was put in their place. {known.aside}"
        )
        self._count("history", fact.strip(), {"position": mark.chained})


def _together(known: Iterable[Known]) -> list[Known]:
    """Those that know the same as one, so that what they know is told once."""
    found: dict[Mark, list[Known]] = {}
    for each in known:
        found.setdefault(replace(each.mark, before=""), []).append(each)
    return [
        Known(" and ".join(each.who for each in same), mark, same[-1].aside)
        for mark, same in found.items()
    ]
