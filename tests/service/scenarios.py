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


async def done(found: Any) -> Any:
    """Return the result of either client's operation: the sync one's value, or the awaited one."""
    return await found if inspect.isawaitable(found) else found


async def caught(work: Any) -> str:
    """Return the type and text of the error that is raised."""
    try:
        await done(work() if callable(work) else work)
    except Exception as error:  # noqa: BLE001 -- the error is the result
        return f"{type(error).__module__}.{type(error).__name__}: {error}"
    return "nothing"


async def tools(session: TwinSession, told: list[Any]) -> None:
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
    told += [await twice(value) for value in odd]
    told.append(await put(5))
    told.append(await send("a", 1, 2, b=3))
    told.append(await paper("sourcing"))
    told.append(await twice(1))
    told.append(ran)


async def failures(session: TwinSession, told: list[Any]) -> None:
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
        told.append(await caught(call))
    told.append(await caught(unrecordable))
    told.append(tries)


async def reconciled(session: TwinSession, told: list[Any]) -> None:
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

        told.append(await caught(lambda send=send: send(1)))
        told.append(await caught(lambda send=send: give(send, told)))
    keys: list[str] = []

    async def by_key(x: int, key: str) -> object:
        return hansard.Happened((x, [key] == keys))

    @session.tool(effects=hansard.reconcile(by_key), key_argument="key", name="send_by_key")
    async def keyed(x: int, key: str = "") -> object:
        keys.append(key)
        raise TimeoutError("no answer")

    told.append(await caught(lambda: keyed(1)))
    told.append(await caught(lambda: give(keyed, told)))


async def give(send: Any, told: list[Any]) -> None:
    """Call a tool and note its result."""
    told.append(await send(1))


async def gated(session: TwinSession, told: list[Any]) -> None:
    """Check that a call refused by a rule is recorded with the rule's name."""

    @session.tool(effects="once")
    async def send(to: str) -> str:
        return f"sent to {to}"

    told.append(await caught(lambda: send("boss")))
    told.append(await send("ada"))


async def nested(session: TwinSession, told: list[Any]) -> None:
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

    told.append(await both(1))
    told.append(await caught(failing))
    told.append(await alone())

    async def branch(x: int) -> list[int]:
        return [await leaf(x), *(await both(x + 1))]

    told.append(await session.gather(lambda: branch(100), lambda: branch(200)))
    told.append(await leaf(7))
    told.append(await caught(lambda: session.usage(tokens=float("nan"))))


async def streams(session: TwinSession, told: list[Any]) -> None:
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

    told.append([item async for item in count(4)])
    items = count(9)
    async for item in items:
        told.append(item)
        if item["i"] == 2:
            break
    await items.aclose()
    told.append(closed)
    got: list[Any] = []

    async def take() -> None:
        async for item in breaking():
            got.append(item)

    told.append(await caught(take))
    told.append(got)


async def facts(session: TwinSession, told: list[Any]) -> None:
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
    told.append(await session.checkpoint_data("half"))
    told.append(await session.checkpoint_data("none"))
    told.append(await session.context())
    told.append(await caught(lambda: session.message("user", object())))
    told.append(await caught(lambda: session.checkpoint("", x=1)))


async def inputs(session: TwinSession, told: list[Any]) -> None:
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
    for given in right:
        told.append(await caught(session.decide("which", selected="a", inputs=given)))
    nothing = "01a202a2-d28d-71e8-a196-e7d64d5d822b"
    wrong: list[Any] = [[8], ["plan@9"], ["none"], ["ada#99"], [nothing], [object()], "ada#1"]
    for given in wrong:
        told.append(await caught(lambda of=given: session.decide("b", selected="b", inputs=of)))


async def loops(session: TwinSession, told: list[Any]) -> None:
    """Run a loop whose progress is recorded."""

    @session.tool(effects="pure")
    async def square(x: int) -> int:
        return x * x

    loop = session.resumable([1, 2, 3], every=2, name="squares")
    async for item in loop:
        loop.raw.results.append((item, await square(item)))
        told.append(loop.raw.last_item)
    told.append(loop.raw.results)
    told.append(await square(1))


async def board(session: TwinSession, told: list[Any]) -> None:
    """Every operation on shared state."""
    shared = session.board
    told.append(await done(shared.put("a", {"x": (1, 2)}, labels={"k": "v"})))
    told.append(await done(shared.get("a")))
    entry = await done(shared.entry("a"))
    told.append((entry.key, entry.kind, entry.value, entry.version, entry.author, entry.role))
    told.append(await done(shared.get("none", 5)))
    told.append(await done(shared.append("list", 1)))
    told.append(await done(shared.append("list", (2,))))
    told.append(await done(shared.add("n", 3)))
    told.append(await done(shared.include("set", "x")))
    told.append(await done(shared.discard("set", "x")))
    told.append(await done(shared.merge("top", "max", 4)))
    told.append(await done(shared.keys()))
    told.append(await done(shared.remove("n")))
    told.append(await caught(lambda: shared.put("a", 2, expected=7)))
    told.append(await caught(lambda: shared.add("a", 1)))
    told.append(await caught(lambda: shared.put("", 1)))
    settled = shared.put("a", 3, expected=7, resolve=lambda mine, theirs: [mine, theirs])
    told.append(await done(settled))
    told.append(await done(shared.get("a")))
    told.append(await done(session.wait_for(key="a", timeout_s=1)))
    told.append(await done(session.wait_for(key="never", timeout_s=0.05)))


async def transactions(session: TwinSession, told: list[Any]) -> None:
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
        told.append(await done(tx.get("x")))
        told.append(await done(tx.get("log")))

    async def failing(tx: Any) -> None:
        tx.put("x", 100)
        raise Odd("no")

    async def given_up(tx: Any) -> None:
        tx.put("x", 100)
        await done(tx.roll_back("changed my mind"))

    async def late(tx: Any) -> None:
        await done(tx.get("x"))
        await done(shared.put("x", 50, expected="any"))
        tx.put("y", 1)

    for work in (transfer, transfer, failing, given_up, late):
        told.append(await caught(lambda work=work: through(work)))
    told.append(await done(shared.get("x")))
    told.append(await done(shared.get("y")))


async def team(session: TwinSession, told: list[Any]) -> None:
    """Tasks and messages, by one agent."""
    mates = session.team
    told.append(await done(mates.add("read", what={"n": (1,)}, task="r1")))
    told.append(await done(mates.add("write", waits_for=["r1"], task="w1")))
    told.append(await caught(lambda: mates.add("circle", task="r1", waits_for=["w1"])))
    task = await done(mates.claim())
    told.append((task.id, task.title, task.what, task.number))
    await done(mates.extend(task, lease_s=30))
    await done(mates.complete(task, {"found": 3}))
    told.append(await caught(lambda: mates.complete(task)))
    second = await done(mates.claim())
    await done(mates.hand_off(second, role="writer", with_=[1], reason="later"))
    third = await done(mates.claim())
    told.append((third.id, third.given, third.because))
    await done(mates.release(third, "not now"))
    fourth = await done(mates.claim())
    await done(mates.fail(fourth, Odd("cannot")))
    told.append(await done(mates.claim()))
    told.append([(each.id, each.status, each.error) for each in await done(mates.tasks())])
    told.append(await done(session.wait_for(task="r1", timeout_s=1)))
    await done(mates.send("hello", role="writer"))
    told.append([(each.sender, each.content) for each in await done(mates.inbox())])
    told.append(await caught(lambda: mates.send("x")))


async def claimed(session: TwinSession, told: list[Any]) -> None:
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
        told.append(task is None or task.id)

    for work in (well, badly, empty, empty):
        told.append(await caught(lambda work=work: through(work)))
    told.append([(each.id, each.status, each.result) for each in await done(mates.tasks())])


async def viewing(session: TwinSession, told: list[Any]) -> None:
    """Take a view of the role, and record that it was shown."""
    await session.message("user", "seen")
    view = await done(session.view())
    told.append([(number, shown.type, shown.agent) for number, shown in view.events])
    told.append((view.role, view.run, sorted(view.state.agents)))
    again = await done(session.view(view.events[-1][1].id))
    told.append(len(again.events))


async def memory(session: TwinSession, told: list[Any]) -> None:
    """Use every operation on memory files, refused ones included."""
    files = session.memory
    told.append(await done(files.remember("Use bullets.", sources=["e1"])))
    told.append(await done(files.create("notes/a.md", "one\ntwo\n", reason="why", space="org")))
    told.append(await done(files.insert("notes/a.md", 1, "one and a half")))
    told.append(await done(files.edit("notes/a.md", "two", "2")))
    told.append(await done(files.rename("notes/a.md", "notes/b.md")))
    if session.is_async:
        async with files.change("two files") as change:
            change.create("c.md", "c\n")
            change.append("AGENTS.md", "- Action items last.")
    else:
        with files.change("two files") as change:
            change.create("c.md", "c\n")
            change.append("AGENTS.md", "- Action items last.")
    entry = await done(files.entry("notes/b.md"))
    told.append((entry.space, entry.text, entry.kind, entry.author, entry.role, entry.label))
    told += [await done(files.ls()), await done(files.glob("notes/*"))]
    told += [await done(files.grep("half", glob="notes/**")), await done(files.search("bullets"))]
    told.append(await done(files.prompt(budget=500)))
    told.append(await done(files.news()))
    versions = await done(files.history("notes/b.md"))
    told.append([(each.op, each.because, each.path, each.sources) for each in versions])
    told.append(await done(files.view("notes/a.md", space="org", at=versions[0].event)))
    await done(files.delete("c.md"))
    told.append(await caught(lambda: files.view("c.md")))
    told.append(await caught(lambda: files.view("../up")))
    told.append(await caught(lambda: files.edit("notes/b.md", "none", "x")))
    told.append(await caught(lambda: files.create("skills/x/SKILL.md", "no front matter")))
    told.append(await caught(lambda: files.view("runs/none/summary.md")))
    told.append(await caught(lambda: files.create("denied.md", "x", space="org")))
    await done(files.revert(versions[-1].event, space="org"))
    told.append(await done(files.ls("notes")))


SCENARIOS = {
    function.__name__: function
    for function in (
        *(tools, failures, reconciled, gated, nested, streams, facts, loops),
        *(board, transactions, memory, team, claimed, viewing, inputs),
    )
}
