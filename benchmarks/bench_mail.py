"""What does a message between agents cost as more were sent before?

One agent sends, another reads its inbox, again and again, in a run in which 200 and 20,000 messages
to somebody else went before. The figure is the CPU of this process for a message sent and read,
since what a client does again with each message is its own work: the broker and other work on the
machine do not count in it. Goal: after 20,000 at most 1.5 times after 200.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import msgspec

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized, summary
from benchmarks._runs import appended
from hansard.bus.log import Append
from hansard.domain.team import MailSent
from hansard.state.replay import mail_of

GROWTH_MAX = 1.5


def mails(run: str, count: int) -> Iterator[Append]:
    """Yield messages of an agent to another one."""
    said = msgspec.Raw(msgspec.json.encode(_world.text(200)))
    for version in range(1, count + 1):
        sent = MailSent(content=said, sender_role="writer", agent="cyd")
        yield appended(mail_of(run), version, sent)


async def messages(place: _world.World, before: int, rounds: int) -> list[float]:
    """Return the CPU time of each message, in ms."""
    run, took = f"after-{before}", list[float]()
    async with (
        hansard.connect_async("bench", data_dir=place.folder) as record,
        record.run("bench", run=run, agent="ada", role="writer") as ada,
        record.run("bench", run=run, agent="bob", role="reader") as bob,
    ):
        await record.workspace.log.append_bulk(mails(run, before))
        for number in range(rounds + 3):
            begin = time.process_time()
            await ada.team.send(number, agent="bob")
            [mail] = await bob.team.inbox()
            took.append((time.process_time() - begin) * 1_000)
            assert mail.number == before + number + 1
    return took[3:]


async def measure(found: Findings) -> None:
    """Two sizes, in runs of their own."""
    sizes, rounds = (sized(200, 20), sized(20_000, 400)), sized(200, 20)
    took: list[float] = []
    async with _world.world("relaxed") as place:
        for before in sizes:
            times = await messages(place, before, rounds)
            found.results[f"a message after {before}, CPU"] = summary(times)
            took.append(median(times))
    few, many = sizes
    found.ratios[f"a message after {many} against {few}"] = took[1] / took[0]
    found.goals[f"a message after {many} <= {GROWTH_MAX} times one after {few}"] = (
        took[1] <= GROWTH_MAX * took[0]
    )


if __name__ == "__main__":
    benchmark(measure, __doc__)
