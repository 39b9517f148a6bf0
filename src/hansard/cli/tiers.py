"""Commands `hansard tiers`: move older commits of a log to the archive."""

from __future__ import annotations

from typing import Annotated

from hansard.broker import private_copy
from hansard.bus.jetstream.roll import KEEP_S, Tended
from hansard.cli import output
from hansard.cli.common import Commands, option
from hansard.cli.opening import settings
from hansard.cli.output import Hint, Part
from hansard.client.opening import data_dir_of, find_broker
from hansard.service.rolling import tend

tiers = Commands()


@tiers.command("roll")
async def roll(
    keep: Annotated[
        float,
        option("Least age of the next generation before a stream is deleted.", "SECONDS", min=0),
    ] = KEEP_S,
) -> None:
    """Begin the next generation of a log, and move sealed ones to the archive.

    Seals the newest generation and opens the next; writers wait some milliseconds. With an archive
    (HANSARD_ARCHIVE) each sealed generation is stored there and verified, and its stream is deleted
    once the next is 10 minutes old. Finishes a roll that was interrupted. 'hansard up' does the
    same by age and number of commits.
    """
    config = settings()
    private_copy.refuse(data_dir_of(config))
    broker = await find_broker(config)
    try:
        result = await tend(config, broker, None, keep_s=keep)
    finally:
        await broker.release()
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
