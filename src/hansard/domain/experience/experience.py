"""An experience: the knowledge of one kind of task, and its files.

The files are a skill's folder: `SKILL.md`, `actions.json`, `graph.json`, `checks.json` and
`parameters.schema.json`. Equal experiences make equal bytes. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from hansard.domain.actions import cache as caches
from hansard.domain.actions.cache import ActionCache
from hansard.domain.choices import counted, nearest
from hansard.domain.errors import BadValue
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
