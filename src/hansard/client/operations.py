"""What can be asked of a record and of a session: one declaration an operation.

A declaration is a request (`Ask`, tagged by the operation's name), what it comes to, and what the
role of who asks needs for it. The service makes its dispatcher from it, and a restricted client
encodes its calls from it; nothing else says which fields there are.

The fields of a request have one of these types, or what JSON says itself:

    Name            a text that others go by: it may hold no secret
    Text            a text; one that is a secret altogether goes by the secret's name
    Value, Data     a program's value, as it is recorded (`hansard.domain.values`); one with names
    Function        a function of the client's program, which runs there
    Claim, Raised   a task that was claimed; an error of the client's program

Long because the operations are one list, in the order in which the documents have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Optional, TypeVar, get_type_hints

import msgspec

from hansard.agents.access.views import View
from hansard.agents.actions.kept_experiences import KeptVersion
from hansard.agents.annotations import statements
from hansard.agents.board.operations import BoardEntry
from hansard.agents.memory.reading import MemoryEntry, MemoryNews, MemoryVersion
from hansard.agents.memory.search import HITS_MAX, Found
from hansard.agents.memory.store import BlamedLine
from hansard.agents.policy.permits import (
    Need,
    actions,
    changes_file,
    claims,
    experiences,
    prompts,
    reads,
    states,
    trusts,
    views,
    writes,
)
from hansard.agents.prompts.store import Prompt
from hansard.agents.team.tasks import LEASE_S, STATES, Mail, Task, TaskEntry
from hansard.client.options import PRODUCTION
from hansard.client.protocol.wire import EMPTY, Fault
from hansard.client.reports import (
    AuditQuestion,
    AuditReport,
    ComparisonReport,
    DecisionList,
    DecisionReport,
)
from hansard.client.sql_answer import SqlAnswer
from hansard.domain.actions.cache import ActionCache
from hansard.domain.actions.kept import ActionsLookedAt, ActionsReverted, ActionsSaved
from hansard.domain.agent import (
    CheckpointSaved,
    DecisionMade,
    HandedOff,
    MessageAdded,
    ResourceAccessed,
)
from hansard.domain.errors import BadValue
from hansard.domain.experience.kept import ExperienceConfirmed, ExperienceRetired
from hansard.domain.memory.paths import AGENTS
from hansard.domain.prompt import (
    PromptAliased,
    PromptFeedbackGiven,
    PromptRetired,
    PromptVersionAdded,
)
from hansard.domain.reuse import AnswersInvalidated
from hansard.domain.roles.authorize import Trust
from hansard.domain.run import RunCancelled, RunCompleted
from hansard.domain.steps import Verdict
from hansard.domain.team.mail import MailSent
from hansard.domain.team.task import TaskReopened
from hansard.inspect.actions import ActionsLog, KeptCaches
from hansard.inspect.kept_experiences import HITS_MAX as EXPERIENCES_MAX
from hansard.inspect.kept_experiences import ExperienceHits, ExperienceLog, KeptExperiences
from hansard.inspect.prompts import PromptEvidence, PromptReport
from hansard.inspect.savings import SavingsAnswer
from hansard.inspect.what_left import SentOut
from hansard.projections.report import Question

A = TypeVar("A", bound="type[Ask]")


class SecretName(msgspec.Struct, frozen=True, tag_field="is", tag="secret"):
    """A text that is a secret, by its name."""

    name: str


class Function(msgspec.Struct, frozen=True, tag_field="is", tag="function"):
    """A function that the client runs when the service asks for it."""

    name: str


class Claim(msgspec.Struct, frozen=True, tag_field="is", tag="claim"):
    """A task that this session has claimed: its id, and the claim's number."""

    id: str
    number: int


class Raised(msgspec.Struct, frozen=True, tag_field="is", tag="error"):
    """An error of the client's program."""

    fault: Fault


Name = Annotated[str, "name"]
Text = str | SecretName
Value = msgspec.Raw
Data = Annotated[msgspec.Raw, "data"]

EMPTY_DATA = msgspec.Raw(b"{}")


class Kind(Enum):
    """How a field goes over the wire."""

    NAME = "name"
    VALUE = "value"
    VALUES = "values"
    DATA = "data"
    PLAIN = "plain"


_KINDS: dict[Any, Kind] = {
    Name: Kind.NAME,
    Optional[Name]: Kind.NAME,  # noqa: UP045 -- the type checker knows no `|` of an annotated one
    list[Name]: Kind.NAME,
    Value: Kind.VALUE,
    list[Value]: Kind.VALUES,
    Data: Kind.DATA,
}


class Ask(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="op"
):
    """A request of an operation. Its fields are in the order in which the operation takes them."""


class ChainKind(Enum):
    """What an operation is in the chain of its agent's calls."""

    STEP = "step"
    """A step: while it is asked for, another call of the same scope overlaps with it."""

    FACT = "fact"
    """What is stated where a call could be made."""

    NONE = "none"
    """It may be asked for anywhere."""


class Takes(Enum):
    """What answering takes: those of one kind wait for the same places."""

    LITTLE = "little"
    RUN = "run"
    """A whole run is read."""

    LONG = "long"
    """A core, for seconds."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. Its `name` is `<group>.<method>`: the method of that name answers it.

    needs: of a request, what the role needs for it. result: the type of what it comes to.
    fields: those of its request, in order.
    """

    name: str
    request: type[Ask]
    result: Any
    needs: Callable[[Any], tuple[Need, ...]]
    place: ChainKind
    takes: Takes
    fields: dict[str, Kind]

    @property
    def group(self) -> str:
        """What it is asked of: `record`, or the part of a session, or a block in one."""
        return self.name.partition(".")[0]

    @property
    def method(self) -> str:
        """What it is called there."""
        return self.name.partition(".")[2]

    @property
    def called(self) -> str:
        """What messages call it: that of a session itself by its method alone."""
        return self.method if self.group in ("facts", "session") else self.name


OPERATIONS: dict[str, Operation] = {}
"""All of them, by name."""


def _free(_: Any) -> tuple[Need, ...]:
    return ()


def _states(tag: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (states(tag),)


def _writes(asked: Any) -> tuple[Need, ...]:
    return (writes(asked.key),)


def _reads(asked: Any) -> tuple[Need, ...]:
    return (reads(asked.key),)


def _operation(
    result: Any = None,
    *,
    needs: Callable[[Any], tuple[Need, ...]] = _free,
    place: ChainKind = ChainKind.STEP,
    takes: Takes = Takes.LITTLE,
) -> Callable[[A], A]:
    """Declare a request's operation."""

    def declare(request: A) -> A:
        hints = get_type_hints(request, include_extras=True)
        name = str(request.__struct_config__.tag)
        OPERATIONS[name] = Operation(
            name=name,
            request=request,
            result=result,
            needs=needs,
            place=place,
            takes=takes,
            fields={
                each: _KINDS.get(hints[each], Kind.PLAIN) for each in request.__struct_fields__
            },
        )
        return request

    return declare


# ------------------------------------------------------------ of a record


@_operation(
    View,
    needs=lambda asked: () if asked.role is None else (views(asked.role),),
    takes=Takes.RUN,
)
class RecordView(Ask, frozen=True, tag="record.view"):
    """A run as the role sees it, or as another does whose view it may be shown: now, or at an event
    that it was shown. key: what masks hash by.
    """

    run: str
    at: str | None = None
    key: bytes | None = None
    role: Name | None = None


@_operation(list[str])
class RecordViewRoles(Ask, frozen=True, tag="record.view_roles"):
    """The roles whose views the role may be shown, its own first."""


@_operation(SqlAnswer, needs=lambda _: (trusts(Trust.QUERY, "sql"),), takes=Takes.LONG)
class RecordSql(Ask, frozen=True, tag="record.sql"):
    """The answer of the role's own database: its columns, rows and position. tables: those of the
    client, by name, as Arrow IPC streams.
    """

    statement: str
    parameters: list[Value] = []
    tables: dict[str, bytes] = {}


@_operation(SavingsAnswer, needs=lambda _: (trusts(Trust.QUERY, "savings"),), takes=Takes.LONG)
class RecordSavings(Ask, frozen=True, tag="record.savings"):
    """What replays saved, by the role's own database."""

    run: str | None = None
    workflow: str | None = None
    month: str | None = None
    by: str = "run"


@_operation(ComparisonReport, needs=lambda _: (trusts(Trust.QUERY, "compare"),), takes=Takes.LONG)
class RecordCompare(Ask, frozen=True, tag="record.compare"):
    """The arms of an experiment beside each other, by the role's own database."""

    question: Question


@_operation(AuditReport, needs=lambda _: (trusts(Trust.QUERY, "audit"),), takes=Takes.LONG)
class RecordAudit(Ask, frozen=True, tag="record.audit"):
    """What is missing or odd, by the role's own database."""

    question: AuditQuestion = AuditQuestion()


@_operation(
    DecisionReport | DecisionList,
    needs=lambda _: (trusts(Trust.QUERY, "why"),),
    takes=Takes.LONG,
)
class RecordWhy(Ask, frozen=True, tag="record.why"):
    """Why something was decided, or the decisions of a run, by the role's own database."""

    decision: str


@_operation(needs=lambda asked: (trusts(Trust.APPROVE, asked.approval),), takes=Takes.RUN)
class RecordApprove(Ask, frozen=True, tag="record.approve"):
    """Grant what an agent asks, where the role is shown the question."""

    approval: str
    because: str = ""


@_operation(needs=lambda asked: (trusts(Trust.APPROVE, asked.approval),), takes=Takes.RUN)
class RecordDeny(RecordApprove, frozen=True, tag="record.deny"):
    """Deny it."""


@_operation(needs=lambda asked: (trusts(Trust.SETTLE, asked.step),), takes=Takes.RUN)
class RecordSettle(Ask, frozen=True, tag="record.settle"):
    """Say what is true of a step in doubt, `agent#number`, where the role is shown it."""

    run: str
    step: str
    verdict: Verdict
    result: Value = EMPTY
    because: str = ""


@_operation(bool, needs=_states(TaskReopened.tag), takes=Takes.RUN)
class RecordReopen(Ask, frozen=True, tag="record.reopen"):
    """Have a task that failed be done after all, where the role is shown it."""

    run: str
    task: str
    because: str = ""


@_operation(bool, needs=_states(RunCompleted.tag), takes=Takes.RUN)
class RecordFinish(Ask, frozen=True, tag="record.finish"):
    """Say that a run has ended as it should, where the role is shown any of it."""

    run: str
    because: str = ""


@_operation(bool, needs=_states(RunCancelled.tag), takes=Takes.RUN)
class RecordCancel(RecordFinish, frozen=True, tag="record.cancel"):
    """Say that it is cancelled."""


@_operation(Prompt, needs=lambda _: (prompts(),))
class RecordPrompt(Ask, frozen=True, tag="record.prompt"):
    """A version of a prompt, where the role sees all of prompts."""

    reference: str


@_operation(list[Prompt], needs=lambda _: (prompts(),))
class RecordPrompts(Ask, frozen=True, tag="record.prompts"):
    """The prompts that the role is cleared for, each as its newest version, where it sees all of
    prompts.
    """


@_operation(int, needs=lambda _: (states(PromptVersionAdded.tag), prompts()))
class RecordAddPrompt(Ask, frozen=True, tag="record.add_prompt"):
    """Add a version to a prompt: its number. parameters: as they are recorded."""

    name: Name
    text: str
    model: str = ""
    parameters: Data = EMPTY_DATA
    parents: list[int] = []
    feedback_applied: list[str] = []
    because: str = ""


@_operation(bool, needs=lambda _: (states(PromptAliased.tag), prompts()))
class RecordAliasPrompt(Ask, frozen=True, tag="record.alias_prompt"):
    """Have an alias name a version, or take it away. expected: the version that it names, 0 for
    none; what it names when it is looked at, if not said.
    """

    reference: str
    alias: Name
    because: str = ""
    expected: int | None = None
    take_away: bool = False


@_operation(int, needs=lambda _: (states(PromptFeedbackGiven.tag), prompts()))
class RecordGiveFeedback(Ask, frozen=True, tag="record.give_feedback"):
    """Say something of a version of a prompt: its number."""

    reference: str
    text: str = ""
    rating: float | None = None


@_operation(bool, needs=lambda _: (states(PromptRetired.tag), prompts()))
class RecordRetirePrompt(Ask, frozen=True, tag="record.retire_prompt"):
    """Have a version not be used any more."""

    reference: str
    because: str = ""


@_operation(
    PromptReport,
    needs=lambda _: (trusts(Trust.QUERY, "prompt_report"), prompts()),
    takes=Takes.LONG,
)
class RecordPromptReport(Ask, frozen=True, tag="record.prompt_report"):
    """How the versions of a prompt did, or of all, by the role's own database."""

    name: str | None = None
    alpha: float = 0.05


def _promotes(asked: Any) -> tuple[Need, ...]:
    moves = (states(PromptAliased.tag), prompts())
    return moves if asked.because else (*moves, trusts(Trust.QUERY, "promote"))


@_operation(PromptEvidence | None, needs=_promotes, takes=Takes.LONG)
class RecordPromote(Ask, frozen=True, tag="record.promote"):
    """Move an alias to a version that an experiment says is better, by the role's own database; or
    with `because` without one.
    """

    reference: str
    alias: Name = PRODUCTION
    experiment: Name | None = None
    because: str = ""


@_operation(list[SentOut], needs=lambda _: (trusts(Trust.QUERY, "what_left"),), takes=Takes.LONG)
class RecordWhatLeft(Ask, frozen=True, tag="record.what_left"):
    """What went out of a run, to models, pages and tools, by the role's own database."""

    run: Name


@_operation(
    KeptExperiences, needs=lambda _: (trusts(Trust.QUERY, "experiences"),), takes=Takes.LONG
)
class RecordExperiences(Ask, frozen=True, tag="record.experiences"):
    """The experiences that are kept, by the role's own database."""


@_operation(
    ExperienceHits, needs=lambda _: (trusts(Trust.QUERY, "find_experience"),), takes=Takes.LONG
)
class RecordFindExperience(Ask, frozen=True, tag="record.find_experience"):
    """The experiences that fit a task, the best first, each with why, by the role's own database.
    address: where it is done, or a host. retired: those that are, too.
    """

    task: str = ""
    tools: list[str] = []
    address: str = ""
    limit: int = EXPERIENCES_MAX
    retired: bool = False


@_operation(KeptVersion, needs=lambda _: (experiences(),))
class RecordKeptExperience(Ask, frozen=True, tag="record.kept_experience"):
    """A version of an experience that is kept, the newest without one, where the role sees all of
    experiences.
    """

    name: Name
    version: int | None = None


@_operation(
    ExperienceLog,
    needs=lambda _: (trusts(Trust.QUERY, "experience_log"), experiences()),
    takes=Takes.LONG,
)
class RecordExperienceLog(Ask, frozen=True, tag="record.experience_log"):
    """What is on record of an experience, by the role's own database."""

    name: Name


@_operation(int, needs=lambda _: (states(ExperienceConfirmed.tag), experiences()))
class RecordConfirmExperience(Ask, frozen=True, tag="record.confirm_experience"):
    """Confirm the check functions of an experience: the number of the version that has them.
    checks: of those that are proposed, only these. digest: which version was looked at.
    """

    name: Name
    checks: list[str] = []
    digest: str = ""
    because: str = ""


@_operation(bool, needs=lambda _: (states(ExperienceRetired.tag), experiences()))
class RecordRetireExperience(Ask, frozen=True, tag="record.retire_experience"):
    """Have an experience not be used any more, until a version is confirmed again."""

    name: Name
    because: str = ""


@_operation(needs=_states(AnswersInvalidated.tag))
class RecordInvalidate(Ask, frozen=True, tag="record.invalidate"):
    """Declare answers stale that later runs might be given: of a tool, a run or a key."""

    tool: Name = ""
    run: Name = ""
    key: Name = ""
    because: str = ""


@_operation(int, needs=lambda _: (states(ActionsSaved.tag), actions()))
class RecordKeepActions(Ask, frozen=True, tag="record.keep_actions"):
    """Keep an action cache by a name, as its next version: that version's number."""

    name: Name
    cache: ActionCache
    because: str = ""


@_operation(ActionCache, needs=lambda _: (actions(),))
class RecordKeptActions(Ask, frozen=True, tag="record.kept_actions"):
    """A version of an action cache that is kept, the newest without one, where the role sees all
    of action caches.
    """

    name: Name
    version: int | None = None


@_operation(
    KeptCaches,
    needs=lambda _: (trusts(Trust.QUERY, "action_caches"), actions()),
    takes=Takes.LONG,
)
class RecordActionCaches(Ask, frozen=True, tag="record.action_caches"):
    """The action caches that are kept, and how many heals nobody has looked at, by the role's own
    database.
    """


@_operation(
    ActionsLog,
    needs=lambda _: (trusts(Trust.QUERY, "actions_log"), actions()),
    takes=Takes.LONG,
)
class RecordActionsLog(Ask, frozen=True, tag="record.actions_log"):
    """The versions of an action cache that is kept, by the role's own database."""

    name: Name


@_operation(int, needs=lambda _: (states(ActionsReverted.tag), actions()))
class RecordRevertActions(Ask, frozen=True, tag="record.revert_actions"):
    """Have an earlier version of an action cache be the next one: that one's number."""

    name: Name
    to: int
    because: str = ""


@_operation(int, needs=lambda _: (states(ActionsLookedAt.tag), actions()))
class RecordLookAtActions(Ask, frozen=True, tag="record.look_at_actions"):
    """State that all versions of an action cache up to one, the newest if none is named, were
    looked at and may stand: that one's number.
    """

    name: Name
    version: int | None = None
    because: str = ""


# ------------------------------------------------------------ of a space of memory


class FileOp(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What becomes of a file in a change: `op` is create (text, link), edit (old, new), insert
    (line, text), append (text), rename (to) or delete.
    """

    op: str
    path: str
    text: str = ""
    link: bool = False
    old: str = ""
    new: str = ""
    line: int = 0
    to: str = ""


def _changes(asked: Any) -> tuple[Need, ...]:
    """To change the files, where it says of which space; else the session finds it."""
    if not asked.space:
        return ()
    ops = getattr(asked, "ops", [asked])
    named = [path for op in ops for path in (op.path, getattr(op, "to", "")) if path]
    return tuple(changes_file(asked.space, path) for path in dict.fromkeys(named))


@_operation(MemoryEntry)
class RecordMemoryEntry(Ask, frozen=True, tag="record.memory_entry"):
    """A file of a space. at: the id of a change that the role is shown, or a time."""

    space: Name
    path: Name
    at: str | None = None


@_operation(list[MemoryEntry])
class RecordMemoryEntries(Ask, frozen=True, tag="record.memory_entries"):
    """All files of a space that the role sees, by path."""

    space: Name
    at: str | None = None


@_operation(list[MemoryVersion])
class RecordMemoryHistory(Ask, frozen=True, tag="record.memory_history"):
    """The versions of a file, or the changes of all that the role sees."""

    space: Name
    path: Name | None = None


@_operation(str)
class RecordMemoryDiff(Ask, frozen=True, tag="record.memory_diff"):
    """What became of a file, or of all that the role sees, between two points."""

    space: Name
    path: Name | None
    before: str
    after: str | None = None


@_operation(list[BlamedLine])
class RecordMemoryBlame(Ask, frozen=True, tag="record.memory_blame"):
    """The change that brought each line of a file."""

    space: Name
    path: Name


@_operation(needs=_changes)
class RecordMemoryChange(Ask, frozen=True, tag="record.memory_change"):
    """Change files of a space where nobody is to be asked, all or none."""

    space: Name
    ops: list[FileOp]
    because: str = ""
    sources: list[Name] = []


@_operation()
class RecordMemoryRevert(Ask, frozen=True, tag="record.memory_revert"):
    """Undo a change of a space, all of its files or none, where nobody is to be asked."""

    space: Name
    change: Name
    because: str = ""


# ------------------------------------------------------------ of a session


@_operation(View, takes=Takes.RUN)
class SessionView(Ask, frozen=True, tag="session.view"):
    """What the role sees of the session's run: now, or at an event that it was shown."""

    at: str | None = None
    key: bytes | None = None


@_operation(needs=_states(CheckpointSaved.tag), place=ChainKind.FACT)
class Checkpoint(Ask, frozen=True, tag="facts.checkpoint"):
    """Record that a named stage is reached, with data to resume from."""

    name: Text
    data: Data


@_operation(dict[str, Any] | None, place=ChainKind.NONE)
class CheckpointData(Ask, frozen=True, tag="facts.checkpoint_data"):
    """The data of the newest checkpoint of a name."""

    name: Text


@_operation(statements.Checkpoint | None, place=ChainKind.NONE)
class LatestCheckpoint(Ask, frozen=True, tag="facts.latest_checkpoint"):
    """The newest checkpoint, of whatever name."""


@_operation(needs=_states(DecisionMade.tag), place=ChainKind.FACT)
class Decide(Ask, frozen=True, tag="facts.decide"):
    """Record a decision: what was chosen, from what, and why."""

    question: Text
    selected: Text
    alternatives: list[Value] = []
    inputs: list[Value] = []
    threshold: float | None = None
    confidence: float | None = None
    because: Text = ""


@_operation(needs=_states(MessageAdded.tag), place=ChainKind.FACT)
class Message(Ask, frozen=True, tag="facts.message"):
    """Add a message to the context window."""

    role: Text
    content: Value
    tokens: int | None
    fields: Data


@_operation(needs=_states(ResourceAccessed.tag), place=ChainKind.FACT)
class Resource(Ask, frozen=True, tag="facts.resource"):
    """State that a resource was used."""

    uri: Text
    operation: Text


@_operation(needs=_states(HandedOff.tag), place=ChainKind.FACT)
class HandOff(Ask, frozen=True, tag="facts.hand_off"):
    """Hand the work over to an agent or a role."""

    to: Name
    because: Text
    payload: Data


@_operation(list[dict[str, Any]], place=ChainKind.NONE)
class Context(Ask, frozen=True, tag="facts.context"):
    """The context window in the provider's message form."""


# ------------------------------------------------------------ of its board, and a transaction there


@_operation(BoardEntry | None, needs=_reads)
class BoardGet(Ask, frozen=True, tag="board.entry"):
    """A key with all that is known of it."""

    key: Name


@_operation(list[str])
class BoardKeys(Ask, frozen=True, tag="board.keys"):
    """The keys that are there, of those that the role may read."""


class _Put(Ask, frozen=True):
    key: Name
    value: Value
    expected: int | str | None = None
    labels: dict[str, Text] = {}
    ttl_s: float | None = None


@_operation(int, needs=_writes)
class BoardPut(_Put, frozen=True, tag="board.put"):
    """Put a value; the key's new version."""

    resolve: str | Function | None = None


@_operation(int, needs=_writes)
class BoardAppend(Ask, frozen=True, tag="board.append"):
    """Append an item to a list; its new length."""

    key: Name
    item: Value


@_operation(int, needs=_writes)
class BoardAdd(Ask, frozen=True, tag="board.add"):
    """Add a whole number to a counter; what it then is."""

    key: Name
    amount: int = 1


@_operation(int, needs=_writes)
class BoardInclude(BoardAppend, frozen=True, tag="board.include"):
    """Have a set hold an item; its size."""


@_operation(int, needs=_writes)
class BoardDiscard(BoardAppend, frozen=True, tag="board.discard"):
    """Have a set no longer hold an item; its size."""


@_operation(Any, needs=_writes)
class BoardMerge(Ask, frozen=True, tag="board.merge"):
    """Merge a value into what stands."""

    key: Name
    merge: str
    value: Value


@_operation(bool, needs=_writes)
class BoardRemove(Ask, frozen=True, tag="board.remove"):
    """Remove a key; whether it was there."""

    key: Name
    expected: int | str | None = None


@_operation()
class BoardTransaction(Ask, frozen=True, tag="board.transaction"):
    """A block: several keys in one commit, made at its end."""


@_operation(Any, needs=_reads)
class TransactionGet(Ask, frozen=True, tag="transaction.get"):
    """What a key holds, the transaction's own writes included."""

    key: Name
    default: Value = EMPTY


@_operation(needs=_writes)
class TransactionPut(_Put, frozen=True, tag="transaction.put"):
    """Put a value."""


@_operation(needs=_writes)
class TransactionAppend(BoardAppend, frozen=True, tag="transaction.append"):
    """Append an item to a list."""


@_operation(needs=_writes)
class TransactionAdd(BoardAdd, frozen=True, tag="transaction.add"):
    """Add a whole number to a counter."""


@_operation(needs=_writes)
class TransactionInclude(BoardAppend, frozen=True, tag="transaction.include"):
    """Have a set hold an item."""


@_operation(needs=_writes)
class TransactionDiscard(BoardAppend, frozen=True, tag="transaction.discard"):
    """Have a set no longer hold an item."""


@_operation(needs=_writes)
class TransactionMerge(BoardMerge, frozen=True, tag="transaction.merge"):
    """Merge a value into what stands."""


@_operation(needs=_writes)
class TransactionRemove(BoardRemove, frozen=True, tag="transaction.remove"):
    """Remove a key."""


@_operation()
class TransactionRollBack(Ask, frozen=True, tag="transaction.roll_back"):
    """End it and write nothing."""

    because: Text = ""


# ------------------------------------------------------------ of its memory


@_operation(MemoryEntry)
class MemoryEntryOf(Ask, frozen=True, tag="memory.entry"):
    """A file of memory with its text, author and label. at: the id of a change, or a time."""

    path: Name
    space: Name | None = None
    at: str | None = None


@_operation(list[str])
class MemoryLs(Ask, frozen=True, tag="memory.ls"):
    """The paths of files of memory under a folder, sorted."""

    folder: Name = ""


@_operation(list[str])
class MemoryGlob(Ask, frozen=True, tag="memory.glob"):
    """The paths of files of memory that match a pattern such as `skills/**`, sorted."""

    pattern: str


@_operation(list[tuple[str, int, str]], takes=Takes.RUN)
class MemoryGrep(Ask, frozen=True, tag="memory.grep"):
    """The lines of memory that match a regular expression of RE2: path, line from 1, text. glob:
    of files whose path matches it.
    """

    pattern: str
    glob: str = ""


@_operation(Found, takes=Takes.RUN)
class MemorySearch(Ask, frozen=True, tag="memory.search"):
    """The files of memory that fit a question by their words, the best first. glob: of files whose
    path matches it. limit: so many at most. kind: of files of that kind: procedural or semantic.
    """

    question: str
    glob: str = ""
    limit: int = HITS_MAX
    kind: str = ""


@_operation(str)
class MemoryPrompt(Ask, frozen=True, tag="memory.prompt"):
    """What of memory stands in the system prompt: all instructions, and which skills there are.
    budget: most characters.
    """

    budget: int | None = None


@_operation(list[MemoryNews])
class MemoryNewsOf(Ask, frozen=True, tag="memory.news"):
    """What changed of the files that the prompt tells of, since it was asked or this was."""


@_operation(list[MemoryVersion])
class MemoryHistory(Ask, frozen=True, tag="memory.history"):
    """The versions of a file of memory, the oldest first."""

    path: Name
    space: Name | None = None


class _Change(Ask, frozen=True, kw_only=True):
    because: str = ""
    space: Name | None = None


@_operation(needs=_changes)
class MemoryCreate(_Change, frozen=True, tag="memory.create"):
    """Have a file of memory hold a text. One that stands there must be as this session saw it."""

    path: Name
    text: str
    link: bool = False
    sources: list[Name] = []


@_operation(needs=_changes)
class MemoryEdit(_Change, frozen=True, tag="memory.edit"):
    """Replace a part of a file of memory, which must stand there once."""

    path: Name
    old: str
    new: str
    sources: list[Name] = []


@_operation(needs=_changes)
class MemoryInsert(_Change, frozen=True, tag="memory.insert"):
    """Insert a text behind a line of a file of memory (0: before the first)."""

    path: Name
    line: int
    text: str
    sources: list[Name] = []


@_operation(needs=_changes)
class MemoryRename(_Change, frozen=True, tag="memory.rename"):
    """Move a file of memory."""

    path: Name
    to: Name


@_operation(needs=_changes)
class MemoryDelete(_Change, frozen=True, tag="memory.delete"):
    """Delete a file of memory."""

    path: Name


@_operation(needs=_changes)
class MemoryRemember(Ask, frozen=True, tag="memory.remember"):
    """Add a line to a file of memory, by default the instructions: what is to hold from now on."""

    text: str
    path: Name = AGENTS
    space: Name | None = None
    sources: list[Name] = []


@_operation(needs=_changes)
class MemoryChangeOf(_Change, frozen=True, tag="memory.change"):
    """Change several files of memory at once, all or none."""

    ops: list[FileOp]
    sources: list[Name] = []


@_operation()
class MemoryRevert(_Change, frozen=True, tag="memory.revert"):
    """Undo a change of memory, named by the id of its event or commit: all of its files or none."""

    change: Name


# ------------------------------------------------------------ of its team


@_operation(str, needs=_states(STATES["add"]))
class TeamAdd(Ask, frozen=True, tag="team.add"):
    """Add a task for the team, a role or one agent; returns its id."""

    title: Text
    what: Value = EMPTY
    role: Name | None = None
    agent: Name | None = None
    waits_for: list[Name] = []
    waits_for_roles: list[Name] = []
    task: Name | None = None


def _claims(asked: Any) -> tuple[Need, ...]:
    stated = states(STATES["claim"])
    return (stated,) if asked.role is None else (stated, claims(asked.role))


@_operation(Task | None, needs=_claims)
class TeamClaim(Ask, frozen=True, tag="team.claim"):
    """Claim the next task that this agent may do, or null where there is none."""

    role: Name | None = None
    lease_s: float = LEASE_S
    timeout_s: float | None = 0


@_operation(Task | None, needs=lambda asked: (*_claims(asked), states(STATES["complete"])))
class TeamClaimed(TeamClaim, frozen=True, tag="team.claimed"):
    """A block: a task is claimed, kept alive meanwhile, and ended with it."""


@_operation(needs=_states(STATES["extend"]))
class TeamExtend(Ask, frozen=True, tag="team.extend"):
    """Have a task's lease begin again."""

    task: Claim
    lease_s: float = LEASE_S


@_operation(needs=_states(STATES["complete"]))
class TeamComplete(Ask, frozen=True, tag="team.complete"):
    """Complete a claimed task with its result."""

    task: Claim
    result: Value = EMPTY


@_operation(needs=_states(STATES["fail"]))
class TeamFail(Ask, frozen=True, tag="team.fail"):
    """Fail a claimed task, with the reason."""

    task: Claim
    error: str | SecretName | Raised


@_operation(needs=_states(STATES["release"]))
class TeamRelease(Ask, frozen=True, tag="team.release"):
    """Give a task back for another to claim."""

    task: Claim
    because: Text = ""


@_operation(needs=_states(STATES["hand_off"]))
class TeamHandOff(Ask, frozen=True, tag="team.hand_off"):
    """Hand a claimed task on to another agent or role."""

    task: Claim
    role: Name | None = None
    agent: Name | None = None
    with_: Value = EMPTY
    because: Text = ""


@_operation(bool, needs=_states(STATES["reopen"]))
class TeamReopen(Ask, frozen=True, tag="team.reopen"):
    """Have a task that failed be done after all."""

    task: Name
    because: Text = ""


@_operation(list[TaskEntry])
class TeamTasks(Ask, frozen=True, tag="team.tasks"):
    """All tasks of the run that the role sees."""


@_operation(bool, needs=lambda asked: () if asked.key is None else (reads(asked.key),))
class TeamWaitFor(Ask, frozen=True, tag="team.wait_for"):
    """Wait until a key has a value, or a task is completed."""

    key: Name | None = None
    task: Name | None = None
    timeout_s: float | None = None


@_operation(int, needs=_states(MailSent.tag))
class TeamSend(Ask, frozen=True, tag="team.send"):
    """Send a message to an agent or a role; its number in the run."""

    content: Value
    role: Name | None = None
    agent: Name | None = None


@_operation(list[Mail])
class TeamInbox(Ask, frozen=True, tag="team.inbox"):
    """The messages that this agent was not given yet."""


# ------------------------------------------------------------ of a loop


@_operation(list[Any], place=ChainKind.NONE)
class LoopBegin(Ask, frozen=True, tag="loop.begin"):
    """Begin a `resumable` loop, and find what was done before: its results."""

    name: Name
    every: int


@_operation(str | None, place=ChainKind.FACT)
class LoopSkips(Ask, frozen=True, tag="loop.skips"):
    """Come to an item: the path of its scope, None where it was done before."""

    item: Value


@_operation(needs=_states(CheckpointSaved.tag), place=ChainKind.FACT)
class LoopDone(Ask, frozen=True, tag="loop.done"):
    """Say that the item is done; with the results that are to be kept with it."""

    results: list[Value] = []


@_operation(place=ChainKind.FACT)
class LoopLeave(Ask, frozen=True, tag="loop.leave"):
    """Leave the loop, in whatever way."""


@_operation(needs=_states(CheckpointSaved.tag), place=ChainKind.FACT)
class LoopEnd(Ask, frozen=True, tag="loop.end"):
    """Say that all items are done; with the results that are not kept yet."""

    results: list[Value] = []


# ------------------------------------------------------------ from bytes

_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(each.request) for name, each in OPERATIONS.items()
}
_EXPECTED = re.compile(r"Expected `(.+?)`(?:, got `.+?`)?(?: - at .*)?$")
_AT = re.compile(r" - at `\$\.(\w+).*`$")
_NAMED = re.compile(r"(required|unknown) field `(.+?)`")


class _Tagged(msgspec.Struct):
    op: str


_tag = msgspec.json.Decoder(_Tagged)


def of(asked: Ask) -> Operation:
    """The operation that a request is of."""
    return OPERATIONS[str(type(asked).__struct_config__.tag)]


def read(raw: msgspec.Raw) -> tuple[Operation, Any]:
    """A request, and the operation that it is of. Raises BadValue, which names the operation, the
    field, what it holds, and what it is to hold.
    """
    try:
        name = _tag.decode(raw).op
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("request", f"{error!s:.200}", "give an operation by its name") from error
    operation = OPERATIONS.get(name)
    if operation is None:
        raise BadValue("request", f"there is no operation {name!r:.80}", "see what is offered")
    try:
        return operation, _decoders[name].decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(operation, raw, str(error)) from error


def _wrong(operation: Operation, raw: msgspec.Raw, text: str) -> BadValue:
    """A request of another shape than the operation's."""
    takes = f"{operation.called} takes {', '.join(operation.fields) or 'nothing'}"
    named, at = _NAMED.search(text), _AT.search(text)
    if at is None:
        if named is None:
            return BadValue(operation.called, text[:200], takes)
        fact = "it is not given" if named[1] == "required" else "there is no such field"
        return BadValue(f"{operation.called}({named[2]:.80})", fact, takes)
    hint = get_type_hints(operation.request)[at[1]]
    remedy = text.partition(" - at ")[0]
    if isinstance(hint, type) and issubclass(hint, Enum):
        remedy = f"give one of {', '.join(str(each.value) for each in hint)}"
    elif (expected := _EXPECTED.match(text)) is not None:
        remedy = f"give {expected[1]}"
    given = bytes(msgspec.json.decode(raw, type=dict[str, msgspec.Raw])[at[1]])
    return BadValue(f"{operation.called}({at[1]})", given[:80].decode(errors="replace"), remedy)
