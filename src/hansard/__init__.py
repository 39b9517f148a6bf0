"""Hansard: the verbatim, replayable record of what a team of AI agents did.

    import hansard

    with hansard.connect(workspace="lab") as record:
        with record.run("paper-pipeline", agent="researcher_1", role="researcher") as session:

            @session.tool(effects="idempotent")
            def search_papers(query: str, limit: int = 10) -> list[dict]: ...

            papers = search_papers("event sourcing")

Names are imported when first used, so that `import hansard` costs nothing.
"""

import importlib as _importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hansard._connect import connect, connect_async
    from hansard._version import __version__
    from hansard.agents.effects import DID_NOT_HAPPEN, Happened, Tool, reconcile, tool
    from hansard.agents.errors import (
        AgentError,
        Blocked,
        Diverged,
        InDoubt,
        Miss,
        NeedsSettling,
        NoScope,
        NotDone,
        RecordedFailure,
        ResultNotRecordable,
        SecretUnavailable,
        SessionEnded,
        ShadowedEffect,
        ToolChanged,
        ToolError,
        ViewDiffers,
    )
    from hansard.agents.experiments import Arm, plan
    from hansard.agents.gate import (
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
    from hansard.agents.judges import Evaluated
    from hansard.agents.ledger import Mode
    from hansard.agents.record import AsyncRecord, Record
    from hansard.agents.session import AsyncSession, Session, sessions
    from hansard.agents.value_types import value_type
    from hansard.bus.errors import (
        AppendUnknown,
        BusError,
        Closed,
        Conflict,
        Contradiction,
        Fenced,
        NotFound,
        NotWritable,
        ReadOnly,
        ReplicaBehind,
        StoreGone,
        TooLarge,
        Unreachable,
    )
    from hansard.domain.board import BoardConflict
    from hansard.domain.errors import BadName, BadOption, BadValue, Corrupt, HansardError, Refused
    from hansard.domain.snapshot import Snapshot
    from hansard.domain.steps import Verdict
    from hansard.domain.task import ClaimLost
    from hansard.domain.values import Secret
    from hansard.service.errors import AccessRefused, NotOffered, ServiceBusy, ServiceGone

del TYPE_CHECKING

_HOME = {
    "hansard._connect": ("connect", "connect_async"),
    "hansard._version": ("__version__",),
    "hansard.agents.effects": ("DID_NOT_HAPPEN", "Happened", "Tool", "reconcile", "tool"),
    "hansard.agents.errors": (
        "AgentError",
        "Blocked",
        "Diverged",
        "InDoubt",
        "Miss",
        "NeedsSettling",
        "NoScope",
        "NotDone",
        "RecordedFailure",
        "ResultNotRecordable",
        "SecretUnavailable",
        "SessionEnded",
        "ShadowedEffect",
        "ToolChanged",
        "ToolError",
        "ViewDiffers",
    ),
    "hansard.agents.experiments": ("Arm", "plan"),
    "hansard.agents.gate": (
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
    "hansard.agents.judges": ("Evaluated",),
    "hansard.agents.ledger": ("Mode",),
    "hansard.agents.record": ("AsyncRecord", "Record"),
    "hansard.agents.session": ("AsyncSession", "Session", "sessions"),
    "hansard.agents.value_types": ("value_type",),
    "hansard.bus.errors": (
        "AppendUnknown",
        "BusError",
        "Closed",
        "Conflict",
        "Contradiction",
        "Fenced",
        "NotFound",
        "NotWritable",
        "ReadOnly",
        "ReplicaBehind",
        "StoreGone",
        "TooLarge",
        "Unreachable",
    ),
    "hansard.domain.board": ("BoardConflict",),
    "hansard.domain.errors": (
        "BadName",
        "BadOption",
        "BadValue",
        "Corrupt",
        "HansardError",
        "Refused",
    ),
    "hansard.domain.snapshot": ("Snapshot",),
    "hansard.domain.steps": ("Verdict",),
    "hansard.domain.task": ("ClaimLost",),
    "hansard.domain.values": ("Secret",),
    "hansard.service.errors": ("AccessRefused", "NotOffered", "ServiceBusy", "ServiceGone"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "DID_NOT_HAPPEN",
    "AccessRefused",
    "AgentError",
    "AppendUnknown",
    "Arm",
    "AsyncRecord",
    "AsyncSession",
    "BadName",
    "BadOption",
    "BadValue",
    "Blocked",
    "BoardConflict",
    "BusError",
    "ClaimLost",
    "Closed",
    "Conflict",
    "Contradiction",
    "Corrupt",
    "Diverged",
    "Evaluated",
    "Fenced",
    "HansardError",
    "Happened",
    "InDoubt",
    "Miss",
    "Mode",
    "NeedsSettling",
    "NoScope",
    "NotDone",
    "NotFound",
    "NotOffered",
    "NotWritable",
    "ReadOnly",
    "Record",
    "RecordedFailure",
    "Refused",
    "ReplicaBehind",
    "ResultNotRecordable",
    "Secret",
    "SecretUnavailable",
    "ServiceBusy",
    "ServiceGone",
    "Session",
    "SessionEnded",
    "ShadowedEffect",
    "Snapshot",
    "StoreGone",
    "TooLarge",
    "Tool",
    "ToolChanged",
    "ToolError",
    "Unreachable",
    "Verdict",
    "ViewDiffers",
    "__version__",
    "allow",
    "ask_first",
    "at_least",
    "at_most",
    "budget",
    "connect",
    "connect_async",
    "deny",
    "host_in",
    "one_of",
    "path_under",
    "plan",
    "reconcile",
    "sessions",
    "tool",
    "value_type",
]


def __getattr__(name: str) -> "Any":
    module = _MODULE.get(name)
    if module is None:
        message = f"module 'hansard' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(_importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
