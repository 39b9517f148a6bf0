"""Real runs of every kind, made with the public client."""

import contextlib
import warnings
from typing import Any

from tenacity import wait_none

import hansard
from hansard.agents.access import principals, roles
from hansard.agents.access.carried import AccumulatedLabel
from hansard.agents.errors import ToolChanged
from hansard.domain.events import Actor
from hansard.domain.label import parse
from hansard.domain.roles.model import May, RoleDefined, RoleRule
from tests.cli.support import make_runs


def tell(record: hansard.Record) -> list[str]:
    """Make them; their ids."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ToolChanged)  # the same tool is written down several times
        return _tell(record)


def _tell(record: hansard.Record) -> list[str]:
    runs = make_runs(record)
    known = {runs.team, runs.failed, runs.doubt, runs.settled, runs.forked}
    forked = _worked(record, run=record.fork(runs.team, at="researcher_1@20"))
    again = _worked(record, run=record.fork(forked))
    deep = record.fork(again, effects="live", labels={"why": "to look"})
    _worked(record, run=deep)
    open_ = _open_at_the_cut(record)
    _doubts(record)
    _talks(record)
    _spends(record)
    _used(record)
    record.settle(runs.doubt, "sender#1", "did_not_happen", reason="nothing was sent")
    _again(record, runs.doubt)
    _shares(record)
    _works_together(record)
    made = [run for run, _ in record.runs()]
    assert {*known, forked, again, deep, *open_} <= set(made)
    return made


def _worked(record: hansard.Record, **options: Any) -> str:
    """Record a session of the team's first agent that continues with calls of its own; return its
    run.
    """
    with record.run(agent="researcher_1", role="researcher", **options) as session:

        @session.tool(effects="pure")
        def more(x: int) -> int:
            session.usage(input_tokens=3, output_tokens=4.5, cost=0.001)
            return x

        @session.tool(effects="once", shadow=lambda to: f"shadow of {to}")
        def send(to: str) -> str:
            return to

        more(1)
        send("a")
        session.message("assistant", "I looked", tokens=4)
        session.decide("go on?", selected="yes", alternatives=["yes", {"id": "no", "score": 0.5}])
        session.hand_off("writer", {"papers": [1]}, reason="done")
    return session.run


def _open_at_the_cut(record: hansard.Record) -> list[str]:
    """Record forks whose parent had an open intent at the cut, each settled in another way."""
    with record.run("cut", agent="a", role="r") as session:
        send = session.tool(effects="once", name="send")(lambda to: f"sent to {to}")
        send("x")
    first = record.fork(session.run, at="a@3")
    record.settle(first, "a#1", "happened", result="it did", reason="seen")
    second = record.fork(session.run, at="a@3", effects="live")
    record.settle(second, "a#1", "did_not_happen")
    third = record.fork(second)
    with record.run(run=third, agent="a", role="r") as session:
        send_again = session.tool(name="send", effects="once")(lambda to: f"sent to {to} at last")
        with contextlib.suppress(hansard.HansardError):
            send_again("x")
    return [first, second, third]


def _doubts(record: hansard.Record) -> None:
    """Record one doubt that a retry ends, and one that remains."""
    for effects in ("idempotent", "once"):
        tries = iter(range(9))
        with (
            contextlib.suppress(TimeoutError),
            record.run("doubts", agent="a", role="r") as session,
        ):

            @session.tool(effects=effects, attempts=3, wait=wait_none())
            def slow(x: int, tries: Any = None) -> int:
                return _slow(x)

            def _slow(x: int, tries: Any = tries) -> int:
                if next(tries) < 1:
                    message = "no answer"
                    raise TimeoutError(message)
                return x

            slow(1)


def _talks(record: hansard.Record) -> None:
    """Record a conversation of two runs with messages of every form."""
    for text in ("hi", "and?"):
        with record.run("talk", agent="bot", role="assistant", conversation="user/7") as session:
            session.message("system", "", tokens=0)
            session.message("user", text, fields={"name": "ann"})
            calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
            session.message("assistant", None, fields={"tool_calls": calls})
            session.message("tool", '"quoted"', fields={"tool_call_id": "c1"})
            session.message("assistant", [{"type": "text", "text": "so\x00 é 漢"}], tokens=9)
            session.message("assistant", "x" * 100_000)
            session.resource("file:///a b", "write")


def _spends(record: hansard.Record) -> None:
    """Record a budget over two agents that ends the second."""
    run = None
    for agent in ("ada", "bob/%2F"):
        with (
            contextlib.suppress(hansard.Blocked),
            record.run(
                "spending", run=run, agent=agent, role="r/ü", gate=[hansard.budget("few", 2)]
            ) as session,
        ):
            run = session.run
            work = session.tool(effects="pure", name="work")(lambda x: x)
            for name in "abc"[: 1 if agent == "ada" else 3]:
                work(name)


def _used(record: hansard.Record) -> None:
    """Tools that fail, stop in the middle of a stream, and nest."""
    with (
        contextlib.suppress(ZeroDivisionError),
        record.run("used", agent="a" * 200, role="r", labels={"é": "$ %"}) as session,
    ):

        @session.tool(effects="composite")
        def outer(n: int) -> int:
            return int(inner(n)) + int(inner(n + 1))

        inner = session.tool(effects="composite", name="inner")(lambda n: int(leaf(n)))

        @session.tool(effects="pure")
        def leaf(n: int) -> int:
            session.usage(input_tokens=10 * n, thoughts=1)
            return n

        @session.tool(effects="pure")
        def items(n: int) -> Any:
            yield from range(n)

        @session.tool(effects="once", safe_errors=(ZeroDivisionError,))
        def bad(n: int) -> float:
            return 1 / n

        outer(1)
        assert list(items(3)) == [0, 1, 2]
        next(iter(items(5)))
        session.gather(lambda: leaf(7), lambda: outer(8))
        bad(0)


def _again(record: hansard.Record, run: str) -> None:
    """Resume a run with an unfinished step, and complete the step."""
    with record.run(run=run, agent="sender", role="sender") as session:

        @session.tool
        def send(to: str) -> str:
            return "now"

        send("x@example.org")


def _works_together(record: hansard.Record) -> None:
    """Do team work: tasks, mail, an open question, refusals, logins and a role's query."""
    record.roles.apply("clerk", RoleDefined(may=May(kinds=("message.added",))))
    asks = [hansard.ask_first("post", timeout_s=0.1)]
    with (
        record.run("team", agent="a", role="boss", gate=asks) as boss,
        record.run(run=boss.run, agent="b", role="clerk") as clerk,
    ):
        boss.team.add("Read", task="read")
        boss.team.add("Write", waits_for=["read"], task="write")
        reading = boss.team.claim()
        assert reading is not None
        boss.team.complete(reading, 1)
        writing = boss.team.claim()
        assert writing is not None
        boss.team.fail(writing, "no ink")
        boss.team.send("please", role="clerk")
        boss.message("user", "who knows", label="untrusted")
        boss.message("user", "what now")
        for refused in (
            boss.tool(effects="once", name="post")(lambda: None),
            lambda: clerk.board.put("k", 1),
        ):
            with contextlib.suppress(hansard.Blocked):
                refused()
    record.roles.declassify(boss.run, agent="a", to="public", approver="eve", reason="looked")
    work, run = record.workspace, record._portal.run
    run(principals.register(work, "ada", about="the first"))
    token = run(principals.issue(work, "ada", "clerk", expires_s=60, by="eve"))
    run(principals.revoke(work, "ada", token.id, reason="lost"))
    ada = Actor("ada", ("ada",))
    state = run(principals.read(work, "ada"))
    run(AccumulatedLabel(work.log, state, ada, "clerk").shown(parse("secret untrusted")))
    record.roles.declassify(principal="ada", to="untrusted", approver="eve", reason="looked")
    run(roles.record_query(work, "clerk", "SELECT 1", head=3, position=1, rows=2, cut=True))


def _shares(record: hansard.Record) -> None:
    """Record shared state of two agents, a view of it, and a fork's state."""
    sees = RoleRule(name="what is given", keys=("k", "m", "n", "s", "sum"))
    may = May(kinds=("board.*",), keys=("m", "n", "s", "sum"))
    record.roles.apply("taker", RoleDefined(sees=(sees,), may=may))
    with record.run("board", agent="a", role="giver") as giver:
        giver.board.put("k", {"x": 1}, labels={"topic": "t"}, ttl_s=60)
        giver.board.append("l", "x" * 70_000)
        with record.run(run=giver.run, agent="b", role="taker") as taker:
            taker.board.add("n", 2)
            taker.view()
            with taker.board.transaction() as tx:
                tx.put("sum", tx.get("n"))
                tx.include("s", 1)
                tx.merge("m", "max", tx.get("k")["x"])
    with record.run(run=record.fork(giver.run), agent="a", role="giver") as child:
        child.board.append("l", 2)
