"""Inspection of callables: functions, and what acts as one (a partial, a callable object, a
static method, a C function). All such checks are here.
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
"""Code flags of functions that yield items."""

_PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD


def underlying(function: Any) -> Any:
    """Return the function whose code runs, unwrapping partials, static methods and callable
    objects.
    """
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
    """Return whether calling it returns a coroutine, as far as can be determined without a call."""
    if type(function) is FunctionType and function.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        underlying(function)
    )


def is_async_generator_function(function: Any) -> bool:
    """Return whether calling it returns an async generator."""
    return inspect.isasyncgenfunction(underlying(function))


def is_stream(function: Any) -> bool:
    """Return whether calling it yields items one by one."""
    if type(function) is FunctionType:  # on every call: a tenth of the time of `inspect`
        return bool(function.__code__.co_flags & _ITEMS)
    inner = underlying(function)
    return inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def arguments(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a call's arguments by name, with defaults. Raises TypeError as the call would.

    Plain parameters are bound here, in a quarter of the time that `bind` takes; all others, and
    arguments that do not match, are bound by `bind`.
    """
    by_name: dict[str, Any] = {}
    count, named = len(args), len(kwargs)
    for at, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind is not _PLAIN:
            break
        if at < count:
            by_name[name] = args[at]
        elif name in kwargs:
            by_name[name] = kwargs[name]
            named -= 1
        elif parameter.default is not inspect.Parameter.empty:
            by_name[name] = parameter.default
        else:
            break
    else:
        if not named and count <= len(by_name):
            return by_name
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def name_of(function: Any) -> str:
    """Return a callable's name: its own, else its wrapped function's, else its class's."""
    inner = underlying(function) if isinstance(function, functools.partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))


def check(function: Any) -> None:
    """Raise ToolError for an object that cannot be called, or is not meant to be."""
    if not callable(function) and not isinstance(function, classmethod | property):
        message = f"a {type(function).__name__} ({function!r:.80}) is not a tool: give a function"
        raise ToolError(message)


def own_name(function: Any) -> str:
    """Return the name that a tool takes from its function. Raises ToolError if it has none."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        message = (
            f"a {type(function).__name__} ({name_of(function)}) has no name of its own to record "
            "its calls by: give name=, different for each"
        )
        raise ToolError(message)
    return name


def signature(function: Any, name: str) -> inspect.Signature:
    """Return a tool's signature. Raises ToolError if it cannot be determined."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        kind = type(function).__name__
        remedy = (
            f"declare the function, and put @{kind} above the tool"
            if isinstance(function, classmethod | property)
            else "wrap it in a function whose parameters have names"
        )
        message = f"the parameters of tool {name!r:.80}, a {kind}, are unknown ({error}): {remedy}"
        raise ToolError(message) from None


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function has a parameter of that name, or accepts any."""
    parameters = signature(function, own_name(function)).parameters
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def hints(function: Any, around: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the annotations, with forward references resolved, also to names `around` it;
    annotations that cannot be resolved are left out.
    """
    inner: Any = inspect.unwrap(underlying(function))
    if isinstance(inner, type):  # a class's annotations are its attributes'
        return {}
    resolved: dict[str, Any] = {}
    for name, annotation in getattr(inner, "__annotations__", {}).items():
        holder = type("Holder", (), {"__annotations__": {name: annotation}})
        known = {**getattr(inner, "__globals__", {}), **(around or {})}
        with contextlib.suppress(
            Exception
        ):  # an annotation is an expression, which may raise anything
            resolved |= typing.get_type_hints(holder, globalns=known, localns=known)
    return resolved


def around() -> dict[str, Any]:
    """Return the names visible to the code that calls Hansard; local annotations refer to them."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("hansard."):
        frame = frame.f_back
    return dict(frame.f_locals) if frame is not None else {}


def calling(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a plain function. Its own StopIteration becomes an error, as in a generator: it would
    end the generator that drives the call.
    """
    try:
        return function(*args, **kwargs)
    except StopIteration as stop:
        message = f"{name_of(function)} raised StopIteration"
        raise RuntimeError(message) from stop


async def awaited(result: Awaitable[Any]) -> Any:
    """Await an awaitable that need not be a coroutine."""
    return await result
