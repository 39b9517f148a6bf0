"""An experience: the knowledge of one kind of task, and its files.

The files are a skill's folder: `SKILL.md`, `actions.json`, `graph.json`, `checks.json` and
`parameters.schema.json`. Equal experiences make equal bytes. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, assert_never
from urllib.parse import urlsplit

import msgspec

from hansard.domain import actions as caches
from hansard.domain import decider, ids
from hansard.domain.actions import ActionCache
from hansard.domain.choices import counted, nearest
from hansard.domain.decider import ArtifactKind, ArtifactState, By
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event, event
from hansard.domain.experience import checks as checking
from hansard.domain.experience.checks import (
    END,
    START,
    Check,
    CheckFunction,
    Procedure,
    base_of,
    named_functions,
)
from hansard.domain.experience.distil import Distilled, Wording, action_words
from hansard.domain.fingerprint import canonical

FORMAT = "hansard.experience.v1"
SKILL, ACTIONS, GRAPH, CHECKS = "SKILL.md", "actions.json", "graph.json", "checks.json"
PARAMETERS, ABOUT = "parameters.schema.json", "experience.json"
FILES = (SKILL, ACTIONS, GRAPH, CHECKS, PARAMETERS, ABOUT)
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
NAME_CHARACTERS_MAX = 64
LESSONS_MAX = 200
VALUE_CHARACTERS_MAX = 4_096
_MARKS = "---\n"


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of a plan, or an advice or warning.

    Attributes:
        says: The sentence.
        rests_on: The steps that support it, as `run/agent#step`; a sentence without any is dropped.
    """

    says: str
    rests_on: tuple[str, ...]


class Experience(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The knowledge of one kind of task.

    Attributes:
        name: `[a-z0-9-]`, at most 64.
        description: Its purpose, in words.
        wording: The wording of the task.
        script: The path taken most often, with slots.
        procedure: The graph.
        checks: The check functions that guard it: those of `procedure` that a person confirmed.
        sources: The demonstrations it was distilled from.
        failed: Demonstrations that failed: lessons are taken from them, actions never.
        left_out: The number of demonstrations that the procedure does not include.
        plan: Level 4: sentences that your function returned, each with its supporting steps; from
            runs that succeeded only.
        lessons: Level 5: the same, advice and warnings; from all runs.
        dropped: The number of sentences that no step of those runs supports, and that are not kept.
        functions: Checks in Python: of this workspace alone, in no file.
        left_out_checks: The names of those that the experience had when its files were written.
        version: From 1; 0 where the record that keeps it counts them.
        parent: The digest of the version that it was extended from.
        format: `hansard.experience.v1`.
    """

    name: str
    description: str
    wording: Wording
    script: ActionCache
    procedure: Procedure
    checks: tuple[Check, ...] = ()
    sources: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    left_out: int = 0
    plan: tuple[Lesson, ...] = ()
    lessons: tuple[Lesson, ...] = ()
    dropped: int = 0
    functions: tuple[CheckFunction, ...] = ()
    left_out_checks: tuple[str, ...] = ()
    version: int = 1
    parent: str = ""
    format: str = FORMAT

    @property
    def level(self) -> int:
        """5 with lessons, 4 with a plan in words, else 3: a procedure."""
        return 5 if self.lessons else 4 if self.plan else 3

    def params(self, task: str) -> dict[str, str] | None:
        """Return the slots' values in a task's text; None where its wording differs."""
        return self.wording.read(task)

    def confirmed(self, *names: str | CheckFunction) -> Experience:
        """Return it with the checks that a person confirms: all proposed ones, or the named ones.

        Functions of `actions.check_function` are run in addition, in this workspace alone.

        Raises:
            BadValue: No proposed check has that name, or two have the same name.
        """
        parts = [each for each in names if isinstance(each, str)]
        offered = {each.name: each for each in checking.proposed(self.procedure)}
        unknown = [name for name in parts if name not in offered]
        if unknown:
            fact = f"{unknown[0]!r:.80} is none of {counted(len(offered), 'proposed check')}"
            like = nearest(unknown[0], offered)
            raise BadValue("confirmed", fact, f"{like}`hansard experience show` lists them")
        kept = tuple(each for name, each in offered.items() if not parts or name in parts)
        functions = named_functions(kept, [each for each in names if not isinstance(each, str)])
        return msgspec.structs.replace(self, checks=kept, functions=functions)


def made(name: str, event: Distilled, *, description: str = "", version: int = 1) -> Experience:
    """Build an experience from a distilled task. Raises BadValue where that has no procedure, or
    for a name that no skill may have.
    """
    demand_name(name)
    if event.procedure is None or event.script is None:
        out = event.left_out[0].why if event.left_out else "no demonstration of it succeeded"
        fact = (
            f"no procedure: {len(event.sources)} demonstrations succeeded, and none is like "
            f"another: {out}"
        )
        raise BadValue(f"experience {name!r:.80}", fact, "give more runs of the same task")
    return Experience(
        name=name,
        description=description or f"Does the task: {event.wording.template}"[:1_000],
        wording=event.wording,
        script=event.script,
        procedure=event.procedure,
        sources=event.sources,
        failed=event.failed,
        left_out=len(event.left_out),
        version=version,
    )


def demand_name(name: str) -> None:
    """Check that a skill may have a name. Raises BadValue."""
    if not NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        fact = f"{name!r:.80} is no name of a skill"
        raise BadValue("experience", fact, "use a-z, 0-9 and single hyphens, at most 64")


def files(experience: Experience) -> dict[str, bytes]:
    """Return the files of an experience, by path; of checks in Python they hold only the names."""
    names = (*experience.left_out_checks, *(each.name for each in experience.functions))
    left_out = tuple(sorted(set(names)))
    experience = msgspec.structs.replace(experience, functions=(), left_out_checks=left_out)
    about: dict[str, Any] = msgspec.to_builtins(experience)
    about |= {"format": experience.format, "version": experience.version}
    for elsewhere in ("script", "procedure", "checks"):
        about.pop(elsewhere, None)
    return {
        SKILL: _skill(experience).encode(),
        ACTIONS: caches.encode(experience.script),
        GRAPH: checking.encode_procedure(experience.procedure),
        CHECKS: checking.encode(experience.checks),
        PARAMETERS: _pretty(parameters_schema(experience)),
        ABOUT: _pretty(about),
    }


def read(fields: Mapping[str, bytes], where: str = "the experience") -> Experience:
    """Read an experience from its files, all checked. Raises BadValue; no file is run."""
    missing = [name for name in (ABOUT, ACTIONS, GRAPH, CHECKS) if name not in fields]
    if missing:
        raise BadValue(where, f"there is no {missing[0]}", "give the whole folder")
    about = caches.loaded(fields[ABOUT], where, caches.FILE_BYTES_MAX, "give the whole folder")
    caches.formed(about, dict, FORMAT, where)
    procedure = checking.decode_procedure(fields[GRAPH], f"{where}, {GRAPH}")
    parts = {
        "script": msgspec.to_builtins(caches.decode(fields[ACTIONS], f"{where}, {ACTIONS}")),
        "procedure": msgspec.to_builtins(procedure),
        "checks": [
            msgspec.to_builtins(each)
            for each in checking.decode(fields[CHECKS], procedure, f"{where}, {CHECKS}")
        ],
    }
    experience = caches.formed(about | parts, Experience, FORMAT, f"{where}, {ABOUT}")
    _demand_one(experience, where)
    return experience


def of(content: Mapping[str, str]) -> Experience:
    """Read an experience from the texts of its files. Raises BadValue."""
    return read({path: text.encode() for path, text in content.items()})


def _demand_one(experience: Experience, where: str) -> None:
    """Check that the files belong to one experience. Raises BadValue."""
    if not NAME.fullmatch(experience.name) or len(experience.name) > NAME_CHARACTERS_MAX:
        raise BadValue(where, f"{experience.name!r:.80} is no name of a skill", "rename it")
    if len(experience.wording.parts) % 2 == 0:
        fact = "wording.parts are constants and slots in turn, and end with a slot"
        raise BadValue(where, fact, "distil it again")
    slots, graph = tuple(experience.wording.slots), experience.procedure.slots
    for name, other in ((GRAPH, graph[: len(slots)]), (ACTIONS, experience.script.slots)):
        target = slots if name == GRAPH else graph
        if tuple(other) != target:
            has, task_has = (", ".join(each) or "none" for each in (other, target))
            fact = f"{name} has the slots {has:.200}, and the task has {task_has:.200}"
            raise BadValue(where, fact, "give files that belong together")
    demand_few(experience, where)


def demand_few(experience: Experience, where: str) -> None:
    """Check the number of sentences against its limit. Raises BadValue."""
    for what, sentences in (
        ("sentences of a plan", experience.plan),
        ("lessons", experience.lessons),
    ):
        if len(sentences) > LESSONS_MAX:
            fact = f"{len(sentences):,} {what}, more than {LESSONS_MAX}"
            raise BadValue(where, fact, "give fewer")


def parameters_schema(experience: Experience) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of an execution's parameters."""
    text = {"type": "string", "minLength": 1, "maxLength": VALUE_CHARACTERS_MAX}
    slots = experience.procedure.slots
    required = [each for each in slots if not base_of(each, slots)]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": dict.fromkeys(slots, text),
        "required": required,
        "additionalProperties": False,
    }


def plan(experience: Experience) -> list[str]:
    """Describe the procedure in words, each action with its successors: for people and models."""
    named = {each.name: action_words(each.action) for each in experience.procedure.nodes}
    named |= {END: "done"}
    lines = []
    for name in (START, *(each.name for each in experience.procedure.nodes)):
        after = [named[each] for each in experience.procedure.after(name)]
        first = "First" if name == START else f"After `{named[name]}`"
        lines.append(f"{first}: {', else '.join(f'`{each}`' for each in after)}")
    return lines


def _skill(experience: Experience) -> str:
    """Write `SKILL.md`, as the specification of agent skills has it: metadata are texts."""
    metadata = {"version": str(experience.version)} if experience.version else {}
    metadata |= {
        "level": str(experience.level),
        "sources": str(len(experience.sources)),
        "failed": str(len(experience.failed)),
        "left-out": str(experience.left_out),
    }
    lines = [f"name: {experience.name}", f"description: {json.dumps(experience.description)}"]
    lines += ["metadata:", *(f"  {name}: {json.dumps(value)}" for name, value in metadata.items())]
    head = "".join(f"{line}\n" for line in lines)
    body = [f"# {experience.name}", "", "The task is worded like this:", ""]
    body += [f"> {experience.wording.template}", "", "What was done:", ""]
    body += [f"* {line}" for line in plan(experience)]
    for title, sentences in (("Plan:", experience.plan), ("Lessons:", experience.lessons)):
        if sentences:
            body += ["", title, ""]
            body += [f"* {each.says} ({', '.join(each.rests_on)})" for each in sentences]
    if experience.left_out_checks:
        named = ", ".join(f"`{each}`" for each in experience.left_out_checks)
        body += ["", f"Checks in Python that are not in this folder: {named}."]
    return f"{_MARKS}{head}{_MARKS}\n" + "\n".join(body) + "\n"


def with_sentences(
    experience: Experience,
    steps: Mapping[str, Collection[str]],
    *,
    plan: Sequence[Lesson] = (),
    lessons: Sequence[Lesson] = (),
) -> Experience:
    """Return the experience with sentences; one that no step of its runs supports is dropped and
    counted.

    A plan may only rest on demonstrations that succeeded.

    Args:
        experience: The experience.
        steps: The steps of each demonstration, as `run/agent#step`, by its source.
        plan: The sentences of the plan.
        lessons: The advice and warnings.
    """
    good = {step for run in experience.sources for step in steps.get(run, ())}
    known = good | {step for run in experience.failed for step in steps.get(run, ())}
    kept_plan = tuple(each for each in plan if _rests(each, good))
    kept = tuple(each for each in lessons if _rests(each, known))
    dropped = len(plan) + len(lessons) - len(kept_plan) - len(kept)
    return msgspec.structs.replace(experience, plan=kept_plan, lessons=kept, dropped=dropped)


def _rests(lesson: Lesson, steps: Collection[str]) -> bool:
    return bool(lesson.says.strip() and lesson.rests_on) and all(
        each in steps for each in lesson.rests_on
    )


def digest(experience: Experience) -> str:
    """Return the SHA-256 of its files: equal for equal experiences, regardless of their Python
    checks.
    """
    made = hashlib.sha256()
    for name, raw in sorted(files(experience).items()):
        made.update(f"{name} {len(raw)}\n".encode() + raw)
    return made.hexdigest()


def _pretty(value: object) -> bytes:
    raw = msgspec.json.encode(value, order="deterministic")
    return msgspec.json.format(raw, indent=2) + b"\n"


# An experience that is kept in the record by name: its versions, replays and permitted use. It
# outlives runs.
#
# A version is the files of an experience, with their digest; none ever changes. A version from a
# pack is untrusted until a person confirms that digest, and one that failed `FAILURES_MAX` times
# in a row is quarantined until there is another version.

KIND = "experience"
"""The kind of its stream; its id is the experience's name."""

FAILURES_MAX = 3
"""Consecutive failed replays of the newest version before it is quarantined."""

DIGEST_CHARACTERS_MIN = 12
"""Least characters of a digest that a person names: 48 bits."""

_BROWSER = {
    caches.ACT: "browser.act",
    caches.GOTO: "browser.goto",
    caches.EXTRACT: "browser.extract",
}


class ExperienceAbout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts by which a version is found.

    Attributes:
        description: Its purpose.
        task: The wording of the task, each slot as `{{name}}`.
        level: 3 for a procedure, 5 with lessons.
        tools: The tools that its actions call.
        hosts: The hosts of their pages.
        checks: The number of check functions that guard it.
        procedure: SHA-256 of its wording and graph, hexadecimal: equal for duplicates.
    """

    description: str
    task: str
    level: int
    tools: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    checks: int = 0
    procedure: str = ""


@event("experience.distilled.v1")
class ExperienceDistilled(Event, frozen=True, kw_only=True):
    """An experience distilled from runs is the next version.

    Attributes:
        version: Its number, from 1 in each experience.
        digest: SHA-256 of its content in RFC 8785 form, hexadecimal.
        content: Its files, text by path; a large one by reference (`$blob`).
        about: The facts by which it is found.
        sources: The runs that it was distilled from.
        failed: The runs that only lessons are taken from, no actions.
        parent: The version before it; 0 for none.
        because: The reason.
    """

    version: int
    digest: str
    content: msgspec.Raw
    about: ExperienceAbout
    sources: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    parent: int = 0
    because: str = ""


@event("experience.confirmed.v1")
class ExperienceConfirmed(Event, frozen=True, kw_only=True):
    """A person confirmed the check functions of a version: with them it is the next one.

    Attributes:
        version: Its number.
        digest: Digest of its content.
        content: Its files.
        about: The facts by which it is found.
        parent: The reviewed version.
        because: The result of the review.
    """

    version: int
    digest: str
    content: msgspec.Raw
    about: ExperienceAbout
    parent: int
    because: str = ""


@event("experience.healed.v1")
class ExperienceHealed(Event, frozen=True, kw_only=True):
    """A node's element was found elsewhere, and its action succeeded there: the next version.

    Attributes:
        version: Its number.
        digest: Digest of its content.
        content: Its files.
        about: The facts by which it is found.
        parent: The version that was replayed.
        node: The node.
        run: The run of the replay.
        because: The part that did not match any more.
    """

    version: int
    digest: str
    content: msgspec.Raw
    about: ExperienceAbout
    parent: int
    node: str
    run: str = ""
    because: str = ""


@event("experience.installed.v1")
class ExperienceInstalled(Event, frozen=True, kw_only=True):
    """A version from a pack; it is untrusted until it is confirmed.

    Attributes:
        version: Its number.
        digest: Digest of its content.
        content: Its files.
        about: The facts by which it is found.
        bundle: SHA-256 of the file that an earlier version of Hansard wrote; empty for a pack.
        sources: The runs that it was distilled from, as the pack states: they may be elsewhere.
        key: The public key that signed it; empty for none.
        license: Its license, as the pack states.
        parent: The version before it; 0 for none.
        because: The reason.
    """

    version: int
    digest: str
    content: msgspec.Raw
    about: ExperienceAbout
    bundle: str
    sources: tuple[str, ...] = ()
    key: str = ""
    license: str = ""
    parent: int = 0
    because: str = ""


@event("experience.replayed.v1")
class ExperienceReplayed(Event, frozen=True, kw_only=True):
    """A task was done by a version, or begun and not completed.

    Attributes:
        version: The version.
        digest: Digest of its content.
        run: The run.
        agent: The agent.
        step: The step of the whole replay.
        success: True if it reached an end of the procedure, and every check passed.
        checks: The number of check functions that guarded it.
        done: The number of actions done.
        level: 2 or 3: the level of the least specific action.
        failed_check: The check function that stopped it; empty for none.
        error: The reason why it was not completed; empty where it was.
    """

    version: int
    run: str
    agent: str
    step: int
    success: bool
    checks: int
    done: int = 0
    level: int = 0
    failed_check: str = ""
    error: str = ""


@event("experience.published.v1")
class ExperiencePublished(Event, frozen=True, kw_only=True):
    """An earlier version of Hansard wrote a version as a file for others: now packs are made.

    Attributes:
        version: The version.
        bundle: SHA-256 of the file.
        key: The public key that signed it; empty for none.
        license: Its license.
        because: The reason.
    """

    version: int
    bundle: str
    key: str = ""
    license: str = ""
    because: str = ""


@event("experience.retired.v1")
class ExperienceRetired(Event, frozen=True, kw_only=True):
    """The experience is not to be used any more, until a version is confirmed again.

    Attributes:
        version: The newest version at that time.
        because: The reason.
    """

    version: int
    because: str = ""


ExperienceVersion = (
    ExperienceDistilled | ExperienceConfirmed | ExperienceHealed | ExperienceInstalled
)
_Decided = (
    ExperienceDistilled
    | ExperienceConfirmed
    | ExperienceHealed
    | ExperienceReplayed
    | ExperienceRetired
)
ExperienceEvent = _Decided | ExperienceInstalled | ExperiencePublished


class ExperienceStanding(StrEnum):
    """The permitted use of an experience.

    Attributes:
        GUIDES: No check function guards it: it may guide, not act.
        CONFIRMED: It may act, guarded by its check functions.
        UNTRUSTED: It is from a pack, and has not been confirmed.
        QUARANTINED: Its newest version failed too often in a row.
        RETIRED: A person retired it.
    """

    GUIDES = "guides"
    CONFIRMED = "confirmed"
    UNTRUSTED = "untrusted"
    QUARANTINED = "quarantined"
    RETIRED = "retired"


class ExperienceState(ArtifactState[ExperienceVersion]):
    """An experience at a `version` of its stream.

    Attributes:
        untrusted: Versions from a pack, and heals of them.
        failures: Consecutive failed replays of the newest version.
        retired: The reason for retiring it; None where it is in use.
        replays: Run, agent and step of each.
    """

    remedy = "distil one"

    untrusted: set[int] = set()
    failures: int = 0
    retired: str | None = None
    replays: set[tuple[str, str, int]] = set()

    def standing_of(self, version: int) -> ExperienceStanding:
        """Return the permitted use of a version."""
        if self.retired is not None:
            return ExperienceStanding.RETIRED
        if version == self.newest and self.failures >= FAILURES_MAX:
            return ExperienceStanding.QUARANTINED
        if version in self.untrusted:
            return ExperienceStanding.UNTRUSTED
        checks = self.versions[version].about.checks if version in self.versions else 0
        return ExperienceStanding.CONFIRMED if checks else ExperienceStanding.GUIDES

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        match event:
            case (
                ExperienceDistilled()
                | ExperienceConfirmed()
                | ExperienceHealed()
                | ExperienceInstalled()
            ):
                self.versions[event.version] = event
                self.failures = 0
                if isinstance(event, ExperienceConfirmed):
                    self.retired = None
                elif isinstance(event, ExperienceInstalled) or (
                    isinstance(event, ExperienceHealed) and event.parent in self.untrusted
                ):
                    self.untrusted.add(event.version)
            case ExperienceReplayed():
                self.replays.add((event.run, event.agent, event.step))
                if event.version == self.newest:
                    self.failures = 0 if event.success else self.failures + 1
            case ExperiencePublished():
                pass
            case ExperienceRetired():
                self.retired = event.because
            case _:
                super()._evolve(event, by)


initial = ExperienceState
fold = decider.fold


def at_digest(state: ExperienceState, digest: str) -> int:
    """Return the newest version whose digest begins with a text.

    Raises BadValue for one that is too short, Refused where there is none.
    """
    if len(digest) < DIGEST_CHARACTERS_MIN:
        fact = f"{digest!r:.80} has fewer than {DIGEST_CHARACTERS_MIN} characters"
        raise BadValue("digest", fact, "give it whole, or its beginning")
    numbers = [each for each, item in state.versions.items() if item.digest.startswith(digest)]
    if not numbers:
        message = f"no version has the digest {digest!r:.80}"
        raise Refused(message)
    return max(numbers)


def demand_usable(state: ExperienceState, name: str, version: int) -> None:
    """Check that a version may be used. Raises Refused with the remedy."""
    confirm = f"review it (`hansard experience show {name}`), and confirm it"
    if state.retired is not None:
        because = f" ({state.retired:.200})" if state.retired else ""
        message = f"it is retired{because}: take another, or {confirm}"
        raise Refused(message)
    if version in state.untrusted:
        digest = state.versions[version].digest
        message = (
            f"version {version} is from a pack, and nobody has confirmed it: {confirm} with "
            f"--digest {digest[:DIGEST_CHARACTERS_MIN]}"
        )
        raise Refused(message)
    if version == state.newest and state.failures >= FAILURES_MAX:
        message = (
            f"version {version} is quarantined: it failed {state.failures} times in a row; distil "
            f"another, or {confirm}"
        )
        raise Refused(message)


def decide(state: ExperienceState, event: _Decided) -> Sequence[ExperienceEvent]:
    """Return the events of a statement; none where it changes nothing. A version gets its number
    here. A heal of an older version is dropped: a later change takes precedence.

    Raises Refused.
    """
    match event:
        case ExperienceDistilled():
            number = state.next_number()
            if _has(state, event):
                return ()
            return (msgspec.structs.replace(event, version=number, parent=state.newest),)
        case ExperienceConfirmed() | ExperienceHealed():
            number = state.next_number()
            state.demand(event.parent)
            return () if _has(state, event) else (msgspec.structs.replace(event, version=number),)
        case ExperienceReplayed():
            state.demand(event.version)
            return () if (event.run, event.agent, event.step) in state.replays else (event,)
        case ExperienceRetired():
            state.demand(state.newest)
            if state.retired is not None:
                return ()
            return (msgspec.structs.replace(event, version=state.newest),)
        case _:
            assert_never(event)


def _has(
    state: ExperienceState, event: ExperienceDistilled | ExperienceConfirmed | ExperienceHealed
) -> bool:
    """Return whether a version would change nothing, or is outdated."""
    newest = state.versions.get(state.newest)
    same = newest is not None and newest.digest == event.digest
    match event:
        case ExperienceDistilled():
            return same or _taught(state) == event.digest
        case ExperienceConfirmed():
            confirmed = isinstance(newest, ExperienceConfirmed)
            usable = state.standing_of(state.newest) is ExperienceStanding.CONFIRMED
            return same and confirmed and usable
        case ExperienceHealed():
            return same or event.parent != state.newest
        case _:
            assert_never(event)


def _taught(state: ExperienceState) -> str:
    """Return the digest of the distilled version under the newest; empty where there is none.

    Its heals and confirmations add no new knowledge.
    """
    each = state.versions.get(state.newest)
    while isinstance(each, ExperienceHealed | ExperienceConfirmed):
        each = state.versions[each.parent]
    return each.digest if isinstance(each, ExperienceDistilled) else ""


def check_name(name: object) -> str:
    """Return an experience's name, checked. Raises BadName, BadValue."""
    checked = ids.name("experience", name)
    demand_name(checked)
    return checked


EXPERIENCES = ArtifactKind(
    kind=KIND,
    noun="experience",
    remedy="`hansard experience list` lists them; `hansard experience distil NAME RUN...` makes "
    "one",
    initial=ExperienceState,
    decide=decide,
    check_name=check_name,
)


def content_of(experience: Experience) -> dict[str, str]:
    """Return an experience's files as texts by path, without its version, which the record
    counts.
    """
    plain = msgspec.structs.replace(experience, version=0)
    return {path: raw.decode() for path, raw in files(plain).items()}


def digest_of(content: Mapping[str, str]) -> str:
    """Return the digest of a version: SHA-256, hexadecimal, of its files in RFC 8785 form."""
    return hashlib.sha256(canonical(dict(content))).hexdigest()


def about(experience: Experience) -> ExperienceAbout:
    """Return the facts by which an experience is found."""
    actions = [each.action for each in experience.procedure.nodes]
    tools = {
        (each.method or "")
        if each.action_type == caches.TOOL
        else _BROWSER.get(each.action_type, "browser.turn")
        for each in actions
    }
    same = [experience.wording, experience.procedure]
    hosts = {urlsplit(each.page.address).hostname or "" for each in actions if each.page}
    return ExperienceAbout(
        description=experience.description,
        task=experience.wording.template,
        level=experience.level,
        tools=tuple(sorted(tools - {""})),
        hosts=tuple(sorted(hosts - {""})),
        checks=len(experience.checks),
        procedure=hashlib.sha256(canonical(msgspec.to_builtins(same))).hexdigest(),
    )
