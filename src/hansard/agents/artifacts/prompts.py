"""Reading, writing and import of prompts: each change is one commit in the prompt's own stream.

Long because each source of an import has its own form.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hansard.agents.artifacts import versions
from hansard.agents.artifacts.versions import Artifact, ArtifactChange
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.bus.file_lock import read_text
from hansard.bus.log import Stored
from hansard.domain import prompt as prompts
from hansard.domain import values
from hansard.domain.choices import Brief, nearest, shortened
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
    artifact = await versions.read(workspace, PROMPTS, name)
    try:
        version = prompts.resolve(artifact.state, which)
    except Refused as error:
        message = f"{KIND} {name!r}: {error}"
        raise Refused(message) from error
    return of_version(artifact, name, version, which if which in artifact.state.aliases else "")


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
        artifact = versions.of_commits(PROMPTS, commits)
        usable = artifact.state.versions.keys() - artifact.state.retired
        if usable:
            made.append(of_version(artifact, name, max(usable)))
    return made


def of_version(artifact: Artifact[PromptState], name: str, version: int, alias: str = "") -> Prompt:
    """Return a version of a prompt."""
    event = artifact.state.versions[version]
    return Prompt(
        name=name,
        version=version,
        text=event.text,
        model=event.model,
        parameters=parameters_of(event),
        alias=alias,
        parents=event.parents,
        feedback_applied=event.feedback_applied,
        because=event.because,
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
        prompt = await get(workspace, reference)
        if prompt.retired is not None:
            message = f"prompt {prompt.reference} is retired: name another version"
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
        raise BadValue("the version", str(error), "see record.prompts.add") from error
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

    return await versions.change(workspace, PROMPTS, name, moved, by=by)


async def feed_back(
    workspace: Workspace,
    reference: str,
    text: str,
    *,
    rating: float | None = None,
    run: str | None = None,
    by: str | Actor,
) -> ArtifactChange:
    """Record feedback on a version. Raises NotFound (no such prompt or run),
    Refused, BadValue, BadName.
    """
    if rating is not None:
        if type(rating) is bool or not isinstance(rating, int | float):
            raise BadValue("rating", f"{rating!r:.80} is no number", "give one from 0 to 1")
        rating = float(rating)
    remedy = "give the id of the run that the feedback is about, or leave it out"
    if run == "":
        raise BadValue("run", "it is empty", remedy)
    if run is not None and await workspace.log.last(RunStream(run)) is None:
        raise NotFound(f"run {run!r:.80}", remedy)
    name, which = prompts.split(reference)
    text = workspace.text(text)

    def feedback(state: PromptState) -> PromptFeedbackGiven:
        version = prompts.resolve(state, which)
        return PromptFeedbackGiven(version=version, text=text, rating=rating, run=run or "")

    return await versions.change(workspace, PROMPTS, name, feedback, by=by)


async def retire(
    workspace: Workspace, reference: str, *, reason: str = "", by: str | Actor
) -> ArtifactChange:
    """Retire a version. Raises NotFound, Refused (an alias names it), BadName, BadValue (no version
    is named).
    """
    name, which = prompts.split(reference)
    reason = workspace.text(reason)

    def retired(state: PromptState) -> PromptRetired:
        prompts.demand_named(state, name, which)
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


# Import of prompt versions made by other tools.
#
# * A folder of a GEPA run: `candidate_tree.html` has each candidate's texts, parents and mean
# score, and the best one; `run_log.txt` the scores by instance. `gepa_state.bin` is a pickle:
# never read.
# * `.json`: a `GEPAResult.to_dict()` of GEPA, or a program saved by DSPy, one prompt a predictor.
# * `.dot` (Graphviz, as GEPA writes it): `N [label="N\n(SCORE)"]` is a candidate, `A -> B` means
# that B was derived from A. It has no texts: a version has the candidate's number as a parameter.
# * `.jsonl` or `.ndjson`: one version per line, `{version, prompt, parents, feedback_applied,
# because, model, parameters, claimed}`; `parent_version` may replace `parents`, lines of another
# `kind` are skipped.
#
# A version is added after its parents. Importing again adds nothing.

FILE_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes of a file: far more than the most versions of a prompt need in practice."""

BEST = "best"
"""Alias of the best candidate of an optimizer's run."""

_NODE = re.compile(r'^\s*(\d+)\s*\[[^]\n]*?label="(\d+)\\n\(([^)"]*)\)"[^]\n]*\]\s*;?\s*$')
_EDGE = re.compile(r"^\s*(\d+)\s*->\s*(\d+)\s*(?:\[[^]]*\])?\s*;?\s*$")
_FRAME = re.compile(
    r"^\s*(?:(?:strict\s+)?digraph\b.*\{|\}|(?:node|edge|graph)\s*\[.*\];?|//.*|)\s*$"
)
_TREE, _LOG, _PICKLE = "candidate_tree.html", "run_log.txt", "gepa_state.bin"
_NODES = "const NODES = "
_SCORES = re.compile(r"^Iteration \d+: Individual valset scores for new program: (\{.*\})$")
_CANDIDATE = re.compile(r"^Iteration \d+: New program candidate index: (\d+)$")
_KNOWN = "give a GEPA run folder, .json (GEPA, DSPy), .dot or .jsonl"


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A version in a source, with its number there and those of its parents."""

    number: int
    parents: tuple[int, ...]
    draft: Draft


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a source.

    Attributes:
        prompts: Versions of each prompt, by the suffix of the imported name; "" for none.
        best: Number of the version that the source marks as the best.
        notes: Parts that were not read, with reasons; a sentence each.
    """

    prompts: dict[str, list[Candidate]]
    best: int | None = None
    notes: list[str] = []


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of a prompt after an import.

    Attributes:
        prompt: Name of the prompt.
        versions: Versions by their number in the source.
        added: Number of new versions.
        edges: Number of parents.
        merges: Number of versions with two parents.
        best: Version of the alias `best`; None if there is none.
    """

    prompt: str
    versions: dict[int, int]
    added: int
    edges: int
    merges: int
    best: int | None = None


def read_source(path: Path) -> Source:
    """Read a file or a folder. Raises BadValue, which names the place of the fault."""
    if path.is_dir():
        return _from_folder(path)
    match path.suffix:
        case ".dot" | ".gv":
            return Source(prompts={"": from_dot(_text(path), path.name)})
        case ".jsonl" | ".ndjson":
            return Source(prompts={"": from_lines(_text(path), path.name)})
        case ".json":
            return _from_json(_text(path), path.name)
        case ".pkl" | ".bin":
            raise _pickled(path.name)
        case _:
            raise BadValue("file", f"{path.name!r:.80} is of no known form", _KNOWN)


def _text(path: Path) -> str:
    return read_text(path, FILE_BYTES_MAX, _KNOWN)


def _pickled(name: str) -> BadValue:
    remedy = (
        "save a DSPy program with program.save('program.json'), or a GEPA result with "
        "json.dump(result.to_dict(), file)"
    )
    return BadValue(name, "it is a pickle, which can run any code and is never loaded", remedy)


class _Node(msgspec.Struct, frozen=True):
    """A candidate on GEPA's page."""

    idx: int
    score: float
    parents: str
    components: dict[str, str]
    role: str = ""


def _from_folder(folder: Path) -> Source:
    """Read a GEPA run folder. Raises BadValue."""
    if not (folder / _TREE).is_file():
        pickles = [name for name in (_PICKLE, "program.pkl") if (folder / name).is_file()]
        if pickles:
            raise _pickled(pickles[0])
        raise BadValue(f"{folder}", f"it has no {_TREE}", _KNOWN)
    where, page = f"{folder.name}/{_TREE}", _text(folder / _TREE)
    begin = page.find(_NODES)
    try:
        raw, _ = json.JSONDecoder().raw_decode(page, begin + len(_NODES) if begin >= 0 else 0)
        nodes = msgspec.convert(raw, list[_Node])
        parents = [[int(each) for each in re.findall(r"\d+", node.parents)] for node in nodes]
    except (ValueError, msgspec.ValidationError) as error:
        raise BadValue(where, f"its candidates cannot be read: {error}", _KNOWN) from error
    by_instance = _instances(_text(folder / _LOG)) if (folder / _LOG).is_file() else {}
    scores: list[dict[str, float]] = []
    for node in nodes:
        known = by_instance.get(node.idx, {})
        mean = math.fsum(known.values()) / len(known) if known else node.score
        is_same = round(mean, 4) == node.score  # the page rounds means to four digits
        scores.append(_metrics(mean, known) if is_same else _metrics(node.score, {}))
    without = [node.idx for node, item in zip(nodes, scores, strict=True) if len(item) == 1]
    notes = [f"{folder.name}/{_PICKLE} is a pickle and was not read"]
    if without:
        shown = shortened([str(number) for number in without])
        notes.append(
            f"{_LOG} has no scores by instance of candidates {shown}: import the JSON of "
            "result.to_dict() to have them, too"
        )
    numbers = [node.idx for node in nodes]
    texts = [node.components for node in nodes]
    best = next((node.idx for node in nodes if node.role == "Best"), None)
    return _candidates(folder.name, numbers, texts, parents, scores, best, notes)


def _instances(log: str) -> dict[int, dict[str, float]]:
    """Return the scores per instance in GEPA's log, by candidate."""
    by_candidate: dict[int, dict[str, float]] = {}
    last: dict[str, float] = {}
    for line in log.splitlines():
        if scores := _SCORES.match(line):
            try:
                fields = ast.literal_eval(scores[1])
                last = {str(name): float(score) for name, score in fields.items()}
            except (
                ValueError,
                TypeError,
                SyntaxError,
                AttributeError,
                RecursionError,
                MemoryError,
            ):
                last = {}
        elif candidate := _CANDIDATE.match(line):
            by_candidate[int(candidate[1])] = last
            last = {}
    return by_candidate


def _metrics(mean: float, by_instance: Mapping[str, float]) -> dict[str, float]:
    return {"score": mean, **{f"score[{name}]": value for name, value in by_instance.items()}}


class _Result(msgspec.Struct, frozen=True):
    """`GEPAResult.to_dict()`."""

    candidates: list[dict[str, str]]
    parents: list[list[int | None]]
    val_aggregate_scores: list[float]
    val_subscores: list[dict[str, float] | list[float]]
    best_idx: int | None = None


class _Signature(msgspec.Struct, frozen=True):
    """A signature of a saved DSPy program."""

    instructions: str
    fields: list[dict[str, Any]] = []


class _Predictor(msgspec.Struct, frozen=True):
    """A predictor of a saved DSPy program."""

    signature: _Signature
    demos: list[dict[str, Any]] = []
    lm: dict[str, Any] | None = None


def _from_json(text: str, source: str) -> Source:
    """Read a result of GEPA or a program of DSPy. Raises BadValue."""
    try:
        document = msgspec.json.decode(text)
        if isinstance(document, dict) and "candidates" in document:
            return _from_result(msgspec.convert(document, _Result), source)
        if isinstance(document, dict) and "signature" in document:
            return _from_program({"": document}, source)
        if isinstance(document, dict) and "metadata" in document:
            return _from_program({k: v for k, v in document.items() if k != "metadata"}, source)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadValue(source, f"{error}", _KNOWN) from error
    fact = "it is neither a result of GEPA nor a program that DSPy saved"
    raise BadValue(source, fact, _KNOWN)


def _from_result(result: _Result, source: str) -> Source:
    counts = {len(result.candidates), len(result.parents), len(result.val_aggregate_scores)}
    if counts != {len(result.val_subscores)}:
        fact = "candidates, parents and scores differ in number"
        raise BadValue(source, fact, "write it again with result.to_dict()")
    scores = [
        _metrics(
            mean,
            item if isinstance(item, dict) else {str(at): each for at, each in enumerate(item)},
        )
        for mean, item in zip(result.val_aggregate_scores, result.val_subscores, strict=True)
    ]
    parents = [[each for each in of if each is not None] for of in result.parents]
    numbers = list(range(len(result.candidates)))
    return _candidates(source, numbers, result.candidates, parents, scores, result.best_idx, [])


def _candidates(
    source: str,
    numbers: Sequence[int],
    texts: Sequence[Mapping[str, str]],
    parents: Sequence[Sequence[int]],
    scores: Sequence[Mapping[str, float]],
    best: int | None,
    notes: list[str],
) -> Source:
    """Return GEPA's candidates as versions; each of several components is a prompt of its own."""
    names = sorted({name for each in texts for name in each})
    made: dict[str, list[Candidate]] = {}
    for name in names:
        candidates = [
            Candidate(
                number=number,
                parents=tuple(dict.fromkeys(of)),
                draft=Draft(
                    text=components.get(name, ""),
                    because=f"candidate {number} of {source} (GEPA)",
                    metrics=metrics,
                ),
            )
            for number, components, of, metrics in zip(numbers, texts, parents, scores, strict=True)
        ]
        made[name if len(names) > 1 else ""] = _in_order(candidates, source)
    if not made:
        raise BadValue(source, "it has no candidate", "let the run evaluate its seed first")
    return Source(prompts=made, best=best, notes=notes)


def _from_program(predictors: Mapping[str, Any], source: str) -> Source:
    """Read a saved DSPy program: instructions become the text, fields and demonstrations
    parameters.
    """
    made: dict[str, list[Candidate]] = {}
    for name, raw in predictors.items():
        each = msgspec.convert(raw, _Predictor)
        parameters = {"fields": each.signature.fields, "demos": each.demos, "lm": each.lm}
        draft = Draft(
            text=each.signature.instructions,
            model=str((each.lm or {}).get("model", "")),
            parameters={key: value for key, value in parameters.items() if value},
            because=f"{name or 'the predictor'} of {source} (DSPy)",
        )
        made[name if len(predictors) > 1 else ""] = [Candidate(number=1, parents=(), draft=draft)]
    if not made:
        raise BadValue(source, "it has no predictor", "save a program that has one")
    return Source(prompts=made)


def from_dot(text: str, source: str) -> list[Candidate]:
    """Parse the candidates of a tree. Raises BadValue."""
    scores: dict[int, float] = {}
    parents: dict[int, list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{source}, line {number}"
        node, edge = _NODE.match(line), _EDGE.match(line)
        if node is not None:
            if node[1] != node[2] or int(node[1]) in scores:
                raise BadValue(where, f"{line.strip()!r:.80}", "name each candidate once")
            scores[int(node[1])] = _score(node[3], where)
        elif edge is not None:
            parents.setdefault(int(edge[2]), []).append(int(edge[1]))
        elif not _FRAME.match(line):
            remedy = 'give N [label="N\\n(SCORE)"] or A -> B'
            raise BadValue(where, f"{line.strip()!r:.80}", remedy)
    return _in_order(
        [
            Candidate(
                number=each,
                parents=tuple(dict.fromkeys(parents.pop(each, ()))),
                draft=Draft(
                    text="",
                    parameters={"source": source, "candidate": each},
                    metrics={"score": score},
                ),
            )
            for each, score in scores.items()
        ],
        source,
        unknown=parents,
    )


def _score(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise BadValue(where, f"score {text!r:.80}", "give a number") from error


def from_lines(text: str, source: str) -> list[Candidate]:
    """Parse versions from lines of JSON. Raises BadValue."""
    candidates: list[Candidate] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        try:
            fields = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise BadValue(where, f"it is no JSON: {error}", "give a version a line") from error
        if not isinstance(fields, dict):
            raise BadValue(where, f"{fields!r:.80}", "give an object")
        if fields.get("kind", "version") == "version":
            candidates.append(_candidate(fields, where))
    return _in_order(candidates, source)


class _Line(msgspec.Struct, frozen=True):
    """A version in a line of JSON."""

    version: int
    prompt: str
    parents: tuple[int, ...] = ()
    parent_version: int | None = None
    feedback_applied: tuple[str, ...] = ()
    because: str = ""
    model: str = ""
    parameters: dict[str, Any] = {}
    claimed: dict[str, float] = {}


def _candidate(fields: Mapping[str, Any], where: str) -> Candidate:
    try:
        line = msgspec.convert(fields, _Line)
    except msgspec.ValidationError as error:
        raise BadValue(where, str(error), "give version, prompt and parents") from error
    parent = (line.parent_version,) if line.parent_version is not None else ()
    return Candidate(
        number=line.version,
        parents=line.parents or parent,
        draft=Draft(
            text=line.prompt,
            model=line.model,
            parameters=line.parameters,
            feedback_applied=line.feedback_applied,
            because=line.because,
            metrics=line.claimed,
        ),
    )


def _in_order(
    candidates: Sequence[Candidate], source: str, unknown: Mapping[int, Sequence[int]] | None = None
) -> list[Candidate]:
    """Sort the versions so that each follows its parents. Raises BadValue for a cycle, or an
    unknown parent.
    """
    if not candidates:
        raise BadValue(source, "it has no version", "give at least one")
    there = {each.number for each in candidates}
    if len(there) < len(candidates):
        raise BadValue(source, "two versions have one number", "give each number once")
    for each in candidates:
        if len(each.parents) > prompts.PARENTS_MAX:
            fact = f"version {each.number} has {len(each.parents)} parents"
            raise BadValue(source, fact, f"give up to {prompts.PARENTS_MAX}")
    stray = sorted(
        {parent for each in candidates for parent in each.parents if parent not in there}
    )
    if stray or unknown:
        raise BadValue(source, f"{(stray or list(unknown or ()))[0]} is no version", "give it, too")
    done: dict[int, Candidate] = {}
    waiting = sorted(candidates, key=lambda each: each.number)
    while waiting:
        ready = [each for each in waiting if all(parent in done for parent in each.parents)]
        if not ready:
            fact = f"version {waiting[0].number} is its own ancestor"
            raise BadValue(source, fact, "remove a parent from the cycle")
        done |= {each.number: each for each in ready}
        waiting = [each for each in waiting if each.number not in done]
    return list(done.values())


async def import_source(
    workspace: Workspace, name: str, source: Source, *, by: str
) -> list[Lineage]:
    """Add the versions of a source to the prompt of a name, or to `NAME/PART` for each of several,
    each in one commit. The alias `best` names the best one unless it is already set. A killed
    import continues when it is run again. Raises Refused, BadValue, BadName.
    """
    lineages: list[Lineage] = []
    for part, candidates in source.prompts.items():
        prompt = prompts.check_name(f"{name}/{part}" if part else name)
        made = await _import_prompt(workspace, prompt, candidates, by)
        best = made.versions.get(source.best) if source.best is not None else None
        if best is not None:
            aliases = (await versions.read(workspace, PROMPTS, prompt)).state.aliases
            if BEST not in aliases:
                because = f"the best candidate of its source, {source.best}"
                await move(workspace, f"{prompt}@{best}", Move(alias=BEST, because=because), by=by)
            elif aliases[BEST] != best:
                best = None
        lineages.append(msgspec.structs.replace(made, best=best))
    return lineages


async def _import_prompt(
    workspace: Workspace, name: str, candidates: Sequence[Candidate], by: str
) -> Lineage:
    versions: dict[int, int] = {}
    added = 0
    for each in candidates:
        parents = tuple(dict.fromkeys(versions[parent] for parent in each.parents))
        draft = msgspec.structs.replace(each.draft, parents=parents)
        done = await add(workspace, name, draft, by=by)
        versions[each.number] = done.version
        added += done.is_new
    return Lineage(
        prompt=name,
        versions=versions,
        added=added,
        edges=sum(len(each.parents) for each in candidates),
        merges=sum(len(each.parents) > 1 for each in candidates),
    )
