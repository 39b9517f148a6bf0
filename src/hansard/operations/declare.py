"""Declare an operation once: its request, wire form, checks and scrubbing follow from it.

An operation of a record is an async method with `@operation`. The annotations of its parameters
define their wire form; its request, result type and signature are derived at first use. An
operation of a session is declared by its request (`hansard.operations.session`).

    Name            a text used as a name elsewhere; it may hold no secret
    Text            a text; if it is entirely a secret, the secret's name is sent
    Value, Data     a program's value, as recorded (`hansard.domain.values`); values by name
    Prose, Exact    a text from which secrets are removed; one that may not be a secret
    Content         a program's value, as a parameter of a method
    Here            a parameter that only a trusted program has
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Optional,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from hansard.agents.policy.permits import Need
from hansard.agents.workspace import Workspace
from hansard.domain import values
from hansard.domain.choices import NOTHING, chosen
from hansard.domain.decider import ArtifactKind
from hansard.domain.errors import BadValue
from hansard.domain.label import Label
from hansard.domain.values import Scrub, recordable
from hansard.inspect.answer import Answer
from hansard.operations.protocol.errors import NotOffered
from hansard.operations.sql_answer import SqlAnswer
from hansard.projections.snapshots import Reader

T = TypeVar("T")
R = TypeVar("R", bound=Answer)
N = TypeVar("N", bound="Noun")
F = TypeVar("F", bound=Callable[..., Any])

TRUSTED = "have a trusted program or the workspace's operator do it"


class SecretName(msgspec.Struct, frozen=True, tag_field="is", tag="secret"):
    """A text that is a secret, by its name."""

    name: str


Name = Annotated[str, "name"]
Text = str | SecretName
Value = msgspec.Raw
Data = Annotated[msgspec.Raw, "data"]

EMPTY_DATA = msgspec.Raw(b"{}")


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
        begins: True if the artifact may begin with it.
        codecs: For an operation of a record, the conversions between parameters and fields.
        signature: The signature for a restricted agent.
        here: The signature with the parameters that only a trusted program has.
        attribute: The method that answers it.
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
    attribute: str = ""

    @property
    def group(self) -> str:
        """The object that has it: `record`, or a part of a session, or a block in one."""
        return self.name.partition(".")[0]

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.name.partition(".")[2]

    @property
    def called(self) -> str:
        """The name in messages; for an operation of the session itself, its method alone."""
        return self.method if self.group in ("facts", "session") else self.name

    def build_request(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], scrub: Scrub | None
    ) -> Ask:
        """Build the request of a call, without secrets. Raises TypeError, BadValue, NotOffered."""
        try:
            given = self.here.bind(None, *args, **kwargs).arguments
        except TypeError as error:
            message = f"{self.called}(): {error}"
            raise TypeError(message) from None
        for name, value in given.items():
            if (
                name not in self.signature.parameters
                and value != self.here.parameters[name].default
            ):
                raise NotOffered(f"{self.called}({name}=)", TRUSTED)
        return self.request(
            **{
                name: codec.encode(given[name], name, scrub)
                for name, codec in self.codecs.items()
                if name in given
            }
        )

    async def answer(self, record: Any, request: Ask, actor: object) -> Any:
        """Run a request of `actor` on `record`. Raises BadValue, and the operation's errors."""
        given = {
            name: codec.decode(getattr(request, name), f"{self.called}({name})")
            for name, codec in self.codecs.items()
        }
        if "by" in self.here.parameters and "by" not in given:
            given["by"] = actor
        return await getattr(record, self.attribute)(**given)


# ------------------------------------------------------------ parameters


def _same(value: Any, *_: object) -> Any:
    return value


class Codec(msgspec.Struct, frozen=True):
    """The wire form of a parameter.

    Attributes:
        wire: The type of its field.
        encode: The client's conversion, of the value, its name and the redaction.
        decode: The service's conversion, of the value and its place.
    """

    wire: Any
    encode: Callable[[Any, str, Any], Any] = _same
    decode: Callable[[Any, str], Any] = _same


class _Here:
    """Marks a parameter that only a trusted program has."""


def _prose(value: Any, _: str, scrub: Scrub | None) -> Any:
    return recordable(value, scrub)


def _proses(given: Any, _: str, scrub: Scrub | None) -> Any:
    return [recordable(each, scrub) for each in given]


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
    found = values.load(raw)
    if type(found) is not dict:
        raise BadValue(where, f"{found!r:.80}", "give values by their names")
    return found


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
Prose = Annotated[str, Codec(str, _prose)]
Proses = Annotated[Sequence[str], Codec(list[str], _proses)]
Exact = Annotated[str, Codec(str, _exact)]
Content = Annotated[Any, Codec(Value, _content, lambda raw, _: values.load(raw))]
Named = Annotated[Mapping[str, Any], Codec(Data, _named, data_of)]


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


# ------------------------------------------------------------ declarations


class _Declared(msgspec.Struct, frozen=True):
    """The arguments of `operation` for a method."""

    method: Callable[..., Any]
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
) -> Callable[[F], F]:
    """Declare an async method as an operation of a record; the method is unchanged.

    Args:
        needs: Returns the permissions that a request requires of a restricted agent's role.
        takes: The cost class.
        shows: The kind of the artifact that a request names: it is recorded as shown before the
            answer, and does not exist for a role without clearance for it.
        begins: True if the artifact may begin with it.
    """

    def declare(method: F) -> F:
        stated: Any = method
        stated.declared = _Declared(method, needs, takes, shows, begins)
        return method

    return declare


def of_record(*nouns: type[Noun]) -> dict[str, Operation]:
    """Return the operations that nouns declare, by name."""
    kinds = dict.fromkeys(kind for noun in nouns for kind in noun.__mro__)
    methods = [each for kind in kinds for each in vars(kind).values()]
    found = [_derived(each.declared) for each in methods if hasattr(each, "declared")]
    return {each.name: each for each in found}


@functools.cache
def _derived(declared: _Declared) -> Operation:
    name = f"record.{declared.method.__name__.lstrip('_')}"
    hints = get_type_hints(declared.method, include_extras=True)
    here = inspect.signature(declared.method)
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
    request.__doc__ = inspect.getdoc(declared.method)
    known = [each for key, each in here.parameters.items() if key == "self" or key in codecs]
    return Operation(
        name=name,
        request=request,
        result=hints["return"],
        needs=declared.needs,
        place=ChainKind.STEP,
        takes=declared.takes,
        shows=declared.shows,
        begins=declared.begins,
        fields=kinds_of(request),
        codecs=codecs,
        signature=here.replace(parameters=known),
        here=here,
        attribute=declared.method.__name__,
    )


def sent(cls: type[N]) -> type[N]:
    """Decorate a class to send each operation that it inherits, by its `_send`."""
    for each in of_record(cls).values():
        setattr(cls, each.attribute, _sender(getattr(cls, each.attribute), each))
    return cls


def _sender(method: Any, operation: Operation) -> Any:
    @functools.wraps(method)
    async def send(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return await self._send(operation, args, kwargs)

    send.__signature__ = operation.signature  # type: ignore[attr-defined]  # what `inspect` reads
    return send


# ------------------------------------------------------------ nouns


class Noun:
    """Operations on one kind of thing, each an async method.

    The class that inherits them supplies workspace and tables: a trusted program's record all of
    it, the service's the part that a principal's role sees. A restricted agent's sends them
    (`sent`).
    """

    _workspace: Workspace

    def _demand_own(self, method: str, by: str) -> None:
        """Raise NotOffered if the caller may not act in the name of another."""

    if TYPE_CHECKING:

        def _read(self, reads: Callable[[Reader], R], what: str, *words: object) -> Awaitable[R]:
            """Run one of our own reads on the tables; `what` and `words` identify it on record."""

        def _ask(
            self,
            what: str,
            statement: str,
            parameters: Sequence[object],
            tables: Mapping[str, Any] = NOTHING,
        ) -> Awaitable[SqlAnswer]:
            """Answer an SQL statement from the tables."""

        async def _label_of_runs(self, runs: Sequence[str]) -> Label | None:
            """Return the label of data learned from runs."""
