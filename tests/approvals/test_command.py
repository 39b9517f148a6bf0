"""`hansard approvals`: open questions are listed, and answered by id or its prefix."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

import hansard

pytestmark = pytest.mark.later

ASK = (hansard.ask_first("send_*", timeout_s=20),)

WAITS = """
import signal, sys
import hansard

signal.signal(signal.SIGINT, signal.default_int_handler)
with (
    hansard.connect(data_dir=sys.argv[1], gate=[hansard.ask_first("send_*")]) as record,
    record.run("w", run="r", agent="ada", role="writer") as session,
):
    session.tool(name="send_mail")(len)("bob")
"""


@pytest.fixture
def waiting(record):
    """Start an agent that waits for an answer; yield its eventual outcome."""
    outcomes: list[str] = []

    def ask() -> None:
        with record.run("w", run="r", agent="ada", role="writer", gate=ASK) as session:

            @session.tool
            def send_mail(to: str, text: str) -> str:
                return f"sent to {to}"

            try:
                outcomes.append(send_mail("bob", "\x1b[31mred"))
            except hansard.Blocked as error:
                outcomes.append(str(error))

    agent = threading.Thread(target=ask)
    agent.start()
    deadline = time.monotonic() + 20
    while not record.approvals.list():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield outcomes, agent
    agent.join()


@pytest.mark.slow
def test_what_waits_is_listed_and_granted(call, record, waiting):
    """Questions are listed without control characters, as objects in JSON, and by id prefix."""
    outcomes, agent = waiting
    [question] = record.approvals.list()
    name = question.approval.id
    shown = call("approvals")
    assert shown.code == 0
    assert all(part in shown.out for part in (name, "pending", "ada", "send_mail", "bob"))
    assert "\x1b" not in shown.out
    [line] = [msgspec.json.decode(each) for each in call("approvals", "--json").out.splitlines()]
    assert (line["approval"], line["standing"], line["run"]) == (name, "pending", "r")
    assert line["arguments"]["to"] == "bob"
    granted = call("approvals", "grant", name[:30], "--reason", "read it", "--by", "eva")
    assert granted.code == 0
    what = f"approval {name} of send_mail (ada#1 of run r)"
    assert granted.out == f"{what} is granted by eva\n"
    agent.join()
    assert outcomes == ["sent to bob"]
    assert "no call waits for approval" in call("approvals").out
    every = call("approvals", "--all").out
    answered = record.approvals.list(answered=True)[0].approval.answered_at
    assert answered is not None
    moment = f"{datetime.fromtimestamp(answered // 10**9, UTC):%Y-%m-%d %H:%M:%SZ}"
    assert all(part in every for part in ("granted", "eva", "read it", moment))


def test_what_waits_is_denied(call, record, waiting):
    """The agent gets the reason; a second answer is refused, naming the first one's author."""
    outcomes, agent = waiting
    [question] = record.approvals.list()
    name = question.approval.id
    denied = call("approvals", "deny", name, "--reason", "too early", "--by", "eva", "--json")
    line = msgspec.json.decode(denied.out)
    assert (line["run"], line["tool"], line["by"]) == ("r", "send_mail", "eva")
    assert line["summary"].endswith("is denied by eva")
    agent.join()
    assert "'eva' denied it" in outcomes[0]
    assert outcomes[0].count("too early") == 1
    again = call("approvals", "grant", name)
    assert again.code == 2
    assert "is denied by 'eva' already" in again.err


@pytest.mark.parametrize("name", ["nothing", ""])
def test_an_id_that_is_none(call, record, name):
    """The error names the command that lists questions."""
    with record.run("w", run="r"):
        pass
    output = call("approvals", "grant", name)
    assert output.code == 2
    assert "hansard approvals --all" in output.err


def test_the_trail_and_why_name_who_answered_what_and_when(call, record):
    """An approval is in the trail and beside its decision; a message has no tool."""
    with record.run("w", run="said", agent="ada", role="writer", gate=ASK) as session:

        @session.tool
        def send_mail(to: str, text: str) -> str:
            return f"sent to {to}"

        person = threading.Thread(target=answer, args=(record, "eva", "read it"))
        person.start()
        send_mail("bob", "hello")
        person.join()
        session.message("user", "thank you")
        session.decide("Send another?", selected="no")
    trail = [msgspec.json.decode(line) for line in call("trail", "said", "--json").out.splitlines()]
    rows = {row["what"]: row for row in trail if row["kind"] == "event"}
    requested, granted = rows["asked for approval"], rows["approved"]
    assert (requested["agent"], requested["step"], requested["tool"]) == ("ada", 1, "send_mail")
    assert (granted["step"], granted["tool"]) == (1, "send_mail")
    assert "says eva: read it" in granted["detail"]
    assert (rows["message"]["step"], rows["message"]["tool"]) == (None, None)
    explained = call("why", "said")
    assert "Nearby approvals and denials" in explained.out
    facts = [msgspec.json.decode(line) for line in call("why", "said", "--json").out.splitlines()]
    [approval] = [fact for fact in facts if fact.get("part") == "approval"]
    assert (approval["name"], approval["value"]["by"]) == ("granted", "eva")
    assert approval["value"]["answered"] >= approval["value"]["asked"]


def answer(record, by: str, reason: str) -> None:
    """Grant the first open question."""
    deadline = time.monotonic() + 20
    while not (waiting := record.approvals.list()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    record.approvals.grant(waiting[0].approval.id, by=by, reason=reason)


def test_answered_questions_are_listed_on_request(call, record, waiting):
    """Without `answered` only open questions are listed, so a loop until none is left ends."""
    _, agent = waiting
    [question] = record.approvals.list()
    record.approvals.deny(question.approval.id, by="eva")
    agent.join()
    assert record.approvals.list() == []
    [question] = record.approvals.list(answered=True)
    assert (question.standing, question.approval.by) == ("denied", "eva")


def test_a_request_expires_while_nobody_writes(call, data_dir, workspace, record):
    """List and answer agree by the clock of the reading, though the log's time stands still."""

    async def leave() -> None:
        gate = [hansard.ask_first("send_*", timeout_s=1)]
        async with (
            hansard.connect_async(workspace, data_dir=data_dir, gate=gate) as other,
            other.run("w", run="r", agent="ada", role="writer") as session,
        ):
            sending = asyncio.create_task(session.tool(name="send_mail")(lambda to: to)("bob"))
            requests: Sequence[object] = []
            while not requests:
                await asyncio.sleep(0.01)
                requests = await other.approvals.list(answered=True)
            sending.cancel()
            await asyncio.wait([sending])

    asyncio.run(leave())
    [request] = record.approvals.list(answered=True)
    time.sleep(max(0, request.approval.expires / 1e9 - time.time()) + 0.01)
    assert record.approvals.list() == []
    assert "no call waits" in call("approvals").out
    shown = call("approvals", "--all").out
    assert "expired" in shown
    assert shown.count(" ago") == 2, "since it was requested, and since it expired"
    with pytest.raises(hansard.errors.Refused, match="is expired already"):
        record.approvals.grant(request.approval.id, by="eva")


WAITER = """
import sys
import hansard
gate = [hansard.ask_first("send_*", timeout_s=600)]
with hansard.connect(sys.argv[2], data_dir=sys.argv[1], gate=gate) as record:
    with record.run("w", run="killed", agent="ada", role="writer") as session:
        session.tool(name="send_mail")(lambda to: to)("bob")
"""


@pytest.mark.slow
def test_a_request_that_nobody_waits_for_is_marked(call, data_dir, workspace, record):
    """The mark says whether the process has ended, then how its run ended; the age is shown."""
    with record.run("w"):
        pass
    with subprocess.Popen([sys.executable, "-c", WAITER, str(data_dir), workspace]) as agent:
        deadline = time.monotonic() + 60
        while not record.approvals.list():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        line = msgspec.json.decode(call("approvals", "--json").out)
        predicted = call("predict", "killed").out
        agent.kill()
    assert f"approval {line['approval']} of send_mail (ada#1)" in predicted
    assert "effects" not in predicted  # no table of open calls without a row
    assert (line["run_status"], line["at_work"]) == ("open", True)
    shown = call("approvals")
    assert "process ended" in shown.out
    assert " ago " in shown.out
    assert "1 of 1 pending approval: the run or the process has ended" in shown.err
    assert call("run", "cancel", "killed").code == 0
    shown = call("approvals")
    assert "run cancelled" in shown.out
    line = msgspec.json.decode(call("approvals", "--json").out)
    assert (line["run_status"], line["at_work"]) == ("cancelled", False)


@pytest.mark.slow
def test_a_program_that_waits_says_so_and_is_interrupted(tmp_path):
    """The warning needs no configuration of logs; Ctrl-C shows no frame of the package."""
    program = tmp_path / "wait.py"
    program.write_text(WAITS)
    command = [sys.executable, program, tmp_path / "data"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        waits = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert waits.startswith("hansard: ada#1 (send_mail) of run r waits for approval; ")
    assert str(Path(hansard.__file__).parent) not in rest
    assert "KeyboardInterrupt\nhansard: this ended run r after " in rest
