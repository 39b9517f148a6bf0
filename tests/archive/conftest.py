"""The stores of the archive's tests: a folder, one S3 server for all tests in a process, and stores
of your own, whose addresses are in `HANSARD_TEST_ARCHIVES`.
"""

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.archive.stores import S3, s3_server

STORES = os.environ.get("HANSARD_TEST_ARCHIVES", "").split()
"""Addresses such as `az://archive`, with credentials as their providers' tools read them."""


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """Run the server; the environment does not lead to it yet."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


FAULTY_S3 = "archive/test_segments.py::test_a_faulty_s3_never_gives_wrong_answers"
KINDS = ["folder", pytest.param("s3", marks=pytest.mark.thorough(quick=FAULTY_S3)), *STORES]


@pytest.fixture(scope="module", params=KINDS)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the address of an archive in each kind of store, of one module."""
    if request.param == "folder":
        yield str(tmp_path_factory.mktemp("store") / "archive")
        return
    if request.param in STORES:
        yield f"{request.param}/{uuid.uuid4().hex}"
        return
    server: S3 = request.getfixturevalue("s3")
    with pytest.MonkeyPatch.context() as patch:
        server.lead(patch)
        yield f"{server.url}-{request.module.__name__.rpartition('.')[2]}"
