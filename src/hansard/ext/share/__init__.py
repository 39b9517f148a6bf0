"""Runs shared with other workspaces: signed packs, and grants between workspaces of one record.

Two slices on the public core. Both show a run as a role of the sharing workspace sees it, and
nothing else of it.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec

from hansard.bus.slices import Slice
from hansard.domain.events import Event, event
from hansard.domain.fingerprint import canonical

PACK = "pack"
"""Kind of the streams of packs; the name of each is the public key of a publisher."""

FORMAT = "hansard.pack.v1"

ALSO_MAX = 100
"""Most prompts, memory spaces and experiences of a pack: each is looked up before it is added."""


class PackedRun(msgspec.Struct, frozen=True):
    """A run of a pack: its id where the pack was made, and the digest of what is shown of it."""

    run: str
    shown: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a pack.

    Attributes:
        format: `hansard.pack.v1`.
        name: Its name.
        number: Its number among the publisher's packs of this name, from 1.
        workspace: The workspace that it was made in.
        role: The role whose view it is.
        runs: Its runs, by the ids of their copies.
        also: Prompts, memory spaces and experiences, by their names where they are added:
            `prompt/greeting`, `memory/org`, `experience/invite-3f9a2b7c`.
        to: The workspaces that may add it; none for any.
        until: The time from which on it is refused, ISO 8601; empty for none.
        license: Its license: an SPDX expression, or words.
        description: What it is for.
        size: The size of the section in bytes.
        sha256: The section's SHA-256, hexadecimal.
        key: The public key that signs it, hexadecimal.
    """

    format: str
    name: str
    number: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    workspace: str
    role: str
    runs: dict[str, PackedRun]
    also: Annotated[tuple[str, ...], msgspec.Meta(max_length=ALSO_MAX)]
    to: tuple[str, ...]
    until: str
    license: str
    description: str
    size: int
    sha256: str
    key: str

    @property
    def signed(self) -> bytes:
        """The signed bytes."""
        return f"{FORMAT}\n".encode() + canonical(msgspec.to_builtins(self))

    @property
    def pack(self) -> str:
        """The id of the pack."""
        return hashlib.sha256(self.signed).hexdigest()


@event("pack.made.v1")
class PackMade(Event, frozen=True, kw_only=True):
    """A pack was signed here. It is recorded before the file exists.

    Attributes:
        pack: Its id: SHA-256 of its signed manifest.
        manifest: Its manifest.
        because: The reason.
    """

    pack: str
    manifest: Manifest
    because: str = ""


@event("pack.added.v1")
class PackAdded(Event, frozen=True, kw_only=True):
    """A pack was added here: its runs can be read, replayed and forked.

    Attributes:
        pack: Its id.
        manifest: Its manifest.
    """

    pack: str
    manifest: Manifest


@event("pack.withdrawn.v1")
class PackWithdrawn(Event, frozen=True, kw_only=True):
    """The publisher withdrew a pack, or the workspace its trust in a key: nobody adds it from here
    on.

    Attributes:
        pack: Its id; the key for all packs of it.
        because: The reason.
    """

    pack: str
    because: str = ""


SCHEMA = """
CREATE VIEW packs AS
WITH history AS (
    SELECT url_decode(split_part(stream, '/', 2)) AS key, split_part(type, '.', 2) AS what,
        data->>'pack' AS pack, data->'manifest' AS manifest, logged_at, position
    FROM events WHERE starts_with(type, 'pack.')
)
SELECT pack, any_value(key) AS key,
    any_value(manifest->>'name') AS name,
    any_value(CAST(manifest->>'number' AS INTEGER)) AS number,
    any_value(manifest->>'workspace') AS workspace, any_value(manifest->>'role') AS role,
    any_value(manifest->>'license') AS license, any_value(manifest->'runs') AS runs,
    min(logged_at) FILTER (what = 'made') AS made_at,
    min(logged_at) FILTER (what = 'added') AS added_at,
    min(logged_at) FILTER (what = 'withdrawn') AS withdrawn_at, max(position) AS position
FROM history GROUP BY pack HAVING pack <> any_value(key);
COMMENT ON VIEW packs IS
    'One row per pack that was made, added or withdrawn here. key: the publisher''s public key. runs: the runs that it shows, by the ids of their copies.';
"""  # noqa: E501 -- the comment of a view is one text

PACKS = Slice(
    name=PACK,
    streams={PACK: (PackMade, PackAdded, PackWithdrawn)},
    nouns=("hansard.ext.share.packs:Packs",),
    schema=SCHEMA,
)

# ------------------------------------------------------------ grants

SHARE = "share"
"""Kind of the streams of grants, which are in both workspaces under the grant's id."""


@event("share.granted.v1")
class ShareGranted(Event, frozen=True, kw_only=True):
    """Another workspace may read runs as a role sees them. The granting workspace's record decides.

    Attributes:
        workspace: The granting workspace.
        to: The workspace that may read.
        role: The role of the granting workspace.
        runs: The runs.
        until: The time from which on it may not, ISO 8601; empty for none.
        because: The reason.
    """

    workspace: str
    to: str
    role: str
    runs: tuple[str, ...]
    until: str = ""
    because: str = ""


@event("share.read.v1")
class ShareRead(Event, frozen=True, kw_only=True):
    """The receiving workspace read a run; the granting one has the view that was served.

    Attributes:
        run: The run.
        events: The number of events of the view.
        digest: The digest of the view.
    """

    run: str
    events: int
    digest: str


@event("share.withdrawn.v1")
class ShareWithdrawn(Event, frozen=True, kw_only=True):
    """The granting workspace withdrew the grant: no read is answered from here on."""

    because: str = ""


SHARES = Slice(
    name=SHARE,
    streams={SHARE: (ShareGranted, ShareRead, ShareWithdrawn)},
    nouns=("hansard.ext.share.grants:Shares",),
    schema="""
CREATE VIEW shares AS
SELECT url_decode(split_part(stream, '/', 2)) AS grant_id,
    arg_max(data->>'workspace', position) FILTER (type = 'share.granted.v1') AS workspace,
    arg_max(data->>'to', position) FILTER (type = 'share.granted.v1') AS granted_to,
    arg_max(data->>'role', position) FILTER (type = 'share.granted.v1') AS role,
    arg_max(data->'runs', position) FILTER (type = 'share.granted.v1') AS runs,
    arg_max(data->>'until', position) FILTER (type = 'share.granted.v1') AS until,
    min(logged_at) FILTER (type = 'share.granted.v1') AS granted_at,
    CASE WHEN max(position) FILTER (type = 'share.withdrawn.v1')
        > max(position) FILTER (type = 'share.granted.v1')
        THEN max(logged_at) FILTER (type = 'share.withdrawn.v1') END AS withdrawn_at,
    count(*) FILTER (type = 'share.read.v1') AS reads, max(position) AS position
FROM events WHERE starts_with(type, 'share.') GROUP BY stream;
COMMENT ON VIEW shares IS
    'One row per grant that this workspace gave or received. withdrawn_at: null unless the newest statement withdraws it. reads: on record in the receiving workspace alone.';
""",  # noqa: E501 -- the comment of a view is one text
)
