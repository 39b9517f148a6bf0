"""Programs that replay an action cache without Hansard; equal caches give equal bytes.

Recorded data is a string in such a program, never part of its code: every text is written as a
literal of the language, by `_Python` and `_TypeScript` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from hansard.domain.actions import (
    ACT,
    BACK,
    EXTRACT,
    FORWARD,
    GOTO,
    RELOAD,
    SLOT,
    TOOL,
    ActionCache,
    ActionCheck,
    CachedAction,
    ElementTargets,
)
from hansard.domain.errors import BadValue


class ScriptFormat(StrEnum):
    """Language and framework of a script."""

    PLAYWRIGHT_PY = "playwright-py"
    PLAYWRIGHT_TS = "playwright-ts"
    PYTEST = "pytest"
    PYTHON = "python"


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")

_METHODS = {
    "click": ("click", "click"),
    "dblclick": ("dblclick", "dblclick"),
    "press": ("press", "press"),
    "fill": ("fill", "fill"),
    "type": ("press_sequentially", "pressSequentially"),
    "selectOption": ("select_option", "selectOption"),
    "check": ("check", "check"),
    "uncheck": ("uncheck", "uncheck"),
    "hover": ("hover", "hover"),
    "scrollToElement": ("scroll_into_view_if_needed", "scrollIntoViewIfNeeded"),
}
_TURNS = {RELOAD: ("reload", "reload"), BACK: ("go_back", "goBack")}
_TURNS[FORWARD] = ("go_forward", "goForward")


def script(cache: ActionCache, form: ScriptFormat, module: str = "") -> bytes:
    """Build a program that replays a cache; `module` is the module that its tools are imported
    from.

    Raises BadValue for content that the format cannot express.
    """
    if module and not _IDENTIFIER.fullmatch(module):
        raise BadValue("module", f"{module!r:.80} is no module name", "give it as `package.module`")
    tools = sorted({each.method or "" for each in cache.actions if each.action_type == TOOL})
    if form is ScriptFormat.PYTHON and any(each.action_type != TOOL for each in cache.actions):
        raise BadValue("python", "the cache has actions of a page", "use playwright-py")
    if tools and (not module or form is ScriptFormat.PLAYWRIGHT_TS):
        remedy = "use another format" if module else "give module=, their module"
        raise BadValue(form.value, f"the cache calls tools ({', '.join(tools)[:100]})", remedy)
    for name in tools:
        if not _IDENTIFIER.fullmatch(name) or "." in name:
            raise BadValue("tool", f"{name!r:.80} is not a function name", "leave its entry out")
    if form is ScriptFormat.PLAYWRIGHT_TS:
        lines = _TypeScript(cache).lines()
    else:
        lines = _Python(cache, form, module, tools).lines()
    return "".join(f"{line}\n" for line in lines).encode()


def variables(cache: ActionCache) -> dict[str, str]:
    """Return each secret's environment variable by name. Raises BadValue for duplicates."""
    names = sorted(_secrets_of([[each.arguments, each.action_params] for each in cache.actions]))
    slot_variables = {
        name: "SECRET_" + re.sub(r"\W", "_", name, flags=re.ASCII).upper() for name in names
    }
    if len(set(slot_variables.values())) != len(slot_variables):
        fact = f"{', '.join(names)[:200]} lead to one environment variable"
        raise BadValue("secrets", fact, "rename one")
    return slot_variables


def _secrets_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        if set(value) == {"$secret"}:
            return {str(value["$secret"])}
        value = list(value.values())
    return set().union(*map(_secrets_of, value)) if isinstance(value, list) else set()


def _url_pattern(pattern: str) -> str:
    """Return a regular expression for the address pattern of a check."""
    text = re.escape(pattern).replace(r"\*", "[^/?&#]*").replace("/", "[/]")
    for local in ("localhost", "127\\.0\\.0\\.1"):
        text = text.replace(f":[/][/]{local}", r":[/][/](?:localhost|127\.0\.0\.1)(?::\d+)?", 1)
    return f"^{text}$"


class _Writer:
    """Writer shared by both languages; `at` is the language's index in the tables above."""

    at: int

    def __init__(self, cache: ActionCache) -> None:
        self.cache = cache
        self.secrets = variables(cache)

    def literal(self, text: str) -> str:
        raise NotImplementedError

    def secret(self, name: str) -> str:
        raise NotImplementedError

    def text(self, text: str) -> str:
        """Return the expression of a text: literals and slots."""
        parts: list[str] = []
        begin = 0
        for match in SLOT.finditer(text):
            if match.group(1) not in self.cache.slots:
                continue
            if match.start() > begin:
                parts.append(self.literal(text[begin : match.start()]))
            parts.append(f"slots[{self.literal(match.group(1))}]")
            begin = match.end()
        if begin < len(text) or not parts:
            parts.append(self.literal(text[begin:]))
        return " + ".join(parts)

    def argument(self, value: Any) -> str:
        """Return the expression of an argument."""
        if isinstance(value, dict) and set(value) == {"$secret"}:
            return self.secret(str(value["$secret"]))
        return self.text(str(value))

    def locator(self, entry: CachedAction, where: str) -> str:
        """Return the locator of an entry's element.

        By role and name, or by another text if it was unique, else by its place on the page.
        """
        targets = entry.targets or ElementTargets()
        camel = self.at == 1
        place = (
            f"css={targets.css}" if targets.css else f"xpath={entry.xpath}" if entry.xpath else ""
        )
        several = bool(targets.row or targets.place or targets.mark) and not targets.alone
        if targets.role and targets.name and (targets.alone or not place):
            name, value = self.literal(targets.role), self.text(targets.name)
            if camel:
                return f"{where}.getByRole({name} as any, {{ name: {value}, exact: true }})"
            return f"{where}.get_by_role({name}, name={value}, exact=True)"
        if targets.test_id and not (several and place):
            name = "getByTestId" if camel else "get_by_test_id"
            return f"{where}.{name}({self.literal(targets.test_id)})"
        for kind in ("label", "placeholder", "text"):
            if (value := getattr(targets, kind)) and not (several and place):
                name = f"getBy{kind.title()}" if camel else f"get_by_{kind}"
                exact = "{ exact: true }" if camel else "exact=True"
                return f"{where}.{name}({self.text(value)}, {exact})"
        if place:
            return f"{where}.locator({self.literal(place)})"
        fact = f"entry {entry.step_index} has no locator for its element"
        raise BadValue("script", fact, "record it again")


class _Python(_Writer):
    at = 0

    def __init__(
        self, cache: ActionCache, form: ScriptFormat, module: str, tools: list[str]
    ) -> None:
        super().__init__(cache)
        self.form = form
        self.module = module
        self.tools = tools
        self.paged = form is not ScriptFormat.PYTHON

    def literal(self, text: str) -> str:
        return ascii(text)

    def secret(self, name: str) -> str:
        return f"os.environ[{self.literal(self.secrets[name])}]"

    def lines(self) -> Iterator[str]:
        yield '"""Replay of recorded actions."""'
        yield ""
        yield from self._imports()
        yield ""
        yield f"SLOTS = {[*self.cache.slots]!r}"
        yield ""
        yield ""
        yield "def run(page, slots):" if self.paged else "def run(slots):"
        for entry in self.cache.actions:
            yield from (f"    {line}" for line in self._entry(entry))
        yield "    return None"
        yield ""
        yield ""
        yield from self._main()

    def _imports(self) -> Iterator[str]:
        used = ["argparse"] if self.form is not ScriptFormat.PYTEST else []
        used += ["asyncio", "inspect"] if self.tools else []
        used += ["os", "re"] if self.paged else ["os"]
        yield from (f"import {each}" for each in used)
        if self.paged:
            yield ""
            yield "from playwright.sync_api import expect, sync_playwright"
        if self.tools:
            yield ""
            yield f"from {self.module} import {', '.join(self.tools)}"
            yield ""
            yield ""
            yield "def done(tool, **arguments):"
            yield '    """Call a function, also that of `@hansard.tool`: nothing is recorded."""'
            yield '    is_declared = type(tool).__module__.startswith("hansard.")'
            yield "    result = (tool.__wrapped__ if is_declared else tool)(**arguments)"
            yield "    return asyncio.run(result) if inspect.isawaitable(result) else result"

    def _entry(self, entry: CachedAction) -> Iterator[str]:
        yield f"# {entry.step_index}: {entry.instruction or entry.method or ''!a}"
        frame = entry.frame_index or 0
        where = f"page.frames[{frame}]" if frame else "page"
        if entry.action_type == ACT:
            method = _METHODS[entry.method or ""][self.at]
            arguments = ", ".join(map(self.argument, entry.arguments))
            locator = self.locator(entry, where)
            if entry.optional:
                yield f"if {locator}.count() == 1:"
            yield f"{'    ' * entry.optional}{locator}.{method}({arguments})"
        elif entry.action_type == GOTO:
            yield f"page.goto({self.argument(entry.arguments[0])})"
        elif entry.action_type == EXTRACT:
            got = f"get_attribute({entry.method!a})" if entry.method else "inner_text()"
            yield f"print({self.locator(entry, where)}.{got})"
        elif entry.action_type == TOOL:
            yield f"done({entry.method}, **{self._value(entry.action_params)})"
        else:
            yield f"page.{_TURNS[entry.action_type][self.at]}()"
        for check in entry.checks:
            yield self._check(check, where)

    def _check(self, check: ActionCheck, where: str) -> str:
        if check.kind == "url":
            return f"expect(page).to_have_url(re.compile({_url_pattern(check.value)!a}))"
        if check.kind == "text":
            locator = f"{where}.locator({self.literal(f'xpath={check.xpath}')})"
            return f"expect({locator}).to_have_text({self.text(check.value)})"
        locator = f"{where}.get_by_text({self.text(check.value)}, exact=True).first"
        return f"expect({locator}).to_be_visible()"

    def _value(self, value: Any) -> str:
        match value:
            case dict() if set(value) == {"$secret"}:
                return self.secret(str(value["$secret"]))
            case dict():
                if any(str(key).startswith("$") for key in value):
                    fact = f"an argument of a type that JSON lacks: {value!r:.80}"
                    raise BadValue("script", fact, "leave its entry out")
                pairs = (f"{key!a}: {self._value(each)}" for key, each in value.items())
                return "{" + ", ".join(pairs) + "}"
            case list():
                return "[" + ", ".join(map(self._value, value)) + "]"
            case str():
                return self.text(value)
            case _:
                return repr(value)

    def _main(self) -> Iterator[str]:
        launch = 'player.chromium.launch(executable_path=os.environ.get("BROWSER") or None)'
        if self.form is ScriptFormat.PYTEST:
            yield "def test_actions():"
            yield '    slots = {name: os.environ["SLOT_" + name] for name in SLOTS}'
        else:
            yield "def main():"
            yield "    parser = argparse.ArgumentParser()"
            yield "    for name in SLOTS:"
            yield '        parser.add_argument("--" + name, required=True)'
            yield "    slots = vars(parser.parse_args())"
        if self.paged:
            yield "    with sync_playwright() as player:"
            yield f"        browser = {launch}"
            yield "        try:"
            yield "            run(browser.new_page(), slots)"
            yield "        finally:"
            yield "            browser.close()"
        else:
            yield "    run(slots)"
        if self.form is not ScriptFormat.PYTEST:
            yield ""
            yield ""
            yield 'if __name__ == "__main__":'
            yield "    main()"


class _TypeScript(_Writer):
    at = 1

    def literal(self, text: str) -> str:
        encoded = msgspec.json.encode(text).decode()
        return "".join(each if " " <= each <= "~" else _escaped(each) for each in encoded)

    def secret(self, name: str) -> str:
        return f"env({self.literal(self.secrets[name])})"

    def lines(self) -> Iterator[str]:
        yield "// Replay of recorded actions."
        yield 'import { chromium, type Page } from "playwright";'
        yield 'import { expect } from "playwright/test";'
        yield ""
        yield f"const SLOTS: string[] = {msgspec.json.encode(self.cache.slots).decode()};"
        yield ""
        yield "function env(name: string): string {"
        yield "  const value = process.env[name];"
        yield "  if (value === undefined) throw new Error(`${name} is not set`);"
        yield "  return value;"
        yield "}"
        yield ""
        yield "export async function run("
        yield "  page: Page,"
        yield "  slots: Record<string, string>,"
        yield "): Promise<void> {"
        for entry in self.cache.actions:
            yield from (f"  {line}" for line in self._entry(entry))
        yield "}"
        yield ""
        yield from _TS_MAIN.splitlines()

    def _entry(self, entry: CachedAction) -> Iterator[str]:
        yield f"// {entry.step_index}: {self.literal(entry.instruction or entry.method or '')}"
        frame = entry.frame_index or 0
        where = f"page.frames()[{frame}]" if frame else "page"
        if entry.action_type == ACT:
            method = _METHODS[entry.method or ""][self.at]
            arguments = ", ".join(map(self.argument, entry.arguments))
            locator = self.locator(entry, where)
            condition = f"if ((await {locator}.count()) === 1) " if entry.optional else ""
            yield f"{condition}await {locator}.{method}({arguments});"
        elif entry.action_type == GOTO:
            yield f"await page.goto({self.argument(entry.arguments[0])});"
        elif entry.action_type == EXTRACT:
            name = self.literal(entry.method or "")
            got = f"getAttribute({name})" if entry.method else "innerText()"
            yield f"console.log(await {self.locator(entry, where)}.{got});"
        else:
            yield f"await page.{_TURNS[entry.action_type][self.at]}();"
        for check in entry.checks:
            yield self._check(check, where)

    def _check(self, check: ActionCheck, where: str) -> str:
        if check.kind == "url":
            text = self.literal(_url_pattern(check.value))
            return f"await expect(page).toHaveURL(new RegExp({text}));"
        if check.kind == "text":
            locator = f"{where}.locator({self.literal(f'xpath={check.xpath}')})"
            return f"await expect({locator}).toHaveText({self.text(check.value)});"
        locator = f"{where}.getByText({self.text(check.value)}, {{ exact: true }}).first()"
        return f"await expect({locator}).toBeVisible();"


def _escaped(letter: str) -> str:
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


_TS_MAIN = Path(__file__).with_name("script_main.ts").read_text("utf-8")
"""End of a script in TypeScript: it runs the actions in a browser."""
