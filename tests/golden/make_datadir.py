"""Makes `datadir-0`: a data directory with every kind of event, and what is answered of it.

    python -m tests.golden.make_datadir

It is made once and never again: what was written then must be read for ever. A new kind of event
brings a directory of its own (`datadir-1`), with only what is new. The tokens and logins in it are
those of a server on loopback that lived for a minute; they open nothing.

It stands in a folder whose name says nothing of the machine, and is refused where one of its bytes
does. Of the server's folder only what is stored is kept: no projections, logs, sockets or locks.
"""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import os
import shutil
import socket
import sys
import tarfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import hansard
from hansard.broker.lease import peek
from hansard.domain import budget
from hansard.domain.approval import ApprovalStatus
from hansard.domain.events import Recorded
from hansard.domain.ids import KeyStream, RunStream
from tests.cli.planting import commit, plant
from tests.golden.datadir import ANSWERS, ARCHIVE, QUIET, WORKSPACE, answers, command
from tests.projections import story
from tests.service.support import House

HOME = Path("/tmp/hansard-golden")  # noqa: S108 -- a name that says nothing of the machine
SERVER_GONE_S = 30.0
DAY = datetime(2026, 1, 1, tzinfo=UTC)

ROLES = """
[roles.reader]
[[roles.reader.sees]]
name = "messages"
kinds = ["message.*", "run.*"]
[roles.reader.may]
tools = ["look"]
kinds = ["message.added"]
query = true
[roles.gone]
[[roles.gone.sees]]
name = "nothing much"
kinds = ["run.*"]
"""

CHAT = {
    "run": "imported-1",
    "workflow": "support",
    "messages": [
        {"role": "user", "content": "what is 2 times 2?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "double", "arguments": '{"n": 2}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": 4},
        {"role": "assistant", "content": "four"},
    ],
    "outcome": {},
}


def experiments(record: hansard.Record) -> None:
    """A plan with two arms, trials of both, scores, a price, an experiment that was stopped."""
    bold = {"name": "bold", "prompt": "greeting 4", "parameters": {"t": 0.5, "n": (1, 2)}}
    metrics = ["reward", {"name": "cost", "better": "lower", "smallest": 0.5}]
    for name in ("greeting", "stopped"):
        plan = hansard.experiments.plan(
            arms=["plain", bold], metrics=metrics, planned=6, question="does it?"
        )
        record.register(name, plan, by="ada")
    record.stop("stopped", because="enough was seen", by="bob")
    record.price(
        "m-1", {"input_tokens": 2.5, "output_tokens": 10.0}, since=DAY, source="the list", by="eve"
    )
    trials = []
    for number in range(6):
        with record.run(
            "greet", experiment="greeting", task=f"t-{number}", agent="greeter", role="greeter"
        ) as session:

            @session.tool(effects="pure", kind="model")
            def ask(model: str, prompt: str) -> str:
                session.usage(input_tokens=1_000, output_tokens=len(prompt), cost=0.003)
                return f"{model} says {prompt}"

            ask("m-1", f"hello {number}")
        trials.append(session.run)
        record.score(
            session.run, {"reward": number % 2, "cost": number / 4}, by="grader@2", because="read"
        )
    record.score(trials[-1], {"reward": 0}, by="ada", because="looked again")


def teams(record: hansard.Record) -> None:
    """Tasks in every state, mail, and a board in all its operations."""
    with (
        record.run("crew", run="crew", agent="ada", role="boss", labels={"team": "x"}) as ada,
        record.run(run="crew", agent="bob", role="scribe") as bob,
    ):
        ada.team.add("Find", what={"topic": "seeds", "pages": (1, 2)}, task="find")
        ada.team.add("Write", waits_for=["find"], role="scribe", task="write")
        ada.team.add("Long", what="x" * 70_000, agent="bob", task="long")
        finding = ada.team.claim(lease_s=600)
        assert finding is not None
        ada.team.extend(finding, lease_s=900)
        ada.team.complete(finding, {"papers": 3})
        writing = bob.team.claim()
        assert writing is not None
        bob.team.release(writing, "later")
        writing = bob.team.claim()
        assert writing is not None
        bob.team.hand_off(writing, agent="ada", with_={"half": 1}, because="yours")
        writing = ada.team.claim()
        assert writing is not None
        ada.team.complete(writing)
        failing = bob.team.claim()
        assert failing is not None
        bob.team.fail(failing, ValueError("no ink"))
        ada.team.send({"please": "read"}, agent="bob")
        bob.team.inbox()
        shared_state(ada, bob)
    record.reopen("crew", "long", by="eve", because="there is ink")


def shared_state(ada: hansard.Session, bob: hansard.Session) -> None:
    """Writes of two agents to one board: what commutes, what conflicts, what goes away."""
    ada.board.put("plan", {"v": 1})
    found = bob.board.entry("plan")
    assert found is not None
    bob.board.put("plan", {"v": 2})
    with contextlib.suppress(hansard.errors.BoardConflict):
        ada.board.put("plan", {"v": 3}, expected=found.version)
    for number, session in enumerate((ada, bob, ada)):
        session.board.append("notes", {"n": number})
        session.board.add("count", number + 1)
        session.board.include("tags", f"tag {number}")
        session.board.merge("best", "max", number)
        session.board.merge("all", "union", {f"k{number}": number})
    ada.board.discard("tags", "tag 1")
    ada.board.put("passing", "x" * 70_000)
    ada.board.remove("passing")
    with contextlib.suppress(ZeroDivisionError), bob.board.transaction() as tx:
        tx.put("plan", tx.get("count"))
        raise ZeroDivisionError
    with bob.board.transaction() as tx:
        tx.put("plan", {"v": tx.get("count"), "all": tx.get("all")})


def approvals(record: hansard.Record) -> None:
    """One granted, one denied; one that nobody answered is the story's."""
    for run, answer in (("granted", record.approve), ("denied", record.deny)):
        asks = hansard.ask_first("send", timeout_s=3600)
        with (
            contextlib.suppress(hansard.HansardError),
            record.run("asking", run=run, agent="sender", role="sender", gate=[asks]) as session,
        ):

            @session.tool(effects="once")
            def send(to: str) -> str:
                return f"sent to {to}"

            session.gather(partial(send, "bob@example.org"), partial(answered, record, answer))


def answered(record: hansard.Record, answer: Any) -> None:
    """A person answers as soon as a question stands."""
    until = time.monotonic() + SERVER_GONE_S
    while not (
        asked := [each for each in record.approvals() if each.standing is ApprovalStatus.PENDING]
    ):
        assert time.monotonic() < until, "nobody asked"
        time.sleep(0.02)
    answer(asked[0].approval.id, by="eva", because="looked")


def prompts(record: hansard.Record) -> None:
    """Record a growing prompt, a blob, a name too long for a subject, and all scripts."""
    with record.run("prompts", run="prompts", agent="n" * 200, role="r") as session:

        @session.tool(effects="pure", kind="model")
        def chat(messages: list[Any]) -> dict[str, Any]:
            session.usage(input_tokens=len(messages), output_tokens=1)
            return {"text": f"answer {len(messages)}"}

        said: list[Any] = [{"role": "system", "content": "naïve 漢字 😀 " * 300}]
        for turn in range(12):
            said.append({"role": "user", "content": f"turn {turn} " + "word " * 400})
            said.append({"role": "assistant", "content": chat(list(said))["text"]})
        session.message("user", "y" * 70_000)
        session.checkpoint("talked", turns=12, texts=[len(each["content"]) for each in said])


def endings(record: hansard.Record) -> None:
    """Runs that people end: finished, cancelled; and one that stays open."""
    for run, end in (("finished", record.finish), ("cancelled", record.cancel)):
        session = record.open("w", run=run, agent="a", role="r")
        session.message("user", "hello")
        end(run, by="eve", because="enough")
        session.close()


def restricted(house: House) -> None:
    """What agents with credentials did through the service, and what they were refused."""
    house.begin()
    try:
        with house.connect("ada", "reader") as record:
            with (
                contextlib.suppress(hansard.HansardError),
                record.run("asked", run="hosted", agent="guest", role="reader") as session,
            ):
                session.message("user", "through the service")
                session.view()
                session.tool(effects="once", name="post")(lambda: None)()
            with contextlib.suppress(hansard.HansardError):
                record.approve("no-such-approval")
    finally:
        house.end()


def strange() -> None:
    """Write what no call writes: spent budgets, a newer event, one without its predecessors."""
    with hansard.connect("odd", data_dir=HOME) as record:
        with record.run(
            "w", run="newer", agent="a", role="r", gate=[hansard.budget("few", 9)]
        ) as session:
            session.message("user", "before")
            session.tool(effects="pure", name="work")(lambda: 1)()
        last = record.state("newer").life.version
        spent = budget.Spent(call="a#1.1", amount=0.25)
        counted = KeyStream("newer", budget.key_of("few"))
        plant(HOME, "odd", (counted, commit(2, spent, epoch=0)))
        planted = Recorded("run.dreamt.v7", "d1", msgspec.Raw(b'{"of":"sheep"}'))
        plant(HOME, "odd", (RunStream("newer"), commit(last + 1, planted, epoch=0)))
        plant(HOME, "odd", (RunStream("newer"), commit(last + 9, planted, epoch=0)))


def do(*arguments: str, workspace: str = WORKSPACE) -> None:
    """Have the command line do something. Raises RuntimeError where it does not."""
    found = command(HOME, *arguments, workspace=workspace)
    if found.code:
        message = f"{arguments} ended with {found.code}: {found.err}"
        raise RuntimeError(message)


def carried_over() -> None:
    """Runs out of the one workspace into another, byte for byte; and a chat of another system."""
    file = HOME.parent / "hansard-golden.jsonl"
    do("export", "crew", "prompts", "-o", str(file))
    with hansard.connect("copy", data_dir=HOME):
        do("import", "events", str(file), workspace="copy")
    file.write_text(json.dumps(CHAT) + "\n", encoding="utf-8")
    do("import", "chat-jsonl", str(file), "--experiment", "old", "--arm", "plain")
    file.unlink()


def fill() -> None:
    """Everything, in a data directory of its own."""
    house = House(HOME, WORKSPACE, HOME.parent)
    with hansard.connect(WORKSPACE, data_dir=HOME, durability="relaxed") as record:
        house.apply(ROLES)
        story.tell(record)
        experiments(record)
        teams(record)
        approvals(record)
        prompts(record)
        endings(record)
        restricted(house)
        carried_over()
        do("roles", "withdraw", "gone", "--by", "eve", "--because", "not needed")
        strange()
    for each in house.files.values():
        each.unlink()


# ---------------------------------------------------------------- packing


def wait_for_the_server_s_end() -> None:
    """Until its last user is known to be gone, and all is on disk."""
    until = time.monotonic() + SERVER_GONE_S
    while peek(HOME) is not None:
        assert time.monotonic() < until, "the server does not end"
        time.sleep(0.1)


def kept() -> Iterator[Path]:
    """The files of the data directory that are the record."""
    for path in sorted(HOME.rglob("*")):
        within = path.relative_to(HOME)
        if path.is_file() and not QUIET & {*within.parts, path.suffix}:
            yield path


def packed() -> bytes:
    """The archive, without the owner's name or any time but those that are recorded."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path in kept():
            told = tarfile.TarInfo(str(path.relative_to(HOME)))
            told.size, told.mode = path.stat().st_size, 0o600
            with path.open("rb") as file:
                tar.addfile(told, file)
    refuse_names(out.getvalue())
    return lzma.compress(out.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def refuse_names(data: bytes) -> None:
    """Raise ValueError where something of this machine stands in what is to be kept."""
    own = [str(Path(__file__).parents[2]), str(Path.home()), socket.gethostname(), sys.prefix]
    own += [os.environ.get("USER", ""), os.environ.get("LOGNAME", "")]
    short = 4  # letters: a shorter name is found in any bytes
    own.append(f"/{Path(__file__).parts[1]}/")
    for name in own:
        if len(name) > short and name.encode() in data:
            message = f"{name!r} stands in the archive"
            raise ValueError(message)


def main() -> None:
    """Make the directory, pack it, and note what is answered of it."""
    shutil.rmtree(HOME, ignore_errors=True)
    os.environ.update(HANSARD_DATA_DIR=str(HOME), HANSARD_WORKSPACE=WORKSPACE)
    os.chdir(HOME.parent)
    try:
        fill()
        wait_for_the_server_s_end()
        ARCHIVE.parent.mkdir(exist_ok=True)
        ARCHIVE.write_bytes(packed())
        told = json.dumps(answers(HOME), sort_keys=True).encode()
        refuse_names(told)
        ANSWERS.write_bytes(lzma.compress(told))
        sys.stdout.write(f"{ARCHIVE.stat().st_size:,} and {ANSWERS.stat().st_size:,} bytes\n")
    finally:
        shutil.rmtree(HOME, ignore_errors=True)


if __name__ == "__main__":
    main()
