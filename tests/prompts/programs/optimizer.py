"""Prompt optimisation over recorded predictions with the real GEPA: `optimizer.py FOLDER WORKSPACE
FILE ROWS STOP`.

Each evaluation is noted outside; at the STOPth one it waits, to be killed.
"""

import csv
import json
import sys
import time
from pathlib import Path

import hansard
from hansard.ext.optimize import gepa

PROMPTS = ("baseline", "default", "confidence")


def main() -> None:
    """Run the optimisation, and print its result."""
    folder, workspace, file, rows, stop = sys.argv[1:]
    data, world = Path(file), Path(folder) / f"{workspace}.asked"
    set_name = data.name.removesuffix("_combined.csv")
    summaries = json.loads((data.parents[1] / "summaries.json").read_bytes())[set_name]
    texts = {summaries[name]["prompt"]: name for name in PROMPTS}
    order = [summaries[name]["prompt"] for name in PROMPTS]
    with data.open(encoding="utf-8", newline="") as opened:
        right = {str(n): row for n, row in enumerate(csv.DictReader(opened)) if n < int(rows)}
    count = 0

    def log_call(what: list[str]) -> None:
        nonlocal count
        count += 1
        if count == int(stop):
            (Path(folder) / f"{workspace}.reached").touch()
            time.sleep(600)
        with world.open("a", encoding="utf-8") as noted:
            noted.write(json.dumps(what) + "\n")

    def evaluate(text: str, task: str) -> float:
        log_call(["evaluate", texts[str(text)], task])
        return float(right[task][f"{texts[str(text)]}_correct"] == "True")

    def propose(text: str, _results: object) -> str:
        log_call(["propose", texts[text]])
        return order[min(order.index(text) + 1, 2)]

    with hansard.connect(workspace, data_dir=folder) as record:
        if not record.runs():
            record.prompts.add("classify", order[0])
            record.prompts.alias("classify@1", "production", reason="the first one")
        optimization = hansard.prompts.optimize(
            record,
            "classify@1",
            {task: task for task in right},
            evaluate=evaluate,
            propose=propose,
            search=gepa.search(seed=7),
            budget=len(right) * 4,
            metric="correct",
        )
        versions = record.prompts.log("classify").versions
    sys.stdout.write(
        json.dumps(
            {
                "best": texts[order[optimization.best - 1]],
                "promoted": optimization.promoted,
                "verdict": optimization.evidence.verdict if optimization.evidence else None,
                "means": optimization.versions,
                "versions": [[each.version, each.parents, each.aliases] for each in versions],
                "held_out": sorted(optimization.held_out),
            }
        )
    )


if __name__ == "__main__":
    main()
