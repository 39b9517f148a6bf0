"""`hansard repair`: restore what a broker needs to offer a workspace's messages."""

from __future__ import annotations

from collections.abc import Iterator

from hansard.broker import process
from hansard.broker import repair as repairing
from hansard.broker.repair import RestoredStream
from hansard.cli import output
from hansard.cli.common import Json, noun, work
from hansard.cli.opening import settings
from hansard.cli.output import Column, Hint, Part
from hansard.client import opening
from hansard.client.opening import check_data_dir, data_dir_of
from hansard.domain.errors import Corrupt
from hansard.settings import SettingsError

app = noun()

COLUMNS = (
    Column("stream", whole=True),
    Column("messages", lambda stream: f"{stream.messages:,}", right=True),
    Column("first", lambda stream: f"{stream.first:,}", right=True),
    Column("last", lambda stream: f"{stream.last:,}", right=True),
    Column("damaged files", lambda stream: stream.backup, whole=True),
)


@app.command()
@work
async def repair(json: Json = False) -> int:
    """Restore lost metadata of a workspace's streams.

    For streams that the embedded broker does not offer. For a workspace whose messages are
    there, and which is refused because 'meta.inf' or 'meta.sum' of a stream is damaged or gone,
    as after a power cut. The files of an empty stream of the same name replace them; what they
    replace is kept in 'repaired' of the data directory. Messages are not changed: lost ones come
    back from a backup only. Not while other processes use the data directory. Exits with 1 where
    there was nothing to restore and messages are lost.
    """
    given = settings()
    if given.nats_url is not None:
        message = (
            f"'hansard repair' restores files of a data directory, and {given.nats_url!r} is a "
            "broker of your own: run it without --nats and HANSARD_NATS_URL"
        )
        raise SettingsError(message)
    check_data_dir(given)
    folder = data_dir_of(given)
    process.refuse(folder)
    restored = await repairing.repair(folder, given.workspace)
    lost: Corrupt | None = None
    try:
        async with opening.reading(given):
            pass
    except Corrupt as error:
        lost = error
    if lost is None or restored:
        output.show(restored, lambda found: _people(found, given.workspace), json=json)
    if lost is not None:
        output.hint(f"messages are lost, which 'hansard repair' cannot restore: {lost}")
    return 1 if lost is not None and not restored else 0


def _people(restored: list[RestoredStream], workspace: str) -> Iterator[Part]:
    if not restored:
        yield f"nothing to repair: the broker offers every stream of workspace {workspace!r}"
        return
    yield output.listing(COLUMNS, restored)
    yield Hint("run 'hansard check' to see whether all of the record is there")
