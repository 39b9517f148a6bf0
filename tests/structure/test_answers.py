"""`hansard.inspect` answers all requests; one place decides what is printed."""

import ast
from pathlib import Path

import pytest

import hansard
from tests.structure import budget
from tests.structure.operation import operation, places
from tests.structure.rooms import ROOT, parsed

COMMANDS = ROOT / "src/hansard/cli"
INSPECT = ROOT / "src/hansard/inspect"


def branches_on_json(path: Path) -> bool:
    """Return whether a module branches on `json`."""
    tests = [node.test for node in ast.walk(parsed(path)) if isinstance(node, ast.If | ast.IfExp)]
    named = [each for test in tests for each in ast.walk(test)]
    return any(
        (isinstance(each, ast.Name) and each.id == "json")
        or (isinstance(each, ast.Attribute) and each.attr == "json")
        for each in named
    )


def test_only_the_renderer_tells_people_from_programs():
    """Only the renderer reads --json; `sql` names it as one of its formats."""
    assert {path.stem for path in COMMANDS.rglob("*.py") if branches_on_json(path)} == {
        "output",
        "sql",
    }


def test_reads_print_nothing():
    """No module of inspect writes to a stream or formats tables."""
    prints = [
        f"{path.name}:{node.lineno}"
        for path in INSPECT.glob("*.py")
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.Name) and node.id == "print")
        or (isinstance(node, ast.Attribute) and node.attr in {"stdout", "stderr"})
        or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("rich", "typer")))
    ]
    assert not prints


# ------------------------------------------------------------ budgets


def test_no_package_exceeds_its_budget():
    """Each package stays within its budget, and lower counts are stored."""
    now = budget.counts()
    stored = budget.read().packages
    over = [
        f"{package} {name}: {number}, budget {stored.get(package, {}).get(name, 0)}"
        for package, numbers in now.items()
        for name, number in numbers.items()
        if number > stored.get(package, {}).get(name, 0)
    ]
    assert not over, "remove code, or give a reason: python -m tests.structure.budget --raise WHY"
    assert now == stored, "store what fell: python -m tests.structure.budget"


def test_what_counts_as_forwarding():
    """A body that only calls on with its own parameters is forwarding."""
    source = "def a(x, *y, z=1):\n    {}\n"
    [yes] = ast.parse(source.format('"""Say."""\n    return b.c(x, *y, z=z)')).body
    [no] = ast.parse(source.format("return b.c(x, z=not z)")).body
    assert isinstance(yes, ast.FunctionDef)
    assert isinstance(no, ast.FunctionDef)
    assert (budget.forwards(yes), budget.forwards(no)) == (True, False)


# ------------------------------------------------------------ declarations of operations


def test_an_operation_has_one_declaration():
    """Its source names it once, in its noun; tests and documentation name it, too."""
    where = places("prompts.retire")
    [declared] = where["declaration"]
    assert declared.startswith("src/hansard/operations/prompts.py:")
    assert [place.rpartition("/")[0] for place in where["calls"]] == [
        "src/hansard/agents/artifacts"
    ]
    assert all(place.startswith("src/hansard/cli/") for place in where.get("src", []))
    assert where["tests"]
    assert where["docs"]
    assert operation("prompts.retire").request.__struct_config__.tag == "record.prompts.retire"


# ------------------------------------------------------------ both clients


TWINS = [
    (hansard.types.AsyncBoard, hansard.types.Board),
    (hansard.types.AsyncTransaction, hansard.types.Transaction),
    (hansard.types.AsyncTeam, hansard.types.Team),
    (hansard.memory.AsyncMemory, hansard.memory.Memory),
    (hansard.memory.AsyncMemorySpace, hansard.memory.MemorySpace),
    (hansard.types.AsyncCommonRecord, hansard.types.CommonRecord),
    (hansard.AsyncRecord, hansard.Record),
    (hansard.AsyncSession, hansard.Session),
    (hansard.types.AsyncResumable, hansard.types.Resumable),
    (hansard.roles.AsyncRestrictedRecord, hansard.roles.RestrictedRecord),
    (hansard.roles.AsyncRestrictedSession, hansard.roles.RestrictedSession),
]

OTHER_NAMES = {"aclose": "close", "task_group": "thread"}


@pytest.mark.parametrize(("of_async", "of_sync"), TWINS, ids=lambda kind: kind.__name__)
def test_each_method_is_there_in_both_clients(of_async: type, of_sync: type) -> None:
    """And neither has one that the other lacks."""
    assert names(of_async) == names(of_sync)


def names(kind: type) -> set[str]:
    """Return the public names of a class, as the sync client calls them."""
    return {OTHER_NAMES.get(name, name) for name in dir(kind) if not name.startswith("_")}
