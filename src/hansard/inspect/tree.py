"""The steps of one agent as a tree: calls inside calls, branches side by side, items of loops.

A step's scope says where it stood inside the body around it (`hansard.agents.steps.scope`): `0.1`
is the second child of the first spawn, `progress:papers.3` the third item of a loop. A gather
spawns its children as one group; a task group and threads spawn one at a time, and those that began
after the same steps ran side by side.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from hansard.domain.choices import counted
from hansard.domain.steps import Step

GUIDES_MAX = 40
"""Levels that are drawn; a step deeper down says how deep it is."""

_PART = re.compile(
    r"(?P<group>\d+)\.(?P<index>\d+)(?=/|\Z)|progress:(?P<name>.*?)\.(?P<item>\d+)(?=/|\Z)",
    re.DOTALL,
)


def branch(step: Step) -> str:
    """Where a step stands inside the body around it: `0.1/2.0`; empty in the body itself."""
    return step.scope.partition("/")[2]


class Node(msgspec.Struct):
    """A place in the tree: a step, or with `step` None one that holds steps.

    `group` and `index` are a branch's spawn, `after` the steps that a place began after; `places`
    are the scopes inside a place, by name.
    """

    label: str = ""
    step: Step | None = None
    group: int | None = None
    index: int = 0
    after: tuple[int, ...] = ()
    children: list[Node] = []
    places: dict[str, Node] = {}


class Row(msgspec.Struct, frozen=True):
    """A line of the tree: the guides before it and before what stands under it, what the places
    are called that hold nothing but its step, and the step.
    """

    guides: str
    under: str
    label: str
    step: Step | None
    holds: bool


def tree(steps: Iterable[Step]) -> list[Node]:
    """An agent's steps as the children of its root; they are given in order, parents first."""
    root = Node()
    bodies: dict[int, Node] = {}
    for step in steps:
        body = bodies.get(step.parent, root) if step.parent is not None else root
        place = body
        for name in _parts(branch(step)):
            place = _enter(place, name, step)
        node = bodies[step.number] = Node(step=step)
        place.children.append(node)
    for node in (root, *bodies.values()):
        _join(node)
    return root.children


def _parts(path: str) -> Iterator[str]:
    """The scopes of a path from the outermost; what is no scope of ours is one of its own."""
    at = 0
    while at < len(path):
        found = _PART.match(path, at)
        end = found.end() if found is not None else len(path)
        yield path[at:end]
        at = end + 1


def _enter(place: Node, name: str, step: Step) -> Node:
    """The scope of a name inside a place; its first step makes it."""
    known = place.places.get(name)
    if known is not None:
        return known
    made = Node(label=name, after=step.after)
    found = _PART.fullmatch(name)
    if found is not None and found["group"] is not None:
        made.label, made.group, made.index = "branch", int(found["group"]), int(found["index"])
    elif found is not None:
        made.label = f"{found['name']} {found['item']}"
    place.places[name] = made
    place.children.append(made)
    return made


def _join(place: Node) -> None:
    """Put branches that ran side by side under one node, where the first of them stands."""
    waiting = [place]
    while waiting:
        node = waiting.pop()
        waiting += node.places.values()
        sizes = Counter(scope.group for scope in node.places.values())
        beside: dict[object, list[Node]] = {}
        kept: list[Node] = []
        parallel: list[Node] = []
        for child in node.children:
            if child.group is None:
                kept.append(child)
                continue
            is_single = sizes[child.group] == 1 and child.index == 0
            spawn = child.after if is_single else child.group
            if spawn not in beside:
                made = Node(children=beside.setdefault(spawn, []))
                kept.append(made)
                parallel.append(made)
            beside[spawn].append(child)
        for made in parallel:
            _name(made)
        node.children = kept


def _name(parallel: Node) -> None:
    """Say of branches side by side how many there are, and which each is."""
    branches = sorted(parallel.children, key=lambda node: (node.group or 0, node.index))
    is_group = len({node.group for node in branches}) == 1
    for number, node in enumerate(branches):
        node.label = f"branch {(node.index if is_group else number) + 1}"
    parallel.label = f"∥ {counted(len(branches), 'branch')}"
    parallel.children = branches
    if len(branches) == 1:
        parallel.label = f"∥ {branches[0].label}"
        parallel.children = branches[0].children


def rows(nodes: list[Node]) -> Iterator[Row]:
    """The tree's lines, from the top."""
    waiting: list[tuple[Node, str, int, bool]] = []
    _wait(waiting, nodes, "", 0)
    while waiting:
        node, before, depth, is_last = waiting.pop()
        labels = [node.label] if node.label else []
        while node.step is None and len(node.children) == 1:
            node = node.children[0]
            labels += [node.label] if node.label else []
        is_far = depth >= GUIDES_MAX
        guides = before + ("└─ " if is_last else "├─ ") + (f"({depth} deep) " if is_far else "")
        under = before if is_far else before + ("   " if is_last else "│  ")
        yield Row(guides, under, " · ".join(labels), node.step, bool(node.children))
        _wait(waiting, node.children, under, depth + 1)


def _wait(
    waiting: list[tuple[Node, str, int, bool]], nodes: list[Node], before: str, depth: int
) -> None:
    last = len(nodes) - 1
    waiting.extend((nodes[index], before, depth, index == last) for index in range(last, -1, -1))
