"""The lab: made once for the tests that only attack it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.access.desk import Desk
from tests.access.support import Lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield a server with secrets and a restricted login."""
    folder = tmp_path_factory.mktemp("lab")
    made = Lab(folder / "data", folder / "files")
    yield made
    made.lease.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Yield a desk, with a server that runs."""
    made = Desk(tmp_path)
    yield made
    made.lease.close()
