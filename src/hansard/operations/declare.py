"""Declare an operation once: its request, wire form, checks and scrubbing follow from it.

An operation of a record is an async method with `@operation` of a noun (`Noun`). The annotations
of its parameters define their wire form; its request, result type and signature are derived at
first use. An operation of a session is declared by its request (`hansard.operations.session`).

Long because a declaration, its wire form and its checks are one concept.

    Name            a text used as a name elsewhere; it may hold no secret
    Text            a text; if it is entirely a secret, the secret's name is sent
    Value, Data     a program's value, as recorded (`hansard.domain.values`); values by name
    Prose, Exact    a text from which secrets are removed; one that may not be a secret
    Content         a program's value, as a parameter of a method
    Here            a parameter that only a trusted program has
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from enum import Enum
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Optional,
    ParamSpec,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec

from hansard.agents.policy.permits import Need, Permit
from hansard.agents.steps.scope import TEXTS, guarded
from hansard.agents.workspace import Workspace
from hansard.bus.portal import Portal
from hansard.domain import values
from hansard.domain.choices import NOTHING, chosen
from hansard.domain.decider import ArtifactKind
from hansard.domain.errors import BadValue
from hansard.domain.label import Label
from hansard.domain.redaction import Redaction
from hansard.domain.values import Scrub, recordable
from hansard.inspect.answer import Answer
from hansard.operations.protocol.faults import NotOffered
from hansard.operations.sql_answer import SqlAnswer
from hansard.projections.snapshots import Reader

if TYPE_CHECKING:
    from hansard.inspect.experience import ExperienceIndex

T = TypeVar("T")
R = TypeVar("R", bound=Answer)
N = TypeVar("N", bound="Noun[Any]")
P = ParamSpec("P")

TRUSTED = "have a trusted program or the workspace's operator do it"


class SecretName(msgspec.Struct, frozen=True, tag_field="is", tag="secret"):
    """A text that is a secret, by its name."""

    name: str


Name = Annotated[str, "name"]
Text = str | SecretName
Value = msgspec.Raw
Data = Annotated[msgspec.Raw, "data"]


class Kind(Enum):
    """The wire form of a field."""

    NAME = "name"
    VALUE = "value"
    VALUES = "values"
    DATA = "data"
    PLAIN = "plain"


_KINDS: dict[Any, Kind] = {
    Name: Kind.NAME,
    Optional[Name]: Kind.NAME,  # noqa: UP045 -- the type checker rejects `|` here
    list[Name]: Kind.NAME,
    Value: Kind.VALUE,
    list[Value]: Kind.VALUES,
    Data: Kind.DATA,
}


def kinds_of(request: type[Ask]) -> dict[str, Kind]:
    """Return the wire form of each field of a request, in order."""
    hints = get_type_hints(request, include_extras=True)
    return {each: _KINDS.get(hints[each], Kind.PLAIN) for each in request.__struct_fields__}


class Ask(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="op"
):
    """The request of an operation. Its fields are in the order of the operation's parameters."""


class ChainKind(Enum):
    """The position of an operation in the chain of its agent's calls."""

    STEP = "step"
    """A step: another call of the same scope during it overlaps with it."""

    FACT = "fact"
    """A statement, made where a call could be made."""

    NONE = "none"
    """Allowed anywhere."""


class Takes(Enum):
    """The cost class of an operation: operations of one class share the same slots."""

    LITTLE = "little"
    RUN = "run"
    """A whole run is read."""

    LONG = "long"
    """A core is used for seconds."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. Its `name` is `<group>.<method>`: the method of that name answers it.

    Attributes:
        request: The type of its request.
        result: The type of its result.
        needs: Returns the permissions that a request requires of the role.
        place: Its position in the chain of calls.
        takes: Its cost class.
        fields: The wire forms of the request's fields, in order.
        shows: The kind of artifact that it names.
        begins: True if the artifact, or the workspace of its command, may begin with it.
        codecs: For an operation of a record, the conversions between parameters and fields.
        signature: The signature for a restricted agent.
        here: The signature with the parameters that only a trusted program has.
        attribute: The method of a record that answers it: `prompts.get`.
    """

    name: str
    request: type[Ask]
    result: Any
    needs: Callable[[Any], tuple[Need, ...]]
    place: ChainKind
    takes: Takes
    fields: dict[str, Kind]
    shows: ArtifactKind[Any] | None = None
    begins: bool = False
    codecs: Mapping[str, Codec] = NOTHING
    signature: inspect.Signature = inspect.Signature()
    here: inspect.Signature = inspect.Signature()
    noun: Any = None
    attribute: str = ""
    hints: Mapping[str, Any] = NOTHING

    @property
    def group(self) -> str:
        """The object that has it: `record`, or a part of a session, or a block in one."""
        return self.name.partition(".")[0]

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.name.partition(".")[2]

    @property
    def verb(self) -> str:
        """The word for it in the subject of a request."""
        return self.method.replace(".", "_")

    @property
    def called(self) -> str:
        """The name in messages; for an operation of the session itself, its method alone."""
        return self.method if self.group in ("facts", "session") else self.name

    def build_request(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], scrub: Scrub | None
    ) -> Ask:
        """Build the request of a call, without secrets. Raises TypeError, BadValue, NotOffered."""
        try:
            arguments = self.here.bind(None, *args, **kwargs).arguments
        except TypeError as error:
            message = f"{self.called}(): {error}"
            raise TypeError(message) from None
        for name, value in arguments.items():
            if (
                name not in self.signature.parameters
                and value != self.here.parameters[name].default
            ):
                raise NotOffered(f"{self.called}({name}=)", TRUSTED)
        return self.request(
            **{
                name: codec.encode(arguments[name], name, scrub)
                for name, codec in self.codecs.items()
                if name in arguments
            }
        )

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Check the types of a call's arguments as the service does. Raises TypeError, BadValue."""
        given = _bound(self.here, None, *args, **kwargs)
        for name, codec in self.codecs.items():
            if name in given and self.fields[name] in (Kind.NAME, Kind.PLAIN):
                try:
                    plain = msgspec.to_builtins(codec.encode(given[name], name, None))
                    msgspec.convert(plain, codec.wire)
                except NotOffered:  # a form that only a trusted program may give
                    continue
                except (msgspec.ValidationError, TypeError) as error:
                    fact = f"{given[name]!r:.80}"
                    remedy = str(error).partition(",")[0].replace("Expected", "give")
                    raise BadValue(f"{self.called}({name})", fact, remedy) from error

    async def answer(self, record: Any, request: Ask, actor: object) -> Any:
        """Run a request of `actor` on `record`. Raises BadValue, and the operation's errors."""
        return await self.method_of(record)(**self.arguments(request, actor))

    def arguments(self, request: Ask, actor: object = None) -> dict[str, Any]:
        """Return the arguments of a request, and its author if one is given. Raises BadValue."""
        values_by_name = {
            name: codec.decode(getattr(request, name), f"{self.called}({name})")
            for name, codec in self.codecs.items()
        }
        if actor is not None and "by" in self.here.parameters and "by" not in values_by_name:
            values_by_name["by"] = actor
        return values_by_name

    def method_of(self, record: Any) -> Any:
        """Return the method of a record that answers it."""
        return getattr(self.noun_of(record), self.attribute)

    def noun_of(self, record: Any) -> Any:
        """Return the noun of a record that has it."""
        return self.noun._of(record)  # noqa: SLF001 -- its own class


REGISTRY: dict[str, Operation] = {}
"""All operations by name, of a record, its sessions and slices; `session` adds them."""


class _Least:
    """Arguments with which an operation requires the fewest permissions."""

    space = path = reason = "any"

    def __getattr__(self, name: str) -> None:
        if name == "ops":
            raise AttributeError(name)


def permitted(permit: Permit) -> list[str]:
    """Return the operations that a role permits with some arguments, by name."""
    least = _Least()
    return sorted(
        name for name, each in REGISTRY.items() if all(map(permit.may, each.needs(least)))
    )


def _bound(signature: inspect.Signature, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call by name; none if they do not fit, which the call raises."""
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError:
        return {}


# ------------------------------------------------------------ parameters


def _same(value: Any, *_: object) -> Any:
    return value


class Codec(msgspec.Struct, frozen=True):
    """The wire form of a parameter.

    Attributes:
        wire: The type of its field.
        encode: The client's conversion, of the value, its name and the redaction.
        decode: The service's conversion, of the value and its place.
        is_text: True if secrets are removed from it; in a name they are an error.
    """

    wire: Any
    encode: Callable[[Any, str, Any], Any] = _same
    decode: Callable[[Any, str], Any] = _same
    is_text: bool = False


class _Here:
    """Marks a parameter that only a trusted program has."""


def _prose(value: Any, _: str, scrub: Scrub | None) -> Any:
    return recordable(value, scrub) if isinstance(value, str) else value


def _proses(texts: Any, name: str, scrub: Scrub | None) -> Any:
    return [_prose(each, name, scrub) for each in texts]


def _exact(value: Any, name: str, scrub: Scrub | None) -> str:
    text = values.plain(value, name, scrub)
    if isinstance(text, str):
        return text
    fact = "not a text, a secret, or with a lone surrogate"
    raise BadValue(name, fact, "give a text; a secret as a variable")


def _content(value: Any, name: str, scrub: Scrub | None) -> msgspec.Raw:
    return values.dump(values.plain(value, name, scrub))


def _named(value: Any, name: str, scrub: Scrub | None) -> msgspec.Raw:
    return _content(dict(value) if isinstance(value, Mapping) else value, name, scrub)


def data_of(raw: msgspec.Raw, where: str) -> dict[str, Any]:
    """Return a field's values by their names. Raises BadValue."""
    fields = values.load(raw)
    if type(fields) is not dict:
        raise BadValue(where, f"{fields!r:.80}", "give values by their names")
    return fields


def _list(value: Any, *_: object) -> Any:
    return value if isinstance(value, str | Mapping) else list(value)


def choice(kind: type[Enum]) -> Codec:
    """Return the codec of an enumeration, by member or value."""
    return Codec(kind, lambda value, name, _: chosen(kind, value, name))


def event_point(at: object, *_: object) -> str | None:
    """Return a point of a run that a role may name. Raises NotOffered."""
    if at is not None and not isinstance(at, str):
        raise NotOffered(f"view(at={at!r:.40})", "give the id of an event that the agent was shown")
    return at


def _point(at: object, *_: object) -> str | None:
    return at.isoformat() if isinstance(at, datetime) else event_point(at)


Here = Annotated[T, _Here()]
By = Here[str]
EventPoint = Annotated[object, Codec(str | None, event_point)]
Point = Annotated[object, Codec(str | None, _point)]
Prose = Annotated[str, Codec(str, _prose, is_text=True)]
Proses = Annotated[Sequence[str], Codec(list[str], _proses, is_text=True)]
Exact = Annotated[str, Codec(str, _exact, is_text=True)]
Content = Annotated[Any, Codec(Value, _content, lambda raw, _: values.load(raw), is_text=True)]
Named = Annotated[Mapping[str, Any], Codec(Data, _named, data_of, is_text=True)]


def _codec_of(hint: Any) -> Codec | None:
    """Return the codec of a parameter's type; None for a parameter that is not sent."""
    if get_origin(hint) is Annotated:
        for mark in get_args(hint)[1:]:
            if isinstance(mark, Codec):
                return mark
            if isinstance(mark, _Here):
                return None
    if get_origin(hint) is Sequence:
        return Codec(list[get_args(hint)[0]], _list)  # type: ignore[misc]  # made at run time
    return Codec(hint)


# ------------------------------------------------------------ contexts and clients


class Context:
    """The workspace and tables that operations use: of a trusted program, or as a role sees them.

    That of a restricted agent (`is_remote`) has neither, and sends each operation to the service.
    """

    is_remote: ClassVar[bool] = False
    workspace: Workspace
    redaction: Redaction | None = None
    """Refuses secrets in names, and removes them from errors; the service's context has none."""

    def demand_own(self, method: str, by: str) -> None:
        """Raise NotOffered if the caller may not act in the name of another."""

    def experience_index(self) -> contextlib.AbstractContextManager[ExperienceIndex]:
        """Return a new index of experiences: a kept one would rank by what other roles see."""
        from hansard.inspect.experience import ExperienceIndex  # noqa: PLC0415 -- used by few
        from hansard.projections.file_search import FileWords  # noqa: PLC0415 -- takes sqlite

        return contextlib.closing(ExperienceIndex(FileWords()))

    async def shows(self, label: Label | None) -> bool:
        """Record that data of a label is shown; return False if the caller is not cleared."""
        del label
        return True

    if TYPE_CHECKING:

        def read(self, reads: Callable[[Reader], R], what: str, *words: object) -> Awaitable[R]:
            """Run one of our own reads on the tables; `what` and `words` identify it on record."""

        def ask(
            self,
            what: str,
            statement: str,
            parameters: Sequence[object],
            tables: Mapping[str, Any] = NOTHING,
        ) -> Awaitable[SqlAnswer]:
            """Answer an SQL statement from the tables."""

        async def label_of_runs(self, runs: Sequence[str]) -> Label | None:
            """Return the label of data learned from runs."""

        async def send(
            self, operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]
        ) -> Any:
            """Send an operation; return its result, or raise its error."""


class Client:
    """The client that a noun is for: its methods are called, or awaited."""


class Sync(Client):
    """The sync client."""


class Async(Client):
    """The async client."""


class TrustedSync(Sync):
    """The sync client of a trusted program."""


class TrustedAsync(Async):
    """The async client of a trusted program."""


C_co = TypeVar("C_co", bound=Client, covariant=True)


class Noun(Generic[C_co]):
    """Operations on one kind of thing, each an async method with `@operation`.

    The same class serves every client: for `Prompts[Sync]` a method returns its result, for
    `Prompts[Async]` it is awaited.
    """

    _path: ClassVar[str] = ""
    """The attribute of a record that has it; empty for the record itself."""

    def __init_subclass__(cls, *, noun: str = "") -> None:
        super().__init_subclass__()
        cls._path = noun or cls._path

    def __init__(self, context: Context, portal: Portal | None = None) -> None:
        self._context = context
        self._portal: Any = portal
        """Runs the calls of the sync client; None for the async client."""

    @classmethod
    def _of(cls, record: Any) -> Any:
        """Return this noun of a record."""
        return getattr(record, cls._path) if cls._path else record

    @functools.cached_property
    def _async(self) -> Any:
        """The same noun for the async client."""
        noun = copy.copy(self)
        noun._portal = None  # noqa: SLF001 -- of the noun itself
        return noun

    @property
    def _workspace(self) -> Workspace:
        return self._context.workspace

    @property
    def _redaction(self) -> Redaction | None:
        return self._context.redaction


class Part:
    """An attribute of a record that holds a noun."""

    def __init__(self, kind: type[Noun[Any]]) -> None:
        self.kind = kind

    def __get__(self, record: Any, _: object = None) -> Any:
        if record is None:
            return self
        noun = self.kind(record._context, record._portal)  # noqa: SLF001 -- of the record, which is a noun
        record.__dict__[self.kind._path] = noun  # noqa: SLF001 -- its own class
        return noun


def part(kind: type[N]) -> N:
    """Return the attribute of a record for a noun."""
    attribute: Any = Part(kind)
    noun: N = attribute
    return noun


# ------------------------------------------------------------ declarations


class Method(Generic[P, T]):
    """A method of a noun for all clients, which the async client runs and the sync one waits for.

    A restricted agent sends it, if it is an operation. `inspect.signature` and `help` show the
    signature and docstring of the declared method.
    """

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self.method: Any = method
        wrapper: Any = self
        functools.update_wrapper(wrapper, self.method)
        self.blocking: Any = None
        """The sync client's own method, if it does more than wait."""

    def __set_name__(self, owner: type[Noun[Any]], name: str) -> None:
        self._owner = owner
        self.attribute = name

    @property
    def full_name(self) -> str:
        """The name in messages: `record.prompts.get`."""
        noun = self._owner._path  # noqa: SLF001 -- its own class
        return ".".join(filter(None, ("record", noun, self.attribute.lstrip("_"))))

    def sync(self, method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
        """Decorate the method of the sync client, if it does more than wait."""
        self.blocking = method
        return method

    if TYPE_CHECKING:

        @overload
        def __get__(self, noun: None, owner: Any = None) -> Self: ...
        @overload
        def __get__(self, noun: Noun[Sync], owner: Any = None) -> Callable[P, T]: ...
        @overload
        def __get__(
            self, noun: Noun[Async], owner: Any = None
        ) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, noun: Any, owner: Any = None) -> Any:
        if noun is None:
            return self
        return MethodType(self._of(noun), noun)

    def __call__(self, noun: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call it on a noun, as any method of a class."""
        return self.__get__(noun)(*args, **kwargs)

    def _of(self, noun: Noun[Any]) -> Any:
        """Return the function for a noun's client."""
        return self._here if noun._portal is None else self._waits  # noqa: SLF001 -- its own descriptor

    @functools.cached_property
    def _here(self) -> Any:
        return self._guarded(self.method)

    @functools.cached_property
    def _waits(self) -> Any:
        if self.blocking is not None:
            return self._guarded(self.blocking)
        name = self.attribute

        @functools.wraps(self.method)
        def wait(noun: Any, /, *args: Any, **kwargs: Any) -> Any:
            return noun._portal.run(getattr(noun._async, name)(*args, **kwargs))  # noqa: SLF001 -- of the noun itself

        return wait

    def _guarded(self, method: Any) -> Any:
        """Keep secrets out of the names and errors of a public method."""
        if self.attribute.startswith("_"):
            return method
        hints = get_type_hints(self.method, include_extras=True)
        codecs = {name: _codec_of(hint) for name, hint in hints.items() if name != "return"}
        texts = {name for name, codec in codecs.items() if codec is not None and codec.is_text}
        return guarded(self.full_name, method, TEXTS | texts)


class TrustedMethod(Method[P, T]):
    """A method that only trusted programs have. For type checkers, others do not have it."""

    begins = False
    """True if the workspace may begin with its command."""

    @functools.cached_property
    def operation(self) -> Operation:
        """Its declaration, for a command; no service answers it."""
        declared = _Declared(free, Takes.LITTLE, shows=None, begins=self.begins)
        return _derived(self.full_name, self._owner, self.attribute, self.method, declared)

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # fewer clients
        def __get__(self, noun: None, owner: Any = None) -> Self: ...
        @overload
        def __get__(self, noun: Noun[TrustedSync], owner: Any = None) -> Callable[P, T]: ...
        @overload
        def __get__(
            self, noun: Noun[TrustedAsync], owner: Any = None
        ) -> Callable[P, Coroutine[Any, Any, T]]: ...
        def __get__(self, noun: Any, owner: Any = None) -> Any: ...

    def _of(self, noun: Noun[Any]) -> Any:
        if noun._context.is_remote:  # noqa: SLF001 -- its own descriptor
            raise NotOffered(self.full_name, TRUSTED)
        return super()._of(noun)

    @functools.cached_property
    def _here(self) -> Any:
        signature = inspect.signature(self.method)
        kinds = {
            name: hint
            for name, hint in get_type_hints(self.method).items()
            if isinstance(hint, type) and hint is not object
        }

        @functools.wraps(self.method)
        async def checked(noun: Any, /, *args: Any, **kwargs: Any) -> Any:
            for name, value in _bound(signature, noun, *args, **kwargs).items():
                if name in kinds and not isinstance(value, kinds[name]):
                    remedy = f"give {kinds[name].__name__}"
                    raise BadValue(f"{self.full_name}({name})", f"{value!r:.80}", remedy)
            return await self.method(noun, *args, **kwargs)

        return self._guarded(checked)


class OperationMethod(Method[P, T]):
    """A method that a restricted agent sends to the service."""

    def __init__(self, method: Any, declared: _Declared) -> None:
        super().__init__(method)
        self._declared = declared

    @functools.cached_property
    def operation(self) -> Operation:
        """The operation, as derived from the method."""
        return _derived(self.full_name, self._owner, self.attribute, self.method, self._declared)

    @functools.cached_property
    def _here(self) -> Any:
        if self.attribute.startswith("_"):
            return self.method

        @functools.wraps(self.method)
        async def checked(noun: Any, /, *args: Any, **kwargs: Any) -> Any:
            self.operation.check(args, kwargs)
            return await self.method(noun, *args, **kwargs)

        return self._guarded(checked)

    def _of(self, noun: Noun[Any]) -> Any:
        is_sent = noun._context.is_remote and noun._portal is None  # noqa: SLF001 -- its own descriptor
        return self._sends if is_sent else super()._of(noun)

    @functools.cached_property
    def _sends(self) -> Any:
        operation = self.operation

        @functools.wraps(self.method)
        async def send(noun: Any, /, *args: Any, **kwargs: Any) -> Any:
            return await noun._context.send(operation, args, kwargs)  # noqa: SLF001 -- of the noun itself

        send.__signature__ = operation.signature  # type: ignore[attr-defined]  # what `inspect` reads
        return self._guarded(send)


composite = Method
"""Decorator of a method that calls operations: it runs at every client."""

trusted = TrustedMethod
"""Decorator of a method that only trusted programs have."""


class _Declared(msgspec.Struct, frozen=True):
    """The arguments of `operation` for a method."""

    needs: Callable[[Any], tuple[Need, ...]]
    takes: Takes
    shows: ArtifactKind[Any] | None
    begins: bool


def free(_: Any) -> tuple[Need, ...]:
    """Return no permissions: none are required."""
    return ()


def operation(
    *,
    needs: Callable[[Any], tuple[Need, ...]],
    takes: Takes = Takes.LITTLE,
    shows: ArtifactKind[Any] | None = None,
    begins: bool = False,
) -> Callable[[Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]], OperationMethod[P, T]]:
    """Declare an async method of a noun as an operation.

    Args:
        needs: Returns the permissions that a request requires of a restricted agent's role.
        takes: The cost class.
        shows: The kind of the artifact that a request names: it is recorded as shown before the
            answer, and does not exist for a role without clearance for it.
        begins: True if the artifact, or the workspace of its command, may begin with it.
    """
    declared = _Declared(needs, takes, shows, begins)

    def declare(method: Any) -> Any:
        code, hints = method.__code__, method.__annotations__
        for name in code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]:
            if name not in hints:
                message = f"{method.__qualname__}: annotate {name!r}, as Name, Prose or a type"
                raise TypeError(message)
        return OperationMethod(method, declared)

    return declare


def of_record(*nouns: type[Noun[Any]], also_trusted: bool = False) -> dict[str, Operation]:
    """Return the operations of nouns, and of their parts, by name; those that only a trusted
    program has are for commands.
    """
    operations: dict[str, Operation] = {}
    for noun in nouns:
        for each in (each for kind in noun.__mro__ for each in vars(kind).values()):
            if isinstance(each, OperationMethod) or (
                also_trusted and isinstance(each, TrustedMethod)
            ):
                operations[each.operation.name] = each.operation
            elif isinstance(each, Part):
                operations |= of_record(each.kind)
    return operations


def _derived(
    name: str, noun: type[Noun[Any]], attribute: str, method: Any, declared: _Declared
) -> Operation:
    hints = get_type_hints(method, include_extras=True)
    here = inspect.signature(method)
    codecs: dict[str, Codec] = {}
    fields: list[Any] = []
    for parameter in [*here.parameters.values()][1:]:
        codec = _codec_of(hints[parameter.name])
        if codec is None:
            continue
        codecs[parameter.name] = codec
        field: tuple[Any, ...] = (parameter.name, codec.wire)
        if parameter.default is not parameter.empty:
            default = codec.encode(parameter.default, parameter.name, None)
            field = (*field, default)
        fields.append(field)
    request: Any = msgspec.defstruct(
        name.replace(".", "_"), fields, bases=(Ask,), frozen=True, tag=name, kw_only=False
    )
    request.__doc__ = inspect.getdoc(method)
    known = [each for key, each in here.parameters.items() if key == "self" or key in codecs]
    return Operation(
        name=name,
        request=request,
        result=hints["return"],
        needs=declared.needs,
        place=ChainKind.STEP,
        takes=declared.takes,
        fields=kinds_of(request),
        shows=declared.shows,
        begins=declared.begins,
        codecs=codecs,
        signature=here.replace(parameters=known),
        here=here,
        noun=noun,
        attribute=attribute,
        hints=hints,
    )


_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
_SECTIONS = re.compile(r"\n(?:Args|Raises|Returns|Yields):\n|\s+Raises\b")


def described(doc: str) -> tuple[str, dict[str, str]]:
    """Return a docstring's description, and that of each parameter."""
    listed = doc.partition("\nArgs:\n")[2].partition("\n\n")[0]
    about = {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(listed)}
    return _SECTIONS.split(doc)[0].strip(), about


def documented(operation: Operation) -> tuple[str, dict[str, str]]:
    """Return an operation's description, and that of each parameter, from its docstring."""
    return described(operation.request.__doc__ or "")
