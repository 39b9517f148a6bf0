"""List the places that name an operation of a record: `python -m tests.structure.operation NAME`.

NAME is that of the façade, such as `prompts.retire`. An operation is declared once, so there is one
declaration; the rest are the functions that it calls, its callers, its tests and its documentation.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hansard.operations.declare import Operation, of_record
from hansard.operations.record import RecordOperations

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "docs", "examples", "benchmarks")


def operation(name: str) -> Operation:
    """Return an operation by its name in the façade. Raises SystemExit for an unknown one."""
    operations = of_record(RecordOperations)
    declared = operations.get(f"record.{name}")
    if declared is None:
        known = ", ".join(sorted(each.removeprefix("record.") for each in operations))
        sys.exit(f"there is no operation {name!r}: give one of {known}")
    return declared


def place_of(function: Any) -> str:
    """Return the file and line of a function."""
    path = Path(inspect.getsourcefile(function) or "")
    return f"{path.relative_to(ROOT)}:{inspect.getsourcelines(function)[1]}"


def called_by(method: Any) -> Iterator[str]:
    """Yield the places of the functions of Hansard that a method calls by their module."""
    [defined] = ast.parse(textwrap.dedent(inspect.getsource(method))).body
    assert isinstance(defined, ast.AsyncFunctionDef)
    for node in (each for statement in defined.body for each in ast.walk(statement)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=attribute)):
                called = getattr(method.__globals__.get(module), attribute, None)
            case ast.Call(func=ast.Name(id=attribute)):
                called = method.__globals__.get(attribute)
            case _:
                continue
        if inspect.isfunction(called) and called.__module__.startswith("hansard."):
            yield place_of(called)


def mentions(name: str) -> list[str]:
    """Return the tracked lines that call an operation or name it."""
    pattern = rf"(^|[^a-z_]){re.escape(name)}([^a-z_]|$)"
    command = ["git", "grep", "-nE", pattern, "--", *FOLDERS, "*.md"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return [":".join(line.split(":", 2)[:2]) for line in lines.splitlines()]


def places(name: str) -> dict[str, list[str]]:
    """Return the places of an operation by their kind."""
    declared = operation(name)
    method = inspect.getattr_static(declared.noun, declared.attribute).method
    where: dict[str, list[str]] = {
        "declaration": [place_of(method)],
        "calls": sorted({*called_by(method)}),
    }
    for place in mentions(name):
        where.setdefault(place.split("/")[0].split(":")[0], []).append(place)
    return where


def main() -> None:
    """Print the places of the operation of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="such as prompts.retire")
    for kind, where in places(parser.parse_args().name).items():
        sys.stdout.write(f"{kind}\n" + "".join(f"  {place}\n" for place in where))


if __name__ == "__main__":
    main()
