"""A workspace with something for each view of the page, recorded through the public client."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import hansard
from tests.browser.shared_runs import small_team
from tests.cli.support import Runs, make_runs
from tests.examples.support import EXAMPLES, PROGRAM_S_MAX
from tests.faults._warm import run

ROLES = """
[roles.reviewer]
about = "Sees the work of researchers."
[[roles.reviewer.sees]]
name = "research"
roles = ["researcher"]
[[roles.reviewer.masks]]
name = "in short"
kinds = ["message.added"]
fields = ["content"]
how = "truncate"
characters = 8

[roles.guest]
about = "Sees nothing that is here."
[[roles.guest.sees]]
name = "nobody"
roles = ["nobody"]
"""

ASK = (hansard.ask_first("send_*", timeout_s=7_200),)
"""Rule that asks a person before something is sent."""

WAIT_S = 60.0
"""Longest wait for a call to be on record, in seconds."""


class Examples(msgspec.Struct, frozen=True):
    """Runs of the examples, by their ids."""

    trade: str = "trade-1"
    advice: str = "for-customer-7"
    papers: str = "papers-iterator"


def fill(record: hansard.Record, folder: Path) -> Runs:
    """Record runs of every kind and outcome, prompts, an experiment, memory and roles.

    `folder` takes the file of the roles.
    """
    (folder / "roles.toml").write_text(ROLES)
    record.roles.apply_file(folder / "roles.toml")
    _prompts(record)
    _memory(record)
    _forked(record)
    small_team(record, "shared")
    return make_runs(record)


def _prompts(record: hansard.Record) -> None:
    """Add a prompt of three versions, and an experiment over two of them."""
    prompts = record.prompts
    prompts.add("greeting", "Good day, {name}.\nHow can I help?", reason="the first one")
    prompts.add("greeting", "Hey {name}!\nHow can I help?", reason="it was too stiff")
    prompts.add("greeting", "Hey {name}!\nI can help.", reason="fewer questions")
    prompts.alias("greeting@1", "production", reason="nothing to compare with yet")
    prompts.alias("greeting@2", "production", reason="solves more", by="eva")
    plan = hansard.experiments.plan(
        question="Does a bold greeting solve more?",
        arms=["plain", {"name": "bold", "prompt": "greeting@2"}],
        metrics=[{"name": "reward", "better": "higher"}, {"name": "cost", "better": "lower"}],
        planned=8,
    )
    record.experiments.register("greeting", plan)
    for number in range(16):
        task, arm = f"t{number // 2}", ("plain", "bold")[number % 2]
        options: dict[str, Any] = {"experiment": "greeting", "task": task, "trial": 0, "arm": arm}
        with record.run("support", run=f"greet-{number}", **options) as session:
            session.message("user", "I am Ann")
            session.message("assistant", f"{arm} answer", tokens=40 + number)
        solved = arm == "bold" or number < 6
        scores = {"reward": int(solved), "cost": 0.01 + number / 1_000}
        record.experiments.score(session.run, scores, by="grader")


def _memory(record: hansard.Record) -> None:
    """Change a file of an agent's memory three times."""
    record.memory("agent/ada").set_policy("off", by="eva", reason="a demonstration")
    with record.run("minutes", run="monday", agent="ada", role="writer") as session:
        session.memory.remember("Use bullets.")
        session.memory.remember("Action items last.")
        session.memory.edit("AGENTS.md", "Use bullets", "Use short bullets", reason="too long")


def _forked(record: hansard.Record) -> None:
    """Record a refund, and a fork of it in which another answer of a call is served."""

    def play(run: str) -> None:
        with record.run("refunds", run=run, agent="clerk", role="responder") as session:

            @session.tool(effects="pure")
            def find_order(number: int) -> dict[str, Any]:
                return {"number": number, "state": "lost", "paid": 20}

            @session.tool(effects="once")
            def refund(number: int, amount: int) -> str:
                return f"paid {amount} for {number}"

            session.message("system", "Pay lost orders back.")
            order = find_order(17)
            if order["state"] == "lost":
                refund(17, order["paid"])
            session.board.put("order 17", order["state"])
            session.message("assistant", f"The order is {order['state']}.")

    play("order-17")
    edit = hansard.replace("clerk#1", result={"number": 17, "state": "delivered", "paid": 20})
    fork = record.fork(
        "order-17", edits=[edit], labels={"of": "page"}, by="eva", reason="delivered"
    )
    play(fork)


@contextlib.contextmanager
def waiting_calls(record: hansard.Record, number: int) -> Iterator[None]:
    """Keep so many calls waiting for an approval while the block runs; then deny the open ones."""

    def ask(name: str) -> None:
        with record.run(
            "letters", run=f"letter-{name}", agent="wil", role="writer", gate=ASK
        ) as one:

            @one.tool
            def send_mail(to: str, text: str) -> str:
                return f"sent to {to}"

            @one.tool(effects="pure", gives="untrusted")
            def read_mail() -> str:
                return "Send me the report."

            read_mail()
            with contextlib.suppress(hansard.Blocked):
                send_mail(f"{name}@example.org", "The report is done.")

    names = [f"reader-{each}" for each in range(number)]
    runs = {f"letter-{name}" for name in names}
    agents = [threading.Thread(target=ask, args=(name,)) for name in names]
    for agent in agents:
        agent.start()
    deadline_s = time.monotonic() + WAIT_S
    while len(record.approvals.list()) < number:
        assert time.monotonic() < deadline_s, "not every call is on record"
        time.sleep(0.02)
    try:
        yield
    finally:
        for each in record.approvals.list():
            if each.run in runs:  # those of other tests may have expired by now
                record.approvals.deny(each.approval.id, by="eva", reason="the tests have ended")
        for agent in agents:
            agent.join()


def run_examples(home: Path, workspace: str, folder: Path) -> Examples:
    """Run the examples as processes, at the same time, in copies of their folders."""
    programs = (
        ("trading", "strategy.py", "trade-1"),
        ("support_desk", "recommend.py", "customer-7"),
        ("paper_pipeline", "pipeline.py", "iterator"),
    )
    environment = {"HANSARD_DATA_DIR": str(home), "HANSARD_WORKSPACE": workspace}
    done: list[subprocess.CompletedProcess[str]] = []

    def start(name: str, program: str, argument: str) -> None:
        command = [str(EXAMPLES / name / program), argument]
        values = {**os.environ, **environment}
        done.append(run(command, cwd=folder, env=values, timeout=PROGRAM_S_MAX))

    threads = [threading.Thread(target=start, args=each) for each in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.stderr[-2000:] for each in done if each.returncode] == []
    assert len(done) == len(programs)
    return Examples()
