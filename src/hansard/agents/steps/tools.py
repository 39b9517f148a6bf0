"""Tools: functions that an agent may call, their effects on the world, the settlement of doubt, and
the choice between two models by label.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import typing
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec
from tenacity import RetryCallState, wait_exponential, wait_random
from tenacity.wait import wait_base

from hansard.agents import flow
from hansard.agents.errors import Blocked, NotDone, ToolError
from hansard.agents.policy.permits import RULE
from hansard.agents.steps import conversions, placeholders
from hansard.agents.steps.placeholders import Placeholders
from hansard.agents.steps.scope import ambient
from hansard.domain import ids, label, values
from hansard.domain.choices import Brief, check_options, nearest
from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import canonical
from hansard.domain.label import level
from hansard.domain.reuse import Reuse
from hansard.domain.steps import Effects, PromptUse

P = ParamSpec("P")
R = TypeVar("R")

RETRY_WAIT = wait_exponential(multiplier=0.2, max=29.0) + wait_random(0, 1)
"""Default seconds between attempts: doubling from 0.2 s, plus up to 1 s at random, at most 30 s."""

DOUBTFUL: tuple[type[BaseException], ...] = (TimeoutError, ConnectionError, EOFError)
"""Errors of a tool that is not pure after which it is unknown whether the effect happened."""


NOTHING_HAPPENED: tuple[type[Exception], ...] = (NotDone, ConnectionRefusedError)
"""Value for `safe_errors=`: errors that a tool with a single effect raises before the effect.

Either the tool raises `NotDone`, or no server listens at the address (`ConnectionRefusedError`).
Wrong arguments need no mention: such a call raises TypeError before anything of it is recorded. A
TypeError from inside a tool does not show what happened.
"""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Declaration of a tool. `wait` returns the seconds before attempt n + 1. `gives` is the label
    of its results, `takes` the highest confidentiality that it may receive.

    Attributes:
        function: The function to call.
        name: The tool's name.
        effects: Its effect policy.
        aliases: Earlier names under which its calls were recorded.
        version: As declared.
        kind: `tool`, `model`, `resource` or `memory`.
        timeout_s: Seconds for an attempt; None for no limit.
        attempts: Largest number of attempts of a call.
        safe_errors: Errors which show that the effect certainly did not happen.
        doubtful_errors: Errors which leave that unknown.
        raises: Classes of recorded errors that cannot be found by their modules.
        reconcile: Checks with the outside world whether a call happened.
        shadow: Replaces the tool in a fork.
        key_argument: The parameter that receives the idempotency key.
        source: A digest of the function's source text.
        defined: Location of that source, as `path:line`.
        does: Description: the first line of its docstring.
        placeholders: Argument values to replace by placeholders; None for none.
        signature: The function's parameters.
        defaults: The declared defaults in recorded form, by parameter name.
        returns: Type that results are converted to; None leaves them unchanged.
        settles: Type of a settled result that is not converted; None if unknown.
        prompts: Prompt versions that its caller states, besides those found in its arguments.
        reuse: Answers of earlier runs that its calls may use; None for none.
        ahead: Whether items of a stream are delivered while their recording is under way. The call
            is idempotent: until its outcome is on record, an interrupted one runs again.
        opens: Called when a stream's call may run, while its intent is being recorded. It must not
            complete the effect, which only the acknowledged intent permits.
        call_id: The provider's id of the call, for a declaration of one call; it is no part of
            the call's key.
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
    ahead: bool = False
    opens: Callable[[], object] | None = None
    call_id: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, and its earlier names."""
        return (self.name, *self.aliases)

    @property
    def is_async(self) -> bool:
        """True if calling it returns a coroutine."""
        return flow.is_coroutine_function(self.function)

    @property
    def is_stream(self) -> bool:
        """True if calling it yields items one by one."""
        return flow.is_stream(self.function)

    @property
    def has_key(self) -> bool:
        """True if its calls have an idempotency key: for retries, or for its reconcile function."""
        asks_by_it = self.effects is Effects.RECONCILE and self.key_argument is not None
        return self.effects is Effects.IDEMPOTENT or asks_by_it

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the call's arguments by name, with defaults. Raises TypeError as the call
        would.
        """
        return flow.arguments(self.signature, args, kwargs)

    def at_default(self, plain: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of recorded arguments that equal their declared default."""
        names: list[str] = []
        for name, default in self.defaults.items():
            if name in plain:
                value = plain[name]
                if value is default or _is_same(value, default):
                    names.append(name)
        return tuple(names)

    def takes_all(self, names: Iterable[str]) -> bool:
        """Return whether it has a parameter for each of some arguments."""
        parameters = self.signature.parameters
        if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            return True
        return all(name in parameters for name in names)

    def passed(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Convert arguments by name to those of the function."""
        bound = self.signature.bind_partial()
        bound.arguments.update(arguments)
        return bound.args, bound.kwargs

    def question(self, arguments: dict[str, Any], key: str | None) -> dict[str, Any]:
        """Return the arguments of `reconcile`: the call's arguments by name, and its key if the
        function has a parameter of that name.
        """
        name = self.key_argument
        if name is None or self.reconcile is None or not flow.takes(self.reconcile, name):
            return arguments
        return {**arguments, name: key}

    def is_safe(self, error: BaseException) -> bool:
        """Return whether an error shows that the effect certainly did not happen."""
        return isinstance(error, (NotDone, *self.safe_errors))

    def is_doubtful(self, error: BaseException) -> bool:
        """Return whether an error leaves unknown whether the effect happened."""
        if self.effects in (Effects.PURE, Effects.COMPOSITE) or self.is_safe(error):
            return False
        return not isinstance(error, Exception) or isinstance(
            error, (*DOUBTFUL, *self.doubtful_errors)
        )

    def may_retry(self, error: BaseException) -> bool:
        """Return whether the same call may be attempted again after an error."""
        if self.is_safe(error):
            return True
        if self.effects in (Effects.PURE, Effects.IDEMPOTENT):
            return isinstance(error, Exception)
        return False

    def wait_s(self, attempt: int) -> float:
        """Return the seconds to wait after a failed attempt, from 1."""
        state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type] # tenacity's waits read only the attempt number
        state.attempt_number = attempt
        return float(self.wait(state))


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two recorded values have the same canonical form."""
    if one is None or other is None:
        return False
    sized = isinstance(one, str | list | dict) or isinstance(other, str | list | dict)
    if sized and (type(one) is not type(other) or len(one) != len(other)):
        return False
    return canonical(one) == canonical(other)


class Reconcile(msgspec.Struct, frozen=True):
    """Effect policy: a function checks with the outside world whether the call happened.

    It receives the call's arguments by name and returns `Happened(result)` or `DID_NOT_HAPPEN`; any
    other result, and any error, leaves the step in doubt.

    Attributes:
        ask: The function that checks.
    """

    ask: Callable[..., Any]


class Happened(msgspec.Struct, frozen=True):
    """Result of a reconcile function: the effect happened, with this `result`."""

    result: Any = None


class DidNotHappen(msgspec.Struct, frozen=True):
    """Result of a reconcile function: the effect did not happen."""


DID_NOT_HAPPEN = DidNotHappen()
"""The result of a reconcile function or a policy if the effect did not happen."""


def reconcile(ask: Callable[..., Any]) -> Reconcile:
    """Build an effect policy from a function that checks whether a call happened, after a kill or a
    timeout.

    Args:
        ask: Receives the call's arguments by name (and the idempotency key, if it has a parameter
            of the tool's `key_argument`) and returns `Happened(result)` or `DID_NOT_HAPPEN`; any
            other result, and any error, leaves the step in doubt.
    """
    return Reconcile(ask)


class ToolOptions(TypedDict, total=False):
    """Options of a tool's declaration, besides its effects."""

    name: str | None
    aliases: Sequence[str]
    version: str
    kind: str
    timeout_s: float | None
    attempts: int
    wait: wait_base
    safe_errors: tuple[type[BaseException], ...]
    doubtful_errors: tuple[type[BaseException], ...]
    raises: tuple[type[BaseException], ...]
    shadow: Callable[..., Any] | None
    key_argument: str | None
    gives: str
    takes: str
    placeholders: bool | Placeholders
    reuse: Reuse | None


def source_digest(function: Callable[..., Any]) -> str:
    """Return a digest of a function's source text; empty if it cannot be read."""
    try:
        text = inspect.getsource(flow.underlying(function))
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(inspect.cleandoc(text).encode()).hexdigest()[:32]


def _where(function: Callable[..., Any]) -> str:
    """Return the location of a function's source; empty for a C function."""
    code = getattr(inspect.unwrap(flow.underlying(function)), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


DOES_CHARACTERS_MAX = 200
"""Longest description of a tool, in characters."""


def _does(function: Callable[..., Any]) -> str:
    """Return a function's description: the first line of its docstring."""
    lines = (inspect.getdoc(flow.underlying(function)) or "").splitlines()
    return lines[0][:DOES_CHARACTERS_MAX] if lines else ""


def spec(function: Any, effects: str | Reconcile, options: dict[str, Any]) -> ToolSpec:
    """Build a tool's declaration. Raises ToolError if it contradicts itself."""
    ask = effects.ask if isinstance(effects, Reconcile) else None
    check_options("a tool", options, ("effects", *ToolOptions.__annotations__))
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
    flow.check(function)
    name = ids.name("tool", options.pop("name", None) or flow.own_name(function))
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
    signature = flow.signature(function, name)
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
    """Check a tool's earlier names. Raises ToolError, BadName."""
    if not isinstance(names, list | tuple):
        message = f"aliases={names!r:.80} of {tool}: give a list of its earlier names"
        raise ToolError(message)
    return tuple(ids.name("tool", each) for each in names)


def _defaults(signature: inspect.Signature) -> dict[str, Any]:
    """Return a function's defaults in recorded form, except those that cannot be recorded."""
    defaults: dict[str, Any] = {}
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
            defaults[name] = values.plain(default, name)
    return defaults


def check_reuse(request: object, declared: ToolSpec) -> None:
    """Raise ToolError if a tool's calls cannot use answers of earlier runs."""
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
    """Declare an operation of the session itself, recorded as a step with its arguments under these
    field names. One that writes may be repeated without writing twice.
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
    """Do nothing: an operation's flow does its work."""


def _annotated(
    function: Any, name: str, signature: inspect.Signature, key_argument: str | None
) -> tuple[Any, Any]:
    """Return the type that results (of a stream: items) are converted to, None to leave them
    unchanged, and the type of a settled result. Raises ToolError for annotations whose values can
    never be recorded.
    """
    hints = flow.hints(function, flow.around())
    returns = conversions.result_of(hints.pop("return", Any))
    if flow.is_stream(function):
        returns = conversions.item_of(returns)
    hints.pop(key_argument or "", None)
    conversions.check_parameters(name, signature, hints)
    conversions.check(name, "result", returns)
    settles = None if flow.is_stream(function) else conversions.of_plain(returns)
    return conversions.of_returns(returns), settles


def _gives(text: str, where: str) -> str:
    """Return a label as it is recorded: empty for public and trusted. Raises BadValue."""
    value = label.parse(text, where)
    return str(value) if value.stored else ""


def _takes(text: str, where: str) -> str:
    """Return a confidentiality as it is recorded; empty takes any. Raises BadValue."""
    return label.level(text, where).value if text else ""


class Tool(Brief, Generic[P, R]):
    """A declared tool: call it like the function it wraps.

    It is bound to one session (`@session.tool`), or to the session that is current at the call
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
        """Resolve, gate, run, record; return the function's result, or its recorded one."""
        session = self._session if self._session is not None else ambient(self.spec.name)
        result: R = session.call(self.spec, args, kwargs)
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the tool as a method of an object."""
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
    """Return a bound method of the same kind (plain, coroutine, generator) as its function."""
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
        self, *, effects: str | Reconcile = ..., **options: Unpack[ToolOptions]
    ) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
    def __call__(  # type: ignore[misc] # mypy does not match **options with the overload's names
        self, function: Any = None, /, *, effects: Any = "once", **options: Any
    ) -> Any:
        """Declare a function as a tool.

        Args:
            function: The function, if the decorator has no arguments.
            effects: `pure`, `idempotent`, `reconcile(fn)`, `composite`, or `once`, the default.

        Keyword Args:
            name (str): The tool's name; by default the function's.
            aliases (Sequence[str]): Earlier names of the tool: calls recorded under one of them
                count as calls of this tool.
            version (str): Change it when equal calls should no longer count as equal.
            kind (str): `tool`, `model`, `resource` or `memory`: how a step is shown and counted.
            timeout_s (float): Seconds for an attempt; None is no limit, 0 no time at all.
            attempts (int): Largest number of attempts of a call.
            wait (wait_base): Seconds between attempts, by one of tenacity's waits; by default
                doubling from 0.2 s to 30 s. These three do not apply to a generator: its reader
                decides.
            safe_errors (tuple): Error classes which show that the effect certainly did not happen.
            doubtful_errors (tuple): Error classes which leave that unknown.
            raises (tuple): Error classes that a replay cannot find by their modules: those that are
                created inside a function, or were moved or renamed since.
            shadow (Callable): Replaces the tool in a fork.
            key_argument (str): The parameter that receives the idempotency key.
            gives (str): The label of its results (`secret untrusted`), which is joined to the
                caller's.
            takes (str): The highest confidentiality that it may receive; a call by an agent that
                has seen more is refused.
            placeholders (bool | Placeholders): Whether it receives placeholders for e-mail
                addresses, phone and card numbers, IBANs and keys in its arguments, which are
                replaced by the values in its result. The record has the values.
            reuse (Reuse): Answers of earlier runs that its calls may use, by
                `hansard.reuse(ttl_s=...)`, for a tool that is pure or idempotent.

        Raises:
            ToolError: The declaration contradicts itself, or its values can never be recorded.
            BadOption: There is no such option; the message names the nearest.
            BadName: The name is invalid.
        """

        def declare(inner: Callable[..., Any]) -> Tool[..., Any]:
            declared = spec(inner, effects, dict(options))
            names = DECLARED if self._session is None else self._session.engine.ledger.declared
            names.update(declared.names)
            return Tool(declared, self._session)

        return declare if function is None else declare(function)


DECLARED: set[str] = set()
"""Names of the tools that this process has declared for the current session."""

tool = Declare()
"""Declares a function as a tool of the session that is current at the call."""

AnyCoroutine = Coroutine[Any, Any, Any]


# Choice between two models by the label of what the agent has seen.
#
# Data above what the cloud model takes goes to the local one. The choice is a composite step whose
# child is the call itself, so the record shows which was called; a resumed run repeats the choice.


def by_label(*, local: Tool[P, R], cloud: Tool[P, R], name: str = "") -> Tool[P, R]:
    """Build a tool that calls one of two models: the cloud model while the agent has seen nothing
    above what it takes, else the local one.

    Args:
        local: A model that may receive any data.
        cloud: A model that may receive what its `takes=` allows; it is called where that suffices.
        name: The tool's name; by default `<the cloud's>_by_label`.

    Raises:
        ToolError: The cloud model has no `takes=`, or the two have different signatures.
    """
    models: list[tuple[str, Any]] = [("local", local), ("cloud", cloud)]
    for role, each in models:
        if not isinstance(each, Tool):
            message = f"{role}={each!r:.80} is not a tool: declare it with @hansard.tool(...)"
            raise ToolError(message)
    if not cloud.spec.takes:
        message = (
            f"cloud={cloud.spec.name!r} takes data of any label: declare it with takes=, such as "
            "takes='internal'"
        )
        raise ToolError(message)
    if _call_kind(local) != _call_kind(cloud) or local.spec.signature.parameters.keys() != (
        cloud.spec.signature.parameters.keys()
    ):
        message = (
            f"{local.spec.name} and {cloud.spec.name} have different signatures: give both the "
            "same parameters, and make both plain functions or both coroutines"
        )
        raise ToolError(message)
    if cloud.spec.is_stream:
        message = f"{cloud.spec.name} is a stream, which cannot be chosen by label: return a value"
        raise ToolError(message)
    choose = _choosing(local, cloud)
    options = {"name": name or f"{cloud.spec.name}_by_label", "version": cloud.spec.version}
    return Tool(spec(choose, "composite", options), None)


def _call_kind(tool: Tool[Any, Any]) -> tuple[bool, bool]:
    return tool.spec.is_async, tool.spec.is_stream


def _choosing(local: Tool[P, R], cloud: Tool[P, R]) -> Callable[..., Any]:
    """Return the function that chooses. If the cloud call is refused because of a label, since
    another call raised the agent's label meanwhile, the local model is called.
    """

    async def choose_async(*args: Any, **kwargs: Any) -> Any:
        async def call(model: Any) -> Any:
            result = model(*args, **kwargs)
            return await result if model.spec.is_async else result

        if _may_call(cloud, local):
            try:
                return await call(cloud)
            except Blocked as error:
                if error.rule != RULE or error.tool != cloud.spec.name:
                    raise
        return await call(local)

    def choose(*args: Any, **kwargs: Any) -> Any:
        return flow.done(choose_async(*args, **kwargs))

    return _with_signature(choose_async if cloud.spec.is_async else choose, cloud)


def _with_signature(choose: Callable[..., Any], tool: Tool[Any, Any]) -> Callable[..., Any]:
    """Return a function with a tool's signature and return annotation."""
    made = functools.wraps(tool.spec.function)(choose)
    del made.__wrapped__  # its source is not the model's
    made.__signature__ = tool.spec.signature  # type: ignore[attr-defined] # as inspect reads it
    return made


def _may_call(cloud: Tool[Any, Any], local: Tool[Any, Any]) -> bool:
    """Return whether the cloud model may receive what the agent has seen; on a resume, whether it
    was called. If the service keeps the agent's label, the call is refused there.
    """
    ledger = ambient(cloud.spec.name).engine.ledger
    state = getattr(ledger, "state", None)
    if state is None:
        return True
    step = ledger.here.step
    request = [each.tool for each in state.steps.values() if step and each.parent == step]
    if local.spec.name in request:
        return False
    return cloud.spec.name in request or ledger.label.flows_to(level(cloud.spec.takes))


# Tools that are run elsewhere; their arguments may have any names.


class ForwardedTool(ToolSpec, frozen=True, kw_only=True):
    """Tool that another program runs."""

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, unchanged."""
        del args
        return dict(kwargs)

    def passed(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments by name."""
        return (), dict(arguments)
