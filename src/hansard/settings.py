"""Settings from arguments, the environment and `hansard.toml`, in this order.

The file is the one beside the record's folder. Only the composition root
(`hansard.client.opening`) reads settings. The record's folder is `.hansard` in the working
directory, or in the nearest parent directory that has one or a `hansard.toml`, as git looks for
`.git`. One in a parent directory that belongs to another user is refused.
"""

from __future__ import annotations

import functools
import os
import shlex
import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import msgspec

from hansard.domain.choices import nearest
from hansard.domain.errors import CallerError, Refused

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
"""Settings that name a file; in `hansard.toml`, relative to the folder of that file."""

REPLICAS_MAX = 5
"""Most replicas that nats-server keeps of a stream."""


class SettingsError(CallerError):
    """A setting is invalid.

    State: nothing was done.
    Remedy: correct the argument, variable or file that the message names.
    """


def _variable(field: str) -> str:
    return PREFIX + field.upper()


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename=_variable):
    """Every setting, with its environment variable, meaning and default.

    `hansard.toml` uses the names listed here.

    Attributes:
        data_dir: HANSARD_DATA_DIR: where the embedded broker keeps its files (`.hansard`, searched
            for upward).
        workspace: HANSARD_WORKSPACE: the workspace (`default`).
        durability: HANSARD_DURABILITY: `strict` (default) or `relaxed`, for the embedded broker.
        disk_wait_s: HANSARD_DISK_WAIT_S: how long, in seconds, a write waits for free space when
            the embedded broker's disk is full (600).
        archive: HANSARD_ARCHIVE: where `hansard up` and `hansard tiers roll` store older commits: a
            folder, or a URL such as `s3://bucket/folder` (never, if unset). Readers find it in the
            record.
        roll_commits: HANSARD_ROLL_COMMITS: number of commits on the broker after which `hansard up`
            begins the next generation of the log (1000000; 0: never). Only with an archive.
        roll_hours: HANSARD_ROLL_HOURS: age of the newest generation in hours after which it does so
            (24; 0: never). Only with an archive.
        archive_memory_mb: HANSARD_ARCHIVE_MEMORY_MB: most memory of a process for commits read from
            the archive, in MiB (64).
        archive_disk_mb: HANSARD_ARCHIVE_DISK_MB: most space in the data directory for commits read
            from the archive, in MiB (1024; 0: none).
        share_tables: HANSARD_SHARE_TABLES: 1 if of the `hansard up` of several machines one fills
            the tables of a workspace, and the others fetch them from HANSARD_ARCHIVE (0).
        nats_url: HANSARD_NATS_URL: an outside server or cluster, comma-separated; the embedded one
            if unset.
        nats_domain: HANSARD_NATS_DOMAIN: the JetStream domain of another region, which that server
            reaches over a leaf connection, to use its broker (that server's own, if unset).
        nats_user: HANSARD_NATS_USER: the user to log in as there.
        nats_password: HANSARD_NATS_PASSWORD: that user's password.
        nats_creds: HANSARD_NATS_CREDS: a credentials file, in place of a user.
        nats_nkey: HANSARD_NATS_NKEY: an nkey seed file, in place of a user.
        nats_ca: HANSARD_NATS_CA: for TLS, a file with the server's certificate authority.
        nats_cert: HANSARD_NATS_CERT: for TLS, the client's certificate.
        nats_key: HANSARD_NATS_KEY: for TLS, the key of the client's certificate.
        nats_replicas: HANSARD_NATS_REPLICAS: replicas of a workspace's streams when they are
            created on an outside cluster (1 to 5; the server's default if unset). A warning names
            existing streams with fewer.
        nats_system_user: HANSARD_NATS_SYSTEM_USER: a system account's login, used to read
            that server's durability settings.
        nats_system_password: HANSARD_NATS_SYSTEM_PASSWORD: its password.
        nats_system_creds: HANSARD_NATS_SYSTEM_CREDS: its credentials file, in place of them.
        credentials: HANSARD_CREDENTIALS: a file of `hansard credentials`, with which a restricted
            agent reaches the service: it holds the address, the workspace and the principal.
        run: HANSARD_RUN: the run to resume or replay, as set by `hansard run resume RUN --
            COMMAND`. Like HANSARD_MODE and HANSARD_REPORT it applies to one program: the first that
            opens a record removes it from its environment, so that child programs begin runs of
            their own.
        mode: HANSARD_MODE: the replay mode of that run, as set by `hansard run replay`.
        resume: HANSARD_RESUME: 1 (default) if a `hansard.Session()` that names no run resumes the
            run that the same program left unfinished; 0 to begin a new one.
        debug: HANSARD_DEBUG: keep the frames of this package in the traceback of an exception that
            ends a session (1), or hide them (0, the default).
        redact: HANSARD_REDACT: secrets that programs, commands and `hansard up` remove from what
            they write: a comma-separated list of NAME=VARIABLE, where the environment variable
            holds the secret (`api-key=OPENAI_API_KEY,db=DB_PASSWORD`).
        settle: HANSARD_SETTLE: how a step in doubt is settled when the program has no policy:
            `ask` prompts at the terminal (`hansard.ask_person`), as `hansard run resume` sets it;
            `stop` (default) leaves it to a person.
        workflow: HANSARD_WORKFLOW: the workflow of a new run, if its program names none
            (`hansard.Session` uses the program's name; otherwise it must be named).
        agent: HANSARD_AGENT: the agent's name, if its program gives none (`agent`). A restricted
            agent's name and role are read from its credentials.
        role: HANSARD_ROLE: that agent's role, if its program gives none (`agent`).
        report: HANSARD_REPORT: a file to which each session that resumes or replays a run appends
            a line when it ends: the calls answered from the record. Set by `hansard run resume` and
            `hansard run replay`.
        reflect_at: HANSARD_REFLECT_AT: the time of day at which `hansard up` reflects on the record
            to propose memories: a time in UTC such as `03:00` (never, if unset).
        reflect_with: HANSARD_REFLECT_WITH: the function that proposes memories, as
            `module:function` (if unset, memories that users requested).
        reflect_ask: HANSARD_REFLECT_ASK: instead of it, a model that is called with the built-in
            prompt, as `module:function`.
        reflect_spaces: HANSARD_REFLECT_SPACES: the memory spaces that receive proposals,
            comma-separated (`org`).
    """

    data_dir: Path = Path(FOLDER)
    workspace: str = "default"
    durability: str | None = None
    disk_wait_s: float = 600.0
    archive: str | None = None
    roll_commits: int = 1_000_000
    roll_hours: float = 24.0
    archive_memory_mb: int = 64
    archive_disk_mb: int = 1024
    share_tables: bool = False
    nats_url: str | None = None
    nats_domain: str | None = None
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


def nearest_parent(start: Path) -> Path | None:
    """Return the nearest parent directory that holds a record or a settings file; None if `start`
    itself does, or if no parent does. Raises SettingsError if it belongs to another user.
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
    """Return the settings of `hansard.toml` in a folder, by field name. Raises SettingsError."""
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


def load(environment: Mapping[str, str] | None = None, **arguments: Any) -> Settings:
    """Load the settings; an argument that is not None overrides the environment and the file.
    Raises SettingsError.
    """
    fields = _set(environment, arguments)
    try:
        return msgspec.convert(
            fields, Settings, strict=False, dec_hook=lambda kind, value: kind(value)
        )
    except msgspec.ValidationError as error:
        message = f"a setting is invalid: {error}"
        raise SettingsError(message) from error


def of_this_program(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Return the environment, and remove from it the variables for one program; see `Settings.run`.

    HANSARD_SETTLE is removed with a run to resume, since `hansard run resume` sets both.
    """
    names = [name for name in _OF_ONE_PROGRAM if name in environment]
    if _variable("run") in names and _variable("settle") in environment:
        names.append(_variable("settle"))
    for name in names:
        _removed[name] = environment.pop(name)
    return {**_removed, **environment}


def demand_continued(run: str | None) -> None:
    """Raise Refused if this process was started to continue another run than the one it names.

    A command that starts it so sets HANSARD_MODE beside HANSARD_RUN.
    """
    continued = _removed.get(_variable("run"))
    if continued and _removed.get(_variable("mode")) and run not in (None, continued):
        message = (
            f"run={run!r:.80} was given, but this process was started to continue run "
            f"{continued!r} (HANSARD_RUN): it would have effects in the other run; leave run= out, "
            "or read it from HANSARD_RUN before the record is opened. To name a new run without "
            f"run=, start the program with HANSARD_RUN={shlex.quote(str(run)):.80}"
        )
        raise Refused(message)


def secrets(settings: Settings) -> dict[str, str]:
    """Return the secrets of HANSARD_REDACT, by name. Raises SettingsError if one is not set."""
    values: dict[str, str] = {}
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
        values[name] = text
    return values


_OF_ONE_PROGRAM = tuple(map(_variable, ("run", "mode", "report")))
_removed: dict[str, str] = {}
"""Variables removed from this process's environment; records opened later use them, too."""


def names_workspace(environment: Mapping[str, str] | None = None, **arguments: Any) -> bool:
    """Return whether a workspace is set anywhere. Raises SettingsError."""
    return _variable("workspace") in _set(environment, arguments)


@functools.cache
def _known() -> Mapping[str, str]:
    """Return the settings' field names by environment variable."""
    return {field.encode_name: field.name for field in msgspec.structs.fields(Settings)}


def _set(environment: Mapping[str, str] | None, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are set, by environment variable. Raises SettingsError."""
    source = os.environ if environment is None else environment
    known = _known()
    fields: dict[str, Any] = {name: source[name] for name in known if source.get(name)}
    fields |= {_variable(name): value for name, value in arguments.items() if value is not None}
    unknown = [name for name in fields if name not in known]
    if unknown:
        name, names = unknown[0].removeprefix(PREFIX).lower(), sorted(known.values())
        like = nearest(name, names)
        message = f"{name!r} is not a setting: {like}they are {', '.join(names)}"
        raise SettingsError(message)
    named = fields.get("HANSARD_DATA_DIR")
    above = nearest_parent(Path.cwd()) if named is None else None
    beside = Path(os.fspath(named)).absolute().parent if named is not None else above or Path.cwd()
    fields = {_variable(name): text for name, text in _of_file(beside).items()} | fields
    if above is not None:
        fields.setdefault("HANSARD_DATA_DIR", above / FOLDER)
    if "HANSARD_DATA_DIR" in fields:
        fields["HANSARD_DATA_DIR"] = os.fspath(fields["HANSARD_DATA_DIR"])
    if "HANSARD_NATS_REPLICAS" in fields:
        fields["HANSARD_NATS_REPLICAS"] = _replicas(fields["HANSARD_NATS_REPLICAS"])
    return fields


def _replicas(value: object) -> int:
    """Parse a number of replicas. Raises SettingsError."""
    text = str(value).strip()
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= REPLICAS_MAX):
        message = f"HANSARD_NATS_REPLICAS is {value!r}: give a number from 1 to {REPLICAS_MAX}"
        raise SettingsError(message)
    return int(text)
