"""The import graph of the package: rooms, floors, arrows, circles, and doors that are walked past.

    python -m tests.structure.rooms [--json | --mermaid]

A room is a package, with the modules that stand in it directly. Its floors are the longest chain
of imports between them (a circle counts as one floor). An arrow is an import from a module of one
room to one of another; those that only type checkers follow count, and so do those inside of
functions. A circle is a set of modules, or of rooms, each of which reaches each other.

A name that begins with an underscore belongs to its package and those inside it. So a module that
imports `a.b._c`, or `_d` from `a.b.c`, must itself stand within `a.b`.

Lines of code are those with a token of the program on them: no blanks, comments or docstrings. A
module that is made says so in its docstring ("Made by ...") and is counted apart.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import grimp
import msgspec

ROOT = Path(__file__).parents[2]
PACKAGE = "hansard"

SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}

TRIPLE = ('"""', "'''")


class Room(msgspec.Struct):
    """A package: how many modules stand in it directly, the floors of those, and its lines."""

    name: str
    modules: int
    floors: int
    lines: int


class Private(msgspec.Struct, order=True):
    """A private name that a module takes from a package it does not stand in."""

    importer: str
    name: str
    line: int


class Lines(msgspec.Struct):
    """Lines of code, of those that people write and of those that are made."""

    written: int
    made: int


class House(msgspec.Struct):
    """All that is drawn."""

    modules: int
    lines: Lines
    rooms: list[Room]
    arrows: dict[str, dict[str, int]]
    circles: list[list[str]]
    """Of modules."""

    room_circles: list[list[str]]
    """Of the rooms directly under the top."""

    inner_circles: list[list[str]]
    """Of all rooms, but those between a room and the ones inside it."""

    private: list[Private]

    def room(self, name: str) -> Room:
        """A room by its name without the package's."""
        return next(each for each in self.rooms if each.name == name)


def sources(folder: Path = ROOT / "src") -> dict[str, Path]:
    """Each module's file, by its dotted name."""
    found = {}
    for path in sorted((folder / PACKAGE).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def drawn() -> House:
    """The house as it stands."""
    files = sources()
    packages = {name for name, path in files.items() if path.name == "__init__.py"}
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    edges = {(a, b) for a in files for b in graph.find_modules_directly_imported_by(a)}
    home = {name: name if name in packages else name.rpartition(".")[0] for name in files}
    code = {name: lines(path.read_text(encoding="utf-8")) for name, path in files.items()}
    between = Counter((home[a], home[b]) for a, b in edges if home[a] != home[b])
    arrows: dict[str, dict[str, int]] = {}
    for (a, b), count in sorted(between.items()):
        arrows.setdefault(_short(a), {})[_short(b)] = count
    return House(
        modules=len(files),
        lines=Lines(
            sum(code[name] for name, path in files.items() if not made(path)),
            sum(code[name] for name, path in files.items() if made(path)),
        ),
        rooms=[
            Room(
                _short(room),
                sum(home[name] == room for name in files),
                floors(edges, {name for name in files if home[name] == room}),
                sum(code[name] for name in files if home[name] == room),
            )
            for room in sorted(packages)
        ],
        arrows=arrows,
        circles=circles(edges),
        room_circles=circles({(_top(a), _top(b)) for a, b in edges if _top(a) != _top(b)}),
        inner_circles=circles({(a, b) for a, b in between if not _nested(a, b)}),
        private=sorted(private(files, packages)),
    )


def _short(name: str) -> str:
    """A room's name without the package's; the package itself is `.`."""
    return name.removeprefix(PACKAGE).removeprefix(".") or "."


def _top(name: str) -> str:
    """Return the top-level package of a module, or the module itself."""
    return ".".join(name.split(".")[:2])


def _nested(a: str, b: str) -> bool:
    return within(a, b) or within(b, a)


def within(inner: str, outer: str) -> bool:
    """Whether a module or package is another, or stands in it, however deep."""
    return f"{inner}.".startswith(f"{outer}.")


# ---------------------------------------------------------------- graphs


def circles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The sets of more than one node that all reach each other."""
    graph = grimp.ImportGraph()
    nodes = {node for edge in edges for node in edge}
    named = {node: f"n{number}" for number, node in enumerate(sorted(nodes))}  # no parents in names
    back = {name: node for node, name in named.items()}
    for node in named.values():
        graph.add_module(node)
    for a, b in edges:
        graph.add_import(importer=named[a], imported=named[b])
    found = set()
    for node in named.values():
        both = graph.find_upstream_modules(node) & graph.find_downstream_modules(node)
        if both - {node}:
            found.add(tuple(sorted(back[each] for each in both | {node})))
    return [list(each) for each in sorted(found)]


def floors(edges: Iterable[tuple[str, str]], modules: set[str]) -> int:
    """The modules on the longest chain of imports between these; a circle is one floor."""
    inside = {(a, b) for a, b in edges if a in modules and b in modules}
    ring = {node: each[0] for each in circles(inside) for node in each}
    below: dict[str, set[str]] = {ring.get(node, node): set() for node in modules}
    for a, b in inside:
        if ring.get(a, a) != ring.get(b, b):
            below[ring.get(a, a)].add(ring.get(b, b))
    depth: dict[str, int] = {}

    def down(node: str) -> int:
        if node not in depth:
            depth[node] = 1 + max(map(down, below[node]), default=0)
        return depth[node]

    return max(map(down, below), default=0)


# ---------------------------------------------------------------- private names


def private(files: dict[str, Path], packages: set[str]) -> Iterator[Private]:
    """What each module takes that belongs to a package it does not stand in."""
    for importer, path in files.items():
        tree = _parsed(path.read_text(encoding="utf-8"))
        here = importer if importer in packages else importer.rpartition(".")[0]
        for node in statements(tree):
            for taken in _taken(node):
                owner = _owner(taken, files, packages)
                if owner is not None and not within(here, owner):
                    yield Private(importer, taken, getattr(node, "lineno", 0))


def _taken(node: ast.AST) -> Iterator[str]:
    """The dotted names that an import takes from this package."""
    match node:
        case ast.Import(names=names):
            found = [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), names=names, level=0):
            found = [f"{module}.{alias.name}" for alias in names]
        case _:
            found = []
    yield from (name for name in found if within(name, PACKAGE))


def _owner(name: str, files: dict[str, Path], packages: set[str]) -> str | None:
    """The package that a private name belongs to: where its first part with a `_` stands."""
    parts = name.split(".")
    for end, part in enumerate(parts):
        if part.startswith("_") and not part.startswith("__"):
            around = ".".join(parts[:end])
            return around if around in packages or around not in files else _package(around)
    return None


def _package(module: str) -> str:
    return module.rpartition(".")[0]


# ---------------------------------------------------------------- lines


def made(path: Path) -> bool:
    """Whether a module is made by a program: its docstring says so."""
    told = ast.get_docstring(_parsed(path.read_text(encoding="utf-8"))) or ""
    return "made by " in told.lower() and "do not edit" in told.lower()


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements in one, however deep, and not what they are made of: a tenth of the nodes."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        for each in getattr(node, part, ()):
            yield each
            yield from statements(each)


def lines(text: str) -> int:
    """The lines with a token of the program on them."""
    quiet: set[int] = set()
    rows = text.split("\n")
    said = 0
    for node in statements(_parsed(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                quiet |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
                said += rows[node.lineno - 1].lstrip().startswith(TRIPLE)
            case _:
                pass
    silent = {at for at, row in enumerate(rows, 1) if row.strip()[:1] in {"", "#", "\\"}}
    long = sum(map(text.count, TRIPLE)) != 2 * said or "\\\n" in text  # texts over some lines
    spanned = {
        line
        for node in (ast.walk(_parsed(text)) if long else ())
        if isinstance(node, ast.Constant | ast.JoinedStr)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    if not (silent & spanned) - quiet:  # as the tokens say, in a third of their time
        return len(rows) - len(silent | quiet)
    full = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in SILENT
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(full - quiet)


# ---------------------------------------------------------------- told


def told(house: House) -> Iterator[str]:
    """For people."""
    yield f"{house.modules} modules, {house.lines.written:,} lines of code"
    if house.lines.made:
        yield f"and {house.lines.made:,} lines that are made"
    yield f"\n{'room':<24}{'modules':>8}{'floors':>8}{'lines':>8}  imports from"
    for room in house.rooms:
        to = ", ".join(f"{name} {count}" for name, count in house.arrows.get(room.name, {}).items())
        yield f"{room.name:<24}{room.modules:>8}{room.floors:>8}{room.lines:>8}  {to}"
    parts = {
        "circles of modules": house.circles,
        "circles of rooms under the top": house.room_circles,
        "circles of rooms, but between one and those inside it": house.inner_circles,
    }
    for what, found in parts.items():
        yield f"\n{what}: {len(found)}"
        yield from ("  " + ", ".join(_short(each) for each in circle) for circle in found)
    yield f"\nprivate names taken from other packages: {len(house.private)}"
    yield from (f"  {each.importer}:{each.line} {each.name}" for each in house.private)


def mermaid(house: House) -> Iterator[str]:
    """The rooms directly under the top and the arrows between them, as a diagram."""
    between: Counter[tuple[str, str]] = Counter()
    for a, to in house.arrows.items():
        for b, count in to.items():
            pair = (a.partition(".")[0] or "top", b.partition(".")[0] or "top")
            if pair[0] != pair[1]:
                between[pair] += count
    yield "graph TD"
    yield from (f"    {a} -->|{count}| {b}" for (a, b), count in sorted(between.items()))


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description="The import graph of the package.")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="all of it, for programs")
    how.add_argument("--mermaid", action="store_true", help="the rooms under the top, as a diagram")
    given = parser.parse_args()
    house = drawn()
    if given.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(house), indent=1).decode() + "\n")
        return
    sys.stdout.writelines(f"{line}\n" for line in (mermaid if given.mermaid else told)(house))


if __name__ == "__main__":
    main()
