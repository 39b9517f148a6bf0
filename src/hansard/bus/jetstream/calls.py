"""What is asked of JetStream over a connection: publish, publish all or none, administer."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import msgspec

from hansard.bus.errors import BrokerError
from hansard.bus.jetstream._known import Known
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.wire import HEADER_LINE, Ack, NoAnswer, NoResponders, acknowledged

BATCH_MESSAGES_MAX = 1_000
"""The server's limit for an atomic batch (its error 10199)."""

JETSTREAM_OFF = 503
"""No responders: JetStream is off for this account, or not on yet."""

LEADERLESS = frozenset({10008, 10118})
"""Errors of a cluster that has no leader for the moment, or of a stream all of whose servers are
away: it may be back while an answer is waited for."""

RELOAD_S = 1.0
"""For so long nobody may answer while a server takes in another configuration (it does so whenever
a restricted login is added or revoked, within milliseconds on an idle machine), and a connection be
lost as soon as it was made (a server that is started again)."""

RELOAD_POLL_S = 0.02

Outgoing = tuple[str, bytes, bytes]
"""Subject, body, headers."""


async def publish(
    broker: Broker,
    subject: str,
    payload: bytes,
    headers: bytes,
    known: Known,
    waits: int = 1,
) -> Ack:
    """Publish to the stream that `known` describes, and wait for `waits` times the broker's request
    timeout. Raises Rejected (nothing stored), NoAnswer (unknown), NoResponders.
    """
    above = known.position
    wait_s = waits * broker.options.request_timeout_s
    _, answer = await broker.request(subject, payload, headers, wait_s)
    ack = acknowledged(answer, above)
    known.claim(ack.seq)
    return ack


async def publish_all(broker: Broker, messages: list[Outgoing], known: Known) -> int:
    """Publish 1 to 1,000 messages, all or none; returns the sequence of the first.

    The others follow without a gap. Each call is a batch of its own: the id is random, because
    whoever knows it could end the batch. About 4 ms whatever the size. Raises as `publish`.
    """
    batch = uuid4().hex
    place = b"NATS/1.0\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: " % batch.encode()
    rest = len(HEADER_LINE)
    before = [
        (subject, payload, "", b"%b%d\r\n%b" % (place, number, headers[rest:]))
        for number, (subject, payload, headers) in enumerate(messages[:-1], 1)
    ]
    if before:
        await broker.send_all(before)
    subject, payload, headers = messages[-1]
    end = b"%b%d\r\nNats-Batch-Commit: 1\r\n%b" % (place, len(messages), headers[rest:])
    ack = await publish(broker, subject, payload, end, known, waits=2)
    if ack.count != len(messages) or ack.batch != batch:
        raise NoAnswer(f"{ack.count} of {len(messages)} messages of a batch were acknowledged")
    return ack.seq - ack.count + 1


async def api(broker: Broker, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """A JetStream API call, one that may be made twice: it reads, or makes what may be there. Where
    the connection is lost meanwhile it is made again; a cluster without a leader is asked again for
    as long as an answer is waited for. Raises BrokerError (the API's error), NoAnswer, Unreachable.
    """
    payload = msgspec.json.encode(body) if body is not None else b""
    wait_s = broker.options.request_timeout_s
    until_s = time.monotonic() + RELOAD_S
    leader_until_s = time.monotonic() + wait_s
    while True:
        await broker.ready(wait_s)
        try:
            _, data = await broker.request(f"$JS.API.{subject}", payload, None, wait_s)
        except NoAnswer as error:
            if time.monotonic() < until_s:
                await asyncio.sleep(RELOAD_POLL_S)
            elif isinstance(error, NoResponders):
                raise BrokerError(f"$JS.API.{subject}", JETSTREAM_OFF, str(error)) from error
            else:
                raise
            continue
        answer: dict[str, Any] = msgspec.json.decode(data)
        refused = answer.get("error")
        if refused is None:
            return answer
        code = refused.get("err_code") or refused.get("code", 0)
        if code not in LEADERLESS or time.monotonic() >= leader_until_s:
            raise BrokerError(f"$JS.API.{subject}", code, refused.get("description", ""))
        await asyncio.sleep(RELOAD_POLL_S)
