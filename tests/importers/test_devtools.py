"""Recordings of Chrome DevTools' Recorder as runs whose actions can be replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hansard.client.record import Record
from hansard.domain.actions import ActionCache
from hansard.ext.importers.chat import FILLED, FRAMES, KEYS, MASKED, NOT_DONE
from tests.cli.support import Call

pytestmark = pytest.mark.later


def recording(*steps: dict[str, Any], title: str = "Invite Ada") -> dict[str, Any]:
    """Return a recording as the Recorder exports it."""
    return {"title": title, "selectorAttribute": "data-testid", "steps": list(steps)}


def at(kind: str, *selectors: str | list[str], **more: Any) -> dict[str, Any]:
    """Return a step at an element."""
    alternatives = [each if isinstance(each, list) else [each] for each in selectors]
    return {"type": kind, "target": "main", "selectors": alternatives, **more}


VIEWPORT = {"type": "setViewport", "width": 800, "height": 600, "deviceScaleFactor": 1}
POINT = {"offsetX": 3, "offsetY": 4.5}


def whole(address: str) -> dict[str, Any]:
    """Return all steps that the Recorder writes for a form."""
    return recording(
        VIEWPORT | {"isMobile": False, "hasTouch": False, "isLandscape": True},
        {"type": "navigate", "url": address, "assertedEvents": [{"type": "navigation"}]},
        at("click", "aria/Guest", "#guest", 'xpath///*[@id="guest"]', "pierce/#guest", **POINT),
        at("change", 'aria/Guest[role="textbox"]', "#guest", value="Ada"),
        at("change", "aria/Password", "#pin", value="swordfish"),
        at("change", 'aria/Day[role="combobox"]', "#day", value="Tue"),
        at("click", 'aria/Invite[role="button"]', "text/Invite", "button", **POINT),
        at("waitForElement", "text/Ada9Tue"),
    )


def imported(call: Call, tmp_path: Path, document: object, *options: str) -> Any:
    """Import one file and return the result."""
    file = tmp_path / "flow.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return call("import", "devtools", file, *options, "--json")


def cache_of(record: Record) -> ActionCache:
    """Return the actions of the one run."""
    [(run, _)] = record.runs()
    cache: ActionCache = record.actions.of_run(run)
    return cache


def test_a_recording_is_a_run_whose_actions_are_a_cache(record, call, tmp_path):
    """Acting steps are actions, passwords named secrets; a second import adds nothing."""
    done = imported(call, tmp_path, whole("http://127.0.0.1:9/form.html"))
    assert done.code == 0
    assert done.lines[-1]["assumed"] == {MASKED: 1, FILLED: 1, NOT_DONE: 1}
    cache = cache_of(record)
    assert [each.method for each in cache.actions] == [
        None, "click", "fill", "fill", "selectOption", "click",
    ]  # fmt: skip
    _, click, fill, pin, _, send = cache.actions
    assert (click.xpath, click.effects) == ('//*[@id="guest"]', "once")
    assert click.targets is not None
    assert (click.targets.name, click.targets.css) == ("Guest", "#guest")
    assert (fill.arguments, fill.effects) == (["Ada"], "idempotent")
    assert pin.arguments == [{"$secret": "password"}]
    assert send.targets is not None
    assert (send.targets.role, send.targets.name) == ("button", "Invite")
    assert [(each.kind, each.value) for each in send.checks] == [("visible", "Ada9Tue")]
    [(run, life)] = record.runs()
    assert (life.workflow, life.status.value) == ("devtools", "completed")
    everything = "".join(path.read_text(errors="replace") for path in _events(call, tmp_path, run))
    assert "Invite Ada" in everything
    assert "swordfish" not in everything
    again = imported(call, tmp_path, whole("http://127.0.0.1:9/form.html"))
    assert (again.code, again.lines[-1]["new"]) == (0, 0)
    other = imported(call, tmp_path, whole("http://127.0.0.1:9/other.html"))
    assert (other.code, other.lines[-1]["runs"], len(record.runs())) == (0, 1, 2)


def _events(call: Call, tmp_path: Path, run: str) -> list[Path]:
    out = tmp_path / "events.jsonl"
    assert call("export", run, "-o", out).code == 0
    return [out]


def test_what_a_recording_does_not_say_is_counted_or_refused(record, call, tmp_path):
    """Unmapped steps are messages and counted; with --no-guesses nothing is imported."""
    document = recording(
        at("click", "#a", frame=[1], **POINT),
        {"type": "keyDown", "target": "main", "key": "Shift"},
        {"type": "keyDown", "target": "main", "key": "Tab"},
        {"type": "keyUp", "target": "main", "key": "Tab"},
        {"type": "keyUp", "target": "main", "key": "Shift"},
        {"type": "keyDown", "target": "main", "key": "Enter"},
        {"type": "scroll", "target": "main", "x": 0, "y": 40},
        {"type": "customStep", "name": "mine", "parameters": {"a": 1}},
        {"type": "waitForExpression", "expression": "1"},
        at("doubleClick", ["my-list", "li"], button="primary", **POINT),
        at("click", "#b", button="secondary", **POINT),
        at("hover", '[data-testid="x"]'),
        at("change", "#pwd", target="https://other", value="swordfish"),
    )
    refused = imported(call, tmp_path, document, "--no-guesses")
    assert refused.code == 1
    assert "frame taken by its place" in refused.lines[0]["reason"]
    assert record.runs() == []
    done = imported(call, tmp_path, document)
    assert done.lines[-1]["assumed"] == {FRAMES: 3, KEYS: 2, NOT_DONE: 5}
    cache = cache_of(record)
    actions = [(each.method, each.arguments, each.frame_index) for each in cache.actions]
    assert actions == [
        ("click", [], 2), ("press", ["Shift+Tab"], 2), ("press", ["Enter"], 2),
        ("dblclick", [], 0), ("hover", [], 0),
    ]  # fmt: skip
    css = [each.targets.css for each in cache.actions if each.targets is not None]
    assert css == ["#a", "#a", "#a", "my-list >> li", ""]
    [(run, _)] = record.runs()
    text = _events(call, tmp_path, run)[0].read_text()
    assert '"mine' in text.replace("\\", "")
    assert "swordfish" not in text


CLICK = at("click", "#a", **POINT)


@pytest.mark.fast(cases=4, slow=0)
@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("", "the file is empty"),
        (json.dumps(recording(CLICK))[:60], "it is not JSON"),
        ("[]", "no recording of Chrome DevTools"),
        ({"title": "x"}, "missing required field `steps`"),
        ({"steps": []}, "missing required field `title`"),
        (recording({"type": "fly"}), "steps[0].type: 'fly' is not known"),
        (recording({"selectors": []}), "missing required field `type`"),
        (recording(CLICK | {"selectors": []}), "steps[0].selectors: none locates the element"),
        (recording(CLICK | {"selectors": "#a"}), "Expected `array`"),
        (recording(CLICK | {"selectors": [["xpath/" + "/a" * 500_000]]}), "1,000,006 characters"),
        (recording(CLICK | {"selectors": [["xpath/" + "//*" * 40]]}), "axes and functions"),
        (recording(CLICK | {"frame": [0, 1]}), "a frame in a frame"),
        (recording({"type": "navigate"}), "navigate without an address"),
        (recording({"type": "keyDown", "key": ""}), "keyDown without a key"),
        ({"messages": [], "run": "x"}, "it looks like chat-jsonl"),
        ('{"title": "x", "steps": [' + "[" * 5_000, "nested too deep"),
        (recording(*[CLICK] * 10_001), "record at most 10,000"),
    ],
    ids=range(17),
)
def test_what_is_no_recording_is_refused_with_its_step(record, call, tmp_path, document, reason):
    """An invalid recording is refused with the step and the reason, and nothing is imported."""
    done = imported(call, tmp_path, document)
    assert done.code == 1
    assert reason in done.lines[0]["reason"], done.lines
    assert record.runs() == []
