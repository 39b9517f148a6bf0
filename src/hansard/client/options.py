"""Options of records and sessions, by their types, and their defaults."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Self, TypedDict

import msgspec

from hansard.agents.errors import AgentError
from hansard.agents.policy.gate import AskFirst, Budget, CallRule, GateRule
from hansard.agents.runs import Options
from hansard.agents.steps.ledger import Mode
from hansard.agents.steps.placeholders import SecretProvider
from hansard.agents.steps.recorder import Settle
from hansard.broker.files import Durability
from hansard.client.person import ask_person
from hansard.domain.choices import check_options, chosen
from hansard.domain.errors import BadValue
from hansard.domain.redaction import Redaction
from hansard.domain.run import Chain
from hansard.domain.values import recordable
from hansard.settings import Settings, secrets

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


def _redact(given: Mapping[str, Any], of_settings: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the secrets of a program and of its settings. Raises BadName, BadValue."""
    for name in given.keys() & of_settings.keys():
        if given[name] != of_settings[name]:
            remedy = "give each secret a name of its own"
            raise BadValue(f"redact[{name!r}]", "not the text that HANSARD_REDACT names so", remedy)
    Redaction.of(given)
    return {**given, **of_settings}


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
    defaults: Defaults, workflow: str | None, given: dict[str, Any], otherwise: str = ""
) -> Options:
    """Return the options with which a trusted program opens a session.

    `otherwise` is the workflow of a new run if nothing names one. Raises BadOption, AgentError.
    """
    fields: dict[str, Any] = {
        "gate": defaults.gate,
        "redact": defaults.redact,
        "secrets": defaults.secrets,
        "settle": defaults.settle,
        "run": defaults.run,
        "mode": defaults.mode,
        "program": recordable(PurePath(sys.argv[0]).name if sys.argv else "", None),
    }
    fields |= {key: value for key, value in given.items() if value is not None}
    check_options("record.run", given, RunOptions.__annotations__)
    check_rules(fields["gate"])
    return Options(workflow=workflow, otherwise=defaults.workflow or otherwise, **fields)


def check_rules(rules: Sequence[Any]) -> None:
    """Raise AgentError if an item is not a gate rule."""
    for rule in rules:
        if not isinstance(rule, CallRule | AskFirst | Budget) and not callable(rule):
            known = "allow, deny, ask_first, budget or a function"
            message = f"gate={rule!r:.80} is not a rule: give {known}"
            raise AgentError(message)
