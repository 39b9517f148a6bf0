"""Tools: what an agent may call, what each does to the world, and how doubt is settled."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import typing
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

import msgspec
from tenacity import RetryCallState, wait_exponential, wait_random
from tenacity.wait import wait_base

from hansard.agents import callables
from hansard.agents.errors import NotDone, ToolError
from hansard.agents.steps import conversions, placeholders
from hansard.agents.steps.placeholders import Placeholders
from hansard.agents.steps.scope import ambient
from hansard.domain import ids, label, values
from hansard.domain.choices import Brief, check_options, nearest
from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import canonical
from hansard.domain.reuse import Reuse
from hansard.domain.steps import Effects, PromptUse

P = ParamSpec("P")
R = TypeVar("R")

RETRY_WAIT = wait_exponential(multiplier=0.2, max=29.0) + wait_random(0, 1)
"""Seconds between attempts unless a tool says otherwise: doubling from 0.2 s, with up to a second
by chance, at most 30 s.
"""

DOUBTFUL: tuple[type[BaseException], ...] = (TimeoutError, ConnectionError, EOFError)
"""What a tool that is not pure may raise without telling whether its effect happened."""


NOTHING_HAPPENED: tuple[type[Exception], ...] = (NotDone, ConnectionRefusedError)
"""For `safe_errors=`: what a tool that does one thing raises before it has done anything.

The tool says so itself (`NotDone`), or nobody listens where it would connect
(`ConnectionRefusedError`). Wrong arguments need no mention: such a call raises TypeError before
anything of it is on record. A TypeError from inside a tool says nothing of what it did.
"""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a tool declares. `wait` gives the seconds before attempt n + 1. `gives` is the
    label of what it tells, `takes` the highest confidentiality that it may be told of.

    Attributes:
        function: What is called.
        name: The tool's.
        effects: What it does to the world.
        aliases: Names that its calls were recorded under before it had this one.
        version: As declared.
        kind: `tool`, `model`, `resource` or `memory`.
        timeout_s: Seconds for an attempt; None for no bound.
        attempts: How often a call is tried in all.
        safe_errors: Say that the effect surely did not happen.
        doubtful_errors: Leave open whether it did.
        raises: Classes that recorded errors are made of, where their modules do not tell.
        reconcile: Asks the world whether a call happened.
        shadow: Stands in for the tool in a fork.
        key_argument: The parameter that gets the idempotency key.
        source: A digest of the function's source text.
        defined: Where that stands, as `path:line`.
        does: What it says of itself: the first line of its docstring.
        placeholders: What of its arguments is replaced by placeholders; None where nothing is.
        signature: The function's parameters.
        defaults: The declared defaults, as they would be recorded, by the parameter's name.
        returns: What results are converted to; None for as they are.
        settles: The type of a settled result that is not converted; None where nothing tells.
        prompts: Versions of prompts that its caller says it is given, besides those in sight.
        reuse: Which answers of earlier runs its calls may be given; None for none.
    """

    function: Callable[..., Any]
    name: str
    effects: Effects
    aliases: tuple[str, ...] = ()
    version: str = ""
    kind: str = "tool"
    timeout_s: float | None = None
    attempts: int = 1
    wait: wait_base = RETRY_WAIT
    safe_errors: tuple[type[BaseException], ...] = ()
    doubtful_errors: tuple[type[BaseException], ...] = ()
    raises: tuple[type[BaseException], ...] = ()
    reconcile: Callable[..., Any] | None = None
    shadow: Callable[..., Any] | None = None
    key_argument: str | None = None
    source: str = ""
    defined: str = ""
    does: str = ""
    gives: str = ""
    takes: str = ""
    placeholders: Placeholders | None = None
    signature: inspect.Signature
    defaults: Mapping[str, Any] = {}
    returns: Any = None
    settles: Any = None
    prompts: tuple[PromptUse, ...] = ()
    reuse: Reuse | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, and those that it had before."""
        return (self.name, *self.aliases)

    @property
    def is_async(self) -> bool:
        """Whether calling it gives a coroutine."""
        return callables.is_coroutine_function(self.function)

    @property
    def is_stream(self) -> bool:
        """Whether calling it gives items one by one."""
        return callables.is_stream(self.function)

    @property
    def has_key(self) -> bool:
        """Whether its calls have an idempotency key: where they may run again with it, or where
        the world is asked by it.
        """
        asks_by_it = self.effects is Effects.RECONCILE and self.key_argument is not None
        return self.effects is Effects.IDEMPOTENT or asks_by_it

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The call's arguments by name, defaults filled in. Raises TypeError as the call would."""
        return callables.arguments(self.signature, args, kwargs)

    def at_default(self, plain: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of recorded arguments that have the value declared as their default."""
        found: list[str] = []
        for name, default in self.defaults.items():
            if name in plain:
                value = plain[name]
                if value is default or _is_same(value, default):
                    found.append(name)
        return tuple(found)

    def takes_all(self, names: Iterable[str]) -> bool:
        """Whether it has a parameter for each of some arguments."""
        parameters = self.signature.parameters
        if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            return True
        return all(name in parameters for name in names)

    def passed(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments by name as the function takes them."""
        bound = self.signature.bind_partial()
        bound.arguments.update(arguments)
        return bound.args, bound.kwargs

    def question(self, arguments: dict[str, Any], key: str | None) -> dict[str, Any]:
        """What `reconcile` is asked by: the call's arguments by name, and its key where the
        function has a parameter of that name.
        """
        name = self.key_argument
        if name is None or self.reconcile is None or not callables.takes(self.reconcile, name):
            return arguments
        return {**arguments, name: key}

    def is_safe(self, error: BaseException) -> bool:
        """Whether an error says that the effect surely did not happen."""
        return isinstance(error, (NotDone, *self.safe_errors))

    def is_doubtful(self, error: BaseException) -> bool:
        """Whether an error leaves open whether the effect happened."""
        if self.effects in (Effects.PURE, Effects.COMPOSITE) or self.is_safe(error):
            return False
        return not isinstance(error, Exception) or isinstance(
            error, (*DOUBTFUL, *self.doubtful_errors)
        )

    def may_retry(self, error: BaseException) -> bool:
        """Whether an error may be followed by another attempt of the same call."""
        if self.is_safe(error):
            return True
        if self.effects in (Effects.PURE, Effects.IDEMPOTENT):
            return isinstance(error, Exception)
        return False

    def wait_s(self, attempt: int) -> float:
        """Seconds to wait after a failed attempt, from 1."""
        state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type] # tenacity's waits read only the attempt number
        state.attempt_number = attempt
        return float(self.wait(state))


def _is_same(one: Any, other: Any) -> bool:
    """Whether two recorded values have the same canonical form."""
    if one is None or other is None:
        return False
    sized = isinstance(one, str | list | dict) or isinstance(other, str | list | dict)
    if sized and (type(one) is not type(other) or len(one) != len(other)):
        return False
    return canonical(one) == canonical(other)


class Reconcile(msgspec.Struct, frozen=True):
    """Effects policy: a function asks the world whether the call happened.

    It gets the call's arguments by name and returns `Happened(result)` or `DID_NOT_HAPPEN`;
    anything else, and any error, leaves the step in doubt.

    Attributes:
        ask: The function that looks.
    """

    ask: Callable[..., Any]


class Happened(msgspec.Struct, frozen=True):
    """What a reconciling function found: the effect happened, and `result` is what came of it."""

    result: Any = None


class DidNotHappen(msgspec.Struct, frozen=True):
    """What a reconciling function found: the effect did not happen."""


DID_NOT_HAPPEN = DidNotHappen()
"""What a reconciling function or a policy says where the effect did not happen."""


def reconcile(ask: Callable[..., Any]) -> Reconcile:
    """For `effects=`: a function that looks whether a call happened, after a kill or a time-out.

    Args:
        ask: It gets the call's arguments by name (and the idempotency key, if it has a parameter
            of the tool's `key_argument`) and returns `Happened(result)` or `DID_NOT_HAPPEN`;
            anything else, and any error, leaves the step in doubt.
    """
    return Reconcile(ask)


OPTIONS = (
    "effects",
    "name",
    "aliases",
    "version",
    "kind",
    "timeout_s",
    "attempts",
    "wait",
    "safe_errors",
    "doubtful_errors",
    "raises",
    "shadow",
    "key_argument",
    "gives",
    "takes",
    "placeholders",
    "reuse",
)
"""What a tool may be declared with."""


def source_digest(function: Callable[..., Any]) -> str:
    """A digest of a function's source text; empty where there is none to read."""
    try:
        text = inspect.getsource(callables.underlying(function))
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(inspect.cleandoc(text).encode()).hexdigest()[:32]


def _where(function: Callable[..., Any]) -> str:
    """Where a function's source text stands; empty for one of C."""
    code = getattr(inspect.unwrap(callables.underlying(function)), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


DOES_CHARACTERS_MAX = 200
"""Of what a tool says of itself."""


def _does(function: Callable[..., Any]) -> str:
    """What a function says of itself: the first line of its docstring."""
    lines = (inspect.getdoc(callables.underlying(function)) or "").splitlines()
    return lines[0][:DOES_CHARACTERS_MAX] if lines else ""


def spec(function: Any, effects: str | Reconcile, options: dict[str, Any]) -> ToolSpec:
    """A function's declaration. Raises ToolError where it contradicts itself."""
    ask = effects.ask if isinstance(effects, Reconcile) else None
    check_options("a tool", options, OPTIONS)
    try:
        policy = Effects.RECONCILE if isinstance(effects, Reconcile) else Effects(effects)
    except ValueError:
        known = [e.value for e in Effects if e is not Effects.RECONCILE]
        choices = f"{', '.join(known)} or reconcile(function)"
        like = nearest(effects, known) if isinstance(effects, str) else ""
        raise ToolError(f"effects={effects!r} is not a policy: {like}use {choices}") from None
    if policy is Effects.RECONCILE and ask is None:
        message = "effects='reconcile' needs the function that asks: effects=reconcile(function)"
        raise ToolError(message)
    callables.check(function)
    name = ids.name("tool", options.pop("name", None) or callables.own_name(function))
    for field, read in (("gives", _gives), ("takes", _takes)):
        if field in options:
            options[field] = read(options[field], f"{field}= of {name}")
    if "aliases" in options:
        options["aliases"] = _aliases(options["aliases"], name)
    value = options.pop("placeholders", None)
    hides = placeholders.declared(value, f"placeholders= of {name}")
    for field in ("version", "kind"):
        if not isinstance(options.get(field, ""), str):
            message = f"{field}={options[field]!r} of {name}: give a text"
            raise ToolError(message)
    signature = callables.signature(function, name)
    returns, settles = _annotated(function, name, signature, options.get("key_argument"))
    declared = ToolSpec(
        function=function,
        name=name,
        effects=policy,
        reconcile=ask,
        source=source_digest(function),
        defined=_where(function),
        does=_does(function),
        signature=signature,
        defaults=_defaults(signature),
        returns=returns,
        settles=settles,
        placeholders=hides,
        **options,
    )
    if declared.attempts < 1:
        message = f"attempts={declared.attempts} of {name}: give 1 or more"
        raise ToolError(message)
    check_reuse(declared.reuse, declared)
    if declared.key_argument and declared.key_argument not in declared.signature.parameters:
        message = f"key_argument={declared.key_argument!r} is not a parameter of {name}"
        raise ToolError(message)
    return declared


def _aliases(names: object, tool: str) -> tuple[str, ...]:
    """Checked earlier names of a tool. Raises ToolError, BadName."""
    if not isinstance(names, list | tuple):
        message = f"aliases={names!r:.80} of {tool}: give a list of the names that it had before"
        raise ToolError(message)
    return tuple(ids.name("tool", each) for each in names)


def _defaults(signature: inspect.Signature) -> dict[str, Any]:
    """A function's defaults as they would be recorded, less those that cannot be."""
    found: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                default: Any = ()
            case inspect.Parameter.VAR_KEYWORD:
                default = {}
            case _ if parameter.default is inspect.Parameter.empty:
                continue
            case _:
                default = parameter.default
        with contextlib.suppress(BadValue):
            found[name] = values.plain(default, name)
    return found


def check_reuse(request: object, declared: ToolSpec) -> None:
    """Raise ToolError where a tool's calls cannot be answered by earlier runs."""
    if request is None:
        return
    if not isinstance(request, Reuse):
        message = f"reuse={request!r:.80} of {declared.name}: give hansard.reuse(ttl_s=...)"
        raise ToolError(message)
    if declared.effects not in (Effects.PURE, Effects.IDEMPOTENT):
        message = (
            f"reuse= of {declared.name}, which is {declared.effects.value}: only what is pure or "
            "idempotent may be answered by an earlier run"
        )
        raise ToolError(message)
    if declared.is_stream:
        message = f"reuse= of {declared.name}, which is a generator: give the answer in one piece"
        raise ToolError(message)


def operation(name: str, *fields: str, kind: str, writes: bool = False) -> ToolSpec:
    """An operation of a session's own, recorded as a step: what it is given stands there by the
    names of its fields. One that writes may be asked for again: it is not made twice.
    """
    named = [inspect.Parameter(each, inspect.Parameter.POSITIONAL_OR_KEYWORD) for each in fields]
    return ToolSpec(
        function=_by_its_flow,
        name=name,
        effects=Effects.IDEMPOTENT if writes else Effects.PURE,
        kind=kind,
        signature=inspect.Signature(named),
    )


def _by_its_flow() -> None:
    """Does nothing: the flow of an operation does its work."""


def _annotated(
    function: Any, name: str, signature: inspect.Signature, key_argument: str | None
) -> tuple[Any, Any]:
    """Return what results (of a stream, items) are converted to, None for as they are, and the type
    of a settled result. Raises ToolError for annotations of what can never be recorded.
    """
    hints = callables.hints(function, callables.around())
    returns = conversions.result_of(hints.pop("return", Any))
    if callables.is_stream(function):
        returns = conversions.item_of(returns)
    hints.pop(key_argument or "", None)
    conversions.check_parameters(name, signature, hints)
    conversions.check(name, "result", returns)
    settles = None if callables.is_stream(function) else conversions.of_plain(returns)
    return conversions.of_returns(returns), settles


def _gives(text: str, where: str) -> str:
    """A label as it is recorded: empty for public and trusted. Raises BadValue."""
    found = label.parse(text, where)
    return str(found) if found.stored else ""


def _takes(text: str, where: str) -> str:
    """A level of confidentiality as it is recorded; empty takes any. Raises BadValue."""
    return label.level(text, where).value if text else ""


class Tool(Brief, Generic[P, R]):
    """A declared tool: call it like the function it wraps.

    Bound to one session (`@session.tool`), or to whatever session is current where it is called
    (`@hansard.tool`). In a class it works as a method; the object is not part of the arguments.
    """

    def __init__(self, declared: ToolSpec, session: Any = None) -> None:
        self.spec = declared
        self._session = session
        functools.update_wrapper(self, declared.function)

    def _brief(self) -> dict[str, Any]:
        spec = self.spec
        return {
            "name": spec.name,
            "effects": spec.effects.value,
            "version": spec.version,
            "kind": spec.kind,
        }

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Resolve, gate, run, record; what the function returns, or what it once returned."""
        session = self._session if self._session is not None else ambient(self.spec.name)
        result: R = session.call(self.spec, args, kwargs)
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """The tool as a method of an object."""
        unbound = isinstance(self.spec.function, staticmethod)
        if instance is None or unbound or not hasattr(self.spec.function, "__get__"):
            return self
        method = functools.partial(self.spec.function, instance)
        parameters = list(self.spec.signature.parameters.values())[1:]
        bound = msgspec.structs.replace(
            self.spec,
            function=_like(self.spec.function, method),
            signature=self.spec.signature.replace(parameters=parameters),
        )
        return Tool(bound, self._session)


def _like(function: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """A bound method of the same kind (plain, coroutine, generator) as its function."""
    instance = method.args[0]  # type: ignore[attr-defined] # a functools.partial
    return typing.cast("Callable[..., Any]", function.__get__(instance))


class Declare:
    """`tool(...)` as a decorator, with or without arguments."""

    def __init__(self, session: Any = None) -> None:
        self._session = session

    @overload
    def __call__(self, function: Callable[P, R], /) -> Tool[P, R]: ...
    @overload
    def __call__(
        self,
        *,
        effects: str | Reconcile = ...,
        name: str | None = ...,
        aliases: Sequence[str] = ...,
        version: str = ...,
        kind: str = ...,
        timeout_s: float | None = ...,
        attempts: int = ...,
        wait: wait_base = ...,
        safe_errors: tuple[type[BaseException], ...] = ...,
        doubtful_errors: tuple[type[BaseException], ...] = ...,
        raises: tuple[type[BaseException], ...] = ...,
        shadow: Callable[..., Any] | None = ...,
        key_argument: str | None = ...,
        gives: str = ...,
        takes: str = ...,
        placeholders: bool | Placeholders = ...,
        reuse: Reuse | None = ...,
    ) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
    def __call__(  # type: ignore[misc] # mypy does not match **options with the overload's names
        self, function: Any = None, /, *, effects: Any = "once", **options: Any
    ) -> Any:
        """Declare a function as a tool.

        Args:
            function: The function, where the decorator has no arguments.
            effects: `pure`, `idempotent`, `reconcile(fn)`, `composite`, or `once`, the default.

        Keyword Args:
            name (str): The tool's; the function's if not given.
            aliases (Sequence[str]): Names that the tool had before: calls recorded under one of
                them count as calls of this tool.
            version (str): Change it when equal calls should no longer count as equal.
            kind (str): `tool`, `model`, `resource` or `memory`: how a step is shown and counted.
            timeout_s (float): Seconds for an attempt; None is no bound, 0 no time at all.
            attempts (int): How often a call is tried in all.
            wait (wait_base): Seconds between attempts, by one of tenacity's waits; doubling from
                0.2 s to 30 s. These three do not apply to a generator: its reader decides.
            safe_errors (tuple): Error classes that say that the effect surely did not happen.
            doubtful_errors (tuple): Error classes that leave it open.
            raises (tuple): Error classes that a replay cannot find by their modules: those that
                are made inside a function, or were moved or renamed since.
            shadow (Callable): Stands in for the tool in a fork.
            key_argument (str): The parameter that gets the idempotency key.
            gives (str): The label of what it tells (`secret untrusted`), which whoever calls it
                has from then on.
            takes (str): The highest confidentiality that it may be told of; called by an agent
                that was shown more, it is refused.
            placeholders (bool | Placeholders): Whether it is given placeholders for e-mail
                addresses, phone and card numbers, IBANs and keys in its arguments, which are put
                back in what it gives. The record has the values.
            reuse (Reuse): Which answers of earlier runs its calls may be given, by
                `hansard.reuse(ttl_s=...)`: of a tool that is pure or idempotent.

        Raises:
            ToolError: The declaration contradicts itself, or says what can never be recorded.
            BadOption: There is no such option; the message names the nearest.
            BadName: The name is not one.
        """

        def declare(inner: Callable[..., Any]) -> Tool[..., Any]:
            declared = spec(inner, effects, dict(options))
            names = DECLARED if self._session is None else self._session.engine.ledger.declared
            names.update(declared.names)
            return Tool(declared, self._session)

        return declare if function is None else declare(function)


DECLARED: set[str] = set()
"""Names of the tools that this process has declared for whatever session is current."""

tool = Declare()
"""Declares a function as a tool of whatever session is current where it is called."""

AnyCoroutine = Coroutine[Any, Any, Any]
