"""Refuse secrets in the names that public methods take, and keep them out of their errors.

A text that is only read is recorded with the secret replaced; a name is part of an address, and is
refused. Whatever a method takes is a name unless it is one of `TEXTS`: a new argument is refused
until it is known to be a text.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hansard.domain.redaction import Redaction, check_names

TEXTS = frozenset(
    {
        *("because", "feedback", "feedback_applied", "program", "question", "source", "text"),
        *("evaluator", "parameters", "plan", "reflect", "result", "rules", "tables", "variables"),
        *("new", "old", "ops", "redact", "secrets"),
    }
)
"""Arguments that are no names: texts and values, whose secrets are replaced where they are
recorded, and those that are checked in another way.
"""

C = TypeVar("C")


def guard_secrets(called: str) -> Callable[[type[C]], type[C]]:
    """Return a class decorator that guards each public method.

    A guarded method refuses a secret in a name before it does anything, and takes secrets out of
    the errors that it raises. The class has a `_redaction`; errors name it as `called`.
    """

    def guard(cls: type[C]) -> type[C]:
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if not name.startswith("_") and not hasattr(method, "guards_secrets"):
                setattr(cls, name, _guarded(f"{called}.{name}", method))
        return cls

    return guard


def errors_without_secrets(guarded: Any) -> contextlib.AbstractContextManager[None]:
    """Take the secrets of a guarded object out of the errors that are raised inside."""
    redaction: Redaction | None = guarded._redaction  # noqa: SLF001 -- of the class that it guards
    return contextlib.nullcontext() if redaction is None else redaction.in_errors()


def _guarded(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        redaction = self._redaction
        if redaction is None:
            return method(self, *args, **kwargs)
        with redaction.in_errors():
            _check(name, signature, redaction, (self, *args), kwargs)
            return method(self, *args, **kwargs)

    @functools.wraps(method)
    async def guarded_async(self: Any, *args: Any, **kwargs: Any) -> Any:
        redaction = self._redaction
        if redaction is None:
            return await method(self, *args, **kwargs)
        with redaction.in_errors():
            _check(name, signature, redaction, (self, *args), kwargs)
            return await method(self, *args, **kwargs)

    made: Any = guarded_async if inspect.iscoroutinefunction(method) else guarded
    made.guards_secrets = True  # a subclass does not guard it again
    guarding: Callable[..., Any] = made
    return guarding


def _check(
    method: str, signature: inspect.Signature, redaction: Redaction, args: Any, kwargs: Any
) -> None:
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:  # the method raises it itself, as it does without secrets
        return
    named: dict[str, object] = {}
    for name, value in bound.items():
        kind = signature.parameters[name].kind
        named |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    names = {
        name: list(value) if isinstance(value, Mapping) else value
        for name, value in named.items()
        if name not in TEXTS
    }
    check_names(method, names, redaction)
