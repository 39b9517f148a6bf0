"""Programs for either door: each returns its results, and leaves a record.

A program takes a session of either client (`tests.agents.twins.TwinSession`) and a list to which it
appends its results; it must not depend on ids or on time.
"""

import dataclasses
import inspect
from decimal import Decimal
from typing import Any

from tenacity import wait_none

import hansard
from tests.agents.twins import TwinSession


class Odd(Exception):
    """An error of a program's own."""


@dataclasses.dataclass
class Paper:
    """A result with a type of its own."""

    title: str
    pages: int


async def done(outcome: Any) -> Any:
    """Return the result of either client's operation: the sync one's value, or the awaited one."""
    return await outcome if inspect.isawaitable(outcome) else outcome


async def caught(work: Any) -> str:
    """Return the type and text of the error that is raised."""
    try:
        await done(work() if callable(work) else work)
    except Exception as error:  # noqa: BLE001 -- the error is the result
        return f"{type(error).__module__}.{type(error).__name__}: {error}"
    return "nothing"


async def tools(session: TwinSession, answers: list[Any]) -> None:
    """Call a tool of each policy; note their results and errors."""
    ran: list[str] = []

    @session.tool(effects="pure")
    async def twice(x: Any) -> Any:
        ran.append("twice")
        return [x, x]

    @session.tool(effects="idempotent", key_argument="key", version="2")
    async def put(x: int, key: str = "") -> str:
        ran.append("put")
        return f"{x}:{key}"

    @session.tool(effects="once", kind="resource")
    async def send(x: Any, *rest: int, **more: Any) -> Any:
        ran.append("send")
        return {"sent": x, "rest": rest, "more": more}

    @session.tool(effects="pure")
    async def paper(title: str) -> Paper:
        return Paper(title, 7)

    odd = (1, "ä", (1, 2), {3, 4}, Decimal("1.5"), b"x", None, 2**60, {1: [2]})
    answers += [await twice(value) for value in odd]
    answers.append(await put(5))
    answers.append(await send("a", 1, 2, b=3))
    answers.append(await paper("sourcing"))
    answers.append(await twice(1))
    answers.append(ran)


async def failures(session: TwinSession, answers: list[Any]) -> None:
    """Raise errors of each meaning, with retries."""
    tries: list[int] = []

    @session.tool(effects="pure")
    async def wrong(x: int) -> int:
        raise ValueError(x, "is wrong")

    @session.tool(effects="once", raises=(Odd,))
    async def odd() -> int:
        raise Odd("of its own", (1, 2))

    @session.tool(effects="once", attempts=3, wait=wait_none())
    async def later() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise hansard.errors.NotDone("not yet")
        return len(tries)

    @session.tool(effects="idempotent", attempts=2, wait=wait_none())
    async def flaky() -> str:
        tries.append(2)
        raise ConnectionError("gone")

    @session.tool(effects="once", safe_errors=(KeyError,))
    async def safe() -> str:
        raise KeyError("x")

    @session.tool(effects="once")
    async def unrecordable() -> object:
        return object()

    @session.tool(effects="pure")
    async def unrecordable_too() -> object:
        return object()

    @session.tool(effects="once", doubtful_errors=(Odd,))
    async def doubtful() -> str:
        raise Odd("who knows")

    for call in (lambda: wrong(3), odd, later, flaky, safe, unrecordable_too, doubtful):
        answers.append(await caught(call))
    answers.append(await caught(unrecordable))
    answers.append(tries)


async def reconciled(session: TwinSession, answers: list[Any]) -> None:
    """Doubt that the world settles when the program is gone through again."""

    async def there(x: int) -> object:
        return hansard.Happened((x, "it was there"))

    async def not_there(x: int) -> object:
        return hansard.DID_NOT_HAPPEN

    async def unsure(x: int) -> object:
        raise Odd(x)

    for ask in (there, not_there, unsure):

        @session.tool(effects=hansard.reconcile(ask), name=f"send_{ask.__name__}")
        async def send(x: int) -> object:
            raise TimeoutError("no answer")

        answers.append(await caught(lambda send=send: send(1)))
        answers.append(await caught(lambda send=send: give(send, answers)))
    keys: list[str] = []

    async def by_key(x: int, key: str) -> object:
        return hansard.Happened((x, [key] == keys))

    @session.tool(effects=hansard.reconcile(by_key), key_argument="key", name="send_by_key")
    async def keyed(x: int, key: str = "") -> object:
        keys.append(key)
        raise TimeoutError("no answer")

    answers.append(await caught(lambda: keyed(1)))
    answers.append(await caught(lambda: give(keyed, answers)))


async def give(send: Any, answers: list[Any]) -> None:
    """Call a tool and note its result."""
    answers.append(await send(1))


async def gated(session: TwinSession, answers: list[Any]) -> None:
    """Check that a call refused by a rule is recorded with the rule's name."""

    @session.tool(effects="once")
    async def send(to: str) -> str:
        return f"sent to {to}"

    answers.append(await caught(lambda: send("boss")))
    answers.append(await send("ada"))


async def nested(session: TwinSession, answers: list[Any]) -> None:
    """Composite tools, tools of the module, branches side by side, usage."""

    @session.tool(effects="pure")
    async def leaf(x: int) -> int:
        session.usage(tokens=x)
        return x + 1

    @session.tool(effects="composite")
    async def both(x: int) -> list[int]:
        return [await leaf(x), await leaf(x + 10)]

    @session.tool(effects="composite")
    async def failing() -> int:
        await leaf(1)
        raise Odd("inside")

    @session.tool(effects="once")
    async def alone() -> str:
        return await caught(lambda: leaf(1))

    answers.append(await both(1))
    answers.append(await caught(failing))
    answers.append(await alone())

    async def branch(x: int) -> list[int]:
        return [await leaf(x), *(await both(x + 1))]

    answers.append(await session.gather(lambda: branch(100), lambda: branch(200)))
    answers.append(await leaf(7))
    answers.append(await caught(lambda: session.usage(tokens=float("nan"))))


async def streams(session: TwinSession, answers: list[Any]) -> None:
    """Items one by one: all, some, and up to an error."""
    closed: list[str] = []

    @session.tool(effects="pure")
    async def count(n: int) -> Any:
        try:
            for i in range(n):
                yield {"i": i}
        finally:
            closed.append("closed")

    @session.tool(effects="once")
    async def breaking() -> Any:
        yield 1
        yield (2, 3)
        raise Odd("in the middle")

    answers.append([item async for item in count(4)])
    items = count(9)
    async for item in items:
        answers.append(item)
        if item["i"] == 2:
            break
    await items.aclose()
    answers.append(closed)
    got: list[Any] = []

    async def take() -> None:
        async for item in breaking():
            got.append(item)

    answers.append(await caught(take))
    answers.append(got)


async def facts(session: TwinSession, answers: list[Any]) -> None:
    """Everything that is stated."""
    await session.message("user", "find papers", tokens=3)
    await session.message("assistant", [{"type": "text", "text": "here"}], fields={"name": "ada"})
    await session.decide(
        "which",
        selected="a",
        alternatives=[{"id": "b", "score": 0.5, "reason": "late"}, "c"],
        threshold=0.4,
        confidence=0.9,
        reason="it is best",
    )
    await session.checkpoint("half", done=3, where=("x", 1))
    await session.resource("file:///x")
    await session.hand_off("bob", {"what": [1, 2]}, reason="tired")
    answers.append(await session.checkpoint_data("half"))
    answers.append(await session.checkpoint_data("none"))
    answers.append(await session.context())
    answers.append(await caught(lambda: session.message("user", object())))
    answers.append(await caught(lambda: session.checkpoint("", x=1)))


async def inputs(session: TwinSession, answers: list[Any]) -> None:
    """Decide with inputs: values, entries, views, steps; and with invalid ones."""

    @session.tool(effects="pure")
    async def rate(title: str) -> Paper:
        return Paper(title, len(title))

    paper = await rate("on logs")
    await done(session.board.put("plan", {"of": "logs"}))
    entry = await done(session.board.entry("plan"))
    view = await done(session.view())
    shown = next(event.id for _, event in view.events)
    right: list[Any] = [[paper], [paper.pages, entry], [view, "ada#1"], ["plan", "plan@1"], [shown]]
    for value in right:
        answers.append(await caught(session.decide("which", selected="a", inputs=value)))
    nothing = "01a202a2-d28d-71e8-a196-e7d64d5d822b"
    wrong: list[Any] = [[8], ["plan@9"], ["none"], ["ada#99"], [nothing], [object()], "ada#1"]
    for value in wrong:
        answers.append(await caught(lambda of=value: session.decide("b", selected="b", inputs=of)))


async def loops(session: TwinSession, answers: list[Any]) -> None:
    """Run a loop whose progress is recorded."""

    @session.tool(effects="pure")
    async def square(x: int) -> int:
        return x * x

    loop = session.resumable([1, 2, 3], every=2, name="squares")
    async for item in loop:
        loop.raw.results.append((item, await square(item)))
        answers.append(loop.raw.last_item)
    answers.append(loop.raw.results)
    # One checkpoint after each, as the first is due and the last one ends the loop.
    chosen = session.resumable([1, 2], every="auto", name="chosen")
    async for item in chosen:
        chosen.raw.results.append(await square(item))
    answers.append(chosen.raw.results)
    answers.append(await square(1))


async def board(session: TwinSession, answers: list[Any]) -> None:
    """Every operation on shared state."""
    shared = session.board
    answers.append(await done(shared.put("a", {"x": (1, 2)}, labels={"k": "v"})))
    answers.append(await done(shared.get("a")))
    entry = await done(shared.entry("a"))
    answers.append((entry.key, entry.kind, entry.value, entry.version, entry.author, entry.role))
    answers.append(await done(shared.get("none", 5)))
    answers.append(await done(shared.append("list", 1)))
    answers.append(await done(shared.append("list", (2,))))
    answers.append(await done(shared.add("n", 3)))
    answers.append(await done(shared.include("set", "x")))
    answers.append(await done(shared.discard("set", "x")))
    answers.append(await done(shared.merge("top", "max", 4)))
    answers.append(await done(shared.keys()))
    answers.append(await done(shared.remove("n")))
    answers.append(await caught(lambda: shared.put("a", 2, expected=7)))
    answers.append(await caught(lambda: shared.add("a", 1)))
    answers.append(await caught(lambda: shared.put("", 1)))
    settled = shared.put("a", 3, expected=7, resolve=lambda mine, theirs: [mine, theirs])
    answers.append(await done(settled))
    answers.append(await done(shared.get("a")))
    answers.append(await done(session.wait_for(key="a", timeout_s=1)))
    answers.append(await done(session.wait_for(key="never", timeout_s=0.05)))


async def transactions(session: TwinSession, answers: list[Any]) -> None:
    """Several keys in one commit; rolled back; in conflict."""
    shared = session.board

    async def through(work: Any) -> None:
        if session.is_async:
            async with shared.transaction() as tx:
                await work(tx)
        else:
            with shared.transaction() as tx:
                await work(tx)

    async def transfer(tx: Any) -> None:
        have = await done(tx.get("x", 0))
        tx.put("x", have + 1)
        tx.append("log", "transferred")
        answers.append(await done(tx.get("x")))
        answers.append(await done(tx.get("log")))

    async def failing(tx: Any) -> None:
        tx.put("x", 100)
        raise Odd("no")

    async def rolling_back(tx: Any) -> None:
        tx.put("x", 100)
        await done(tx.roll_back("changed my mind"))

    async def late(tx: Any) -> None:
        await done(tx.get("x"))
        await done(shared.put("x", 50, expected="any"))
        tx.put("y", 1)

    for work in (transfer, transfer, failing, rolling_back, late):
        answers.append(await caught(lambda work=work: through(work)))
    answers.append(await done(shared.get("x")))
    answers.append(await done(shared.get("y")))


async def team(session: TwinSession, answers: list[Any]) -> None:
    """Tasks and messages, by one agent."""
    mates = session.team
    answers.append(await done(mates.add("read", what={"n": (1,)}, task="r1")))
    answers.append(await done(mates.add("write", waits_for=["r1"], task="w1")))
    answers.append(await caught(lambda: mates.add("circle", task="r1", waits_for=["w1"])))
    task = await done(mates.claim())
    answers.append((task.id, task.title, task.what, task.number))
    await done(mates.extend(task, lease_s=30))
    await done(mates.complete(task, {"found": 3}))
    answers.append(await caught(lambda: mates.complete(task)))
    second = await done(mates.claim())
    await done(mates.hand_off(second, role="writer", with_=[1], reason="later"))
    third = await done(mates.claim())
    answers.append((third.id, third.given, third.because))
    await done(mates.release(third, "not now"))
    fourth = await done(mates.claim())
    await done(mates.fail(fourth, Odd("cannot")))
    answers.append(await done(mates.claim()))
    answers.append([(each.id, each.status, each.error) for each in await done(mates.tasks())])
    answers.append(await done(session.wait_for(task="r1", timeout_s=1)))
    await done(mates.send("hello", role="writer"))
    answers.append([(each.sender, each.content) for each in await done(mates.inbox())])
    answers.append(await caught(lambda: mates.send("x")))


async def claimed(session: TwinSession, answers: list[Any]) -> None:
    """Tasks claimed for a block."""
    mates = session.team
    for name in ("one", "two", "three"):
        await done(mates.add(name, task=name))

    async def through(work: Any) -> None:
        if session.is_async:
            async with mates.claimed(lease_s=20) as task:
                await work(task)
        else:
            with mates.claimed(lease_s=20) as task:
                await work(task)

    async def well(task: Any) -> None:
        task.result = [task.id]

    async def badly(task: Any) -> None:
        raise Odd(task.id)

    async def empty(task: Any) -> None:
        answers.append(task is None or task.id)

    for work in (well, badly, empty, empty):
        answers.append(await caught(lambda work=work: through(work)))
    answers.append([(each.id, each.status, each.result) for each in await done(mates.tasks())])


async def viewing(session: TwinSession, answers: list[Any]) -> None:
    """Take a view of the role, and record that it was shown."""
    await session.message("user", "seen")
    view = await done(session.view())
    answers.append([(number, shown.type, shown.agent) for number, shown in view.events])
    answers.append((view.role, view.run, sorted(view.state.agents)))
    again = await done(session.view(view.events[-1][1].id))
    answers.append(len(again.events))


async def memory(session: TwinSession, answers: list[Any]) -> None:
    """Use every operation on memory files, refused ones included."""
    files = session.memory
    answers.append(await done(files.remember("Use bullets.", sources=["e1"])))
    answers.append(await done(files.create("notes/a.md", "one\ntwo\n", reason="why", space="org")))
    answers.append(await done(files.insert("notes/a.md", 1, "one and a half")))
    answers.append(await done(files.edit("notes/a.md", "two", "2")))
    answers.append(await done(files.rename("notes/a.md", "notes/b.md")))
    if session.is_async:
        async with files.change("two files") as change:
            change.create("c.md", "c\n")
            change.append("AGENTS.md", "- Action items last.")
    else:
        with files.change("two files") as change:
            change.create("c.md", "c\n")
            change.append("AGENTS.md", "- Action items last.")
    entry = await done(files.entry("notes/b.md"))
    answers.append((entry.space, entry.text, entry.kind, entry.author, entry.role, entry.label))
    answers += [await done(files.ls()), await done(files.glob("notes/*"))]
    answers += [
        await done(files.grep("half", glob="notes/**")),
        await done(files.search("bullets")),
    ]
    answers.append(await done(files.prompt(budget=500)))
    answers.append(await done(files.news()))
    versions = await done(files.history("notes/b.md"))
    answers.append([(each.op, each.because, each.path, each.sources) for each in versions])
    answers.append(await done(files.view("notes/a.md", space="org", at=versions[0].event)))
    await done(files.delete("c.md"))
    answers.append(await caught(lambda: files.view("c.md")))
    answers.append(await caught(lambda: files.view("../up")))
    answers.append(await caught(lambda: files.edit("notes/b.md", "none", "x")))
    answers.append(await caught(lambda: files.create("skills/x/SKILL.md", "no front matter")))
    answers.append(await caught(lambda: files.view("runs/none/summary.md")))
    answers.append(await caught(lambda: files.create("denied.md", "x", space="org")))
    await done(files.revert(versions[-1].event, space="org"))
    answers.append(await done(files.ls("notes")))


SCENARIOS = {
    function.__name__: function
    for function in (
        *(tools, failures, reconciled, gated, nested, streams, facts, loops),
        *(board, transactions, memory, team, claimed, viewing, inputs),
    )
}
