"""Command `hansard demo`: watch three agents work, be killed, and resume."""

from __future__ import annotations

from typing import Annotated

from hansard.cli.common import Commands, GlobalOptions, option
from hansard.demo import main

app = Commands()


@app.command()
def demo(seed: Annotated[int | None, option("Seed of the kill times.")] = None) -> int:
    """Watch three agents work, be killed, and resume.

    Takes about a minute, offline, on real input: the standard library's source.
    """
    return main(GlobalOptions.json, GlobalOptions.values.get("data_dir"), seed)
