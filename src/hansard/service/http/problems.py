"""Errors as `application/problem+json` (RFC 9457) with the fact, the value and the remedy."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from hansard.agents.access.principals import AccessDenied
from hansard.agents.errors import Blocked
from hansard.bus.errors import Conflict, Fenced, NotFound, TooLarge
from hansard.client.listening import CLOSE
from hansard.domain.board import BoardConflict
from hansard.domain.errors import CallerError, ExtraMissing, HansardError, Refused
from hansard.domain.memory.space import MemoryConflict
from hansard.domain.prompt import PromptConflict
from hansard.operations.protocol.faults import AccessRefused, NotOffered, ServiceBusy
from hansard.projections.errors import NotAllowed, QueryFailed, SqlBusy, TooCostly

MEDIA_TYPE = "application/problem+json"

RETRY = {"Retry-After": "1"}
"""Header of an answer after which the same request may succeed."""

TYPE = "urn:hansard:problem:"
"""Prefix of the types of problems; the rest is the name of the error's class."""

STATUS: tuple[tuple[type[HansardError] | tuple[type[HansardError], ...], HTTPStatus], ...] = (
    (NotFound, HTTPStatus.NOT_FOUND),
    ((AccessDenied, AccessRefused), HTTPStatus.UNAUTHORIZED),
    ((Blocked, NotOffered), HTTPStatus.FORBIDDEN),
    ((ServiceBusy, SqlBusy), HTTPStatus.TOO_MANY_REQUESTS),
    (TooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (
        (Conflict, Fenced, BoardConflict, MemoryConflict, PromptConflict, Refused),
        HTTPStatus.CONFLICT,
    ),
    (TooCostly, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ExtraMissing, HTTPStatus.NOT_IMPLEMENTED),
    ((NotAllowed, QueryFailed, CallerError), HTTPStatus.BAD_REQUEST),
    (HansardError, HTTPStatus.SERVICE_UNAVAILABLE),
)
"""The status of each class of errors; the first match counts."""

_REMEDY = re.compile(r"^Remedy: (.+?)(?:\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


class CallerRefused(HansardError):
    """The caller of a request is unknown, or may not send it."""

    def __init__(self, status: HTTPStatus, fact: str) -> None:
        super().__init__(fact)
        self.status = status


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of RFC 9457.

    Attributes:
        type: A URN that names the kind of the problem.
        title: A short name of the kind.
        status: The status code.
        detail: The whole message.
        fact: The fault.
        value: The rejected value, or the place of it; empty if there is none.
        remedy: The action that repairs it.
    """

    type: str
    title: str
    status: int
    detail: str
    fact: str
    value: str = ""
    remedy: str = ""


def problem(
    status: HTTPStatus,
    fact: str,
    headers: Mapping[str, str] | None = None,
    *,
    value: str = "",
    remedy: str = "",
    kind: str = "",
) -> Response:
    """Return the answer to a request that failed."""
    return response(
        Problem(
            type=TYPE + (kind or status.phrase.lower().replace(" ", "-")),
            title=status.phrase,
            status=status.value,
            detail=f"{fact}: {remedy}" if remedy else fact,
            fact=fact,
            value=value,
            remedy=remedy,
        ),
        headers,
    )


def response(report: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer of a problem."""
    fields = {"Cache-Control": "no-store"} | dict(headers or {})
    return Response(msgspec.json.encode(report), report.status, fields, MEDIA_TYPE)


def status_of(error: HansardError) -> HTTPStatus:
    """Return the status of an error."""
    return next(status for kinds, status in STATUS if isinstance(error, kinds))


def of_error(error: HansardError) -> Response:
    """Return the answer of an error of Hansard."""
    if isinstance(error, CallerRefused):
        fact, _, remedy = str(error).partition(": ")
        challenge = (
            {"WWW-Authenticate": "Bearer"} if error.status is HTTPStatus.UNAUTHORIZED else {}
        )
        return problem(error.status, fact, CLOSE | challenge, remedy=remedy)
    status = status_of(error)
    fields = {
        name: f"{value}"
        for name in ("fact", "value", "remedy", "where", "what", "option", "kind")
        if (value := getattr(error, name, None)) is not None
    }
    if isinstance(error, NotFound):
        fields["fact"] = f"{error.what} was not found"
        fields["remedy"] = str(error).removeprefix(f"{fields['fact']}: ")
    whole = str(error)
    if type(error) is Refused:  # a message "fact: remedy"
        fields["fact"], _, fields["remedy"] = whole.rpartition(": ")
        fields["fact"] = fields["fact"] or fields.pop("remedy")
    if fields.get("remedy"):
        whole = whole.removesuffix(f": {fields['remedy']}")
    report = Problem(
        type=TYPE + _kebab(type(error).__name__),
        title=_kebab(type(error).__name__).replace("-", " ").capitalize(),
        status=status.value,
        detail=str(error),
        fact=fields.get("fact", whole),
        value=next((fields[k] for k in ("value", "option", "where", "what") if k in fields), ""),
        remedy=fields.get("remedy") or _remedy(inspect.getdoc(error) or ""),
    )
    headers: dict[str, str] = {}
    if status is HTTPStatus.TOO_MANY_REQUESTS:
        after_s = getattr(error, "retry_after_s", None)
        headers = RETRY if after_s is None else {"Retry-After": f"{max(1, round(after_s))}"}
    elif status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers = RETRY
    elif status is HTTPStatus.UNAUTHORIZED:
        headers = {"WWW-Authenticate": "Bearer"}
    return response(report, headers)


@cache
def _remedy(doc: str) -> str:
    """Return the remedy that the docstring of an error's class states."""
    match = _REMEDY.search(doc)
    return " ".join(match[1].split()) if match is not None else ""


@cache
def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
