"""The source grows smaller and plainer: each budget of a package only falls."""

import ast

from tests.structure import budget


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
