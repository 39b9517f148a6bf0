"""Whatever the public API takes, gives, holds or raises is imported from a public module."""

import enum
import importlib
import inspect
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import HansardError
from tests.names import exported

MODULES = ("actions", "errors", "experiments", "memory", "prompts", "roles", "types")
"""Public modules apart from the package itself (`hansard.testing` is included there)."""

ROOT_NAMES_MAX = 80

NAMES = {
    name: getattr(module, name)
    for module in (hansard, *(importlib.import_module(f"hansard.{name}") for name in MODULES))
    for name in exported(module)
    if not isinstance(getattr(module, name), types.ModuleType)
}
OFFERED = {id(value): name for name, value in NAMES.items()}

UNRAISED = {
    "hansard.agents.access.principals": "what the broker's logins receive",
    "hansard.agents.exchange": "`hansard import` and `export`",
    "hansard.ext.importers": "`hansard import`",
    "hansard.agents.memory": "`hansard memory`",
    "hansard.agents.runs": "the service, at a repeated call",
    "hansard.broker.access": "the service, before its server knows of a change",
    "hansard.broker.lease.InUse": "`hansard repair` and `tiers clean`",
    "hansard.broker.repair": "`hansard repair`",
    "hansard.bus.file_lock": "commands",
    "hansard.bus.jetstream": "the log, which raises others in their place",
    "hansard.cli": "commands",
    "hansard.inspect": "commands",
    "hansard.ext.otel.export": "`hansard export --otlp`",
    "hansard.ext.models.exchange": "a step of the proxy, whose client gets a response",
    "hansard.ext.browser.chromium": "`hansard actions run`",
    "hansard.ext.mcp": "`hansard mcp`",
    "hansard.ext.memory.agent_runs": "`hansard agent run`",
    "hansard.ext.memory.harnesses": "`hansard memory`",
    "hansard.projections.report": "`hansard ask`",
    "hansard.projections.errors.BadQuery": "`hansard search`",
    "hansard.projections.errors.Index": "`hansard search`",
    "hansard.service.http": "requests over HTTP, whose clients get a problem",
    "hansard.service.mcp": "the MCP server's tools, whose clients get a text",
    "hansard.demo": "the demo",
}
"""Modules of errors that no call of the API raises, and what raises them."""

APART = {"hansard.ext.optimize.dspy"}
"""Modules whose packages are installed in a folder of their own."""

OWN = re.compile(r"^hansard(\.|$)")


def types_in(hint: object) -> Iterator[type]:
    """Yield the classes of this package in an annotation, whatever it is made of."""
    if isinstance(hint, list | tuple):
        for each in hint:
            yield from types_in(each)
    elif typing.get_origin(hint) is not None:
        yield from types_in(typing.get_origin(hint))
        yield from types_in(typing.get_args(hint))
    elif isinstance(hint, type) and OWN.match(hint.__module__):
        yield hint


def functions(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield a class's public methods and properties, as plain functions."""
    for name in dir(cls):
        member: Any = inspect.getattr_static(cls, name)
        member = getattr(member, "__func__", member)
        member = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not isinstance(member, types.FunctionType):
            continue
        if OWN.match(member.__module__):
            yield name, inspect.unwrap(member)


def attributes(cls: type) -> dict[str, Any]:
    """Return the public attributes that a class declares with types."""
    shown = [base for base in cls.__mro__ if not base.__name__.startswith("_")]
    named = {name for base in shown for name in vars(base).get("__annotations__", {})}
    hints = typing.get_type_hints(cls)
    return {name: hints[name] for name in sorted(named & set(hints)) if not name.startswith("_")}


def needed(name: str, value: object) -> Iterator[tuple[str, type]]:
    """Each class that something of the API names, and where."""
    if isinstance(value, types.FunctionType):
        for hint in typing.get_type_hints(value, localns=NAMES).values():
            yield from ((name, each) for each in types_in(hint))
    elif typing.get_origin(value) is not None:
        yield from ((name, each) for each in types_in(value))
    elif isinstance(value, type) and not issubclass(value, enum.Enum | BaseException):
        for attribute, hint in attributes(value).items():
            yield from ((f"{name}.{attribute}", each) for each in types_in(hint))
        for method, function in functions(value):
            yield from needed(f"{name}.{method}", function)


def test_each_type_that_the_api_takes_or_gives_is_imported_from_the_package():
    """Each type that a public call takes or returns is importable from the package itself."""
    hidden = {
        f"{kind.__module__}.{kind.__qualname__}": where
        for name, value in NAMES.items()
        for where, kind in needed(name, value)
        if id(kind) not in OFFERED
    }
    assert not hidden, "add it to hansard/types.py, or to the module of its subject"


def errors(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    """Yield an error and all that it is the base of."""
    yield kind
    for each in kind.__subclasses__():
        yield from errors(each)


CLASS = re.compile(r"^ *class (\w+)(?:\[[^\]]*\])?\(([^:]*)\):", re.MULTILINE)
ALIAS = re.compile(r"\b(\w+) as (\w+)\b|^ *(\w+) = [\w.]*?(\w+)$", re.MULTILINE)


def with_errors() -> set[str]:
    """Return the modules where errors are defined, by the names of their bases."""
    source = Path(hansard.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.py"))}
    made = [
        (path, name, set(re.findall(r"\w+", bases)))
        for path, text in texts.items()
        for name, bases in CLASS.findall(text)
    ]
    others = {
        (was or value, named or name)
        for text in texts.values()
        for was, named, name, value in ALIAS.findall(text)
    }
    known: set[str] = set()
    names = {"HansardError"}
    while names - known:
        known |= names
        names = {name for _, name, bases in made if bases & known}
        names |= {named for was, named in others if was in known}
    parts = {
        path.relative_to(source.parent).with_suffix("").parts
        for path, _, bases in made
        if bases & known
    }
    return {".".join(each).removesuffix(".__init__") for each in parts}


@pytest.mark.slow
def test_each_error_that_the_api_raises_is_imported_from_the_package():
    """Each error that the API raises is importable like every other public name."""
    modules = with_errors() - APART
    assert len(modules) > 20
    for module in modules:
        importlib.import_module(module)
    loaded = {kind.__module__ for kind in errors(HansardError) if OWN.match(kind.__module__)}
    assert loaded <= modules | APART
    hidden = {
        f"{kind.__module__}.{kind.__name__}"
        for kind in errors(HansardError)
        if OWN.match(kind.__module__) and not kind.__name__.startswith("_")
        if id(kind) not in OFFERED
        if not any(f"{kind.__module__}.{kind.__name__}".startswith(home) for home in UNRAISED)
    }
    assert not hidden, "add it to hansard/errors.py, or say here who raises it"


def test_the_names_of_the_package_are_there():
    """A type checker finds each listed name: one list says where each name is defined."""
    source = inspect.getsource(hansard)
    [checked] = re.findall(r"if TYPE_CHECKING:\n(.*?)\n\n", source, re.DOTALL)
    for name in exported(hansard):
        assert re.search(rf"\b{name} as {name}$", checked, re.MULTILINE), name
        assert getattr(hansard, name) is not None
    assert len(exported(hansard)) <= ROOT_NAMES_MAX


def test_each_name_has_one_place():
    """Exceptions that most programs catch are in `hansard` and in `hansard.errors`, no others."""
    places: dict[str, list[str]] = {}
    for module in (hansard, *(importlib.import_module(f"hansard.{name}") for name in MODULES)):
        for name in exported(module):
            places.setdefault(name, []).append(module.__name__)
    for name, homes in places.items():
        assert len(homes) == 1 or homes == ["hansard", "hansard.errors"], name
