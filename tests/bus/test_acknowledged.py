"""Logging of acknowledged commits: the record has them, and docs/logs.md lists every line."""

import logging
import re
from pathlib import Path

import pytest

import hansard
from hansard.bus.acknowledged import AT_INFO, FIELDS, named
from hansard.bus.clock import OS_USER
from hansard.domain.events import REGISTRY
from tests.agents.twins import Lab, TwinRecord

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")
SECRET = "the words of somebody"


async def _work(record: TwinRecord) -> None:
    async with record.run(run="r", on_behalf_of=["grace"]) as session:

        @session.tool()
        async def send(what: str) -> None:
            raise TimeoutError(what)

        @session.tool(name="never")
        async def never(what: str) -> None: ...

        with pytest.raises(hansard.Blocked):
            await never(SECRET)
        await send(SECRET)


async def test_what_is_acknowledged_is_logged(lab: Lab, caplog: pytest.LogCaptureFixture):
    """Sessions, doubts, settlements and refusals are logged with their place and no payload."""
    caplog.set_level(logging.INFO, "hansard.bus.acknowledged")
    rules = [hansard.deny("never", name="not that")]
    async with lab.connect(gate=rules) as record:
        with pytest.raises(TimeoutError):
            await _work(record)
        await record.settle("r", "ada#2", "did_not_happen", reason=SECRET)
        positions = {f"{each.position}" for each in await record.commits("r")}
    records = [each for each in caplog.records if each.name == "hansard.bus.acknowledged"]
    assert [each.getMessage() for each in records] == [
        "agent session began",
        "step blocked",
        "step in doubt",
        "agent left",
        "agent session began",
        "step settled",
    ]
    fields = [each.__dict__ for each in records]
    assert {each["run"] for each in fields} == {"r"}
    assert {each["workspace"] for each in fields} == {lab.workspace}
    assert {each["position"].partition(".")[0] for each in fields} <= positions
    assert (fields[1]["rule"], fields[2]["step"]) == ("not that", 2)
    assert fields[2]["error"] == "TimeoutError"
    assert (fields[3]["outcome"], fields[3]["principal"]) == ("failed", "grace")
    assert (fields[5]["verdict"], fields[5]["by"]) == ("did_not_happen", OS_USER)
    assert SECRET not in repr(fields)


def test_the_page_lists_every_line_and_field():
    """The page lists each line at info and error with its fields, and no other line."""
    tables = re.findall(r"^\| line \|.*?\n\n", DOCS, re.MULTILINE | re.DOTALL)
    listed = set(re.findall(r"^\| `([a-z ]+)` \|", "".join(tables), re.MULTILINE))
    assert {named(tag) for tag in AT_INFO} <= listed
    assert {*REGISTRY} >= AT_INFO
    source = "".join(path.read_text() for path in (ROOT / "src" / "hansard").rglob("*.py"))
    logged = set(re.findall(r'_log\.(?:info|error)\(\s*"([a-z ]+)"', source))
    logged |= {"fenced", "writer stopped", "projector behind", "projector caught up"}
    assert all(f'"{each}"' in source for each in logged)
    assert listed == {named(tag) for tag in AT_INFO} | logged
    for field in FIELDS:
        assert f"`{field}`" in DOCS
