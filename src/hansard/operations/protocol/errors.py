"""What can go wrong between a restricted agent and the service, told apart by who must act.

    CallerError
    └── NotOffered          the caller: what only a trusted program may do
    BusError
    ├── AccessRefused       the caller: the service does not know these credentials (any more)
    ├── ServiceBusy         the caller: more at once than a principal may have
    ├── ServiceGone         the world: no answer; what was asked may have happened
    └── ServiceFailed       the world: the service met an error that is not for the client's eyes

Those of the bus leave a step as it is: nothing is recorded of them, the run stops here.
"""

from __future__ import annotations

from hansard.bus.errors import BusError
from hansard.domain.errors import CallerError


class NotOffered(CallerError):
    """A restricted agent used an operation of a trusted program.

    State: nothing was sent.
    Remedy: use the alternative that the message names, or let a trusted program do it.

    Attributes:
        what: What was asked.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} is not offered to a restricted agent: {remedy}")
        self.what = what


class AccessRefused(BusError):
    """The service does not accept the credentials for the request.

    State: nothing was done.
    Remedy: get new credentials (`hansard credentials`), or use those of another role.
    """

    def __init__(self) -> None:
        super().__init__(
            "the service refused these credentials: they may have expired or been revoked; "
            "ask who gave them for new ones (hansard credentials ROLE)"
        )


class ServiceBusy(BusError):
    """A principal has as many requests or sessions under way as it may.

    State: nothing was done.
    Remedy: wait `retry_after_s` seconds; if that is None, end a session.

    Attributes:
        limit: The most.
    """

    def __init__(self, what: str, limit: int, retry_after_s: float | None = None) -> None:
        remedy = "end some" if retry_after_s is None else f"ask again in {retry_after_s:g} s"
        super().__init__(
            f"this principal has {limit:,} {what}, the most it may, and nothing was done: {remedy}"
        )
        self.limit = limit
        self.retry_after_s = retry_after_s


class ServiceGone(BusError):
    """The service does not answer.

    State: the request may have been done; the session is over.
    Remedy: start `hansard up`, and open the run again (`run=ID`): the record shows what was done.

    Attributes:
        why: What is known of it.
        taken: Whether the service may have taken what was asked. It has not where it knows the
            session no more, as of a role whose rules have changed since.
    """

    def __init__(self, why: str, *, taken: bool = True) -> None:
        super().__init__(
            f"the service did not answer ({why}): what was asked may have happened or not; "
            "see that 'hansard up' runs, then resume the run"
            if taken
            else f"the session is over ({why}): what was asked was not done; resume the run, and "
            "ask again"
        )
        self.why = why
        self.taken = taken


class ServiceFailed(BusError):
    """The service met an error of its own.

    State: the request may have been done.
    Remedy: open the run again, and read the service's log.
    """

    def __init__(self, kind: str = "an error") -> None:
        super().__init__(
            f"the service met {kind} of its own: what it was is in its log, for who runs "
            "'hansard up'; resume the run when it is mended"
        )
