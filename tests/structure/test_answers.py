"""`hansard.inspect` answers all requests; one place decides what is printed."""

import ast
from pathlib import Path

from tests.structure.rooms import ROOT

COMMANDS = ROOT / "src/hansard/cli"
INSPECT = ROOT / "src/hansard/inspect"


def branches_on_json(path: Path) -> bool:
    """Return whether a module branches on `json`."""
    tests = [
        node.test
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.If | ast.IfExp)
    ]
    named = [each for test in tests for each in ast.walk(test)]
    return any(
        (isinstance(each, ast.Name) and each.id == "json")
        or (isinstance(each, ast.Attribute) and each.attr == "json")
        for each in named
    )


def test_only_the_renderer_tells_people_from_programs():
    """Only the renderer reads --json; `sql` names it as one of its formats."""
    assert {path.stem for path in COMMANDS.rglob("*.py") if branches_on_json(path)} == {
        "output",
        "sql",
    }


def test_reads_print_nothing():
    """No module of inspect writes to a stream or formats tables."""
    prints = [
        f"{path.name}:{node.lineno}"
        for path in INSPECT.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Name) and node.id == "print")
        or (isinstance(node, ast.Attribute) and node.attr in {"stdout", "stderr"})
        or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("rich", "typer")))
    ]
    assert not prints
