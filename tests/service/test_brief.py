"""Representations at a prompt and in a notebook: short, escaped, and without requests."""

import asyncio
import html.parser
import inspect
from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents.board import BoardEntry
from hansard.agents.team.tasks import Mail
from hansard.domain.agent import AgentState
from hansard.domain.choices import Brief
from hansard.domain.run import RunState, RunStatus
from hansard.domain.steps import Effects, Step
from tests.service.support import House, Lab
from tests.service.test_parity import play

pytestmark = pytest.mark.later

EVIL = "<script>alert('\"&amp;')</script>\x1b[31m\u202e\x00\n\ud800"
LINE_MAX = 1_000
PAGE_MAX = 40_000


class Tags(html.parser.HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.tags.add(" ".join([tag, *(f"{name}={value}" for name, value in attrs)]))


HARMLESS = {"table", "caption", "b", "tr", "th style=text-align:left", "td style=text-align:left"}


def looked_at(value: Any) -> tuple[str, str]:
    """Return a value's repr and HTML page after checking that both are small and harmless."""
    line, page = repr(value), value._repr_html_()
    assert line.isprintable()
    assert len(line) < LINE_MAX
    assert page.isprintable()
    assert len(page) < PAGE_MAX
    assert Tags(page).tags <= {*HARMLESS, "br"}
    return line, page


def step(number: int, tool: str = "search", result: Any = None) -> Step:
    """Return a recorded step."""
    return Step(
        number=number,
        tool=tool,
        effects=Effects.PURE,
        arguments=msgspec.Raw(b"{}"),
        call="c",
        fingerprint="f",
        version=number,
        result=msgspec.Raw(msgspec.json.encode(len(str(result)))),
    )


def big(text: str) -> list[Any]:
    """Things of every kind that a text may come into, and a great many of each."""
    many = [f"{text} {n}" for n in range(5_000)]
    steps = {n: step(n, text, text * 1_000) for n in range(5_000)}
    return [
        RunState(
            workflow=text * 1_000,
            status=RunStatus.OPEN,
            roster=dict.fromkeys(many, text),
            at_work=many,
        ),
        AgentState(agent=text, role=text * 1_000, steps=steps),
        steps[1],
        BoardEntry(
            text,
            "value",  # type: ignore[arg-type] # a kind is a text
            {text: many, "nested": [[many]]},
            1,
            text,
            text,
            dict.fromkeys(many, text),
        ),
        Mail(1, text, text, text, text * 10_000),
    ]


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("text", [EVIL, "a" * 500, "'" * 500, "<" * 500])
def test_what_anybody_wrote_is_escaped_and_cut(text: str, index: int) -> None:
    """Markup, controls and bidi characters are escaped; long lists are counted."""
    line, page = looked_at(big(text)[index])
    assert "<script" not in page
    assert line.endswith(")")


def test_a_state_says_what_counts() -> None:
    """A line to be read, and a table with the first of each list."""
    state = AgentState(agent="ada", role="writer", version=7, steps={n: step(n) for n in range(20)})
    line, page = looked_at(state)
    assert line == "AgentState(agent='ada', role='writer', version=7, epoch=0, facts=0, steps=<20>)"
    assert "9 search: requested<br>and 10 more" in page


@pytest.mark.fast(cases=1, slow=0)
def test_every_session_record_and_view_has_both(lab: Lab) -> None:
    """Every session, record and view has both forms through either door, even after it is
    closed.
    """
    objects: list[Any] = []

    async def scenario() -> None:
        async with lab.connect() as record, record.run(run="r") as session:
            await session.checkpoint("c")
            objects.extend([record.raw, session.raw, session.raw.board, session.raw.team])
            assert "status='open'" in repr(session.raw)
            view = session.raw.view()
            objects.append(await view if lab.is_async else view)

    play(lab, scenario())
    lab.house.end()
    for each in objects:
        line, page = looked_at(each)
        assert "run='r'" in line or "workspace=" in line
        assert "<th" in page
    assert "status='ended'" in repr(objects[1])
    lab.house.begin()


def test_no_secret_is_shown(house: House) -> None:
    """Neither redacted values nor parts of a login are shown."""
    house.login()
    secret = house.known()
    hidden = [secret.token, secret.nkey_seed, "s3cr3t-v4lue"]
    with (
        house.connect(redact={"key": "s3cr3t-v4lue"}) as record,
        record.run("w", run="r") as session,
    ):
        echo = session.tool(effects="pure", name="echo")(lambda: "s3cr3t-v4lue")
        echo()
        shown = [record, session, session.board, session.view(), echo]
        with house.trusted() as trusted:
            view = trusted.state("r")
            shown += [trusted, view, view.life, *view.agents.values()]
            shown += list(view.agent("ada").steps.values())
        for each in shown:
            text = "".join(looked_at(each))
            assert not [part for part in hidden if part and part in text]


def test_no_repr_waits() -> None:
    """Nothing that shows itself is a coroutine, or drives one: a repr never asks the broker."""
    todo, seen = [Brief], []
    while todo:
        each = todo.pop()
        todo += each.__subclasses__()
        if "_brief" in vars(each):
            seen.append(each)
            source = inspect.getsource(vars(each)["_brief"])
            assert "await" not in source
            assert "_drive" not in source
            assert "_portal" not in source
    assert {"_Session", "AgentState", "RunView"} <= {each.__name__ for each in seen}


def test_the_twins_show_the_same(house: House, data_dir: Any) -> None:
    """Records of the sync and the async client have the same representation."""

    async def shown() -> str:
        async with hansard.connect_async(house.workspace, data_dir=data_dir) as record:
            return repr(record)

    with house.trusted() as record:
        assert repr(record) == asyncio.run(shown()).removeprefix("Async")
