"""Types that annotations need: results, options, states, events, base classes."""

from hansard.agents.annotations.statements import Checkpoint
from hansard.agents.annotations.windows import Compaction, Conversation
from hansard.agents.board import (
    AsyncBoard,
    AsyncTransaction,
    Board,
    BoardEntry,
    Expected,
    Resolution,
    Resolve,
    Transaction,
)
from hansard.agents.policy.approvals import ListedApproval
from hansard.agents.policy.gate import AskOptions, BudgetOptions, GateRule, RuleOptions
from hansard.agents.steps.placeholders import SecretProvider
from hansard.agents.steps.recorder import Settle
from hansard.agents.steps.tools import Reconcile, ToolSpec
from hansard.agents.team.tasks import Mail, Task, TaskEntry
from hansard.agents.team.twins import AsyncTeam, Team
from hansard.agents.workspace import RunQuery
from hansard.client.common import AsyncCommonRecord, CommonRecord
from hansard.client.connect import Connecting
from hansard.client.options import (
    ConnectOptions,
    MoreSettings,
    RecordOptions,
    RunOptions,
    SessionOptions,
)
from hansard.client.session import (
    AsyncCommonSession,
    AsyncResumable,
    CommonSession,
    Resumable,
    SessionTasks,
    SessionThread,
)
from hansard.domain.agent import (
    AgentState,
    Alternative,
    CheckpointSaved,
    DecisionMade,
    HandedOff,
    MessageAdded,
    Moment,
    ResourceAccessed,
    StatedFact,
)
from hansard.domain.approval import Approval, ApprovalRequested, ApprovalStatus
from hansard.domain.board import BoardState
from hansard.domain.conversation import ContextCompacted
from hansard.domain.ids import AgentStream, KeyStream, RunStream, WorkspaceStream
from hansard.domain.run import Chain, RunAgentLeft, RunAssigned, RunForked, RunScored, RunState
from hansard.domain.snapshot import (
    ContextWindow,
    Outcome,
    ResourceAccess,
    Snapshot,
    SnapshotMetadata,
    SnapshotResult,
    SnapshotState,
    ToolExecution,
)
from hansard.domain.steps import (
    AnswerSource,
    Failure,
    Join,
    Step,
    StepAttempted,
    ToolDeclared,
    Withheld,
)
from hansard.domain.team import TaskAdded, TaskState, TaskStatus, TeamState
from hansard.inspect.audit import Audited, CheckedTopic, Group
from hansard.inspect.savings import Saved, Savings, SavingsAnswer
from hansard.inspect.trace import SentOut
from hansard.operations.reports import AuditOptions, AuditReport, DecisionList, DecisionReport
from hansard.operations.sql_answer import SqlAnswer
from hansard.state.replay import RunView

__all__ = [
    "AgentState",
    "AgentStream",
    "Alternative",
    "AnswerSource",
    "Approval",
    "ApprovalRequested",
    "ApprovalStatus",
    "AskOptions",
    "AsyncBoard",
    "AsyncCommonRecord",
    "AsyncCommonSession",
    "AsyncResumable",
    "AsyncTeam",
    "AsyncTransaction",
    "AuditOptions",
    "AuditReport",
    "Audited",
    "Board",
    "BoardEntry",
    "BoardState",
    "BudgetOptions",
    "Chain",
    "CheckedTopic",
    "Checkpoint",
    "CheckpointSaved",
    "CommonRecord",
    "CommonSession",
    "Compaction",
    "ConnectOptions",
    "Connecting",
    "ContextCompacted",
    "ContextWindow",
    "Conversation",
    "DecisionList",
    "DecisionMade",
    "DecisionReport",
    "Expected",
    "Failure",
    "GateRule",
    "Group",
    "HandedOff",
    "Join",
    "KeyStream",
    "ListedApproval",
    "Mail",
    "MessageAdded",
    "Moment",
    "MoreSettings",
    "Outcome",
    "Reconcile",
    "RecordOptions",
    "Resolution",
    "Resolve",
    "ResourceAccess",
    "ResourceAccessed",
    "Resumable",
    "RuleOptions",
    "RunAgentLeft",
    "RunAssigned",
    "RunForked",
    "RunOptions",
    "RunQuery",
    "RunScored",
    "RunState",
    "RunStream",
    "RunView",
    "Saved",
    "Savings",
    "SavingsAnswer",
    "SecretProvider",
    "SentOut",
    "SessionOptions",
    "SessionTasks",
    "SessionThread",
    "Settle",
    "Snapshot",
    "SnapshotMetadata",
    "SnapshotResult",
    "SnapshotState",
    "SqlAnswer",
    "StatedFact",
    "Step",
    "StepAttempted",
    "Task",
    "TaskAdded",
    "TaskEntry",
    "TaskState",
    "TaskStatus",
    "Team",
    "TeamState",
    "ToolDeclared",
    "ToolExecution",
    "ToolSpec",
    "Transaction",
    "Withheld",
    "WorkspaceStream",
]
