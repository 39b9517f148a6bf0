"""`settle=hansard.ask_person`: one key at a terminal settles a step in doubt."""

from typing import Any

import pytest

import hansard
from hansard.bus.clock import OS_USER
from hansard.bus.commits import revive
from hansard.domain.steps import StepSettled
from tests.agents.terminal import Terminal
from tests.agents.twins import Lab

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=99, slow=0)]

STOP = "s  stop here"


class Files:
    """A folder that a tool writes to: where it looks for it is wrong first."""

    def __init__(self) -> None:
        self.path = "reprots"
        self.begun = 0

    async def put(self, text: str) -> str:
        """Write, or find no folder."""
        self.begun += 1
        if self.path != "reports":
            raise FileNotFoundError(f"[Errno 2] No such file or directory: {self.path!r}")
        return f"{len(text)} letters"


async def _write(record: Any, files: Files, *, mended: bool = False, **options: Any) -> Any:
    """Write the program, either faulty or `mended`."""
    async with record.run(run="r", **options) as session:
        if mended:

            @session.tool()
            async def write(text: str) -> Any:
                files.path = "reports"
                return await files.put(text)

        else:

            @session.tool()
            async def write(text: str) -> Any:
                return await files.put(text)

        return await write("what was found")


async def _failed(lab: Lab, files: Files) -> None:
    async with lab.connect() as record:
        with pytest.raises(FileNotFoundError):
            await _write(record, files)


@pytest.mark.slow(cases=1)
async def test_one_key_says_that_nothing_happened(lab: Lab):
    """The doubt is shown, and one key runs the call again as another attempt of that person."""
    files = Files()
    await _failed(lab, files)
    async with lab.connect(settle=hansard.ask_person) as record:
        with Terminal((STOP, ("n",))) as terminal:
            assert await _write(record, files, mended=True) == "14 letters"
        [step] = await record.steps("r")
        assert (step.status, step.attempt, files.begun) == ("completed", 2, 2)
        settled = [
            (event.by, event.verdict)
            for stored in await record.commits("r")
            for event in map(revive, stored.commit.events)
            if isinstance(event, StepSettled)
        ]
        assert settled == [(OS_USER, "did_not_happen")]
    shown = terminal.shown
    assert "step ada#1 of run r failed, and whether it did something before that" in shown
    assert 'write {"text":"what was found"}' in shown
    assert "FileNotFoundError: [Errno 2] No such file or directory: 'reprots'" in shown
    assert "source  of write changed since (" in shown
    assert "test_ask_person.py:" in shown
    assert "the text of then is not on record" in shown
    assert "Did it do anything?" in shown


async def test_the_result_is_requested_where_it_happened(lab: Lab):
    """A result is JSON, or a text; other keys are ignored."""
    files = Files()
    await _failed(lab, files)
    answers = (STOP, ("q", "h")), ("or text)", ('{"letters": 14}\n',))
    async with lab.connect(settle=hansard.ask_person) as record:
        with Terminal(*answers) as terminal:
            assert await _write(record, files) == {"letters": 14}
    assert files.begun == 1
    shown = terminal.shown
    assert "source  of write as recorded (" in shown
    assert "what else changed is not on record" in shown


async def test_stopping_leaves_it_as_it_is(lab: Lab):
    """The error shows the command, as it does without a question and without a terminal."""
    files = Files()
    await _failed(lab, files)
    async with lab.connect(settle=hansard.ask_person) as record:
        with pytest.raises(hansard.InDoubt, match=r"run settle r ada#1 --happened RESULT"):
            await _write(record, files)
        with (
            Terminal((STOP, ("s",))),
            pytest.raises(hansard.InDoubt, match=r"run settle r ada#1 --happened RESULT"),
        ):
            await _write(record, files)
        assert files.begun == 1
        assert "step.settled.v1" not in await record.tags("r")


async def test_a_divergence_is_a_question(lab: Lab):
    """After an earlier edit the key decides: reuse the recorded step, or run it again."""
    sent = []

    async def program(record: Any, first: int) -> str:
        async with record.run(run="r") as session:

            @session.tool(effects="pure", version=str(first))
            async def look() -> int:
                return first

            @session.tool()
            async def send(to: str) -> str:
                sent.append(to)
                return f"sent {len(sent)}"

            await look()
            answer: str = await send("bob")
            return answer

    async with lab.connect(settle=hansard.ask_person) as record:
        assert await program(record, 1) == "sent 1"
        with Terminal((STOP, ("u",))) as terminal:
            assert await program(record, 2) == "sent 1"
        assert (
            "is completed on record, and the call made now may repeat its effect" in terminal.shown
        )
        with Terminal((STOP, ("r",))):
            assert await program(record, 3) == "sent 2"


async def test_a_setting_turns_the_question_on(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """The setting applies to programs without a policy; a program's own policy takes precedence."""
    files = Files()
    await _failed(lab, files)
    unsettled: list[hansard.UnsettledStep] = []

    def policy(step: hansard.UnsettledStep) -> None:
        unsettled.append(step)

    monkeypatch.setenv("HANSARD_SETTLE", "ask")
    async with lab.connect(settle=policy) as record:
        with pytest.raises(hansard.InDoubt):
            await _write(record, files)
    [step] = unsettled
    assert (step.run, step.agent, step.number, step.diverged) == ("r", "ada", 1, False)
    assert step.source_before == step.source_now != ""
    assert lab.workspace in step.command
    async with lab.connect() as record:
        with Terminal((STOP, ("n",))), pytest.raises(FileNotFoundError):
            await _write(record, files)
    monkeypatch.setenv("HANSARD_SETTLE", "aks")
    with pytest.raises(hansard.BadValue, match="did you mean 'ask'"):
        async with lab.connect():
            pass


async def test_what_is_raised_before_anything_is_done_asks_nobody(lab: Lab):
    """An error that `safe_errors` names leaves no doubt; any other error does."""
    errors: list[Exception] = [ConnectionRefusedError("port 25"), hansard.errors.NotDone("full")]
    errors.append(TypeError("from inside"))

    async def program(record: Any, *args: Any) -> str:
        async with record.run(run="r") as session:

            @session.tool(safe_errors=hansard.NOTHING_HAPPENED)
            async def send(to: str) -> str:
                if errors:
                    raise errors.pop(0)
                return f"sent to {to}"

            answer: str = await send(*args)
            return answer

    async with lab.connect() as record:
        with pytest.raises(TypeError, match="missing a required argument: 'to'"):
            await program(record)
        assert await record.steps("r") == []
        for kind in (ConnectionRefusedError, hansard.errors.NotDone, TypeError, hansard.InDoubt):
            with pytest.raises(kind):
                await program(record, "bob")
        assert errors == []
