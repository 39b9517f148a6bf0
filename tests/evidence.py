"""Figures that tests measured, written to one file, so that documents can quote them.

A test asks for the fixture `evidence` and calls
`evidence.record("kill.server", rounds=200, lost=0)`. When HANSARD_EVIDENCE names a file, the
figures of all workers are written there at the end of the session, sorted, with the machine and
the versions. Without it nothing is written.
"""

import json
import os
from pathlib import Path
from typing import cast

import pytest

from benchmarks import _report

Figure = str | int | float | bool | None
Figures = dict[str, dict[str, Figure]]

_FIGURES = pytest.StashKey[Figures]()
_FROM_WORKER = "hansard_evidence"


class Evidence:
    """Collector of figures measured by tests, by name; each name once a session."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def record(self, name: str, /, **figures: Figure) -> None:
        """Keep `figures` under `name`; units stand last in a figure's name (`latency_ms_max`)."""
        if name in self._figures:
            msg = (
                f"evidence {name!r} was recorded before: {self._figures[name]}; choose another name"
            )
            raise ValueError(msg)
        self._figures[name] = dict(sorted(figures.items()))


@pytest.fixture(scope="session")
def evidence(pytestconfig: pytest.Config) -> Evidence:
    """Return the collector for the figures that a test measures."""
    return Evidence(pytestconfig.stash[_FIGURES])


def pytest_configure(config: pytest.Config) -> None:
    """Every process of the session, worker or not, starts with no figures."""
    config.stash[_FIGURES] = {}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take over the figures of a worker that is done."""
    output = cast("dict[str, Figures]", getattr(node, "workeroutput", {}))
    config = cast("pytest.Config", node.config)  # type: ignore[attr-defined]  # xdist has no types
    config.stash[_FIGURES].update(output.get(_FROM_WORKER, {}))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Hand the figures of a worker to the main process, which writes the file."""
    config = session.config
    figures = config.stash[_FIGURES]
    output = cast("dict[str, Figures] | None", getattr(config, "workeroutput", None))
    if output is not None:
        output[_FROM_WORKER] = figures
        return
    path = os.environ.get("HANSARD_EVIDENCE")
    if path and figures:
        write(Path(path), figures, passed=exitstatus == 0)


def write(path: Path, figures: Figures, *, passed: bool) -> None:
    """Write `figures` with machine and versions: the same figures give the same bytes."""
    body = {
        "rounds": int(os.environ.get("ROUNDS", "5")),
        "all_tests_passed": passed,
        "machine": _report.machine(),
        "versions": _report.versions(),
        "figures": dict(sorted(figures.items())),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
