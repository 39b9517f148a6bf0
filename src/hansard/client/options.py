"""Options of records and sessions, by their types, and their defaults."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shlex
import sys
import sysconfig
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path, PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict

import msgspec

from hansard.agents.errors import AgentError, Blocked, NeedsSettling, ResultMismatch
from hansard.agents.policy.gate import AskFirst, Budget, CallRule, GateRule
from hansard.agents.runs import Options
from hansard.agents.steps.ledger import Mode
from hansard.agents.steps.placeholders import SecretProvider
from hansard.agents.steps.recorder import Settle, Settled, UnsettledStep
from hansard.agents.steps.tools import DID_NOT_HAPPEN, Happened
from hansard.broker.files import Durability
from hansard.bus.clock import OS_USER
from hansard.bus.errors import Fenced
from hansard.bus.portal import in_loop
from hansard.domain import values
from hansard.domain.choices import check_options, chosen
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.redaction import Redaction
from hansard.domain.run import Chain
from hansard.domain.steps import StepStatus, Verdict
from hansard.domain.values import recordable
from hansard.inspect.answer import masked, plain_text
from hansard.settings import Settings, demand_continued, secrets

if TYPE_CHECKING:
    from rich.console import Console

# Ask a person at a terminal whether the effect of a step in doubt happened.

SHOWN_MAX = 300
"""Most characters of a value that are shown."""

ANSWERS = {
    "n": "nothing: run it again",
    "h": "it happened: say what it returned",
    "u": "use what is on record",
    "r": "run it again, effect and all",
    "s": "stop here",
}
"""The meaning of each key."""

_one_at_a_time = threading.Lock()


def ask_person(step: UnsettledStep) -> Settled | Awaitable[Settled]:
    """Ask the person at the terminal; a policy for `settle=`.

    It shows the call, its error and whether the tool's source changed, and asks *did it do
    anything?*: nothing, run it again; it happened, with its result; or stop. If stdin or stderr is
    not a terminal the step is left to a person, as without a policy: the error shows the command to
    type. HANSARD_SETTLE=ask applies it to programs without a policy, and `hansard run resume` sets
    that.

    Args:
        step: The step, as every policy gets it.
    """
    if not is_terminal():
        return None
    return asyncio.to_thread(_read_answer, step) if in_loop() else _read_answer(step)


ask_person.__dict__["answered_by"] = OS_USER  # on record as who settled the step


def is_terminal() -> bool:
    """Return whether stdin and stderr are terminals, so that a person can answer."""
    return all(
        stream is not None and not stream.closed and stream.isatty()
        for stream in (sys.stdin, sys.stderr)
    )


def result_from(text: str) -> Any:
    """Parse a typed result: JSON, with values as `hansard run trace` shows them; else the text."""
    try:
        plain = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    try:
        return values.revive(plain)
    except BadValue:  # an object with a key of the user's own that begins with "$"
        return plain


def _read_answer(step: UnsettledStep) -> Settled:
    """Ask for an answer and return it; None for stop."""
    from rich.console import Console  # noqa: PLC0415 -- see above

    with _one_at_a_time:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        for line in question_lines(step):
            console.print(line, markup=False)
        try:
            return _answered(console, step)
        except (EOFError, OSError):  # the terminal is gone
            return None


def _answered(console: Console, step: UnsettledStep) -> Settled:
    match _key(console, _keys(step)):
        case "n":
            return DID_NOT_HAPPEN
        case "h":
            return Happened(result_from(console.input("it returned (JSON, or text): ")))
        case "u":
            return Verdict.REUSE
        case "r":
            return Verdict.RUN_AGAIN
        case _:
            return None


def _keys(step: UnsettledStep) -> str:
    """Return the keys that apply to the step."""
    if step.diverged:
        return "urs"
    return "hs" if step.happened else "nhs"  # of one that happened only the result is not known


def _key(console: Console, keys: str) -> str:
    """Wait for one of the keys and return it. Discard input typed before the question.

    Raises EOFError, OSError.
    """
    import typer  # noqa: PLC0415 -- see above

    question = "Which is it?" if "u" in keys else "Did it do anything?"
    console.print(question, style="bold")
    for key in keys:
        console.print(f"  {key}  {ANSWERS[key]}", markup=False)
    while (pressed := typer.getchar()) not in tuple(keys):
        if not pressed:
            raise EOFError
    console.print(f"{pressed}: {ANSWERS[pressed]}", markup=False)
    return pressed


def question_lines(step: UnsettledStep) -> list[str]:
    """Return the lines that describe the step to the person."""
    call = f"{step.tool} {bytes(step.arguments).decode()}"
    lines = [
        f"step {step.agent}#{step.number} of run {step.run} {_situation(step)}",
        f"  call    {call:.{SHOWN_MAX}}",
    ]
    if step.now:
        lines.append(f"  now     {step.now:.{SHOWN_MAX}}")
    if step.error is not None:
        lines.append(f"  error   {step.error.text:.{SHOWN_MAX}}")
    if step.items:
        lines.append(f"  items   {len(step.items):,} arrived before that")
    lines.append(f"  source  {_source(step)}")
    return [plain_text(masked(line)) for line in lines]


def _situation(step: UnsettledStep) -> str:
    if step.diverged:
        return f"is {step.status.value} on record, and the call made now may repeat its effect"
    match step.status:
        case StepStatus.FAILED:
            return "failed, and whether it did something before that is not known"
        case StepStatus.IN_DOUBT if step.happened:
            return "ran, but its result could not be recorded"
        case StepStatus.IN_DOUBT:
            return "was cut off: whether its effect happened is not known"
        case _:
            return "was under way when its process ended: no outcome is on record"


def _source(step: UnsettledStep) -> str:
    """Describe a change of the source; only digests are on record, and only those of tools."""
    before, now = step.source_before, step.source_now
    path, _, line = step.defined.rpartition(":")
    with contextlib.suppress(ValueError):
        path = os.fspath(Path(path).relative_to(Path.cwd()))
    where = f" ({path}:{line})" if step.defined else ""
    if not before or not now:
        return f"not known: no digest of it is {'on record' if not before else 'to be had'}{where}"
    if before == now:
        return f"of {step.tool} as recorded{where}; what else changed is not on record"
    return (
        f"of {step.tool} changed since{where}: digest {before[:8]} on record, {now[:8]} now; the "
        "text of then is not on record"
    )


AGENT = "agent"
"""Default name of the agent and of its role."""

INTERACTIVE = "interactive"
"""The workflow of a session at a prompt, in a notebook, or of `python -c` or stdin."""

NO_FILE = ("", "-c", "-")
"""Values of `sys.argv[0]` where the program is not a file."""


class OnDoubt(StrEnum):
    """The treatment of a step in doubt if the program has no policy."""

    ASK = "ask"
    STOP = "stop"


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of all runs, from `connect` and the settings; `run` may override them.

    `workflow` is that of a new run: one that is joined keeps its own.
    """

    gate: Sequence[GateRule] = ()
    redact: Mapping[str, Any] = {}
    secrets: SecretProvider | None = None
    settle: Settle | None = None
    run: str | None = None
    mode: Mode | None = None
    workflow: str | None = None
    agent: str | None = None
    role: str | None = None
    report: str | None = None

    @classmethod
    def of(cls, settings: Settings, rules: Mapping[str, Any]) -> Self:
        """Build the defaults from settings and policies.

        Raises BadValue for a setting that is not one of its choices, or a secret that cannot be
        redacted.
        """
        fields = dict(rules)
        fields["redact"] = _redact(fields.get("redact", {}), secrets(settings))
        on_doubt = chosen(OnDoubt, settings.settle, "settle") if settings.settle else OnDoubt.STOP
        if fields.get("settle") is None and on_doubt is OnDoubt.ASK:
            fields["settle"] = ask_person
        return cls(
            run=settings.run,
            mode=chosen(Mode, settings.mode, "mode") if settings.mode else None,
            workflow=settings.workflow,
            agent=settings.agent,
            role=settings.role,
            report=settings.report,
            **fields,
        )

    def acting(self, agent: str | None, role: str | None) -> tuple[str, str]:
        """Return the agent and its role, with the program's choice first."""
        return (
            agent if agent is not None else self.agent or AGENT,
            role if role is not None else self.role or AGENT,
        )


def _redact(own: Mapping[str, Any], of_settings: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the secrets of a program and of its settings. Raises BadName, BadValue."""
    for name in own.keys() & of_settings.keys():
        if own[name] != of_settings[name]:
            remedy = "give each secret a name of its own"
            raise BadValue(f"redact[{name!r}]", "not the text that HANSARD_REDACT names so", remedy)
    Redaction.of(own)
    return {**own, **of_settings}


class BrokerSettings(TypedDict, total=False):
    """Settings of `connect` and `Session` beside their parameters: see `settings.Settings`."""

    disk_wait_s: float | None
    nats_url: str | None
    nats_user: str | None
    nats_password: str | None
    nats_creds: str | os.PathLike[str] | None
    nats_nkey: str | os.PathLike[str] | None
    nats_ca: str | os.PathLike[str] | None
    nats_cert: str | os.PathLike[str] | None
    nats_key: str | os.PathLike[str] | None
    nats_replicas: int | None
    nats_system_user: str | None
    nats_system_password: str | None
    nats_system_creds: str | os.PathLike[str] | None
    run: str | None
    mode: Mode | str | None
    report: str | os.PathLike[str] | None


class MoreSettings(BrokerSettings, total=False):
    """Settings that `connect` takes beside its parameters."""

    workflow: str | None
    agent: str | None
    role: str | None


class Policies(TypedDict, total=False):
    """The place of the record and its policies; see `connect`."""

    data_dir: str | os.PathLike[str] | None
    nats: str | None
    durability: Durability | str | None
    gate: Sequence[GateRule]
    redact: Mapping[str, Any] | None
    secrets: SecretProvider | None
    settle: Settle | None


class ConnectOptions(MoreSettings, Policies, total=False):
    """Options of `connect` beside a workspace and credentials; see there."""


class RecordOptions(TypedDict, total=False):
    """Options of a record for all of its runs; `run` may override them."""

    gate: Sequence[GateRule] | None
    """Rules that every call must pass."""
    redact: Mapping[str, Any] | None
    """Secrets to keep out of the record, by name. `run` adds to those of `connect`."""
    secrets: SecretProvider | None
    """The secrets' values, for live calls."""
    settle: Settle | None
    """A policy that settles calls in doubt."""
    run: str | None
    """The run that sessions join by default."""
    mode: Mode | str | None
    """`strict` or `offline`: read the record only, and run no tool."""


class BeginOptions(TypedDict, total=False):
    """Options of a new run, in a trusted program or a restricted agent."""

    conversation: str | None
    """The conversation that the run continues."""
    labels: Mapping[str, str] | None
    """Texts by name, to find the run by."""
    experiment: str | None
    """The experiment that the run belongs to."""
    task: str | None
    """The task that the run tries in the experiment."""
    trial: int | None
    """The number of the trial, from 0."""
    unit: str | None
    """The unit that an arm is assigned to, if the plan's unit is a name of its own."""
    arm: str | None
    """The arm, if the caller chooses it; `session.arm` is the assigned one."""
    chain: Chain | str | None
    """Fingerprint chaining: `result`, by default, or `full` (docs/replay.md); fixed per run."""
    program: str | None
    """The name of the program on record; by default the file's name."""
    correlation: str | None
    """A correlation id of the caller's own, recorded with the commits."""
    traceparent: str | None
    """The W3C trace context, recorded with the commits."""
    on_behalf_of: Sequence[str] | None
    """Principals that the agent acts for, the nearest first."""
    restricted: bool | None
    """True: a role that was never defined may do nothing. By default it may do anything."""


class RunOptions(RecordOptions, BeginOptions, total=False):
    """Options of `record.run` beside a workflow, an agent and a role.

    They override those of `connect`.
    """


class SessionOptions(BrokerSettings, Policies, BeginOptions, total=False):
    """Options of `Session` beside a workflow, an agent, a role and a workspace."""

    resume: bool | None
    """False: begin a new run, even if this program left one unfinished. True by default."""


def program_name() -> str:
    """Return the default workflow of this program: its file's name without the extension.

    For a package that is run (`python -m`) it is the package's name; `interactive` where there is
    no file.
    """
    value = sys.argv[0] if sys.argv else ""
    path = PurePath(value)
    if hasattr(sys, "ps1") or value in NO_FILE:
        return INTERACTIVE
    return (path.parent.name if path.stem == "__main__" else path.stem) or INTERACTIVE


def session_options(
    defaults: Defaults, workflow: str | None, options: dict[str, Any], otherwise: str = ""
) -> Options:
    """Return the options with which a trusted program opens a session.

    `otherwise` is the workflow of a new run if nothing names one. Raises BadOption, AgentError, and
    Refused if a process that continues a run names another one.
    """
    demand_continued(options.get("run"))
    fields: dict[str, Any] = {
        "gate": defaults.gate,
        "redact": defaults.redact,
        "secrets": defaults.secrets,
        "settle": defaults.settle,
        "run": defaults.run,
        "mode": defaults.mode,
        "program": recordable(PurePath(sys.argv[0]).name if sys.argv else "", None),
    }
    fields |= {key: value for key, value in options.items() if value is not None}
    check_options("record.run", options, RunOptions.__annotations__)
    check_rules(fields["gate"])
    return Options(workflow=workflow, otherwise=defaults.workflow or otherwise, **fields)


def check_rules(rules: Sequence[Any]) -> None:
    """Raise AgentError if an item is not a gate rule."""
    for rule in rules:
        if not isinstance(rule, CallRule | AskFirst | Budget) and not callable(rule):
            known = "allow, deny, ask_first, budget or a function"
            message = f"gate={rule!r:.80} is not a rule: give {known}"
            raise AgentError(message)


# Tracebacks of exceptions that end a session: the user's own frames, and how to resume.

_OURS = os.fspath(Path(__file__).parents[1]) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep

_NOTE = "hansard: "
"""Prefix of our notes. An exception that has such a note gets no second one."""

_shown: bool = False


def show_own_frames(*, shown: bool) -> None:
    """Keep the frames of this package in tracebacks (`HANSARD_DEBUG`), or hide them."""
    global _shown  # noqa: PLW0603 -- one setting a process, like a log level
    _shown = shown


def explain(error: BaseException, run: str, step: str, settle: str = "") -> None:
    """Add a note to an exception that ends a session, and hide the frames of this package.

    The note names the run, its last step, what to settle first, and the command that resumes it.
    Frames stay if the exception is a fault of this package.

    Args:
        error: The exception.
        run: The run's id.
        step: The agent's last step, as shown to a person (`bob#8, pay`).
        settle: The command that settles the first call in doubt; empty for none.
    """
    resume = _restart.get()(shlex.quote(run))
    if isinstance(error, NeedsSettling) and (
        not isinstance(error, ResultMismatch) or error.step.verdict is Verdict.HAPPENED
    ):
        how = f"Settle {error.agent}#{error.step.number} first, as above; then resume it: {resume}"
    elif settle:
        how = f"A call is in doubt; settle it first: {settle}\nThen resume it: {resume}"
    elif isinstance(error, Fenced):
        how = f"Another process continues the run: hansard run show {shlex.quote(run)}"
    elif isinstance(error, Blocked):
        how = f"The same call is refused again: act as above first; then resume it: {resume}"
    else:
        how = f"Resume it: {resume}"
    note = f"this ended run {run} after {step}. {how}"
    if not any(each.startswith(_NOTE) for each in getattr(error, "__notes__", ())):
        error.add_note(f"{_NOTE}{note}")
    _hide(error)


@functools.cache
def hide_if_uncaught() -> None:
    """Let Python report uncaught errors of this package without its frames, from now on."""
    report = sys.excepthook

    def reported(kind: type[BaseException], value: BaseException, _: Any) -> None:
        if isinstance(value, HansardError):
            _hide(value)
        report(kind, value, value.__traceback__)

    sys.excepthook = reported


def _hide(error: BaseException) -> None:
    if not _shown:
        for each in _chain(error):
            hide_own_frames(each)


def hide_own_frames(error: BaseException) -> None:
    """Unlink from a traceback this package's frames and the standard library's frames between them.

    Nothing is hidden of an exception that this package raised by mistake.
    """
    traces = [*_traces(error.__traceback__)]
    ours = [trace.tb_frame.f_code.co_filename.startswith(_OURS) for trace in traces]
    if not any(ours) or (ours[-1] and not isinstance(error, HansardError | KeyboardInterrupt)):
        return
    hidden = list(ours)
    for index, trace in enumerate(traces):
        if trace.tb_frame.f_code.co_filename.startswith(_STDLIB) and index and hidden[index - 1]:
            others = (at for at in range(index, len(traces)) if not _is_stdlib(traces[at]))
            hidden[index] = ours[next(others, index)]
    kept = [trace for trace, is_hidden in zip(traces, hidden, strict=True) if not is_hidden]
    error.__traceback__ = kept[0] if kept else None
    if kept:
        for trace, following in zip(kept, [*kept[1:], None], strict=True):
            trace.tb_next = following


def _is_stdlib(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_STDLIB)


def _traces(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, its causes and contexts, and the members of groups, each once."""
    seen: set[int] = set()
    open_: list[BaseException | None] = [error]
    while open_:
        each = open_.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        open_ += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            open_ += each.exceptions


def _resume(run: str) -> str:
    """Return the command that resumes a run by this program."""
    program = "COMMAND" if program_name() == INTERACTIVE else shlex.join(["python", *sys.argv])
    return f"hansard run resume {run} -- {program}"


_restart: ContextVar[Callable[[str], str]] = ContextVar("restart", default=_resume)


@contextlib.contextmanager
def restarted_by(command: Callable[[str], str]) -> Iterator[None]:
    """Let errors that end sessions in this context suggest a command: a function of the run."""
    token = _restart.set(command)
    try:
        yield
    finally:
        _restart.reset(token)
