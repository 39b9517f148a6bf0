"""Runs an agent that is a folder; may stop for ever around one of its appends, by number."""

import os
import warnings
from pathlib import Path

from hansard.ext.mcp.recording import Rules
from hansard.ext.memory.agent_runs import run_folder
from tests.aggregates.programs.trading import numbered
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> str:
    """Return the agent's last message."""
    settings = inside.job.settings
    os.environ |= {"ANTHROPIC_BASE_URL": settings["url"], "ANTHROPIC_API_KEY": "no key"}
    warnings.simplefilter("ignore")
    with numbered(inside) as record:
        rules = Rules(effects={"send": "idempotent"})
        folder = Path(settings["folder"])
        return run_folder(record, folder, "How many?", run=inside.job.run, rules=rules).text


if __name__ == "__main__":
    run_program(main)
