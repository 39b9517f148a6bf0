"""A plugin for pytest: the first run of a test records its agents' calls, later runs replay them.

    @pytest.mark.hansard("weather.jsonl")
    def test_the_agent_answers(hansard_record):
        assert agent(hansard_record) == "sunny"

`hansard_record` is a record in memory; `hansard_recording.record_async()` one for the async client.
A replay is strict: no tool runs, the network is blocked, and a call that is not on record fails, as
does a recorded call that is not made. `--hansard=MODE` chooses what is replayed and recorded:

    none    replay only; a test without a recording fails before it starts. The default under CI.
    once    replay the recordings that exist, and record those that are missing. The default.
    new     replay the calls that are on record, and record calls that are not.
    all     record every test again.

A file is written once its test has passed, whole or not at all. The fixture `hansard_options`
returns the options of the record (`redact`, `secrets`, `gate` ...), which keep secrets out of a
recording.

Nothing of Hansard is imported until a test uses a fixture.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

PASSED = pytest.StashKey[bool]()
REPLAYED = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--hansard`."""
    group = parser.getgroup("hansard")
    group.addoption(
        "--hansard",
        choices=("none", "once", "new", "all"),
        help="for tests marked 'hansard': none replays only, once also records missing files, new "
        "also records missing calls, all records everything again [once; none where CI is set]",
    )


def _mode(config: pytest.Config) -> str:
    """Return the selected mode; the default is `none` if CI is set, else `once`."""
    chosen: str | None = config.getoption("--hansard")
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return chosen or ("none" if in_ci else "once")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `hansard`."""
    config.addinivalue_line(
        "markers", "hansard(file): replays the file's recording, or writes it the first time"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise UsageError if two tests would write one recording."""
    owners: dict[Path, str] = {}
    for item in items:
        path = _path(item)
        if path is None:
            continue
        if owners.setdefault(path, item.nodeid) != item.nodeid:
            message = f"{path} is the recording of {owners[path]} and of {item.nodeid}: name two"
            raise pytest.UsageError(message)


def _path(item: pytest.Item) -> Path | None:
    """Return the path of a test's recording, relative to the test's file.

    Each set of parameters has its own. The name includes a digest if the parameters contain
    characters that a file name cannot, so that `a/b` and `a_b` differ.
    """
    marker = item.get_closest_marker("hansard")
    if marker is None:
        return None
    if len(marker.args) != 1 or not isinstance(marker.args[0], str) or marker.kwargs:
        message = f"{item.nodeid}: give the marker one file: @pytest.mark.hansard('name.jsonl')"
        raise pytest.UsageError(message)
    path = item.path.parent / marker.args[0]
    _, bracket, parameters = item.name.partition("[")
    if bracket:
        parameters = parameters.removesuffix("]")
        name = re.sub(r"[^\w.-]+", "_", parameters)
        if name != parameters:
            name += f"-{hashlib.sha256(parameters.encode()).hexdigest()[:8]}"
        path = path.with_stem(f"{path.stem}-{name}")
    return path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test passed; add the command to record again to a failed replay."""
    report = yield
    if call.when == "call":
        item.stash[PASSED] = report.passed
    if report.failed and REPLAYED in item.stash:
        remedy = f"it replayed {item.stash[REPLAYED]}; --hansard=all records it again"
        report.sections.append(("hansard", remedy))
    return report


class Recording:
    """A test's recording, which is either written or replayed.

    Attributes:
        path: The file.
        replays: True if the file is replayed and nothing is recorded.
    """

    def __init__(
        self, path: Path, options: dict[str, Any], *, replays: bool, extends: bool = False
    ) -> None:
        from hansard.testing import Memory  # noqa: PLC0415 -- only tests that are marked need it

        self.path = path
        self.replays = replays
        self._extends = extends
        self._options = options
        self._memory = Memory()
        self._begun: list[str] = []
        self._runs: list[tuple[str, str]] = []
        self._unbegun: set[tuple[str, str]] = set()
        if replays or extends:
            self._memory.load(path)
            with self._memory.record() as record:
                recorded = list(reversed(record.runs()))
            self._runs = [(run, state.workflow) for run, state in recorded]
            self._unbegun = {(run, agent) for run, state in recorded for agent in state.roster}

    def record(self) -> Any:
        """Open a record for the sync client."""
        return self._replaying(self._memory.record(**self._record_options()))

    def record_async(self) -> Any:
        """Open a record for the async client: `async with`."""
        return self._replaying(self._memory.record_async(**self._record_options()))

    def _record_options(self) -> dict[str, Any]:
        return {**self._options, **({"mode": "strict"} if self.replays else {})}

    def _replaying(self, record: Any) -> Any:
        """Return the record, with its runs mapped in order to those of the recording."""
        if self.replays or self._extends:
            for name in ("run", "open"):
                setattr(record, name, self._begin(getattr(record, name)))
        return record

    def _begin(self, begin: Any) -> Any:
        def begun(workflow: str | None = None, **options: Any) -> Any:
            run = options.get("run") or self._next(workflow)
            agent = options.get("agent") or os.environ.get("HANSARD_AGENT", "agent")
            self._unbegun.discard((run, agent))
            return begin(workflow, **(options | {"run": run} if run else options))

        return begun

    def _next(self, workflow: str | None) -> str | None:
        """Return the next recorded run; None if this extends the recording by a run."""
        at = len(self._begun)
        if at >= len(self._runs):
            if self._extends:
                return None
            self._fail(f"on record: {len(self._runs)} runs\n  now:       one more, of {workflow!r}")
        run, recorded = self._runs[at]
        if workflow is not None and workflow != recorded:
            self._fail(f"on record: run {at + 1} is of {recorded!r}\n  now:       of {workflow!r}")
        self._begun.append(run)
        return run

    def _fail(self, sides: str) -> NoReturn:
        pytest.fail(
            f"the runs of {self.path.name} are not those of this test\n  {sides}", pytrace=False
        )

    def demand_all(self) -> None:
        """Fail if fewer runs were begun than are on record."""
        left = self._runs[len(self._begun) :]
        if left:
            made = len(self._begun)
            self._fail(
                f"on record: {len(self._runs)} runs\n  now:       {made}, not {left[0][1]!r}"
            )

    def save(self) -> None:
        """Write the file atomically."""
        part = self.path.with_name(f".{self.path.name}.part")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._memory.export(part)
        part.replace(self.path)


@pytest.fixture
def hansard_options() -> dict[str, Any]:
    """Return options of the record: `redact`, `secrets`, `gate` and others. Override it."""
    return {}


@pytest.fixture
def hansard_recording(
    request: pytest.FixtureRequest, hansard_options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Recording]:
    """Provide the recording of a test marked `hansard`."""
    item: pytest.Item = request.node
    path = _path(item)
    if path is None:
        pytest.fail("mark the test: @pytest.mark.hansard('name.jsonl')", pytrace=False)
    mode = _mode(item.config)
    exists = path.exists()
    if mode == "none" and not exists:
        pytest.fail(
            f"recording {path} is missing, and nothing is recorded in mode 'none' (the default "
            "where CI is set): record it with --hansard=once, and commit the file",
            pytrace=False,
        )
    replays = exists and mode in ("none", "once")
    extends = exists and mode == "new"
    recording = Recording(path, hansard_options, replays=replays, extends=extends)
    if replays:
        item.stash[REPLAYED] = path
        cut_network(monkeypatch)
    yield recording
    passed = item.stash.get(PASSED, False)
    if passed and replays:
        recording.demand_all()
    elif passed:
        recording.save()


@pytest.fixture
def hansard_record(hansard_recording: Recording) -> Iterator[Any]:
    """Provide a record for the sync client, backed by the test's recording."""
    with hansard_recording.record() as record:
        yield record


class NetworkCut(OSError):
    """A test that replays a recording opened a network connection."""

    def __init__(self, address: object) -> None:
        super().__init__(f"a replay has no network, {address!r} is blocked: use --hansard=all")


def cut_network(patch: pytest.MonkeyPatch) -> None:
    """Block every connection except to Unix sockets until the test ends."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def refused(before: Any) -> Any:
        def call(self: socket.socket, address: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6):
                raise NetworkCut(address)
            return before(self, address)

        return call

    def no_name(host: object, *_: object, **__: object) -> NoReturn:
        raise NetworkCut(host)

    patch.setattr(socket.socket, "connect", refused(connect))
    patch.setattr(socket.socket, "connect_ex", refused(connect_ex))
    patch.setattr(socket, "getaddrinfo", no_name)
