"""Check functions in Python: small and pure by contract, they do not leave the workspace.

A function that raises, answers with something else, or does not answer in time has not said that an
action may be done: the check failed, by its name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from hansard.domain.actions.cache import ElementTargets
from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue
from hansard.domain.experience.checks import Check, CheckFailure

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
"""When a kind is asked: before an action, after it, at the end."""

WHY_CHARACTERS_MAX = 300
NAME_CHARACTERS_MAX = 100


class CheckedStep(msgspec.Struct, frozen=True, kw_only=True):
    """What a check function is asked about.

    Attributes:
        node: The procedure's node; `end` at the end.
        instruction: What it does, in words.
        method: `click`, `fill` ..., or a tool's name.
        arguments: With the values of this doing; a secret stands as `secret NAME`.
        given: Of a tool, its arguments by name.
        params: The slots' values; a secret stands as `secret NAME`.
        url: The page's address.
        frame: In which frame.
        matches: How many elements are what is to be acted on.
        element: What the one is called.
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
        name: The check's.
        kind: When it is asked: see `CheckedStep`.
        function: Gives None, True or an empty text where an action may be done, else why not.
    """

    name: str
    kind: str
    function: Callable[[CheckedStep], Any]

    def __call__(self, step: CheckedStep) -> Any:
        """What the function says."""
        return self.function(step)

    def failure(self, step: CheckedStep) -> CheckFailure | None:
        """Why an action may not be done; None where it may. Never raises."""
        return self.failed(self.why(step))

    def failed(self, why: str) -> CheckFailure | None:
        """The failure that a reason is; None for none."""
        if not why:
            return None
        return CheckFailure(check=self.name, kind=self.kind, why=why[:WHY_CHARACTERS_MAX])

    def why(self, step: CheckedStep) -> str:
        """Why not, in words; empty where nothing is against it. Never raises."""
        try:
            said = self.function(step)
        except BaseException as error:  # noqa: BLE001 -- whatever it raises, it has not agreed
            return f"it raised {type(error).__name__}: {error}"
        if said is None or said is True:
            return ""
        if said is False:
            return "it said no"
        return said if isinstance(said, str) else f"it gave a {type(said).__name__}, not a text"


def check_function(
    kind: CheckKind, *, name: str = ""
) -> Callable[[Callable[[CheckedStep], Any]], CheckFunction]:
    """Make a check of a plain function: small, pure, without a model.

    It is given a `actions.CheckedStep` and says why the action may not be done: a text, or False;
    None, True or an empty text let it be done. It has a second; one that raises has failed.

    Args:
        kind: When it is asked: `precondition`, `argument` and `flow` before an action, `invariant`
            before and after each, `postcondition` after it, `complete` at the end.
        name: The check's; the function's own if not given.

    Raises:
        BadValue: There is no such kind, it has no name, or the function cannot be called at once.
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


def told_apart(checks: Sequence[Check], functions: Sequence[object]) -> tuple[CheckFunction, ...]:
    """Functions with names of their own, beside checks that are data. Raises BadValue."""
    taken = {each.name for each in checks}
    kept: list[CheckFunction] = []
    for each in functions:
        if not isinstance(each, CheckFunction):
            fact = f"{each!r:.80} is no check function"
            raise BadValue("checks", fact, "make one with @hansard.actions.check_function(kind)")
        if any(each is other for other in kept):
            continue
        if each.name in taken:
            fact = f"two checks are called {each.name!r:.80}"
            raise BadValue("checks", fact, "give each its name: check_function(kind, name=...)")
        taken.add(each.name)
        kept.append(each)
    return tuple(kept)
