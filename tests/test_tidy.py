"""The house rules that no linter knows, as tests. A broken rule is named with file and line."""

import ast
import functools
import gc
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.structure.rooms import statements

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "hansard"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
REASON_LETTERS_MIN = 8

Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def _files() -> list[Path]:
    """Every text file that git tracks or would track; without git, every file of this project."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    names = listed.stdout.split("\0") if listed.returncode == 0 else []
    paths = [ROOT / name for name in names if name] or [
        *ROOT.glob("*.*"),
        *(path for part in ("src", "tests", "docs") for path in (ROOT / part).rglob("*")),
    ]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


@functools.cache
def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:  # a binary file has no words
        return ""


def _python_files() -> list[Path]:
    return [path for path in _files() if path.suffix == ".py"]


def _at(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


@functools.cache
def _domain_nodes() -> list[tuple[Path, ast.AST]]:
    return [(path, node) for path in DOMAIN for node in ast.walk(ast.parse(_text(path)))]


def _statements(paths: list[Path]) -> Iterator[tuple[Path, ast.AST]]:
    """Yield statements, nested ones included, but not their expressions: a tenth of all nodes."""
    for path in paths:
        for node in statements(ast.parse(_text(path))):
            yield path, node


@pytest.fixture(autouse=True, scope="module")
def _trees() -> Iterator[None]:
    """Disable garbage collection while trees are held: it would triple the time of these checks."""
    gc.disable()
    yield
    gc.enable()


def test_a_module_that_is_long_says_why():
    """A module is one concept, whole; past 800 lines its docstring says "long because ..."."""
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    assert texts
    assert not [
        f"{path.relative_to(ROOT)}: say in its docstring why it is long, or split it by concept"
        for path, text in texts.items()
        if len(text.splitlines()) > FILE_LINES_MAX
        and "long because" not in (ast.get_docstring(ast.parse(text)) or "").lower()
    ]


DEFINED = re.compile(r"^( *)(?:async )?def (\w+)\(.*\n(?:(?:\1[ )].*)?\n)*", re.MULTILINE)
"""A function by its layout: the lines indented further than its name, and its signature's end."""


def _may_be_long(text: str) -> bool:
    """Return whether a function could exceed the limit: less indented lines are text, comments or
    its end.
    """
    begun: list[tuple[int, int]] = []
    last, inside = 0, False
    for number, line in enumerate([*text.splitlines(), "the end"], 1):
        words = line.strip()
        quotes = line.count('"""') + line.count("'''")
        if words and not inside and words[0] not in "#)":
            far = len(line) - len(line.lstrip())
            while begun and begun[-1][0] >= far:
                if last - begun.pop()[1] + 1 >= FUNCTION_LINES_MAX:
                    return True
            if words.startswith(("def ", "async def ")):
                begun.append((far, number))
        inside ^= quotes % 2 == 1
        last = number if words else last
    return False


def test_a_function_that_may_be_long_is_looked_at():
    """Less indented lines in a text, a comment or a signature do not end a function."""
    short = "def f(\n    a,\n) -> None:\n    pass\n"
    long = short + "# no\n" + '    """\nx\n    """\n' + "    pass\n" * FUNCTION_LINES_MAX
    assert not _may_be_long(short * FUNCTION_LINES_MAX)
    assert _may_be_long(long)
    assert _may_be_long("class C:\n" + "".join(f"    {line}\n" for line in long.splitlines()))


@pytest.mark.slow
def test_a_function_fits_on_a_screen():
    """A function of the package stays under 70 lines, its docstring included."""
    assert not [
        f"{_at(path, node.lineno)} {node.name}"
        for path, node in _statements([path for path in SOURCES if _may_be_long(_text(path))])
        if isinstance(node, Function)
        and (node.end_lineno or 0) - node.lineno + 1 >= FUNCTION_LINES_MAX
    ]


AGENTS_ENTRIES_MAX = 21
PACKAGE_LINES_MIN = 3


def test_agents_is_a_house_and_no_corridor():
    """The top level of agents/ stays short; a package counts as one entry."""
    entries = [path.name for path in (PACKAGE / "agents").iterdir() if path.name != "__pycache__"]
    assert 0 < len(entries) <= AGENTS_ENTRIES_MAX


def test_each_package_says_what_it_is_for():
    """The first three lines of each package state its purpose, what it may touch and what it
    offers.
    """
    packages = [path for path in SOURCES if path.name == "__init__.py"]
    docstrings = {path: ast.get_docstring(ast.parse(_text(path))) or "" for path in packages}
    assert docstrings
    assert not [
        str(path.relative_to(ROOT))
        for path, text in docstrings.items()
        if len(text.splitlines()) < PACKAGE_LINES_MIN
    ]


DIRECTIVE = re.compile(
    r"(noqa(?P<noqa>:\s*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*)?"
    r"|type:\s*ignore(?P<mypy>\[[^\]]+\])?"
    r"|pyright:\s*ignore(?P<pyright>\[[^\]]+\])?)"
)


def _unexplained(comment: str) -> bool:
    """Return whether a comment switches a check off without naming it or giving a reason."""
    directives = list(DIRECTIVE.finditer(comment))
    if not any(re.match(r"#\s*$", comment[: match.start()][-2:]) for match in directives):
        return False  # words about a directive, not one
    reason = re.sub(r"[^A-Za-z]", "", DIRECTIVE.sub("", comment))
    named = all(match["noqa"] or match["mypy"] or match["pyright"] for match in directives)
    return not named or len(reason) < REASON_LETTERS_MIN


def _may_be_unexplained(text: str) -> bool:
    """Return whether the text after some `#` may be an unexplained suppression."""
    lines = (line for line in text.splitlines() if DIRECTIVE.search(line))
    return any(_unexplained(line[at.start() :]) for line in lines for at in re.finditer("#", line))


@pytest.mark.parametrize(
    ("comment", "unexplained"),
    [
        ("# noqa" + ": S101", True),
        ("# noqa" + " because it is long", True),
        ("# noqa" + ": S101 - the caller checked it before", False),
        ("# type" + ": ignore[arg-type]", True),
        ("# type" + ": ignore[arg-type]  # the stub is wrong here", False),
        ("# pyright" + ": ignore[reportAny]  # partly typed library", False),
        ("# an ordinary comment", False),
    ],
)
def test_the_rule_for_exceptions_tells_good_from_bad(comment, unexplained):
    """A lint or type exception names its rule and has its reason on the same line."""
    assert _unexplained(comment) is unexplained


@pytest.mark.slow
def test_every_exception_to_a_check_has_its_reason():
    """No check is switched off in silence."""
    assert not [
        f"{_at(path, token.start[0])} {token.string}"
        for path in _python_files()
        if _may_be_unexplained(_text(path))
        for token in tokenize.generate_tokens(io.StringIO(_text(path)).readline)
        if token.type == tokenize.COMMENT and _unexplained(token.string)
    ]


# Put together, so that this file does not hold what it forbids.
REGISTRIES = re.compile(
    "|".join(("py" + r"pi\b", "npm" + "js", "python" + "hosted")), re.IGNORECASE
)
MACHINE_PATH = re.compile(r"(?<![\w.~$}*-])/(" + "work|root|opt" + r")(?=[/\s'\"`:,)]|$)")
LATER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(REGISTRIES, id="registry host"),
        pytest.param(MACHINE_PATH, id="path of one machine"),
        pytest.param(LATER, id="work put off"),
    ],
)
def test_no_file_names_what_only_one_place_has(pattern):
    """No registry host, no absolute path of one machine, no note of work put off, in any file."""
    assert not [
        f"{_at(path, number)} {match[0]}"
        for path in _files()
        if pattern.search(_text(path))
        for number, line in enumerate(_text(path).splitlines(), 1)
        if (match := pattern.search(line))
    ]


BROAD = re.compile(r"except\s*(:|.*\bException\b|.*\bBaseException\b)")
"""Pattern of files that could contain a broad except clause; parsing all files takes seconds."""


@pytest.mark.slow
def test_no_exception_is_caught_blindly():
    """No bare `except`, and none that is caught only to be dropped."""
    assert not [
        _at(path, node.lineno)
        for path, node in _statements(
            [path for path in _python_files() if BROAD.search(_text(path))]
        )
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (_is_broad(node.type) and _does_nothing(node.body)))
    ]


def _is_broad(caught: ast.expr) -> bool:
    return isinstance(caught, ast.Name) and caught.id in {"Exception", "BaseException"}


def _does_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(statement, ast.Pass | ast.Continue)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


IMPORTS = re.compile(r"^ *from (\S+) import (?:\(([^)]*)\)|([^(\n#]+))", re.MULTILINE)


def test_a_file_imports_each_thing_under_one_name():
    """No file has two names for the same imported thing."""
    for path in _python_files():
        names: dict[tuple[str, str], str] = {}
        for module, several, one in IMPORTS.findall(_text(path)):
            for each in filter(None, map(str.strip, (several or one).split(","))):
                thing, _, alias = each.partition(" as ")
                known = names.setdefault((module, thing), alias or thing)
                assert known == (alias or thing), f"{path.relative_to(ROOT)}: {module}.{thing}"


DOMAIN = sorted((PACKAGE / "domain").rglob("*.py"))
IMPURE = {
    "asyncio",
    "io",
    "logging",
    "os",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "threading",
    "time",
}
IMPURE_CALLS = {"now", "open", "print", "input", "today", "utcnow", "uuid1", "uuid4", "urandom"}


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name.split(".")[0] for alias in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module.split(".")[0]]
        case _:
            return []


@pytest.mark.slow
def test_the_domain_is_pure():
    """The domain has no clock, randomness, I/O or `async`."""
    bad = []
    for path, statement in _domain_nodes():
        node = cast("Any", statement)  # every node named below has a line
        bad += [
            f"{_at(path, node.lineno)} import {name}" for name in _imported(node) if name in IMPURE
        ]
        match node:
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                bad.append(f"{_at(path, node.lineno)} async")
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if (
                name in IMPURE_CALLS
            ):
                bad.append(f"{_at(path, node.lineno)} {name}()")
            case _:
                pass
    assert DOMAIN
    assert not bad


def test_the_domain_imports_the_standard_library_and_msgspec_only():
    """The import contract forbids known packages; this test allows only the intended ones."""
    allowed = {*sys.stdlib_module_names, "msgspec", "hansard"}
    assert not [
        f"{_at(path, getattr(node, 'lineno', 0))} import {name}"
        for path, node in _domain_nodes()
        for name in _imported(node)
        if name not in allowed
    ]


ASSERTING = re.compile(
    r"^_?(assert|check|expect|verify|then(_|$)|raises$|warns$|fail$|deprecated_call$)"
)


def _asserts(function: Function) -> bool:
    """Return whether the function states something that can fail."""
    for node in ast.walk(function):
        match node:
            case ast.Assert():
                return True
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if ASSERTING.match(
                name
            ):
                return True
            case _:
                pass
    return False


PLAIN = re.compile(r"^ +assert ", re.MULTILINE)


def _says_so(text: str) -> bool:
    """Return whether a function's text contains a plain assertion, outside of string literals."""
    return text.count('"""') <= 2 and "'''" not in text and PLAIN.search(text) is not None


def _unasserting(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each test that asserts nothing."""
    plain = {at[2] for at in DEFINED.finditer(text) if _says_so(at[0])}
    if len(re.findall(r"\bdef test", text)) == sum(name.startswith("test") for name in plain):
        return  # each of them does, and parsing the thousands there are takes seconds
    for node in statements(ast.parse(text)):
        if isinstance(node, Function) and node.name.startswith("test") and not _asserts(node):
            yield node.lineno, node.name


@pytest.mark.slow
def test_every_test_can_fail():
    """A test without an assertion proves nothing."""
    assert not [
        f"{_at(path, line)} {name}" for path in TESTS for line, name in _unasserting(_text(path))
    ]


def _nav_pages(entry: Any) -> Iterator[str]:
    """Yield the pages that the site's navigation names."""
    match entry:
        case str():
            yield entry
        case dict():
            for inner in entry.values():
                yield from _nav_pages(inner)
        case _:
            for inner in entry:
                yield from _nav_pages(inner)


def test_no_fixture_lasts_longer_than_it_says():
    """No fixture has package scope, which would last to the end of all tests."""
    scope = 'scope="' + 'package"'
    lasting = [path for path in (ROOT / "tests").rglob("*.py") if scope in path.read_text("utf-8")]
    assert lasting == []


def test_each_page_is_in_the_site():
    """A page that is written is found in the navigation (zensical.toml), once.

    Pages of commands and tables are made with the site (tests/site_pages.py).
    """
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    named = list(_nav_pages(site["project"]["nav"]))
    pages = [
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
    there = {str(page.relative_to(ROOT)) for page in pages}
    assert len(named) == len(set(named))
    assert there <= set(named), f"add to nav in zensical.toml: {sorted(there - set(named))}"
    written = [each for each in named if not each.startswith(("docs/cli/", "docs/sql/"))]
    assert not [name for name in written if not (ROOT / name).exists()]
