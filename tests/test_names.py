"""`hansard.` offers only public names, and no leftovers of imports."""

import importlib
import pkgutil
import subprocess
import sys

import hansard
from tests.names import exported


def test_the_package_offers_its_public_names_only() -> None:
    """`dir` and a star import have the public names; all else are modules of the package."""
    modules = {each.name for each in pkgutil.iter_modules(hansard.__path__)}
    public = set(exported(hansard))
    star: dict[str, object] = {}
    exec("from hansard import *", star)  # noqa: S102 -- only a module may do it otherwise
    assert public <= star.keys()
    for module in modules - {"__main__"}:
        importlib.import_module(f"hansard.{module}")
    # pytest itself puts names with an @ into each module of a package that brings a plugin.
    there = {name for name in vars(hansard) if not name.startswith(("_", "@"))}
    assert there <= public | modules


def test_a_name_that_is_not_public_is_not_there() -> None:
    """Also in a program that has imported nothing else."""
    code = "import hansard; print([n for n in ('Any', 'TYPE_CHECKING') if hasattr(hansard, n)])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=170
    )
    assert done.stdout == "[]\n"
