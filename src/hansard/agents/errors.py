"""Errors of an agent's actions, classified by the party that must act.

    AgentError
    ├── NotDone             raised by tools: the effect certainly did not happen; it may be retried
    ├── Blocked             the gate refused the call; nothing ran
    │   └── RoleRefused     the agent's role does not allow it; nothing was done
    ├── NotBegun            the caller: the session's `with` was not entered yet
    ├── SessionEnded        the caller: the session's `with` was left
    ├── NoScope             the caller: a call from a thread or task that no scope covers
    ├── SecretUnavailable   the caller: a live call needs a secret that no provider supplies
    ├── ToolError           the caller: the declaration of a tool is invalid
    ├── NeedsSettling       a person or a policy must settle a step before the run continues
    │   ├── InDoubt         an intent without a known outcome
    │   ├── Diverged        an earlier step changed before a recorded effect
    │   ├── ResultNotRecordable  in older records: it happened, its result was not recorded
    │   └── ResultMismatch  a recorded result does not match the current classes
    ├── Miss                strict or offline replay met a call that is not recorded
    │   └── ReplayDiffers   a strict replay ended with other calls than those recorded
    ├── ViewDiffers         a recorded view differs when it is derived again
    ├── ShadowedEffect      a fork met an effect that its parent never had
    ├── NotAnswered         a probe's fork met a call that the record does not answer
    └── RecordedFailure     a recorded error that cannot be restored exactly

A recorded error that can be restored is raised only as its own class.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Self

import msgspec

from hansard.domain.choices import counted
from hansard.domain.errors import BadValue, HansardError

if TYPE_CHECKING:
    from hansard.domain.steps import Failure, Step


class AgentError(HansardError):
    """Base of the agents' errors."""


class NotDone(AgentError):
    """A tool raises it if the effect surely did not happen.

    State: the step is on record as failed; the effect did not happen.
    Remedy: call again, or declare `attempts=`.
    """


class Blocked(AgentError):
    """The gate refused the call.

    State: nothing ran; the refusal is on record.
    Remedy: change the call or the rule, or have the call approved.

    Attributes:
        rule: The rule's name.
        reason: The reason for the refusal.
        tool: The tool that was called.
    """

    def __init__(self, rule: str, reason: str, tool: str) -> None:
        super().__init__(
            f"rule {rule!r} blocked {tool}: {reason}; change the call or the rule, then resume"
        )
        self.rule = rule
        self.reason = reason
        self.tool = tool


class RoleRefused(Blocked):
    """The agent's role does not allow it.

    State: nothing was done; the refusal is on record.
    Remedy: ask an administrator for the permission that the message names.

    `what` is a `tool`, a `kind` of event, a `key` to write, one to `read`, a `task`, a `budget`, a
    run's `place`, a `label` to write under, the `view` of a role, or a permission; `name` is its
    name.
    """

    what: str
    name: str

    # Not in __init__, which is skipped when an error is restored from the record.
    def __new__(cls, what: str, name: str, rule: str, reason: str) -> Self:
        """Create the error with the refused operation as attributes."""
        made = super().__new__(cls, what, name, rule, reason)
        made.what, made.name, made.tool = what, name, name
        made.rule, made.reason = rule, reason
        return made

    def __init__(self, what: str, name: str, rule: str, reason: str) -> None:
        AgentError.__init__(self, what, name, rule, reason)

    def __str__(self) -> str:
        what = _REFUSED.get(self.what, self.what)
        return f"{self.rule} does not allow {what} {self.name!r:.200}: {self.reason}"


_REFUSED = {
    "budget": "counting on budget",
    "kind": "events of kind",
    "place": "placing a run by its",
    "key": "writing key",
    "label": "opening a run under this label as role",
    "read": "reading key",
    "task": "claiming tasks of role",
    "view": "the view of role",
}


class NotBegun(AgentError):
    """The session was used before it began.

    State: nothing was done.
    Remedy: use it inside its `with` block.
    """

    def __init__(self) -> None:
        super().__init__(
            "the session has not begun: use it inside 'with hansard.Session(...) as session:' "
            "('async with' for AsyncSession)"
        )


class SessionEnded(AgentError):
    """The session was used after its end.

    State: nothing was done.
    Remedy: open the run again.

    Attributes:
        run: The run's id.
        agent: The session's agent.
    """

    def __init__(self, run: str, agent: str) -> None:
        super().__init__(
            f"the session of agent {agent!r} in run {run} has ended (its 'with' was left, it was "
            "closed, or opened again): act before that, or continue with "
            f"record.run(run={run!r}, agent={agent!r}, ...)"
        )
        self.run = run
        self.agent = agent


class NoScope(AgentError):
    """A thread or task without a scope made a call while others are open.

    State: nothing ran.
    Remedy: start it with `session.thread`, `session.gather` or `session.task_group`.

    Attributes:
        tool: The tool that was called.
    """

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"{tool} was called from a thread or task that the session does not know, while other "
            "calls are open, so its place in the record would be random: start it with "
            "session.gather, session.task_group or session.thread"
        )
        self.tool = tool


class SecretUnavailable(AgentError):
    """A live call needs a secret that no provider has.

    State: nothing ran.
    Remedy: give `secrets=` a provider of that name.

    Attributes:
        name: The secret's name.
    """

    def __init__(self, name: str, tool: str) -> None:
        super().__init__(
            f"{tool} needs the secret {name!r}, which is not in the record: "
            "give connect(secrets=...) a provider that knows it"
        )
        self.name = name


class ToolError(AgentError):
    """A tool cannot be declared so, or was called outside a run.

    State: nothing ran.
    Remedy: correct the declaration, or call it inside a run.
    """


class NeedsSettling(AgentError):
    """Base of errors that a person or a policy has to settle before the run continues; nothing ran.

    Attributes:
        run: The run's id.
        agent: The agent's name.
        step: The step as recorded: `step.number`, `step.tool` ...
    """

    def __init__(self, message: str, address: RunAddress, step: Step) -> None:
        HansardError.__init__(self, message)
        self.run = address.run
        self.agent = address.agent
        self.step = step


class RunAddress(msgspec.Struct, frozen=True):
    """Address of a run's agent for settling steps: `command` reaches the record from a shell."""

    run: str
    agent: str
    command: str = "hansard"

    def settle(self, step: int, *choices: str) -> str:
        """Return the command that settles a step."""
        return f"{self.command} run settle {self.run} {self.agent}#{step} " + " or ".join(choices)


def doubt_note(address: RunAddress, step: int, tool: str) -> str:
    """Return the note to add to an error that left a call in doubt."""
    return (
        f"hansard: step {address.agent}#{step} ({tool}) is now in doubt: nobody knows whether its "
        "effect happened, so it will not run again. Find out, settle it, then resume the run:"
        f"\n  {address.settle(step, '--happened RESULT')}"
        f"\n  {address.settle(step, '--did-not-happen')}"
    )


class InDoubt(NeedsSettling):
    """An intent has no known outcome: its effect may or may not have happened.

    State: nothing ran.
    Remedy: check the world, then settle the step: `hansard run settle RUN AGENT#STEP --happened
    RESULT` or `--did-not-happen`.
    """

    def __init__(self, address: RunAddress, step: Step) -> None:
        why = f" ({step.error.text})" if step.error else ""
        items = f", after {counted(len(step.items), 'item')}" if step.items else ""
        super().__init__(
            f"step {step.number} ({step.tool}) is {step.status.value}{why}{items}: whether its "
            "effect happened is not known, and the tool may not simply run again; look, then say: "
            + address.settle(step.number, "--happened RESULT", "--did-not-happen"),
            address,
            step,
        )


EARLIER_STEP_CHANGED = "already ran with the same arguments, but an earlier step has changed since"
NOT_REPLAYED = (
    "had an effect, no call of this session has replayed it, and the call made now is not on record"
)

SAME_OR_ANOTHER = (
    "If the two are the same call, give the tool its recorded name and arguments (name=, aliases=) "
    "or take the recorded result over; if they are not, running the new one makes a second effect; "
)


class Diverged(NeedsSettling):
    """A call may repeat a recorded effect: a call before it changed, or it may be the recorded call
    in another form.

    State: nothing ran.
    Remedy: let it end the session and settle the step (`hansard run settle RUN AGENT#STEP --reuse`
    or `--run-again`), name the old tool (`aliases=`), or raise its `version=`.

    Attributes:
        difference: What differs, as recorded: `step` and `tool` of the recorded call; `field`,
            one of `after` (an earlier call), `call` (the tool or its arguments) and `items`;
            `recorded` and `now`, the digest of that on record and in the call made now.
    """

    def __init__(
        self,
        address: RunAddress,
        step: Step,
        now: str,
        why: str = EARLIER_STEP_CHANGED,
        *,
        field: str,
        digests: tuple[str, str],
    ) -> None:
        was = bytes(step.arguments).decode()[:200]
        super().__init__(
            f"step {step.number} ({step.tool}) {why}.\n"
            f"  on record: {step.tool} {was} after "
            f"{list(step.after)} -> {step.status.value}\n  now:       {now}\n"
            + (
                SAME_OR_ANOTHER
                if why == NOT_REPLAYED
                else "Running it again would repeat its effect; "
            )
            + "choose: "
            + address.settle(step.number, "--reuse", "--run-again"),
            address,
            step,
        )
        recorded, new = digests
        self.difference: dict[str, int | str] = {
            "step": step.number,
            "tool": step.tool,
            "field": field,
            "recorded": recorded,
            "now": new,
        }

    @classmethod
    def is_in(cls, error: Failure | None, run: str, agent: str, step: int) -> bool:
        """Return whether a recorded error, its cause or a group member names a step as diverged."""
        if error is None:
            return False
        if (error.type, error.module) == (cls.__name__, cls.__module__):
            match msgspec.json.decode(error.attributes):
                case {"run": str(of), "agent": str(by), "difference": {"step": int(number)}}:
                    return (of, by, number) == (run, agent, step)
                case _:
                    return False
        return any(cls.is_in(each, run, agent, step) for each in (error.cause, *error.exceptions))


class ResultNotRecordable(NeedsSettling):
    """The effect happened, and an earlier version of Hansard did not record its result.

    State: nothing ran.
    Remedy: settle the step with the result.
    """

    def __init__(self, address: RunAddress, step: Step, why: str) -> None:
        super().__init__(
            f"step {step.number} ({step.tool}) ran, but its result cannot be recorded: {why}. "
            "Fix the tool's return value, then settle the step with its result: "
            + address.settle(step.number, "--happened RESULT"),
            address,
            step,
        )


class ResultMismatch(NeedsSettling, BadValue):
    """A recorded or settled result does not fit the present classes or the tool's return type.

    State: nothing ran.
    Remedy: give the new field a default, restore the field, raise the tool's `version=`, or settle
    the step again.

    Attributes:
        where: The place in the result: `result.lines[0]`.
        fact: The mismatch.
        remedy: The remedy.
    """

    def __init__(self, address: RunAddress, step: Step, why: BadValue) -> None:
        which = f"step {address.agent}#{step.number} ({step.tool}) in run {address.run}"
        remedy = f"{why.remedy}, or change version= of {step.tool} to run it again"
        what = f"the recorded result of {which} cannot be restored by the current classes"
        if step.verdict == "happened":
            command = address.settle(step.number, "--happened RESULT")
            remedy = f"give one that matches, as JSON (a text: '\"42\"'): {command}"
            what = f"the result that settles {which} does not match the tool's return type"
        super().__init__(f"{what}: {why.where}: {why.fact}; {remedy}", address, step)
        self.where, self.fact, self.remedy = why.where, why.fact, remedy


def doubt(address: RunAddress, step: Step) -> NeedsSettling:
    """Return the error for an intent without an outcome."""
    if step.happened and step.error is not None:
        return ResultNotRecordable(address, step, step.error.message)
    return InDoubt(address, step)


ANOTHER_WAY = "Replay with the code that was recorded, or resume or fork the run to go another way"


class Miss(AgentError):
    """A strict or offline replay met a call that is not on record.

    State: nothing ran.
    Remedy: undo the edit, or resume or fork the run instead.

    Attributes:
        now: The call that was made.
        expected: The call that is recorded there.
    """

    def __init__(self, mode: str, now: str, expected: str, before: str = "") -> None:
        after = f", after these:\n{before}" if before else "."
        super().__init__(
            f"{mode} replay met a call that is not on record{after}\n"
            f"  on record: {expected}\n  now:       {now}\n"
            f"{ANOTHER_WAY}"
        )
        self.now = now
        self.expected = expected


class ReplayDiffers(Miss):
    """A strict replay ended with other calls than those on record.

    State: nothing was written.
    Remedy: undo the edit, or resume or fork the run instead.

    Attributes:
        not_made: Recorded calls that were not made, a line each.
        made_besides: Calls that were made and are not on the record's newest path, a line each.
    """

    def __init__(
        self, agent: str, not_made: list[str], made_besides: list[str], sides: str
    ) -> None:
        parts: list[str] = []
        if not_made:
            parts.append(f"{counted(len(not_made), 'call')} on record not made")
        if made_besides:
            parts.append(f"{counted(len(made_besides), 'call')} made besides")
        AgentError.__init__(
            self,
            f"the strict replay of agent {agent!r} is not equal to its record: "
            f"{', '.join(parts)}.\n{sides}\n"
            f"(= as on record, - on record alone, + made besides)\n{ANOTHER_WAY}",
        )
        self.not_made = not_made
        self.made_besides = made_besides
        self.now = (made_besides or ["the end"])[0]
        self.expected = (not_made or ["nothing more"])[0]


class ViewDiffers(AgentError):
    """A recorded view, computed again, is another one.

    State: nothing was written.
    Remedy: run `hansard check`; replay with the version that recorded the view.

    Attributes:
        step: The number of its step.
        recorded: The number of events served, and their digest.
        now: The same, derived again.
    """

    def __init__(self, step: int, recorded: tuple[int, str], now: tuple[int, str]) -> None:
        super().__init__(
            f"the view of step {step} is not what was served: on record are {recorded[0]:,} events "
            f"with digest {recorded[1]}, derived again {now[0]:,} with {now[1]}; give the key of "
            "hashed values that it was made with, or see what changed with 'hansard check'"
        )
        self.step = step
        self.recorded = recorded
        self.now = now


class ShadowedEffect(AgentError):
    """A fork met an effect that its parent never had.

    State: nothing ran; the refusal is on record.
    Remedy: declare `shadow=` for the tool, or fork with `effects="live"`; `effects="models"` is
    enough for an idempotent call of a model.

    Attributes:
        tool: The tool that was called.
    """

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"{tool} has effects and this run is a fork, which must not repeat or add to what its "
            "parent did to the world: declare shadow= on the tool, or fork with effects='live' "
            "(effects='models' is enough for an idempotent call of a model)"
        )
        self.tool = tool


class NotAnswered(AgentError):
    """A probe's fork met a call that the record does not answer.

    State: nothing ran; the refusal is on record.
    Remedy: run the probe with `--live`, or swap another value.

    Attributes:
        tool: The tool that was called.
        why: The reason that the record does not answer it.
    """

    def __init__(self, tool: str, why: str = "") -> None:
        super().__init__(f"{tool} is not answered in this probe: {why}")
        self.tool = tool
        self.why = why


class RecordedFailure(AgentError):
    """A recorded error cannot be restored whole. It is also an instance of the raised class, if the
    program has loaded that.

    State: the step has failed, as recorded; nothing ran.
    Remedy: handle it as the original error; `lost` names what is missing.

    Attributes:
        type_name: The name of the class that was raised.
        message: Its message.
        lost: The attributes that were not recorded; `args` for its arguments.
    """

    lost: tuple[str, ...] = ()

    def __init__(self, type_name: str, message: str) -> None:
        super().__init__(f"{type_name}: {message}")
        self.type_name = type_name
        self.message = message


class ResultInexact(UserWarning):
    """A result cannot be recorded exactly.

    State: the caller has the result; the record has what could be recorded of it.
    Remedy: return a value that can be recorded, or register its type.
    """


class SecretsNotRedacted(UserWarning):
    """A session resumes a run without the redaction that its record has.

    State: the session would record the secret in clear.
    Remedy: set `redact=` or HANSARD_REDACT as before.
    """


_NOT_PROGRAM = frozenset({"anyio", "asyncio", "concurrent", "contextlib", "hansard", "threading"})
"""Packages whose frames are between a program and a warning."""


def warn(message: str, category: type[Warning], defined: str = "") -> None:
    """Warn of the program: at a place in it (`path:line`), else at the call that led here."""
    path, _, line = defined.rpartition(":")
    if path and line.isdecimal():
        warnings.warn_explicit(message, category, path, int(line))
        return
    frame, level = sys._getframe(1), 2  # noqa: SLF001 -- the function is documented
    while frame.f_back is not None and (
        frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_PROGRAM
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class ToolChanged(UserWarning):
    """A tool's source changed since its recorded calls ran.

    State: recorded calls return their recorded results.
    Remedy: raise `version=` of the tool to run them again.
    """
