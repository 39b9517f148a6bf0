"""Commands `hansard tiers`: move older commits of a log to the archive, and read them there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec

from hansard.broker import private_copy
from hansard.broker.lease import ServerError, alone
from hansard.bus.archive import archive_at
from hansard.bus.errors import BusError, NotFound
from hansard.bus.jetstream.client import Broker as Connection
from hansard.bus.jetstream.client import BrokerOptions
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.generations import Survey, survey
from hansard.bus.jetstream.roll import KEEP_S, Tended
from hansard.bus.sources import Archived
from hansard.cli import output
from hansard.cli.common import Commands, argument, flag, option
from hansard.cli.opening import answering, published, settings
from hansard.cli.output import Column, Hint, Part
from hansard.client.opening import broker_of, check_data_dir, data_dir_of, raw_of
from hansard.domain.choices import counted
from hansard.domain.errors import CallerError
from hansard.inspect.answer import Answer
from hansard.service.rolling import tend
from hansard.settings import Settings

tiers = Commands()


@tiers.command("roll")
async def roll(
    keep: Annotated[
        float,
        option("Least age of the next generation before a stream is deleted.", "SECONDS", min=0),
    ] = KEEP_S,
) -> None:
    """Begin the next generation of a log, and archive the sealed ones.

    Writers wait some milliseconds. With an archive (HANSARD_ARCHIVE) each sealed generation is
    stored there and verified, and its stream is deleted once the next is 10 minutes old. Finishes a
    roll that was interrupted. 'hansard up' does the same by age and number of commits.
    """
    config = settings()
    private_copy.refuse(data_dir_of(config))
    async with broker_of(config) as broker:
        result = await tend(config, broker, None, keep_s=keep)
    if config.archive is not None:
        await _store_rows(config, config.archive)
    output.show(result, _render(result, config.archive))


def _render(result: Tended, archive: str | None) -> list[Part]:
    lines = result.lines() or ["the newest generation is empty: nothing to roll"]
    if result.waiting:
        numbers = ", ".join(map(str, result.waiting))
        why = (
            f"until the next one is {KEEP_S / 60:.0f} minutes old and the broker's mark has read it"
            if archive
            else "since no archive is named (HANSARD_ARCHIVE)"
        )
        lines.append(f"generation {numbers} stays on the broker {why}")
    return [Hint(line) for line in lines]


class Tier(msgspec.Struct, frozen=True):
    """One place of a part of the log: positions `first` to `last`, its commits and bytes."""

    tier: str
    where: str
    first: int
    last: int
    commits: int
    bytes: int


class TierReport(Answer):
    """Where the commits of a log are, and the cache on this machine's disk."""

    workspace: str
    tiers: list[Tier]
    cache_bytes: int
    cache_bytes_max: int
    cache_oldest_s: float
    missing: list[str] = []

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the parts of the log, then the cache."""
        for each in self.tiers:
            yield msgspec.structs.asdict(each)
        yield {
            "cache": self.workspace,
            "bytes": self.cache_bytes,
            "bytes_max": self.cache_bytes_max,
            "oldest_s": round(self.cache_oldest_s, 1),
        }


_TIERS = output.columns(
    "tier positions commits> size> where!",
    positions=lambda it: f"{it.first:,} to {it.last:,}" if it.commits else f"from {it.first:,}",
    size=lambda it: output.size(it.bytes),
)


@tiers.command("show")
async def show() -> None:
    """Show where a log's commits are, and the cache of the archive.

    'live' is the stream that is written, 'sealed' one that is not archived or not deleted yet,
    'archive' the object store, 'missing' what the store lost. Hits and evictions of a running
    service are in its /metrics.
    """
    config = settings()
    at = await _survey(config)
    if not at.streams and not at.archived:
        raise NotFound(f"workspace {config.workspace!r}", "'hansard status' lists the workspaces")
    report = await _report(config, at)
    cache = (
        f"cache on this disk: {output.size(report.cache_bytes)} of at most "
        f"{output.size(report.cache_bytes_max)}"
    )
    if report.cache_bytes:
        cache += f", the oldest used {report.cache_oldest_s:,.0f} s ago"
    output.show(
        report, [output.listing(_TIERS, report.tiers), *map(Hint, [*report.missing, cache])]
    )


@tiers.command("sql")
async def sql(
    statement: Annotated[str, argument("SQL", "One statement that reads.")],
    only_archive: Annotated[
        bool, flag("--only-archive", "Leave out the tables of this machine.")
    ] = False,
) -> None:
    """Query the archive's Parquet files and the live tables as one.

    Each table of 'hansard sql --tables' is one view over both; views and macros are left out.
    'log_generations' has the positions, times and bytes of each part of the log.
    """
    config = settings()
    place = config.archive or next((each.place for each in await _archived(config)), None)
    if place is None:
        raise CallerError(
            f"workspace {config.workspace!r} has no archived generation, and HANSARD_ARCHIVE names "
            "no archive: set it, or use 'hansard sql'"
        )
    from hansard.projections.archived import query

    archive = archive_at(config.workspace, place)
    if only_archive:
        names, rows, lacks = await query(archive, None, statement)
    else:
        async with published(None) as tables:
            names, rows, lacks = await query(archive, tables.path, statement)
    for first, last in lacks:
        output.hint(
            f"the archive at {place} lacks the rows of positions {first:,} to {last:,}, and so "
            "does this answer: store them again with 'hansard tiers roll'"
        )
    answer = [dict(zip(names, row, strict=True)) for row in rows]
    cells = [[output.cell(output.cut(str(value))) for value in row] for row in rows]
    output.show(answer, [output.table([Column(name) for name in names], cells)])


@tiers.command("clean")
async def clean(yes: Annotated[bool, flag("--yes", "Delete them.")] = False) -> None:
    """List segments and blobs that nothing names; delete them with --yes.

    Killed processes left them: segments without a manifest, and blobs that no commit names.
    Segments of a generation that is not archived yet are kept: a roll may be storing it. Blobs are
    deleted from an embedded broker alone, once all other programs that use the data directory have
    ended: one of them may be about to name a blob.
    """
    config = settings()
    if yes:
        private_copy.refuse(data_dir_of(config))
    parts: list[Part] = []
    orphans: list[dict[str, Any]] = []

    def add(name: str, where: str, size: int, *, deleted: bool) -> None:
        orphans.append({"object": name, "where": where, "bytes": size, "deleted": deleted})
        parts.append(
            Hint(f"{'deleted' if deleted else 'would delete'} {name} ({output.size(size)})")
        )

    archived = await _archived(config)
    for place, entries in itertools.groupby(archived, key=lambda each: each.place):
        archive, generations = archive_at(config.workspace, place), [*entries]
        missing = await archive.missing(generations)
        for fact in missing.values():
            output.hint(f"{place}: {fact}; nothing is deleted there")
        if missing:
            continue
        count, names, others = await archive.orphans(generations)
        line = f"{place}: {counted(count, 'segment')}, {len(names):,} of them without a manifest"
        if others:
            line += f"; {others:,} at positions not archived yet kept: a roll may be storing them"
        parts.append(Hint(line))
        for name, size in sorted(names.items()):
            if yes:
                await archive.tiers.store.delete(name)
            add(name, place, size, deleted=yes)
    if not archived:
        parts.append(Hint(f"workspace {config.workspace!r} has no archived generation"))
    count, blobs, deleted, kept = await _orphaned_blobs(config, yes=yes)
    parts.append(Hint(f"the broker: {counted(count, 'blob')}, {len(blobs):,} of them in no commit"))
    for name, size in sorted(blobs.items()):
        add(f"blob {name}", "broker", size, deleted=name in deleted)
    if orphans and not yes:
        parts.append(Hint("nothing was deleted: 'hansard tiers clean --yes' deletes these objects"))
    elif kept:
        parts.append(Hint(f"{counted(len(blobs) - len(deleted), 'blob')} kept: {kept}"))
    output.show(orphans, parts)


async def _orphaned_blobs(
    config: Settings, *, yes: bool
) -> tuple[int, dict[str, int], set[str], str]:
    """Return the number of blobs, the bytes of those that no commit names, those of them that were
    deleted, and with `yes` why others were not.

    A blob is stored before the commit that names it, and one that exists already is not stored
    again. So an unnamed blob is deleted only while no other process uses the data directory.
    """
    async with broker_of(config) as broker, raw_of(broker.runtime, config.workspace) as raw:
        blobs = await raw.blob_chunks()
        count, head = len(blobs), await raw.drop_named(blobs)
        sizes = {each: await raw.blob_bytes(each, chunks) for each, chunks in blobs.items()}
    kept, deleted = "", set[str]()
    if yes and blobs and broker.admin is None:
        kept = "a program on a broker of your own may be about to name one, and cannot be seen"
    elif yes and blobs:
        try:
            with alone(data_dir_of(config)) as lease:
                login, urls = lease.info.admin, (lease.info.url,)
                options = BrokerOptions(urls=urls, user=login.user, password=login.password)
                async with raw_of(options, config.workspace) as raw:
                    await raw.drop_named(blobs, head)
                    for sha256 in blobs:
                        await raw.delete_blob(sha256)
                        deleted.add(sha256)
        except (ServerError, BusError) as error:
            kept = str(error)
    return count, {each: sizes[each] for each in blobs}, deleted, kept


async def _survey(config: Settings) -> Survey:
    """Return the generations of the log. Raises NotFound."""
    check_data_dir(config)
    async with broker_of(config) as broker:
        connection = await Connection.open(broker.runtime)
        try:
            return (await survey(Direct(connection), config.workspace)).complete(connection)
        finally:
            await connection.close()


async def _archived(config: Settings) -> Sequence[Archived]:
    return (await _survey(config)).archived


async def _report(config: Settings, at: Survey) -> TierReport:
    """Collect the figures of the tiers. Raises ArchiveUnavailable, Corrupt."""
    tiers_: list[Tier] = []
    cache, facts = None, list[str]()
    for place, group in itertools.groupby(at.archived, key=lambda each: each.place):
        archive, generations = archive_at(config.workspace, place), [*group]
        cache = archive.tiers.figures()["L2"]
        missing = await archive.missing(generations)
        facts += [f"{place}: {fact}" for fact in missing.values()]
        for each in generations:
            tier, size = "missing", 0
            if each.generation not in missing:
                tier = "archive"
                size = sum(part.size for part in await archive.segments_of([each]))
            tiers_.append(Tier(tier, place, each.first, each.last, each.messages, size))
    for stream in at.streams:
        state = stream.info["state"]
        tier = "sealed" if stream.is_sealed else "live"
        tiers_.append(
            Tier(tier, stream.stream, stream.first, stream.last, state["messages"], state["bytes"])
        )
    return TierReport(
        config.workspace,
        tiers_,
        cache.bytes if cache is not None else 0,
        config.archive_disk_mb * 1024 * 1024,
        cache.oldest_s if cache is not None else 0.0,
        facts,
    )


async def _store_rows(config: Settings, place: str) -> None:
    """Store the rows of all archived generations as Parquet."""
    from hansard.projections.archived import store_all_tables

    entries = await _archived(config)
    if entries:
        async with answering() as reader:
            stored = await store_all_tables(archive_at(config.workspace, place), reader, entries)
        for each in stored:
            rows = counted(sum(each.tables.values()), "row")
            positions = f"{each.first:,} to {each.last:,}"
            output.hint(f"stored {rows} of positions {positions} in the archive as Parquet")
