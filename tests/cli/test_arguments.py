"""Arguments of the command line that are no UTF-8."""

import pytest

from tests.cli.support import Call, Runs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "arguments",
    [("why", "\udcff"), ("knew", "\udcff"), ("run", "show", "\udcff"), ("audit", "\udcff")],
    ids=lambda arguments: arguments[0],
)
def test_a_name_that_is_no_utf_8_is_not_found(
    call: Call, runs: Runs, arguments: tuple[str, ...]
) -> None:
    """Bytes that no text has, as the shell hands them over, are an error in words."""
    done = call(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "was not found" in done.err
