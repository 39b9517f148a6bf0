"""How a factory reaches its broker, read from the library's `Environment` and nothing else."""

from __future__ import annotations

from pathlib import Path

import msgspec
from eventsourcing.utils import Environment

from hansard.bus.jetstream.options import BrokerOptions
from hansard.bus.server.lease import Durability

DATA_DIR_DEFAULT = ".hansard"


class Access(msgspec.Struct, frozen=True):
    """An outside broker and how many replicas its streams are made with, or the folder of an
    embedded one and the durability asked of it.
    """

    outside: BrokerOptions | None
    data_dir: Path
    durability: Durability | None
    replicas: int | None = None


def access_of(env: Environment) -> Access:
    """What the environment says.

    NATS_URL (comma-separated), NATS_USER, NATS_PASSWORD, NATS_CREDS (a credentials file),
    NATS_NKEY (a seed file), NATS_CA, NATS_CERT, NATS_KEY (PEM files), NATS_REPLICAS (how many
    replicas streams are made with); where there is no NATS_URL,
    the same with HANSARD_ before it, as the rest of Hansard reads them. Without either:
    HANSARD_DATA_DIR (`.hansard`) and HANSARD_DURABILITY (what runs there, else `strict`). As the
    library has it, `<APPLICATION NAME>_NATS_URL` wins over NATS_URL. Raises OSError.
    """
    for group in ("", "HANSARD_"):
        if url := env.get(f"{group}NATS_URL"):
            replicas = _replicas(f"{group}NATS_REPLICAS", env.get(f"{group}NATS_REPLICAS"))
            return Access(_outside(env, group, url), Path(), None, replicas)
    asked = env.get("HANSARD_DURABILITY")
    try:
        durability = Durability(asked) if asked else None
    except ValueError as error:
        known = " or ".join(repr(each.value) for each in Durability)
        message = f"HANSARD_DURABILITY is {asked!r}: set it to {known}"
        raise OSError(message) from error
    return Access(None, Path(env.get("HANSARD_DATA_DIR") or DATA_DIR_DEFAULT), durability)


def _replicas(name: str, given: str | None) -> int | None:
    if not given:
        return None
    if not (given.isascii() and given.isdigit() and int(given) > 0):
        message = f"{name} is {given!r}: set it to how many replicas a stream shall have"
        raise OSError(message)
    return int(given)


def _outside(env: Environment, group: str, url: str) -> BrokerOptions:
    def text(key: str) -> str | None:
        return env.get(f"{group}NATS_{key}") or None

    def path(key: str) -> Path | None:
        value = text(key)
        return Path(value) if value else None

    return BrokerOptions(
        urls=tuple(each.strip() for each in url.split(",") if each.strip()),
        user=text("USER"),
        password=text("PASSWORD"),
        credentials=path("CREDS"),
        nkey_seed=path("NKEY"),
        tls_ca=path("CA"),
        tls_cert=path("CERT"),
        tls_key=path("KEY"),
        name="hansard recorder",
    )
