"""The procedure of an experience, and the check functions that guard it.

Checks are small, pure, without a model; they decide whether an action may be done, and was. As data
they belong to an experience (`checks.json`); a file with an unknown kind of check is refused when
it is read. A failed check stops before the effect.

Long because most of it describes the fields of checks and of the graph.
"""

from __future__ import annotations

import inspect
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cached_property
from typing import Any, Literal, assert_never, get_args
from urllib.parse import urlsplit

import msgspec

from hansard.domain import actions as caches
from hansard.domain.actions import (
    ActionCache,
    ActionsEnd,
    CachedAction,
    ElementTargets,
    contradicts,
    filled,
)
from hansard.domain.choices import counted, nearest
from hansard.domain.errors import BadValue
from hansard.domain.ids import host_in
from hansard.domain.values import Secret

# A procedure: the actions that may follow each other, their order and their bounds.
#
# A node is an action; the state of the page is the node that was done last. From it the next
# actions are tried in the order of its edges: the first whose element is present is done.

PROCEDURE_FORMAT = "hansard.procedure.v1"
START, END = "start", "end"
NODES_MAX = 1_000
EDGES_MAX = 10_000
VISITS_MAX = 1_000
"""Most visits of one node in an execution: a loop has a bound."""

PROCEDURE_BYTES_MAX = 4 * 1024 * 1024


class ProcedureNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An action of the procedure.

    Attributes:
        name: Its name in the graph: `n1`, `n2` ...
        action: The action, with slots in the place of values.
        visits_max: Its most occurrences in one demonstration.
        support: The number of demonstrations that have it.
        requires: The nodes that precede it in every demonstration that has it.
    """

    name: str
    action: CachedAction
    visits_max: int
    support: int
    requires: tuple[str, ...] = ()


class ProcedureEdge(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A permitted transition.

    Attributes:
        before: A node's name, or `start`.
        after: A node's name, or `end`.
        count: The number of its occurrences.
    """

    before: str
    after: str
    count: int


class Procedure(msgspec.Struct, frozen=True, kw_only=True, rename="camel", dict=True):
    """The graph.

    Attributes:
        format: `hansard.procedure.v1`.
        slots: Names of the values that an execution fills in.
        nodes: In the order of their first occurrence.
        edges: Those of one node are in the order in which they are tried.
        end_requires: The nodes that every demonstration has.
    """

    format: str
    slots: tuple[str, ...]
    nodes: tuple[ProcedureNode, ...]
    edges: tuple[ProcedureEdge, ...]
    end_requires: tuple[str, ...] = ()

    def node(self, name: str) -> ProcedureNode:
        """Return a node by its name. Raises KeyError."""
        return self._by_name[name]

    def after(self, name: str) -> tuple[str, ...]:
        """Return the names of the successors of a node, or of `start`, in the order in which they
        are tried.
        """
        return self._after.get(name, ())

    @cached_property
    def _by_name(self) -> Mapping[str, ProcedureNode]:
        return {each.name: each for each in self.nodes}

    @cached_property
    def _after(self) -> Mapping[str, tuple[str, ...]]:
        successors: dict[str, list[str]] = {}
        for each in self.edges:
            successors.setdefault(each.before, []).append(each.after)
        return {name: tuple(every) for name, every in successors.items()}


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """An execution's place in a procedure: an immutable state; `stepped` returns the next.

    Attributes:
        at: The node that was done last, or `start`.
        visits: The visits of each node.
    """

    at: str = START
    visits: Mapping[str, int] = {}

    def candidates(self, procedure: Procedure) -> list[str]:
        """Return the permitted next nodes and `end`, in the order in which they are tried."""
        return [name for name in procedure.after(self.at) if not self.refusal(procedure, name)]

    def stepped(self, procedure: Procedure, name: str) -> Walk:
        """Return the state after one of `candidates`. Raises BadValue for any other node."""
        refusal = self.refusal(procedure, name)
        if refusal:
            raise BadValue("the procedure", refusal, "do one of the permitted actions")
        return Walk(at=name, visits={**self.visits, name: self.visits.get(name, 0) + 1})

    def refusal(self, procedure: Procedure, name: str) -> str:
        """Return the reason why a node may not come next; empty where it may."""
        if name not in procedure.after(self.at):
            return f"{name} does not follow {self.at}"
        if name == END:
            required = procedure.end_requires
        else:
            node = procedure.node(name)
            required = node.requires
            if self.visits.get(name, 0) >= node.visits_max:
                return f"{name} was done {counted(self.visits[name], 'time')}, its most"
        missing = [each for each in required if each not in self.visits]
        return f"{name} was never done without {missing[0]} before it" if missing else ""


def encode_procedure(procedure: Procedure) -> bytes:
    """Encode the file `graph.json`: indented, equal for equal procedures."""
    return msgspec.json.format(msgspec.json.encode(procedure), indent=2) + b"\n"


def decode_procedure(raw: bytes, where: str = "graph.json") -> Procedure:
    """Read a file, checked. Raises BadValue."""
    read = caches.loaded(raw, where, PROCEDURE_BYTES_MAX, "distil it again, from fewer runs")
    return checked_procedure(caches.formed(read, Procedure, PROCEDURE_FORMAT, where), where)


def checked_procedure(procedure: Procedure, where: str = "graph.json") -> Procedure:
    """Check that a procedure's edges name nodes and its loops have bounds. Raises BadValue."""
    for what, count, most in (
        ("nodes", len(procedure.nodes), NODES_MAX),
        ("edges", len(procedure.edges), EDGES_MAX),
    ):
        if count > most:
            raise BadValue(where, f"{count:,} {what}, more than {most:,}", "distil from fewer runs")
    names = [each.name for each in procedure.nodes]
    twice = [name for name, count in Counter((*names, START, END)).items() if count > 1]
    if twice:
        raise BadValue(where, f"{twice[0]!r:.80} names two nodes", "give each a name of its own")
    for edge in procedure.edges:
        for name, besides in ((edge.before, START), (edge.after, END)):
            if name != besides and name not in names:
                raise BadValue(
                    where, f"an edge names {name!r:.80}, which is no node", "distil again"
                )
    for required in (procedure.end_requires, *(each.requires for each in procedure.nodes)):
        for name in required:
            if name not in names:
                raise BadValue(where, f"{name!r:.80} is required, and no node", "distil again")
    for node in procedure.nodes:
        if not 1 <= node.visits_max <= VISITS_MAX:
            fact = f"visitsMax {node.visits_max} of {node.name!r:.80}"
            raise BadValue(where, fact, f"give 1 to {VISITS_MAX:,}")
    _checked_actions(procedure.nodes, where)
    return procedure


def _checked_actions(nodes: Sequence[ProcedureNode], where: str) -> None:
    """Check each action by the rules of an action cache."""
    numbered = [
        msgspec.structs.replace(each.action, step_index=at) for at, each in enumerate(nodes)
    ]
    end = caches.ActionsEnd(success=True, duration=0.0)
    kept = caches.checked(
        caches.ActionCache(actions=numbered, final_state=end, format=caches.FORMAT), where
    )
    if len(kept.actions) != len(nodes):
        raise BadValue(where, "a node is an action that failed", "distil again")


def paths(procedure: Procedure, every: Iterable[Sequence[str]]) -> list[bool]:
    """Return for each list of nodes whether it is a path from `start` to `end`."""
    return [_possible(procedure, names) for names in every]


def _possible(procedure: Procedure, names: Sequence[str]) -> bool:
    walk = Walk()
    for name in (*names, END):
        if walk.refusal(procedure, name):
            return False
        walk = walk.stepped(procedure, name)
    return True


FORMS = {
    "iso_date": "%Y-%m-%d",
    "us_date": "%m/%d/%Y",
    "german_date": "%d.%m.%Y",
    "long_date": "%B %d, %Y",
}
"""The date formats by name, as `datetime.strptime` has them. In `1/2/2017` the month is first."""


def _date(text: str) -> date | None:
    for form in FORMS.values():
        try:
            return datetime.strptime(text, form).date()  # noqa: DTZ007 -- a date has no zone
        except ValueError:
            continue
    return None


def forms_of(name: str, value: str) -> dict[str, str]:
    """Return a value in its other date formats, by the names of their slots; empty where it is no
    date.
    """
    day = _date(value)
    if day is None:
        return {}
    fields = {f"{name}_{form}": day.strftime(as_it_is) for form, as_it_is in FORMS.items()}
    return {slot: text for slot, text in fields.items() if text != value}


def base_of(slot: str, slots: Iterable[str]) -> str:
    """Return the slot that another one is a form of; empty where there is none."""
    known = set(slots)
    bases = (slot.removesuffix(f"_{form}") for form in FORMS if slot.endswith(f"_{form}"))
    return next((base for base in bases if base in known), "")


def with_forms(slots: Iterable[str], params: Mapping[str, str | Secret]) -> dict[str, str | Secret]:
    """Return the values, with those of slots that are another form of one of them."""
    made = dict(params)
    for slot in slots:
        base = base_of(slot, params)
        value = params.get(base)
        day = _date(value) if isinstance(value, str) else None
        if slot not in made and day is not None:
            made[slot] = day.strftime(FORMS[slot.removeprefix(f"{base}_")])
    return made


FORMAT = "hansard.checks.v1"
CHECKS_MAX = 1_000
FILE_BYTES_MAX = 1024 * 1024
TEXT_CHARACTERS_MAX = 4_096


class PreconditionCheck(msgspec.Struct, frozen=True, kw_only=True, tag="precondition"):
    """Before a node: exactly one element matches, and it is of the recorded kind.

    Attributes:
        name: The check's name.
        node: The node.
    """

    name: str
    node: str


class ArgumentCheck(msgspec.Struct, frozen=True, kw_only=True, tag="argument", omit_defaults=True):
    """Before a node: its arguments are the recorded ones, with the values of this execution.

    Attributes:
        name: The check's name.
        node: The node.
        characters_max: Most characters of each argument.
        host_in: For a URL: the permitted hosts; `.example.org` matches every host under it.
        path_under: For a path: the permitted folders, `..` resolved by its text. Links are not
            resolved: the gate's `path_under` reads the disk.
    """

    name: str
    node: str
    characters_max: int = TEXT_CHARACTERS_MAX
    host_in: tuple[str, ...] = ()
    path_under: tuple[str, ...] = ()


class FlowCheck(msgspec.Struct, frozen=True, kw_only=True, tag="flow"):
    """Before each action: an edge of the graph leads to it, within its bound.

    Attributes:
        name: The check's name.
    """

    name: str


class PostconditionCheck(msgspec.Struct, frozen=True, kw_only=True, tag="postcondition"):
    """After a node: the field holds the value that was filled in.

    Attributes:
        name: The check's name.
        node: The node.
    """

    name: str
    node: str


class InvariantCheck(msgspec.Struct, frozen=True, kw_only=True, tag="invariant"):
    """Before and after every action: the page is at a host of the demonstrations.

    Attributes:
        name: The check's name.
        hosts: The hosts of the page; empty for a file, None for any.
        frames: Indexes of the frames with actions.
    """

    name: str
    hosts: tuple[str, ...] | None
    frames: tuple[int, ...]


class CompleteCheck(msgspec.Struct, frozen=True, kw_only=True, tag="complete"):
    """At the end: the procedure may end at the current node.

    Attributes:
        name: The check's name.
    """

    name: str


Check = (
    PreconditionCheck
    | ArgumentCheck
    | FlowCheck
    | PostconditionCheck
    | InvariantCheck
    | CompleteCheck
)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    checks: tuple[Check, ...]


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of the page for a check, as reported by the program that acts.

    Attributes:
        url: The page's address.
        done: The number of actions done when the page was read: an older reading is stale.
        frame: The index of the frame.
        matches: The number of elements that match the action's target.
        element: The names and texts of the matching element.
        value: The content of the field; None for another element.
    """

    url: str
    done: int
    frame: int = 0
    matches: int = 0
    element: ElementTargets | None = None
    value: str | None = None


class CheckFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed check: an action is not done, or an execution is not at its end.

    Attributes:
        check: The check's name.
        kind: `precondition`, `argument` ...
        why: The reason, in words.
    """

    check: str
    kind: str
    why: str


class Guard:
    """Runs the checks of one execution, with its values.

    Args:
        procedure: The permitted actions.
        checks: The checks that a person confirmed.
        params: The values of the slots; a secret may only be a whole argument.

    Raises:
        BadValue: A slot has no value, or one that changes nothing, a check names no node, or a
            secret is part of a text.
    """

    def __init__(
        self, procedure: Procedure, checks: Sequence[Check], params: Mapping[str, str | Secret]
    ) -> None:
        self.procedure = procedure
        self.checks = checked(checks, procedure)
        self.actions = _filled(procedure, with_forms(procedure.slots, params))
        self.walk = Walk()
        self.done = 0

    def before(self, node: str, situation: Situation) -> CheckFailure | None:
        """Return the failed check if a node may not be done now; None where it may."""
        if situation.done != self.done:
            why = (
                f"the page was read after "
                f"{counted(situation.done, 'action')}, and {self.done} were done"
            )
            return CheckFailure(check="fresh", kind="precondition", why=why)
        return self._first_failure("before", node, situation)

    def after(self, node: str, situation: Situation) -> CheckFailure | None:
        """Return the failed check after a node was done; advances to the node."""
        self.walk = self.walk.stepped(self.procedure, node)
        self.done += 1
        return self._first_failure("after", node, situation)

    def complete(self) -> CheckFailure | None:
        """Return the failed check if an execution may not end here; None where it may."""
        return self._first_failure("end", END, Situation(url="", done=self.done))

    def checks_at(self, when: str, node: str) -> list[Check]:
        """Return the checks that are run `before` a node, `after` it, or at the `end`."""
        return [
            each
            for each in self.checks
            if when in WHEN[kind(each)] and getattr(each, "node", node) == node
        ]

    def _first_failure(self, when: str, node: str, now: Situation) -> CheckFailure | None:
        for check in self.checks_at(when, node):
            why = self._why(check, node, now)
            if why:
                return CheckFailure(check=check.name, kind=kind(check), why=why)
        return None

    def _why(self, check: Check, node: str, now: Situation) -> str:
        """Return the reason why a check fails; empty where it passes."""
        match check:
            case FlowCheck() | CompleteCheck():
                return self.walk.refusal(self.procedure, node)
            case InvariantCheck():
                return _elsewhere(check, now)
            case PreconditionCheck():
                return self._other_element(now, node)
            case ArgumentCheck():
                return self._argument(check)
            case PostconditionCheck():
                return self._unfilled(now, node)
            case _:
                assert_never(check)

    def _other_element(self, now: Situation, node: str) -> str:
        action = self.actions[node]
        if action.action_type != caches.ACT:
            return ""
        if now.matches != 1 or now.element is None:
            return f"{now.matches} elements are what {node} is done to, not 1"
        if (action.frame_index or 0) != now.frame:
            return f"frame {now.frame}, not {action.frame_index or 0}"
        return other_than(action.targets, now.element)

    def _argument(self, check: ArgumentCheck) -> str:
        action = self.actions[check.node]
        for value in (*action.arguments, *_texts_in(action.action_params)):
            if not isinstance(value, str):
                continue  # a secret by name
            if len(value) > check.characters_max:
                return f"{len(value):,} characters, more than {check.characters_max:,}"
            if check.host_in and not host_in(value, check.host_in):
                return f"its host is none of {', '.join(check.host_in)}"
            if check.path_under and not _is_under(value, check.path_under):
                return f"it is no path in {', '.join(check.path_under)}"
        return ""

    def _unfilled(self, now: Situation, node: str) -> str:
        [target, *_] = self.actions[node].arguments or [""]
        if now.value is None or not isinstance(target, str) or now.value == target:
            return ""
        return "the field does not hold what was filled in"


def _is_under(value: str, folders: tuple[str, ...]) -> bool:
    """Return whether a path is one of some folders, or in one."""
    path = posixpath.normpath(value)
    roots = [posixpath.normpath(each).rstrip("/") for each in folders]
    return "\0" not in value and any(path == each or path.startswith(f"{each}/") for each in roots)


def other_than(recorded: ElementTargets | None, current: ElementTargets) -> str:
    """Return the reason why an element is not the recorded one; empty where it is.

    In addition to the rules of a replay (`contradicts`), an id or a path that all demonstrations
    share must be equal where nothing else identifies the element.
    """
    if recorded is None:
        return "nothing says which element it is"
    why = contradicts(recorded, current)
    if why:
        return why
    if any(getattr(recorded, f) for f in ("test_id", "name", "label", "placeholder", "text")):
        return ""
    if recorded.in_row and recorded.mark:
        return ""
    for field in ("id", "path", "css"):
        before, now = getattr(recorded, field), getattr(current, field)
        if before:
            return "" if before == now else f"its {field} is {now!r:.80}, not {before!r:.80}"
    return "nothing says which element it is"


def proposed(procedure: Procedure, hosts: Iterable[str] | None = None) -> tuple[Check, ...]:
    """Propose checks that all demonstrations of a procedure passed, for a person to confirm.

    `hosts` are those of the pages; without them the hosts that the actions have, and any host where
    one of them has none.
    """
    places = [each.action.page for each in procedure.nodes]
    if hosts is None and all(places):
        fields = {urlsplit(each.address).hostname for each in places if each}
        hosts = sorted(each for each in fields if each)
    kept = None if hosts is None else tuple(sorted(set(hosts)))
    frames = sorted({each.action.frame_index or 0 for each in procedure.nodes})
    made: list[Check] = [
        FlowCheck(name="flow"),
        InvariantCheck(name=f"at {_places(kept)}", hosts=kept, frames=tuple(frames)),
        CompleteCheck(name="complete"),
    ]
    for node in procedure.nodes:
        made.append(PreconditionCheck(name=f"{node.name} is there", node=node.name))
        if node.action.arguments or node.action.action_params:
            made.append(ArgumentCheck(name=f"{node.name} is given", node=node.name))
        if node.action.method == "fill":
            made.append(PostconditionCheck(name=f"{node.name} is filled in", node=node.name))
    return tuple(made)


def _places(hosts: tuple[str, ...] | None) -> str:
    if hosts is None:
        return "any host"
    return ", ".join(hosts) or "a file"


def kind(check: Check) -> str:
    """Return a check's kind: `precondition` ..."""
    return str(check.__struct_config__.tag)


def checked(
    checks: Sequence[Check], procedure: Procedure, where: str = "checks"
) -> tuple[Check, ...]:
    """Check that checks name nodes of the procedure, and have distinct names. Raises BadValue."""
    if len(checks) > CHECKS_MAX:
        raise BadValue(where, f"{len(checks):,} checks, more than {CHECKS_MAX:,}", "give fewer")
    names = [each.name for each in checks]
    for at, name in enumerate(names):
        if not name or name in names[:at]:
            raise BadValue(where, f"two checks are called {name!r:.80}", "give each its name")
    nodes = {each.name for each in procedure.nodes}
    for check in checks:
        node = getattr(check, "node", None)
        if node is not None and node not in nodes:
            fact = f"check {check.name!r:.80} is of {node!r:.80}, which is no node"
            raise BadValue(where, fact, "distil it again, or take the check away")
    return tuple(checks)


def encode(checks: Sequence[Check]) -> bytes:
    """Encode the file `checks.json`: indented, equal for equal checks."""
    file = _File(format=FORMAT, checks=tuple(checks))
    return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"


def decode(raw: bytes, procedure: Procedure, where: str = "checks.json") -> tuple[Check, ...]:
    """Read a file, checked; one with an unknown kind of check is refused whole. Raises BadValue."""
    remedy = f"give a file of format {FORMAT!r}, as `hansard experience` writes it"
    read = caches.loaded(raw, where, FILE_BYTES_MAX, remedy)
    return checked(caches.formed(read, _File, FORMAT, where).checks, procedure, where)


def _texts_in(value: object) -> Iterator[str]:
    """Yield the texts in a tool's arguments, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts_in(each)


def _filled(procedure: Procedure, params: Mapping[str, str | Secret]) -> dict[str, CachedAction]:
    cache = ActionCache(
        format=caches.FORMAT,
        actions=[each.action for each in procedure.nodes],
        final_state=ActionsEnd(success=True, duration=0.0),
        slots=list(procedure.slots),
    )
    names = [each.name for each in procedure.nodes]
    secrets = {name: value for name, value in params.items() if isinstance(value, Secret)}
    texts = {
        name: _slot(name) if isinstance(value, Secret) else value for name, value in params.items()
    }
    bases = {base_of(each, procedure.slots) for each in procedure.slots}
    made = dict(zip(names, filled(cache, texts, bases), strict=True))
    return {name: _hidden(action, secrets) for name, action in made.items()}


def _slot(name: str) -> str:
    return "{{" + name + "}}"


def _hidden(action: CachedAction, secrets: Mapping[str, Secret]) -> CachedAction:
    """Return an action with secrets as arguments where their slots are.

    Raises BadValue for a secret that is part of another text: that text may be an element's name,
    which is searched for in the page.
    """
    if not secrets:
        return action
    slots = {_slot(name): {"$secret": secret.name} for name, secret in secrets.items()}
    arguments = [slots.get(e, e) if isinstance(e, str) else e for e in action.arguments]
    params = {
        name: slots.get(e, e) if isinstance(e, str) else e
        for name, e in (action.action_params or {}).items()
    }
    changed = msgspec.structs.replace(
        action, arguments=arguments, action_params=params or action.action_params
    )
    text = msgspec.json.encode(msgspec.structs.replace(changed, instruction=None)).decode()
    for slot in slots:
        if slot in text:
            fact = f"{slot} is a secret, and is part of a text of {action.method or 'an action'}"
            raise BadValue("params", fact, "a secret is a whole argument; give this one as a text")
    made: CachedAction = changed
    return made


def _elsewhere(check: InvariantCheck, now: Situation) -> str:
    if check.hosts is None:
        return "" if now.frame in check.frames else f"frame {now.frame}, in which nothing was done"
    host = urlsplit(now.url).hostname or ""
    if host != "" and not host_in(now.url, check.hosts):
        return f"the page is at {host!r:.80}, not at {', '.join(check.hosts) or 'a file'}"
    if host == "" and check.hosts:
        return f"the page is at no host, not at {', '.join(check.hosts)}"
    if now.frame not in check.frames:
        return f"frame {now.frame}, in which nothing was done"
    return ""


# Check functions in Python: small and pure by contract, they do not leave the workspace.
#
# A function that raises, returns another type, or does not return in time has not permitted the
# action: the check failed, by its name.

CheckKind = Literal["precondition", "argument", "flow", "invariant", "postcondition", "complete"]
KINDS: tuple[str, ...] = get_args(CheckKind)
WHEN = {
    "precondition": ("before",),
    "argument": ("before",),
    "flow": ("before",),
    "invariant": ("before", "after"),
    "postcondition": ("after",),
    "complete": ("end",),
}
"""The times when a kind of check is run: before an action, after it, at the end."""

WHY_CHARACTERS_MAX = 300
NAME_CHARACTERS_MAX = 100


class CheckedStep(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a check function.

    Attributes:
        node: The procedure's node; `end` at the end.
        instruction: The instruction, in words.
        method: `click`, `fill` ..., or a tool's name.
        arguments: With the values of this execution; a secret is written as `secret NAME`.
        given: For a tool, its arguments by name.
        params: The slots' values; a secret is written as `secret NAME`.
        url: The page's address.
        frame: The index of the frame.
        matches: The number of elements that match the action's target.
        element: The names and texts of the matching element.
        done: The nodes that were done, in order.
    """

    node: str
    instruction: str = ""
    method: str = ""
    arguments: tuple[str, ...] = ()
    given: Mapping[str, Any] = {}
    params: Mapping[str, str] = {}
    url: str = ""
    frame: int = 0
    matches: int = 0
    element: ElementTargets | None = None
    done: tuple[str, ...] = ()


class CheckFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A check in Python. Made by `hansard.actions.check_function`.

    Attributes:
        name: The check's name.
        kind: The kind, which decides when it is run: see `check_function`.
        function: Returns None, True or an empty text where an action may be done, else the reason.
    """

    name: str
    kind: str
    function: Callable[[CheckedStep], Any]

    def __call__(self, step: CheckedStep) -> Any:
        """Return the function's result."""
        return self.function(step)

    def failure(self, step: CheckedStep) -> CheckFailure | None:
        """Return the failed check if an action may not be done; None where it may. Never raises."""
        return self.failed(self.why(step))

    def failed(self, why: str) -> CheckFailure | None:
        """Return a reason as a failed check; None for an empty reason."""
        if not why:
            return None
        return CheckFailure(check=self.name, kind=self.kind, why=why[:WHY_CHARACTERS_MAX])

    def why(self, step: CheckedStep) -> str:
        """Return the reason against an action, in words; empty for none. Never raises."""
        try:
            text = self.function(step)
        except BaseException as error:  # noqa: BLE001 -- any error is a failed check
            return f"it raised {type(error).__name__}: {error}"
        if text is None or text is True:
            return ""
        if text is False:
            return "it returned False"
        return text if isinstance(text, str) else f"it returned a {type(text).__name__}, not a text"


def check_function(
    kind: CheckKind, *, name: str = ""
) -> Callable[[Callable[[CheckedStep], Any]], CheckFunction]:
    """Make a check of a plain function: small, pure, without a model.

    The function takes a `actions.CheckedStep` and returns the reason why the action may not be
    done, as a text, or False; None, True or an empty text permit it. It has one second; one that
    raises has failed.

    Args:
        kind: The time of the check: `precondition`, `argument` and `flow` before an action,
            `invariant` before and after each, `postcondition` after it, `complete` at the end.
        name: The check's name; by default the function's own.

    Raises:
        BadValue: The kind is unknown, the check has no name, or the function is not a plain one.
    """
    if kind not in KINDS:
        like = nearest(str(kind), KINDS)
        raise BadValue("check_function", f"kind {kind!r:.80}", f"{like}use {', '.join(KINDS)}")

    def made(function: Callable[[CheckedStep], Any]) -> CheckFunction:
        called = name or getattr(function, "__name__", "")
        if not called or len(called) > NAME_CHARACTERS_MAX:
            fact = f"{called!r:.80} is no name of a check"
            raise BadValue("check_function", fact, f"give name=, at most {NAME_CHARACTERS_MAX}")
        waits = (
            inspect.iscoroutinefunction,
            inspect.isgeneratorfunction,
            inspect.isasyncgenfunction,
        )
        if any(each(function) for each in waits):
            fact = f"{called!r:.80} gives no answer when it is called"
            raise BadValue("check_function", fact, "give a plain function")
        return CheckFunction(name=called, kind=kind, function=function)

    return made


def named_functions(
    checks: Sequence[Check], functions: Sequence[object]
) -> tuple[CheckFunction, ...]:
    """Return functions whose names differ from each other and from checks that are data. Raises
    BadValue.
    """
    names = {each.name for each in checks}
    kept: list[CheckFunction] = []
    for each in functions:
        if not isinstance(each, CheckFunction):
            fact = f"{each!r:.80} is no check function"
            raise BadValue("checks", fact, "make one with @hansard.actions.check_function(kind)")
        if any(each is other for other in kept):
            continue
        if each.name in names:
            fact = f"two checks are called {each.name!r:.80}"
            raise BadValue("checks", fact, "give each its name: check_function(kind, name=...)")
        names.add(each.name)
        kept.append(each)
    return tuple(kept)
