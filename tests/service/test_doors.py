"""Operations of a restricted agent outside its session, and its errors when a peer is gone."""

import asyncio
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.bus.portal import portal
from hansard.operations.protocol import wire
from hansard.operations.protocol.faults import AccessRefused, NotOffered, ServiceGone
from tests.service._exchange import do
from tests.service.support import ALL, House

pytestmark = pytest.mark.later


def bodies(house: House) -> bytes:
    """Return the bodies of the whole log."""
    with house.trusted() as record:
        runs = [run for run, _ in record.runs()]
        commits = [portal().run(record.workspace.log.read_run(run)) for run in runs]
    return b"".join(bytes(e.data) for run in commits for c in run for e in c.commit.events)


def wait_for_question(record: Any) -> str:
    """Return the newest unanswered question, as an approver sees it."""
    until = time.monotonic() + 15
    while time.monotonic() < until:
        try:
            lines = [shown for _, shown in record.roles.view("r1").events]
        except hansard.NotFound:
            lines = []
        events = [(each.type, bytes(each.data).decode()) for each in lines]
        questions = [data for kind, data in events if kind.startswith("approval.requested")]
        answered = [kind for kind, _ in events if kind.startswith(("approval.gr", "approval.de"))]
        if len(questions) > len(answered):
            question: str = questions[-1].split('"approval":"')[1].split('"')[0]
            return question
        time.sleep(0.05)
    pytest.fail("nobody asked")


def test_view_and_sql(house: House) -> None:
    """A role gets its view of a run; SQL is refused, since this service keeps no databases."""
    with house.connect() as record:
        with record.run("w", run="r1") as session:
            session.message("user", "one")
        view = record.roles.view("r1")
        assert view.role == "writer"
        shown = next(each for _, each in view.events if each.type == "message.added.v1")
        assert len(record.roles.view("r1", shown.id).events) < len(view.events)
        with pytest.raises(hansard.NotFound):
            record.roles.view("r1", "01a1fef2-5cb1-793a-a392-e2de8fb45e85")
        with pytest.raises(NotOffered):
            record.sql("SELECT 1")
    with house.trusted() as record:
        commits = portal().run(record.workspace.log.read_run("r1"))
        served = [c for c in commits for e in c.commit.events if e.type == "view.served.v1"]
        assert [each.commit.actor.agent for each in served] == ["ada", "ada"]


@pytest.mark.slow
def test_client_gone(other: House) -> None:
    """A silent client's step is in doubt, its claim expires, and its run can be resumed."""
    house = other
    house.begin(quiet_s=1.0)
    try:
        house.login("ada")
        record = house.connect()
        with record.run("w", run="r1") as session:
            session.team.add("task", task="t")
            session.team.claimed(lease_s=1.0).__enter__()

            @session.tool(effects="once")
            def send() -> int:
                link = session.engine.link
                portal().loop.call_soon_threadsafe(link._beating.cancel)
                time.sleep(2.5)
                return 1

            with pytest.raises(ServiceGone):
                send()
        record.close()
    except ServiceGone:  # the session's end could not be sent
        pass
    finally:
        house.end()
    with house.trusted() as record:
        view = record.state("r1")
        [step] = [each for each in view.agent("ada").steps.values() if each.tool == "send"]
        assert step.status.value == "in_doubt"
        assert "connection" in step.error.message
        assert view.agent("ada").left is None
        with record.run(run="r1", agent="eve", role="boss") as eve:
            assert eve.team.claim(timeout_s=5).id == "t"


def test_revoked(house: House) -> None:
    """A token that is revoked counts no longer: the session is over at the next word."""
    from hansard.agents.access import principals  # noqa: PLC0415 -- for this test alone

    with house.connect() as record:
        with pytest.raises(AccessRefused), record.run("w", run="r1") as session:
            session.message("user", "one")
            token = house.known().inbox[7:]
            service = house.service
            assert service is not None
            known = service._authenticator
            who = known.check(house.known().token, "ada", "writer")
            portal().run(principals.revoke(service._workspace, "ada", token))
            until = time.monotonic() + 60
            while known.admits(who) and time.monotonic() < until:
                time.sleep(0.01)
            session.message("user", "two")
        with pytest.raises(AccessRefused), record.run("w"):
            pass
    assert b"two" not in bodies(house)


def test_cancelled(house: House) -> None:
    """A call cancelled at the client is cancelled at the service: a wait, and a body in doubt."""
    login = house.login()

    async def work() -> list[str]:
        async with (
            hansard.connect_async(credentials=login) as record,
            record.run("w", run="r1") as session,
        ):

            @session.tool(effects="once")
            async def send() -> None:
                await asyncio.sleep(30)

            for waiting in (session.wait_for(key="never"), send()):
                task = asyncio.ensure_future(waiting)
                await asyncio.sleep(0.3)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await session.message("user", "goes on")
        return []

    asyncio.run(work())
    with house.trusted() as record:
        steps = record.state("r1").agent("ada").steps.values()
        assert [(each.tool, each.status.value) for each in steps] == [("send", "in_doubt")]


def test_modes(house: House) -> None:
    """Strict and offline replays through the service; a changed tool is warned of."""

    def play(expected: str | None = None, **options: Any) -> int:
        with house.connect() as record, record.run("w", run="r1", **options) as session:
            source = "return 1" if expected is None else "return 2"
            space: dict[str, Any] = {}
            exec(f"def look(x):\n    {source}\n", space)  # noqa: S102 -- another source each time
            look = session.tool(effects="once")(space["look"])
            spec = look.spec
            look.spec = type(spec)(
                **{f: getattr(spec, f) for f in spec.__struct_fields__ if f != "source"},
                source=source,
            )
            value: int = look(1)
            if expected == "miss":
                look(2)
            return value

    assert play() == 1
    assert play(mode="offline") == 1
    with pytest.warns(hansard.errors.ToolChanged, match="look"):
        assert play("changed") == 1
    with pytest.raises(hansard.errors.Miss):
        play("changed", mode="strict")
    with warnings.catch_warnings(), pytest.raises(hansard.errors.Miss, match="not on record"):
        warnings.simplefilter("ignore")
        play("miss", mode="offline")


def test_module_tools_and_threads(house: House) -> None:
    """Module tools find the session; threads have a scope, bare threads get an error to take
    one.
    """

    @hansard.tool(effects="pure")
    def look(x: int) -> int:
        time.sleep(0.05)
        return x

    with house.connect() as record, record.run("w", run="r1") as session:
        assert look(1) == 1
        threads = [session.thread(look, each) for each in (2, 3)]
        assert [each.result() for each in threads] == [2, 3]
        errors: list[BaseException] = []
        bare = session.tool(effects="pure", name="bare")(lambda: 1)

        def alone() -> None:
            try:
                bare()
            except hansard.errors.AgentError as error:
                errors.append(error)

        other = session.thread(look, 4)
        thread = threading.Thread(target=alone)
        thread.start()
        thread.join()
        assert other.result() == 4
    assert [type(each) for each in errors] == [hansard.errors.NoScope]


def test_no_service(other: House) -> None:
    """Without a running service a client gets that error at once."""
    other.login("ada")
    with other.connect() as record:
        began = time.monotonic()
        with pytest.raises(ServiceGone, match="no service"), record.run("w"):
            pass
        assert time.monotonic() - began < 10


def test_environment(house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """HANSARD_CREDENTIALS is as good as credentials=; another workspace than theirs is refused."""
    monkeypatch.setenv("HANSARD_CREDENTIALS", str(house.login()))
    with hansard.connect() as record, record.run("w") as session:
        assert (session.agent, session.role) == ("ada", "writer")
    with pytest.raises(hansard.HansardError, match="workspace"):
        hansard.connect("another")
    assert not (tmp_path / ".hansard").exists()
    assert ALL  # the role of these tests


def test_one_principal_two_roles(house: House) -> None:
    """A session belongs to a principal in a role: its token of another role has no part in it."""
    house.apply(ALL.replace("writer", "editor"))
    house.login("ada", "editor")
    with house.connect() as record, record.run("w", run="r1") as session:
        opened = session.engine.link.opened
        with house.link("ada", "editor") as link:
            request = wire.Request(
                token=link.credentials.token,
                session=opened.session,
                n=99,
                data=msgspec.Raw(wire.encode(do("facts.context")[1])),
            )
            subject = wire.within(house.workspace, "editor", "ada", opened.instance, "do")
            answer = portal().run(link.requests.ask(subject, wire.encode(request), 2))
        assert b"ServiceGone" in answer
        session.message("user", "goes on")


@pytest.mark.slow
def test_service_ends(other: House) -> None:
    """A service that shuts down reports it to waiting clients; calls under way are in doubt."""
    other.begin()
    other.login()
    errors: list[str] = []
    began = threading.Event()

    def program(work: str) -> None:
        try:
            with other.connect() as record, record.run("w", run=work) as session:

                @session.tool(effects="once")
                def send() -> None:
                    began.set()
                    time.sleep(1.5)

                if work == "waits":
                    session.wait_for(key="never")
                else:
                    send()
        except Exception as error:  # noqa: BLE001 -- the error is the result
            errors.append(f"{work}: {type(error).__name__}")

    threads = [threading.Thread(target=program, args=(work,)) for work in ("waits", "sends")]
    for thread in threads:
        thread.start()
    began.wait(10)
    time.sleep(0.3)
    other.end()
    for thread in threads:
        thread.join(10)
    assert sorted(errors) == ["sends: ServiceGone", "waits: ServiceGone"]
    with other.trusted() as record:
        [step] = record.state("sends").agent("ada").steps.values()
        assert step.status.value == "in_doubt"
        assert not record.state("waits").agent("ada").steps


def test_fork(house: House) -> None:
    """In a fork an effect is not repeated: the declared shadow replaces it, at the client."""
    ran: list[str] = []

    def as_if(to: str) -> str:
        ran.append("shadow")
        return f"as if to {to}"

    @hansard.tool(effects="once", shadow=as_if)
    def send(to: str) -> str:
        ran.append("real")
        return f"sent to {to}"

    with house.connect() as record, record.run("w", run="r1"):
        assert send("a") == "sent to a"
    with house.trusted() as record:
        fork = record.fork("r1")
    with house.connect() as record, record.run(run=fork) as session:
        assert session.mode.value == "fork"
        assert send("a") == "sent to a"
        assert send("b") == "as if to b"
    assert ran == ["real", "shadow"]


def test_labels(house: House) -> None:
    """A tool that takes less than its caller was shown is refused."""
    with house.connect() as record, record.run("w", run="r1") as session:
        read = session.tool(effects="pure", gives="secret", name="read")(lambda: "a secret")
        post = session.tool(effects="once", takes="internal", name="post")(lambda text: text)
        assert post("before") == "before"
        read()
        with pytest.raises(hansard.Blocked, match="secret"):
            post("after")
