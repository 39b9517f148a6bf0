"""The Python API reference lists every public name exactly once.

`make docs` builds it (a part of `make check`); these tests read its source: the pages in
docs/reference, whose `::: name` lines name the objects to show. tests/test_tidy.py checks that each
page is in the site.
"""

import ast
import functools
import importlib
import inspect
import re
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import hansard
from hansard.operations.declare import Method
from tests import errors_page
from tests.names import exported
from tests.test_public import MODULES

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))

DIRECTIVE = re.compile(
    r"^::: (?P<name>[\w.]+)\n(?P<options> {4}options:\n(?: {6}.*\n?)*)?", re.MULTILINE
)

CLASSES = (
    hansard.Record,
    hansard.Session,
    hansard.AsyncRecord,
    hansard.AsyncSession,
    hansard.types.SessionThread,
    hansard.types.SessionTasks,
    hansard.types.Board,
    hansard.types.Transaction,
    hansard.types.AsyncBoard,
    hansard.types.AsyncTransaction,
    hansard.types.Team,
    hansard.types.AsyncTeam,
    hansard.types.RunView,
)
"""Classes that users work with: each of their public methods is in the reference."""


class Shown(msgspec.Struct):
    """Target of a `:::` line: a name, and its shown members (None: all public ones)."""

    name: str
    members: list[str] | None


@functools.cache
def shown() -> list[Shown]:
    """Return the targets of all pages."""
    targets = []
    for page in PAGES:
        for directive in DIRECTIVE.finditer(page.read_text(encoding="utf-8")):
            options = yaml.safe_load(directive["options"] or "{}").get("options", {})
            # `members: null` shows all; the default, in zensical.toml, shows none.
            members = options.get("members", [])
            targets.append(Shown(directive["name"], [] if isinstance(members, bool) else members))
    # A module that is shown whole shows each of its names, under its shortest one.
    wholes = [each for each in targets if each.name == "hansard.errors"]
    for each in wholes:
        targets.remove(each)
        for name in exported(hansard.errors):
            home = "hansard" if name in exported(hansard) else each.name
            targets.append(Shown(f"{home}.{name}", []))
    return targets


@functools.cache
def resolved(name: str) -> Any:
    """Return the object that a dotted name refers to."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            value = inspect.getattr_static(value, part, None) or getattr(value, part)
        return value
    raise AssertionError(name)


def methods(kind: type) -> list[str]:
    """Return a class's public methods and properties, those of its bases included."""
    return [
        name
        for name in dir(kind)
        if not name.startswith("_")
        and isinstance(
            _plain(inspect.getattr_static(kind, name)), (property, Method, type(methods))
        )
        and not _of_python(kind, name)
    ]


def _plain(member: object) -> object:
    return getattr(member, "__func__", member)


def _of_python(kind: type, name: str) -> bool:
    home = next(base for base in kind.__mro__ if name in vars(base))
    return not home.__module__.startswith("hansard")


def test_the_page_of_errors_is_up_to_date():
    """Each error states when it is raised, which state it leaves, and the remedy."""
    text = errors_page.PAGE.read_text(encoding="utf-8")
    assert text == errors_page.page(), "run: python -m tests.errors_page"


def test_each_public_name_is_in_the_reference_once():
    """Each exported name is in the reference on one page."""
    count = Counter(each.name for each in shown())
    modules = {name: importlib.import_module(f"hansard.{name}") for name in MODULES}
    public = [f"hansard.{name}" for name in exported(hansard) if name not in {*MODULES, "testing"}]
    public += [
        f"hansard.{home}.{name}"
        for home, module in modules.items()
        for name in exported(module)
        if name not in exported(hansard)
    ]
    missing = [name for name in public if not count[name]]
    assert not missing, f"write '::: {missing[0]}' on a page of docs/reference: {missing}"
    assert not [name for name, times in count.items() if times > 1], "shown twice"


@pytest.mark.slow
def test_all_that_the_pages_show_is_there():
    """A page shows no name, and no member, that is gone."""
    for each in shown():
        value = resolved(each.name)
        assert value is not None, each.name
        for member in each.members or []:
            assert hasattr(value, member) or member in _of_init(value), f"{each.name}.{member}"


def _of_init(kind: type) -> set[str]:
    """Return the attributes that the `__init__` methods of the class set, as far as the source
    shows.
    """
    return {
        name
        for base in kind.__mro__
        if base.__module__.startswith("hansard")
        for name in re.findall(r"self\.(\w+) = ", inspect.getsource(base))
    }


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: getattr(kind, "__name__", kind))
def test_each_method_is_in_the_reference_once(kind):
    """Each public method of these classes is on a page, with a description."""
    held: type = resolved(kind) if isinstance(kind, str) else kind
    count: Counter[str] = Counter()
    for each in shown():
        owner, _, name = each.name.rpartition(".")
        if name == held.__name__ and resolved(each.name) is held:
            count.update(methods(held) if each.members is None else each.members)
        elif owner.endswith(f".{held.__name__}") and resolved(owner) is held:
            count[name] += 1
    remedy = "write it into `members:` of its class, or as '::: hansard.Record.NAME', on a page"
    assert {name: count[name] for name in methods(held)} == dict.fromkeys(methods(held), 1), remedy
    silent = [name for name in methods(held) if not inspect.getdoc(getattr(held, name))]
    assert not silent, "say in a docstring what it does"


@pytest.mark.slow
def test_each_field_is_described():
    """A struct in the reference describes each field, below it or in its docstring."""
    silent = {
        each.name: missing
        for each in shown()
        if isinstance(kind := resolved(each.name), type) and issubclass(kind, msgspec.Struct)
        if (missing := [name for name in kind.__struct_fields__ if name not in _described(kind)])
    }
    assert not silent


@functools.cache
def _parsed(module: str) -> dict[str, ast.ClassDef]:
    """Return a module's classes by name."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _described(kind: type) -> set[str]:
    """Return the fields that have a text, in the class or in what it inherits from."""
    names: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.startswith("hansard"):
            text = inspect.getdoc(base) or ""
            named = re.findall(r"`(\w+)`|^    (\w+): ", text, re.MULTILINE)
            names |= {"".join(pair) for pair in named}
            for field, below in pairwise(_parsed(base.__module__)[base.__name__].body):
                if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                    names.add(ast.unparse(field.target))
    return names
