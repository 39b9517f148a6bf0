"""People's demonstrations of MiniWoB's tasks, read from what the mouse and the keys did.

A line has the page's tree at each event, without the element that says the task. What was clicked
is the deepest element below the mouse, or by a key what has the focus; what was filled in is what
a field holds at last. A list's choice is not in the tree: it is taken for the task's only slot,
which every demonstration that succeeded must have chosen.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hansard.domain.actions import CachedAction, ElementTargets
from hansard.domain.experience.distil import Demonstration, ShownAction, wording

FOLDER = Path(__file__).parents[2].parent / "shared" / "data" / "browser" / "demos"
FIELDS = ("INPUT_text", "INPUT_password", "INPUT_date", "TEXTAREA")
PRESSED = ("A", "BUTTON", "INPUT_submit", "INPUT_button", "INPUT_checkbox", "INPUT_radio")
ROLES = {"BUTTON": "button", "INPUT_text": "textbox", "TEXTAREA": "textbox", "SELECT": "combobox"}


def lines(task: str) -> list[dict[str, Any]]:
    """Return a task's demonstrations, as in the file."""
    with gzip.open(FOLDER / f"{task}.jsonl.gz") as file:
        return [msgspec.json.decode(line) for line in file]


def demonstrations(task: str) -> list[Demonstration]:
    """Return a task's demonstrations."""
    records = lines(task)
    slots = wording([each["utterance"] for each in records])
    return [_demonstration(each, slots.read(each["utterance"]) or {}) for each in records]


def _demonstration(record: dict[str, Any], slots: dict[str, str]) -> Demonstration:
    made: list[ShownAction] = []
    values: dict[str, str] = {}
    pressed: dict[str, Any] | None = None
    place_of = (0.0, 0.0)
    filled: str | None = None  # the field that the last action filled in
    for at, state in enumerate(record["states"]):
        tree, event = state["dom"], state["action"]
        before = record["states"][max(0, at - 1)]["dom"]
        for field in _every(tree):
            if field["tag"] not in FIELDS:
                continue
            place, value = _paths(tree, field["ref"])[0], field["value"]
            if value == values.get(place, ""):
                continue
            values[place] = value
            if filled == place:
                shown = made[-1]
                action = msgspec.structs.replace(shown.action, arguments=[value])
                made[-1] = msgspec.structs.replace(shown, action=action)
            else:
                made.append(_shown(tree, field, "fill", [value], before))
                filled = place
        if event is None or event.get("timing") != 1:
            continue
        if event["type"] == "mousedown":
            pressed, place_of = tree, (event["x"], event["y"])
        elif event["type"] == "click" and pressed is not None:
            target = _below(pressed, *place_of)
            after = next(
                (each["dom"] for each in record["states"][at + 1 :] if _is_after(each)), None
            )
            if target is not None and target["tag"] == "SELECT":
                made.append(_shown(pressed, target, "selectOption", [next(iter(slots.values()))]))
                filled = None
            elif target is not None and (target["tag"] in PRESSED or not _same(pressed, after)):
                made.append(_shown(pressed, target, "click", []))
                filled = None
            pressed = None
        elif event["type"] == "click":  # by a key: the button or link that has the focus
            focused = next((each for each in _every(tree) if each.get("focused")), None)
            if focused is not None and focused["tag"] in PRESSED:
                made.append(_shown(tree, focused, "click", []))
                filled = None
        elif event["type"] == "keydown" and event["keyCode"] == 13:
            focused = next((each for each in _every(tree) if each.get("focused")), None)
            if focused is not None and focused["tag"] in FIELDS:
                made.append(_shown(tree, focused, "press", ["Enter"]))
                filled = None
    return Demonstration(
        task=record["utterance"],
        actions=tuple(_without_repeats(made)),
        success=record["rawReward"] == 1,
        source=record["id"],
        seconds=record["states"][-1]["time"] / 1e3 if record["states"] else 0.0,
    )


def _without_repeats(made: list[ShownAction]) -> list[ShownAction]:
    """Count a list that was opened and closed as one choice."""
    kept: list[ShownAction] = []
    for each in made:
        again = kept and each.action.method == "selectOption" == kept[-1].action.method
        if not again:
            kept.append(each)
    return kept


def _every(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield tree
    for child in tree.get("children", ()):
        yield from _every(child)


def _below(tree: dict[str, Any], x: float, y: float) -> dict[str, Any] | None:
    """Return the last element drawn at a place, or the button or link around it."""
    paths = [
        path
        for path in _ways(tree)
        if path[-1]["left"] <= x <= path[-1]["left"] + path[-1]["width"]
        and path[-1]["top"] <= y <= path[-1]["top"] + path[-1]["height"]
    ]
    if not paths:
        return None
    *around, last = paths[-1]
    return next((each for each in reversed((*around, last)) if each["tag"] in PRESSED), last)


def _ways(tree: dict[str, Any], *above: dict[str, Any]) -> Iterator[tuple[dict[str, Any], ...]]:
    for child in tree.get("children", ()):
        yield (*above, child)
        yield from _ways(child, *above, child)


def _is_after(state: dict[str, Any]) -> bool:
    """Return whether a state was recorded after its event."""
    event = state["action"]
    return event is not None and event.get("timing") == 1


def _same(before: dict[str, Any], after: dict[str, Any] | None) -> bool:
    """Return whether a page has the same elements as before, in the same places."""
    if after is None:
        return False

    def drawn(tree: dict[str, Any]) -> list[tuple[Any, ...]]:
        kept = ("tag", "id", "classes", "text", "value", "left", "top", "width", "height")
        return [tuple(each.get(name) for name in kept) for each in _every(tree)]

    return drawn(before) == drawn(after)


def _shown(
    tree: dict[str, Any],
    element: dict[str, Any],
    method: str,
    arguments: list[str],
    before: dict[str, Any] | None = None,
) -> ShownAction:
    effects = "once" if method in ("click", "press") else "idempotent"
    xpath, _ = _paths(tree, element["ref"])
    action = CachedAction(
        step_index=0,
        instruction=None,
        element_id=None,
        method=method,
        arguments=list(arguments),
        frame_index=0,
        xpath=xpath,
        action_type="actElement",
        success=True,
        message="",
        targets=_targets(tree, element),
        effects=effects,
    )
    return ShownAction(action=action, present=tuple(_present(before or tree)))


def _present(tree: dict[str, Any]) -> Iterator[ElementTargets]:
    for each in _every(tree):
        if each is not tree and each["width"] > 0 and each["height"] > 0:
            yield _targets(tree, each)


def _targets(tree: dict[str, Any], element: dict[str, Any]) -> ElementTargets:
    tag = element["tag"]
    text = " ".join((element.get("text") or "").split())
    says = "" if tag in {*FIELDS, "SELECT"} or len(text) > 80 else text
    _, path = _paths(tree, element["ref"])
    return ElementTargets(
        role=ROLES.get(tag, ""),
        name=says if tag in ROLES else "",
        text=says,
        id=element.get("id") or "",
        tag=tag.split("_")[0].lower(),
        path=path,
    )


def _paths(tree: dict[str, Any], ref: int) -> tuple[str, str]:
    """Return an element's xpath, and its path from the nearest element that has an id."""
    steps = _way(tree, ref) or []
    xpath = "/html[1]/body[1]" + "".join(step for step, _ in steps)
    path = ""
    for step, own in steps:
        path = f'//*[@id="{own}"]' if own else path and path + step
    return xpath, path


def _way(tree: dict[str, Any], ref: int) -> list[tuple[str, str]] | None:
    counts = {"div": 1} if tree.get("id") == "wrap" else {}  # `#query`, the first, is left out
    for child in tree.get("children", ()):
        tag = child["tag"].split("_")[0].lower()
        counts[tag] = counts.get(tag, 0) + 1
        here = (f"/{tag}[{counts[tag]}]", child.get("id") or "")
        if child["ref"] == ref:
            return [here]
        below = _way(child, ref)
        if below is not None:
            return [here, *below]
    return None
