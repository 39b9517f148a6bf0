"""What a person picks in a client: the server's own prompts, and those on record.

The server's own have a model ask the record well: they name the tools that answer, and hold no text
of the record. Of those on record each is there under its name, as its newest version;
`rag@production` and `rag@3` are taken, too. One that has a name of the server's own is listed by
its version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hansard.agents.errors import RoleRefused
from hansard.agents.policy import permits
from hansard.bus.errors import NotFound
from hansard.client.protocol.errors import NotOffered
from hansard.domain.choices import nearest
from hansard.domain.errors import BadName, BadValue
from hansard.service.mcp.offers import Answer, in_own_run
from hansard.service.mcp.sessions import Sessions


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

REMEMBER = "remember"

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
        Prompt(
            REMEMBER,
            "Have this agent remember something from now on (/remember).",
            (RUN, Argument("what", "What is to hold from now on.")),
            "/remember {what}\n\nPut these words of mine on record as they stand, with message in "
            "run {run_id} (role user, content beginning with /remember). Then look with "
            "memory_search and memory_entry whether it is said already, or the contrary is. If "
            "not, say it as one general rule with memory_remember; what is how to do a certain "
            "thing belongs into a file under skills/ (memory_create), not into the instructions. "
            "If it contradicts what stands there, change that (memory_edit) rather than adding "
            "to it. A person may be asked before it is written: wait for that, and say what came "
            "of it.",
        ),
    )
}


class Filled(msgspec.Struct, frozen=True):
    """A prompt with what was given.

    Attributes:
        does: What it is for.
        text: What is said to the model.
        answer: Where it stands that it was asked for; None of the server's own.
        reference: Which version it is, of one on record.
    """

    does: str
    text: str
    answer: Answer | None = None
    reference: str = ""


async def listed(sessions: Sessions) -> list[Prompt]:
    """The server's own prompts, and those on record that the client's role may see."""

    async def reads() -> Answer:
        await sessions.demand(permits.prompts())
        found = await sessions.record.prompts()
        for each in found:
            await sessions.shown(each.label)
        told = [[each.name, each.version, each.because, each.variables] for each in found]
        return Answer(told, replayable=False)

    try:
        told = (await in_own_run(sessions, "prompts/list", {}, reads)).result
    except (NotOffered, RoleRefused):  # it may not see prompts, or not even ask
        told = []
    return [
        *PROMPTS.values(),
        *(
            _on_record(name, version, because, variables)
            for name, version, because, variables in told
        ),
    ]


def _on_record(name: str, version: int, because: str, variables: tuple[str, ...]) -> Prompt:
    does = f"Version {version} of prompt {name}" + (f": {because}" if because else ", on record.")
    arguments = tuple(Argument(each, f"What stands for {{{each}}}.") for each in variables)
    return Prompt(f"{name}@{version}" if name in PROMPTS else name, does, arguments, "")


async def got(sessions: Sessions, name: str, given: Mapping[str, str]) -> Filled:
    """A prompt and its text with what is given; of one on record it is on record that it was asked
    for. Raises BadValue, Refused.
    """
    if name in PROMPTS:
        return _filled(PROMPTS[name], given)

    async def reads() -> Answer:
        await sessions.demand(permits.prompts())
        found = await sessions.record.prompt(name)
        await sessions.shown(found.label)
        told = {"text": str(found.format(**given)), "reference": found.reference}
        return Answer(told, replayable=False)

    try:
        answer = await in_own_run(
            sessions, "prompts/get", {"name": name, "arguments": {**given}}, reads
        )
    except (NotFound, BadName, NotOffered, RoleRefused):  # what may not be seen is none
        remedy = f"{nearest(name, PROMPTS)}there are {', '.join(PROMPTS)}, and those on record"
        raise BadValue("prompt", f"{name!r:.80} is none", remedy) from None
    told: dict[str, Any] = answer.result
    does = f"Prompt {told['reference']} of the record."
    return Filled(does, told["text"], answer, told["reference"])


def _filled(found: Prompt, given: Mapping[str, str]) -> Filled:
    wanted = [each.name for each in found.arguments]
    for each in [*wanted, *given]:
        if each not in wanted or not given.get(each):
            fact = f"{each!r:.80} is " + (
                "not given" if each in wanted else "none of its arguments"
            )
            raise BadValue(f"prompt {found.name}", fact, f"give {', '.join(wanted)}")
    return Filled(found.does, found.text.format(**given))
