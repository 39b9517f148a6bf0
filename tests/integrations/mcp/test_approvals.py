"""Calls through the proxy that need a person's approval: the caller always learns the reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.mcp.support import ask, text, wire

pytestmark = pytest.mark.slow

if TYPE_CHECKING:  # see the support's
    from mcp import Client

SEND = {"to": "ada", "text": "x"}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """Rules by which a person has to approve a mail."""
    file = tmp_path / "rules.toml"
    file.write_text('[gate]\nask_first = ["send"]\n')
    return file


@pytest.mark.parametrize("era", ["2026-07-28", pytest.param("legacy", marks=pytest.mark.thorough)])
async def test_a_client_that_offers_elicitation_is_asked(setup, command, rules, era):
    """A user's yes grants the approval and a no denies it, with no further step."""
    from mcp.types import ElicitResult  # noqa: PLC0415 -- see the support's

    answers: list[Any] = [{"approve": True}, {"approve": False}]
    questions: list[str] = []

    async def person(context: Any, params: Any) -> ElicitResult:
        del context
        questions.append(params.message)
        return ElicitResult(action="accept", content=answers[len(questions) - 1])

    async def do(client: Client) -> list[Any]:
        return [await client.call_tool("send", SEND), await client.call_tool("send", SEND)]

    granted, denied = await ask(setup, setup.proxy("--rules", rules), era, do, person)
    assert [granted.content[0].text, granted.is_error] == ["sent to ada", False]
    assert denied.is_error
    assert "denied it" in denied.content[0].text
    assert setup.effects() == ["ada: x"]
    assert all(each == 'May send be called with {"to":"ada","text":"x"}?' for each in questions)
    listed = (await command("approvals", "--all", "--json")).lines
    assert [each["standing"] for each in listed] == ["granted", "denied"]


async def test_a_client_without_elicitation_has_to_call_again(setup, command, rules):
    """The client gets the approval's id; once granted, a repeated call gives its result."""
    async with wire(setup, setup.proxy("--rules", rules, "--timeout", 3)) as client:
        await client.greet()
        call = {"name": "send", "arguments": SEND}
        await client.begin("tools/call", **call, _meta={"progressToken": "p"})
        progress = await client.hear()
        assert progress["params"]["progressToken"] == "p"
        waiting = text((await client.hear())["result"])
        match = re.search(r"waiting for approval (\S+); call again", waiting)
        assert match is not None, waiting
        approval = match[1]
        assert f"hansard approvals grant {approval}" in progress["params"]["message"]
        assert approval in text(await client.call("send", **SEND))
        assert setup.effects() == []
        assert text(await client.call("add", a=1, b=2)) == "3"
        assert (await command("approvals", "grant", approval)).code == 0
        assert text(await client.call("send", **SEND)) == "sent to ada"
        assert setup.effects() == ["ada: x"]
        assert await client.leave() == 0
        assert client.process.stderr is not None
        lines = (await client.process.stderr.read()).decode()
        assert lines.count(f"send is waiting for approval {approval}") == 1
