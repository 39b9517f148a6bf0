"""Declare an operation once: its request, wire form, checks and scrubbing follow from it.

An operation of a record is an async method with `@operation`. Its parameters' annotations say how
each goes over the wire; its request, result type and signature are derived when they are first
used. An operation of a session is declared by its request (`hansard.operations.session`).

    Name            a text that others go by; it may hold no secret
    Text            a text; one that is a secret altogether goes by the secret's name
    Value, Data     a program's value, as it is recorded (`hansard.domain.values`); one with names
    Prose, Exact    a text without secrets; one that may be no secret
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
from hansard.domain.artifact import ArtifactKind
from hansard.domain.choices import NOTHING, chosen
from hansard.domain.errors import BadValue
from hansard.domain.label import Label
from hansard.domain.values import Scrub, recordable
from hansard.inspect.answer import Answer
from hansard.operations.protocol.errors import NotOffered
from hansard.operations.sql_answer import SqlAnswer
from hansard.projections.reader import Reader

T = TypeVar("T")
R = TypeVar("R", bound=Answer)
N = TypeVar("N", bound="Noun")
F = TypeVar("F", bound=Callable[..., Any])

TRUSTED = "ask a trusted program, or whoever runs the workspace"


class SecretName(msgspec.Struct, frozen=True, tag_field="is", tag="secret"):
    """A text that is a secret, by its name."""

    name: str


Name = Annotated[str, "name"]
Text = str | SecretName
Value = msgspec.Raw
Data = Annotated[msgspec.Raw, "data"]

EMPTY_DATA = msgspec.Raw(b"{}")


class Kind(Enum):
    """How a field goes over the wire."""

    NAME = "name"
    VALUE = "value"
    VALUES = "values"
    DATA = "data"
    PLAIN = "plain"


_KINDS: dict[Any, Kind] = {
    Name: Kind.NAME,
    Optional[Name]: Kind.NAME,  # noqa: UP045 -- the type checker knows no `|` of an annotated one
    list[Name]: Kind.NAME,
    Value: Kind.VALUE,
    list[Value]: Kind.VALUES,
    Data: Kind.DATA,
}


def kinds_of(request: type[Ask]) -> dict[str, Kind]:
    """How each field of a request goes over the wire, in order."""
    hints = get_type_hints(request, include_extras=True)
    return {each: _KINDS.get(hints[each], Kind.PLAIN) for each in request.__struct_fields__}


class Ask(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="op"
):
    """A request of an operation. Its fields are in the order in which the operation takes them."""


class ChainKind(Enum):
    """What an operation is in the chain of its agent's calls."""

    STEP = "step"
    """A step: while it is asked for, another call of the same scope overlaps with it."""

    FACT = "fact"
    """What is stated where a call could be made."""

    NONE = "none"
    """It may be asked for anywhere."""


class Takes(Enum):
    """What answering takes: those of one kind wait for the same places."""

    LITTLE = "little"
    RUN = "run"
    """A whole run is read."""

    LONG = "long"
    """A core, for seconds."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. Its `name` is `<group>.<method>`: the method of that name answers it.

    needs: of a request, what the role needs for it. result: the type of what it comes to.
    fields: those of its request, in order. shows: the kind of artifact that it names, begins: which
    may begin with it. codecs: of an operation of a record, how its
    parameters become those fields and come back. signature: how a restricted agent calls it, here:
    with what only a trusted program has. attribute: the method that answers it.
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
        """What it is asked of: `record`, or the part of a session, or a block in one."""
        return self.name.partition(".")[0]

    @property
    def method(self) -> str:
        """What it is called there."""
        return self.name.partition(".")[2]

    @property
    def called(self) -> str:
        """What messages call it: that of a session itself by its method alone."""
        return self.method if self.group in ("facts", "session") else self.name

    def asked(self, args: Sequence[Any], kwargs: Mapping[str, Any], scrub: Scrub | None) -> Ask:
        """The request of a call, without secrets. Raises TypeError, BadValue, NotOffered."""
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
        """What `record` answers to a request of `actor`. Raises BadValue, and what it raises."""
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
    """How a parameter goes over the wire: the type of its field, how a client encodes it (of the
    value, its name and the redaction), how the service decodes it (of the value, and where).
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
    fact = "it is no text, is a secret, or has a lone surrogate"
    raise BadValue(name, fact, "give a text; a secret as a variable")


def _content(value: Any, name: str, scrub: Scrub | None) -> msgspec.Raw:
    return values.dump(values.plain(value, name, scrub))


def _named(value: Any, name: str, scrub: Scrub | None) -> msgspec.Raw:
    return _content(dict(value) if isinstance(value, Mapping) else value, name, scrub)


def data_of(raw: msgspec.Raw, where: str) -> dict[str, Any]:
    """A field's values by their names. Raises BadValue."""
    found = values.load(raw)
    if type(found) is not dict:
        raise BadValue(where, f"{found!r:.80}", "give values by their names")
    return found


def _list(value: Any, *_: object) -> Any:
    return value if isinstance(value, str | Mapping) else list(value)


def choice(kind: type[Enum]) -> Codec:
    """One of an enumeration, or its value."""
    return Codec(kind, lambda value, name, _: chosen(kind, value, name))


def event_point(at: object, *_: object) -> str | None:
    """A point of a run that a role may name. Raises NotOffered."""
    if at is not None and not isinstance(at, str):
        raise NotOffered(f"view(at={at!r:.40})", "give the id of an event that it was shown")
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
    """How a parameter of a type goes over the wire; None for one that does not."""
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
    """What is stated of a method beside its signature."""

    method: Callable[..., Any]
    needs: Callable[[Any], tuple[Need, ...]]
    takes: Takes
    shows: ArtifactKind[Any] | None
    begins: bool


def free(_: Any) -> tuple[Need, ...]:
    """Nothing is needed."""
    return ()


def operation(
    *,
    needs: Callable[[Any], tuple[Need, ...]],
    takes: Takes = Takes.LITTLE,
    shows: ArtifactKind[Any] | None = None,
    begins: bool = False,
) -> Callable[[F], F]:
    """Declare an async method as an operation of a record; it stays as it is.

    Args:
        needs: Of a request, what the role of a restricted agent needs for it.
        takes: What answering takes.
        shows: The kind of the artifact that its request names: on record as shown before it is
            answered, and not there for a role that is not cleared for it.
        begins: The artifact may begin with it.
    """

    def declare(method: F) -> F:
        stated: Any = method
        stated.declared = _Declared(method, needs, takes, shows, begins)
        return method

    return declare


def of_record(*nouns: type[Noun]) -> dict[str, Operation]:
    """The operations that nouns declare, by name."""
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
    """Have a class send each operation that it inherits, by its `_send`."""
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
    """Operations on one kind of thing, each an async method. Who has them says over which workspace
    and tables: a trusted program over all of it, the service over what a principal's role sees. A
    restricted agent sends them (`sent`).
    """

    _workspace: Workspace

    def _demand_own(self, method: str, by: str) -> None:
        """Raise NotOffered where this one may not act in the name of another."""

    if TYPE_CHECKING:

        def _read(self, reads: Callable[[Reader], R], what: str, *words: object) -> Awaitable[R]:
            """What one of our own reads finds in the tables; `what` is asked, of which `words`."""

        def _ask(
            self,
            what: str,
            statement: str,
            parameters: Sequence[object],
            tables: Mapping[str, Any] = NOTHING,
        ) -> Awaitable[SqlAnswer]:
            """The answer of the tables to a statement."""

        async def _label_of_runs(self, runs: Sequence[str]) -> Label | None:
            """The label of what is learned from runs."""
