"""Answers of earlier runs through the service: by the role's rules, and never a hint."""

from pathlib import Path

import pytest

import hansard
from tests.service.support import ALL, Served

pytestmark = pytest.mark.slow

FEW = """
[roles.few]
sees = [{ name = "own", kinds = ["**"], roles = ["few"] }]
may = { tools = ["**"] }
"""


def test_a_restricted_agent_is_given_what_its_role_sees(data_dir: Path, tmp_path: Path) -> None:
    """A role that sees an answer reuses it; offering and invalidating need a rule."""
    house = Served(data_dir, "reusing", tmp_path)
    house.apply(ALL + FEW)
    house.begin()
    ran: list[str] = []

    def ask(record, run: str) -> str:
        with record.run("flow", run=run) as session:

            @session.tool(effects="pure", reuse=hansard.reuse(ttl_s=3_600))
            def search(text: str) -> tuple[str, int]:
                ran.append(run)
                return text, 1

            assert search("x") == ("x", 1)
        return run

    try:
        with house.connect("eve", "few") as record:
            ask(record, "few-1")
            ask(record, "few-2")  # it may not offer
            with pytest.raises(hansard.errors.RoleRefused, match=r"reuse\.invalidated"):
                record.invalidate(tool="search")
        with house.connect("ada", "writer") as record:
            ask(record, "ada-1")
            ask(record, "ada-2")
        with house.connect("eve", "few") as record:
            ask(record, "few-3")  # it does not see the writer's
        assert ran == ["few-1", "few-2", "ada-1", "few-3"]
        with house.connect("ada", "writer") as record:
            record.invalidate(tool="search", because="rebuilt")
            with pytest.raises(hansard.BadValue, match="name one"):
                record.invalidate()
            ask(record, "ada-3")
        assert ran[4:] == ["ada-3"]
        with house.trusted() as record:
            given = record.state("ada-2").agent("ada").steps[1].reused_from
            assert given is not None
            assert given.run == "ada-1"
            told = record.sql("SELECT author, tool, because FROM invalidated_answers").rows
            assert told == [("ada", "search", "rebuilt")]
    finally:
        house.end()
