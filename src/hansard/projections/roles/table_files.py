"""Where the tables of roles stand on disk.

<data dir>/projections/roles/<workspace>/<role>.duckdb        the tables, with what `place` has
.../<role>.feed                                               what they are gone on from: see Kept
.../<role>.key                                                key of hashed values
.../published/<role>/                                         what is read meanwhile

A role's name is one token as in subjects. What the feed goes on from names what the role may not
see; so it stands outside of the tables, and of the folder that questions are answered from.
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
"""Changes with how events are shown or what is kept, so that tables of before are made again."""

_encoder = msgspec.json.Encoder(order="deterministic")


class Kept(msgspec.Struct):
    """What a role's tables are gone on from: what they were made under, the newest message of the
    log that went into them, where they stand themselves, and the state of the feed.
    """

    under: str
    position: int
    digest: str
    local: int
    local_digest: str
    seen: FeedState


_decoder = msgspec.msgpack.Decoder(Kept)


def role_place(data_dir: Path, workspace: str, role: str) -> TableFiles:
    """The files of a role's tables. Raises BadName."""
    folder = data_dir / "projections" / "roles" / workspace_name(workspace)
    return TableFiles(folder / f"{token(checked_name('role', role))}.duckdb")


def role_places(data_dir: Path, workspace: str) -> list[TableFiles]:
    """The files of all roles' tables that are there. Raises BadName."""
    folder = data_dir / "projections" / "roles" / workspace_name(workspace)
    return [TableFiles(path) for path in sorted(folder.glob("*.duckdb"))]


def under(rules: RoleDefined, key: bytes | None) -> str:
    """What the tables follow from beside the log: other rules, another key or another version of
    Hansard make others.
    """
    kinds = "\n".join(sorted(REGISTRY))
    schema = schema_digest().encode()
    return digest(FORMAT.encode(), _encoder.encode(rules), key or b"", kinds.encode(), schema)


def key_of(place: TableFiles, rules: RoleDefined) -> bytes | None:
    """The key of hashed values, made where it is first needed; None where nothing is hashed."""
    if all(mask.how is not Masking.HASH for mask in rules.masks):
        return None
    path = place.path.with_suffix(".key")
    with contextlib.suppress(FileNotFoundError):
        found = path.read_bytes()
        if len(found) >= KEY_BYTES_MIN:
            return found
    made = secrets.token_bytes(KEY_BYTES_MIN)
    _write(path, made)
    return made


def load(place: TableFiles) -> Kept | None:
    """What was kept; None where there is nothing whole."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return _decoder.decode(_feed(place).read_bytes())
    return None


def keep(place: TableFiles, kept: Kept) -> None:
    """Keep it, in the place of what was."""
    _write(_feed(place), msgspec.msgpack.encode(kept))


def drop(place: TableFiles) -> None:
    """Keep it no more, on the disk, too: the next who brings the tables up makes them again."""
    _feed(place).unlink(missing_ok=True)
    place.settle()


def forget(place: TableFiles) -> None:
    """Remove the tables and all that was made of them; the key stays."""
    _feed(place).unlink(missing_ok=True)
    place.withdraw()
    for path in (place.path, place.fresh):
        place.remove(path)


def _feed(place: TableFiles) -> Path:
    return place.path.with_suffix(".feed")


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    part.replace(path)
