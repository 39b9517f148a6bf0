"""Tables of page actions, replays and saved requests, in SQL, over a real broker."""

import json
from pathlib import Path

import msgspec
import pytest

import hansard

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

ATTEMPTS = (
    "SELECT strategy, matches, found FROM action_attempts WHERE run = $1 ORDER BY step, attempt"
)
RUNS = """SELECT cached_run, actions, done, success, by_xpath, by_model, healed, model_calls,
    recorded_model_calls, round(cost_saved, 6) AS cost_saved
FROM action_runs ORDER BY position"""


async def test_replays_and_their_savings_are_queried_in_sql(page, site, data_dir: Path, workspace):
    """A heal costs what the model cost, and a failed replay saves nothing."""
    start = site("<button onclick=\"document.title='done'\">Go</button>")
    moved = site("<p><button onclick=\"document.title='done'\">Los</button></p>", "moved.html")
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:

        async def model(question):  # a key written by hand: no recording exists
            session.usage(cost=0.25)
            line = next(each for each in question.splitlines() if "<button" in each)
            return json.dumps({"id": line.split()[0]})

        async with record.run("go", agent="ada", role="agent") as session:
            browser = hansard.actions.AsyncBrowser(session, page, model=model, timeout_s=5.0)
            await browser.goto(start)
            await browser.act("go", effects="idempotent")

            @session.tool(effects="pure", kind="model")
            async def think() -> str:
                session.usage(cost=1.0)
                return "done"

            await think()
            run = session.run
        cache = await record.actions.of_run(run)
        goto = msgspec.structs.replace(cache.actions[0], arguments=[moved])
        there = msgspec.structs.replace(cache, actions=[goto, cache.actions[1]])
        replays = []
        for each, fallback in ((cache, None), (there, None), (there, model)):
            async with record.run("again", agent="ada", role="agent") as session:
                browser = hansard.actions.AsyncBrowser(session, page, timeout_s=5.0)
                await browser.run_actions(each, fallback=fallback)
                replays.append(session.run)
        runs = await record.sql(RUNS)
        assert [tuple(row.values()) for row in runs.dicts()] == [
            (run, 2, 2, True, 1, 0, 0, 0, 2, 1.25),
            (run, 2, 1, False, 0, 0, 0, 0, 2, 0.0),
            (run, 2, 2, True, 0, 1, 1, 1, 2, 1.0),
        ]
        looks = await record.sql(ATTEMPTS, replays[0])
        assert [tuple(row.values()) for row in looks.dicts()] == [("xpath", 1, True)]
        healed = [tuple(row.values()) for row in (await record.sql(ATTEMPTS, replays[2])).dicts()]
        assert healed[-1] == ("model", 1, True)
        assert not any(each[2] for each in healed[:-1])
        [done, *_] = (
            await record.sql(
                "SELECT tool, method, xpath, success, replayed FROM actions "
                "WHERE run = $1 AND tool LIKE 'browser.act%'",
                replays[0],
            )
        ).dicts()
        assert done == {
            "tool": "browser.act",
            "method": "click",
            "xpath": "/html[1]/body[1]/button[1]",
            "success": True,
            "replayed": True,
        }
