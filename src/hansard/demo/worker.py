"""One process of the demo: the team at work on one run, until it is done or killed.

    python -m hansard.demo.worker '{"data_dir": "...", "stdlib": "...", "world": "..."}'

Writes a JSON line when it begins, before each tool's body, and when it is done.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import msgspec

import hansard
from hansard.demo import model
from hansard.demo.team import STRATEGIES, Job, work
from hansard.demo.world import Saved

WORKSPACE = "demo"


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker is told. Without `run` it begins a new one."""

    data_dir: str
    stdlib: str
    world: str
    run: str | None = None
    strategy: str = "branches"


class News(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker tells: a body begins, or the report is done."""

    body: str | None = None
    saved: Saved | None = None


def main(argument: str) -> None:
    """Do what an order says. Raises what went wrong."""
    order = msgspec.json.decode(argument, type=Order)
    lock = threading.Lock()

    def tell(news: News) -> None:
        with lock:
            sys.stdout.buffer.write(msgspec.json.encode(news) + b"\n")
            sys.stdout.buffer.flush()

    job = Job(
        stdlib=Path(order.stdlib),
        world=Path(order.world),
        strategy=STRATEGIES[order.strategy],
        model=model.from_environment(os.environ),
    )
    with hansard.connect(workspace=WORKSPACE, data_dir=order.data_dir) as record:
        saved = work(record, job, run=order.run, announce=lambda name: tell(News(body=name)))
    tell(News(saved=saved))


if __name__ == "__main__":
    main(sys.argv[1])
