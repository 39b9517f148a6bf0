"""Reading and writing of prompts: each change is one commit in the prompt's own stream."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from hansard.agents.artifacts import versions
from hansard.agents.artifacts.versions import Artifact, ArtifactChange
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.domain import prompt as prompts
from hansard.domain import values
from hansard.domain.choices import Brief, nearest
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Actor
from hansard.domain.fingerprint import canonical
from hansard.domain.ids import RunStream, WorkspaceStream
from hansard.domain.label import Label
from hansard.domain.prompt import (
    KIND,
    PROMPTS,
    PromptAliased,
    PromptFeedbackGiven,
    PromptRetired,
    PromptState,
    PromptText,
    PromptVersionAdded,
)
from hansard.domain.steps import PromptUse
from hansard.domain.values import Scrub, recordable

CURRENT = -1
"""Expected version of an alias: the version it names at the first read."""


class Prompt(Brief, msgspec.Struct, frozen=True, kw_only=True):
    """A version of a prompt, as requested.

    Attributes:
        name: Name of the prompt.
        version: Version number.
        text: Text with variables.
        model: Intended model; empty for any.
        parameters: Further model parameters, by name.
        alias: Alias of the request; empty for a number or none.
        parents: Versions that it was derived from.
        feedback_applied: Feedback on those versions that it answers.
        because: Reason for the version.
        retired: Reason for its retirement; None if it may be used.
        label: Confidentiality of the prompt, and whether it holds untrusted input.
    """

    name: str
    version: int
    text: str
    model: str = ""
    parameters: dict[str, Any] = {}
    alias: str = ""
    parents: tuple[int, ...] = ()
    feedback_applied: tuple[str, ...] = ()
    because: str = ""
    retired: str | None = None
    label: Label | None = None

    @property
    def reference(self) -> str:
        """Permanent name of this version: `rag@3`."""
        return f"{self.name}@{self.version}"

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables of the text, in order of appearance."""
        return prompts.variables(self.text)

    def format(self, /, **variables: Any) -> PromptText:
        """Fill in the variables of the text. The returned str records its version in any call that
        gets it.

        Args:
            **variables: Texts and numbers, by the variables' names.

        Raises:
            BadValue: A variable is missing or unknown, or is neither text nor number.
            Refused: The version is retired, or its text is not known.
        """
        if self.retired is not None:
            why = f" ({self.retired})" if self.retired else ""
            message = f"prompt {self.reference} is retired{why}: use another version"
            raise Refused(message)
        if not self.text:
            message = (
                f"the text of prompt {self.reference} is not known: its source did not "
                "include it; use another version"
            )
            raise Refused(message)
        use = PromptUse(self.name, self.version, self.alias)
        return PromptText(self.text, use, self.label).fill(**variables)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A version to be added."""

    text: str
    model: str = ""
    parameters: Mapping[str, Any] = {}
    parents: Sequence[int] = ()
    feedback_applied: Sequence[str] = ()
    because: str = ""
    metrics: Mapping[str, float] = {}


# ---------------------------------------------------------------- reading


async def get(workspace: Workspace, reference: str) -> Prompt:
    """Return the version that `rag@production`, `rag@3` or `rag` names. Raises BadName, NotFound,
    and Refused if there is no such version or alias.
    """
    name, which = prompts.split(reference)
    found = await versions.read(workspace, PROMPTS, name)
    try:
        version = prompts.resolve(found.state, which)
    except Refused as error:
        message = f"{KIND} {name!r}: {error}"
        raise Refused(message) from error
    return of_version(found, name, version, which if which in found.state.aliases else "")


async def newest(workspace: Workspace) -> list[Prompt]:
    """Return the newest version of each prompt that is not retired, by name, without prompts whose
    versions are all retired. Raises UnknownEvent.
    """
    by_name: dict[str, list[Stored]] = {}
    for stored in await workspace.log.read_kind(KIND):
        if isinstance(stored.stream, WorkspaceStream):
            by_name.setdefault(stored.stream.id, []).append(stored)
    made: list[Prompt] = []
    for name, commits in sorted(by_name.items()):
        found = versions.folded(PROMPTS, commits)
        usable = found.state.versions.keys() - found.state.retired
        if usable:
            made.append(of_version(found, name, max(usable)))
    return made


def of_version(artifact: Artifact[PromptState], name: str, version: int, alias: str = "") -> Prompt:
    """Return a version of a prompt."""
    found = artifact.state.versions[version]
    return Prompt(
        name=name,
        version=version,
        text=found.text,
        model=found.model,
        parameters=parameters_of(found),
        alias=alias,
        parents=found.parents,
        feedback_applied=found.feedback_applied,
        because=found.because,
        retired=artifact.state.retired.get(version),
        label=artifact.label,
    )


def parameters_of(version: PromptVersionAdded) -> dict[str, Any]:
    """Return a version's parameters as passed by its author."""
    parameters: dict[str, Any] = values.load(version.parameters) or {}
    return parameters


async def demand_usable(workspace: Workspace, references: Iterable[str]) -> None:
    """Raise NotFound or Refused for a reference that names no usable version."""
    for reference in references:
        found = await get(workspace, reference)
        if found.retired is not None:
            message = f"prompt {found.reference} is retired: name another version"
            raise Refused(message)


# ---------------------------------------------------------------- writing


async def add(workspace: Workspace, name: str, draft: Draft, *, by: str | Actor) -> ArtifactChange:
    """Add a version, or return an existing equal one.

    Raises BadName, BadValue, Refused (no such parent), Conflict after 50 lost races.
    """
    event = draft_event(draft, workspace.redaction)
    return await versions.change(workspace, PROMPTS, name, event, by=by, begins=True)


def draft_event(draft: Draft, scrub: Scrub | None) -> PromptVersionAdded:
    """Return a draft as an event, without secrets and without a number. Raises BadValue."""
    if not isinstance(draft.text, str):
        raise BadValue("text", f"{draft.text!r:.80}", "give a text")
    text = values.plain(draft.text, "text", scrub)
    if not isinstance(text, str):
        fact = "it is a secret, or has a lone surrogate"
        raise BadValue("text", fact, "give the secret as a variable, and leave the surrogate out")
    if not isinstance(draft.parameters, Mapping):
        raise BadValue("parameters", f"{draft.parameters!r:.80}", "give them by name")
    parameters = dict(draft.parameters)
    plain = values.plain(parameters, "parameters", scrub)
    raw = msgspec.Raw(canonical(plain) if parameters else b"null")
    fields = {
        "version": 0,
        "text": text,
        "digest": "",
        "model": draft.model,
        "parents": tuple(draft.parents),
        "feedback_applied": tuple(recordable(each, scrub) for each in draft.feedback_applied),
        "because": recordable(draft.because, scrub),
        "metrics": dict(draft.metrics),
    }
    try:
        made = msgspec.convert(fields, PromptVersionAdded)
    except msgspec.ValidationError as error:
        raise BadValue("the version", str(error), "see record.add_prompt") from error
    return msgspec.structs.replace(made, parameters=raw)


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Requested move of an alias.

    Attributes:
        alias: Name of the alias.
        take_away: True to remove it.
        expected: Version that it must name before; default: the one of the first read.
        because: Reason.
        experiment: Experiment whose verdict moves it.
    """

    alias: str
    take_away: bool = False
    expected: int | None = CURRENT
    because: str = ""
    experiment: str = ""


async def move(
    workspace: Workspace, reference: str, move: Move, *, by: str | Actor
) -> ArtifactChange:
    """Point an alias to a version. A writer that loses the race gets PromptConflict.

    Raises PromptConflict, NotFound, Refused (retired, or no such version), BadName.
    """
    name, which = prompts.split(reference)
    prompts.check_alias(move.alias)
    because = workspace.text(move.because)
    expected = [] if move.expected == CURRENT else [move.expected]

    def moved(state: PromptState) -> PromptAliased:
        if not expected:
            expected.append(state.aliases.get(move.alias))
        return PromptAliased(
            alias=move.alias,
            version=None if move.take_away else prompts.resolve(state, which),
            before=expected[0],
            because=because,
            experiment=move.experiment,
        )

    found = await versions.change(workspace, PROMPTS, name, moved, by=by)
    return msgspec.structs.replace(found, alias=move.alias, experiment=move.experiment)


async def feed_back(
    workspace: Workspace,
    reference: str,
    text: str,
    *,
    rating: float | None = None,
    run: str = "",
    by: str | Actor,
) -> ArtifactChange:
    """Record feedback on a version. Raises NotFound (no such prompt or run),
    Refused, BadValue, BadName.
    """
    if rating is not None:
        if type(rating) is bool or not isinstance(rating, int | float):
            raise BadValue("rating", f"{rating!r:.80}", "give a number from 0 to 1")
        rating = float(rating)
    if run and await workspace.log.last(RunStream(run)) is None:
        raise NotFound(
            f"run {run!r:.80}", "give the id of the run that the feedback is about, or none"
        )
    name, which = prompts.split(reference)
    text = workspace.text(text)

    def feedback(state: PromptState) -> PromptFeedbackGiven:
        version = prompts.resolve(state, which)
        return PromptFeedbackGiven(version=version, text=text, rating=rating, run=run)

    return await versions.change(workspace, PROMPTS, name, feedback, by=by)


async def retire(
    workspace: Workspace, reference: str, *, reason: str = "", by: str | Actor
) -> ArtifactChange:
    """Retire a version. Raises NotFound, Refused (an alias names it), BadName, BadValue (no version
    is named).
    """
    name, which = prompts.split(reference)
    if not which:
        raise BadValue("version", "none is named", f"say which: {name}@3")
    reason = workspace.text(reason)

    def retired(state: PromptState) -> PromptRetired:
        return PromptRetired(version=prompts.resolve(state, which), because=reason)

    return await versions.change(workspace, PROMPTS, name, retired, by=by)


# Versions that answer feedback: by a rule, a function, or a model.
#
# The rules work on the text alone: equal text and feedback give an equal version.

FEEDBACK_MAX = 100
"""Most pieces of feedback that one version answers."""

BRIEF = "Answer as briefly as the task allows: no introduction, no repetition, no closing remark."
CONTEXT = (
    "Context:\n{context}\n\nWhere the context does not hold what is needed, say what is missing."
)

Evolver = Callable[[Prompt, str], str | Awaitable[str]]
"""Return the new text of a prompt that got feedback: a function, or one that calls a model."""

_BLANKS = re.compile(r"[ \t]+(?=\n|\Z)")
_GAPS = re.compile(r"\n{3,}")


def too_verbose(prompt: Prompt, _: str = "") -> str:
    """Add a request for brevity to the text, and remove repeated lines."""
    lines: list[str] = []
    seen: set[str] = set()
    for line in _BLANKS.sub("", prompt.text).split("\n"):
        words = " ".join(line.split()).casefold()
        if words and words in seen and len(words) >= LINE_CHARACTERS_MIN:
            continue
        seen.add(words)
        lines.append(line)
    text = _GAPS.sub("\n\n", "\n".join(lines)).strip("\n")
    return text if BRIEF in text else f"{text}\n\n{BRIEF}"


LINE_CHARACTERS_MIN = 20
"""Least characters of a repeated line that is removed: a shorter one (`}`) may be part of a form.
"""


def missing_context(prompt: Prompt, _: str = "") -> str:
    """Add a variable `context`, to be filled in by the caller, and a request to name what is
    missing in it.
    """
    if "context" in prompts.variables(prompt.text):
        return prompt.text
    text = prompt.text.rstrip("\n")
    return f"{text}\n\n{CONTEXT}"


RULES: Mapping[str, Callable[[Prompt, str], str]] = {
    "too_verbose": too_verbose,
    "missing_context": missing_context,
}
"""Built-in rules, by the feedback that they answer."""


def feedback_list(feedback: object) -> list[str]:
    """Return feedback as a list without duplicates. Raises BadValue."""
    parts = [feedback] if isinstance(feedback, str) else feedback
    if (
        not isinstance(parts, Sequence)
        or not 0 < len(parts) <= FEEDBACK_MAX
        or not all(isinstance(each, str) and each for each in parts)
    ):
        raise BadValue("feedback", f"{feedback!r:.80}", f"give 1 to {FEEDBACK_MAX} texts")
    return list(dict.fromkeys(parts))


def rule_of(feedback: str, using: Evolver | None) -> Evolver:
    """Return the evolver for a piece of feedback. Raises BadValue."""
    if using is not None:
        return using
    if feedback not in RULES:
        like = nearest(feedback, RULES)
        remedy = f"{like}give one of {', '.join(RULES)}, or using= a function that gives the text"
        raise BadValue("feedback", f"no rule answers {feedback!r:.80}", remedy)
    return RULES[feedback]


def with_text(prompt: Prompt, text: object) -> Prompt:
    """Return the prompt with the text of an evolver. Raises BadValue."""
    if not isinstance(text, str) or not text.strip():
        raise BadValue("the evolver's result", f"{text!r:.80}", "give the new text")
    return msgspec.structs.replace(prompt, text=str(text))


async def add_evolved(
    workspace: Workspace,
    before: Prompt,
    after: Prompt,
    feedback: Sequence[str],
    *,
    reason: str,
    by: str,
) -> Prompt:
    """Add an evolved text as a version and return it; return the previous version if the text is
    the same. Raises Refused, BadValue, Conflict after 50 lost races.
    """
    draft = Draft(
        text=after.text,
        model=before.model,
        parameters=before.parameters,
        parents=(before.version,),
        feedback_applied=tuple(feedback),
        because=reason,
    )
    change = await add(workspace, before.name, draft, by=by)
    return await get(workspace, f"{before.name}@{change.version}")
