"""Sessions in a notebook, whose cells share neither a context nor a task: played with a kernel."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.domain.run import RunStatus
from tests.conftest import THOROUGH
from tests.notebooks.support import Notebook
from tests.test_docs import PAGES, name_of, notebook

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OPEN = """
import asyncio, pathlib, time
import hansard

record = await hansard.connect_async()
session = await record.open("nb", run="nb-1", agent="ada", role="writer")
"""
TOOLS = """
def mark(name):
    with open("ran.txt", "a") as file:
        file.write(f"{name}\\n")

async def until_told(name):
    mark(name)
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.02)

@hansard.tool(effects="pure")
def double(text: str) -> str:
    mark(text)
    return text * 2

@hansard.tool(effects="pure")
async def think(text: str) -> str:
    await until_told(text)
    return text.upper()

@hansard.tool
async def mail(to: str) -> str:
    await until_told(to)
    return f"sent to {to}"

@hansard.tool(effects="pure")
def fail(why: str) -> None:
    raise ValueError(why)
"""


@pytest.fixture
def book(tmp_path: Path, data_dir: Path, workspace: str) -> Iterator[Notebook]:
    """Yield a notebook in its own folder, whose records go to the broker that is up."""
    with Notebook(tmp_path, data_dir, workspace) as opened:
        yield opened


def ran(book: Notebook) -> list[str]:
    """Return the arguments of the real tool calls, in order."""
    file = book.folder / "ran.txt"
    return file.read_text().split() if file.exists() else []


def begun(book: Notebook) -> None:
    """Run the first two cells."""
    for text in (OPEN, TOOLS):
        result = book.run(text)
        assert not result.error, result.traceback


def on_record(book: Notebook) -> Any:
    """Return the run as another process reads it."""
    with hansard.connect(book.workspace, data_dir=book.data_dir) as record:
        return record.state("nb-1")


def test_a_session_is_open_over_the_cells(book: Notebook) -> None:
    """A session spans cells; an error in one ends nothing, and all is on record."""
    begun(book)
    assert book.run("await double('x')").text == "'xx'"
    assert book.run("await asyncio.gather(double('y'), double('z'))").text == "['yy', 'zz']"
    assert book.run("1 / 0").error == "ZeroDivisionError: division by zero"
    assert book.run("await fail('no ink')").error == "ValueError: no ink"
    assert book.run("async with session.team.claim('no such') as task: pass").error
    assert not book.run("await session.decide('Which?', selected='a', inputs=['ada#1'])").error
    assert not book.run("await session.board.put('k', {'n': 1})").error
    assert book.run("await session.board.get('k')").text == "{'n': 1}"
    assert "nb-1" in book.run("session").html
    assert not book.run("await session.close(); await record.close()").error
    assert "no session is current" in book.run("await double('late')").error
    view = on_record(book)
    assert view.life.status is RunStatus.COMPLETED
    assert [step.tool for step in view.agent("ada").steps.values()] == [
        *("double", "double", "double", "fail", "board.put", "board.get")
    ]


def test_a_restarted_kernel_is_answered_from_the_record(book: Notebook) -> None:
    """The same cells again: nothing is done twice, whether it was restarted (in full) or killed."""
    (book.folder / "go").touch()
    begun(book)
    assert book.run("await mail('eve')").text == "'sent to eve'"
    assert book.run("await think('b')").text == "'B'"
    for kill in (False, True) if THOROUGH else (True,):
        book.restart(kill=kill)
        assert on_record(book).life.status is RunStatus.OPEN  # nobody closed it
        begun(book)
        assert book.run("await mail('eve')").text == "'sent to eve'"
        assert book.run("await think('b')").text == "'B'"
    assert ran(book) == ["eve", "b"]


async def test_a_failed_call_made_again_is_new_until_its_session_is_opened_again(
    data_dir: Path, workspace: str
) -> None:
    """In one session an effect that failed runs again; after opening again it is in doubt."""
    ran: list[str] = []

    @hansard.tool
    async def pay(to: str) -> str:
        ran.append(to)
        raise ValueError("no answer")

    options: Any = {"run": "nb-1", "agent": "ada", "role": "writer"}
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        await record.open("nb", **options)
        for count in (1, 2):
            with pytest.raises(ValueError, match="no answer"):
                await pay("eve")
            assert len(ran) == count
        await record.open("nb", **options)
        with pytest.raises(ValueError, match="no answer"):  # the first, after which it went on
            await pay("eve")
        with pytest.raises(hansard.InDoubt):
            await pay("eve")
    assert len(ran) == 2


@pytest.mark.parametrize("page", [page for page in PAGES if notebook(page)], ids=name_of)
def test_the_notebook_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """The cells run in order in one kernel, and again in another one from the record."""
    for _ in range(2):
        with Notebook(tmp_path, tmp_path / "data", "default") as book:
            for text in notebook(page):
                assert not book.run(text).error, text
