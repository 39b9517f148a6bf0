"""Recorded text is shown, never obeyed: no payload runs, breaks the page, or turns its text."""

import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from msgspec import Raw

from hansard.bus.commits import encode, record
from hansard.bus.log import Append, Copied, Origin
from hansard.client.options import Defaults
from hansard.client.record import AsyncRecord
from hansard.domain.agent import SessionBegan
from hansard.domain.events import Actor, Commit
from hansard.domain.ids import AgentStream, RunStream, uuid8
from hansard.domain.run import AgentJoined, RunStarted
from hansard.domain.steps import Effects, StepCompleted, StepRequested
from tests.browser.support import TOO_WIDE, Open, Pages, View, expected
from tests.conftest import THOROUGH

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

RUN = 'run "><script>window.hacked=1</script>/../x'
PAYLOADS = {
    "end of script": "</script><script>window.hacked = 1; alert(1)</script>",
    "comment": "<!--<script>window.hacked = 1//--><!]]>",
    "image": '<img src=x onerror="window.hacked = 1">',
    "vector": "<svg><script>window.hacked = 1</script></svg>",
    "link": "javascript:window.hacked=1",
    "template": "{{data}} {{script}} ${window.hacked = 1} `",
    "line ends": "a\u2028window.hacked = 1\u2029b\r\nc\x00d\x1b[31me\x7ff\x85g",
    "turned": "\u202egnp.exe\u2066 \u200f\u061c",
    "style": "</style><style>* { display: none }",
    "entity": "&lt;b&gt; &#x3c;script&#x3e; &amp;",
    "quotes": "\\\"'\\u003c\\",
}
LONG = 5_000_000 if THOROUGH else 1_000_000
"""Characters of the longest text."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hostile(pages: Pages) -> str:
    """Return a run whose every name and value is hostile."""
    client = AsyncRecord(pages.workspace, Defaults())
    image = PAYLOADS["image"]
    with contextlib.suppress(RuntimeError):
        async with client.run(
            PAYLOADS["end of script"],
            run=RUN,
            agent=image,
            role=PAYLOADS["vector"],
            labels={"__proto__": image, image: "</title>"},
        ) as session:

            @session.tool(effects="pure")
            async def echo(value: Any) -> Any:
                return value

            @session.tool(name=PAYLOADS["end of script"], effects="pure")
            async def other(**given: Any) -> Any:
                return given

            for name, text in PAYLOADS.items():
                await echo({name: text, text: name, "__proto__": {"polluted": text}})
                await session.message(text, text, fields={"name": text, "constructor": "x"})
                if name != "line ends":  # no name may hold control characters
                    await session.checkpoint(text, toString=text)
                await session.decide(text, selected=text, alternatives=[text], reason=text)
            await other(hasOwnProperty=1, __proto__=[PAYLOADS["image"]])
            await echo("y" * LONG)
            raise RuntimeError(PAYLOADS["end of script"])
    return RUN


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hostile_team(pages: Pages) -> str:
    """Return a run whose keys, values, tasks and messages are hostile."""
    client = AsyncRecord(pages.workspace, Defaults())
    texts = [text for name, text in PAYLOADS.items() if name != "line ends"]
    async with client.run("team", run="hostile-team", agent="<i>ada</i>", role=texts[0]) as ada:
        for number, text in enumerate(texts):
            await ada.board.put(text, {text: text, "__proto__": {"polluted": text}})
            await ada.board.merge(f"union {number}", "union", {text: text, "__proto__": 1})
            await ada.team.add(text, what=text, role=text, task=text)
            await ada.team.send({"__proto__": {"polluted": text}, text: text}, role=text)
            await ada.team.send(text * 200, agent=text)
        await ada.board.append("__proto__", "x")
        await ada.board.include("constructor", "y" * 200)
        task = await ada.team.claim(role=texts[1])
        assert task is not None
        await ada.team.fail(task, texts[2])
        await ada.board.put("long", "z" * LONG)
    return "hostile-team"


async def _unharmed(seen: View) -> None:
    harm = await seen.page.evaluate(
        """() => [
          window.hacked,
          document.scripts.length - 2,
          document.querySelectorAll("img, svg, iframe, object, embed, a, style ~ style").length,
          Object.prototype.polluted,
          document.styleSheets.length - 1,
        ]"""
    )
    assert harm == [None, 0, 0, None, 0]
    assert seen.console == []


async def test_no_payload_runs(view: Open, pages: Pages, hostile: str):
    """At every event, or every third, nothing hostile ran and no element was made."""
    seen = await view(await pages.of(hostile))
    assert await seen.page.title() == RUN
    assert await seen.text("#workflow") == PAYLOADS["end of script"]
    last = await seen.last()
    for point in (*range(0, last, 1 if THOROUGH else 3), last):
        await seen.move(point)
        await seen.page.evaluate(
            """() => { for (let i = 0; i < 3; i++) {
                 for (const fold of document.querySelectorAll("main details:not([open]) > summary"))
                   fold.click();
               } }"""
        )
    await _unharmed(seen)


async def test_hostile_text_is_readable(view: Open, pages: Pages, hostile: str):
    """It is found and shown as text; unprintable and direction characters are escaped."""
    seen = await view(await pages.of(hostile))
    await seen.page.click("#desk-chat")
    payloads = {
        "alert(1)": PAYLOADS["end of script"],
        "* { display": PAYLOADS["style"],
        "&#x3c;script": PAYLOADS["entity"],
        "gnp.exe": r"\u202egnp.exe\u2066 \u200f\u061c",
        "[31me": r"c\u0000d\u001b[31me\u007ff\u0085g",
    }
    unprinted = set("\u202e\u2066\u200f\u061c\x00\x1b\x7f\x85\u2028\u2029")
    for words, read in payloads.items():
        assert " of " in await seen.search(words), words
        assert read in await seen.text("#event"), words
        assert not unprinted & set(await seen.text("main")), words
    await seen.end()
    chat = await seen.text("#chat")
    assert [read for read in payloads.values() if read not in chat] == []
    assert not unprinted & set(chat)
    await _unharmed(seen)


@pytest.mark.parametrize("width", [360, pytest.param(1280, marks=pytest.mark.thorough)])
async def test_a_hostile_team_is_text(view: Open, pages: Pages, hostile_team: str, width: int):
    """Hostile keys, values, tasks and messages are shown whole as text, at any event."""
    seen = await view(await pages.of(hostile_team), width=width)
    tabs = "tab" if width < 900 else "desk"
    last = await seen.last()
    for point in (*range(0, last, 61), last):
        await seen.move(point)
        for name in ("board", "tasks", "chat"):
            await seen.page.click(f"#{tabs}-{name}")
            await seen.page.evaluate(
                """(id) => { for (const fold of document.querySelectorAll(
                     `#${id} details:not([open]) > summary`)) fold.click(); }""",
                name,
            )
            text = await seen.page.inner_text(f"#{name}")
            assert not set("\u202e\u2066\u061c") & set(text)
            wide = await seen.page.evaluate(TOO_WIDE)
            assert wide == [], (point, name)
            await _unharmed(seen)
    await seen.page.click(f"#{tabs}-board")
    keys = seen.page.locator("#board-now > .list > *")
    state = await pages.workspace.states.run(hostile_team)
    named = await keys.evaluate_all("all => all.map((row) => row.dataset.key)")
    assert named == sorted(state.boards)
    await seen.page.click(f"#{tabs}-tasks")
    tasks = seen.page.locator("#tasks-now > .list > *")
    assert await tasks.count() == len(state.team.tasks)
    words = str(await seen.page.text_content("#tasks"))
    assert PAYLOADS["end of script"] in words
    assert "\\u202egnp.exe" in words


async def test_bytes_that_are_no_json_are_shown_as_they_are(view: Open, pages: Pages):
    """A payload that is not UTF-8 or has an impossible number is text; the state is still right."""
    stream = AgentStream("damaged", "r", "a")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    life = (RunStarted(workflow="damaged"), AgentJoined(agent="a", role="r"))
    began = SessionBegan(epoch=1, agent="a", role="r", server_version="1", protocol_version="1")
    requests = [
        StepRequested(
            step=step,
            tool="t",
            effects=Effects.PURE,
            arguments=Raw(b"{}"),
            call=f"c{step}",
            fingerprint=f"f{step}",
        )
        for step in (1, 2, 3)
    ]
    answers = (b'"\xff\xfe bytes"', b"[1e999]", b"[" * 900 + b"]" * 900)
    done = [
        StepCompleted(step=step, result=Raw(answer), digest="d")
        for step, answer in enumerate(answers, 1)
    ]
    appends = []
    for owner, events in ((RunStream("damaged"), life), (stream, (began, *requests, *done))):
        recorded_events = tuple(
            record(event, uuid8(str(owner), str(i))) for i, event in enumerate(events)
        )
        commit = Commit(
            id=uuid8(str(owner)),
            version=1,
            at=at,
            actor=Actor("a"),
            epoch=1,
            events=recorded_events,
        )
        origin = Origin("elsewhere", 1, "2026-01-01T00:00:00.000000000Z")
        appends.append(Append(owner, commit, copied=Copied(encode(owner, commit), origin)))
    await pages.workspace.log.append_bulk(appends)
    seen = await view(await pages.of("damaged"))
    await seen.end()
    assert await seen.shown() == expected(await pages.workspace.states.run("damaged"))
    assert " of " in await seen.search("\\xff\\xfe bytes")
    assert " of " in await seen.search("1e999")
    await _unharmed(seen)
