r"""Versions that were made elsewhere: an optimiser's tree of candidates, or versions as a log of
ours writes them.

* `.dot` (Graphviz, as GEPA writes it): `N [label="N\n(SCORE)"]` is a candidate, `A -> B` says
  that B was made of A. It tells no texts: a version has the candidate's number as a parameter.
* `.jsonl` or `.ndjson`: a version a line, `{version, prompt, parents, feedback_applied, because,
  model, parameters, claimed}`; `parent_version` may stand for `parents`, lines of another `kind`
  are passed over.

A version is added after its parents. Importing again adds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hansard.agents.prompts.store import Draft, add, stream_of
from hansard.agents.workspace import Workspace
from hansard.domain import prompt as prompts
from hansard.domain.errors import BadValue

FILE_BYTES_MAX = 64 * 1024 * 1024
"""Of a file: far more than the most versions of a prompt take in practice."""

_NODE = re.compile(r'^\s*(\d+)\s*\[[^]\n]*?label="(\d+)\\n\(([^)"]*)\)"[^]\n]*\]\s*;?\s*$')
_EDGE = re.compile(r"^\s*(\d+)\s*->\s*(\d+)\s*(?:\[[^]]*\])?\s*;?\s*$")
_FRAME = re.compile(
    r"^\s*(?:(?:strict\s+)?digraph\b.*\{|\}|(?:node|edge|graph)\s*\[.*\];?|//.*|)\s*$"
)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a source: its number there, and those of its parents."""

    number: int
    parents: tuple[int, ...]
    draft: Draft


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """What an import came to: the version that each number of the source is.

    Attributes:
        versions: By the source's numbers.
        added: How many are new.
        edges: How many parents are named.
        merges: How many versions have two.
    """

    versions: dict[int, int]
    added: int
    edges: int
    merges: int


def read_file(path: Path) -> list[Candidate]:
    """The versions of a file. Raises BadValue, which names the line."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadValue("file", str(error), "give a .dot or .jsonl file") from error
    if len(raw) > FILE_BYTES_MAX:
        raise BadValue("file", f"{path} has more than {FILE_BYTES_MAX:,} bytes", "split it")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadValue(f"{path}", f"it is no UTF-8: {error}", "give it as UTF-8") from error
    match path.suffix:
        case ".dot" | ".gv":
            return from_dot(text, path.name)
        case ".jsonl" | ".ndjson":
            return from_lines(text, path.name)
        case _:
            raise BadValue("file", f"{path.name!r:.80} is of no known form", "give .dot or .jsonl")


def from_dot(text: str, source: str) -> list[Candidate]:
    """The candidates of a tree. Raises BadValue."""
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
    """The versions of lines of JSON. Raises BadValue."""
    found: list[Candidate] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        try:
            told = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise BadValue(where, f"it is no JSON: {error}", "give a version a line") from error
        if not isinstance(told, dict):
            raise BadValue(where, f"{told!r:.80}", "give an object")
        if told.get("kind", "version") == "version":
            found.append(_candidate(told, where))
    return _in_order(found, source)


class _Line(msgspec.Struct, frozen=True):
    """A version as a line has it."""

    version: int
    prompt: str
    parents: tuple[int, ...] = ()
    parent_version: int | None = None
    feedback_applied: tuple[str, ...] = ()
    because: str = ""
    model: str = ""
    parameters: dict[str, Any] = {}
    claimed: dict[str, float] = {}


def _candidate(told: Mapping[str, Any], where: str) -> Candidate:
    try:
        line = msgspec.convert(told, _Line)
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
    found: Sequence[Candidate], source: str, unknown: Mapping[int, Sequence[int]] | None = None
) -> list[Candidate]:
    """The versions, each after its parents. Raises BadValue for a circle, or a stray parent."""
    if not found:
        raise BadValue(source, "it has no version", "give at least one")
    there = {each.number for each in found}
    if len(there) < len(found):
        raise BadValue(source, "two versions have one number", "give each number once")
    for each in found:
        if len(each.parents) > prompts.PARENTS_MAX:
            fact = f"version {each.number} has {len(each.parents)} parents"
            raise BadValue(source, fact, f"give up to {prompts.PARENTS_MAX}")
    stray = sorted({parent for each in found for parent in each.parents if parent not in there})
    if stray or unknown:
        raise BadValue(source, f"{(stray or list(unknown or ()))[0]} is no version", "give it, too")
    done: dict[int, Candidate] = {}
    waiting = sorted(found, key=lambda each: each.number)
    while waiting:
        ready = [each for each in waiting if all(parent in done for parent in each.parents)]
        if not ready:
            fact = f"version {waiting[0].number} is made of itself"
            raise BadValue(source, fact, "leave out what closes the circle")
        done |= {each.number: each for each in ready}
        waiting = [each for each in waiting if each.number not in done]
    return list(done.values())


async def import_versions(
    workspace: Workspace, name: str, candidates: Sequence[Candidate], *, by: str
) -> Lineage:
    """Add versions to a prompt, each one commit. Killed, it goes on where it stood when it is begun
    again. Raises Refused, BadValue, BadName.
    """
    before = await workspace.log.last(stream_of(name))
    count = before.commit.last_version if before is not None else 0
    versions: dict[int, int] = {}
    for each in candidates:
        draft = msgspec.structs.replace(
            each.draft, parents=tuple(versions[parent] for parent in each.parents)
        )
        versions[each.number] = await add(workspace, name, draft, by=by)
    after = await workspace.log.last(stream_of(name))
    return Lineage(
        versions=versions,
        added=(after.commit.last_version if after is not None else 0) - count,
        edges=sum(len(each.parents) for each in candidates),
        merges=sum(len(each.parents) > 1 for each in candidates),
    )
