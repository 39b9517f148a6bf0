"""What can go wrong in the domain, told apart by who must act.

    HansardError                    everything this package raises on purpose
    ├── CallerError                 the caller gave something that cannot be taken
    │   ├── BadName                 a workspace, run, role, agent or tool name that is not one
    │   ├── BadOption               an option that there is not; a TypeError, too
    │   ├── BadValue                a value that would not survive being recorded
    │   └── Refused                 a command that the recorded state does not allow
    └── RecordError                 the record itself cannot be read as asked
        ├── UnknownEvent            an event type that this version does not know
        └── Corrupt                 the record contradicts itself

Every message gives the fact, the value and the remedy; the values are attributes too.
"""

from __future__ import annotations


class HansardError(Exception):
    """Base of everything this package raises on purpose."""


class CallerError(HansardError):
    """The caller gave something that cannot be taken; nothing was written."""


class BadName(CallerError):
    """A name that is not one.

    Attributes:
        kind: Of what it is to be the name.
        value: What was given.
        remedy: What to give.
    """

    def __init__(self, kind: str, value: object, remedy: str) -> None:
        super().__init__(f"{kind} name {value!r} is not valid: {remedy}")
        self.kind = kind
        self.value = value
        self.remedy = remedy


class BadOption(CallerError, TypeError):
    """An option that there is not.

    Attributes:
        where: Of what it is to be an option.
        option: What was given.
        remedy: The nearest, and those that there are.
    """

    def __init__(self, where: str, option: str, remedy: str) -> None:
        super().__init__(f"{where} has no option {option!r}: {remedy}")
        self.where = where
        self.option = option
        self.remedy = remedy


class BadValue(CallerError):
    """A value that would not survive being recorded and read back; nothing was written.

    Attributes:
        where: Where it stands.
        fact: What is wrong with it.
        remedy: What to give.
    """

    def __init__(self, where: str, fact: str, remedy: str) -> None:
        super().__init__(f"{where}: {fact}; {remedy}")
        self.where = where
        self.fact = fact
        self.remedy = remedy


class Refused(CallerError):
    """A command that the recorded state does not allow; nothing was written."""


class RecordError(HansardError):
    """The record itself cannot be read as asked."""


class UnknownEvent(RecordError):
    """An event type that this version does not know, met while folding."""

    def __init__(self, tag: str, where: str) -> None:
        super().__init__(
            f"event type {tag!r} at {where} was written by a newer version: "
            "upgrade hansard, or read it with 'hansard run show --json', which keeps its bytes"
        )
        self.tag = tag
        self.where = where


class Corrupt(RecordError):
    """The record contradicts itself: a hole in the versions, a body that its subject denies.

    Attributes:
        where: Of what.
        fact: What is wrong.
    """

    def __init__(self, where: str, fact: str) -> None:
        super().__init__(f"{where}: {fact}; run 'hansard check' to see what else is affected")
        self.where = where
        self.fact = fact
