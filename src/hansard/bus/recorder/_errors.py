"""The bus's errors as the eventsourcing library's, which its users catch.

eventsourcing.persistence.PersistenceError
└── DatabaseError
    ├── DataError            the caller: an event that cannot be stored, or too many at once
    ├── IntegrityError       a lost race: a version or a tracking record already stands there
    ├── OperationalError     the world: no broker, or it refused; nothing was stored
    │   └── OutcomeUnknown   the world: no answer; the events may be stored or not
    └── InternalError        the stored record contradicts itself
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from eventsourcing.persistence import DataError, InternalError, OperationalError

from hansard.bus.errors import BusError, TooLarge, Unreachable
from hansard.domain.errors import Corrupt


class OutcomeUnknown(OperationalError):
    """The broker did not answer in time: the events are stored all, or none. Start no effect.

    Reading the aggregate later tells. Absence is no proof while the connection that sent them may
    still deliver them.
    """

    def __init__(self, what: str, waited_s: float, why: str = "") -> None:
        known = f" ({why})" if why else ""
        super().__init__(
            f"the broker did not confirm {what} within {waited_s:.1f} s{known}: the outcome is "
            "unknown, all of it may be stored or nothing; get the aggregate again before saving it "
            "again"
        )
        self.waited_s = waited_s


@contextmanager
def translated() -> Generator[None]:
    """Raise the library's errors in place of ours."""
    try:
        yield
    except (TooLarge, UnicodeEncodeError) as error:  # the latter: a name that is not text
        raise DataError(str(error)) from error
    except Corrupt as error:
        raise InternalError(f"{error.where}: {error.fact}") from error
    except Unreachable as error:
        hint = "(a recorder looks at NATS_URL before HANSARD_NATS_URL)"
        raise OperationalError(f"{error} {hint}") from error
    except BusError as error:
        raise OperationalError(str(error)) from error
