"""The connection: replies, failures, and its behaviour without private hooks."""

import asyncio
import contextlib
import gc
import itertools
import socket
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import StaleConnectionError, UnexpectedEOF

from hansard.bus.errors import BrokerError, TooLarge, Unreachable
from hansard.bus.jetstream import client, direct
from hansard.bus.jetstream.client import REQUEST_TIMEOUT_S, Broker
from hansard.bus.jetstream.wire import (
    NoAnswer,
    NoResponders,
    block,
    header,
    parsed,
    rendered,
    stamp_ns,
    status,
    stored,
)
from hansard.bus.log import Stored
from hansard.domain.errors import Corrupt
from hansard.domain.ids import AgentStream, KeyStream
from tests.access.support import eventually
from tests.bus.brokers import Nats, append, running

ALICE = AgentStream("r1", "researcher", "alice")


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory):
    """Yield one server for these tests, each of which has a workspace of its own."""
    with running(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"2026-11-21T02:33:20.366790247Z", 1795228400366790247),
        (b"2026-11-21T02:33:20.36679Z", 1795228400366790000),
        (b"2026-11-21T02:33:20.1Z", 1795228400100000000),
        (b"2026-11-21T02:33:20Z", 1795228400000000000),
        (b"1970-01-01T00:00:00.000000001Z", 1),
    ],
)
def test_stamps(text: bytes, expected: int):
    """The server's times have up to nine digits after the second; trailing zeros are left out."""
    assert stamp_ns(text) == expected
    assert stamp_ns(text) == expected  # once more, from what it remembers of the second


def test_stamps_are_in_utc():
    """Any other form is refused, not read as if it were UTC."""
    with pytest.raises(ValueError, match="not a time in UTC"):
        stamp_ns(b"2026-11-21T02:33:20.366790247+01:00")


def test_headers():
    """Headers are sent and parsed back; a status line is not a header."""
    headers = {"Nats-Expected-Last-Subject-Sequence": "0", "A": "b: c"}
    assert parsed(block(headers)) == headers
    assert rendered(headers) == block(headers)
    assert status(b"NATS/1.0 404 Message Not Found\r\n\r\n") == (404, "Message Not Found")
    assert status(b"NATS/1.0 503\r\n\r\n") == (503, "")
    assert status(block(headers)) == (0, "")
    end = rendered({"Status": "204", "Description": "EOB", "Nats-Num-Pending": "7"})
    assert status(end) == (204, "EOB")
    assert header(end, b"Nats-Num-Pending") == b"7"
    assert header(end, b"Nats-Last-Sequence") == b""


def test_an_answer_without_a_subject():
    """An answer that does not name its message is Corrupt."""
    with pytest.raises(Corrupt):
        stored(b"NATS/1.0\r\nNats-Stream: x\r\n\r\n", b"")


async def test_no_answer(nats: Nats):
    """A request without an answer ends after its timeout."""
    broker = await Broker.open(nats.options())

    await broker.listen("silent", lambda *_: None)
    began = asyncio.get_running_loop().time()
    with pytest.raises(NoAnswer):
        await broker.request("silent", b"", None, 0.2)
    assert 0.15 < asyncio.get_running_loop().time() - began < REQUEST_TIMEOUT_S
    assert broker._receivers == {}
    await broker.close()


async def test_too_large_for_the_server(nats: Nats):
    """A message over the server's limit is not sent: it would end the connection for good."""
    broker = await Broker.open(nats.options())
    with pytest.raises(TooLarge):
        await broker.send("x", b"x" * broker.max_payload, "", block({"A": "b"}))
    assert broker.connected
    await broker.close()


@pytest.mark.slow
async def test_a_handshake_that_fails_leaves_no_connection_open(tmp_path: Path):
    """If the server's port does not answer, each try is closed before the next one."""
    with running(tmp_path) as nats:
        broker = await Broker.open(msgspec.structs.replace(nats.options(), connect_timeout_s=1.0))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            nats.kill()
            with socket.create_server(("127.0.0.1", nats.port), backlog=8) as silent:
                silent.setblocking(False)
                loop = asyncio.get_running_loop()
                tried = [(await asyncio.wait_for(loop.sock_accept(silent), 30))[0] for _ in "12"]
                assert await asyncio.wait_for(loop.sock_recv(tried[0], 1), 30) == b""
                for connection in tried:
                    connection.close()
            gc.collect()
        assert [str(each.message) for each in caught] == []
        nats.start()
        await asyncio.wait_for(broker._up.wait(), 30)
        await broker.close()


async def test_who_no_longer_waits_for_a_pong_makes_no_connection_deaf(nats, caplog):
    """A cancelled flush leaves its ping in flight: data after the pong is read."""
    broker = await Broker.open(nats.options())
    nobody = asyncio.get_running_loop().create_future()
    nobody.cancel()
    await broker._nc._send_ping(nobody)
    await broker._nc.flush()
    assert "error" not in await direct.api(broker, "INFO")
    assert caplog.records == []
    await broker.close()


@contextlib.asynccontextmanager
async def _ended_once_let_in(nats: Nats, times: int, last: bytes) -> AsyncIterator[int]:
    """Relay, and end some connections with these bytes right after their first pong."""
    left = itertools.count(times, -1)
    relays: set[asyncio.Task[None]] = set()

    async def hand_on(source: asyncio.StreamReader, to: asyncio.StreamWriter, *, end: bool) -> None:
        while data := await source.read(65_536):
            cut = end and b"PONG\r\n" in data
            to.write(data + last if cut else data)
            if cut:
                return

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        of_server, to_server = await asyncio.open_connection("127.0.0.1", nats.port)
        ways = (
            asyncio.create_task(hand_on(of_server, writer, end=next(left) > 0)),
            asyncio.create_task(hand_on(reader, to_server, end=False)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for each in (writer, to_server):
                each.close()
                with contextlib.suppress(ConnectionError):
                    await each.wait_closed()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relays.add(asyncio.create_task(relay(reader, writer)))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
    await asyncio.wait(relays, timeout=30)
    assert all(each.done() for each in relays)


@pytest.mark.later
@pytest.mark.parametrize("last", [b"-ERR 'Authorization Violation'\r\n", b""])
async def test_who_is_let_in_and_ended_at_once_is_let_in_again(nats: Nats, last: bytes):
    """A client cut off while logins reload connects again, or reports the last reason."""
    async with _ended_once_let_in(nats, 3, last) as port:
        options = msgspec.structs.replace(nats.options(), urls=(f"nats://127.0.0.1:{port}",))
        broker = await Broker.open(options)
        assert "error" not in await direct.api(broker, "INFO")
        await broker.close()
    async with _ended_once_let_in(nats, 1_000, last) as port:
        options = msgspec.structs.replace(
            options, urls=(f"nats://127.0.0.1:{port}",), connect_timeout_s=1.5
        )
        why, message = (BrokerError, "answered 401") if last else (Unreachable, "once it let us in")
        with pytest.raises(why, match=message):
            await Broker.open(options)


async def test_a_wait_for_the_sockets_end_that_was_cancelled_ends_no_close(nats: Nats):
    """A cancelled wait for the socket's end does not cancel the close that others wait for."""
    broker = await Broker.open(nats.options())
    transport = broker._nc._transport
    assert transport is not None
    waiting = asyncio.ensure_future(transport.wait_closed())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await asyncio.wait_for(broker.close(), 30)
    assert broker._nc.is_closed

    broker = await Broker.open(nats.options())
    closing = asyncio.ensure_future(broker.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing}, timeout=30)
    assert closing.cancelled()
    await broker.close()


async def test_what_breaks_while_it_is_closed_is_no_warning(nats, caplog):
    """The server may end with its last user: that is as it should be."""
    broker = await Broker.open(nats.options())
    await broker._on_error(UnexpectedEOF())
    assert [record.getMessage() for record in caplog.records] == ["broker connection"]
    closing = asyncio.ensure_future(broker.close())
    await asyncio.sleep(0)
    await broker._on_error(StaleConnectionError())
    await closing
    assert len(caplog.records) == 1


async def test_abandoned_by_the_client(nats: Nats):
    """If nats-py gives up a connection for good, another is opened."""
    log = await nats.log("revived")
    await log.append(append(ALICE, 1))
    for broker in (log._writes, log._reads):
        broker._nc._max_payload = 10**9
        await Client.publish(broker._nc, "x", b"x" * 2_000_000)
    await asyncio.sleep(0.1)
    assert (await asyncio.wait_for(log.append(append(ALICE, 2)), 60)).position == 2
    assert len(await log.read(ALICE)) == 2
    await log.close()


async def test_what_was_still_to_be_sent_when_the_socket_was_lost_ends_no_connection_for_good(nats):
    """After an error with bytes left to write another connection is made."""
    broker = await Broker.open(nats.options())
    nc = broker._nc
    await client._end(nc._flusher_task)  # it is slow
    nc._transport._io_writer.transport.abort()  # type: ignore[union-attr]  # nats-py's own
    nc._pending, nc._pending_data_size = [b"PING\r\n"], 6
    await nc._process_err("'Authorization Violation'")
    await eventually(lambda: broker._nc is not nc)
    await broker.ready(30)
    assert "error" not in await direct.api(broker, "INFO")
    await broker.close()


async def test_a_receiver_that_raises(nats: Nats):
    """A receiver's error does not end the connection's read loop."""
    broker = await Broker.open(nats.options())

    def clumsy(*_: object) -> None:
        raise RuntimeError("clumsy")

    await broker.listen("clumsy", clumsy)
    await broker.send("clumsy", b"")
    with pytest.raises(NoResponders):
        await broker.request("nobody.here", b"", None, 5.0)
    await broker.close()


_bytes = st.binary(max_size=40) | st.sampled_from([b"\r\nMSG a 1 0\r\n\r\n", b"\r\n"])
_lines = st.one_of(
    st.tuples(st.just(1), st.sampled_from(["", "r.7", "7"]), st.none() | _bytes, _bytes),
    st.tuples(st.just(2), st.just(""), st.none(), _bytes),  # another caller's, who has left
    st.just(b"+OK\r\n"),
)


@pytest.mark.later
@given(st.lists(_lines, max_size=12), st.lists(st.integers(0, 400), max_size=12))
def test_messages_arrive_whole_and_in_order_however_they_are_cut(sent, cuts):
    """Headers are unchanged, whatever surrounds the messages and is in them."""
    wire = b""
    expected: list[tuple[str, str, bytes, bytes]] = []
    got: list[tuple[str, str, bytes, bytes]] = []
    for each in sent:
        if isinstance(each, bytes):
            wire += each
            continue
        number, reply, headers, data = each
        where = f"subject.x {number} {reply}".rstrip().encode()
        if headers is None:
            wire += b"MSG %b %d\r\n%b\r\n" % (where, len(data), data)
        else:
            sizes = (len(headers), len(headers) + len(data))
            wire += b"HMSG %b %d %d\r\n%b%b\r\n" % (where, *sizes, headers, data)
        if number == 1:
            expected.append(("subject.x", reply, headers or b"", data))
    for marks in (sorted({0, len(wire), *cuts}), range(len(wire) + 1)):
        got.clear()
        one = client._Client()
        sink: Any = client._Sink(lambda *message: got.append(message))
        one._subs[1] = Subscription(one, id=1, subject="subject.x", future=sink)
        asyncio.run(_feed(one, [wire[begin:end] for begin, end in itertools.pairwise(marks)]))
        assert got == expected
        assert not one._ps.buf


async def _feed(one: client._Client, parts: list[bytes]) -> None:
    for part in parts:
        await one._ps.parse(part)


@pytest.mark.later
async def test_without_private_hooks(nats: Nats, monkeypatch: pytest.MonkeyPatch):
    """Without the nats-py hooks that make it fast everything works over its public methods."""
    monkeypatch.setattr(client, "_Client", Client)

    class Stock(Client):
        takes_commands = False

    monkeypatch.setattr(client, "_Client", Stock)
    log = await nats.log("stock")
    connection: Any = log._writes._nc
    assert type(connection) is Stock
    await log.append(append(ALICE, 1))
    await log.append_all([append(ALICE, 2), append(KeyStream("r1", "k"), 1)])
    assert (
        await log.append_bulk([append(KeyStream("r2", "k"), i) for i in range(1, 1_101)]) == 1_100
    )
    results: list[Any] = await asyncio.gather(
        *(log.append(append(KeyStream("r3", f"k{i}"), 1)) for i in range(64))
    )
    assert all(isinstance(each, Stored) for each in results)
    assert [s.commit.version for s in await log.read(ALICE)] == [1, 2]
    assert len(await log.read_run("r2")) == 1_100
    followed = [stored.position async for stored in log.follow(until=1_167)]
    assert followed == list(range(1, 1_168))
    await log.close()


@pytest.mark.later
@pytest.mark.parametrize("turns", range(6))
async def test_closing_while_it_reconnects(tmp_path, monkeypatch, turns):
    """At any moment of a reconnect, `close` ends the connecting."""
    with running(tmp_path) as own:
        broker = await Broker.open(own.options())
        own.kill()
        trying = asyncio.Event()
        connect = Client._connect_to_server

        async def counted(self: Client, server: Any) -> None:
            async def later() -> None:
                for _ in range(turns):
                    await asyncio.sleep(0)
                trying.set()

            task = asyncio.ensure_future(later())
            await connect(self, server)
            await task

        monkeypatch.setattr(Client, "_connect_to_server", counted)
        await trying.wait()
        await broker.close()
        own.start()
        await asyncio.sleep(0.2)
        assert not broker.connected
        task = broker._nc._reconnection_task
        assert task is not None
        assert task.done()


@pytest.mark.parametrize("before", ["ready", "send"])
async def test_an_api_call_outlives_a_connection(nats, monkeypatch, before):
    """One that is lost before the call is sent, or before it is answered: it is made again."""
    broker = await Broker.open(nats.options())
    met = getattr(broker, before)
    lost: list[bool] = []

    async def lost_once(*arguments: Any) -> None:
        await met(*arguments)
        if not lost:
            lost.append(True)
            await broker._nc._process_op_err(ConnectionResetError())
            assert not broker._nc.is_connected

    monkeypatch.setattr(direct, "RELOAD_S", 60.0)
    monkeypatch.setattr(broker, before, lost_once)
    try:
        assert (await direct.api(broker, "INFO"))["type"].endswith("account_info_response")
    finally:
        await broker.close()
    assert lost


async def test_closing_after_the_connection_was_lost(nats: Nats):
    """Unsent data is dropped, and closing raises no error for it."""
    broker = await Broker.open(nats.options())
    nc = broker._nc
    assert nc._reading_task is not None
    nc._reading_task.cancel()  # it has not noticed yet
    transport: Any = nc._transport
    writer = transport._io_writer
    writer.transport.abort()
    async with asyncio.timeout(60):
        while not writer.is_closing() or not writer._protocol._connection_lost:  # noqa: ASYNC110 -- it has no event
            await asyncio.sleep(0.001)
    nc._pending.append(b"PING\r\n")
    nc._pending_data_size = 6
    await broker.close()
    assert not broker.connected
