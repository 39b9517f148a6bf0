"""Recordings of Chrome DevTools' Recorder, read as chats: each step that acts on a page is a call.

The format is that of the package `@puppeteer/replay` (its `Schema.UserFlow`), which the Recorder
exports as JSON. A call is recorded as `AsyncBrowser` records one, so that the run's action cache
can be built from it. A step that a replay does not perform is kept as a message, unchanged, and
counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from hansard.domain.actions import METHODS, ElementTargets, check_xpath, normalized
from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import canonical
from hansard.domain.steps import Effects
from hansard.domain.values import Secret
from hansard.ext.importers import chat
from hansard.ext.importers.chat import TOOL, ChatRun, Ending, ImportDefaults, Message

DEVTOOLS = "devtools"
PERSON = "person"
"""Agent of a recording, and its role."""

STEPS_MAX = 10_000
FILE_BYTES_MAX = 16 * 1024 * 1024
SELECTOR_CHARACTERS_MAX = 4_096
TEXT_CHARACTERS_MAX = 80
"""Longest text by which an element is located, in characters, as in an action cache."""

TYPES = (
    *("change", "click", "close", "customStep", "doubleClick", "emulateNetworkConditions"),
    *("hover", "keyDown", "keyUp", "navigate", "scroll", "setViewport"),
    *("waitForElement", "waitForExpression"),
)
"""Step types of the format."""

EFFECTS = {
    "browser.goto": Effects.IDEMPOTENT,
    "browser.act": Effects.IDEMPOTENT,
    "browser.act_once": Effects.ONCE,
}
"""Effect policies of the calls that a recording becomes."""

_POINTED = {"click": "click", "doubleClick": "dblclick", "hover": "hover"}
_ARIA = re.compile(r'^(?P<name>.*?)(?:\[role="(?P<role>[^"]+)"\])?$', re.DOTALL)
_TEST_ID = re.compile(r"""^\[data-testid=['"]?([^'"\]]+)['"]?\]$""")
_SECRET = re.compile(
    r"passw|passphrase|passcode|kennwort|contrase|mot de passe|\bpwd\b|\bpin\b", re.IGNORECASE
)
_SELECT = re.compile(r"(?:^|[\s>])select(?:[#.:\[][^\s>]*)?$")


class _Event(msgspec.Struct, frozen=True):
    """An event that the Recorder observed after a step."""

    type: str
    url: str | None = None


class _Step(msgspec.Struct, frozen=True):
    """The fields of a step that the importer interprets."""

    type: str
    target: str = "main"
    frame: list[int] = []
    selectors: list[str | list[str]] = []
    value: str = ""
    key: str = ""
    url: str = ""
    button: str = "primary"
    operator: Literal[">=", "==", "<="] = "=="
    count: int = 1
    visible: bool = True
    properties: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    assertedEvents: list[_Event] = []  # noqa: N815 -- the format's name


class _Flow(msgspec.Struct, frozen=True):
    """A recording."""

    title: str
    steps: list[_Step]


class _Call(msgspec.Struct):
    """A call that a step became."""

    tool: str
    arguments: dict[str, Any]
    result: Any


def from_devtools(raw: Any, defaults: ImportDefaults) -> ChatRun:
    """Convert a decoded recording. Raises ValidationError, BadValue."""
    flow = msgspec.convert(raw, _Flow)
    if len(flow.steps) > STEPS_MAX:
        raise BadValue("steps", f"{len(flow.steps):,}", f"record at most {STEPS_MAX:,} at once")
    reading = _Reading(raw["steps"])
    for number, step in enumerate(flow.steps):
        reading.step(number, step)
    messages: list[dict[str, Any]] = []
    if flow.title.strip():
        messages.append({"role": "user", "content": flow.title})
    counted: list[tuple[str, int]] = []
    for number, call in enumerate(reading.done):
        counted += [(kind, len(messages)) for kind in reading.counted.get(number, ())]
        messages += _messages(number, call)
    return ChatRun(
        format=DEVTOOLS,
        content=defaults.beside(raw),
        workflow=DEVTOOLS,
        experiment=defaults.experiment or "",
        arm=defaults.arm or "",
        agent=PERSON,
        role=PERSON,
        messages=msgspec.convert(messages, list[Message]),
        raw_messages=messages,
        ending=Ending(),
        effects=EFFECTS,
        assumed=counted,
    )


def _messages(number: int, done: _Call | str) -> Iterator[dict[str, Any]]:
    """Yield the messages of a call and its result, or of a step that a replay does not perform."""
    if isinstance(done, str):
        yield {"role": "assistant", "content": done}
        return
    call_id = f"step-{number}"
    call = {"id": call_id, "function": {"name": done.tool, "arguments": done.arguments}}
    yield {"role": "assistant", "tool_calls": [call]}
    yield {"role": TOOL, "content": done.result, "tool_call_id": call_id}


class _Reading:
    """Converts steps in order; a key goes to the element of the step before it."""

    def __init__(self, raw: list[dict[str, Any]]) -> None:
        self._raw = raw
        self.done: list[_Call | str] = []
        self.counted: dict[int, list[str]] = {}
        self._held: list[str] = []
        self._secrets: dict[str, str] = {}
        self._focused: _Step | None = None

    def step(self, number: int, step: _Step) -> None:
        """Convert the next step. Raises BadValue."""
        where = f"steps[{number}]"
        if step.type not in TYPES:
            remedy = f"use one of {', '.join(TYPES)}"
            raise BadValue(f"{where}.type", f"{step.type!r:.80} is not known", remedy)
        if step.target != "main":
            self._keep_step(number)
            return
        match step.type:
            case "navigate":
                self._navigate(step, where)
            case "click" | "doubleClick" | "hover" if step.button == "primary":
                self._act(step, where, _POINTED[step.type])
            case "change":
                self._change(step, where)
            case "keyDown":
                self._key(number, step, where)
            case "keyUp":
                self._held = [each for each in self._held if each != step.key]
            case "scroll" if step.selectors:
                self._act(step, where, "scrollToElement")
            case "waitForElement" if (text := _waited(step)) and self._checks() is not None:
                self._check("visible", text)
            case _:
                self._keep_step(number)

    def _keep_step(self, number: int) -> None:
        """Keep a step that a replay does not perform as a message."""
        self._count(chat.NOT_DONE)
        value = self._raw[number]
        if _secret_of(msgspec.convert(value, _Step)) is not None:
            value = {name: each for name, each in value.items() if name != "value"}
        self.done.append(canonical(value).decode())

    def _count(self, kind: str) -> None:
        """Count an assumption about the next call."""
        self.counted.setdefault(len(self.done), []).append(kind)

    def _navigate(self, step: _Step, where: str) -> None:
        if not step.url:
            raise BadValue(f"{where}.url", "navigate without an address", "give it")
        self.done.append(_Call("browser.goto", {"url": step.url}, step.url))
        self._focused = None

    def _change(self, step: _Step, where: str) -> None:
        targets, _ = _targets(step, where)
        is_list = targets.role in ("combobox", "listbox") or _SELECT.search(targets.css)
        if not is_list and not targets.role:
            self._count(chat.FILLED)
        value: str | Secret = step.value
        if (named := _secret_of(step)) is not None:
            self._count(chat.MASKED)
            name = f"password_{len(self._secrets) + 1}" if self._secrets else "password"
            value = Secret(self._secrets.setdefault(named, name))
        self._act(step, where, "selectOption" if is_list else "fill", value)

    def _key(self, number: int, step: _Step, where: str) -> None:
        if not step.key:
            raise BadValue(f"{where}.key", "keyDown without a key", "give it")
        pressed = "+".join([*self._held, step.key])
        self._held.append(step.key)
        if step.key in ("Alt", "Control", "Meta", "Shift"):
            return  # a modifier belongs to the next key
        if self._focused is None:
            self._keep_step(number)
            return
        self._count(chat.KEYS)
        on = msgspec.structs.replace(self._focused, assertedEvents=step.assertedEvents)
        self._act(on, where, "press", pressed)

    def _act(self, step: _Step, where: str, method: str, value: str | Secret | None = None) -> None:
        targets, xpath = _targets(step, where)
        if len(step.frame) > 1 or (step.frame and step.frame[0] < 0):
            fact = f"a frame in a frame: {step.frame}"
            raise BadValue(f"{where}.frame", fact, "record what is done there with the frame alone")
        if step.frame:
            self._count(chat.FRAMES)
        frame = step.frame[0] + 1 if step.frame else 0
        self._focused = step
        once = METHODS[method][1] == Effects.ONCE.value
        plain = msgspec.to_builtins(targets)
        arguments = {
            "instruction": _instruction(method, targets, xpath),
            "method": method,
            "arguments": [] if value is None else [value],
            "at": f"xpath={xpath}" if xpath else "",
            "targets": plain,
            "frame": frame,
            "changes": "",
            "checks": [],
            "optional": False,
        }
        result = {
            "success": True,
            "message": "recorded by Chrome DevTools",
            "frameIndex": frame,
            "xpath": normalized(xpath) if xpath else None,
            "method": method,
            "targets": plain,
            "checks": [],
        }
        self.done.append(_Call("browser.act_once" if once else "browser.act", arguments, result))
        for each in step.assertedEvents:
            if each.type == "navigation" and each.url:
                result["changed"] = "address"
                self._check("url", each.url)

    def _checks(self) -> list[Any] | None:
        """Return the checks after the last action, or None if there is no action."""
        last = self.done[-1] if self.done else None
        return last.result["checks"] if isinstance(last, _Call) and "at" in last.arguments else None

    def _check(self, kind: str, value: str) -> None:
        checks = self._checks()
        if checks is not None:
            checks.append({"kind": kind, "value": value})


def _secret_of(step: _Step) -> str | None:
    """Return the key of the field that a step's value belongs to, if its selectors name a
    password.
    """
    text = msgspec.json.encode([step.frame, step.selectors]).decode()
    return text if step.value and _SECRET.search(text) else None


def _instruction(method: str, targets: ElementTargets, xpath: str) -> str:
    called = targets.name or targets.text or targets.test_id or targets.css or xpath
    return f"{method} {called!r:.80}"


def _waited(step: _Step) -> str:
    """Return the text whose appearance a step waits for; empty if it waits for something else."""
    asks = step.properties or step.attributes or step.frame or not step.visible
    if asks or step.operator == "<=" or step.count != 1:
        return ""
    return next((text for kind, text in _alternatives(step, "") if kind == "text"), "")


def _alternatives(step: _Step, where: str) -> Iterator[tuple[str, str]]:
    """Yield a step's selectors as kind (`aria`, `text`, `xpath` or `css`) and text. In a chain,
    each is searched within the one before it, through open shadow roots, as playwright does.
    """
    for each in step.selectors:
        parts = [each] if isinstance(each, str) else each
        for part in parts:
            if len(part) > SELECTOR_CHARACTERS_MAX:
                most = f"{SELECTOR_CHARACTERS_MAX:,}"
                fact = f"a selector of {len(part):,} characters, more than {most}"
                raise BadValue(f"{where}.selectors", fact, "remove it; another one suffices")
        kinds = [_kind(part) for part in parts]
        if len(kinds) == 1:
            yield kinds[0]
        elif kinds and all(kind == "css" for kind, _ in kinds):
            yield "css", " >> ".join(text for _, text in kinds)
        elif kinds and kinds[-1][0] in ("aria", "text"):
            yield kinds[-1]


def _kind(part: str) -> tuple[str, str]:
    for kind in ("aria", "text", "xpath", "pierce"):
        if part.startswith(f"{kind}/"):
            return ("css" if kind == "pierce" else kind), part[len(kind) + 1 :]
    return "css", part


def _targets(step: _Step, where: str) -> tuple[ElementTargets, str]:
    """Return an element's locators, and its xpath. Raises BadValue if there are none."""
    locators: dict[str, str] = {}
    xpath = ""
    for kind, text in _alternatives(step, where):
        match kind:
            case "aria" if (match := _ARIA.match(text)) and match["name"]:
                locators.setdefault("name", match["name"])
                if match["role"]:
                    locators.setdefault("role", match["role"])
            case "text" if 0 < len(text) <= TEXT_CHARACTERS_MAX:
                locators.setdefault("text", text)
            case "xpath" if text:
                check_xpath(text, f"{where}.selectors")
                xpath = xpath or text
            case "css" if text:
                if test_id := _TEST_ID.match(text):
                    locators.setdefault("test_id", test_id[1])
                else:
                    locators.setdefault("css", text)
            case _:
                pass
    if not xpath and not locators:
        raise BadValue(f"{where}.selectors", "none locates the element", "record it again")
    if not xpath and locators.keys() == {"name"}:
        locators["label"] = locators["name"]  # the only way to locate it
    return msgspec.structs.replace(ElementTargets(), **locators), xpath
