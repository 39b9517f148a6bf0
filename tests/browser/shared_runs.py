"""Runs whose agents share a board, tasks and messages."""

import contextlib
import random
from typing import Any

import hansard
from hansard.domain.errors import HansardError


def small_team(record: hansard.Record, run: str = "shared") -> str:
    """Record two agents and one of everything that a board and a team can hold."""
    with (
        record.run("shared work", run=run, agent="ada", role="researcher") as ada,
        record.run(run=run, agent="bob", role="writer") as bob,
    ):
        ada.team.add("Find papers", what={"topic": "records"}, role="researcher", task="find")
        ada.team.add("Write them up", role="writer", waits_for=["find"], task="write")
        ada.team.add("Check it", waits_for=["write"], task="check")
        ada.team.send("I begin with the papers", role="writer")
        claim = ada.team.claim(lease_s=60)
        assert claim is not None
        ada.board.put("plan", {"papers": ["p1"], "by": "ada"}, labels={"kind": "plan"})
        ada.board.append("notes", "p1 is new")
        bob.board.append("notes", {"p2": [1, 2, None]})
        ada.board.add("papers", 3)
        bob.board.add("papers", -1)
        for item in ("b", "a", "c", "a"):
            bob.board.include("tags", item)
        ada.board.discard("tags", "b")
        ada.board.merge("best", "max", 0.5)
        bob.board.merge("best", "max", 0.75)
        ada.board.merge("index", "union", {"p1": {"year": 2024}})
        bob.board.merge("index", "union", {"p2": 1, "p1": {"pages": 3}})
        ada.board.put("gone soon", "x" * 20)
        ada.board.put("plan", None, expected="any")
        bob.board.remove("gone soon", expected="any")
        ada.board.append("gone soon", "anew")
        ada.board.put("short-lived", [1], ttl_s=0.001)
        ada.team.complete(claim, {"papers": 2})
        task = bob.team.claim(lease_s=0.1)
        assert task is not None
        ada.team.send({"papers": ["p1", "p2"]}, agent="bob")
        assert len(bob.team.inbox()) == 2
        bob.team.fail(task, "no ink")
        ada.message("user", "How does it go?")
        ada.message("assistant", "It goes.")
        bob.board.put("big", "y" * 100_000)
        assert ada.team.reopen("write", "there is ink")
        again = bob.team.claim(lease_s=0.1)
        assert again is not None
        bob.team.hand_off(again, role="researcher", with_={"draft": 1}, reason="not mine")
        assert ada.team.claim(lease_s=0.1) is not None
        ada.board.get("plan")
    return run


def random_team(record: hansard.Record, run: str, seed: int, moves: int) -> str:
    """Record three agents with random moves on a few keys and tasks, fixed by the seed."""
    dice = random.Random(seed)
    names = {"ada": "x", "bob": "y", "cyd": "z"}
    with contextlib.ExitStack() as open_:
        sessions = [
            open_.enter_context(record.run("chance", run=run, agent=name, role=role))
            for name, role in names.items()
        ]
        held: list[tuple[Any, Any]] = []
        for number in range(moves):
            session = dice.choice(sessions)
            with contextlib.suppress(HansardError):
                (_write if dice.random() < 0.5 else _work)(session, dice, number, held)
    return run


def _write(session: Any, dice: random.Random, number: int, _: Any) -> None:
    board, key = session.board, f"k{dice.randrange(3)}"
    item = dice.choice([number, "é\U0001f600", None, {"a": [number]}, 1.5, True])
    match dice.randrange(8):
        case 0:
            board.put(key, item, expected="any", ttl_s=dice.choice([None, 0.001, 5]))
        case 1:
            board.remove(key, expected="any")
        case 2:
            board.append(f"list {key}", item)
        case 3:
            board.add(f"sum {key}", number)
        case 4:
            board.include(f"set {key}", item)
        case 5:
            board.discard(f"set {key}", item)
        case 6:
            board.merge(f"most {key}", "max", number)
        case _:
            board.merge(f"union {key}", "union", {f"u{number % 3}": item, "__proto__": number})


def _work(session: Any, dice: random.Random, number: int, held: list[tuple[Any, Any]]) -> None:
    team = session.team
    roles = ["x", "y", "z"]
    match dice.randrange(5):
        case 0:
            tasks = [entry.id for entry in team.tasks()]
            after = dice.sample(tasks, min(len(tasks), dice.randrange(3)))
            waited = dice.sample(roles, dice.choice([0, 0, 1]))
            role = dice.choice([None, *roles])
            team.add(
                f"job {number}",
                what={"n": number},
                role=role,
                waits_for=after,
                waits_for_roles=waited,
            )
        case 1 | 2:
            task = team.claim(lease_s=dice.choice([0.1, 60]))
            if task is not None:
                held.append((team, task))
        case 3 if held:
            owner, task = held.pop(dice.randrange(len(held)))
            match dice.randrange(4):
                case 0:
                    owner.complete(task, {"done": number})
                case 1:
                    owner.fail(task, "failed")
                case 2:
                    owner.release(task, "later")
                case _:
                    owner.hand_off(task, role=dice.choice(roles), with_=number, reason="yours")
        case _:
            for entry in team.tasks():
                if entry.status == "failed" and dice.random() < 0.3:
                    team.reopen(entry.id, "again")
            team.send(f"message {number}", role=dice.choice(roles))
