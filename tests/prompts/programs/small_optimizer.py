"""Optimisation of a prompt over a few tasks with Hansard's own search: `small_optimizer.py
WORKSPACE FOLDER`. Resumes an unfinished one.
"""

import sys

import hansard

TASKS = {f"t{number}": number for number in range(12)}


def evaluate(text: str, task: int) -> float:
    """Each exclamation mark solves more of the tasks."""
    return float(str(text).count("!") * 6 > task)


def propose(text: str, _results: object) -> str:
    """One more, up to two."""
    return text + "!" if len(text) < 3 else text


def main() -> None:
    """Begin, or go on."""
    workspace, folder = sys.argv[1:]
    with hansard.connect(workspace, data_dir=folder) as record:
        record.prompts.add("p", "x")
        try:
            record.prompts.get("p@production")
        except hansard.errors.Refused:
            record.prompts.alias("p@1", "production", reason="the first one")
        if not record.runs(workflow="optimize prompt p", status="completed"):
            hansard.prompts.optimize(
                record, "p@1", TASKS, evaluate=evaluate, propose=propose, budget=60
            )


main()
