"""`with hansard.Session() as session`: one line to start, without a record."""

import asyncio
import inspect
import os
import sys
from pathlib import Path

import pytest

import hansard
from hansard.bus.portal import portal
from hansard.domain.run import RunStatus
from tests.agents.twins import Lab

pytestmark = pytest.mark.contract


@hansard.tool(effects="pure")
def doubled(number: int) -> int:
    """Return twice the number."""
    return number * 2


@pytest.fixture(autouse=True)
def _program(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a program `digest.py` with only its workspace in the environment."""
    for name in [name for name in os.environ if name.startswith("HANSARD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HANSARD_DATA_DIR", str(lab.data_dir))
    monkeypatch.setenv("HANSARD_WORKSPACE", lab.workspace)
    monkeypatch.setattr(sys, "argv", ["/srv/jobs/digest.py", "--all"])


async def _doubled(lab: Lab, number: int) -> int:
    result = doubled(number)
    return await result if lab.is_async else result  # type: ignore[misc] # a coroutine of the async client


async def test_it_works_without_any_setting(lab: Lab):
    """Names have defaults, and the run ends with its block, on record as with a record."""
    session = lab.session()
    async with lab.begun(session) as entered:
        assert entered.raw is session
        assert (session.agent, session.role, session.mode) == ("agent", "agent", hansard.Mode.LIVE)
        assert await _doubled(lab, 21) == 42
        await entered.checkpoint("half", done=1)
        run = session.run
    async with lab.connect() as record:
        [(name, life)] = await record.runs()
        assert (name, life.workflow, life.status) == (run, "digest", RunStatus.COMPLETED)
        assert [step.tool for step in await record.steps(run, "agent")] == ["doubled"]


async def test_arguments_win_over_settings_and_those_over_defaults(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """All four can be set in each of them; `record.run` takes the same defaults."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "hansard.toml").write_text(
        f'data_dir = "{lab.data_dir}"\nworkflow = "of-file"\nagent = "bob"\nrole = "critic"\n'
    )
    monkeypatch.delenv("HANSARD_DATA_DIR")
    monkeypatch.setenv("HANSARD_ROLE", "editor")
    async with lab.begun(lab.session()) as entered:
        assert (entered.raw.agent, entered.raw.role) == ("bob", "editor")
        unnamed = entered.raw.run
    async with lab.begun(lab.session("given", agent="ada", role="r", run="mine")) as entered:
        assert (entered.raw.agent, entered.raw.role, entered.raw.run) == ("ada", "r", "mine")
    async with lab.connect(data_dir=None) as record:  # that of the file
        lives = dict(await record.runs())
        assert (lives[unnamed].workflow, lives["mine"].workflow) == ("of-file", "given")
        async with record.run(None, agent=None, role=None) as entered:
            assert (entered.raw.agent, entered.raw.role) == ("bob", "editor")
            begun = entered.raw.run
        assert dict(await record.runs())[begun].workflow == "of-file"


async def test_a_run_is_resumed_and_replayed_from_outside(lab, monkeypatch):
    """`hansard run resume` and `replay` find the run even where the program was renamed."""
    for epoch in (1, 2):
        async with lab.begun(lab.session(run="r1", labels={"for": "tests"})) as entered:
            assert await _doubled(lab, 1) == 2
            assert entered.raw.state.epoch == epoch
    monkeypatch.setenv("HANSARD_RUN", "r1")
    monkeypatch.setattr("hansard.settings._removed", {})
    monkeypatch.setattr(sys, "argv", ["renamed.py"])
    async with lab.begun(lab.session()) as entered:
        assert "HANSARD_RUN" not in os.environ  # the programs that it starts have other runs
        assert (entered.raw.run, entered.raw.mode) == ("r1", hansard.Mode.RESUME)
        assert await _doubled(lab, 1) == 2
    monkeypatch.setenv("HANSARD_MODE", "strict")
    with pytest.raises(hansard.errors.Miss):
        async with lab.begun(lab.session()):
            assert await _doubled(lab, 1) == 2
            await _doubled(lab, 2)
    with pytest.raises(hansard.errors.Refused, match="is of workflow 'digest', not 'other'"):
        async with lab.begun(lab.session("other")):
            pass
    async with lab.connect(mode="live") as record:
        assert len(await record.steps("r1", "agent")) == 1


async def test_before_and_after_its_block_it_says_so(lab: Lab):
    """Nothing is done then: not a second block, not the block of a session that a record opened."""
    session = lab.session("w")
    assert repr(session) == f"{type(session).__name__}(workflow='w', status='not begun')"
    for name in ("run", "agent", "mode", "board", "team", "tool", "state", "label", "arm"):
        with pytest.raises(hansard.errors.NotBegun, match=r"inside 'with hansard\.Session"):
            getattr(session, name)
    assert not hasattr(session, "nothing_like_it")
    for use in (lambda: session.usage(tokens=1), lambda: session.use().__enter__()):
        with pytest.raises(hansard.errors.NotBegun):
            use()
    for call in (session.checkpoint, session.close):
        with pytest.raises(hansard.errors.NotBegun):
            result = call("x") if call == session.checkpoint else call()
            await result if inspect.isawaitable(result) else None
    async with lab.begun(session) as entered:
        with pytest.raises(hansard.errors.Refused, match="is open already"):
            async with lab.begun(session):
                pass
    with pytest.raises(hansard.errors.SessionEnded):
        await entered.checkpoint("late")
    with pytest.raises(hansard.errors.SessionEnded):
        async with lab.begun(session):
            pass
    async with lab.connect() as record, record.run() as opened:
        assert isinstance(opened.raw, type(session))
        with pytest.raises(hansard.errors.Refused, match="is open already"):
            async with lab.begun(opened.raw):
                pass
        await opened.checkpoint("goes on")


async def test_what_it_opened_is_closed_however_it_ends(lab: Lab):
    """By an error in its block, which fails the run, and where the run cannot be opened."""
    before = _at_work(lab)
    with pytest.raises(KeyError):
        async with lab.begun(lab.session(run="r")):
            raise KeyError("wrong")
    _check_at_work(lab, before)
    with pytest.raises(hansard.errors.Refused, match="has role 'agent' in this run"):
        async with lab.begun(lab.session(run="r", role="other")):
            pass
    _check_at_work(lab, before)
    async with lab.connect() as record:
        [(_, life)] = await record.runs()
        assert life.status is RunStatus.FAILED


def _at_work(lab: Lab) -> set[asyncio.Task[object]]:
    """Return the tasks that read and write this client's connections, in its loop."""
    return {*asyncio.all_tasks(None if lab.is_async else portal().loop)}


def _check_at_work(lab: Lab, before: set[asyncio.Task[object]]) -> None:
    """Check that no new task exists; earlier ones may have ended."""
    now = _at_work(lab)
    assert now <= before
    assert [each for each in before - now if each.cancelled()] == []


async def test_a_wrong_option_is_refused_where_passed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """A misspelt option fails where passed; restricted credentials, at the session's start."""
    with pytest.raises(hansard.errors.BadOption, match="did you mean 'conversation'"):
        lab.session(conversatoin="c")
    monkeypatch.setenv("HANSARD_CREDENTIALS", str(tmp_path / "eva.json"))
    with pytest.raises(hansard.errors.NotOffered, match=r"record.run\(...\) of hansard.connect"):
        async with lab.begun(lab.session()):
            pass
    monkeypatch.delenv("HANSARD_CREDENTIALS")
    gate = [hansard.deny("doubled", name="not today")]
    async with lab.begun(
        lab.session(gate=gate, redact={"key": "hush-hush"}, data_dir=lab.data_dir)
    ):
        with pytest.raises(hansard.Blocked, match="not today"):
            await _doubled(lab, 1)
