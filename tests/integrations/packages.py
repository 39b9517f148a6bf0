"""Other people's packages: imported by the tests that use them, as each worker collects all."""

import warnings

import pytest


def imported(name: str) -> None:
    """Have a package imported, whatever it warns of meanwhile; skip where it is not there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(name)
