"""The shape of the source tree: no circle, no private name of another package, no stale map."""

import re
from pathlib import Path

import pytest

from tests.structure.rooms import House, circles, drawn, private, sources

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def house() -> House:
    """Return the current structure of the tree."""
    return drawn()


def test_every_module_is_in_a_room(house: House):
    """The rooms hold each module of the package once."""
    assert sum(room.modules for room in house.rooms) == house.modules == len(sources())
    assert house.modules > 100


def test_no_circle(house: House):
    """No module and no package is in an import cycle, at the top or inside."""
    assert not house.circles
    assert not house.room_circles
    assert not house.inner_circles


def test_nobody_walks_past_a_door(house: House):
    """No private name is taken from another package."""
    assert not house.private


# ---------------------------------------------------------------- what is measured


def test_a_circle_is_reported_whole():
    """Mutually reachable nodes are one circle; others are not in it."""
    edges = [("x", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "y"), ("p", "q"), ("q", "p")]
    assert circles(edges) == [["a", "b", "c"], ["p", "q"]]
    assert circles([("a", "b"), ("b", "c"), ("a", "c")]) == []


@pytest.mark.parametrize(
    ("importer", "says", "taken"),
    [
        ("hansard.a.inner.m", "from hansard.a._x import y", []),
        ("hansard.a._x", "from hansard.a.m import _y", []),
        ("hansard.a", "import hansard.a._x", []),
        ("hansard.b.m", "from hansard.a._x import y", ["hansard.a._x.y"]),
        ("hansard.b.m", "from hansard.a import _x", ["hansard.a._x"]),
        ("hansard.b.m", "import hansard.a._x", ["hansard.a._x"]),
        ("hansard.b.m", "from hansard.a.m import _y", ["hansard.a.m._y"]),
        ("hansard.a.m", "from hansard.a.inner._z import y", ["hansard.a.inner._z.y"]),
        ("hansard.b.m", "def f():\n    from hansard.a import _x", ["hansard.a._x"]),
        ("hansard.b.m", "from hansard._version import __version__", []),
        ("hansard.b.m", "from hansard.a.m import y", []),
        ("hansard.b.m", "from other._x import _y", []),
    ],
)
def test_an_underscore_means_this_package_and_those_inside_it(tmp_path, importer, says, taken):
    """Only modules inside the package of a private name may import it."""
    packages = {"hansard", "hansard.a", "hansard.a.inner", "hansard.b"}
    file = tmp_path / "m.py"
    file.write_text(says)
    others = dict.fromkeys(("hansard.a._x", "hansard.a.m"), tmp_path / "none.py")
    (tmp_path / "none.py").write_text("")
    taken_names = private({**others, importer: file}, packages)
    assert [each.name for each in taken_names if each.importer == importer] == taken


# ---------------------------------------------------------------- its description

ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"
PACKAGE = Path(__file__).parents[2] / "src" / "hansard"
WALKS = 4


def walks() -> dict[str, str]:
    """Return the walks of ARCHITECTURE.md, by subject."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    section = text.partition("## Four walks\n")[2].partition("\n## ")[0]
    parts = re.split(r"^\*\*(.+)\*\*$", section, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_a_walk_crosses_each_room_once():
    """A walk crosses existing packages, each once, and its files are in the named package."""
    walks_by_subject = walks()
    assert len(walks_by_subject) == WALKS
    for text in walks_by_subject.values():
        steps = re.findall(r"^\d\. `([a-z_/]+)/`:((?:.|\n   )+)", text, flags=re.MULTILINE)
        rooms = [room for room, _ in steps]
        assert len(rooms) == len(set(rooms)) >= WALKS
        for room, sentence in steps:
            for name in re.findall(r"`([a-z_/]+(?:\.py|/))`", sentence):
                assert (PACKAGE / room / name).exists() or (PACKAGE / name).exists(), (room, name)


def test_each_path_that_architecture_names_is_there():
    """Each path of the package that ARCHITECTURE.md names exists: a file, folder or pattern."""
    rows = re.findall(
        r"^\| (`.+?) \|", ARCHITECTURE.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    folder = PACKAGE
    assert len(names) > 50
    for name in (each.rstrip("/") for each in names):
        if "/" in name:
            folder = (PACKAGE / name).parent
        assert [*PACKAGE.glob(name), *folder.glob(name)], name
