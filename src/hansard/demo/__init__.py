"""The demo: three agents do a real job, are killed, resumed and forked, and every claim is checked.

`hansard demo`; offline. Its agents are in `hansard.demo.team`, which
is also the example to read first.
"""

from __future__ import annotations

import secrets
import sysconfig
import tempfile
from pathlib import Path

import hansard
from hansard.demo.story import Failed, Stage, Story


def main(
    json: bool = False,  # noqa: FBT001, FBT002 -- the command line's own switch
    data_dir: Path | None = None,
    seed: int | None = None,
) -> int:
    """Run the demo; return 0 if every claim held, else 1 after a line that names the failed one.

    json: NDJSON instead of text. data_dir: folder of the record and the reports; default: a new one
    in the system's temporary folder. Both are kept. seed: determines the moment of the kill. Takes
    8 to 15 s on two idle cores.
    """
    stage = Stage(json=json)
    root = data_dir.absolute() if data_dir else Path(tempfile.mkdtemp(prefix="hansard-demo-"))
    drawn = secrets.randbelow(10_000) if seed is None else seed
    try:
        Story(stage, root, Path(sysconfig.get_path("stdlib"))).tell(drawn)
    except (Failed, hansard.HansardError, LookupError, OSError) as error:
        stage.fail(error)
        return 1
    return 0
