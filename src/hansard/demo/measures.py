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
    tally = _Tally()
    tally.look(tree, "", None)
    functions = [_measured(name, node, counts) for name, node, counts in tally.functions]
    public = [node for node in _documentable(tree) if not node.name.startswith("_")]
    return Measures(
        module=module,
        lines=text.count("\n"),
        functions=len(functions),
        classes=tally.classes,
        branches=sum(function.branches for function in functions),
        documented=sum(ast.get_docstring(node, clean=False) is not None for node in public),
        public=len(public),
        imports=sorted(tally.imports),
        largest=_largest(functions),
    )


def _parsed(text: str) -> ast.Module:
    with _parsing:
        return ast.parse(text)


def _measured(name: str, node: Function, branches: Counter[str]) -> FunctionMeasure:
    end = node.end_lineno or node.lineno
    return FunctionMeasure(name, node.lineno, end - node.lineno + 1, branches.total())


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
    tally = _Tally()
    tally.look(_parsed(f"if 1:\n{text}" if indented else text), "", None)
    _, node, branches = tally.functions[0]
    arguments = node.args
    given = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    starred = (arguments.vararg, arguments.kwarg)
    return Anatomy(
        place=place,
        kinds=dict(sorted(branches.items())),
        depth=_depth(node),
        parameters=len(given) + sum(argument is not None for argument in starred),
    )


class _Tally:
    """What there is in a tree, gone through once: it takes most of the time of measuring."""

    def __init__(self) -> None:
        self.functions: list[tuple[str, Function, Counter[str]]] = []
        """Each with its name, in the order of the text, and its own branches by kind."""
        self.classes = 0
        self.imports: set[str] = set()

    def look(self, node: ast.AST, prefix: str, branches: Counter[str] | None) -> None:
        """Take in what stands inside a node; `branches` are those of the function around it."""
        for child in ast.iter_child_nodes(node):
            name, counts = prefix, branches
            match child:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    name, counts = _inside(prefix, child.name), Counter()
                    self.functions.append((name, child, counts))
                case ast.ClassDef():
                    name = _inside(prefix, child.name)
                    self.classes += 1
                case ast.Import(names=names):
                    self.imports.update(alias.name.split(".")[0] for alias in names)
                case ast.ImportFrom(module=str(module), level=0):
                    self.imports.add(module.split(".")[0])
                case ast.BoolOp(values=values) if counts is not None:
                    counts["BoolOp"] += len(values) - 1
                case _ if counts is not None and isinstance(child, BRANCHES):
                    counts[type(child).__name__] += 1
                case _:
                    pass
            if child._fields:
                self.look(child, name, counts)


def _inside(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _documentable(tree: ast.Module) -> Iterator[Documentable]:
    """Functions and classes at the top, and methods: what a reader of the API meets."""
    for node in tree.body:
        if isinstance(node, Documentable):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from (inner for inner in node.body if isinstance(inner, Documentable))


def _depth(node: ast.AST) -> int:
    inner = max((_depth(child) for child in ast.iter_child_nodes(node)), default=0)
    return inner + isinstance(node, NESTING)
