"""Counts the size and the wording of the source, by package, against budgets that only fall.

`python -m tests.structure.budget` prints the counts and lowers each budget that the source has
fallen below. Raising one takes a reason, which is kept beside it:
`python -m tests.structure.budget --raise "why"`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from pathlib import Path

import msgspec

from tests.structure.rooms import parsed, statements

SOURCE = Path(__file__).parents[2] / "src" / "hansard"
FILE = Path(__file__).with_name("budget.json")

DIALECT = re.compile(
    r"\b(?:told|said|asked|came|whoever|anew|stands|wanted)\b"
    r"|comes to|came of|is told|what it is|by then"
)
"""Words of a private dialect that STYLE of this project replaces by standard terms."""

Counts = dict[str, dict[str, int]]


class Budget(msgspec.Struct, kw_only=True):
    """The most that each package may have, and why a number was raised."""

    packages: Counts
    raised: list[str] = []


def read() -> Budget:
    """Return the budgets as they are stored."""
    return msgspec.json.decode(FILE.read_bytes(), type=Budget)


def counts() -> Counts:
    """Count code lines, modules, forwarding functions and dialect words of each package."""
    totals: dict[str, Counter[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).parts
        text = path.read_text(encoding="utf-8")
        tree = parsed(path)
        package = totals.setdefault(parts[0] if len(parts) > 1 else "hansard", Counter())
        package["code_lines"] += code_lines(text, tree)
        package["modules"] += 1
        package["forwarding"] += sum(
            forwards(node)
            for node in statements(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )
        package["dialect_words"] += len(DIALECT.findall(text))
    return {package: dict(numbers) for package, numbers in sorted(totals.items())}


def code_lines(text: str, tree: ast.Module) -> int:
    """Count lines without blanks, comments and docstrings."""
    prose: set[int] = set()
    for node in statements(tree):
        if isinstance(node, ast.Expr) and _is_text(node):  # of an attribute, too
            prose.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(
        number not in prose and bool(line.strip()) and not line.strip().startswith("#")
        for number, line in lines
    )


def forwards(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function only calls another with its own parameters, unchanged."""
    body = function.body[1:] if _is_text(function.body[0]) else function.body
    if function.decorator_list or len(body) != 1:
        return False
    [statement] = body
    value = statement.value if isinstance(statement, ast.Return | ast.Expr) else None
    while isinstance(value, ast.Await | ast.YieldFrom):
        value = value.value
    if not isinstance(value, ast.Call):
        return False
    passed = [*value.args, *(keyword.value for keyword in value.keywords)]
    taken = function.args
    names = {each.arg for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)}
    names |= {each.arg for each in (taken.vararg, taken.kwarg) if each is not None}
    plain = [each.value if isinstance(each, ast.Starred) else each for each in passed]
    return all(isinstance(each, ast.Name) and each.id in names for each in plain)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def main() -> None:
    """Print the counts, and store the lower ones; with a reason, also the higher ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raise", dest="reason", help="why a number may rise")
    reason: str | None = parser.parse_args().reason
    budget = read() if FILE.exists() else Budget(packages={})
    counted = counts()
    for package in [each for each in budget.packages if each not in counted]:
        del budget.packages[package]
    for package, numbers in counted.items():
        known = budget.packages.setdefault(package, numbers)
        for name, number in numbers.items():
            if number > known.setdefault(name, number) and reason is not None:
                budget.raised.append(f"{package} {name} {known[name]} -> {number}: {reason}")
                known[name] = number
            known[name] = min(known[name], number)
        shown = (f"{name}={number}" for name, number in numbers.items())
        sys.stdout.write(f"{package} {' '.join(shown)}\n")
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(budget), indent=1) + b"\n")


if __name__ == "__main__":
    main()
