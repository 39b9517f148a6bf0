"""Settings from the environment. Only the composition root (`hansard._connect`) reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hansard.domain.errors import CallerError

PREFIX = "HANSARD_"


class SettingsError(CallerError):
    """An environment variable that cannot be taken."""


def _variable(field: str) -> str:
    return PREFIX + field.upper()


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename=_variable):
    """Every setting, with its environment variable, meaning and default.

    HANSARD_DATA_DIR: where the embedded broker keeps its files (`.hansard`).
    HANSARD_WORKSPACE: the workspace (`default`).
    HANSARD_DURABILITY: `strict` (default) or `relaxed`, for the embedded broker.
    HANSARD_NATS_URL: an outside server or cluster, comma-separated; the embedded one if unset.
    HANSARD_NATS_USER, _PASSWORD, _CREDS, _NKEY: how to log in there: a user, a credentials file,
    or an nkey seed file. HANSARD_NATS_CA, _CERT, _KEY: TLS files.
    HANSARD_NATS_SYSTEM_USER, _SYSTEM_PASSWORD, _SYSTEM_CREDS: a system account's login, to read
    how durable that server is. HANSARD_CREDENTIALS: a file of `hansard credentials`, with which a
    restricted agent reaches the service: it says where, in which workspace, and as whom.
    HANSARD_RUN, HANSARD_MODE: which run to resume or replay, as set by
    `hansard run resume RUN -- COMMAND`.
    """

    data_dir: Path = Path(".hansard")
    workspace: str = "default"
    durability: str | None = None
    nats_url: str | None = None
    nats_user: str | None = None
    nats_password: str | None = None
    nats_creds: str | None = None
    nats_nkey: str | None = None
    nats_ca: str | None = None
    nats_cert: str | None = None
    nats_key: str | None = None
    nats_system_user: str | None = None
    nats_system_password: str | None = None
    nats_system_creds: str | None = None
    credentials: str | None = None
    run: str | None = None
    mode: str | None = None


def load(environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """Settings from the environment; what is given and not None wins. Raises SettingsError."""
    source = os.environ if environment is None else environment
    known = {field.encode_name: field.name for field in msgspec.structs.fields(Settings)}
    fields: dict[str, Any] = {name: source[name] for name in known if source.get(name)}
    fields |= {_variable(name): value for name, value in given.items() if value is not None}
    unknown = [name for name in fields if name not in known]
    if unknown:
        name = unknown[0].removeprefix(PREFIX).lower()
        message = f"{name!r} is not a setting: see hansard.settings"
        raise SettingsError(message)
    if "HANSARD_DATA_DIR" in fields:
        fields["HANSARD_DATA_DIR"] = os.fspath(fields["HANSARD_DATA_DIR"])
    try:
        return msgspec.convert(fields, Settings, dec_hook=lambda kind, value: kind(value))
    except msgspec.ValidationError as error:
        message = f"a setting cannot be taken: {error}"
        raise SettingsError(message) from error
