"""What records and sessions are opened with: the options by their types, and their defaults."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Self, TypedDict

import msgspec

from hansard.agents.errors import AgentError
from hansard.agents.opening import Options
from hansard.agents.policy.gate import AskFirst, Budget, CallRule, GateRule
from hansard.agents.steps.ledger import Mode
from hansard.agents.steps.placeholders import SecretProvider
from hansard.agents.steps.recorder import Settle
from hansard.broker.lease import Durability
from hansard.client.person import ask_person
from hansard.domain.choices import check_options, chosen
from hansard.domain.errors import BadValue
from hansard.domain.redaction import Redaction
from hansard.domain.run import Chain
from hansard.domain.values import recordable
from hansard.settings import Settings, secrets

AGENT = "agent"
"""The agent and its role, where neither a program nor a setting names one."""

INTERACTIVE = "interactive"
"""The workflow of a session that a prompt, a notebook, `python -c` or stdin begins."""

NO_FILE = ("", "-c", "-")
"""What `sys.argv[0]` is where the program is no file."""


class OnDoubt(StrEnum):
    """What becomes of a step in doubt where the program has no policy."""

    ASK = "ask"
    STOP = "stop"


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What `connect` was given for all runs, and what the settings say; `run` may say otherwise.

    `workflow` is that of a run that begins: one that is joined keeps its own.
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
        """What the settings say, under these rules. Raises BadValue for a setting that is none of
        its few, or a secret that cannot be redacted.
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
        """The agent and its role, where a program may have named them."""
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
    """Settings that `connect` and `Session` take besides those that they name: see
    `settings.Settings`.
    """

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
    """Settings that `connect` takes besides those that it names."""

    workflow: str | None
    agent: str | None
    role: str | None


class Policies(TypedDict, total=False):
    """Where the record is kept, and by which rules; see `connect`."""

    data_dir: str | os.PathLike[str] | None
    nats: str | None
    durability: Durability | str | None
    gate: Sequence[GateRule]
    redact: Mapping[str, Any] | None
    secrets: SecretProvider | None
    settle: Settle | None


class ConnectOptions(MoreSettings, Policies, total=False):
    """What `connect` takes besides a workspace and credentials; see there."""


class RecordOptions(TypedDict, total=False):
    """What a record takes for all of its runs; `run` may say otherwise."""

    gate: Sequence[GateRule] | None
    """Rules that every call must pass."""
    redact: Mapping[str, Any] | None
    """Secrets to keep out of the record, by name. `run` adds to those of `connect`."""
    secrets: SecretProvider | None
    """Gives them back to live calls."""
    settle: Settle | None
    """A policy that settles doubt."""
    run: str | None
    """The run that sessions join, where they name none."""
    mode: Mode | str | None
    """`strict` or `offline`: only read, and run no tool."""


class BeginOptions(TypedDict, total=False):
    """What a run is begun with, whoever begins it."""

    conversation: str | None
    """What the run goes on with."""
    labels: Mapping[str, str] | None
    """Texts by name, to find the run by."""
    experiment: str | None
    """Of which experiment it is."""
    task: str | None
    """What it tries there."""
    trial: int | None
    """Which trial of it, from 0."""
    unit: str | None
    """What the arm is given to, where the plan's unit is a name of its own."""
    arm: str | None
    """Where the caller chooses it; `session.arm` is what it got."""
    chain: Chain | str | None
    """`result`, the default, or `full`: what a call's fingerprint holds of the call before
    (docs/replay.md). Of a run that has begun: the one that it began with, or none."""
    program: str | None
    """What runs it; the program's name if not given."""
    correlation: str | None
    """An id of yours that its commits carry."""
    traceparent: str | None
    """The W3C trace context that its commits carry."""
    on_behalf_of: Sequence[str] | None
    """Principals for whom the agent acts, the nearest first."""
    restricted: bool | None
    """Whether a role that was never defined may do nothing, in place of anything."""


class RunOptions(RecordOptions, BeginOptions, total=False):
    """What `record.run` takes besides a workflow, an agent and a role: what it is given stands in
    place of what `connect` was given.
    """


class SessionOptions(BrokerSettings, Policies, BeginOptions, total=False):
    """What `Session` takes besides a workflow, an agent, a role and a workspace."""

    resume: bool | None
    """False: begin a new run, though this program left one unfinished. True by default."""


def program_name() -> str:
    """The workflow of a program that names none: its file's name without the ending, of a package
    that is run (`python -m`) the package's; `interactive` where there is no such file.
    """
    value = sys.argv[0] if sys.argv else ""
    path = PurePath(value)
    if hasattr(sys, "ps1") or value in NO_FILE:
        return INTERACTIVE
    return (path.parent.name if path.stem == "__main__" else path.stem) or INTERACTIVE


def session_options(
    defaults: Defaults, workflow: str | None, given: dict[str, Any], otherwise: str = ""
) -> Options:
    """What a trusted program opens a session with; `otherwise` is the workflow of a run that begins
    where nobody names one. Raises BadOption, AgentError.
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
    """Raise AgentError for what is no rule of a gate."""
    for rule in rules:
        if not isinstance(rule, CallRule | AskFirst | Budget) and not callable(rule):
            known = "allow, deny, ask_first, budget or a function"
            message = f"gate={rule!r:.80} is no rule: give {known}"
            raise AgentError(message)
