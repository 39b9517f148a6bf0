"""The record: where runs are begun, joined, resumed, replayed and forked. Sync and async."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import PurePath
from typing import Any, Self, Unpack

import msgspec

from hansard.agents import experiments, judges, opening, prices, roles
from hansard.agents.approvals import Listed, answer, listed
from hansard.agents.conversations import Conversation, conversation
from hansard.agents.errors import AgentError
from hansard.agents.failures import recordable
from hansard.agents.gate import AskFirst, Budget, GateRule, Rule
from hansard.agents.judges import Evaluated, Evaluation
from hansard.agents.labels import Lowering, declassify
from hansard.agents.ledger import Mode
from hansard.agents.opening import Options
from hansard.agents.outcomes import Settle
from hansard.agents.run_index import RunFilter, RunsWanted
from hansard.agents.runs import cancel, finish, fork, reopen, settle
from hansard.agents.scope import kept
from hansard.agents.secrets import Provider, check_names, scrubber
from hansard.agents.session import AsyncSession, Session, stay, stay_async, within, within_async
from hansard.agents.workspace import Workspace
from hansard.bus.portal import Portal
from hansard.bus.states import RunView
from hansard.domain.brief import Brief, first
from hansard.domain.choices import check_options, chosen
from hansard.domain.experiment import ExperimentRegistered, ExperimentState
from hansard.domain.label import Label
from hansard.domain.role_events import RoleDefined
from hansard.domain.run import ForkEffects, RunState
from hansard.domain.values import Scrub


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What `connect` was given for all runs; `run` may say otherwise."""

    gate: Sequence[GateRule] = ()
    redact: Mapping[str, Any] = {}
    secrets: Provider | None = None
    settle: Settle | None = None
    run: str | None = None
    mode: Mode | None = None


AGENT = "agent"
"""The agent and its role, where none is said."""

RUN_OPTIONS = [name for name in Options.__struct_fields__ if name != "workflow"]
"""What `record.run` takes besides a workflow, an agent and a role."""


def _options(defaults: Defaults, workflow: str | None, given: dict[str, Any]) -> Options:
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
    check_options("record.run", given, RUN_OPTIONS)
    check_rules(fields["gate"])
    return Options(workflow=workflow, **fields)


def clean(defaults: Defaults, method: str, **names: object) -> Scrub | None:
    """What takes secrets out of texts. Raises BadValue for a name that holds one."""
    scrub = scrubber(defaults.redact)
    check_names(f"record.{method}", names, scrub)
    return scrub


def _names_of(plan: ExperimentRegistered) -> dict[str, object]:
    """What of a plan others go by."""
    return {
        "arms": [arm.name for arm in plan.arms],
        "metrics": [metric.name for metric in plan.metrics],
        "unit": plan.unit,
        "cluster": plan.cluster,
    }


def _rules_of(rules: RoleDefined) -> object:
    """What of a role's rules others go by: all but what they are about."""
    return msgspec.to_builtins(msgspec.structs.replace(rules, about=""))


def check_rules(rules: Sequence[Any]) -> None:
    """Raise AgentError for what is no rule of a gate."""
    for rule in rules:
        if not isinstance(rule, Rule | AskFirst | Budget) and not callable(rule):
            known = "allow, deny, ask_first, budget or a function"
            message = f"gate={rule!r:.80} is no rule: give {known}"
            raise AgentError(message)


class _Brief(Brief):
    """What both twins show of themselves."""

    workspace: Workspace

    def _brief(self) -> dict[str, Any]:
        log = self.workspace.log
        return {
            "workspace": log.workspace,
            "durability": log.durability,
            "sessions": first(kept(self), lambda each: f"{each.agent} in run {each.run}"),
        }


class Record(_Brief):
    """A workspace's record for the sync client. Made by `hansard.connect`.

    Each method waits for the broker; what writes is acknowledged when it returns.
    """

    def __init__(self, workspace: Workspace, portal: Portal, defaults: Defaults) -> None:
        self.workspace = workspace
        self._portal = portal
        self._defaults = defaults

    @contextlib.contextmanager
    def run(
        self,
        workflow: str | None = None,
        *,
        agent: str = AGENT,
        role: str = AGENT,
        **options: Any,
    ) -> Generator[Session, None, None]:
        """Begin a run, or with `run=ID` join or resume one, as one agent in one role.

        Leaving the block ends the agent's session, and with the last of its agents the run:
        completed, or failed where one of them left its block by an error.

        Args:
            workflow: What the run is an execution of; needed where it begins.
            agent: Who acts. One name has one role in a run.
            role: Its role.

        Keyword Args:
            run (str): The run's id; one of your own begins it the first time.
            mode (str): `strict` or `offline`: only read, and run no tool.
            conversation (str): What the run goes on with.
            labels (Mapping): Texts by name, to find the run by.
            experiment (str): Of which experiment it is.
            task (str): What it tries there.
            trial (int): Which trial of it, from 0.
            unit (str): What the arm is given to, where the plan's unit is a name of its own.
            arm (str): Where the caller chooses it; `session.arm` is what it got.
            gate (Sequence): Rules, in place of `connect`'s.
            redact (Mapping): Secrets, in place of `connect`'s.
            secrets (Provider): In place of `connect`'s.
            settle (Settle): In place of `connect`'s.

        Raises:
            BadOption: There is no such option; the message names the nearest.
            BadName, BadValue: A name is not one, or holds a secret.
            NotFound: `mode` reads a run, or an agent of it, that is not there.
            Refused: The agent has another role in this run, or the run takes no more.
            Fenced: At the first write, where the run was resumed elsewhere meanwhile.
        """
        with within(self._begin(workflow, agent, role, options)) as session:
            yield session

    def open(
        self,
        workflow: str | None = None,
        *,
        agent: str = AGENT,
        role: str = AGENT,
        **options: Any,
    ) -> Session:
        """Like `run`, without a block: the session stays open until `session.close()`, or until
        this record is closed. Wherever no block's session is current, a call of a `@hansard.tool`
        goes to it, if it is the only one in this process (`hansard.sessions()`).

        Opened again for the same agent and run, in the same thread, it takes the place of the
        earlier one, which has then ended.
        """
        return stay(self._begin(workflow, agent, role, options), self, self.workspace.command)

    def _begin(
        self, workflow: str | None, agent: str, role: str, options: dict[str, Any]
    ) -> Session:
        wanted = _options(self._defaults, workflow, options)
        begin = opening.open_agent(
            self.workspace,
            agent,
            role,
            wanted,
            self._portal.post,
            self._portal.future,
        )
        opened = self._portal.run(begin)
        ending = partial(opening.close_agent, self.workspace, opened)
        return Session(opened.core, opened.run, opened.arm, self._portal, ending)

    def fork(self, run: str, *, at: object = None, effects: str = "shadow", **labels: str) -> str:
        """Begin a new run where another stood; its id. One commit, whatever the run's length.

        Args:
            run: The parent.
            at: Where it begins; now, if nothing is given.
            effects: `shadow`: tools with effects return the parent's outcome or their `shadow=`,
                else raise `ShadowedEffect`. `live`: they run.
            **labels: Texts by name, to find the run by.

        Raises:
            NotFound: There is no such run or point.
            BadName: `at` is no point.
        """
        scrub = clean(self._defaults, "fork", labels=list(labels))
        return self._portal.run(
            fork(self.workspace, run, at, chosen(ForkEffects, effects, "effects"), labels, scrub)
        )

    def state(self, run: str, at: object = None) -> RunView:
        """A whole run, its agents and shared state, as it stood at a point; now without one.

        Raises:
            NotFound: There is no such run or point.
            BadName: `at` is no point.
        """
        return self._portal.run(self.workspace.points.view(run, at))

    def runs(self, **wanted: Unpack[RunsWanted]) -> list[tuple[str, RunState]]:
        """Every run with its life, the newest first; those that are all that is asked for: status,
        workflow, agent and role (of one who ever joined), experiment (of trials), since and until
        (when it began, a time with its zone). Raises BadOption, BadValue.
        """
        return self._portal.run(self.workspace.runs(RunFilter.of(wanted)))

    def conversation(self, name: str, *, before: str | None = None) -> Conversation:
        """What a conversation held over its runs: turns, and the context to go on from.

        before: a run of it; only what came earlier, also when that run is resumed.
        """
        return self._portal.run(conversation(self.workspace, name, before))

    def settle(self, run: str, step: str, verdict: str, **fields: Any) -> None:
        """Say what is true of a step in doubt, or that diverged. A session of the agent that is
        still at work is fenced.

        Args:
            run: The run.
            step: The step, as `agent#number`.
            verdict: `happened`, `did_not_happen`, `reuse` or `run_again`.

        Keyword Args:
            result (Any): What it returned, where it happened.
            by (str): Who says so; `person` if nobody is named.
            because (str): Why.

        Raises:
            Refused: The step is not of a kind that can be settled so.
            NotFound: There is no such run or step.
            BadName, BadValue: `by` is no name, or `result` cannot be recorded.
        """
        scrub = clean(self._defaults, "settle", by=fields.get("by"))
        self._portal.run(settle(self.workspace, run, step, verdict, scrub=scrub, **fields))

    def finish(self, run: str, **fields: Any) -> bool:
        """Say that a run has ended as it should, whoever is still at work in it; False where it is
        completed already.

        Args:
            run: Its id.

        Keyword Args:
            by (str): Who says so; `person` if nobody is named.
            because (str): Why.

        Raises:
            NotFound: There is no such run.
            Refused: It ended otherwise.
        """
        scrub = clean(self._defaults, "finish", by=fields.get("by"))
        return self._portal.run(finish(self.workspace, run, scrub=scrub, **fields))

    def cancel(self, run: str, **fields: Any) -> bool:
        """Say that a run is cancelled; False where it is already. Who is at work is not stopped,
        and goes on recording.

        Args:
            run: Its id.

        Keyword Args:
            by (str): Who says so; `person` if nobody is named.
            because (str): Why.

        Raises:
            NotFound: There is no such run.
            Refused: It ended otherwise.
        """
        scrub = clean(self._defaults, "cancel", by=fields.get("by"))
        return self._portal.run(cancel(self.workspace, run, scrub=scrub, **fields))

    def reopen(self, run: str, task: str, **fields: Any) -> bool:
        """Have a task of a run that failed be done after all; False where it is not over.

        Args:
            run: Its id.
            task: The task's id.

        Keyword Args:
            by (str): Who says so; `person` if nobody is named.
            because (str): Why.

        Raises:
            Refused: There is no such task, it is done, or tasks would wait for each other.
        """
        scrub = clean(self._defaults, "reopen", task=task, by=fields.get("by"))
        return self._portal.run(reopen(self.workspace, run, task, scrub=scrub, **fields))

    def approve(self, approval: str, **fields: Any) -> None:
        """Grant what an agent asks.

        Args:
            approval: The question's id, as `approvals()` or `hansard approvals` shows it.

        Keyword Args:
            by (str): Who says so: not the agent that asked, nor who acts for it.
            because (str): Why.
            role (str): The role that `by` acts in; it must have `approve`.

        Raises:
            Refused: It is answered already, its time is up, or `by` may not answer it.
            NotFound: There is no such question.
            RoleRefused: The role may not approve; that is on record.
        """
        scrub = clean(self._defaults, "approve", by=fields.get("by"), role=fields.get("role"))
        self._portal.run(answer(self.workspace, approval, granted=True, scrub=scrub, **fields))

    def deny(self, approval: str, **fields: Any) -> None:
        """Deny what an agent asks.

        Args:
            approval: The question's id, as `approvals()` or `hansard approvals` shows it.

        Keyword Args:
            by (str): Who says so: not the agent that asked, nor who acts for it.
            because (str): Why.
            role (str): The role that `by` acts in; it must have `approve`.

        Raises:
            Refused: It is answered already, its time is up, or `by` may not answer it.
            NotFound: There is no such question.
            RoleRefused: The role may not approve; that is on record.
        """
        scrub = clean(self._defaults, "deny", by=fields.get("by"), role=fields.get("role"))
        self._portal.run(answer(self.workspace, approval, granted=False, scrub=scrub, **fields))

    def approvals(self) -> list[Listed]:
        """What agents asked, in all runs, the oldest first."""
        return self._portal.run(listed(self.workspace))

    def register(self, name: str, plan: ExperimentRegistered, *, by: str = "person") -> bool:
        """Register an experiment; False where it is registered with the same plan already.

        Raises:
            Refused: It has another plan; the message has the difference.
            BadName, BadValue: A name is not one, or the plan contradicts itself.
        """
        scrub = clean(self._defaults, "register", name=name, by=by, **_names_of(plan))
        return self._portal.run(
            experiments.register(self.workspace, name, plan, by=by, scrub=scrub)
        )

    def stop(self, name: str, *, because: str = "", by: str = "person") -> bool:
        """Assign no run to an experiment any more; False where it is stopped already."""
        scrub = clean(self._defaults, "stop", name=name, by=by)
        return self._portal.run(
            experiments.stop(self.workspace, name, because=because, by=by, scrub=scrub)
        )

    def experiment(self, name: str) -> ExperimentState:
        """An experiment as it stands; one that is not registered has no plan."""
        return self._portal.run(experiments.state(self.workspace, name))

    def score(self, run: str, /, *, by: str, because: str = "", **metrics: float) -> bool:
        """Put on record what came of a run; False where the same judge said just that last.

        Args:
            run: The run.
            by: Who judges.
            because: Why.
            **metrics: Finite numbers by name.

        Raises:
            NotFound: There is no such run.
            BadName, BadValue: A name is not one, or a metric no finite number.
        """
        scrub = clean(self._defaults, "score", by=by, metrics=list(metrics))
        return self._portal.run(
            judges.score(self.workspace, run, metrics, by=by, because=because, scrub=scrub)
        )

    def evaluate(
        self,
        runs: Iterable[str],
        evaluator: Callable[[RunView], Any],
        *,
        by: str,
        again: bool = False,
    ) -> Evaluated:
        """Have a function judge runs, one after another.

        Args:
            runs: Their ids.
            evaluator: It is given each run's `RunView`, and returns metrics as a dict. A run of
                which it raises is left unjudged, and the others are judged.
            by: Who judges.
            again: Judge those, too, that `by` has judged; else they are skipped.

        Raises:
            NotFound: There is no such run.
            BadValue: `evaluator` is a coroutine function: use the async client.
        """
        scrub = clean(self._defaults, "evaluate", by=by)
        work = Evaluation(self.workspace, by, again=again, scrub=scrub)
        return judges.evaluate(work, runs, evaluator, self._portal.run)

    def price(
        self,
        model: str,
        *,
        since: datetime,
        currency: str = "USD",
        source: str = "",
        by: str = "person",
        **amounts: float,
    ) -> bool:
        """State what the use of a model costs; False where all of it is stated already.

        Args:
            model: The model.
            since: From when on.
            currency: In which currency.
            source: Where the price stands.
            by: Who says so.
            **amounts: What a million of each usage costs, such as `input_tokens=2.5`.

        Raises:
            BadName, BadValue: A name is not one, an amount no finite number, or none is given.
        """
        names = {"model": model, "by": by, "currency": currency, "usages": list(amounts)}
        source = recordable(source, clean(self._defaults, "price", **names))
        terms = prices.Terms(since=since, currency=currency, source=source)
        return self._portal.run(prices.state(self.workspace, model, amounts, terms, by=by))

    def apply_role(self, name: str, rules: RoleDefined, *, by: str = "person") -> bool:
        """Give a role its rules, in place of those that it had; False where it has just them.

        `hansard roles apply FILE` does it with a file, which is the usual way.

        Raises:
            BadName, BadValue: The rules are broken; the message says where.
        """
        scrub = clean(self._defaults, "apply_role", name=name, by=by, rules=_rules_of(rules))
        return self._portal.run(roles.apply(self.workspace, name, rules, by=by, scrub=scrub))

    def declassify(self, run: str | None = None, **fields: Any) -> Label:
        """Lower the label of an agent or a key of a run, or of a principal; what it was.

        A session of the agent that is still at work is fenced; a principal's sessions end.

        Args:
            run: The run; none for a principal.

        Keyword Args:
            agent, key, principal (str): Whose label it is: one of the three.
            to (str): What it becomes, such as `untrusted`; public and trusted if empty.
            approver (str): Who answers for it.
            because (str): Why it may be lowered.
            role (str): The role that the approver acts in; it must have `approve`.

        Raises:
            Refused: It would not lower the label.
            NotFound: There is no such run, agent or key.
            RoleRefused: The role may not approve.
            BadName, BadValue: A name is not one, or `because` is empty.
        """
        scrub = clean(
            self._defaults, "declassify", approver=fields.get("approver"), role=fields.get("role")
        )
        return self._portal.run(declassify(self.workspace, run, Lowering(**fields), scrub))

    def close(self, error: BaseException | None = None) -> None:
        """End the sessions that are open without a block, as `session.close(error)` does, and let
        go of the broker.
        """
        try:
            for session in kept(self):
                session.close(error)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._portal.run(self.workspace.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        self.close(error)


class AsyncRecord(_Brief):
    """A workspace's record for the async client. Made by `hansard.connect_async`."""

    def __init__(self, workspace: Workspace, defaults: Defaults) -> None:
        self.workspace = workspace
        self._defaults = defaults

    @contextlib.asynccontextmanager
    async def run(
        self,
        workflow: str | None = None,
        *,
        agent: str = AGENT,
        role: str = AGENT,
        **options: Any,
    ) -> AsyncGenerator[AsyncSession, None]:
        """Begin a run, or with `run=ID` join or resume one; see `Record.run`."""
        begun = await self._begin(workflow, agent, role, options)
        async with within_async(begun) as session:
            yield session

    async def open(
        self,
        workflow: str | None = None,
        *,
        agent: str = AGENT,
        role: str = AGENT,
        **options: Any,
    ) -> AsyncSession:
        """Like `run`, without a block, as the cells of a notebook need it; see `Record.open`."""
        session = await self._begin(workflow, agent, role, options)
        return await stay_async(session, self, self.workspace.command)

    async def _begin(
        self, workflow: str | None, agent: str, role: str, options: dict[str, Any]
    ) -> AsyncSession:
        wanted = _options(self._defaults, workflow, options)
        opened = await opening.open_agent_here(self.workspace, agent, role, wanted)
        ending = partial(opening.close_agent, self.workspace, opened)
        return AsyncSession(opened.core, opened.run, opened.arm, ending)

    async def fork(
        self, run: str, *, at: object = None, effects: str = "shadow", **labels: str
    ) -> str:
        """Begin a new run where another stood; its id. See `Record.fork`."""
        scrub = clean(self._defaults, "fork", labels=list(labels))
        return await fork(
            self.workspace, run, at, chosen(ForkEffects, effects, "effects"), labels, scrub
        )

    async def state(self, run: str, at: object = None) -> RunView:
        """A whole run at a point. See `Record.state`."""
        return await self.workspace.points.view(run, at)

    async def runs(self, **wanted: Unpack[RunsWanted]) -> list[tuple[str, RunState]]:
        """Every run with its life, the newest first; those asked for: see `Record.runs`."""
        return await self.workspace.runs(RunFilter.of(wanted))

    async def conversation(self, name: str, *, before: str | None = None) -> Conversation:
        """What a conversation held over its runs: turns, and the context to go on from.

        before: a run of it; only what came earlier, also when that run is resumed.
        """
        return await conversation(self.workspace, name, before)

    async def settle(self, run: str, step: str, verdict: str, **fields: Any) -> None:
        """Say what is true of a step in doubt. See `Record.settle`."""
        scrub = clean(self._defaults, "settle", by=fields.get("by"))
        await settle(self.workspace, run, step, verdict, scrub=scrub, **fields)

    async def finish(self, run: str, **fields: Any) -> bool:
        """Say that a run has ended as it should; see `Record.finish`."""
        scrub = clean(self._defaults, "finish", by=fields.get("by"))
        return await finish(self.workspace, run, scrub=scrub, **fields)

    async def cancel(self, run: str, **fields: Any) -> bool:
        """Say that a run is cancelled; see `Record.cancel`."""
        scrub = clean(self._defaults, "cancel", by=fields.get("by"))
        return await cancel(self.workspace, run, scrub=scrub, **fields)

    async def reopen(self, run: str, task: str, **fields: Any) -> bool:
        """Have a task of a run that failed be done after all; see `Record.reopen`."""
        scrub = clean(self._defaults, "reopen", task=task, by=fields.get("by"))
        return await reopen(self.workspace, run, task, scrub=scrub, **fields)

    async def approve(self, approval: str, **fields: Any) -> None:
        """Grant what an agent asks; see `Record.approve`."""
        scrub = clean(self._defaults, "approve", by=fields.get("by"), role=fields.get("role"))
        await answer(self.workspace, approval, granted=True, scrub=scrub, **fields)

    async def deny(self, approval: str, **fields: Any) -> None:
        """Deny what an agent asks; see `Record.deny`."""
        scrub = clean(self._defaults, "deny", by=fields.get("by"), role=fields.get("role"))
        await answer(self.workspace, approval, granted=False, scrub=scrub, **fields)

    async def approvals(self) -> list[Listed]:
        """What agents asked, in all runs, the oldest first."""
        return await listed(self.workspace)

    async def register(self, name: str, plan: ExperimentRegistered, *, by: str = "person") -> bool:
        """Register an experiment; False where it stands so already. See `Record.register`."""
        scrub = clean(self._defaults, "register", name=name, by=by, **_names_of(plan))
        return await experiments.register(self.workspace, name, plan, by=by, scrub=scrub)

    async def stop(self, name: str, *, because: str = "", by: str = "person") -> bool:
        """Assign no run to an experiment any more; False where it is stopped already."""
        scrub = clean(self._defaults, "stop", name=name, by=by)
        return await experiments.stop(self.workspace, name, because=because, by=by, scrub=scrub)

    async def experiment(self, name: str) -> ExperimentState:
        """An experiment as it stands; one that is not registered has no plan."""
        return await experiments.state(self.workspace, name)

    async def score(self, run: str, /, *, by: str, because: str = "", **metrics: float) -> bool:
        """Put on record what came of a run, as finite numbers; False where the same judge said
        just that last. See `Record.score`.
        """
        scrub = clean(self._defaults, "score", by=by, metrics=list(metrics))
        return await judges.score(self.workspace, run, metrics, by=by, because=because, scrub=scrub)

    async def evaluate(
        self,
        runs: Iterable[str],
        evaluator: Callable[[RunView], Any],
        *,
        by: str,
        again: bool = False,
    ) -> Evaluated:
        """Have a function or coroutine function judge runs; see `Record.evaluate`."""
        scrub = clean(self._defaults, "evaluate", by=by)
        work = Evaluation(self.workspace, by, again=again, scrub=scrub)
        return await judges.evaluate_async(work, runs, evaluator)

    async def price(
        self,
        model: str,
        *,
        since: datetime,
        currency: str = "USD",
        source: str = "",
        by: str = "person",
        **amounts: float,
    ) -> bool:
        """State what a model's use costs; see `Record.price`."""
        names = {"model": model, "by": by, "currency": currency, "usages": list(amounts)}
        source = recordable(source, clean(self._defaults, "price", **names))
        terms = prices.Terms(since=since, currency=currency, source=source)
        return await prices.state(self.workspace, model, amounts, terms, by=by)

    async def apply_role(self, name: str, rules: RoleDefined, *, by: str = "person") -> bool:
        """Give a role its rules; False where it has just them. See `Record.apply_role`."""
        scrub = clean(self._defaults, "apply_role", name=name, by=by, rules=_rules_of(rules))
        return await roles.apply(self.workspace, name, rules, by=by, scrub=scrub)

    async def declassify(self, run: str | None = None, **fields: Any) -> Label:
        """Lower a label; what it was. See `Record.declassify`."""
        scrub = clean(
            self._defaults, "declassify", approver=fields.get("approver"), role=fields.get("role")
        )
        return await declassify(self.workspace, run, Lowering(**fields), scrub)

    async def close(self, error: BaseException | None = None) -> None:
        """End the sessions that are open without a block, and let go of the broker; see
        `Record.close`.
        """
        try:
            for session in kept(self):
                await session.close(error)
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        await self.workspace.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, *__: object) -> None:
        await self.close(error)
