"""Settings: what is given, else the environment, else `hansard.toml` beside the record's folder.

Only the composition root (`hansard.client.opening`) reads them. The record's folder is `.hansard`
in the working directory or the nearest directory above that has one, or a `hansard.toml`, as git
looks for `.git`; nobody's but one's own is taken from above.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import msgspec

from hansard.domain.choices import nearest
from hansard.domain.errors import CallerError

PREFIX = "HANSARD_"

FOLDER = ".hansard"
FILE = "hansard.toml"

PATHS = frozenset(
    {
        "data_dir",
        "nats_creds",
        "nats_nkey",
        "nats_ca",
        "nats_cert",
        "nats_key",
        "nats_system_creds",
        "credentials",
        "report",
    }
)
"""Settings that name a file: in `hansard.toml`, from the folder where that stands."""

REPLICAS_MAX = 5
"""The most replicas that nats-server keeps of a stream."""


class SettingsError(CallerError):
    """An environment variable that cannot be taken."""


def _variable(field: str) -> str:
    return PREFIX + field.upper()


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename=_variable):
    """Every setting, with its environment variable, meaning and default.

    In `hansard.toml` each stands under its name here.

    Attributes:
        data_dir: HANSARD_DATA_DIR: where the embedded broker keeps its files (`.hansard`, looked
            for upward).
        workspace: HANSARD_WORKSPACE: the workspace (`default`).
        durability: HANSARD_DURABILITY: `strict` (default) or `relaxed`, for the embedded broker.
        disk_wait_s: HANSARD_DISK_WAIT_S: how long, in seconds, a write waits for room where the
            embedded broker's disk is full (600).
        nats_url: HANSARD_NATS_URL: an outside server or cluster, comma-separated; the embedded one
            if unset.
        nats_user: HANSARD_NATS_USER: the user to log in as there.
        nats_password: HANSARD_NATS_PASSWORD: that user's password.
        nats_creds: HANSARD_NATS_CREDS: a credentials file, in place of a user.
        nats_nkey: HANSARD_NATS_NKEY: an nkey seed file, in place of a user.
        nats_ca: HANSARD_NATS_CA: for TLS, the file of who signed the server's certificate.
        nats_cert: HANSARD_NATS_CERT: for TLS, the client's certificate.
        nats_key: HANSARD_NATS_KEY: for TLS, the key of the client's certificate.
        nats_replicas: HANSARD_NATS_REPLICAS: how many replicas a workspace's streams are made with
            on an outside cluster (1 to 5, as the server has it if unset); streams found with fewer
            are told.
        nats_system_user: HANSARD_NATS_SYSTEM_USER: a system account's login, to read how durable
            that server is.
        nats_system_password: HANSARD_NATS_SYSTEM_PASSWORD: its password.
        nats_system_creds: HANSARD_NATS_SYSTEM_CREDS: its credentials file, in place of them.
        credentials: HANSARD_CREDENTIALS: a file of `hansard credentials`, with which a restricted
            agent reaches the service: it says where, in which workspace, and as whom.
        run: HANSARD_RUN: which run to resume or replay, as set by `hansard run resume RUN --
            COMMAND`. It is meant for one program, as are HANSARD_MODE and HANSARD_REPORT: the first
            that opens a record removes it from its environment, so that the programs which that one
            starts have runs of their own.
        mode: HANSARD_MODE: how, as set by `hansard run replay`.
        resume: HANSARD_RESUME: whether a `hansard.Session()` that names no run resumes the one that
            the same program left unfinished (1, the default) or begins a new one (0).
        debug: HANSARD_DEBUG: keep the frames of this package in the traceback of an exception that
            ends a session (1), or hide them (0, the default).
        redact: HANSARD_REDACT: secrets that programs, commands and `hansard up` keep out of what
            they write: names, each with the environment variable that holds the secret
            (`api-key=OPENAI_API_KEY,db=DB_PASSWORD`).
        settle: HANSARD_SETTLE: what becomes of a step in doubt where the program has no policy:
            `ask` asks at the terminal (`hansard.ask_person`), as `hansard run resume` sets it;
            `stop` (default) leaves it to a person.
        workflow: HANSARD_WORKFLOW: the workflow of a run that begins, where its program names none
            (of `hansard.Session` the program's name; else it must be named).
        agent: HANSARD_AGENT: who acts, where its program names nobody (`agent`). A restricted
            agent's name and role stand in its credentials.
        role: HANSARD_ROLE: that agent's role, where its program names none (`agent`).
        report: HANSARD_REPORT: a file to which each session that goes on with a run, or replays
            it, adds a line at its end: what it was answered from the record; as set by `hansard run
            resume` and `hansard run replay`.
        reflect_at: HANSARD_REFLECT_AT: when `hansard up` has memory reflect on what was recorded,
            each day: a time in UTC such as `03:00` (never, if unset).
        reflect_with: HANSARD_REFLECT_WITH: what proposes then, as `module:function` (what users
            asked to be remembered, if unset).
        reflect_ask: HANSARD_REFLECT_ASK: in its place, the model that is asked by our prompt, as
            `module:function`.
        reflect_spaces: HANSARD_REFLECT_SPACES: which spaces of memory are told, comma-separated
            (`org`).
    """

    data_dir: Path = Path(FOLDER)
    workspace: str = "default"
    durability: str | None = None
    disk_wait_s: float = 600.0
    nats_url: str | None = None
    nats_user: str | None = None
    nats_password: str | None = None
    nats_creds: str | None = None
    nats_nkey: str | None = None
    nats_ca: str | None = None
    nats_cert: str | None = None
    nats_key: str | None = None
    nats_replicas: int | None = None
    nats_system_user: str | None = None
    nats_system_password: str | None = None
    nats_system_creds: str | None = None
    credentials: str | None = None
    run: str | None = None
    mode: str | None = None
    resume: bool = True
    debug: bool = False
    redact: str | None = None
    settle: str | None = None
    workflow: str | None = None
    agent: str | None = None
    role: str | None = None
    report: str | None = None
    reflect_at: str | None = None
    reflect_with: str | None = None
    reflect_ask: str | None = None
    reflect_spaces: str | None = None


def found_above(start: Path) -> Path | None:
    """The nearest directory above that holds a record's folder or settings; None where `start` does
    itself, or none is above. Raises SettingsError for what is somebody else's.
    """
    for folder in (start, *start.parents):
        there = [path for path in (folder / FOLDER, folder / FILE) if path.exists()]
        if not there:
            continue
        if folder == start:
            return None
        strangers = [path for path in there if path.stat().st_uid != os.geteuid()]
        if strangers:
            message = (
                f"{str(strangers[0])!r}, found above the working directory, belongs to another "
                "user: name the record with --data-dir or HANSARD_DATA_DIR if it is to be trusted"
            )
            raise SettingsError(message)
        return folder
    return None


def _of_file(folder: Path) -> dict[str, Any]:
    """What `hansard.toml` in a folder sets, by the names of the fields. Raises SettingsError."""
    path = folder / FILE
    try:
        set_ = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"{str(path)!r} cannot be read: {error}"
        raise SettingsError(message) from error
    for name, value in set_.items():
        if name not in Settings.__struct_fields__:
            like = nearest(name, Settings.__struct_fields__)
            known = ", ".join(Settings.__struct_fields__)
            message = f"{str(path)!r} sets {name!r}, which is not a setting: {like}they are {known}"
            raise SettingsError(message)
        if type(value) is not str:
            message = f"{str(path)!r} sets {name!r} to {value!r:.80}: give a text"
            raise SettingsError(message)
    return {name: str(folder / text) if name in PATHS else text for name, text in set_.items()}


def load(environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """Settings; what is given and not None wins. Raises SettingsError."""
    fields = _set(environment, given)
    try:
        return msgspec.convert(
            fields, Settings, strict=False, dec_hook=lambda kind, value: kind(value)
        )
    except msgspec.ValidationError as error:
        message = f"a setting cannot be taken: {error}"
        raise SettingsError(message) from error


def of_this_program(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Return the environment, and remove from it what is meant for one program: see `Settings.run`.
    How doubt is settled is removed with a run to resume, since `hansard run resume` sets both.
    """
    found = [name for name in _OF_ONE_PROGRAM if name in environment]
    if _variable("run") in found and _variable("settle") in environment:
        found.append(_variable("settle"))
    for name in found:
        _removed[name] = environment.pop(name)
    return {**_removed, **environment}


def secrets(settings: Settings) -> dict[str, str]:
    """Return the secrets of HANSARD_REDACT, by name. Raises SettingsError where one is not set."""
    found: dict[str, str] = {}
    for pair in (settings.redact or "").split(","):
        name, _, variable = (part.strip() for part in pair.partition("="))
        if not name and not variable:
            continue
        text = os.environ.get(variable)
        if not name or not text:
            message = (
                f"HANSARD_REDACT has {pair.strip()!r}, and no environment variable {variable!r} is "
                "set: give NAME=VARIABLE, comma-separated, and set each variable"
            )
            raise SettingsError(message)
        found[name] = text
    return found


_OF_ONE_PROGRAM = tuple(map(_variable, ("run", "mode", "report")))
_removed: dict[str, str] = {}
"""What was removed from this process's environment: its later records go by it, too."""


def names_workspace(environment: Mapping[str, str] | None = None, **given: Any) -> bool:
    """Whether anybody says which workspace is meant. Raises SettingsError."""
    return _variable("workspace") in _set(environment, given)


@functools.cache
def _known() -> Mapping[str, str]:
    """The settings, by their variables."""
    return {field.encode_name: field.name for field in msgspec.structs.fields(Settings)}


def _set(environment: Mapping[str, str] | None, given: dict[str, Any]) -> dict[str, Any]:
    """What is set, by the names of the variables. Raises SettingsError."""
    source = os.environ if environment is None else environment
    known = _known()
    fields: dict[str, Any] = {name: source[name] for name in known if source.get(name)}
    fields |= {_variable(name): value for name, value in given.items() if value is not None}
    unknown = [name for name in fields if name not in known]
    if unknown:
        name, names = unknown[0].removeprefix(PREFIX).lower(), sorted(known.values())
        like = nearest(name, names)
        message = f"{name!r} is not a setting: {like}they are {', '.join(names)}"
        raise SettingsError(message)
    named = fields.get("HANSARD_DATA_DIR")
    above = found_above(Path.cwd()) if named is None else None
    beside = Path(os.fspath(named)).absolute().parent if named is not None else above or Path.cwd()
    fields = {_variable(name): text for name, text in _of_file(beside).items()} | fields
    if above is not None:
        fields.setdefault("HANSARD_DATA_DIR", above / FOLDER)
    if "HANSARD_DATA_DIR" in fields:
        fields["HANSARD_DATA_DIR"] = os.fspath(fields["HANSARD_DATA_DIR"])
    if "HANSARD_NATS_REPLICAS" in fields:
        fields["HANSARD_NATS_REPLICAS"] = _replicas(fields["HANSARD_NATS_REPLICAS"])
    return fields


def _replicas(given: object) -> int:
    """A number of replicas. Raises SettingsError."""
    text = str(given).strip()
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= REPLICAS_MAX):
        message = f"HANSARD_NATS_REPLICAS is {given!r}: give a number from 1 to {REPLICAS_MAX}"
        raise SettingsError(message)
    return int(text)
