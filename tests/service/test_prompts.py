"""Prompts through the service: by the role's rules, with the version on the call."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from tests.service.support import ALL, Served

pytestmark = pytest.mark.slow

FEW = """
[roles.few]
sees = [{ name = "versions alone", kinds = ["prompt.version_added"] }]
may = { tools = ["**"] }
[roles.reader]
sees = [{ name = "prompts", kinds = ["prompt.*"] }]
may = { tools = ["**"] }
"""


def test_a_role_uses_prompts_that_it_sees_whole(data_dir: Path, tmp_path: Path) -> None:
    """Changing and reading prompts follow the role's kinds and sight."""
    with served(data_dir, "prompts", tmp_path) as house:
        with house.connect("ada", "writer") as record:
            assert record.add_prompt("rag", "Answer {query}.", parameters={"t": (1, 2)}) == 1
            assert record.add_prompt("rag", "Answer {query} now.", because="faster") == 2
            assert record.alias_prompt("rag@1", "production", expected=None) is True
            with pytest.raises(hansard.errors.PromptConflict) as lost:
                record.alias_prompt("rag@2", "production", expected=2)
            assert (lost.value.found, lost.value.wanted) == (1, 2)
            found = record.prompt("rag@production")
            assert (found.version, found.parameters) == (1, {"t": (1, 2)})
            assert record.alias_prompt("rag", "production", take_away=True)
            assert record.retire_prompt("rag@1", because="old") is True
        with house.connect("bob", "reader") as record:
            assert record.prompt("rag@2").text == "Answer {query} now."
            assert [each.reference for each in record.prompts()] == ["rag@2"]
            with pytest.raises(hansard.errors.RoleRefused, match=r"prompt\.version_added"):
                record.add_prompt("rag", "mine")
            with pytest.raises(hansard.NotFound):
                record.prompt("none")
        with house.connect("eve", "few") as record:
            for reference in ("rag", "none"):
                with pytest.raises(
                    hansard.errors.RoleRefused, match=r"does not see all of prompt\.aliased"
                ):
                    record.prompt(reference)


@contextlib.contextmanager
def served(data_dir: Path, workspace: str, folder: Path) -> Iterator[Served]:
    """A workspace with the roles."""
    house = Served(data_dir, workspace, folder)
    house.apply(ALL + FEW)
    house.begin()
    try:
        yield house
    finally:
        house.end()


@pytest.mark.thorough(quick="test_a_role_uses_prompts_that_it_sees_whole")
def test_a_role_evolves_prompts_and_is_told_how_they_did(data_dir: Path, tmp_path: Path) -> None:
    """What a call was given is on record with its version, and counted in the role's own tables."""
    with served(data_dir, "prompts-used", tmp_path) as house:
        with house.connect("ada", "writer") as record:
            assert record.add_prompt("rag", "Answer {query}.", parameters={"t": (1, 2)}) == 1
            assert record.add_prompt("rag", "Answer {query} now.", because="faster") == 2
            assert record.alias_prompt("rag@1", "production", expected=None) is True
            with pytest.raises(hansard.errors.PromptConflict) as lost:
                record.alias_prompt("rag@2", "production", expected=2)
            assert (lost.value.found, lost.value.wanted) == (1, 2)
            assert record.give_feedback("rag@2", "good", rating=1) == 2
            found = record.prompt("rag@production")
            assert (found.version, found.parameters) == (1, {"t": (1, 2)})
            ask = hansard.tool(effects="pure", kind="model", name="ask")(lambda text: text)
            with record.run("w", run="r"):
                ask(found.format(query="q"))
            evolved = record.evolve("rag@2", ["too_verbose", "missing_context"], because="both")
            assert (evolved.version, evolved.parents) == (3, (2,))
            assert record.evolve("rag@3", "briefer", using=lambda it, _: it.text).version == 3
            with pytest.raises(hansard.errors.Refused, match="no experiment has both"):
                record.promote("rag@3")
            assert record.promote("rag@3", because="it is shorter") is None
            assert record.prompt("rag@production").version == 3
            measured = record.prompt_report("rag").rows
            assert {(row.version, row.runs) for row in measured} >= {(1, 1)}
            assert record.alias_prompt("rag", "production", take_away=True)
            assert record.retire_prompt("rag@1", because="old") is True
        with house.connect("bob", "reader") as record:
            assert record.prompt("rag@2").text == "Answer {query} now."
            with pytest.raises(hansard.errors.RoleRefused, match="query"):
                record.prompt_report("rag")
            assert [each.reference for each in record.prompts()] == ["rag@3"]
            with pytest.raises(hansard.errors.RoleRefused, match=r"prompt\.version_added"):
                record.add_prompt("rag", "mine")
            with pytest.raises(hansard.NotFound):
                record.prompt("none")
        with house.connect("eve", "few") as record:
            for reference in ("rag", "none"):
                with pytest.raises(
                    hansard.errors.RoleRefused, match=r"does not see all of prompt\.aliased"
                ):
                    record.prompt(reference)
        with house.trusted() as record:
            used = record.sql("SELECT run, prompt, version, alias FROM prompt_uses").rows
            assert used == [("r", "rag", 1, "production")]
            first, *_ = record.prompt_log("rag").versions
            assert (first.by, first.retired) == ("ada", "old")
