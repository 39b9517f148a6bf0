"""The demo: three agents do a real job, are killed, resumed and forked, and every claim is checked.

`hansard demo`, or `python -m hansard.demo`. Its agents are in `hansard.demo.team`, which is also
the example to read first. Offline, unless OPENAI_BASE_URL or OPENAI_API_KEY is set: then a model
writes the report's summary.
"""

from __future__ import annotations

import os
import secrets
import sysconfig
import tempfile
import time
from pathlib import Path

import hansard
from hansard.demo import measures, model
from hansard.demo.process import WorkerFailed
from hansard.demo.stage import BrokenClaim, Stage
from hansard.demo.story import Story
from hansard.demo.team import BYTES_MIN, MODULES
from hansard.demo.worker import WORKSPACE, Order

SEEDS = 10_000
"""Seeds that are drawn from when none is given: short enough to type again."""


def main(
    json: bool = False,  # noqa: FBT001, FBT002 -- the command line's own switch
    data_dir: Path | None = None,
    seed: int | None = None,
) -> int:
    """Tell the story; 0 when every claim held, 1 with a line that says which did not.

    json: NDJSON instead of text. data_dir: where the record and the reports go; a new folder
    under the system's temporary one if not given. Both are kept. seed: the moment of the kill.
    Takes 8 to 15 s on two idle cores.
    """
    stage = Stage(json=json)
    root = data_dir.absolute() if data_dir is not None else _new_folder()
    order = Order(
        data_dir=str(root),
        stdlib=sysconfig.get_path("stdlib"),
        world=str(root / "world"),
    )
    drawn = secrets.randbelow(SEEDS) if seed is None else seed
    try:
        _tell(stage, order, drawn)
    except (BrokenClaim, WorkerFailed, hansard.HansardError, LookupError, OSError) as error:
        stage.fail(error)
        return 1
    return 0


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="hansard-demo-"))


def _tell(stage: Stage, order: Order, seed: int) -> None:
    began = time.perf_counter()
    writer = model.from_environment(os.environ)
    found = measures.modules(Path(order.stdlib))
    fit = sum(size >= BYTES_MIN for size in found.values())
    stage.hold("the standard library's source is here", fit > MODULES, path=order.stdlib, fit=fit)
    stage.tell(
        "job",
        f"three agents report on the standard library in {order.stdlib}: {len(found)} modules; "
        f"{writer.name if writer else 'no model'} is asked for the summary",
        stdlib=order.stdlib,
        modules=len(found),
        model=writer.name if writer else None,
    )
    with hansard.connect(workspace=WORKSPACE, data_dir=order.data_dir) as record:
        story = Story(stage, record, order)
        undisturbed, bodies = story.undisturbed()
        run, before = story.killed(seed, bodies)
        story.resumed(run, before, undisturbed)
        at, middle = story.middle(run)
        story.forked(run, at, middle)
        story.closing(run, at)
    seconds = round(time.perf_counter() - began, 1)
    stage.tell(
        "end",
        f"{stage.claims} claims held in {seconds} s",
        claims_held=stage.claims,
        seconds=seconds,
        seed=seed,
    )
