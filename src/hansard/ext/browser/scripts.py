"""Programs that replay an action cache without Hansard; equal caches give equal bytes.

Recorded data is a string in such a program, never part of its code: every text is written as a
literal of the language, by `_Python` and `_TypeScript` only.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from hansard.domain import actions
from hansard.domain.actions import SLOT, TOOL, ActionCache, CachedAction, ElementTargets
from hansard.domain.errors import BadValue


class ScriptFormat(StrEnum):
    """Language and framework of a script."""

    PLAYWRIGHT_PY = "playwright-py"
    PLAYWRIGHT_TS = "playwright-ts"
    PYTEST = "pytest"
    PYTHON = "python"


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")

_LANGUAGES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""The words of each language: its statements, as templates of expressions."""

_TS_MAIN = Path(__file__).with_name("script_main.ts").read_text("utf-8")
"""End of a script in TypeScript: it runs the actions in a browser."""


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
        return _TypeScript(cache).program().encode()
    return _Python(cache).program(form, module, tools).encode()


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
    """Writes the statements of a cache in the language of a table."""

    language: str

    def __init__(self, cache: ActionCache) -> None:
        self.cache = cache
        self.secrets = variables(cache)
        self.words = _LANGUAGES[self.language]

    def say(self, name: str, /, **expressions: object) -> str:
        """Return a statement or expression of the language."""
        text: str = self.words[name]
        return text.format(**expressions)

    def literal(self, text: str) -> str:
        raise NotImplementedError

    def secret(self, name: str) -> str:
        return self.say("secret", name=self.literal(self.secrets[name]))

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
        place = (
            f"css={targets.css}" if targets.css else f"xpath={entry.xpath}" if entry.xpath else ""
        )
        several = bool(targets.row or targets.place or targets.mark) and not targets.alone
        if targets.role and targets.name and (targets.alone or not place):
            role, name = self.literal(targets.role), self.text(targets.name)
            return self.say("role", where=where, role=role, name=name)
        if targets.test_id and not (several and place):
            return self.say("test_id", where=where, value=self.literal(targets.test_id))
        for kind in ("label", "placeholder", "text"):
            if (value := getattr(targets, kind)) and not (several and place):
                return self.say(kind, where=where, value=self.text(value))
        if place:
            return self.say("place", where=where, value=self.literal(place))
        fact = f"entry {entry.step_index} has no locator for its element"
        raise BadValue("script", fact, "record it again")

    def body(self, indent: str) -> str:
        """Return the statements of all entries, in indented lines."""
        statements = (each for entry in self.cache.actions for each in self._entry(entry))
        lines = (line for statement in statements for line in statement.split("\n"))
        return "".join(f"{indent}{line}\n" for line in lines)

    def _entry(self, entry: CachedAction) -> Iterator[str]:
        text = self.literal(entry.instruction or entry.method or "")
        yield self.say("comment", index=entry.step_index, text=text)
        where = self.say("frame", frame=entry.frame_index) if entry.frame_index else "page"
        match entry.action_type:
            case actions.ACT:
                yield self.say(
                    "optional" if entry.optional else "act",
                    locator=self.locator(entry, where),
                    method=self.words["methods"][entry.method or ""],
                    arguments=", ".join(map(self.argument, entry.arguments)),
                )
            case actions.GOTO:
                yield self.say("goto", url=self.argument(entry.arguments[0]))
            case actions.EXTRACT:
                kind, name = "attribute" if entry.method else "inner", entry.method or ""
                locator = self.locator(entry, where)
                yield self.say(kind, locator=locator, name=self.literal(name))
            case actions.TOOL:
                yield f"done({entry.method}, **{self.value(entry.action_params)})"
            case turn:
                yield self.say("turn", turn=self.words["methods"][turn])
        for check in entry.checks:
            yield self.say(
                f"check_{check.kind if check.kind in ('url', 'text') else 'visible'}",
                where=where,
                value=self.text(check.value),
                pattern=self.literal(_url_pattern(check.value)),
                place=self.literal(f"xpath={check.xpath}"),
            )

    def value(self, value: Any) -> str:
        """Return the expression of a tool's argument."""
        raise NotImplementedError


class _Python(_Writer):
    language = "python"

    def literal(self, text: str) -> str:
        return ascii(text)

    def program(self, form: ScriptFormat, module: str, tools: list[str]) -> str:
        """Return the program: of a page, or of calls of tools alone."""
        paged = form is not ScriptFormat.PYTHON
        used = ["argparse"] if form is not ScriptFormat.PYTEST else []
        used += ["asyncio", "inspect"] if tools else []
        used += ["os", "re"] if paged else ["os"]
        imports = "".join(f"import {each}\n" for each in used)
        if paged:
            imports += self.words["playwright"]
        if tools:
            imports += self.say("tools", module=module, tools=", ".join(tools))
        main = "of_pytest" if form is ScriptFormat.PYTEST else "of_command"
        return self.say(
            "program",
            imports=imports,
            slots=repr([*self.cache.slots]),
            parameters="page, slots" if paged else "slots",
            actions=self.body("    "),
            main=self.say(main, run=self.words["in_browser" if paged else "plainly"]),
        )

    def value(self, value: Any) -> str:
        """Return the expression of a tool's argument. Raises BadValue."""
        match value:
            case dict() if set(value) == {"$secret"}:
                return self.secret(str(value["$secret"]))
            case dict():
                if any(str(key).startswith("$") for key in value):
                    fact = f"an argument of a type that JSON lacks: {value!r:.80}"
                    raise BadValue("script", fact, "leave its entry out")
                pairs = (f"{key!a}: {self.value(each)}" for key, each in value.items())
                return "{" + ", ".join(pairs) + "}"
            case list():
                return "[" + ", ".join(map(self.value, value)) + "]"
            case str():
                return self.text(value)
            case _:
                return repr(value)


class _TypeScript(_Writer):
    language = "typescript"

    def literal(self, text: str) -> str:
        encoded = msgspec.json.encode(text).decode()
        return "".join(each if " " <= each <= "~" else _escaped(each) for each in encoded)

    def program(self) -> str:
        """Return the program."""
        slots = msgspec.json.encode(self.cache.slots).decode()
        return self.say("program", slots=slots, actions=self.body("  "), main=_TS_MAIN)


def _escaped(letter: str) -> str:
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
