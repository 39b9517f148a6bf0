"""Other people's packages: imported by the tests that use them, as each worker collects all."""

import contextlib
import warnings
from collections.abc import Iterator

import pytest

from tests.faults import _warm, support


def imported(name: str) -> None:
    """Have a package imported, whatever it warns of meanwhile; skip where it is not there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(name)


@contextlib.contextmanager
def forked_with(*names: str) -> Iterator[None]:
    """Fork the programs of a `Stage` from a process that has imported these packages."""
    if _warm._none_is_forked():
        yield
        return
    nurse = _warm.Nurse(*names)
    with pytest.MonkeyPatch.context() as patch:
        for module in (support, _warm):
            patch.setattr(
                module, "start", lambda command, cwd, env, **_: nurse.fork(command, cwd, env)
            )
        yield
    nurse.close()
