"""One S3 server for all tests of the archive in a process."""

from collections.abc import Iterator

import pytest

from tests.archive.stores import S3, s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """Run the server; the environment does not lead to it yet."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module", params=["folder", "s3"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the address of an archive in each kind of store, of one module."""
    if request.param == "folder":
        yield str(tmp_path_factory.mktemp("store") / "archive")
        return
    server: S3 = request.getfixturevalue("s3")
    with pytest.MonkeyPatch.context() as patch:
        server.lead(patch)
        yield f"{server.url}-{request.module.__name__.rpartition('.')[2]}"
