"""The server's prompts: what a person picks in a client to have a model ask the record well.

They name the tools that answer, and hold no text of the record.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue


class Argument(msgspec.Struct, frozen=True):
    """What a prompt is given; all of them must be."""

    name: str
    does: str


class Prompt(msgspec.Struct, frozen=True):
    """A prompt: its text has its arguments in braces."""

    name: str
    does: str
    arguments: tuple[Argument, ...]
    text: str


RUN = Argument("run_id", "The run.")

PROMPTS = {
    each.name: each
    for each in (
        Prompt(
            "take_up",
            "Go on with a run that stood still or died, without doing anything twice.",
            (RUN,),
            "Take up run {run_id} with resume_run. Read run://{run_id}/trace and the "
            "messages (context), then team_tasks and board_keys: say in three sentences "
            "what was done, what is under way and what is in doubt. A step in doubt may "
            "have happened: ask a person before you do it again. Then claim the next task "
            "(team_claim) and go on; say with checkpoint how far you are.",
        ),
        Prompt(
            "hand_over",
            "Leave a run in a state that another agent can go on from.",
            (RUN, Argument("to", "The agent or role that goes on.")),
            "Hand run {run_id} over to {to}. Complete or give back the tasks that you hold "
            "(team_tasks), put what you found on the board (board_put), say what you "
            "decided and why (decide), and save a checkpoint. Then call hand_off with a "
            "summary: what is done, what is left, what you are not sure of, each with its "
            "step or key.",
        ),
        Prompt(
            "explain",
            "Explain a decision from what is on record, and from nothing else.",
            (Argument("decision", "The id or address of a decision, or a run."),),
            "Ask why about {decision}. Explain in plain words what was asked, what was "
            "chosen, from which inputs, what else could have been chosen and how near it "
            "was, and what the agent did not know. Give the address of each event that you "
            "rest on. Where the record does not say something, say that it does not.",
        ),
        Prompt(
            "compare",
            "Say what an experiment has shown, and what it has not.",
            (Argument("experiment", "The experiment."),),
            "Ask compare about experiment {experiment}. Give the verdict as it is given "
            "there, with the difference, its interval and the number of tasks; say whether "
            "the plan stood before the data, and what would change it (missing trials, "
            "looks, metrics without a direction). Do not call anything better that the "
            "verdict does not.",
        ),
    )
}


def filled(name: str, given: Mapping[str, str]) -> tuple[Prompt, str]:
    """A prompt and its text with what is given. Raises BadValue."""
    found = PROMPTS.get(name)
    if found is None:
        remedy = f"{nearest(name, PROMPTS)}there are {', '.join(PROMPTS)}"
        raise BadValue("prompt", f"{name!r:.80} is none", remedy)
    wanted = [each.name for each in found.arguments]
    for each in [*wanted, *given]:
        if each not in wanted or not given.get(each):
            fact = f"{each!r:.80} is " + (
                "not given" if each in wanted else "none of its arguments"
            )
            raise BadValue(f"prompt {name}", fact, f"give {', '.join(wanted)}")
    return found, found.text.format(**given)
