"""Errors of the domain, divided by who must act.

    HansardError                    everything this package raises on purpose
    ├── CallerError                 the caller passed an argument that is not accepted
    │   ├── BadName                 an invalid workspace, run, role, agent or tool name
    │   ├── BadOption               an unknown option; also a TypeError
    │   ├── BadValue                a value that would not survive being recorded
    │   ├── ExtraMissing            a feature needs a package that is not installed
    │   └── Refused                 a command that the recorded state does not allow
    └── RecordError                 the record itself cannot be read
        ├── UnknownEvent            an event type that this version does not know
        └── Corrupt                 the record contradicts itself

Every message gives the fact, the value and the remedy; the values are attributes too.
"""

from __future__ import annotations

import importlib
from typing import Any


class HansardError(Exception):
    """Base of all errors that this package raises on purpose."""


class WithFacts:
    """Mixin of errors whose text and facts are their arguments: an error that is raised again from
    the record has nothing else.
    """

    args: tuple[Any, ...]

    def __str__(self) -> str:
        return str(self.args[0])


def fact_at(place: int, none: object = "") -> Any:
    """Return a property for one argument of an error; `none` if the error has fewer."""
    return property(lambda self: self.args[place] if len(self.args) > place else none)


class CallerError(HansardError):
    """Base of errors about an argument that is not accepted; nothing was written."""


class BadName(CallerError):
    """A name is invalid.

    State: nothing was written.
    Remedy: use the form that the message gives.

    Attributes:
        kind: The kind of thing that the name is for.
        value: The rejected value.
        remedy: The accepted form.
    """

    def __init__(self, kind: str, value: object, remedy: str) -> None:
        super().__init__(f"{kind} name {value!r} is not valid: {remedy}")
        self.kind = kind
        self.value = value
        self.remedy = remedy


class BadOption(CallerError, TypeError):
    """An option is unknown.

    State: nothing was done.
    Remedy: use one of the options that the message lists.

    Attributes:
        where: The function or table that takes the options.
        option: The rejected option.
        remedy: The nearest known option, and all known options.
    """

    def __init__(self, where: str, option: str, remedy: str) -> None:
        super().__init__(f"{where} has no option {option!r}: {remedy}")
        self.where = where
        self.option = option
        self.remedy = remedy


class BadValue(CallerError):
    """A value would not survive being recorded and read back.

    State: nothing was written.
    Remedy: pass the form that the message gives, or register the type with `hansard.value_type`.

    Attributes:
        where: The place of the value.
        fact: The fault.
        remedy: The accepted form.
    """

    def __init__(self, where: str, fact: str, remedy: str) -> None:
        super().__init__(f"{where}: {fact}; {remedy}")
        self.where = where
        self.fact = fact
        self.remedy = remedy


class Refused(CallerError):
    """The recorded state does not allow the command.

    State: nothing was written.
    Remedy: do what the message names first.
    """


class RecordError(HansardError):
    """Base of errors about a record that cannot be read."""


class UnknownEvent(RecordError):
    """A newer version of Hansard wrote an event type that this one does not know.

    State: nothing was written.
    Remedy: install the newer version.
    """

    def __init__(self, tag: str, where: str) -> None:
        super().__init__(
            f"event type {tag!r} at {where} was written by a newer version: "
            "upgrade hansard, or read it with 'hansard run show --json', which keeps its bytes"
        )
        self.tag = tag
        self.where = where


class Corrupt(RecordError):
    """The record contradicts itself: a gap in the versions, a body that disagrees with its subject,
    or a log that ends before its mark.

    State: nothing was written.
    Remedy: run `hansard check`, and restore a backup.

    Attributes:
        where: The place in the record.
        fact: The fault.
    """

    def __init__(self, where: str, fact: str) -> None:
        super().__init__(f"{where}: {fact}; run 'hansard check' to see what else is affected")
        self.where = where
        self.fact = fact


class ExtraMissing(CallerError):
    """A feature needs a package that is not installed.

    State: nothing was read.
    Remedy: install the extra that the message names.

    Attributes:
        package: Name of the package.
        extra: Extra of Hansard that installs it.
    """

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} takes {package}, which is not installed: {install(extra)}")
        self.package = package
        self.extra = extra


def install(extra: str) -> str:
    """Return the remedy for a missing extra: the package is on no index."""
    return f"pip install '.[{extra}]' in a clone of Hansard"


def import_extra(module: str, what: str, package: str, extra: str) -> Any:
    """Import a module of an extra. Raises ExtraMissing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ExtraMissing(what, package, extra) from error
