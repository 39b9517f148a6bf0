"""Placeholders and the choice by label, at the side of a restricted agent."""

import asyncio
import inspect
from typing import Any

import pytest

import hansard
from tests.agents.twins import at_once
from tests.service.support import Lab

pytestmark = pytest.mark.later

MAIL = "ada@example.org"


@pytest.mark.fast(cases=1, slow=0)
def test_a_restricted_agents_models_receive_placeholders_too(lab: Lab) -> None:
    """Placeholders apply to streams too; the record has the values and the number of
    replacements.
    """
    prompts: list[str] = []

    async def come(value: Any) -> Any:
        return await value if inspect.isawaitable(value) else value

    async def play() -> None:
        async with lab.connect() as record, record.run(run="r") as session:

            @session.raw.tool(effects="pure", kind="model", placeholders=True)
            def ask(prompt: str) -> str:
                prompts.append(prompt)
                return f"to {prompt}"

            @session.raw.tool(effects="pure", kind="model", placeholders=True)
            def spell(prompt: str) -> Any:
                yield from (prompt[at : at + 4] for at in range(0, len(prompt), 4))

            @session.raw.tool(effects="pure", kind="model", takes="internal")
            def cloud(prompt: str) -> str:
                return f"cloud {prompt}"

            local = session.raw.tool(effects="pure", name="local")(lambda prompt: prompt)
            either: Any = hansard.by_label(local=local, cloud=cloud)

            assert await come(ask(MAIL)) == f"to {MAIL}"
            items = spell(f"{MAIL}!")
            parts = [each async for each in items] if lab.is_async else list(items)
            assert "".join(parts) == f"{MAIL}!"
            assert await come(either("hi")) == "cloud hi"

    asyncio.run(play()) if lab.is_async else at_once(play())
    assert MAIL not in prompts[0]
    usages = [
        event.data
        for stored in lab.commits("r")
        for event in stored.commit.events
        if event.type == "step.completed.v1" and b"replaced_email" in bytes(event.data)
    ]
    assert len(usages) == 2
