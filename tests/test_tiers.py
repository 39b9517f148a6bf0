"""The tiers of the tests: every test is in one, and each tier is run by its command."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers
from tests.late import run_late

ROOT = Path(__file__).parents[1]

MODULE = """
import pytest

@pytest.fixture(params=["sync", "async"])
def lab(request):
    return request.param

def test_plain(): ...

def test_one_of_both(lab): ...

@pytest.mark.parametrize("case", "xyz")
def test_many_of_both(lab, case): ...

@pytest.mark.contract
def test_both(lab): ...

@pytest.mark.slow
def test_slow(): ...

@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("case", "abcdefg")
def test_some(case): ...

@pytest.mark.fast(cases=1)
@pytest.mark.parametrize("case", "abc")
def test_first(lab, case): ...

@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("case", "ab")
def test_few(lab, case): ...

@pytest.mark.fast(cases=1, slow=2)
@pytest.mark.parametrize("case", "abcde")
def test_each(case): ...

@pytest.mark.later
@pytest.mark.fast(cases=1)
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("case", "abcd")
def test_later(case): ...

@pytest.mark.thorough(quick="test_it.py::test_plain")
def test_thorough(): ...
"""

OF_ALL = """
import pytest

pytestmark = [
    pytest.mark.{mark},
    pytest.mark.filterwarnings("error"),
]

def test_{mark}_as_all(): ...
"""

FAST = [
    *("test_both[async]", "test_both[sync]", "test_one_of_both[async]", "test_plain"),
    *(f"test_many_of_both[async-{case}]" for case in "xyz"),
    *("test_first[async-a]", "test_few[async-a]", "test_each[a]"),
]
SLOW = [
    *("test_first[async-b]", "test_first[async-c]", "test_first[sync-a]"),
    *("test_one_of_both[sync]", "test_many_of_both[sync-x]"),
    *("test_slow", "test_some[a]", "test_some[d]", "test_each[b]", "test_each[d]"),
    *("test_later[a]", "test_later[b]", "test_slow_as_all", "test_later_as_all"),
]
FULL = [
    *(f"test_some[{case}]" for case in "bcefg"),
    *(f"test_many_of_both[sync-{case}]" for case in "yz"),
    *(f"test_first[sync-{case}]" for case in "bc"),
    *("test_each[c]", "test_each[e]", "test_later[c]", "test_later[d]"),
    *("test_few[async-b]", "test_few[sync-a]", "test_few[sync-b]"),
    *("test_thorough", "test_thorough_as_all"),
]


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        (["-p", "no:xdist", "--tier", "fast"], FAST),
        pytest.param(["-p", "xdist", "-n", "1", "--tier", "slow"], SLOW, marks=pytest.mark.slow),
        pytest.param(
            ["-p", "no:xdist", "--tier", "full"], FAST + SLOW + FULL, marks=pytest.mark.thorough
        ),
        pytest.param(["-p", "no:xdist"], FAST + SLOW, marks=pytest.mark.thorough),
    ],
)
def test_what_each_tier_runs(tmp_path: Path, options: list[str], runs: list[str]):
    """Each tier counts the tests and the unread files that it leaves, with the command that runs
    them.
    """
    (tmp_path / "pytest.ini").touch()  # no configuration of a folder above it counts
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.tiers"]\n')
    (tmp_path / "test_it.py").write_text(MODULE)
    for mark in ("slow", "later", "thorough"):
        (tmp_path / f"test_{mark}.py").write_text(OF_ALL.format(mark=mark))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:randomly", *options],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    passed = [
        word for line in result.stdout.splitlines() if "PASSED" in line for word in line.split()
    ]
    names = [word.partition("::")[2] for word in passed if "::" in word]
    assert sorted(names) == sorted(runs)
    of_all = {
        "fast": set(),
        "slow": {"test_slow_as_all", "test_later_as_all"},
        "full": {"test_thorough_as_all"},
    }
    left = {}
    for tier, tests in (("fast", FAST), ("slow", SLOW), ("full", FULL)):
        unread = of_all[tier] - {*runs}
        left["files", tier] = len(unread)
        left["tests", tier] = len({*tests} - {*runs} - unread)
    counts = {
        (words[1], words[4]): int(words[0])
        for words in map(str.split, result.stdout.splitlines())
        if "tier:" in words
    }
    assert counts == {what: number for what, number in left.items() if number}


def test_each_tier_has_its_command():
    """`make` has them all."""
    makefile = (ROOT / "Makefile").read_text()
    assert set(tiers.RUN_BY) == {"fast", "slow", "full"}
    for command in tiers.RUN_BY.values():
        assert f"\n{command.removeprefix('make ')}: " in makefile


def test_the_files_that_are_begun_first_are_there():
    """Each is named once, and exists: a file that was moved would be begun last."""
    assert len(set(tiers.LONG)) == len(tiers.LONG)
    assert set(tiers.APART) < set(tiers.LONG)
    assert [name for name in tiers.LONG if not (ROOT / name).exists()] == []


QUICK = re.compile(r'quick=\s*"(\w+)"|"(?:tests/)?([\w/]+\.py)::(?:"\s*")?(test_\w+)"')
"""A test of the same file, or one by its path, which may be a constant."""


@pytest.mark.slow
def test_what_shows_the_rule_of_a_thorough_test_is_there_and_no_thorough_one():
    """Each test that `quick` names, by path or in the same file, is one that `make check` runs."""
    named = {
        (path or str(file.relative_to(ROOT / "tests")), own or name)
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        for own, path, name in QUICK.findall(file.read_text())
    }
    named -= {("test_it.py", "test_plain")}
    assert named
    marks = {path: marks_of(ROOT / "tests" / path) for path, _ in named}
    for path, name in sorted(named):
        assert name in marks[path], f"{path} has no {name}"
        is_thorough = tiers.first_of((ROOT / "tests" / path).read_text()) == tiers.FULL
        is_thorough = is_thorough or "pytest.mark.thorough" in marks[path][name]
        assert not is_thorough, f"{path}::{name} is thorough itself"


def marks_of(path: Path) -> dict[str, list[str]]:
    """Return the marks of each test of a file."""
    top = ast.parse(path.read_bytes()).body
    within = [node for each in top if isinstance(each, ast.ClassDef) for node in each.body]
    functions = (
        node for node in top + within if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {
        each.name: [
            ast.unparse(mark.func if isinstance(mark, ast.Call) else mark)
            for mark in each.decorator_list
        ]
        for each in functions
    }


TAKES_LONG = re.compile(
    r"^(?:import|from) (?:agents|anthropic|google|langchain|langgraph|litellm|mcp|openai"
    r"|pydantic_ai|schemathesis)\b",
    re.MULTILINE,
)
"""An import at the beginning of a file that takes a second or more."""


def test_packages_that_take_long_wait_for_a_test():
    """No test file imports one while it is collected, which each worker does with all of them."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    texts = {
        str(file.relative_to(ROOT)): re.sub(r'"""\n.*?\n"""', "", file.read_text(), flags=re.DOTALL)
        for file in files
    }
    assert [name for name, text in texts.items() if TAKES_LONG.search(text)] == []


def test_late_code_runs_once_it_is_needed(tmp_path: Path):
    """Code under `if LATE:` does not run when a file is imported, and has the file's names."""
    (tmp_path / "late_module.py").write_text(
        "from tests.late import LATE\n\nONE = 1\nif LATE:\n    import json\n    TWO = ONE + 1\n"
    )
    spec = importlib.util.spec_from_file_location("late_module", tmp_path / "late_module.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not hasattr(module, "TWO")
    run_late(module)
    assert (module.TWO, module.json) == (2, json)


def test_a_worker_stays_in_a_folder():
    """Then it takes an unbegun folder, then helps where most is left; long files first."""
    long = tiers.LONG[0]
    left = {"tests/a/test_1.py": 3, "tests/b/test_1.py": 1, long: 1, "tests/b/test_2.py": 9}
    assert tiers.next_of(left, {}, "w0") == long
    del left[long]
    begun: dict[str, set[object]] = {"tests/b": {"w0"}}
    assert tiers.next_of(left, begun, "w0") == "tests/b/test_1.py"
    assert tiers.next_of(left, begun, "w1") == "tests/a/test_1.py"
    begun["tests/a"] = {"w1"}
    assert tiers.next_of(left, begun, "w2") == "tests/b/test_1.py"
    left = {"tests/test_x.py": 1, "tests/test_y.py": 1}
    assert (
        tiers.next_of(left, {tiers.folder_of("tests/test_x.py"): {"w0"}}, "w1") == "tests/test_y.py"
    )
    begun = {"tests/frameworks": {"w0"}}
    left = {"tests/test_x.py": 1, "tests/test_reference.py": 1}
    assert tiers.next_of(left, begun, "w0") == "tests/test_reference.py"
    assert tiers.next_of(left, begun, "w1") == "tests/test_x.py"
