"""Tables that stay open beside the tests of a file."""

from tests.projections.query_cache import tables_stay_open

__all__ = ["tables_stay_open"]
