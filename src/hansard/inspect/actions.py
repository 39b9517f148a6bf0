"""Action caches: a run's actions on pages and by tools, in a form that can be replayed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from hansard.agents.artifacts import versions as artifacts
from hansard.agents.workspace import Workspace
from hansard.domain.actions import (
    ACT,
    ACTIONS,
    BACK,
    EXTRACT,
    FORMAT,
    FORWARD,
    GOTO,
    RELOAD,
    SLOT,
    TOOL,
    ActionCache,
    ActionCheck,
    ActionsEnd,
    CachedAction,
    ElementTargets,
    PageMark,
    normalized,
)
from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import canonical
from hansard.domain.steps import Effects, StepStatus
from hansard.inspect import trace as traces
from hansard.inspect.answer import Listed
from hansard.inspect.trace import Payloads, WholeStep
from hansard.projections.snapshots import Reader

# Programs that replay an action cache without Hansard; equal caches give equal bytes.
#
# Recorded data is a string in such a program, never part of its code: every text is written as a
# literal of the language, by `_python` and `_typescript` only.


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
        yield from _TS_MAIN

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


_TS_MAIN = (
    "async function main(): Promise<void> {",
    "  const slots: Record<string, string> = {};",
    "  for (const name of SLOTS) {",
    "    const at = process.argv.indexOf(`--${name}`);",
    "    const value = at < 0 ? undefined : process.argv[at + 1];",
    "    if (value === undefined) throw new Error(`--${name} is not given`);",
    "    slots[name] = value;",
    "  }",
    "  const executablePath = process.env.BROWSER || undefined;",
    "  const browser = await chromium.launch({ executablePath });",
    "  try {",
    "    await run(await browser.newPage(), slots);",
    "  } finally {",
    "    await browser.close();",
    "  }",
    "}",
    "",
    "main().catch((error) => {",
    "  console.error(error);",
    "  process.exit(1);",
    "});",
)


# Saved action caches and their versions, from the tables.


class KeptCache(msgspec.Struct, tag_field="kind", tag="cache", kw_only=True):
    """Saved action cache.

    Attributes:
        cache: Its name.
        versions: The number of versions.
        heals: The number of versions that are heals.
        reviewed_version: The newest reviewed version; 0 for none.
        heals_unreviewed: The number of heals newer than that.
        changed_at: The time of its newest version, UTC.
    """

    cache: str
    versions: int
    heals: int
    reviewed_version: int
    heals_unreviewed: int
    changed_at: datetime


class KeptCaches(Listed):
    """Saved action caches.

    Attributes:
        position: The position of the log.
        caches: By name.
    """

    _listed: ClassVar[str] = "caches"
    caches: list[KeptCache]


class KeptVersion(msgspec.Struct, tag_field="kind", tag="version", kw_only=True):
    """Version of a cache.

    Attributes:
        cache: Its name.
        version: The number.
        change: saved, healed or reverted.
        entry: For a heal, the entry's stepIndex.
        again: For a revert, the restored version.
        run: The recorded run, or the run whose replay healed it.
        author: The author.
        because: The reason.
        at: The time, UTC.
        reviewed: Whether it was reviewed.
    """

    cache: str
    version: int
    change: str
    entry: int | None
    again: int | None
    run: str | None
    author: str
    because: str | None
    at: datetime
    reviewed: bool


class ActionsLog(Listed):
    """Versions of a cache.

    Attributes:
        position: The position of the log.
        versions: The oldest first.
    """

    _listed: ClassVar[str] = "versions"
    versions: list[KeptVersion]


_CACHES = """
    SELECT cache, versions, heals, reviewed_version, heals_unreviewed, changed_at
    FROM action_caches ORDER BY cache
"""
_LOG = """
    SELECT v.cache, v.version, v.kind AS change, v.entry, v.again, v.run, v.author, v.because,
        v.happened_at AS at, v.version <= c.reviewed_version AS reviewed
    FROM action_versions AS v JOIN action_caches AS c ON c.cache = v.cache
    WHERE v.cache = $1 ORDER BY v.version
"""


def caches(reader: Reader) -> KeptCaches:
    """Return the saved caches by name."""
    kept = msgspec.convert(reader.rows(_CACHES, []), list[KeptCache])
    return KeptCaches(position=reader.position, caches=kept)


def log(reader: Reader, name: str) -> ActionsLog:
    """Return the versions of a cache. Raises NotFound."""
    changes = msgspec.convert(reader.rows(_LOG, [name]), list[KeptVersion])
    if not changes:
        raise artifacts.missing(ACTIONS, name)
    return ActionsLog(position=reader.position, versions=changes)


ACTS = ("browser.act", "browser.act_once")
_PARTS = ("browser.find", "browser.choose")
"""Steps that are part of an action and never an action themselves."""

_COUNTED = ("completed", "failed", "in_doubt", "blocked")


async def action_cache(
    workspace: Workspace, run: str, fetch: Payloads, *, agent: str | None = None
) -> ActionCache:
    """Return a run's successful actions in the order of its steps. Raises Corrupt.

    A failed step is no entry; `final_state` says whether the last action succeeded.
    """
    history = await workspace.states.history(run, await workspace.points.up_to(run, None))
    tracer = traces.trace(run, history)
    actions: list[CachedAction] = []
    last: tuple[bool, str] = (False, "the run has no action that can be replayed")
    took_ms = 0.0
    within: set[tuple[str, int]] = set()
    async for step in tracer.whole(fetch):
        detail = step.traced
        if agent is not None and detail.agent != agent:
            continue
        if not _is_action(step, within):
            continue
        took_ms += detail.duration_ms or 0.0
        entry = _entry(step, len(actions))
        if entry is not None and entry.success:
            actions.append(entry)
            last = True, ""
        else:
            last = False, _failure(step, entry)
    success, error = last
    return ActionCache(
        actions=actions,
        final_state=ActionsEnd(
            success=success,
            duration=round(took_ms / 1e3, 6),
            error=msgspec.UNSET if success else error,
        ),
        format=FORMAT,
        run=run,
    )


def _is_action(step: WholeStep, within: set[tuple[str, int]]) -> bool:
    """Return whether a step is an action: not a model call, not part of an action or tool body."""
    detail = step.traced
    here = (detail.agent, detail.step)
    inside = detail.parent is not None and (detail.agent, detail.parent) in within
    if detail.effects == Effects.COMPOSITE.value and not inside:
        return False  # the actions of its body are entries themselves
    if inside or not detail.tool.startswith("browser."):
        within.add(here)
    return not (
        inside or detail.kind != "tool" or detail.tool in _PARTS or detail.status not in _COUNTED
    )


def _failure(step: WholeStep, entry: CachedAction | None) -> str:
    detail = step.traced
    if entry is not None:
        return entry.message
    return detail.error.message if detail.error is not None else f"{detail.tool} is {detail.status}"


def _entry(step: WholeStep, index: int) -> CachedAction | None:
    """Return a step as an entry; None if it did not complete."""
    detail = step.traced
    if detail.status != StepStatus.COMPLETED.value:
        return None
    arguments: Mapping[str, Any] = detail.arguments if isinstance(detail.arguments, dict) else {}
    result = detail.result
    if detail.tool in ACTS:
        return _act(index, arguments, result, detail.effects)
    made = CachedAction(
        step_index=index,
        instruction=None,
        element_id=None,
        method=None,
        arguments=[],
        frame_index=None,
        xpath=None,
        action_type=TOOL,
        success=True,
        message="done",
        effects=detail.effects,
    )
    changed: dict[str, Any]
    match detail.tool:
        case "browser.goto":
            changed = {"action_type": GOTO, "arguments": [arguments["url"]]}
        case "browser.turn":
            changed = {"action_type": arguments["action"]}
        case "browser.extract":
            changed = {
                "action_type": EXTRACT,
                "instruction": arguments["instruction"],
                "method": arguments["attribute"] or None,
                "frame_index": result.get("frame", arguments["frame"]),
                "xpath": normalized(result["xpath"]) if result["xpath"] else None,
                "targets": msgspec.convert(result["targets"], ElementTargets),
                "page": PageMark(address=result["url"]),
            }
        case _:
            changed = {
                "method": detail.tool,
                "arguments": [canonical(detail.arguments).decode()],
                "action_params": detail.arguments if isinstance(detail.arguments, dict) else {},
            }
    entry: CachedAction = msgspec.structs.replace(made, **changed)
    return entry


def _act(index: int, arguments: Mapping[str, Any], result: Any, effects: str) -> CachedAction:
    xpath = result.get("xpath")
    return CachedAction(
        step_index=index,
        instruction=arguments["instruction"],
        element_id=result.get("elementId"),
        method=arguments["method"],
        arguments=list(arguments["arguments"]),
        frame_index=result.get("frameIndex", 0),
        xpath=normalized(xpath) if xpath else None,
        action_type=ACT,
        success=result["success"],
        message=result["message"],
        targets=msgspec.convert(result.get("targets"), ElementTargets | None),
        page=msgspec.convert(result.get("page"), PageMark | None),
        changed=result.get("changed", ""),
        effects=effects,
        checks=msgspec.convert(result.get("checks", []), list[ActionCheck]),
        optional=arguments.get("optional", False),
    )
