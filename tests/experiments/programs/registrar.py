"""Registers experiments that another process registers at the same time, with its own plan."""

import time
from pathlib import Path

import hansard
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> dict[str, str]:
    """Return the outcome for each name."""
    settings = inside.job.settings
    plan = hansard.experiments.plan(
        arms=["plain", "bold"], metrics=["reward"], alpha=settings["alpha"]
    )
    outcomes = {}
    with hansard.connect(workspace=inside.job.workspace) as record:
        Path(inside.job.marker).touch()
        while not Path(settings["go"]).exists():
            time.sleep(0.001)
        for n in range(settings["count"]):
            try:
                is_new = record.experiments.register(f"e-{n}", plan, by=settings["name"])
            except hansard.errors.Refused as refusal:
                outcomes[f"e-{n}"] = "refused" if "alpha" in str(refusal) else str(refusal)
            else:
                outcomes[f"e-{n}"] = "registered" if is_new else "stood"
    return outcomes


if __name__ == "__main__":
    run_program(main)
