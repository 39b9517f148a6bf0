"""Folders of tests are removed as soon as nobody uses them: a whole run writes more than 4 GB.

pytest removes the folder of a test once it has passed, and what fixtures write after the last test,
if none has failed. Here the folders of a fixture go with the fixture, unless a test failed in the
meantime, and an embedded broker's once the broker has ended.
"""

import contextlib
import getpass
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROKERS = "broker"
"""Name of the folders that outlive the fixture that makes them: `remove_later` gets them."""

_running: list[Any] = []
_written: dict[Any, list[Path]] = defaultdict(list)
_failed: dict[Any, int] = {}
_waiting: list[Path] = []


def remove_later(folder: Path) -> None:
    """Remove a folder once no embedded broker runs on it, at the earliest with the next fixture."""
    _waiting.append(folder)


@pytest.fixture(scope="session", autouse=True)
def _folders_are_counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Note which fixture makes a folder."""
    make = tmp_path_factory.mktemp

    def noted(basename: str, numbered: bool = True) -> Path:
        folder = make(basename, numbered)
        if _running and basename != BROKERS:
            _written[_running[-1]].append(folder)
        return folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tmp_path_factory, "mktemp", noted)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Iterator[None]:
    """Note the fixture that is set up; pytest itself removes those of `tmp_path`."""
    if fixturedef.argname == "tmp_path":
        return (yield)
    _running.append(fixturedef)
    _failed[fixturedef] = request.session.testsfailed
    try:
        return (yield)
    finally:
        _running.pop()


def pytest_fixture_post_finalizer(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> None:
    """Remove the folders of a fixture, and of brokers that have ended."""
    failed = _failed.pop(fixturedef, None)
    folders = _written.pop(fixturedef, [])
    if failed == request.session.testsfailed:
        _waiting.extend(folders)
    if fixturedef.scope != "function" or folders:
        for folder in [each for each in _waiting if not _has_broker(each)]:
            _waiting.remove(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _has_broker(folder: Path) -> bool:
    return any(any(folder.glob(state)) for state in ("state.json", "*/state.json"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Give up the locks of killed runs, which pytest would keep for three days with all they
    wrote.
    """
    if hasattr(session.config, "workerinput"):
        return
    root = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())
    for lock in root.glob(f"pytest-of-{getpass.getuser()}/pytest-*/.lock"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(lock.read_text())
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                lock.unlink()
