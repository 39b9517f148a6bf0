"""Errors between a restricted agent and the service, by who must act.

    CallerError
    └── NotOffered          the caller: an operation of trusted programs
    BusError
    ├── AccessRefused       the caller: the service does not accept these credentials
    ├── ServiceBusy         the caller: more requests at once than a principal may have
    ├── ServiceGone         the world: no answer; the request may have been done
    └── ServiceFailed       the world: the service met an error that the client may not see

Those of the bus record nothing of a step: the run stops here.
"""

from __future__ import annotations

from hansard.bus.errors import BusError
from hansard.domain.errors import CallerError


class NotOffered(CallerError):
    """A restricted agent used an operation of a trusted program.

    State: nothing was sent.
    Remedy: use the alternative that the message names, or let a trusted program do it.

    Attributes:
        what: The operation.
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
            "get new ones (hansard credentials ROLE)"
        )


class ServiceBusy(BusError):
    """A principal has as many requests or sessions under way as it may.

    State: nothing was done.
    Remedy: wait `retry_after_s` seconds; if that is None, end a session.

    Attributes:
        limit: The most allowed.
    """

    def __init__(self, what: str, limit: int, retry_after_s: float | None = None) -> None:
        remedy = "end some" if retry_after_s is None else f"retry in {retry_after_s:g} s"
        super().__init__(
            f"this principal has {limit:,} {what}, the most allowed; nothing was done: {remedy}"
        )
        self.limit = limit
        self.retry_after_s = retry_after_s


class ServiceGone(BusError):
    """The service does not answer.

    State: the request may have been done; the session is over.
    Remedy: start `hansard up`, and open the run again (`run=ID`): the record shows what was done.

    Attributes:
        why: The known reason.
        taken: True if the service may have received the request. It has not if it no longer knows
            the session, as after a change of the role's rules.
    """

    def __init__(self, why: str, *, taken: bool = True) -> None:
        super().__init__(
            f"the service did not answer ({why}): the request may or may not have been done; "
            "check that 'hansard up' runs, then resume the run"
            if taken
            else f"the session is over ({why}): the request was not done; resume the run, and retry"
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
            f"the service met {kind} of its own: see the log of 'hansard up'; resume the run when "
            "it is fixed"
        )
