"""Attacks at the service's door: each is refused and recorded, and the refusal reveals nothing."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from operator import attrgetter
from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents.access import principals
from hansard.agents.errors import RoleRefused
from hansard.agents.team.tasks import Task
from hansard.broker.access import Credentials
from hansard.bus.commits import revive_all
from hansard.bus.jetstream.client import Requests
from hansard.bus.jetstream.wire import NoAnswer
from hansard.bus.portal import portal
from hansard.client.restricted.link import Link, SessionLink
from hansard.domain.access import KIND, AccessRefused
from hansard.operations.protocol import wire
from hansard.operations.protocol.faults import NotOffered, ServiceBusy, ServiceGone
from hansard.operations.protocol.wire import Do, Failed, Open, Request
from hansard.service import hosted
from hansard.service import server as service_server
from tests.service._exchange import do, request
from tests.service.support import House

pytestmark = pytest.mark.later

ROLES = """
[roles.reader]
[[roles.reader.sees]]
name = "own work"
roles = ["reader"]
[roles.reader.may]
tools = ["look"]
kinds = ["message.*"]
"""
CLERKS = """
[roles.clerk]
sees = [{ name = "own work", roles = ["clerk"] }]
may = { tools = ["look"], kinds = ["decision.*"] }
"""
QUICK_S = 0.4


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """On the bus's loop."""
    return portal().run(work)


@contextlib.asynccontextmanager
async def caller(credentials: Credentials) -> AsyncIterator[Requests]:
    """Yield a bare connection with a principal's login at the broker."""
    requests = await Requests.open(credentials.options())
    try:
        yield requests
    finally:
        await requests.close()


async def answer_to(requests: Requests, subject: str, body: bytes) -> bytes | None:
    """Send a request; return its answer, or None without one."""
    try:
        return await requests.ask(subject, body, QUICK_S)
    except NoAnswer:
        return None


def refusals(house: House) -> list[AccessRefused]:
    """Return the recorded access refusals."""
    with house.trusted() as record:
        stored = portal().run(record.workspace.log.read_kind(KIND))
        events = [each for item in stored for each in revive_all([item.commit])]
        return [each for each in events if isinstance(each, AccessRefused)]


def opening_request(credentials: Credentials, token: str | None = None, **more: Any) -> bytes:
    """Return a request to open a session."""
    data = msgspec.Raw(wire.encode(Open(workflow="w", agent=credentials.principal)))
    fields = {"nonce": "n", "data": data, **more}
    return wire.encode(Request(token=credentials.token if token is None else token, **fields))


def other_secret(token: str) -> str:
    """Return a token with the same public id and another secret."""
    return token[:-1] + ("b" if token[-1] != "b" else "c")


def test_stranger(house: House) -> None:
    """For any invalid caller the answer is the same few bytes."""
    house.apply(ROLES)
    ada, bob = house.known("ada"), house.known("bob", "reader")
    opening = wire.opening(house.workspace, "writer", "ada", "open")
    revoked = house.known("carl")

    async def work() -> list[bytes | None]:
        service = house.service
        assert service is not None
        await principals.revoke(service._workspace, "carl", revoked.inbox[7:], reason="left")
        await asyncio.sleep(0.1)
        async with caller(ada) as requests:
            bodies = [
                opening_request(ada, ""),
                opening_request(ada, "x" * 500),
                opening_request(ada, other_secret(ada.token)),
                opening_request(ada, bob.token),
                opening_request(ada, revoked.token),
                b"",
                b"{",
                b"\xff\xfe",
                b"[" * 100_000,
                b'{"token":' + b"[" * 100_000,
                json.dumps({"token": ada.token, "v": "x"}).encode(),
                json.dumps({"token": [ada.token]}).encode(),
            ]
            return [await answer_to(requests, opening, body) for body in bodies]

    answers = run(work())
    assert set(answers) == {wire.DENIED}
    assert len(wire.DENIED) < 30
    reasons = {each.because for each in refusals(house)}
    assert reasons  # the first of its minute; the others are counted
    assert {each.principal for each in refusals(house)} == {"ada"}


def test_other_names(house: House) -> None:
    """A login publishes under its own name alone, which protects requests with another's token."""
    house.apply(ROLES)
    ada, bob = house.known("ada"), house.known("bob", "reader")
    workspace = house.workspace
    subjects = [
        wire.opening(workspace, "writer", "bob", "open"),
        wire.opening(workspace, "reader", "bob", "open"),
        wire.opening(workspace, "reader", "ada", "open"),
        wire.opening(workspace + "-2", "writer", "ada", "open"),
        f"svc.{workspace}.writer",
        f"svc.{workspace}.writer.*.open",
    ]

    async def work() -> list[bytes | None]:
        async with caller(ada) as requests:
            answers: list[bytes | None] = []
            for subject in subjects:
                try:
                    answers.append(await answer_to(requests, subject, opening_request(bob)))
                except hansard.errors.BusError:  # the broker's immediate refusal
                    answers.append(None)
            return answers

    assert run(work()) == [None] * len(subjects)


def test_answers_elsewhere(house: House) -> None:
    """The service answers only in the caller's own inbox, never at another subject."""
    ada, bob = house.known("ada"), house.known("bob")
    places = [
        f"hansard.{house.workspace}.run.r1.life.1",
        f"live.hansard.{house.workspace}.x",
        "_INBOX.abc.1",
        f"{bob.inbox}.1",
        f"{ada.inbox}",
        f"{ada.inbox}x.1",
        "$JS.API.STREAM.NAMES",
        wire.opening(house.workspace, "writer", "bob", "open"),
    ]
    opening = wire.opening(house.workspace, "writer", "ada", "open")
    heard: list[str] = []

    async def work() -> None:
        service = house.service
        assert service is not None
        trusted = service._requests  # the runtime's login hears all
        stops = [
            await trusted.serve(place, lambda subject, *_: heard.append(subject))
            for place in places
        ]
        async with caller(ada) as requests:
            for place in places:
                for body in (opening_request(ada), opening_request(ada, "wrong")):
                    await requests._broker.send(opening, body, place)
            await asyncio.sleep(QUICK_S)
        for stop in stops:
            await stop()

    run(work())
    assert heard == []
    assert any("reply subject" in each.because for each in refusals(house))
    with house.trusted() as record:
        assert record.runs() == []


class Tried:
    """A session of ada's, and the results of bare requests in it."""

    def __init__(self, link: Link, session: SessionLink) -> None:
        self.link = link
        self.session = session

    async def fails(self, verb: str, data: Any, **more: Any) -> str:
        """Return the text of the error."""
        answer = await self.session.ask(verb, data, **more)
        assert isinstance(answer, Failed), answer
        return answer.fault.message


def in_session(house: House, work: Callable[[Tried], Coroutine[Any, Any, Any]]) -> Any:
    """Try something in a fresh session."""
    house.login()

    async def trying() -> Any:
        link = await Link.open(house.known())
        try:
            session = await link.open_session(Open(workflow="w", agent="ada"))
            result = await work(Tried(link, session))
            await session.ask("close", wire.BlockExit())
            await session.end()
            return result
        finally:
            await link.close()

    return run(trying())


def test_another_session(house: House) -> None:
    """The id of another's session gets the same answer as one that never existed."""
    bob = house.known("bob")

    async def work(tried: Tried) -> list[bytes | None]:
        opened = tried.session.opened
        subject = wire.within(house.workspace, "writer", "bob", opened.instance, "do")
        data = msgspec.Raw(wire.encode(do("facts.context")[1]))
        async with caller(bob) as requests:
            return [
                await answer_to(
                    requests,
                    subject,
                    wire.encode(Request(token=bob.token, session=name, n=7, data=data)),
                )
                for name in (opened.session, "0" * 32, "", "../x")
            ]

    first, *others = in_session(house, work)
    assert first is not None
    assert ServiceGone.__name__.encode() in first
    assert others == [first] * 3


def call(**more: Any) -> wire.Call:
    """Return a call of a tool."""
    tool = {"name": "t", "effects": "pure", **more}
    return wire.Call(tool=wire.Declared(**tool), arguments=wire.dump({"x": 1}))


NO_NAME = wire.dump({"a b": 1})
MESSAGE = b'{"op":"facts.message","role":"user","content":%s,"tokens":null,"fields":{}}'
BAD: list[tuple[str, Any]] = [
    do("facts._note", 1),
    do("board.begin", "put", "k"),
    do("facts.__class__"),
    do("core.execute"),
    do("record.roles.view", "r1"),
    do("transaction.put", "k", 1),
    ("do", Do(operation=request("transaction.put", "k", 1), context=1)),
    do("board.transaction"),
    do("team.claimed"),
    do("board.put"),
    do("team.complete", "not a task"),
    do("team.complete", {"id": "t"}),
    ("do", Do(operation=msgspec.Raw(b'{"op":"team.wait_for","position":1,"timeout_s":1}'))),
    do("session.view", 1),
    do("loop.begin", "x", "y"),
    ("do", Do(operation=request("loop.skips", 1), context=3)),
    do("facts.message", "user", "x", None, [1]),
    ("do", Do(operation=msgspec.Raw(MESSAGE % b'{"$tuple":3}'))),
    ("do", Do(operation=msgspec.Raw(MESSAGE % (b'{"$blob":"' + b"0" * 64 + b'"}')))),
    ("do", {"operation": 3}),
    ("do", {"operation": {"op": 3}}),
    ("do", {"name": 3}),
    ("do", None),
    ("call", call(name="board.put", kind="board")),
    ("call", call(name="team.inbox")),
    ("call", call(name="t", kind="team")),
    ("call", call(name="")),
    ("call", call(effects="free")),
    ("call", call(effects="reconcile")),
    ("call", call(attempts=10**9)),
    ("call", call(attempts=2, waits=(1e9,))),
    ("call", wire.Call(tool=wire.Declared(name="t", effects="pure"), arguments=wire.dump([1]))),
    ("call", wire.Call(tool=wire.Declared(name="t", effects="pure"), arguments=NO_NAME)),
    ("stream", call(name="board.keys")),
    ("next", wire.Next(5)),
    ("shut", wire.Next(5)),
    ("exit", wire.BlockExit(context=4)),
    ("done", wire.BodyResult()),
    ("enter", Do(operation=request("board.keys"))),
    ("enter", Do(operation=request("os.system", "true"))),
    ("__init__", Do(operation=request("x"))),
]  # fmt: skip


def test_bad_requests(house: House) -> None:
    """A malformed request is refused with a text, and the session goes on."""

    async def work(tried: Tried) -> list[str]:
        errors = [await tried.fails(verb, data) for verb, data in BAD]
        await tried.fails(*do("facts.context"), scope="nowhere")
        answer = await tried.session.ask(*do("facts.context"))
        assert isinstance(answer, wire.Value)
        return errors

    texts = in_session(house, work)
    assert len(texts) == len(BAD)
    assert all(texts)
    assert not [
        (call, text)
        for call, text in zip(BAD, texts, strict=True)
        if "error of its own" in text or "fault of its own" in text
    ]


def test_deep_and_large(house: House) -> None:
    """Endlessly nested JSON and oversized bodies end as errors, and the service goes on."""

    async def work(tried: Tried) -> None:
        deep = msgspec.Raw(b'{"operation":' + MESSAGE % (b"[" * 200 + b"]" * 200) + b"}")
        assert "nested deeper" in await tried.fails("do", deep)
        with pytest.raises(hansard.errors.TooLarge, match="split it"):
            await tried.session.ask(*do("facts.message", "user", "x" * 2**21, None, {}))
        answer = await tried.session.ask(*do("facts.context"))
        assert isinstance(answer, wire.Value)

    in_session(house, work)


def test_replayed(house: House) -> None:
    """A request that is sent again, byte for byte, is taken once; an opening is answered again."""
    ada = house.known()

    async def work() -> tuple[list[bytes | None], int, int]:
        async with caller(ada) as requests:
            opening = wire.opening(house.workspace, "writer", "ada", "open")
            body = opening_request(ada)
            first = await requests.ask(opening, body, 5)
            again = await answer_to(requests, opening, body)
            opened: Any = wire.answer(first)
            subject = wire.within(house.workspace, "writer", "ada", opened.instance, "do")
            data = msgspec.Raw(wire.encode(do("facts.message", "user", "hi", None, {})[1]))
            body_again = wire.encode(
                Request(token=ada.token, session=opened.session, n=1, data=data)
            )
            answers = [await answer_to(requests, subject, body_again) for _ in range(3)]
            assert again == first
            service = house.service
            assert service is not None
            commits = await service._workspace.log.read_run(opened.run)
            stated = [e.type for c in commits for e in c.commit.events]
            return answers, len(service.sessions), stated.count("message.added.v1")

    answers, sessions, stated = run(work())
    assert answers[0] is not None
    assert answers[1:] == [None, None]
    assert (sessions, stated) == (1, 1)


def test_an_answer_that_is_lost_comes_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer to an opening is not sent: the client asks again, and has one session."""
    house.login()
    service = house.service
    assert service is not None
    monkeypatch.setattr(hansard.client.restricted.link, "AGAIN_S", 0.5)
    send = service._requests.answer
    lost: list[str] = []

    async def answer(reply: str, payload: bytes) -> None:
        if lost:
            await send(reply, payload)
        lost.append(reply)

    monkeypatch.setattr(service._requests, "answer", answer)
    with house.connect() as record, record.run("w") as session:
        session.message("user", "hi")
        assert len(service.sessions) == 1
    assert len(set(lost)) > 1


def test_floods(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions and requests in flight of a principal are bounded; others are served."""
    monkeypatch.setattr(service_server, "SESSIONS_MAX", 3)
    monkeypatch.setattr(service_server, "TURNS_MAX", 8)
    house.login("ada")
    house.login("bob")

    async def work() -> tuple[int, int, list[Any]]:
        link = await Link.open(house.known("ada"))
        bob = await Link.open(house.known("bob"))
        try:
            sessions = [await link.open_session(Open(workflow="w", agent="ada")) for _ in range(3)]
            with pytest.raises(ServiceBusy):
                await link.open_session(Open(workflow="w", agent="ada"))
            slow = do("team.wait_for", "never", None, 1.0)
            flood = [asyncio.ensure_future(sessions[0].ask(*slow, busy=True)) for _ in range(50)]
            await asyncio.sleep(0.2)
            other = await bob.open_session(Open(workflow="w", agent="bob"))
            answers = await asyncio.gather(*flood)
            busy = [each for each in answers if isinstance(each, Failed)]
            answer = await sessions[0].ask(*do("facts.context"))
            for each in (*sessions, other):
                await each.ask("close", wire.BlockExit())
                await each.end()
            return len(answers), len(busy), [busy[0].fault.type, type(answer).__name__]
        finally:
            await link.close()
            await bob.close()

    total, busy, kinds = run(work())
    assert total == 50
    assert busy == 50 - 8
    assert kinds == ["ServiceBusy", "Value"]


def test_not_offered(house: House) -> None:
    """An operation for trusted programs alone is refused with an alternative."""
    with house.connect() as record:
        for use in (
            lambda: record.state("r1"),
            lambda: record.runs,
            lambda: record.fork("r1"),
            lambda: record.conversation("c"),
            lambda: record.workspace,
            lambda: record.roles.apply_file("roles.toml"),
            lambda: record.application,
        ):
            with pytest.raises(NotOffered, match="not offered"):
                use()
        with pytest.raises(RoleRefused, match="views no role 'boss'"):
            record.roles.view("r1", role="boss")
        for options in ({"agent": "bob"}, {"role": "boss"}, {"conversation": "c"}):
            with pytest.raises(NotOffered), record.run("w", **options):
                pass
        with record.run("w") as session:
            with pytest.raises(NotOffered, match="position"):
                session.wait_for(position=1)
            for name in ("state", "label"):
                with pytest.raises(NotOffered, match=rf"session\.{name} is not .*session\.view"):
                    getattr(session, name)
            for name in ("save", "get"):
                with pytest.raises(NotOffered, match=rf"session\.{name} is not .*trusted program"):
                    getattr(session, name)
            with pytest.raises(AttributeError, match="no attribute 'stat'"):
                _ = session.stat


def test_role_refuses(house: House) -> None:
    """A call that the role does not allow is refused by the hosted session and recorded."""
    house.apply(ROLES)
    with house.connect("bob", "reader") as record, record.run("w", run="r9") as session:
        look = session.tool(effects="pure", name="look")(lambda: 1)

        @session.tool(effects="once")
        def send() -> int:
            raise AssertionError

        assert look() == 1
        session.message("user", "may be said")
        with pytest.raises(hansard.Blocked, match="tools ="):
            send()
        with pytest.raises(hansard.Blocked, match="ask for"):
            session.decide("x", selected="y")
        with pytest.raises(hansard.Blocked, match="ask for"):
            session.board.get("plans")
    with house.trusted() as record:
        commits = portal().run(record.workspace.log.read_run("r9"))
        tags = [event.type for stored in commits for event in stored.commit.events]
    assert tags.count("step.blocked.v1") == 1
    assert tags.count("agent.refused.v1") == 2


def test_inputs_tell_nothing_of_what_is_not_seen(house: House) -> None:
    """An unseen event, step or key is refused as one that does not exist."""
    house.apply(CLERKS)
    with house.trusted() as record, record.run("w", run="r9", agent="bob", role="writer") as bob:
        bob.tool(effects="pure", name="look")(lambda: 1)()
        bob.board.put("plans", 1)
        commits = run(record.workspace.log.read_run("r9"))
    events = [each.commit.events[-1].id for each in commits] + [commits[-1].commit.id]
    nothing = "01a202a2-d28d-71e8-a196-e7d64d5d822b"
    with house.connect("ann", "clerk") as record, record.run("w", run="r9") as session:

        def refused(reference: str) -> str:
            with pytest.raises(hansard.BadValue) as caught:
                session.decide("x", selected="y", inputs=[reference])
            return str(caught.value).replace(reference, "it")

        assert {refused(event) for event in events} == {refused(nothing)}
        assert refused("bob#1") == refused("bob#7") == refused("eve#1")
        assert refused("plans@1") == refused("plans@7").replace("@7", "@1")
        assert refused("plans") == refused("else")
        look = session.tool(effects="pure", name="look")(lambda: [2])
        session.decide("x", selected="y", inputs=[look(), "ann#1"])
    with house.trusted() as record:
        [decision] = record.state("r9").agent("ann").decisions
        assert len(decision.inputs) == 1


@pytest.mark.parametrize(
    ("operation", "ask_for"), [("approvals.grant", "approve = true"), ("settle", "settle = true")]
)
def test_role_refuses_outside_of_sessions(house: House, operation: str, ask_for: str) -> None:
    """A distrusted request is refused, and recorded at most once a minute."""
    house.apply(ROLES)
    arguments = {"approvals.grant": ("a",), "settle": ("r", "ada#1", "happened")}[operation]
    with house.connect("bob", "reader") as record:
        for _ in range(5):
            with pytest.raises(hansard.Blocked, match=ask_for):
                attrgetter(operation)(record)(*arguments)
    [refusal] = [each for each in refusals(house) if each.operation == operation.replace(".", "_")]
    assert (refusal.principal, refusal.role) == ("bob", "reader")
    assert ask_for in refusal.because


def test_too_many_turns(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that never runs its callbacks has a bounded number of open operations."""
    monkeypatch.setattr(hosted, "TURNS_MAX", 5)

    async def work(tried: Tried) -> list[str]:
        answers = [await tried.session.ask("call", call(effects="once")) for _ in range(9)]
        return [type(each).__name__ for each in answers]

    assert in_session(house, work) == ["Run"] * 5 + ["Failed"] * 4


def test_answer_too_large(house: House) -> None:
    """An oversized answer is an error; an oversized result is returned, cut on record."""
    with house.trusted() as record, record.run("w", run="r1", agent="eve", role="writer") as eve:
        eve.board.put("large", "x" * 2**21)
    with house.connect() as record, record.run(run="r1") as session:
        with pytest.raises(hansard.errors.TooLarge, match="by reference"):
            session.board.get("large")
        session.message("user", "goes on")
        look = session.tool(effects="pure", name="look")(lambda: "x" * 2**21)
        send = session.tool(effects="once", name="send")(lambda: "x" * 2**21)
        for call in (look, send):
            with pytest.warns(hansard.errors.ResultInexact):
                assert call() == "x" * 2**21


def test_heard_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service notices the loss of its subscriptions, and takes requests again."""
    monkeypatch.setattr(service_server, "PROBE_SWEEPS", 1)
    service = house.service
    assert service is not None

    async def deaf() -> None:
        for stop in service._stops:
            await stop()

    run(deaf())
    until = time.monotonic() + 10
    while True:
        try:
            with house.connect() as record, record.run("w") as session:
                session.message("user", "heard")
            break
        except ServiceGone:
            assert time.monotonic() < until
            time.sleep(0.2)


def test_resolver_that_never_answers(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that never resolves a put delays others only shortly."""
    monkeypatch.setattr(hosted, "RESOLVE_S_MAX", 0.3)
    with house.trusted() as record, record.run("w", run="r1", agent="eve", role="writer") as eve:
        eve.board.put("k", 1)

    async def work() -> tuple[str, str]:
        link = await Link.open(house.known())
        try:
            session = await link.open_session(Open(agent="ada", run="r1"))
            resolve = {"is": "function", "name": "f"}
            first = await session.ask(*do("board.put", "k", 2, 7, {}, None, resolve))
            again = do("board.put", "k", 3, "any", {}, None, None)
            second = await asyncio.wait_for(session.ask(*again), 10)
            await session.ask("close", wire.BlockExit())
            await session.end()
            return type(first).__name__, type(second).__name__
        finally:
            await link.close()

    house.login()
    assert run(work()) == ("Run", "Value")


def test_forged_claim(house: House) -> None:
    """A guessed claim number has no effect: a task accepts statements only from its claimer."""
    house.login()
    with house.trusted() as record, record.run("w", run="r1", agent="eve", role="writer") as eve:
        eve.team.add("hers", task="t")
        held = eve.team.claim()
        with house.connect() as restricted, restricted.run(run="r1") as ada:
            for say in (ada.team.complete, ada.team.extend, ada.team.release):
                with pytest.raises(hansard.errors.Refused, match="not of this session"):
                    say(held)
            with pytest.raises(hansard.errors.Refused, match="not of this session"):
                ada.team.hand_off(Task("no such task", "", 1), role="writer")
        assert [each.holder for each in eve.team.tasks()] == ["eve"]


def test_another_version(house: House) -> None:
    """A client of another version receives both versions; a repr of a request hides its token."""
    ada = house.known()

    async def work() -> bytes | None:
        async with caller(ada) as requests:
            opening = wire.opening(house.workspace, "writer", "ada", "open")
            return await answer_to(requests, opening, opening_request(ada, v=wire.VERSION + 1))

    answer = wire.answer(run(work()))
    assert isinstance(answer, Failed)
    assert f"version {wire.VERSION + 1}" in answer.fault.message
    assert f"version {wire.VERSION}" in answer.fault.message
    assert ada.token not in repr(wire.request(opening_request(ada)))


def test_rules_that_change(house: House) -> None:
    """A role's new rules count at once: sessions opened under the old ones are over."""
    with house.connect() as record:
        with (
            pytest.raises(ServiceGone, match=r"rules.*was not done"),
            record.run("w", run="r1") as session,
        ):
            session.board.put("plans", 1)
            house.apply(ROLES.replace("reader", "writer"))
            time.sleep(0.2)
            session.board.put("plans", 2)
        with record.run(run="r1") as session, pytest.raises(hansard.Blocked, match="ask for"):
            session.board.put("plans", 3)
    with house.trusted() as record, record.run(run="r1", agent="eve", role="boss") as eve:
        assert eve.board.get("plans") == 1
