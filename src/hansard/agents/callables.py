"""What can be called: a function, or what stands in for one (a partial, an object that is called, a
static method, a function of C). What each is, and what it gives, is asked here alone.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from types import FunctionType
from typing import Any

from hansard.agents.errors import ToolError

_ITEMS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
"""Flags of the code of functions that give items one by one."""

_PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD


def underlying(function: Any) -> Any:
    """The function whose code runs, past partials, static methods and objects that are called."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, staticmethod):
            function = function.__func__
        elif _is_object(function):
            return type(function).__call__
        else:
            return function


def _is_object(function: Any) -> bool:
    return (
        callable(function)
        and not inspect.isroutine(function)
        and not isinstance(function, type)
        and inspect.isfunction(type(function).__call__)
    )


def is_coroutine_function(function: Any) -> bool:
    """Whether calling it gives a coroutine, as far as can be seen without calling it."""
    if type(function) is FunctionType and function.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        underlying(function)
    )


def is_async_generator_function(function: Any) -> bool:
    """Whether calling it gives an async generator."""
    return inspect.isasyncgenfunction(underlying(function))


def is_stream(function: Any) -> bool:
    """Whether calling it gives items one by one."""
    if type(function) is FunctionType:  # a call asks this: a tenth of what `inspect` takes
        return bool(function.__code__.co_flags & _ITEMS)
    inner = underlying(function)
    return inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def arguments(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """A call's arguments by name, defaults filled in. Raises TypeError as the call would.

    Plain parameters are filled in here, at a quarter of what `bind` takes; for all else, and for
    what does not fit, it is asked.
    """
    found: dict[str, Any] = {}
    given, named = len(args), len(kwargs)
    for at, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind is not _PLAIN:
            break
        if at < given:
            found[name] = args[at]
        elif name in kwargs:
            found[name] = kwargs[name]
            named -= 1
        elif parameter.default is not inspect.Parameter.empty:
            found[name] = parameter.default
        else:
            break
    else:
        if not named and given <= len(found):
            return found
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def name_of(function: Any) -> str:
    """What something is called: by its own name, else by what it calls, else by its class."""
    inner = underlying(function) if isinstance(function, functools.partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))


def check(function: Any) -> None:
    """Raise ToolError for what nobody can call, nor mean to."""
    if not callable(function) and not isinstance(function, classmethod | property):
        message = f"a {type(function).__name__} ({function!r:.80}) is no tool: give a function"
        raise ToolError(message)


def own_name(function: Any) -> str:
    """The name that a tool takes from its function. Raises ToolError where it has none."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        message = (
            f"a {type(function).__name__} ({name_of(function)}) has no name of its own to record "
            "its calls by: give name=, another one for each"
        )
        raise ToolError(message)
    return name


def signature(function: Any, name: str) -> inspect.Signature:
    """What a tool takes. Raises ToolError where that cannot be told."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        kind = type(function).__name__
        remedy = (
            f"declare the function, and put @{kind} above the tool"
            if isinstance(function, classmethod | property)
            else "wrap it in a function whose parameters have names"
        )
        message = f"what the tool {name!r:.80} takes cannot be told of a {kind} ({error}): {remedy}"
        raise ToolError(message) from None


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of that name, or takes any."""
    found = signature(function, own_name(function)).parameters
    return name in found or any(each.kind is each.VAR_KEYWORD for each in found.values())


def hints(function: Any, around: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What its annotations say, forward references resolved, also to names `around` it; nothing of
    one that cannot be resolved.
    """
    inner: Any = inspect.unwrap(underlying(function))
    if isinstance(inner, type):  # a class's annotations are its attributes'
        return {}
    found: dict[str, Any] = {}
    for name, annotation in getattr(inner, "__annotations__", {}).items():
        holder = type("Holder", (), {"__annotations__": {name: annotation}})
        known = {**getattr(inner, "__globals__", {}), **(around or {})}
        with contextlib.suppress(
            Exception
        ):  # an annotation is an expression: it may raise anything
            found |= typing.get_type_hints(holder, globalns=known, localns=known)
    return found


def around() -> dict[str, Any]:
    """The names that whoever calls Hansard here can see: a local annotation refers to those."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("hansard."):
        frame = frame.f_back
    return dict(frame.f_locals) if frame is not None else {}


def calling(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a plain function gives. A StopIteration of its own is an error, as in a generator: it
    would end the one that drives the call.
    """
    try:
        return function(*args, **kwargs)
    except StopIteration as stop:
        message = f"{name_of(function)} raised StopIteration"
        raise RuntimeError(message) from stop


async def awaited(result: Awaitable[Any]) -> Any:
    """What something to await comes to."""
    return await result
