"""Conversion of exceptions to their recorded form, and back."""

from __future__ import annotations

import builtins
import contextlib
import functools
import types
from typing import Any

import msgspec

from hansard.agents import flow
from hansard.agents.errors import Blocked, RecordedFailure, ShadowedEffect
from hansard.agents.steps import conversions
from hansard.agents.steps.tools import ToolSpec
from hansard.domain import value_types, values
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.fingerprint import digest
from hansard.domain.steps import NO_ATTRIBUTES, Failure, Step, StepFailed, StepStatus, Withheld
from hansard.domain.values import RECORDED_LENGTH_MAX, Scrub, recordable

ATTRIBUTES_BYTES_MAX = 32 * 1024
"""Largest recorded attributes of an error, as JSON, in bytes; the rest is left out."""

CAUSES_MAX = 8
"""Largest recorded depth of causes, and of nested groups."""

EXCEPTIONS_MAX = 100
"""Largest number of a group's exceptions that are recorded."""

OWN_NOTES = ("recorded at step ", "hansard: ")
"""Prefixes of notes that Hansard adds itself; they are not recorded."""

_NOT_STATE = frozenset({"__dict__", "__weakref__", "__notes__", "exceptions", "message"})
_UNKEPT = frozenset({"obj"})
"""Fields of builtin errors that hold a live object, which is of no use afterwards."""

TRANSFERRED = "_hansard_failure"
"""Attribute of an error from a client that holds its recorded form."""


def failure(error: BaseException, scrub: Scrub | None = None, depth: int = 0) -> Failure:
    """Return an exception as it is recorded, with secrets removed."""
    transferred = vars(error).get(TRANSFERRED)
    if isinstance(transferred, Failure):
        return _scrubbed(transferred, scrub)
    message = _safe_text(error, scrub)
    lost: list[str] = []
    own_arguments = _exact(_creation_arguments(error), "error", scrub)
    arguments = values.dump([message] if own_arguments is msgspec.UNSET else own_arguments)
    if own_arguments is msgspec.UNSET or len(bytes(arguments)) > RECORDED_LENGTH_MAX:
        arguments = values.dump([message])
        lost.append("args")
    members: tuple[Failure, ...] = ()
    if isinstance(error, BaseExceptionGroup):
        most = EXCEPTIONS_MAX if depth < CAUSES_MAX else 1
        members = tuple(failure(each, scrub, depth + 1) for each in error.exceptions[:most])
        arguments = values.dump([recordable(error.message, scrub)])
        lost = ["exceptions"] if len(members) < len(error.exceptions) else []
    kind = type(error)
    cause = error.__cause__ if depth < CAUSES_MAX else None
    attributes = _recorded_attributes(error, scrub, lost)
    return Failure(
        kind.__qualname__,
        message,
        arguments,
        kind.__module__,
        attributes=attributes,
        lost=tuple(lost),
        exceptions=members,
        cause=failure(cause, scrub, depth + 1) if cause is not None else None,
        notes=_notes(error, scrub),
    )


def _scrubbed(failure_record: Failure, scrub: Scrub | None) -> Failure:
    """Return a client's recorded failure, with this record's secrets removed."""
    attributes = failure_record.attributes
    with value_types.reading():
        arguments = values.dump(values.plain(values.load(failure_record.arguments), "error", scrub))
        if len(bytes(attributes)) > ATTRIBUTES_BYTES_MAX:
            attributes = NO_ATTRIBUTES
        elif attributes != NO_ATTRIBUTES:
            attributes = values.dump(values.plain(values.load(attributes), "error", scrub))
    return msgspec.structs.replace(
        failure_record,
        message=recordable(failure_record.message, scrub),
        arguments=arguments,
        attributes=attributes,
        exceptions=tuple(
            _scrubbed(each, scrub) for each in failure_record.exceptions[:EXCEPTIONS_MAX]
        ),
        cause=_scrubbed(failure_record.cause, scrub) if failure_record.cause is not None else None,
        notes=tuple(recordable(note, scrub) for note in failure_record.notes),
    )


def _notes(error: BaseException, scrub: Scrub | None) -> tuple[str, ...]:
    notes = vars(error).get("__notes__") or ()
    if not isinstance(notes, list | tuple):
        return ()
    texts = [note for note in notes if isinstance(note, str) and not note.startswith(OWN_NOTES)]
    return tuple(recordable(note, scrub) for note in texts)


def _recorded_attributes(error: BaseException, scrub: Scrub | None, lost: list[str]) -> msgspec.Raw:
    """Return the attributes that the class and arguments do not determine, smallest first if not
    all fit; the names of the others go into `lost`.
    """
    special = conversions.validation_parts(error)
    if special is None:
        bare = _bare(type(error), _creation_arguments(error), error)
        before = _state(bare) if bare is not None else {}
        state = {
            name: value
            for name, value in _state(error).items()
            if name not in before or not _is_same(before[name], value)
        }
    else:
        state = special
    plain: dict[str, Any] = {}
    for name, value in state.items():
        exact = _exact(value, name, scrub)
        if exact is msgspec.UNSET:
            lost.append(name)
        else:
            plain[name] = exact
    total, kept = 0, {}
    for size, name in sorted((len(bytes(values.dump(plain[name]))), name) for name in plain):
        total += size
        if total > ATTRIBUTES_BYTES_MAX:
            lost.append(name)
        else:
            kept[name] = plain[name]
    return (
        values.dump({name: kept[name] for name in plain if name in kept}) if kept else NO_ATTRIBUTES
    )


def _exact(value: Any, where: str, scrub: Scrub | None) -> values.Plain:
    """Return a value as plain ones that restore an equal value; UNSET if there are none."""
    fields = _tried(value, where, scrub, by_class=False)
    return fields if fields is not msgspec.UNSET else _tried(value, where, scrub, by_class=True)


def _tried(value: Any, where: str, scrub: Scrub | None, *, by_class: bool) -> values.Plain:
    try:
        with value_types.exactly():
            plain = values.plain(value, where, by_class=by_class)
            if values.same(values.revive(plain), value):
                return values.plain(value, where, scrub, by_class=by_class)
    except Exception:  # noqa: BLE001 -- comparing runs the program's own code
        return msgspec.UNSET
    return msgspec.UNSET


def _state(error: BaseException) -> dict[str, Any]:
    """Return an exception's state besides its arguments: attributes, slots, fields of builtin
    bases.
    """
    state: dict[str, Any] = {}
    for name, field in _fields(type(error)).items():
        with contextlib.suppress(AttributeError):  # raised for an empty slot
            state[name] = field.__get__(error)
    return state | {k: v for k, v in vars(error).items() if k not in ("__notes__", TRANSFERRED)}


def _fields(cls: type[BaseException]) -> dict[str, Any]:
    """Return the slots of a class, and the fields of its builtin bases."""
    fields: dict[str, Any] = {}
    for base in cls.__mro__:
        for name, each in vars(base).items() if base not in (BaseException, object) else ():
            is_field = isinstance(each, types.MemberDescriptorType | types.GetSetDescriptorType)
            if is_field and name not in _NOT_STATE | _UNKEPT:
                fields.setdefault(name, each)
    return fields


def _is_same(one: Any, other: Any) -> bool:
    try:
        return one is other or values.same(one, other)
    except Exception:  # noqa: BLE001 -- comparing runs the program's own code
        return False


def _creation_arguments(error: BaseException) -> list[Any]:
    """Return the arguments that create an equal error; an OSError keeps its file names
    elsewhere.
    """
    if isinstance(error, OSError) and error.filename is not None and len(error.args) == 2:  # noqa: PLR2004 -- errno, text
        second = [] if error.filename2 is None else [None, error.filename2]
        return [*error.args, error.filename, *second]
    return list(error.args)


def _safe_text(error: BaseException, scrub: Scrub | None) -> str:
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 -- the error is recorded even if its __str__ raises
        text = f"(its text is unavailable: {type(broken).__name__})"
    return recordable(text, scrub)


def failed(
    step: int,
    error: BaseException,
    scrub: Scrub | None,
    *,
    safe: bool = True,
    usage: dict[str, float] | None = None,
) -> StepFailed:
    """Return the failure of a step as an event; `safe`: the effect certainly did not happen."""
    recorded = failure(error, scrub)
    return StepFailed(
        step=step, error=recorded, digest=failure_digest(recorded), safe=safe, usage=usage or {}
    )


def failure_digest(recorded: Failure) -> str:
    """Return the digest of a failed call in its chain."""
    return digest(b"failed", recorded.type.encode(), recorded.message.encode())


def raised(step: Step, spec: ToolSpec | None) -> BaseException:
    """Return a recorded error as an exception to raise again.

    Its class is looked up by its name in its module, if the program has loaded that, or among the
    builtins, the tool's `raises=` and error lists, and the names visible to the tool's own
    function. Nothing is imported, and only builtins' `__init__` runs: the recorded data fills
    arguments and attributes. If some of that could not be recorded, the error is an instance of its
    class and of `RecordedFailure`; if its class is not found, of `RecordedFailure` only.
    """
    recorded = step.error or Failure("Unknown", "no error was recorded")
    if step.status is StepStatus.BLOCKED and step.withheld is Withheld.REFUSED:
        return ShadowedEffect(step.tool)
    if step.status is StepStatus.BLOCKED:
        return Blocked(step.rule, recorded.message, step.tool)
    error = _restored(recorded, spec)
    error.add_note(f"recorded at step {step.number} ({step.tool})")
    return error


def _restored(recorded: Failure, spec: ToolSpec | None) -> BaseException:
    cls = _class_of(recorded, spec)
    members = [_restored(each, spec) for each in recorded.exceptions]
    error: BaseException | None = None
    if cls is not None:
        whole = not recorded.lost
        error = _made(cls, recorded, members) if whole else None
        if error is None:
            error = _partial(cls, recorded, members)
    if error is None:
        error = RecordedFailure(recorded.type, recorded.message)
    for note in recorded.notes:
        error.add_note(note)
    if recorded.cause is not None:
        error.__cause__ = _restored(recorded.cause, spec)
    return error


def _made(
    cls: type[BaseException], recorded: Failure, members: list[BaseException]
) -> BaseException | None:
    """Return an error of a class as it was, or None if the class does not accept the recorded
    data.
    """
    try:
        attributes = values.load(recorded.attributes)
        arguments = _arguments(recorded)
        if conversions.is_validation_error(cls):
            made: BaseException = conversions.make_validation_error(cls, attributes)
            return made
        error = _bare(cls, [*arguments, members] if members else arguments, None)
        if error is not None:
            _set_state(error, attributes)
    except Exception:  # noqa: BLE001 -- the class has changed: the error is restored in part
        return None
    return error


def _bare(
    cls: type[BaseException], arguments: list[Any], like: BaseException | None
) -> BaseException | None:
    """Return an error of a class with its arguments, created without its `__init__`; None if that
    is not possible.
    """
    builtin: Any = next(base for base in cls.__mro__ if _is_builtin(base))
    if isinstance(like, BaseExceptionGroup):
        arguments = [like.message, list(like.exceptions)]
    try:
        if builtin is cls:
            return builtin(*arguments)
        try:
            error: BaseException = cls.__new__(cls, *arguments)
        except TypeError:
            error = builtin.__new__(cls, *arguments)
        if not issubclass(cls, BaseExceptionGroup):
            builtin.__init__(error, *arguments)
    except (TypeError, ValueError, AttributeError):
        return None
    return error


def _is_builtin(cls: type) -> bool:
    return getattr(builtins, cls.__name__, None) is cls


def _set_state(error: BaseException, attributes: dict[str, Any]) -> None:
    fields = _fields(type(error))
    for name, value in attributes.items():
        if name in fields:
            fields[name].__set__(error, value)
        else:
            vars(error)[name] = value


def _partial(
    cls: type[BaseException], recorded: Failure, members: list[BaseException]
) -> BaseException | None:
    """Return an incompletely recorded error, also an instance of RecordedFailure; None if no such
    class is possible.
    """
    try:
        made = _partial_class(cls)  # type: ignore[arg-type] # a class can be hashed
        attributes = values.load(recorded.attributes)
        arguments = [*_arguments(recorded), members] if members else _arguments(recorded)
        error = _bare(made, arguments, None) or _bare(made, [recorded.message], None)
        if error is None:
            return None
        fields = {"type_name": recorded.type, "message": recorded.message, "lost": recorded.lost}
        vars(error).update(fields)
        _set_state(error, attributes)
    except Exception:  # noqa: BLE001 -- a class may forbid subclasses, or this construction
        return None
    return error


@functools.lru_cache(maxsize=256)
def _partial_class(cls: Any) -> type[BaseException]:
    def text(self: Any) -> str:
        return str(vars(self)["message"])

    def lost(self: Any, name: str) -> Any:
        message = f"{cls.__qualname__}.{name} is not recorded: it was not recordable, or too large"
        raise AttributeError(message, name=name, obj=self)

    about = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": f"A recorded {cls.__qualname__}, of which not all could be recorded.",
        "__str__": text,
        "__getattr__": lost,
    }
    return type(cls.__name__, (RecordedFailure, cls), about)


def _arguments(recorded: Failure) -> list[Any]:
    try:
        loaded: list[Any] = values.load(recorded.arguments)
    except (BadValue, msgspec.DecodeError):
        return [recorded.message]
    return loaded


def _class_of(recorded: Failure, spec: ToolSpec | None) -> type[BaseException] | None:
    candidate: Any = conversions.loaded(recorded.module, recorded.type)
    if not _is_exception(candidate) and recorded.module.partition(".")[0] == "hansard":
        candidate = _own_error(recorded.type)
    if not _is_exception(candidate) and spec is not None:
        declared = (*spec.raises, *spec.safe_errors, *spec.doubtful_errors)
        visible = (*declared, *_visible(spec.function, recorded.type))
        candidate = next((cls for cls in visible if cls.__qualname__ == recorded.type), None)
    return candidate if _is_exception(candidate) else None


def _own_error(name: str) -> type[BaseException] | None:
    """Return the one error of Hansard with this name; its module may have moved since."""
    classes: list[type[BaseException]] = []
    waiting: list[type[BaseException]] = [HansardError]
    while waiting:
        cls = waiting.pop()
        is_own = cls.__module__.partition(".")[0] == "hansard"
        if cls.__qualname__ == name and is_own and RecordedFailure not in cls.__mro__[1:]:
            classes.append(cls)
        waiting += cls.__subclasses__()
    return classes[0] if len(classes) == 1 else None


def _visible(function: Any, name: str) -> list[Any]:
    """Return the classes that a function can see under a name, or in its closure."""
    code = flow.underlying(function)
    cells = [each for each in getattr(code, "__closure__", None) or () if _is_full(each)]
    objects = [getattr(code, "__globals__", {}).get(name), *(each.cell_contents for each in cells)]
    return [each for each in objects if _is_exception(each)]


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 -- raises for a name that is not bound yet
    except ValueError:
        return False
    return True


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)
