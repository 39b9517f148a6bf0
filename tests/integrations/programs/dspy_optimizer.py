"""Optimise a prompt with DSPy's COPRO; wait to be killed at the STOPth question."""

import json
import sys
import time
from pathlib import Path

import hansard
from hansard.ext.optimize import dspy

TASKS = {f"t-{number}": number for number in range(16)}
ANSWER = """[[ ## proposed_instruction ## ]]
Solve it{marks}

[[ ## proposed_prefix_for_output_field ## ]]
Score:

[[ ## completed ## ]]"""


def main() -> None:
    """Run the optimizer and print its result."""
    folder, workspace, stop = sys.argv[1:]
    world = Path(folder) / f"{workspace}.asked"
    world.touch()
    count = 0

    def requests_before(what: list[str]) -> int:
        """Note a request; return how often it was made before, in any process."""
        nonlocal count
        count += 1
        if count == int(stop):
            (Path(folder) / f"{workspace}.reached").touch()
            time.sleep(600)
        before = world.read_text().splitlines()
        with world.open("a", encoding="utf-8") as noted:
            noted.write(json.dumps(what) + "\n")
        return sum(json.loads(each)[0] == what[0] for each in before)

    def evaluate(text: str, task: int) -> float:
        requests_before(["evaluate", str(text), str(task)])
        return float(text.count("!") > task % 3)

    def propose(prompt: str, results: object) -> str:
        assert results == []
        assert "instruction optimizer for large language models" in prompt
        return ANSWER.format(marks="!" * (1 + requests_before(["propose"]) % 4))

    with hansard.connect(workspace, data_dir=folder) as record:
        if not record.runs():
            record.prompts.add("p", "Solve it.\n")
            record.prompts.alias("p@1", "production", reason="the first one")
        result = hansard.prompts.optimize(
            record,
            "p@1",
            TASKS,
            evaluate=evaluate,
            propose=propose,
            search=dspy.search(),
            budget=90,
        )
        versions = record.prompts.log("p").versions
    report = {
        "best": result.best,
        "promoted": result.promoted,
        "versions": [[each.version, list(each.parents), each.prompt] for each in versions],
    }
    sys.stdout.write(json.dumps(report))


main()
