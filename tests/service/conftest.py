"""A workspace with a service, through either door, with either client."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.support import ALL, House, Lab, Served

_numbers = itertools.count(1)


@pytest.fixture
def house(data_dir: Path, tmp_path: Path) -> Iterator[House]:
    """Yield a workspace with an unrestricted role `writer`, and its service."""
    made = House(data_dir, f"svc-{os.getpid()}-{next(_numbers)}", tmp_path)
    made.apply(ALL)
    made.begin()
    yield made
    made.end()


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest) -> str:
    """Return the client of a scenario: sync or async."""
    kind: str = request.param
    return kind


@pytest.fixture(params=["trusted", "restricted"])
def lab(request: pytest.FixtureRequest, house: House, client: str) -> Lab:
    """Return the workspace through one of the doors."""
    if request.param == "restricted":
        house.login_all(("ada", "writer"), ("bob", "writer"))
    return Lab(house, request.param, client)


@pytest.fixture
def other(data_dir: Path, tmp_path: Path) -> House:
    """Another workspace with the same role, and no service: for the same program, trusted."""
    made = House(data_dir, f"svc-{os.getpid()}-{next(_numbers)}", tmp_path)
    made.apply(ALL)
    return made


@pytest.fixture
def served(data_dir: Path, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Make workspaces that are served, SQL too, with more roles; all end with the test."""
    made: list[Served] = []

    def serve(name: str, roles: str = "") -> Served:
        house = Served(data_dir, f"{name}-{os.getpid()}-{next(_numbers)}", tmp_path)
        house.apply(ALL + roles)
        house.begin()
        made.append(house)
        return house

    yield serve
    for house in made:
        house.end()
