"""Writes over HTTP, whose service is killed: sent again, each is made once or is in doubt."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path

import httpx2
import pytest

import hansard
from hansard.broker.lease import join
from tests.cli.test_up import up
from tests.faults._warm import python

TOKEN = "a-token-of-enough-characters"
WRITES = 24
AFTER_S_MAX = 0.05
"""Latest kill after the answer that it waits for, in seconds."""


async def sent(
    url: str, names: list[str], answered: asyncio.Semaphore | None = None
) -> dict[str, tuple[int, bool]]:
    """Add a prompt of each name, all at once; return the status, and whether it was repeated.

    Each answer releases `answered`.
    """

    async def one(http: httpx2.AsyncClient, name: str) -> tuple[int, bool]:
        body = {"name": name, "text": "Be brief."}
        headers = {"idempotency-key": name}
        try:
            answer = await http.post("/api/v1/lab/prompts/add", json=body, headers=headers)
        except httpx2.TransportError:  # the service was killed
            return 0, False
        if answered is not None:
            answered.release()
        return answer.status_code, "idempotency-replayed" in answer.headers

    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
        answers = await asyncio.gather(*(one(http, name) for name in names))
    return dict(zip(names, answers, strict=True))


def round_of(home: Path, number: int, after: float | None) -> dict[str, tuple[int, bool]]:
    """Send the writes of a round to a new service; kill it after a share of them, if one is stated.

    The kill is up to `AFTER_S_MAX` later, by the same share.
    """
    more = ("-w", "lab", "--json", "--http", "0", "--token-file", str(home / "token"))
    names = [f"p{number}-{each}" for each in range(WRITES)]
    with up(home, *more, program=python()) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["http"]

        async def both() -> dict[str, tuple[int, bool]]:
            await sent(url, [f"warm-{number}-{after is None}"])  # it opens the workspace
            answered = asyncio.Semaphore(0)
            sending = asyncio.create_task(sent(url, names, answered))
            if after is not None:
                for _ in range(int(after * WRITES)):
                    await answered.acquire()
                await asyncio.sleep(after * AFTER_S_MAX)
                process.kill()
            return await sending

        return asyncio.run(both())


def killed(home: Path, rounds: int) -> Counter[str]:
    """Kill services in the middle of writes, and send the writes again; count the outcomes."""
    outcomes: Counter[str] = Counter()
    chosen = random.Random(rounds)
    (home / "token").write_text(TOKEN)
    (home / "token").chmod(0o600)
    with join(home), hansard.connect("lab", data_dir=home) as record:
        for number in range(rounds):
            first = round_of(home, number, chosen.random())
            again = round_of(home, number, None)
            for name, (status, was_repeated) in again.items():
                assert status in {200, 409}, (name, status)
                assert status == 200 or first[name][0] == 0, "an answered write is not in doubt"
                assert was_repeated or first[name][0] == 0, "an answered write is repeated"
                versions = {each.name: each.version for each in record.prompts.list()}
                if status == 200:
                    assert versions[name] == 1, name
                else:
                    assert versions.get(name, 1) == 1, name
                outcomes[f"{first[name][0]} then {status}{' repeated' * was_repeated}"] += 1
    return outcomes


@pytest.mark.slow
def test_a_write_is_made_once_whenever_the_service_is_killed(tmp_path: Path):
    """The same request to the next service is answered as before, or says that it is in doubt."""
    assert killed(tmp_path, 2).total() == 2 * WRITES


@pytest.mark.timeout(1_800)
@pytest.mark.thorough(quick="test_a_write_is_made_once_whenever_the_service_is_killed")
def test_the_same_at_many_moments(tmp_path: Path):
    """As above, twenty times."""
    outcomes = killed(tmp_path, 20)
    assert outcomes.total() == 20 * WRITES
    assert any("200 repeated" in each for each in outcomes), "each kill was before any write"
    assert any(each.startswith("0 ") for each in outcomes), "each kill was after all writes"
