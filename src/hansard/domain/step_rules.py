"""What may be said of a step after what was said: an outcome once, an attempt in its turn."""

from __future__ import annotations

from typing import assert_never

from hansard.domain.errors import Refused
from hansard.domain.steps import (
    Outcome,
    Status,
    Step,
    StepAttempted,
    StepBlocked,
    StepCompleted,
    StepEvent,
    StepFailed,
    StepInDoubt,
    StepRequested,
    StepSettled,
    StepYielded,
    Verdict,
)


def check(step: Step | None, event: StepEvent) -> bool:
    """Whether an event is news to a step: False when it is already so. Raises Refused."""
    if step is None:
        if isinstance(event, StepRequested):
            return True
        message = f"step {event.step} was never requested: request it first"
        raise Refused(message)
    match event:
        case StepRequested():
            if step.fingerprint != event.fingerprint:
                message = f"step {event.step} is already another call ({step.tool})"
                raise Refused(message)
            return False
        case StepSettled():
            return _check_settlement(step, event)
        case StepYielded(index=at):
            due = len(step.items)
            return at >= due and _follows(step, f"item {at}", due=at == due)
        case StepAttempted(attempt=at):
            if at == step.attempt and step.closed:  # its reader had stopped early and wants more
                return True
            return at >= step.attempt and _follows(step, f"attempt {at}", due=at == step.attempt)
        case StepCompleted() | StepFailed() | StepBlocked() | StepInDoubt():
            return _check_outcome(step, event)
        case _:
            assert_never(event)


def _follows(step: Step, what: str, *, due: bool) -> bool:
    if due and step.status is not Status.COMPLETED:
        return True
    message = f"{what} cannot follow on step {step.number} ({step.tool}, {step.status})"
    raise Refused(message)


def _check_outcome(step: Step, event: Outcome) -> bool:
    if step.status in (Status.REQUESTED, Status.NOT_DONE):
        return True
    if step.status is Status.IN_DOUBT and not isinstance(event, StepInDoubt):
        return True
    same = {
        StepCompleted: Status.COMPLETED,
        StepFailed: Status.FAILED,
        StepBlocked: Status.BLOCKED,
        StepInDoubt: Status.IN_DOUBT,
    }[type(event)]
    if step.status is same and getattr(event, "digest", step.digest) == step.digest:
        return False
    message = (
        f"step {step.number} ({step.tool}) is already {step.status}; "
        "an outcome is recorded once: settle it if it is wrong"
    )
    raise Refused(message)


def _check_settlement(step: Step, event: StepSettled) -> bool:
    doubtful = event.verdict in (Verdict.HAPPENED, Verdict.DID_NOT_HAPPEN)
    if step.verdict is event.verdict and step.digest == (event.digest or step.digest):
        return False
    if doubtful and not (step.is_open or (step.status is Status.FAILED and not step.safe)):
        message = (
            f"step {step.number} ({step.tool}) is {step.status}, not in doubt: "
            "only --reuse or --run-again can be said of it"
        )
        raise Refused(message)
    if not doubtful and step.status is not Status.COMPLETED and step.status is not Status.FAILED:
        message = (
            f"step {step.number} ({step.tool}) is {step.status} and has no outcome to reuse or "
            "run again: settle it with --happened RESULT or --did-not-happen"
        )
        raise Refused(message)
    return True
