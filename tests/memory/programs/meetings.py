"""Minutes as examples/meeting_assistant has them; may stop for ever around one of its appends."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from tests.aggregates.programs.trading import numbered
from tests.faults._inside import Inside, run_program

MINUTES = Path(__file__).parents[3] / "examples" / "meeting_assistant" / "minutes.py"


def minutes() -> Any:
    """Import the example's program."""
    spec = importlib.util.spec_from_file_location("meeting_assistant", MINUTES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main(inside: Inside) -> list[str]:
    """Write the minutes and return them."""
    program = minutes()
    with numbered(inside) as record:
        return list(program.work(record, inside.job.settings["url"]).values())


if __name__ == "__main__":
    run_program(main)
