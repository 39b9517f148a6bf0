"""The wheel is src/hansard, the sdist the whole repository: exactly the tracked files."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
LINKS = ("agents", "bus", "domain", "projections")
BUILD_S_MAX = 170
BUILD = """
import gzip, sys
from hatchling.cli import hatchling

gzip.GzipFile.__init__.__defaults__ = (None, None, 1, None, None)  # half of a build is to press
sys.exit(hatchling())
"""


class Built(msgspec.Struct):
    """The two packages, made from one copy of the tracked files."""

    wheel: Path
    sdist: Path
    tracked: frozenset[str]


def _tracked() -> frozenset[str]:
    """Files that git tracks, or would track: present, and not ignored. Links are left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split("\0")
    return frozenset(name for name in listed if (ROOT / name).is_file() and name not in LINKS)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Built:
    """Build both packages from the present files without a download."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git checkout: there is no list of tracked files to compare with")
    copy = tmp_path_factory.mktemp("checkout")
    tracked = _tracked()
    for name in tracked:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    for link in LINKS:
        (copy / link).symlink_to((ROOT / link).readlink())
    subprocess.run(
        [sys.executable, "-c", BUILD, "build", "-t", "wheel", "-t", "sdist"],
        cwd=copy,
        check=True,
        capture_output=True,
        timeout=BUILD_S_MAX,
    )
    (wheel,) = (copy / "dist").glob("*.whl")
    (sdist,) = (copy / "dist").glob("*.tar.gz")
    return Built(wheel, sdist, tracked)


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Iterator[Path]:
    """Yield an environment with the built wheel; its libraries are those of the test
    environment.
    """
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=scheme))
    install = ["-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet"]
    subprocess.run(
        [sys.executable, *install, "--no-deps", "--no-index", "--no-compile", built.wheel],
        check=True,
        timeout=BUILD_S_MAX,
    )
    # A plain path is read after this environment's own packages and does not run the .pth files
    # in it, so that an editable install of the source cannot stand in for the wheel.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield folder / "bin"
    shutil.rmtree(folder)


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=170
    )


def test_the_wheel_holds_the_package_and_nothing_else(built):
    """Every tracked file of src/hansard is in the wheel, and beside it only its metadata."""
    with zipfile.ZipFile(built.wheel) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == {
        name.removeprefix("src/") for name in built.tracked if name.startswith("src/hansard/")
    }


def test_the_wheel_carries_the_licence_and_the_types(built):
    """Type checkers read the package's annotations, and the licence travels along."""
    with zipfile.ZipFile(built.wheel) as wheel:
        names = wheel.namelist()
    assert "hansard/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_sdist_holds_every_tracked_file_once(built):
    """The sdist is the repository: only the root links, second names of its files, are left out."""
    with tarfile.open(built.sdist) as sdist:
        members = sdist.getmembers()
    held = [member.name.split("/", 1)[1] for member in members if member.isfile()]
    assert len(held) == len(set(held))
    assert set(held) == built.tracked | {"PKG-INFO"}
    assert not [member.name for member in members if member.issym() or member.islnk()]


@pytest.mark.parametrize("name", LINKS)
def test_the_four_parts_stand_at_the_top(name):
    """Each root link is relative, so that it holds in any checkout, and leads to the real code."""
    link = ROOT / name
    if not (ROOT / ".git").exists():
        pytest.skip("an unpacked sdist has no root links")
    assert link.is_symlink()
    assert link.readlink() == Path("src") / "hansard" / name
    assert (link / "__init__.py").is_file()


OWN_ENVIRONMENTS = {"adk", "claude"}
"""Extras whose packages contradict others or are large; requirements/NAME.txt has them."""

FRAMEWORKS = {"agent", "agent-framework", "langchain", "openai-agents", "pydantic-ai"}
"""Extras of frameworks, which only tests have: requirements/dev.in names them."""


def test_the_locked_environment_has_all_extras():
    """Every extra is pinned, and only tests have the frameworks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        extra: [re.split("[<>=~! ]", each)[0] for each in requirements]
        for extra, requirements in project["optional-dependencies"].items()
        if extra not in OWN_ENVIRONMENTS
    }
    for lock, kept in {"run": extras.keys() - FRAMEWORKS, "dev": extras.keys()}.items():
        pinned = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
        names = [name for extra in kept for name in extras[extra]]
        assert names
        assert not [name for name in names if f"\n{name}==" not in pinned], lock


def test_the_installed_wheel_is_imported(installed, tmp_path):
    """`import hansard` finds the wheel's own code, not the source folder."""
    done = _run(installed / "python", "-c", "import hansard; print(hansard.__file__)", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(installed.parent)


def test_the_installed_command_explains_itself(installed, tmp_path):
    """`hansard --help` runs from the wheel."""
    done = _run(installed / "hansard", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout.lower()
