"""Imports of a test file that wait for its first test.

Each worker collects all test files, so that a package that one file uses is imported by all of
them. Imports under `if LATE:`, and classes that need them, wait:

    if LATE:
        from agents import Agent
"""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

LATE: bool = False
"""False while files are collected: code under it runs before the first test of its file."""


def run_late(module: ModuleType) -> None:
    """Run the code under `if LATE:` of a test module."""
    path = Path(str(module.__file__))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [
        statement
        for each in tree.body
        if isinstance(each, ast.If) and ast.unparse(each.test) == "LATE"
        for statement in each.body
    ]
    exec(compile(tree, path, "exec"), vars(module))  # noqa: S102 -- code of the test file itself
