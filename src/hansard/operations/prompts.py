"""Prompts of a record: versions, aliases, feedback, reports."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hansard.agents.artifacts import prompts as store
from hansard.agents.artifacts import versions
from hansard.agents.artifacts.prompts import CURRENT, Draft, Evolver, Move, Prompt
from hansard.agents.flow import is_coroutine_function
from hansard.agents.policy import permits
from hansard.agents.policy.permits import Need, states, trusts
from hansard.bus.clock import OS_USER
from hansard.domain import prompt as prompt_rules
from hansard.domain.choices import NOTHING
from hansard.domain.errors import BadValue
from hansard.domain.prompt import (
    PROMPTS,
    PromptAliased,
    PromptFeedbackGiven,
    PromptRetired,
    PromptVersionAdded,
)
from hansard.domain.roles.authorize import Trust
from hansard.inspect import experiments as inspected
from hansard.inspect.answer import Answer
from hansard.inspect.experiments import (
    PromptEvidence,
    PromptLog,
    PromptReport,
    alias_version,
    demand_better,
    evidence,
)
from hansard.operations.declare import (
    Async,
    By,
    C_co,
    Exact,
    Here,
    Name,
    Named,
    Noun,
    Prose,
    Proses,
    Sync,
    Takes,
    composite,
    operation,
    trusted,
)
from hansard.projections.snapshots import Reader

PRODUCTION = "production"  # the default alias


class _Verdict(Answer):
    verdict: PromptEvidence


def _states(tag: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (states(tag), permits.prompts())


def _reports(_: Any) -> tuple[Need, ...]:
    return trusts(Trust.QUERY, "prompt_report"), permits.prompts()


def _promotes(request: Any) -> tuple[Need, ...]:
    moves = (states(PromptAliased.tag), permits.prompts())
    return moves if request.reason else (*moves, trusts(Trust.QUERY, "promote"))


class Prompts(Noun[C_co], noun="prompts"):
    """Prompts, kept by name in versions."""

    @operation(needs=lambda _: (permits.prompts(),), shows=PROMPTS)
    async def get(self, reference: str) -> Prompt:
        """Return a version of a prompt (docs/prompts.md).

        `.format(query=...)` fills in its text; a call with that text has the version on record.

        Args:
            reference: `rag@production` by an alias, `rag@3` by its number, `rag` for the newest
                that is not retired.

        Raises:
            NotFound: There is no such prompt.
            Refused: The prompt has no such version or alias.
            BadName: The reference is malformed.
        """
        return await store.get(self._workspace, reference)

    @operation(needs=lambda _: (permits.prompts(),))
    async def list(self) -> builtins.list[Prompt]:
        """List the prompts, by name, each in its newest version that is not retired.

        Reads the streams of all prompts.
        """
        return await store.newest(self._workspace)

    @operation(needs=_states(PromptVersionAdded.tag), shows=PROMPTS, begins=True)
    async def add(  # noqa: PLR0913 -- each is a part of a version
        self,
        name: Name,
        text: Exact,
        *,
        model: str = "",
        parameters: Named = NOTHING,
        parents: Sequence[int] = (),
        feedback_applied: Proses = (),
        reason: Prose = "",
        metrics: Here[Mapping[str, float]] = NOTHING,
        by: By = OS_USER,
    ) -> int:
        """Add a version to a prompt, new or existing; return its number.

        If an equal version exists, none is added, and that one's number is returned.

        Args:
            name: The prompt's name; without `@`.
            text: The text; `{query}` is a variable, and `{{query}}` is literal, as is any other
                brace. At most 64 KiB.
            model: The model that it is meant for.
            parameters: Further parameters of the model, by name.
            parents: The versions that it is derived from: by default the newest, two for a merge.
            feedback_applied: Feedback on its parents that it answers.
            reason: The reason on record.
            metrics: Metrics that its source claims, by name.
            by: The author on record.

        Raises:
            BadName, BadValue: A name is malformed; the text is empty, too long or a secret.
            Refused: There is no such parent.
        """
        if not isinstance(text, str) or not text.strip():  # type: ignore[redundant-expr]  # untyped callers
            raise BadValue("text", f"{text!r:.80}", "give the prompt's text")
        draft = Draft(
            text=text,
            model=model,
            parameters=parameters,
            parents=parents,
            feedback_applied=feedback_applied,
            because=reason,
            metrics=metrics,
        )
        change = await store.add(self._workspace, name, draft, by=by)
        return change.version

    @operation(needs=_states(PromptAliased.tag), shows=PROMPTS)
    async def alias(
        self,
        reference: str,
        alias: Name,
        *,
        reason: Prose = "",
        expected: int | None = CURRENT,
        take_away: bool = False,
        by: By = OS_USER,
    ) -> bool:
        """Set an alias to a version; return False if it already names it.

        The version that it named before stays on record.

        Args:
            reference: The version: `rag@3`.
            alias: The alias, such as `production`.
            reason: The reason on record.
            expected: The version that it must name now, by default any: another is a conflict.
            take_away: Remove the alias instead; the reference is then its prompt.
            by: The author on record.

        Raises:
            PromptConflict: Another writer moved it first, or it does not name the `expected`
                version (None: it names one); the error has both versions.
            Refused: The version is retired, or does not exist.
            NotFound: There is no such prompt.
            BadName: The alias or the reference is malformed.
        """
        move = Move(alias=alias, take_away=take_away, expected=expected, because=reason)
        change = await store.move(self._workspace, reference, move, by=by)
        return change.is_new

    @operation(needs=_states(PromptFeedbackGiven.tag), shows=PROMPTS)
    async def give_feedback(
        self,
        reference: str,
        text: Prose = "",
        *,
        rating: float | None = None,
        run: Here[str | None] = None,
        by: By = OS_USER,
    ) -> int:
        """Record feedback on a version of a prompt; return that version's number.

        Args:
            reference: The version, as NAME@NUMBER or NAME@ALIAS.
            text: The feedback: a rule's name, such as `too_verbose`, or a sentence.
            rating: The satisfaction, from 0 to 1.
            run: The run that the feedback is about.
            by: The author on record.

        Raises:
            NotFound: There is no such prompt or run.
            Refused: There is no such version.
            BadValue: The rating is invalid, `run` is empty, or neither text nor rating is given.
        """
        feedback = await store.feed_back(
            self._workspace, reference, text, rating=rating, run=run, by=by
        )
        return feedback.version

    @operation(needs=_states(PromptRetired.tag), shows=PROMPTS)
    async def retire(self, reference: str, *, reason: Prose = "", by: By = OS_USER) -> bool:
        """Retire a version; it stays readable.

        No alias may name it. Return False if it is already retired.

        Args:
            reference: The version, as NAME@NUMBER or NAME@ALIAS.
            reason: The reason on record.
            by: The author on record.

        Raises:
            Refused: An alias names it, or there is no such version.
            NotFound: There is no such prompt.
            BadValue: The reference names no version.
        """
        change = await store.retire(self._workspace, reference, reason=reason, by=by)
        return change.is_new

    @operation(needs=_reports, takes=Takes.LONG)
    async def report(self, name: str | None = None, *, alpha: float = 0.05) -> PromptReport:
        """Report the results of versions, of a prompt or of all.

        Args:
            name: The prompt; by default all.
            alpha: One minus the confidence level of the intervals.

        Raises:
            NotFound: There is no such prompt.
            BadValue: `alpha` is not between 0 and 1.
            ProjectionError, Refused: As `sql`.
        """
        reads = partial(inspected.report, name=name, alpha=alpha)
        return await self._context.read(reads, "prompt_report", name or "", alpha)

    @operation(needs=_promotes, takes=Takes.LONG, shows=PROMPTS)
    async def promote(
        self,
        reference: str,
        alias: Name = PRODUCTION,
        *,
        experiment: Name | None = None,
        reason: Prose = "",
        by: By = OS_USER,
    ) -> PromptEvidence | None:
        """Move an alias to a version that an experiment found better.

        Return the experiment's verdict; None with a reason instead.

        Args:
            reference: The version, as NAME@NUMBER or NAME@ALIAS.
            alias: The alias.
            experiment: The experiment whose verdict counts, with both versions as prompts of arms;
                by default the newest such one.
            reason: The reason to move it without a verdict.
            by: The author on record.

        Raises:
            Refused: The verdict is not *better*, or no experiment compares the two.
            PromptConflict: Another writer moved the alias first.
            NotFound: There is no such prompt.
            BadValue: The reference names no version, or both an experiment and `reason` are given.
            ProjectionError: As `sql`.
        """
        if reason and experiment is not None:
            fact = f"{reason!r:.80}, and experiment {experiment!r:.80}"
            raise BadValue("reason", fact, "give one of them")
        prompt_rules.check_alias(alias)
        prompt = await store.get(self._workspace, reference)
        state = (await versions.read(self._workspace, PROMPTS, prompt.name)).state
        prompt_rules.demand_named(state, *prompt_rules.split(reference))
        prompt_rules.demand_usable(state, prompt.version)
        present = state.aliases.get(alias)
        if present == prompt.version:
            return None
        statement: PromptEvidence | None = None
        if not reason:
            both = prompt.version, alias_version(state, alias, prompt.name)

            def read(reader: Reader) -> _Verdict:
                return _Verdict(verdict=evidence(reader, prompt.name, *both, experiment))

            words = (reference, experiment or "")
            statement = (await self._context.read(read, "promote", *words)).verdict
            demand_better(statement)
        judged = statement.experiment if statement is not None else ""
        move = Move(alias=alias, expected=present, because=reason, experiment=judged)
        await store.move(self._workspace, prompt.reference, move, by=by)
        return statement

    @trusted
    async def log(self, name: str) -> PromptLog:
        """Return the versions of a prompt and its alias history.

        Versions have the mean scores of their runs.

        Raises:
            NotFound: There is no such prompt.
            ProjectionError, Refused: As `sql`.
        """
        return await self._context.read(partial(inspected.log, name=name), "prompt_log", name)

    @composite
    async def evolve(
        self: Prompts[Async],
        reference: str,
        feedback: str | Sequence[str],
        *,
        using: Evolver | None = None,
        reason: str = "",
        by: str = OS_USER,
    ) -> Prompt:
        """Add a version of a prompt that answers feedback; return the newest version.

        If the feedback changes nothing, no version is added.

        Args:
            reference: The prompt, or one version of it.
            feedback: The feedback, or a list applied in order. `too_verbose` and `missing_context`
                have built-in rules.
            using: A function of the prompt and one piece of feedback that returns the new text; it
                may call a model. It replaces the built-in rules. With the async client it may be a
                coroutine function.
            reason: The reason on record.
            by: The author of the version.

        Raises:
            BadValue: No rule answers the feedback, `using` returned no text, or it is a coroutine
                function in the sync client.
            NotFound: There is no such prompt.
            Refused: The prompt has no such version.
        """
        self._context.demand_own("prompts.evolve", by)
        statement = store.feedback_list(feedback)
        before = after = await self.get(reference)
        for each in statement:
            text = store.rule_of(each, using)(after, each)
            after = store.with_text(after, await text if inspect.isawaitable(text) else text)
        return await self._evolved(before, after, statement, reason, by)

    @evolve.sync
    def _evolve_sync(
        self: Prompts[Sync],
        reference: str,
        feedback: str | Sequence[str],
        *,
        using: Evolver | None = None,
        reason: str = "",
        by: str = OS_USER,
    ) -> Prompt:
        self._context.demand_own("prompts.evolve", by)
        text = store.feedback_list(feedback)
        before = after = self.get(reference)
        for each in text:
            rule = store.rule_of(each, using)
            if is_coroutine_function(rule):
                remedy = "give a plain function, or use the async client"
                raise BadValue("using", "it is a coroutine function", remedy)
            after = store.with_text(after, rule(after, each))
        evolved: Prompt = self._portal.run(self._async._evolved(before, after, text, reason, by))  # noqa: SLF001 -- of the same noun
        return evolved

    async def _evolved(
        self: Prompts[Async],
        before: Prompt,
        after: Prompt,
        feedback: Sequence[str],
        reason: str,
        by: str,
    ) -> Prompt:
        """Add an evolved text as a version and return it; the one before if it is the same."""
        version = await self.add(
            before.name,
            after.text,
            model=before.model,
            parameters=before.parameters,
            parents=(before.version,),
            feedback_applied=feedback,
            reason=reason,
            by=by,
        )
        return await self.get(f"{before.name}@{version}")
