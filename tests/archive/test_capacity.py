"""The table of docs/scale.md is the one that its script computes."""

from pathlib import Path

from benchmarks import capacity

PAGE = Path(__file__).parents[2] / "docs/scale.md"


def test_the_page_has_the_computed_table() -> None:
    """Each row of the page follows from the constants; what was not run says so."""
    assert capacity.table() in PAGE.read_text(encoding="utf-8")
    on_paper = [not capacity.row(rate, capacity.Constants()).was_run for rate in capacity.RATES]
    assert capacity.table().count("*on paper*") == sum(on_paper) == len(capacity.RATES) - 1


def test_a_rate_beyond_one_server_takes_several() -> None:
    """Servers follow from the commits a second, cores and puts from the rate."""
    few, many = (capacity.row(rate, capacity.Constants()) for rate in (10**8, 10**9))
    assert few.servers == 1.0 < many.servers
    assert 9 < many.project_cores / few.project_cores < 11
    assert 9 < many.puts_a_day / few.puts_a_day < 11
