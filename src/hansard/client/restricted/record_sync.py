"""The record of a restricted agent, for the sync client.

Made by `python -m tests.structure.twins`: do not edit it, but
`hansard.client.restricted.record`, from which it is made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from hansard.agents.access.views import View
from hansard.agents.actions.kept_experiences import KeptVersion
from hansard.agents.prompts.store import Prompt
from hansard.agents.steps.secret_guard import guard_secrets
from hansard.client.operations import (
    Ask,
    RecordActionCaches,
    RecordActionsLog,
    RecordApprove,
    RecordAudit,
    RecordCancel,
    RecordCompare,
    RecordConfirmExperience,
    RecordDeny,
    RecordExperienceLog,
    RecordExperiences,
    RecordFindExperience,
    RecordFinish,
    RecordGiveFeedback,
    RecordInvalidate,
    RecordKeepActions,
    RecordKeptActions,
    RecordKeptExperience,
    RecordLookAtActions,
    RecordPromote,
    RecordPrompt,
    RecordPromptReport,
    RecordPrompts,
    RecordReopen,
    RecordRetireExperience,
    RecordRetirePrompt,
    RecordRevertActions,
    RecordSavings,
    RecordSql,
    RecordView,
    RecordViewRoles,
    RecordWhatLeft,
    RecordWhy,
)
from hansard.client.promotion import PRODUCTION
from hansard.client.prompt_options import PromptAliasOptions, PromptVersionOptions
from hansard.client.protocol import wire
from hansard.client.protocol.errors import NotOffered
from hansard.client.record_sync import Record
from hansard.client.reports import (
    AuditOptions,
    AuditQuestion,
    AuditReport,
    CompareOptions,
    ComparisonReport,
    DecisionList,
    DecisionReport,
    question_of,
)
from hansard.client.restricted.lacking import TRUSTED
from hansard.client.restricted.operations import event_point
from hansard.client.restricted.record import TABLES_BYTES_MAX, OnPortal, ask, opened, wanted
from hansard.client.restricted.session_sync import RestrictedSession
from hansard.client.sql_answer import SqlAnswer
from hansard.domain.actions.cache import ActionCache
from hansard.domain.choices import NOTHING, chosen
from hansard.domain.experience.experience import Experience
from hansard.domain.steps import Verdict
from hansard.inspect.kept_actions import ActionsLog, KeptCaches
from hansard.inspect.kept_experiences import HITS_MAX as EXPERIENCES_MAX
from hansard.inspect.kept_experiences import ExperienceHits, ExperienceLog, KeptExperiences
from hansard.inspect.prompts import PromptEvidence, PromptReport
from hansard.inspect.savings import By, SavingsAnswer
from hansard.inspect.what_left import SentOut


@guard_secrets("record")
class RestrictedRecord(OnPortal):
    """A workspace's record for the sync client of a restricted agent."""

    _trusted = Record

    def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> RestrictedSession:
        what = wanted(self._link, self._defaults, workflow, agent, role, options)
        return self._session(self._portal.run(opened(self._link, what)))

    def view(
        self, run: str, at: str | None = None, *, role: str | None = None, key: bytes | None = None
    ) -> View:
        """A run as a role sees it: now, or at an event that it was shown."""
        found: View = self._ask(RecordView(run, event_point(at), key, role))
        return found

    def view_roles(self) -> list[str]:
        """The roles whose views its role may be shown, its own first."""
        found: list[str] = self._ask(RecordViewRoles())
        return found

    def sql(
        self, question: str, *parameters: object, tables: Mapping[str, Any] = NOTHING
    ) -> SqlAnswer:
        """The answer of the role's own tables, where the role may query."""
        from hansard.projections.sql_sandbox.given import (  # noqa: PLC0415 -- for whoever asks
            parameter,
        )

        given = [wire.dump(parameter(each), "a parameter of SQL") for each in parameters]
        own: dict[str, bytes] = {}
        if tables:
            from hansard.client.own_tables import as_arrow  # noqa: PLC0415 -- pyarrow takes long

            own = as_arrow(tables, TABLES_BYTES_MAX)
        found: SqlAnswer = self._ask(RecordSql(question, given, own))
        return found

    def savings(
        self,
        run: str | None = None,
        *,
        workflow: str | None = None,
        month: str | None = None,
        by: str = "run",
    ) -> SavingsAnswer:
        """What replays saved, by the role's own tables, where the role may query."""
        wanted = chosen(By, by, "by").value
        found: SavingsAnswer = self._ask(RecordSavings(run, workflow, month, wanted))
        return found

    def compare(self, experiment: str, **options: Unpack[CompareOptions]) -> ComparisonReport:
        """The arms of an experiment beside each other, by the role's own tables, where the role may
        query.
        """
        asked = RecordCompare(question_of(experiment, options))
        found: ComparisonReport = self._ask(asked)
        return found

    def audit(self, run: str | None = None, **options: Unpack[AuditOptions]) -> AuditReport:
        """What is missing or odd, by the role's own tables, where the role may query."""
        found: AuditReport = self._ask(RecordAudit(AuditQuestion.of(run, options)))
        return found

    def why(self, decision: str) -> DecisionReport | DecisionList:
        """Why something was decided, by the role's own tables, where the role may query."""
        found: DecisionReport | DecisionList = self._ask(RecordWhy(decision))
        return found

    def apply_roles(self, path: str | os.PathLike[str]) -> dict[str, bool]:  # noqa: ARG002 -- as a trusted program has it
        """Raises NotOffered: roles are a trusted program's to give."""
        raise NotOffered("record.apply_roles", TRUSTED)

    def approve(self, approval: str, *, because: str = "") -> None:
        """Grant what an agent asks, where the role may and is shown the question."""
        self._ask(RecordApprove(approval, self._text(because)))

    def deny(self, approval: str, *, because: str = "") -> None:
        """Deny what an agent asks, where the role may and is shown the question."""
        self._ask(RecordDeny(approval, self._text(because)))

    def settle(
        self,
        run: str,
        step: str,
        verdict: Verdict | str,
        *,
        result: Any = None,
        because: str = "",
    ) -> None:
        """Say what is true of a step in doubt, where the role may and is shown the step."""
        self._ask(self._settling(run, step, verdict, result, because))

    def reopen(self, run: str, task: str, *, because: str = "") -> bool:
        """Have a task that failed be done after all, where the role may state `task.reopened`
        and is shown the task.
        """
        return bool(self._ask(RecordReopen(run, task, self._text(because))))

    def finish(self, run: str, *, because: str = "") -> bool:
        """Say that a run has ended as it should, where the role may state `run.completed`."""
        return bool(self._ask(RecordFinish(run, self._text(because))))

    def cancel(self, run: str, *, because: str = "") -> bool:
        """Say that a run is cancelled, where the role may state `run.cancelled`."""
        return bool(self._ask(RecordCancel(run, self._text(because))))

    def prompt(self, reference: str) -> Prompt:
        """A version of a prompt, where the role sees all of prompts."""
        found: Prompt = self._ask(RecordPrompt(reference))
        return found

    def prompts(self) -> list[Prompt]:
        """The prompts that the role is cleared for, where it sees all of prompts."""
        found: list[Prompt] = self._ask(RecordPrompts())
        return found

    def add_prompt(self, name: str, text: str, **options: Unpack[PromptVersionOptions]) -> int:
        """Add a version to a prompt, where the role may state `prompt.version_added` and sees all
        of prompts.
        """
        return int(self._ask(self._adding(name, text, options)))

    def alias_prompt(
        self, reference: str, alias: str, **options: Unpack[PromptAliasOptions]
    ) -> bool:
        """Have an alias name a version, where the role may state `prompt.aliased` and sees all of
        prompts.
        """
        return bool(self._ask(self._moving(reference, alias, options)))

    def prompt_report(self, name: str | None = None, *, alpha: float = 0.05) -> PromptReport:
        """How the versions of a prompt did, by the role's own tables, where the role may query and
        sees all of prompts.
        """
        found: PromptReport = self._ask(RecordPromptReport(name, alpha))
        return found

    def what_left(self, run: str) -> list[SentOut]:
        """What went out of a run, in order, by the role's own tables, where the role may query:
        calls that the role is not shown are not among them, and a value of more than 64 KiB stands
        there by its digest.
        """
        found: list[SentOut] = self._ask(RecordWhatLeft(run))
        return found

    def kept_experience(self, name: str, version: int | None = None) -> Experience:
        """A version of an experience that is kept, where the role sees all of experiences."""
        found: KeptVersion = self._ask(RecordKeptExperience(name, version))
        return found.experience

    def experience_log(self, name: str) -> ExperienceLog:
        """What is on record of an experience, by the role's own tables, where the role may query
        and sees all of experiences.
        """
        found: ExperienceLog = self._ask(RecordExperienceLog(name))
        return found

    def experiences(self) -> KeptExperiences:
        """The experiences that are kept, by the role's own tables, where the role may query."""
        found: KeptExperiences = self._ask(RecordExperiences())
        return found

    def find_experience(
        self,
        task: str = "",
        *,
        tools: Sequence[str] = (),
        address: str = "",
        limit: int = EXPERIENCES_MAX,
        retired: bool = False,
    ) -> ExperienceHits:
        """The experiences that fit a task, the best first, each with why, by the role's own tables,
        where the role may query.
        """
        asked = RecordFindExperience(task, list(tools), address, limit, retired)
        found: ExperienceHits = self._ask(asked)
        return found

    def confirm_experience(
        self, name: str, checks: Sequence[str] = (), *, digest: str = "", because: str = ""
    ) -> int:
        """Confirm the check functions of an experience, where the role may state
        `experience.confirmed` and sees all of experiences.
        """
        asked = RecordConfirmExperience(name, list(checks), digest, self._text(because))
        return int(self._ask(asked))

    def retire_experience(self, name: str, *, because: str = "") -> bool:
        """Retire an experience, where the role may state `experience.retired` and sees all of
        experiences.
        """
        return bool(self._ask(RecordRetireExperience(name, self._text(because))))

    def promote(
        self,
        reference: str,
        alias: str = PRODUCTION,
        *,
        experiment: str | None = None,
        because: str = "",
    ) -> PromptEvidence | None:
        """Move an alias to a version that an experiment says is better, by the role's own tables,
        where the role may state `prompt.aliased`, query, and sees all of prompts; with `because`
        without an experiment.
        """
        asked = RecordPromote(reference, alias, experiment, self._text(because))
        found: PromptEvidence | None = self._ask(asked)
        return found

    def give_feedback(self, reference: str, text: str = "", *, rating: float | None = None) -> int:
        """Say something of a version, where the role may state `prompt.feedback_given` and sees all
        of prompts.
        """
        return int(self._ask(RecordGiveFeedback(reference, self._text(text), rating)))

    def retire_prompt(self, reference: str, *, because: str = "") -> bool:
        """Have a version not be used any more, where the role may state `prompt.retired` and sees
        all of prompts.
        """
        return bool(self._ask(RecordRetirePrompt(reference, self._text(because))))

    def invalidate(
        self, *, tool: str = "", run: str = "", key: str = "", because: str = ""
    ) -> None:
        """Declare answers stale that later runs might be given, where the role may state
        `reuse.invalidated`.
        """
        self._ask(RecordInvalidate(tool=tool, run=run, key=key, because=self._text(because)))

    def keep_actions(self, name: str, cache: ActionCache, *, because: str = "") -> int:
        """Keep an action cache by a name, as its next version, where the role may state
        `actions.saved` and sees all of action caches.
        """
        return int(self._ask(RecordKeepActions(name, cache, self._text(because))))

    def kept_actions(self, name: str, version: int | None = None) -> ActionCache:
        """A version of an action cache that is kept, where the role sees all of action caches."""
        found: ActionCache = self._ask(RecordKeptActions(name, version))
        return found

    def action_caches(self) -> KeptCaches:
        """The action caches that are kept, by the role's own tables, where the role may query and
        sees all of action caches.
        """
        found: KeptCaches = self._ask(RecordActionCaches())
        return found

    def actions_log(self, name: str) -> ActionsLog:
        """The versions of an action cache, by the role's own tables, where the role may query and
        sees all of action caches.
        """
        found: ActionsLog = self._ask(RecordActionsLog(name))
        return found

    def revert_actions(self, name: str, to: int, *, because: str = "") -> int:
        """Have an earlier version of an action cache be the next one, where the role may state
        `actions.reverted` and sees all of action caches.
        """
        return int(self._ask(RecordRevertActions(name, to, self._text(because))))

    def look_at_actions(self, name: str, version: int | None = None, *, because: str = "") -> int:
        """State that the versions of an action cache up to one were looked at, where the role may
        state `actions.looked_at` and sees all of action caches.
        """
        return int(self._ask(RecordLookAtActions(name, version, self._text(because))))

    def _ask(self, asked: Ask) -> Any:
        return self._portal.run(ask(self._link, asked))
