"""The ways to find an element again, in their order.

Each is a selector of playwright's (`xpath=...`), or a role, label ... with a text. Only a single
match is accepted, and the element must be of the recorded kind: `contradicts` gives the difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from hansard.domain.actions.cache import CachedAction, ElementTargets

VARIANTS_MAX = 24
"""Most variants of an xpath that are tried: a path of ordinary depth has fewer."""

_STEP = re.compile(r"/{1,2}[^/\[\]]+(?:\[(?:[^\[\]'\"]|'[^']*'|\"[^\"]*\")*\])*")
_INDEX = re.compile(r"\[\d+\]$")
_TEXT_STEP = re.compile(r"/{1,2}text\(\)(\[\d+\])?$")
_TEXT_TEST = re.compile(
    r"\[(?:contains\(\s*)?(?:text\(\)|normalize-space\((?:\.|text\(\))?\)|\.)\s*[=,]"
    r"\s*(?:'[^']*'|\"[^\"]*\")\s*\)?\]"
)


class ElementLocator(msgspec.Struct, frozen=True, kw_only=True):
    """One way to look for an element.

    Attributes:
        strategy: `xpath`, `variant` or the target's: `role`, `label`, `path` ...
        selector: For `xpath`, `variant`, `path` and `css`: the argument of playwright's `locator`.
        value: For the others the text; for `role` the name.
        role: For `role` and `row`; a row without it is of an element that has no name.
        row: For `row`: the text of the element's row.
    """

    strategy: str
    selector: str = ""
    value: str = ""
    role: str = ""
    row: str = ""

    @property
    def description(self) -> str:
        """The locator in words."""
        within = f" in the row {self.row!r}" if self.row else ""
        return f"{self.selector or f'{self.role} {self.value!r}'.strip()}{within}"


def normalized(xpath: str) -> str:
    """Return an xpath as it is recorded.

    It has no prefix and no text node at its end; a plain path has tags in lower case, and an index
    at each step.
    """
    xpath = _TEXT_STEP.sub("", xpath.strip().removeprefix("xpath="))
    steps = _steps(xpath)
    if not steps or not all(re.fullmatch(r"/[A-Za-z][\w-]*(\[\d+\])?", step) for step in steps):
        return xpath
    return "".join(step.lower() if step.endswith("]") else f"{step.lower()}[1]" for step in steps)


def variants(xpath: str, below_id: str = "") -> list[str]:
    """Return other xpaths for the same element, the likelier first.

    They start from the nearest id, leave out tests of texts, then one index, from the last step on,
    then all indices of the later half.
    """
    made: list[str] = []
    plain = _TEXT_TEST.sub("", _TEXT_STEP.sub("", xpath))
    for base in (below_id, plain):
        if base:
            made.append(base)
            made += _relaxed(base)
    seen = dict.fromkeys(each for each in made if each and each != xpath)
    return list(seen)[:VARIANTS_MAX]


def _relaxed(xpath: str) -> Iterator[str]:
    steps = _steps(xpath)
    indexed = [at for at, step in enumerate(steps) if _INDEX.search(step)]
    for at in reversed(indexed):
        yield "".join(_INDEX.sub("", s) if i == at else s for i, s in enumerate(steps))
    for start in reversed(indexed):
        yield "".join(_INDEX.sub("", s) if i >= start else s for i, s in enumerate(steps))
    if len(steps) > 1:
        yield "/" + ("/" if not steps[-1].startswith("//") else "") + steps[-1].lstrip("/")


def _steps(xpath: str) -> list[str]:
    steps = _STEP.findall(xpath)
    return steps if "".join(steps) == xpath else []


def locators(entry: CachedAction) -> Iterator[ElementLocator]:
    """Yield all ways to look for an entry's element, in their order."""
    targets = entry.targets or ElementTargets()
    if entry.xpath:
        yield ElementLocator(strategy="xpath", selector=f"xpath={entry.xpath}")
    if targets.css:
        yield ElementLocator(strategy="css", selector=f"css={targets.css}")
    yield from _by_targets(targets)
    if entry.xpath or targets.path:
        for each in variants(entry.xpath or "", targets.path):
            yield ElementLocator(strategy="variant", selector=f"xpath={each}")


def _by_targets(targets: ElementTargets) -> Iterator[ElementLocator]:
    if targets.test_id:
        yield ElementLocator(strategy="testId", value=targets.test_id)
    if targets.role and targets.name:
        named = ElementLocator(strategy="role", role=targets.role, value=targets.name)
        yield named
        if targets.in_row:
            yield msgspec.structs.replace(named, strategy="row", row=targets.in_row)
    elif targets.in_row and targets.tag:
        yield ElementLocator(strategy="row", selector=f"css={targets.tag}", row=targets.in_row)
    if targets.label:
        yield ElementLocator(strategy="label", value=targets.label)
    if targets.placeholder:
        yield ElementLocator(strategy="placeholder", value=targets.placeholder)
    if targets.text:
        yield ElementLocator(strategy="text", value=targets.text)


def another_row(recorded: ElementTargets, found: ElementTargets) -> str:
    """Return the reason why an element is not in the recorded row; empty where it may be."""
    if recorded.in_row and recorded.in_row != found.row and not _same_id(recorded, found):
        return f"its row says {found.row!r}, not {recorded.in_row!r}"
    return ""


def _another_place(recorded: ElementTargets, found: ElementTargets) -> str:
    """Return the reason why one of several elements with equal rows is not the recorded one."""
    if recorded.alone or _same_id(recorded, found):
        return ""
    if recorded.place == "none":
        return "nothing on record distinguishes it from the others of the same name"
    if recorded.place and recorded.place != found.place:
        return f"its place in the list changed: it is {_placed(found)}, not {_placed(recorded)}"
    anchored = recorded.in_row or recorded.place or recorded.mark
    if not anchored and (found.row or found.place or found.mark):
        return "it is one of several of the same name, and the record does not identify which"
    if recorded.mark and recorded.mark != found.mark:
        return "its markup is another"
    return ""


def _placed(targets: ElementTargets) -> str:
    return f"number {targets.place}" if targets.place else "no longer one of several"


def _same_id(recorded: ElementTargets, found: ElementTargets) -> bool:
    """Return whether both have the same id, without digits, unique in the page."""
    own = recorded.id
    only = f'//*[@id="{own}"]' == found.path
    return bool(own) and own == found.id and only and not any(map(str.isdigit, own))


def contradicts(recorded: ElementTargets | None, found: ElementTargets) -> str:
    """Return the reason why an element is not the recorded one; empty where it may be.

    For one of several elements with the same name, or without a name, the fields that identify it
    must be equal: a list may be in another order, or hold another row there. An equal test id
    decides the rest. Else tag and role must be equal, and at least one of name, label, placeholder
    and text, where the record has any of them.
    """
    if recorded is None:
        return ""
    elsewhere = another_row(recorded, found) or _another_place(recorded, found)
    if elsewhere:
        return elsewhere
    if recorded.test_id and recorded.test_id == found.test_id:
        return ""
    for field in ("tag", "role"):
        before, now = getattr(recorded, field), getattr(found, field)
        if before and now and before != now:
            return f"its {field} is {now!r}, not {before!r}"
    called = [
        field for field in ("name", "label", "placeholder", "text") if getattr(recorded, field)
    ]
    if called and not any(getattr(recorded, f) == getattr(found, f) for f in called):
        field = called[0]
        return f"its {field} is {getattr(found, field)!r:.80}, not {getattr(recorded, field)!r:.80}"
    return ""
