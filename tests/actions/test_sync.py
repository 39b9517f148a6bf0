"""Caches and experiences of plain tools in the sync client: no page, no event loop."""

import asyncio
from typing import Any

import pytest

import hansard
from hansard.domain.errors import BadValue, Refused

pytestmark = pytest.mark.slow


def sent(record, who, did, workflow="send"):
    """Record a run that greets a person and sends a letter; return its id."""
    with record.run(workflow, agent="ada", role="agent") as session:

        @session.tool(effects="idempotent")
        def greet(name: str) -> None:
            did.append(f"greet {name}")

        @session.tool(effects="once")
        def send(name: str, n: int) -> int:
            did.append(f"send {name}")
            return n

        session.message("user", f'Write to "{who}", please.')
        greet(name=who)
        send(name=who, n=2)
        return session.run


def test_a_cache_of_tools_is_done_again(data_dir, workspace):
    """It is replayed with other values and from the record; a resumed run repeats nothing."""
    did: list[Any] = []
    with hansard.connect(workspace, data_dir=data_dir) as record:
        run = sent(record, "Bob", did)
        cache = record.actions.of_run(run, params={"who": "Bob"})
        record.actions.keep("letters", cache, reason="it works")
        for kept in (cache, record.actions.get("letters")):
            did.clear()
            with record.run("again", agent="ada", role="agent") as session:
                tools: dict[str, Any] = {
                    "greet": session.tool(effects="idempotent")(
                        lambda name: did.append(name.upper())
                    ),
                    "send": lambda name, n: did.append((name, n)),
                }
                with pytest.raises(Refused, match="entry 1"):
                    hansard.actions.Replays(session).run_actions(
                        kept, params={"who": "Eve"}, tools=tools
                    )
                result = hansard.actions.Replays(session).run_actions(
                    kept, params={"who": "Eve"}, tools=tools, once="allow"
                )
            assert result.success, result.error
            assert did == ["EVE", ("Eve", 2)]


def test_an_experience_of_tools_is_done_under_checks(data_dir, workspace):
    """A Python check stops it, and a kept one counts its outcomes."""
    did: list[Any] = []

    @hansard.actions.check_function("argument")
    def nobody_else(step):
        return step.params.get("write") != "Mallory" and step.params.get("to") != "Mallory"

    with hansard.connect(workspace, data_dir=data_dir) as record:
        runs = [sent(record, who, did) for who in ("Bob", "Cleo", "Dan")]
        record.experiences.keep(record.experiences.learn("write-to", runs), reason="three letters")
        record.experiences.confirm("write-to")
        tools: dict[str, Any] = {
            "greet": lambda name: did.append(name.upper()),
            "send": lambda name, n: did.append((name, n)),
        }
        for who in ("Eve", "Mallory"):
            did.clear()
            with record.run("again", agent="ada", role="agent") as session:
                result = hansard.actions.Replays(session).run_experience(
                    "write-to",
                    task=f'Write to "{who}", please.',
                    tools=tools,
                    once="allow",
                    checks=[nobody_else],
                )
            assert result.success is (who == "Eve"), result.error
            assert did == (["EVE", ("Eve", 2)] if who == "Eve" else [])
        [row] = record.sql("SELECT replays, successes FROM experiences").rows
        assert tuple(row) == (2, 1)


def test_pages_are_the_async_client_s(data_dir, workspace):
    """A page in the sync client names the right client; an async function is a tool here, too."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        cache = record.actions.of_run(sent(record, "Bob", []))
        with record.run("again", agent="ada", role="agent") as session:
            with pytest.raises(Refused, match="connect_async"):
                hansard.actions.AsyncBrowser(session, "page")  # type: ignore[arg-type]  # the sync client

            async def slow(**given):
                await asyncio.sleep(0)
                return len(given)

            with pytest.raises(BadValue, match="not given"):
                hansard.actions.Replays(session).run_actions(cache, once="allow")
            tools = {"greet": slow, "send": slow}
            result = hansard.actions.Replays(session).run_actions(cache, tools=tools, once="allow")
        assert [each.value for each in result.actions] == [1, 2]
