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

    from hansard._version import __version__
    from hansard.agents.access.carried import Lowered
    from hansard.agents.access.views import View
    from hansard.agents.annotations.conversations import Conversation
    from hansard.agents.board.operations import BoardEntry, Expected
    from hansard.agents.board.twins import AsyncBoard, AsyncTransaction
    from hansard.agents.board.twins_sync import Board, Transaction
    from hansard.agents.board.write import Resolution, Resolve
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
        RoleRefused,
        SecretUnavailable,
        SessionEnded,
        ShadowedEffect,
        ToolChanged,
        ToolError,
        ViewDiffers,
    )
    from hansard.agents.experiments.plans import Arm, NotPlaced, PlanOptions, plan
    from hansard.agents.experiments.scoring import Evaluated
    from hansard.agents.policy.approvals import ListedApproval
    from hansard.agents.policy.gate import (
        AskFirst,
        AskOptions,
        Budget,
        BudgetOptions,
        CallRule,
        Condition,
        GateCall,
        GateRule,
        RuleOptions,
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
    from hansard.agents.run_index import RunsWanted
    from hansard.agents.steps.ledger import Mode
    from hansard.agents.steps.recorder import Settle
    from hansard.agents.steps.secrets import SecretProvider
    from hansard.agents.steps.tools import (
        DID_NOT_HAPPEN,
        DidNotHappen,
        Happened,
        Reconcile,
        Tool,
        ToolSpec,
        reconcile,
        tool,
    )
    from hansard.agents.steps.value_types import value_type
    from hansard.agents.team.mail import Mail
    from hansard.agents.team.tasks import Task, TaskEntry
    from hansard.agents.team.twins import AsyncTeam
    from hansard.agents.team.twins_sync import Team
    from hansard.bus.access import BadCredentials
    from hansard.bus.errors import (
        AppendUnknown,
        BrokerError,
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
    from hansard.bus.portal import AfterFork, SyncInLoop
    from hansard.bus.server.lease import (
        BadDataDir,
        Durability,
        NoServerBinary,
        NotStarted,
        OtherDurability,
        ServerError,
    )
    from hansard.bus.server.private_copy import NotCopied
    from hansard.bus.states.replay import RunView
    from hansard.client.common import (
        AsyncCommonRecord,
        ConnectOptions,
        MoreSettings,
        RecordOptions,
        RunOptions,
    )
    from hansard.client.common_sync import CommonRecord
    from hansard.client.connect import Connecting, connect, connect_async
    from hansard.client.protocol.errors import (
        AccessRefused,
        NotOffered,
        ServiceBusy,
        ServiceFailed,
        ServiceGone,
    )
    from hansard.client.record import AsyncRecord, sessions
    from hansard.client.record_sync import Record
    from hansard.client.restricted.record import AsyncRestrictedRecord
    from hansard.client.restricted.record_sync import RestrictedRecord
    from hansard.client.restricted.session import AsyncRestrictedSession
    from hansard.client.restricted.session_sync import RestrictedSession
    from hansard.client.session import (
        AsyncCommonSession,
        AsyncSession,
        SessionTasks,
        SessionThread,
    )
    from hansard.client.session_sync import CommonSession, Session
    from hansard.domain.agent import (
        AgentState,
        Alternative,
        CheckpointSaved,
        DecisionMade,
        HandedOff,
        MessageAdded,
        ResourceAccessed,
        StatedFact,
    )
    from hansard.domain.approval import Approval, ApprovalRequested, ApprovalStatus
    from hansard.domain.board import BoardConflict, BoardState, KeyKind
    from hansard.domain.errors import (
        BadName,
        BadOption,
        BadValue,
        CallerError,
        Corrupt,
        HansardError,
        RecordError,
        Refused,
        UnknownEvent,
    )
    from hansard.domain.experiment import (
        Better,
        ExperimentRegistered,
        ExperimentState,
        ExperimentStopped,
        Metric,
        Missing,
        PlannedArm,
        StopRule,
    )
    from hansard.domain.ids import AgentStream, KeyStream, RunStream, WorkspaceStream
    from hansard.domain.label import Confidentiality, Label
    from hansard.domain.merges import Merge
    from hansard.domain.refusal import AgentRefused, Refusal
    from hansard.domain.roles.model import Mask, Masking, May, RoleDefined, RoleRule
    from hansard.domain.roles.state import ShownAgent, ShownKey, ShownState
    from hansard.domain.roles.view import ShownEvent
    from hansard.domain.run import (
        ForkEffects,
        RunAgentLeft,
        RunAssigned,
        RunForked,
        RunScored,
        RunState,
        RunStatus,
    )
    from hansard.domain.snapshot import (
        ContextWindow,
        ResourceAccess,
        Snapshot,
        SnapshotMetadata,
        SnapshotResult,
        SnapshotState,
        ToolExecution,
    )
    from hansard.domain.steps import (
        Effects,
        Failure,
        Join,
        Step,
        StepAttempted,
        StepStatus,
        ToolDeclared,
        Verdict,
    )
    from hansard.domain.team.task import ClaimLost, TaskAdded, TaskState, TaskStatus, TeamState
    from hansard.domain.team.task_rules import Circle
    from hansard.domain.values import Secret
    from hansard.inspect.answer import SqlAnswer
    from hansard.projections.errors import (
        Ahead,
        Behind,
        Held,
        Newer,
        NoRoom,
        Older,
        OtherLog,
        ProjectionError,
        Unusable,
    )
    from hansard.projections.sql_sandbox.errors import (
        NotAllowed,
        QueryFailed,
        SqlBusy,
        SqlClosed,
        SqlError,
        TooCostly,
    )
    from hansard.settings import SettingsError

del TYPE_CHECKING

_HOME = {
    "hansard._version": ("__version__",),
    "hansard.agents.access.views": ("View",),
    "hansard.agents.board.operations": ("BoardEntry", "Expected"),
    "hansard.agents.board.twins": ("AsyncBoard", "AsyncTransaction"),
    "hansard.agents.board.twins_sync": ("Board", "Transaction"),
    "hansard.agents.board.write": ("Resolution", "Resolve"),
    "hansard.agents.annotations.conversations": ("Conversation",),
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
        "RoleRefused",
        "SecretUnavailable",
        "SessionEnded",
        "ShadowedEffect",
        "ToolChanged",
        "ToolError",
        "ViewDiffers",
    ),
    "hansard.agents.experiments.plans": ("Arm", "NotPlaced", "PlanOptions", "plan"),
    "hansard.agents.experiments.scoring": ("Evaluated",),
    "hansard.agents.policy.approvals": ("ListedApproval",),
    "hansard.agents.access.carried": ("Lowered",),
    "hansard.agents.policy.gate": (
        "AskFirst",
        "AskOptions",
        "Budget",
        "BudgetOptions",
        "CallRule",
        "Condition",
        "GateCall",
        "GateRule",
        "RuleOptions",
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
    "hansard.agents.run_index": ("RunsWanted",),
    "hansard.agents.steps.ledger": ("Mode",),
    "hansard.agents.steps.recorder": ("Settle",),
    "hansard.agents.steps.secrets": ("SecretProvider",),
    "hansard.agents.steps.tools": (
        "DID_NOT_HAPPEN",
        "DidNotHappen",
        "Happened",
        "Reconcile",
        "Tool",
        "ToolSpec",
        "reconcile",
        "tool",
    ),
    "hansard.agents.steps.value_types": ("value_type",),
    "hansard.agents.team.mail": ("Mail",),
    "hansard.agents.team.tasks": ("Task", "TaskEntry"),
    "hansard.agents.team.twins": ("AsyncTeam",),
    "hansard.agents.team.twins_sync": ("Team",),
    "hansard.bus.access": ("BadCredentials",),
    "hansard.bus.errors": (
        "AppendUnknown",
        "BrokerError",
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
    "hansard.bus.portal": ("AfterFork", "SyncInLoop"),
    "hansard.bus.server.lease": (
        "BadDataDir",
        "Durability",
        "NoServerBinary",
        "NotStarted",
        "OtherDurability",
        "ServerError",
    ),
    "hansard.bus.server.private_copy": ("NotCopied",),
    "hansard.bus.states.replay": ("RunView",),
    "hansard.client.common": (
        "AsyncCommonRecord",
        "ConnectOptions",
        "MoreSettings",
        "RecordOptions",
        "RunOptions",
    ),
    "hansard.client.common_sync": ("CommonRecord",),
    "hansard.client.connect": ("Connecting", "connect", "connect_async"),
    "hansard.client.protocol.errors": (
        "AccessRefused",
        "NotOffered",
        "ServiceBusy",
        "ServiceFailed",
        "ServiceGone",
    ),
    "hansard.client.record": ("AsyncRecord", "sessions"),
    "hansard.client.record_sync": ("Record",),
    "hansard.client.restricted.record": ("AsyncRestrictedRecord",),
    "hansard.client.restricted.record_sync": ("RestrictedRecord",),
    "hansard.client.restricted.session": ("AsyncRestrictedSession",),
    "hansard.client.restricted.session_sync": ("RestrictedSession",),
    "hansard.client.session": (
        "AsyncCommonSession",
        "AsyncSession",
        "SessionTasks",
        "SessionThread",
    ),
    "hansard.client.session_sync": ("CommonSession", "Session"),
    "hansard.domain.agent": (
        "AgentState",
        "Alternative",
        "CheckpointSaved",
        "DecisionMade",
        "HandedOff",
        "MessageAdded",
        "ResourceAccessed",
        "StatedFact",
    ),
    "hansard.domain.approval": ("Approval", "ApprovalRequested", "ApprovalStatus"),
    "hansard.domain.board": ("BoardConflict", "BoardState", "KeyKind"),
    "hansard.domain.errors": (
        "BadName",
        "BadOption",
        "BadValue",
        "CallerError",
        "Corrupt",
        "HansardError",
        "RecordError",
        "Refused",
        "UnknownEvent",
    ),
    "hansard.domain.experiment": (
        "Better",
        "ExperimentRegistered",
        "ExperimentState",
        "ExperimentStopped",
        "Metric",
        "Missing",
        "PlannedArm",
        "StopRule",
    ),
    "hansard.domain.ids": ("AgentStream", "KeyStream", "RunStream", "WorkspaceStream"),
    "hansard.domain.label": ("Confidentiality", "Label"),
    "hansard.domain.merges": ("Merge",),
    "hansard.domain.refusal": ("AgentRefused", "Refusal"),
    "hansard.domain.roles.model": ("Mask", "Masking", "May", "RoleDefined", "RoleRule"),
    "hansard.domain.roles.state": ("ShownAgent", "ShownKey", "ShownState"),
    "hansard.domain.roles.view": ("ShownEvent",),
    "hansard.domain.run": (
        "ForkEffects",
        "RunAgentLeft",
        "RunAssigned",
        "RunForked",
        "RunScored",
        "RunState",
        "RunStatus",
    ),
    "hansard.domain.snapshot": (
        "ContextWindow",
        "ResourceAccess",
        "Snapshot",
        "SnapshotMetadata",
        "SnapshotResult",
        "SnapshotState",
        "ToolExecution",
    ),
    "hansard.domain.steps": (
        "Effects",
        "Failure",
        "Join",
        "Step",
        "StepAttempted",
        "StepStatus",
        "ToolDeclared",
        "Verdict",
    ),
    "hansard.domain.team.task": ("ClaimLost", "TaskAdded", "TaskState", "TaskStatus", "TeamState"),
    "hansard.domain.team.task_rules": ("Circle",),
    "hansard.domain.values": ("Secret",),
    "hansard.inspect.answer": ("SqlAnswer",),
    "hansard.projections.errors": (
        "Ahead",
        "Behind",
        "Held",
        "Newer",
        "NoRoom",
        "Older",
        "OtherLog",
        "ProjectionError",
        "Unusable",
    ),
    "hansard.projections.sql_sandbox.errors": (
        "NotAllowed",
        "QueryFailed",
        "SqlBusy",
        "SqlClosed",
        "SqlError",
        "TooCostly",
    ),
    "hansard.settings": ("SettingsError",),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "DID_NOT_HAPPEN",
    "AccessRefused",
    "AfterFork",
    "AgentError",
    "AgentRefused",
    "AgentState",
    "AgentStream",
    "Ahead",
    "Alternative",
    "AppendUnknown",
    "Approval",
    "ApprovalRequested",
    "ApprovalStatus",
    "Arm",
    "AskFirst",
    "AskOptions",
    "AsyncBoard",
    "AsyncCommonRecord",
    "AsyncCommonSession",
    "AsyncRecord",
    "AsyncRestrictedRecord",
    "AsyncRestrictedSession",
    "AsyncSession",
    "AsyncTeam",
    "AsyncTransaction",
    "BadCredentials",
    "BadDataDir",
    "BadName",
    "BadOption",
    "BadValue",
    "Behind",
    "Better",
    "Blocked",
    "Board",
    "BoardConflict",
    "BoardEntry",
    "BoardState",
    "BrokerError",
    "Budget",
    "BudgetOptions",
    "BusError",
    "CallRule",
    "CallerError",
    "CheckpointSaved",
    "Circle",
    "ClaimLost",
    "Closed",
    "CommonRecord",
    "CommonSession",
    "Condition",
    "Confidentiality",
    "Conflict",
    "ConnectOptions",
    "Connecting",
    "ContextWindow",
    "Contradiction",
    "Conversation",
    "Corrupt",
    "DecisionMade",
    "DidNotHappen",
    "Diverged",
    "Durability",
    "Effects",
    "Evaluated",
    "Expected",
    "ExperimentRegistered",
    "ExperimentState",
    "ExperimentStopped",
    "Failure",
    "Fenced",
    "ForkEffects",
    "GateCall",
    "GateRule",
    "HandedOff",
    "HansardError",
    "Happened",
    "Held",
    "InDoubt",
    "Join",
    "KeyKind",
    "KeyStream",
    "Label",
    "ListedApproval",
    "Lowered",
    "Mail",
    "Mask",
    "Masking",
    "May",
    "Merge",
    "MessageAdded",
    "Metric",
    "Miss",
    "Missing",
    "Mode",
    "MoreSettings",
    "NeedsSettling",
    "Newer",
    "NoRoom",
    "NoScope",
    "NoServerBinary",
    "NotAllowed",
    "NotCopied",
    "NotDone",
    "NotFound",
    "NotOffered",
    "NotPlaced",
    "NotStarted",
    "NotWritable",
    "Older",
    "OtherDurability",
    "OtherLog",
    "PlanOptions",
    "PlannedArm",
    "ProjectionError",
    "QueryFailed",
    "ReadOnly",
    "Reconcile",
    "Record",
    "RecordError",
    "RecordOptions",
    "RecordedFailure",
    "Refusal",
    "Refused",
    "ReplicaBehind",
    "Resolution",
    "Resolve",
    "ResourceAccess",
    "ResourceAccessed",
    "RestrictedRecord",
    "RestrictedSession",
    "ResultNotRecordable",
    "RoleDefined",
    "RoleRefused",
    "RoleRule",
    "RuleOptions",
    "RunAgentLeft",
    "RunAssigned",
    "RunForked",
    "RunOptions",
    "RunScored",
    "RunState",
    "RunStatus",
    "RunStream",
    "RunView",
    "RunsWanted",
    "Secret",
    "SecretProvider",
    "SecretUnavailable",
    "ServerError",
    "ServiceBusy",
    "ServiceFailed",
    "ServiceGone",
    "Session",
    "SessionEnded",
    "SessionTasks",
    "SessionThread",
    "SettingsError",
    "Settle",
    "ShadowedEffect",
    "ShownAgent",
    "ShownEvent",
    "ShownKey",
    "ShownState",
    "Snapshot",
    "SnapshotMetadata",
    "SnapshotResult",
    "SnapshotState",
    "SqlAnswer",
    "SqlBusy",
    "SqlClosed",
    "SqlError",
    "StatedFact",
    "Step",
    "StepAttempted",
    "StepStatus",
    "StopRule",
    "StoreGone",
    "SyncInLoop",
    "Task",
    "TaskAdded",
    "TaskEntry",
    "TaskState",
    "TaskStatus",
    "Team",
    "TeamState",
    "TooCostly",
    "TooLarge",
    "Tool",
    "ToolChanged",
    "ToolDeclared",
    "ToolError",
    "ToolExecution",
    "ToolSpec",
    "Transaction",
    "UnknownEvent",
    "Unreachable",
    "Unusable",
    "Verdict",
    "View",
    "ViewDiffers",
    "WorkspaceStream",
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
