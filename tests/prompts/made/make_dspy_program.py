"""Script that writes two saved DSPy programs: `python make_dspy_program.py PROGRAM.json
PREDICTOR.json`.

Needs `pip install dspy==3.4.1`. Its own `DummyLM` replaces a model.
"""

import sys

import dspy
from dspy.teleprompt import BootstrapFewShot
from dspy.utils import DummyLM


class Rag(dspy.Module):
    """Two predictors."""

    def __init__(self):
        super().__init__()
        self.plan = dspy.Predict(dspy.Signature("question -> plan", "Plan the search."))
        self.answer = dspy.ChainOfThought(
            dspy.Signature("question, plan -> answer", "Answer briefly.")
        )

    def forward(self, question):
        """Plan, then answer."""
        return self.answer(question=question, plan=self.plan(question=question).plan)


def main() -> None:
    """Write the two files."""
    program, predictor = sys.argv[1:]
    answers = [{"plan": "look it up", "reasoning": "it is known", "answer": "42"}] * 20
    dspy.configure(lm=DummyLM(answers))
    questions = [
        dspy.Example(question=f"question {number}", answer="42").with_inputs("question")
        for number in range(3)
    ]
    made = BootstrapFewShot(
        metric=lambda example, prediction, _=None: example.answer == prediction.answer,
        max_bootstrapped_demos=2,
        max_labeled_demos=1,
    ).compile(Rag(), trainset=questions)
    made.plan.lm = dspy.LM("openai/gpt-4.1-mini", temperature=0.2, api_key="not-saved")
    made.save(program)
    dspy.Predict("question -> answer").save(predictor)


main()
