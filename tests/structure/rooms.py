"""The import graph of the package: `python -m tests.structure.rooms` prints it.

A room is a package, with the modules that stand in it directly. An arrow is an import from a module
of one room to one of another; those that only type checkers follow count, and so do those inside of
functions. A circle is a set of modules, or of rooms, each of which reaches each other.

A name that begins with an underscore belongs to its package and those inside it. So a module that
imports `a.b._c`, or `_d` from `a.b.c`, must itself stand within `a.b`.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp
import msgspec

ROOT = Path(__file__).parents[2]
PACKAGE = "hansard"


class Room(msgspec.Struct):
    """A package, and how many modules stand in it directly."""

    name: str
    modules: int


class Private(msgspec.Struct, order=True):
    """A private name that a module takes from a package it does not stand in."""

    importer: str
    name: str
    line: int


class House(msgspec.Struct):
    """Everything that is drawn."""

    modules: int
    rooms: list[Room]
    arrows: dict[str, dict[str, int]]
    circles: list[list[str]]
    """Import cycles of modules."""

    room_circles: list[list[str]]
    """Import cycles of the packages directly under the top."""

    inner_circles: list[list[str]]
    """Import cycles of all packages, except between a package and those inside it."""

    private: list[Private]


def sources(folder: Path = ROOT / "src") -> dict[str, Path]:
    """Each module's file, by its dotted name."""
    files = {}
    for path in sorted((folder / PACKAGE).rglob("*.py")):
        if not path.with_name("__init__.py").exists():  # a program's own path, no package
            continue
        parts = path.relative_to(folder).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return a file as a tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


def drawn() -> House:
    """Return the current import structure."""
    files = sources()
    packages = {name for name, path in files.items() if path.name == "__init__.py"}
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    edges = {(a, b) for a in files for b in graph.find_modules_directly_imported_by(a)}
    home = {name: name if name in packages else name.rpartition(".")[0] for name in files}
    between = Counter((home[a], home[b]) for a, b in edges if home[a] != home[b])
    arrows: dict[str, dict[str, int]] = {}
    for (a, b), count in sorted(between.items()):
        arrows.setdefault(_short(a), {})[_short(b)] = count
    return House(
        modules=len(files),
        rooms=[
            Room(_short(room), sum(home[name] == room for name in files))
            for room in sorted(packages)
        ],
        arrows=arrows,
        circles=circles(edges),
        room_circles=circles({(_top(a), _top(b)) for a, b in edges if _top(a) != _top(b)}),
        inner_circles=circles({(a, b) for a, b in between if not _nested(a, b)}),
        private=sorted(private(files, packages)),
    )


def _short(name: str) -> str:
    """Return a package's name without the top package's; the top package is `.`."""
    return name.removeprefix(PACKAGE).removeprefix(".") or "."


def _top(name: str) -> str:
    """Return the top-level package of a module, or the module itself."""
    return ".".join(name.split(".")[:2])


def _nested(a: str, b: str) -> bool:
    return within(a, b) or within(b, a)


def within(inner: str, outer: str) -> bool:
    """Return whether a module or package is another, or is inside it, at any depth."""
    return f"{inner}.".startswith(f"{outer}.")


# ---------------------------------------------------------------- graphs


def circles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the sets of more than one node that all reach each other."""
    graph = grimp.ImportGraph()
    nodes = {node for edge in edges for node in edge}
    named = {node: f"n{number}" for number, node in enumerate(sorted(nodes))}  # no parents in names
    back = {name: node for node, name in named.items()}
    for node in named.values():
        graph.add_module(node)
    for a, b in edges:
        graph.add_import(importer=named[a], imported=named[b])
    cycles = set()
    for node in named.values():
        both = graph.find_upstream_modules(node) & graph.find_downstream_modules(node)
        if both - {node}:
            cycles.add(tuple(sorted(back[each] for each in both | {node})))
    return [list(each) for each in sorted(cycles)]


# ---------------------------------------------------------------- private names


def private(files: dict[str, Path], packages: set[str]) -> Iterator[Private]:
    """Yield each use of a private name of a package from outside of it."""
    for importer, path in files.items():
        tree = parsed(path)
        here = importer if importer in packages else importer.rpartition(".")[0]
        for node in statements(tree):
            for taken in _taken(node):
                owner = _owner(taken, files, packages)
                if owner is not None and not within(here, owner):
                    yield Private(importer, taken, getattr(node, "lineno", 0))


def _taken(node: ast.AST) -> Iterator[str]:
    """Return the dotted names that an import takes from this package."""
    match node:
        case ast.Import(names=names):
            imported = [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), names=names, level=0):
            imported = [f"{module}.{alias.name}" for alias in names]
        case _:
            imported = []
    yield from (name for name in imported if within(name, PACKAGE))


def _owner(name: str, files: dict[str, Path], packages: set[str]) -> str | None:
    """Return the package that owns a private name: the one with its first part that begins with
    `_`.
    """
    parts = name.split(".")
    for end, part in enumerate(parts):
        if part.startswith("_") and not part.startswith("__"):
            around = ".".join(parts[:end])
            return around if around in packages or around not in files else _package(around)
    return None


def _package(module: str) -> str:
    return module.rpartition(".")[0]


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements in a node at any depth, without expressions: a tenth of the nodes."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        for each in getattr(node, part, ()):
            yield each
            yield from statements(each)


# ---------------------------------------------------------------- report


def main() -> None:
    """Print rooms, arrows, circles and private names taken from other packages."""
    house = drawn()
    rows = [f"{house.modules} modules", ""]
    for room in house.rooms:
        to = ", ".join(f"{name} {count}" for name, count in house.arrows.get(room.name, {}).items())
        rows.append(f"{room.name:<24}{room.modules:>8}  imports from {to}")
    for what, cycles in (
        ("circles of modules", house.circles),
        ("circles of rooms under the top", house.room_circles),
        ("circles of rooms, but between one and those inside it", house.inner_circles),
    ):
        rows += [f"\n{what}: {len(cycles)}"]
        rows += ("  " + ", ".join(_short(each) for each in circle) for circle in cycles)
    rows.append(f"\nprivate names taken from other packages: {len(house.private)}")
    rows += (f"  {each.importer}:{each.line} {each.name}" for each in house.private)
    sys.stdout.writelines(f"{row}\n" for row in rows)


if __name__ == "__main__":
    main()
