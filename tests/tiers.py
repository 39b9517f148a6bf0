"""Test tiers: fast, slow (what fast leaves), or full.

    make test         --tier fast   laws, contracts, golden bytes, one kill a point, one client
    make check        fast and slow together: tests marked `slow`, and the other client
    make test-slow    --tier slow   the rest of `make check`, without `make test`
    make test-full    --tier full   tests marked `thorough` too, with many rounds and examples

`fast(cases=3)`: of the test's cases, three in even steps are in the fast tier, and the others slow.
`slow(cases=3)`: three of the test's cases are slow, and the others thorough.
`fast(cases=3, slow=2)`: three cases are fast, two of the others slow, and the rest thorough.
`thorough(quick="x/test_y.py::test_z")`: the test of `make check` that shows the same rule, in the
folder `tests`; for the same file only its name.
`later`: its fast tests become slow.
Tests of real data are slow, too.
A file whose `pytestmark` is thorough or later, or slow or real without a `fast` test, is not read
in tiers where its tests do not run: each worker pays for its collection.
A test of both clients, parametrised by `sync` and `async`, runs with the async one in the fast
tier; with the sync one, which is generated from it, one case of a test is slow, and the others
thorough. Tests marked `contract` run with both in the fast tier. Skipped tests are counted at the
end, with the command that runs them.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # it has no types

FAST, SLOW, FULL = "fast", "slow", "full"
RUN_BY = {FAST: "make test", SLOW: "make check", FULL: "make test-full"}

_FROM_WORKER = "hansard_tiers"
_LEFT = pytest.StashKey[Counter[str]]()

_OF_ALL = re.compile(r"^pytestmark = (?:\[\n.*?^\]|[^\n]*)", re.MULTILINE | re.DOTALL)
_LATER = re.compile(r"\bmark\.(slow|later|thorough|real)\b")


APART = (
    "tests/test_docs.py",
    "tests/test_benchmarks.py",
    "tests/examples_migration/test_steps.py",
    "tests/statistics/test_null_rounds.py",
)
"""Files of few tests that take long and share nothing: begun first, and a worker takes one test."""

LONG = (
    "tests/bus/test_server.py",
    "tests/test_demo.py",
    *APART,
    "tests/testing/test_pytest_plugin.py",
    "tests/actions/test_browser.py",
    "tests/actions/test_task_pages.py",
    "tests/actions/test_kills.py",
    "tests/probes/test_probe.py",
    "tests/integrations/mcp/test_proxy.py",
    "tests/integrations/mcp/test_http.py",
    "tests/integrations/test_agent_folder.py",
    "tests/bus/test_replicas.py",
    "tests/faults/test_full_disk.py",
    "tests/faults/test_partitions.py",
    "tests/faults/test_power_cuts.py",
    "tests/actions/test_hostile_pages.py",
    "tests/actions/test_exported.py",
    "tests/projections/test_runner.py",
    "tests/web/test_views.py",
    "tests/web/test_run.py",
    "tests/browser/test_page.py",
    "tests/damage/test_damage.py",
    "tests/service/mcp/test_serve.py",
    "tests/service/mcp/test_updates.py",
    "tests/notebooks/test_notebooks.py",
    "tests/examples/test_fairness.py",
    "tests/examples/test_use_cases.py",
    "tests/examples/test_usage.py",
    "tests/damage/test_kills.py",
    "tests/browser/test_hostile.py",
    "tests/exchange/test_replay.py",
    "tests/tours/test_ab.py",
    "tests/faults/test_embedded_broker.py",
    "tests/browser/test_moves.py",
    "tests/browser/test_axis.py",
    "tests/actions/test_changed_pages.py",
    "tests/integrations/a2a/test_a2a.py",
    "tests/integrations/mcp/test_http_clients.py",
    "tests/memory/test_meetings.py",
    "tests/memory/test_injected.py",
    "tests/importers/test_sessions.py",
    "tests/aggregates/test_kill.py",
    "tests/real/test_research_team.py",
    "tests/real/test_figures.py",
    "tests/real/test_prompts.py",
    "tests/actions/test_miniwob.py",
    "tests/agents/test_savings.py",
)
"""Files that take long with few tests, or wait a lot: begun first, in this order."""


WITH = dict.fromkeys(("tests/test_reference.py", "tests/test_public.py"), "tests/frameworks")
"""Files for the worker of another folder, as both import every framework, for seconds."""


class ByFolder(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Scheduling of one file to a worker, and of one test for `APART`, so that no worker ends
    alone.

    The files of a folder go to one worker while there are others: the shared parts of its tests (a
    broker, a record, a browser, imports) are then made once, and not four times.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._takers: dict[str, set[object]] = defaultdict(set)

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if _file(nodeid) in APART else _file(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        left = {scope: len(tests) for scope, tests in self.workqueue.items()}
        chosen = next_of(left, self._takers, node)
        self._takers[folder_of(chosen)].add(node)
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


def next_of(left: Mapping[str, int], takers: Mapping[str, set[object]], worker: object) -> str:
    """Return the next file or test for a worker, given the number of tests left in each.

    Long ones are preferred; among the candidates the order is: the first of a folder that the
    worker has begun, of a folder without a worker, of the folder with most tests left.
    """
    waiting = [scope for scope in left if _file(scope) in LONG] or list(left)
    tests: Counter[str] = Counter()
    for scope in waiting:
        tests[folder_of(scope)] += left[scope]
    folders = list(tests)
    mine = [folder for folder in folders if worker in takers.get(folder, ())]
    free = [folder for folder in folders if not takers.get(folder)]
    chosen = next(iter(mine or free or [tests.most_common(1)[0][0]]))
    return next(scope for scope in waiting if folder_of(scope) == chosen)


def folder_of(scope: str) -> str:
    """Return the folder whose fixtures or imports a file shares; outside of the test folders, the
    file itself.
    """
    folder, _, name = _file(scope).rpartition("/")
    if (other := WITH.get(_file(scope))) is not None:
        return other
    return folder if folder != "tests" else name


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFolder | None:
    """With `--dist loadfile`, and in the order that is collected."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return ByFolder(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--tier`."""
    parser.addoption(
        "--tier",
        choices=list(RUN_BY),
        default=None,
        help="fast (make test), slow (what make check adds), full; default: all but thorough ones",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin that counts the tests left out."""
    config.stash[_LEFT] = Counter()
    for line in (
        "fast(cases=None, slow=None): so many cases in `make test`, so many others in `make check`",
        "slow(cases=None): a part of `make check` and not of `make test`",
        "later: what would be in `make test` is in `make check`",
        "contract: with both clients in `make test`",
        "thorough(quick=None): only in `make test-full`; `quick` names who shows its rule",
    ):
        config.addinivalue_line("markers", line)


def first_of(text: str) -> str:
    """Return the earliest tier that a test file may contribute to, by its module-level marks."""
    of_all = _OF_ALL.search(text)
    marks = set(_LATER.findall(of_all.group())) if of_all else set()
    if "thorough" in marks:
        return FULL
    return SLOW if "later" in marks or (marks and "mark.fast" not in text) else FAST


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files without a test of this tier; explicitly requested files are counted."""
    tiers = _tiers_of_run(config)
    if FULL in tiers or not collection_path.match("test_*.py"):
        return None
    first = first_of(collection_path.read_text(encoding="utf-8"))
    if first in {FAST, *tiers}:
        return None
    requested = {config.invocation_params.dir / _file(each) for each in config.args}
    if not requested.isdisjoint((collection_path, *collection_path.parents)):
        config.stash[_LEFT][f"{first} files"] += 1
    return True


def _tiers_of_run(config: pytest.Config) -> set[str]:
    tier = config.getoption("tier")
    return {None: {FAST, SLOW}, FULL: {FAST, SLOW, FULL}}.get(tier, {tier})


def tiers_of(items: Sequence[pytest.Item]) -> list[str]:
    """Return the first tier that each test is in."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in sorted(items, key=lambda item: item.nodeid):
        cases[_function(item)].append(item)
    pairs = [(item, _tier(item, cases[_function(item)])) for item in items]
    return [
        SLOW if tier == FAST and item.get_closest_marker("later") else tier for item, tier in pairs
    ]


def _tier(item: pytest.Item, cases: Sequence[pytest.Item]) -> str:
    slow = item.get_closest_marker("slow") or item.get_closest_marker("real")
    fast = item.get_closest_marker("fast")
    if item.get_closest_marker("thorough"):
        return FULL
    few = fast is not None and "slow" in fast.kwargs
    if _is_sync(item) and not (slow or few or item.get_closest_marker("contract")):
        return SLOW if item in _chosen([case for case in cases if _is_sync(case)], 1) else FULL
    if fast is None and slow is None:
        return FAST
    others = cases
    if fast is not None:
        chosen = _chosen([case for case in cases if not _is_sync(case)], fast.kwargs["cases"])
        if item in chosen:
            return FAST
        others = [case for case in cases if case not in chosen]
    kept = slow.kwargs.get("cases") if slow else fast.kwargs.get("slow") if fast else None
    number = len(others) if kept is None else kept
    return SLOW if item in _chosen(others, number) else FULL


def _chosen(cases: Sequence[pytest.Item], number: int) -> list[pytest.Item]:
    """So many of them, in even steps."""
    number = min(number, len(cases))
    return [cases[at * len(cases) // number] for at in range(number)]


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _is_sync(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and "sync" in callspec.params.values()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests of other tiers."""
    tiers = _tiers_of_run(config)
    pairs = list(zip(items, tiers_of(items), strict=True))
    left = [(item, tier) for item, tier in pairs if tier not in tiers]
    if left:
        config.stash[_LEFT].update([f"{tier} tests" for _, tier in left])
        config.hook.pytest_deselected(items=[item for item, _ in left])
        items[:] = [item for item, tier in pairs if tier in tiers]
    files = {item: _file(item.nodeid) for item in items}
    many = Counter(files.values())
    begun = {file: number for number, file in enumerate(LONG)}
    items.sort(key=lambda item: (begun.get(files[item], len(LONG)), -many[files[item]]))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take over a worker's count of left tests: each worker collects all tests, so all counts are
    equal.
    """
    seen: Any = node
    counts = cast("Counter[str]", getattr(node, "workeroutput", {}).get(_FROM_WORKER, {}))
    seen.config.stash[_LEFT] = Counter(counts)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report the tests that a worker left out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        counted = session.config.stash[_LEFT]
        output[_FROM_WORKER] = dict(counted)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Report the tests that did not run, and the command that runs them."""
    for left, number in sorted(config.stash[_LEFT].items()):
        tier, what = left.split()
        terminalreporter.write_line(
            f"{number} {what} of the {tier} tier: `{RUN_BY[tier]}` runs them"
        )
