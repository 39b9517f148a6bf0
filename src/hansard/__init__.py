"""Hansard: the verbatim, replayable record of what a team of AI agents did.

    import hansard

    @hansard.tool(effects="idempotent")
    def search_papers(query: str, limit: int = 10) -> list[dict]: ...

    with hansard.Session() as session:
        papers = search_papers("event sourcing")

Names are imported on first use, so that `import hansard` costs nothing. This module holds what a
program calls or creates. Exceptions are in `hansard.errors`, types for annotations in
`hansard.types`, all else by subject: `hansard.prompts`, `memory`, `roles`, `experiments`,
`actions`, `testing`.
"""

import importlib as _importlib

TYPE_CHECKING = False

if not TYPE_CHECKING:  # a type checker would take every misspelt name for an Any

    def __getattr__(name: str) -> object:
        if name in _SUBMODULES:
            return _importlib.import_module(f"hansard.{name}")
        module = _MODULE.get(name)
        if module is None:
            raise AttributeError(_absent(name))
        value = getattr(_importlib.import_module(module), name)
        globals()[name] = value
        return value

    def _absent(name: str) -> str:
        message = f"module 'hansard' has no attribute {name!r}"
        if name[:1] != "_":
            for each in _SUBMODULES[:-1]:  # all but `testing`, which is for tests
                if hasattr(_importlib.import_module(f"hansard.{each}"), name):
                    return f"{message}: it is in 'hansard.{each}'"
        return message


if TYPE_CHECKING:
    from hansard import actions as actions
    from hansard import errors as errors
    from hansard import experiments as experiments
    from hansard import memory as memory
    from hansard import prompts as prompts
    from hansard import roles as roles
    from hansard import testing as testing
    from hansard import types as types
    from hansard._version import __version__
    from hansard.agents.aggregates.declare import aggregate_type
    from hansard.agents.errors import Blocked, Diverged, InDoubt, ToolError
    from hansard.agents.policy.gate import (
        AskFirst,
        Budget,
        CallRule,
        Condition,
        GateCall,
        allow,
        ask_first,
        at_least,
        at_most,
        budget,
        deny,
        host_in,
        one_of,
        path_under,
    )
    from hansard.agents.steps.conversions import value_type
    from hansard.agents.steps.ledger import Mode
    from hansard.agents.steps.placeholders import Placeholders
    from hansard.agents.steps.recorder import UnsettledStep
    from hansard.agents.steps.scope import log_context
    from hansard.agents.steps.tools import (
        DID_NOT_HAPPEN,
        NOTHING_HAPPENED,
        DidNotHappen,
        Happened,
        Tool,
        by_label,
        reconcile,
        tool,
    )
    from hansard.broker.files import Durability
    from hansard.bus.errors import Conflict, NotFound, Unreachable
    from hansard.client.connect import connect, connect_async
    from hansard.client.person import ask_person
    from hansard.client.record import AsyncRecord, Record, current_session, sessions
    from hansard.client.session import AsyncSession, Session
    from hansard.domain.board import KeyKind, Merge
    from hansard.domain.errors import BadValue, Corrupt, HansardError
    from hansard.domain.label import Confidentiality, Label
    from hansard.domain.reuse import Reuse, ReuseScope, reuse
    from hansard.domain.run import ForkEffects, RunStatus, Swap
    from hansard.domain.steps import Effects, StepStatus, Verdict
    from hansard.domain.values import Secret

del TYPE_CHECKING

_SUBMODULES = ("actions", "errors", "experiments", "memory", "prompts", "roles", "types", "testing")

_HOME = {
    "hansard._version": ("__version__",),
    "hansard.agents.aggregates.declare": ("aggregate_type",),
    "hansard.agents.errors": (
        "Blocked",
        "Diverged",
        "InDoubt",
        "ToolError",
    ),
    "hansard.agents.policy.gate": (
        "AskFirst",
        "Budget",
        "CallRule",
        "Condition",
        "GateCall",
        "allow",
        "ask_first",
        "at_least",
        "at_most",
        "budget",
        "deny",
        "host_in",
        "one_of",
        "path_under",
    ),
    "hansard.agents.steps.ledger": ("Mode",),
    "hansard.agents.steps.placeholders": ("Placeholders",),
    "hansard.agents.steps.recorder": ("UnsettledStep",),
    "hansard.agents.steps.scope": ("log_context",),
    "hansard.agents.steps.tools": (
        "DID_NOT_HAPPEN",
        "DidNotHappen",
        "Happened",
        "NOTHING_HAPPENED",
        "Tool",
        "by_label",
        "reconcile",
        "tool",
    ),
    "hansard.agents.steps.conversions": ("value_type",),
    "hansard.bus.errors": (
        "Conflict",
        "NotFound",
        "Unreachable",
    ),
    "hansard.broker.lease": ("Durability",),
    "hansard.client.connect": (
        "connect",
        "connect_async",
    ),
    "hansard.client.person": ("ask_person",),
    "hansard.client.record": (
        "AsyncRecord",
        "Record",
        "current_session",
        "sessions",
    ),
    "hansard.client.session": (
        "AsyncSession",
        "Session",
    ),
    "hansard.domain.board": ("KeyKind", "Merge"),
    "hansard.domain.errors": (
        "BadValue",
        "Corrupt",
        "HansardError",
    ),
    "hansard.domain.label": (
        "Confidentiality",
        "Label",
    ),
    "hansard.domain.reuse": (
        "Reuse",
        "ReuseScope",
        "reuse",
    ),
    "hansard.domain.run": (
        "ForkEffects",
        "RunStatus",
        "Swap",
    ),
    "hansard.domain.steps": (
        "Effects",
        "StepStatus",
        "Verdict",
    ),
    "hansard.domain.values": ("Secret",),
}

_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "DID_NOT_HAPPEN",
    "NOTHING_HAPPENED",
    "AskFirst",
    "AsyncRecord",
    "AsyncSession",
    "BadValue",
    "Blocked",
    "Budget",
    "CallRule",
    "Condition",
    "Confidentiality",
    "Conflict",
    "Corrupt",
    "DidNotHappen",
    "Diverged",
    "Durability",
    "Effects",
    "ForkEffects",
    "GateCall",
    "HansardError",
    "Happened",
    "InDoubt",
    "KeyKind",
    "Label",
    "Merge",
    "Mode",
    "NotFound",
    "Placeholders",
    "Record",
    "Reuse",
    "ReuseScope",
    "RunStatus",
    "Secret",
    "Session",
    "StepStatus",
    "Swap",
    "Tool",
    "ToolError",
    "Unreachable",
    "UnsettledStep",
    "Verdict",
    "__version__",
    "actions",
    "aggregate_type",
    "allow",
    "ask_first",
    "ask_person",
    "at_least",
    "at_most",
    "budget",
    "by_label",
    "connect",
    "connect_async",
    "current_session",
    "deny",
    "errors",
    "experiments",
    "host_in",
    "log_context",
    "memory",
    "one_of",
    "path_under",
    "prompts",
    "reconcile",
    "reuse",
    "roles",
    "sessions",
    "testing",
    "tool",
    "types",
    "value_type",
]


def __dir__() -> list[str]:
    return sorted(__all__)
