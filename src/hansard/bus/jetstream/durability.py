"""How durable an outside server is, as far as it lets us see."""

from __future__ import annotations

import msgspec

from hansard.bus.errors import BusError
from hansard.bus.jetstream._client import Broker
from hansard.bus.jetstream._wire import NoAnswer
from hansard.bus.jetstream.options import BrokerOptions

RELAXED_INTERVAL_NS_MAX = 1_000_000_000
"""A sync interval over one second is not `relaxed` but `unknown`: too much could be lost."""


async def outside_durability(system: BrokerOptions | None) -> str:
    """`strict` or `relaxed` where the system account tells, else `unknown`. Never a guess."""
    if system is None:
        return "unknown"
    try:
        broker = await Broker.open(system)
    except BusError:
        return "unknown"
    try:
        _, answer = await broker.request("$SYS.REQ.SERVER.PING.JSZ", b'{"config":true}', None, 2.0)
        config = msgspec.json.decode(answer).get("data", {}).get("config", {})
    except (BusError, NoAnswer, msgspec.DecodeError):
        return "unknown"
    finally:
        await broker.close()
    if config.get("sync_always") is True:
        return "strict"
    interval = config.get("sync_interval", 0)
    return "relaxed" if 0 < interval <= RELAXED_INTERVAL_NS_MAX else "unknown"
