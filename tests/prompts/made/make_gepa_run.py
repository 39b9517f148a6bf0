"""Script that writes a GEPA run folder and its result: `python make_gepa_run.py FOLDER
RESULT.json`.

Needs `pip install gepa==0.1.4`. No model is called: the reflection model is a function that adds an
exclamation mark, and the adapter scores by counting them. Two components, so that GEPA merges.
"""

import json
import sys
from pathlib import Path

import gepa
from gepa.core.adapter import EvaluationBatch

TASKS = [{"of": name, "least": least} for least in (1, 2, 3) for name in ("plan", "answer")]
TASKS += [{"of": "neither", "least": 0}] * 2
"""The last two score for the first candidate alone, so that GEPA returns to it and branches."""


class Adapter:
    """Scores each task by one of the two components."""

    propose_new_texts = None

    def evaluate(self, batch, candidate, capture_traces=False):
        """Score a candidate on some tasks."""
        counts = {name: text.count("!") for name, text in candidate.items()}
        counts["neither"] = -sum(counts.values())
        scores = [float(counts[task["of"]] >= task["least"]) for task in batch]
        return EvaluationBatch(
            outputs=batch, scores=scores, trajectories=batch if capture_traces else None
        )

    def make_reflective_dataset(self, candidate, evaluated, components):
        """Return what a proposal is made from."""
        rows = zip(evaluated.outputs, evaluated.scores, strict=True)
        shown = [{"Inputs": task, "Feedback": f"score {score}"} for task, score in rows]
        return dict.fromkeys(components, shown)


def reflect(prompt: str) -> str:
    """Return the shown text with one more exclamation mark, in place of a model."""
    text = prompt.split("```")[1].strip()
    return f"```\n{text}!\n```"


def main() -> None:
    """Write the folder and the result."""
    folder, result = sys.argv[1:]
    optimized = gepa.optimize(
        seed_candidate={"plan": "Plan the search", "answer": "Answer in {language}"},
        trainset=TASKS,
        valset=TASKS,
        adapter=Adapter(),
        reflection_lm=reflect,
        use_merge=True,
        max_merge_invocations=5,
        reflection_minibatch_size=2,
        max_metric_calls=300,
        run_dir=folder,
        seed=6,
    )
    Path(result).write_text(json.dumps(optimized.to_dict(), indent=1), encoding="utf-8")


main()
