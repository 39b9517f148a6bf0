"""What is measured of Python source: plain functions over `ast`, with no record involved."""

from __future__ import annotations

import ast
import threading
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.Assert,
    ast.comprehension,
    ast.match_case,
)
"""Where control may go two ways. A boolean operator adds one for each operand after the first, as
in McCabe's cyclomatic complexity (which is this count plus one)."""

NESTING = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.Try,
    ast.With,
    ast.AsyncWith,
    ast.Match,
)
"""What the statements inside of it are one level deeper in."""

KEPT_MAX = 12
"""Functions of a module that are kept by each measure: the rest cannot lead a ranking."""

_parsing = threading.Lock()
"""CPython 3.11 counts the parser's recursion for all threads together: two that build a tree at
once may end in "SystemError: AST constructor recursion depth mismatch"."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documentable = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class FunctionMeasure(msgspec.Struct, frozen=True):
    """One function: where it stands, its length in lines, its branches (inner functions apart)."""

    name: str
    line: int
    lines: int
    branches: int


class Measures(msgspec.Struct, frozen=True):
    """One module. `documented` of `public` functions and classes have a docstring, `imports` are
    the top-level names it imports, `largest` its functions with most lines or most branches.
    """

    module: str
    lines: int
    functions: int
    classes: int
    branches: int
    documented: int
    public: int
    imports: list[str]
    largest: list[FunctionMeasure]


class Anatomy(msgspec.Struct, frozen=True):
    """A closer look at one function: its branches by kind, how deep they nest, its parameters."""

    place: str
    kinds: dict[str, int]
    depth: int
    parameters: int


def modules(folder: Path) -> dict[str, int]:
    """The top-level modules of a folder, with their sizes in bytes, by name."""
    return {path.stem: path.stat().st_size for path in sorted(folder.glob("*.py"))}


def source(folder: Path, module: str) -> str:
    """A module's text, decoded as Python would (PEP 263)."""
    with tokenize.open(folder / f"{module}.py") as file:
        return file.read()


def measure(module: str, text: str) -> Measures:
    """Parse and measure a module."""
    tree = _parsed(text)
    functions = [_measured(name, node) for name, node in _functions(tree, "")]
    public = [node for node in _documentable(tree) if not node.name.startswith("_")]
    return Measures(
        module=module,
        lines=text.count("\n"),
        functions=len(functions),
        classes=sum(isinstance(node, ast.ClassDef) for node in ast.walk(tree)),
        branches=sum(function.branches for function in functions),
        documented=sum(ast.get_docstring(node, clean=False) is not None for node in public),
        public=len(public),
        imports=sorted(_imports(tree)),
        largest=_largest(functions),
    )


def _parsed(text: str) -> ast.Module:
    with _parsing:
        return ast.parse(text)


def _measured(name: str, node: Function) -> FunctionMeasure:
    end = node.end_lineno or node.lineno
    return FunctionMeasure(name, node.lineno, end - node.lineno + 1, _branches(node).total())


def _largest(functions: list[FunctionMeasure]) -> list[FunctionMeasure]:
    by_lines = sorted(functions, key=lambda f: (-f.lines, f.line))[:KEPT_MAX]
    by_branches = sorted(functions, key=lambda f: (-f.branches, f.line))[:KEPT_MAX]
    return sorted({*by_lines, *by_branches}, key=lambda f: f.line)


def excerpt(text: str, function: FunctionMeasure) -> str:
    """A function's own lines, indented as they stand."""
    lines = text.split("\n")[function.line - 1 : function.line - 1 + function.lines]
    return "\n".join(lines) + "\n"


def dissect(place: str, text: str) -> Anatomy:
    """Take one function's text apart."""
    indented = text[:1].isspace()  # dedenting would change the texts inside it
    node = next(_functions(_parsed(f"if 1:\n{text}" if indented else text), ""))[1]
    arguments = node.args
    given = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    starred = (arguments.vararg, arguments.kwarg)
    return Anatomy(
        place=place,
        kinds=dict(sorted(_branches(node).items())),
        depth=_depth(node),
        parameters=len(given) + sum(argument is not None for argument in starred),
    )


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, Documentable):
            name = f"{prefix}.{child.name}" if prefix else child.name
        if isinstance(child, Function):
            yield name, child
        yield from _functions(child, name)


def _branches(function: Function) -> Counter[str]:
    counts: Counter[str] = Counter()
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function):
            continue
        if isinstance(node, BRANCHES):
            counts[type(node).__name__] += 1
        elif isinstance(node, ast.BoolOp):
            counts["BoolOp"] += len(node.values) - 1
        waiting.extend(ast.iter_child_nodes(node))
    return counts


def _documentable(tree: ast.Module) -> Iterator[Documentable]:
    """Functions and classes at the top, and methods: what a reader of the API meets."""
    for node in tree.body:
        if isinstance(node, Documentable):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from (inner for inner in node.body if isinstance(inner, Documentable))


def _imports(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found.update(alias.name.split(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module.split(".")[0])
            case _:
                pass
    return found


def _depth(node: ast.AST) -> int:
    inner = max((_depth(child) for child in ast.iter_child_nodes(node)), default=0)
    return inner + isinstance(node, NESTING)
