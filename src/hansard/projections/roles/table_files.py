"""The files of roles' tables.

    <data dir>/projections/roles/<workspace>/<role>.duckdb        the tables, with the files of
    `place` .../<role>.feed                                               the state to continue
    from: see Kept .../<role>.key                                                key of hashed
        values
    .../published/<role>/                                         generations for readers

A role's name is one token as in subjects. The feed's state names things that the role may not see,
so it is stored outside of the tables, and of the folder that queries are answered from.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

import msgspec

from hansard.bus.subjects import token
from hansard.domain.events import REGISTRY
from hansard.domain.fingerprint import digest
from hansard.domain.ids import name as checked_name
from hansard.domain.ids import workspace_name
from hansard.domain.roles.model import Masking, RoleDefined
from hansard.domain.roles.view import KEY_BYTES_MIN
from hansard.projections.roles.feed import FeedState
from hansard.projections.table_files import PRIVATE_FILE, TableFiles, schema_digest

FORMAT = "3"
"""Version of how events are shown and of the stored state; older tables are rebuilt."""

_encoder = msgspec.json.Encoder(order="deterministic")


class Kept(msgspec.Struct):
    """The stored state of a role's tables: a digest of rules, key and version, the newest message
    of the log that they include, their own position, and the feed's state.
    """

    under: str
    position: int
    digest: str
    local: int
    local_digest: str
    seen: FeedState


_decoder = msgspec.msgpack.Decoder(Kept)


def role_place(data_dir: Path, workspace: str, role: str) -> TableFiles:
    """Return the files of a role's tables. Raises BadName."""
    folder = data_dir / "projections" / "roles" / workspace_name(workspace)
    return TableFiles(folder / f"{token(checked_name('role', role))}.duckdb")


def role_places(data_dir: Path, workspace: str) -> list[TableFiles]:
    """Return the files of all roles' existing tables. Raises BadName."""
    folder = data_dir / "projections" / "roles" / workspace_name(workspace)
    return [TableFiles(path) for path in sorted(folder.glob("*.duckdb"))]


def under(rules: RoleDefined, key: bytes | None) -> str:
    """Return a digest of what determines the tables besides the log: the rules, the key and the
    version of Hansard.
    """
    kinds = "\n".join(sorted(REGISTRY))
    schema = schema_digest().encode()
    return digest(FORMAT.encode(), _encoder.encode(rules), key or b"", kinds.encode(), schema)


def key_of(place: TableFiles, rules: RoleDefined) -> bytes | None:
    """Return the key of hashed values, created on first use; None if nothing is hashed."""
    if all(mask.how is not Masking.HASH for mask in rules.masks):
        return None
    path = place.path.with_suffix(".key")
    with contextlib.suppress(FileNotFoundError):
        key = path.read_bytes()
        if len(key) >= KEY_BYTES_MIN:
            return key
    made = secrets.token_bytes(KEY_BYTES_MIN)
    _replace_file(path, made)
    return made


def load(place: TableFiles) -> Kept | None:
    """Read the stored state; None if there is none or it is damaged."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return _decoder.decode(_feed(place).read_bytes())
    return None


def keep(place: TableFiles, kept: Kept) -> None:
    """Store the state, replacing an older one."""
    _replace_file(_feed(place), msgspec.msgpack.encode(kept))


def drop(place: TableFiles) -> None:
    """Remove the stored state, also on disk: the next update rebuilds the tables."""
    _feed(place).unlink(missing_ok=True)
    place.settle()


def forget(place: TableFiles) -> None:
    """Remove the tables and everything derived from them, except the key."""
    _feed(place).unlink(missing_ok=True)
    place.withdraw()
    for path in (place.path, place.fresh):
        place.remove(path)


def _feed(place: TableFiles) -> Path:
    return place.path.with_suffix(".feed")


def _replace_file(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    part.replace(path)
