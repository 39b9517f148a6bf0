"""A role's view of the log, commit by commit: filtered and rewritten before it is projected.

A commit is reduced to the events that the role sees, with their data as `hansard.domain.roles.view`
shows it, and with versions and steps in the role's own numbers. Its id and the writer's clock are
kept; its writer is named if the role sees whose event it is. The epoch, the transaction, the
caller's ids, and a causation that the role has not seen are left out.

An event is judged by the state of the log when it was written: the run's roster and labels,
including those inherited by a fork.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from hansard.bus.commits import revive
from hansard.domain.errors import Corrupt, UnknownEvent
from hansard.domain.events import Actor, Commit, Recorded
from hansard.domain.ids import AgentStream, RunStream, StreamId, run_of
from hansard.domain.integrity.content import Members
from hansard.domain.label import join, parse, raised
from hansard.domain.roles.judge import Facts, aggregate_of, facts, files_of, judge, sees_all
from hansard.domain.roles.model import Mask, RoleDefined, RoleRule
from hansard.domain.roles.view import (
    FieldPlan,
    check_key,
    data_fields,
    renumber,
    shown_by_plan,
    ways,
)
from hansard.domain.run import RunForked, RunStarted

VERDICTS_MAX = 65_536
"""Most verdicts cached: one for each kind, author, key and set of labels."""


class Versions(msgspec.Struct):
    """The visible versions of a stream: their number and ranges."""

    count: int = 0
    ranges: list[tuple[int, int]] = []

    def add(self, version: int) -> int:
        """Add the next visible version; return its number for the role."""
        self.count += 1
        if self.ranges and self.ranges[-1][1] == version - 1:
            self.ranges[-1] = (self.ranges[-1][0], version)
        else:
            self.ranges.append((version, version))
        return self.count

    def cut(self, version: int) -> Versions:
        """Return the visible versions up to a version."""
        ranges = [(first, min(last, version)) for first, last in self.ranges if first <= version]
        return Versions(sum(last - first + 1 for first, last in ranges), ranges)


class Steps(msgspec.Struct):
    """An agent's steps in the role's numbers, and the version at which each became visible."""

    numbers: dict[int, int] = {}
    since: list[int] = []

    def cut(self, version: int) -> Steps:
        """Return the steps visible up to a version."""
        since = [each for each in self.since if each <= version]
        numbers = {step: own for step, own in self.numbers.items() if own <= len(since)}
        return Steps(numbers, since)


class LifeFact(msgspec.Struct, frozen=True):
    """The facts of a run's life by which other events are judged."""

    version: int
    labels: dict[str, str]


class RunSeen(msgspec.Struct):
    """A run: the facts by which its events are judged, and its visible versions and steps, by
    stream name. `label` is the one that it began with.
    """

    label: str = ""
    life: list[LifeFact] = []
    labels: dict[str, str] = {}
    versions: dict[str, Versions] = {}
    steps: dict[str, Steps] = {}

    def add(self, record: LifeFact) -> None:
        """Take in a fact of its life."""
        self.life.append(record)
        self.labels = record.labels


class FeedState(msgspec.Struct):
    """The state from which a feed continues. It names things that the role may not see.

    `members` are kept by the fold that decides which commits count: `hansard.domain.integrity`.
    `label` is the join of the labels of all visible events, as states keep it.
    """

    label: str = ""
    runs: dict[str, RunSeen] = {}
    lasting: dict[str, Versions] = {}
    members: dict[str, Members] = {}


class Ids:
    """The ids of visible events and commits; those of earlier feeds are loaded on first use."""

    def __init__(self, load: Callable[[], Iterable[str]]) -> None:
        self._new: set[str] = set()
        self._old: frozenset[str] | None = None
        self._load = load

    def add(self, event: str, commit: str) -> None:
        """Add a visible event and its commit."""
        self._new.add(event)
        self._new.add(commit)

    def __contains__(self, item: object) -> bool:
        if item in self._new:
            return True
        if self._old is None:
            self._old = frozenset(self._load())
        return item in self._old


class Feed:
    """The view of a role by one set of rules; `whole`: unfiltered."""

    def __init__(self, rules: RoleDefined, key: bytes | None, seen: FeedState, ids: Ids) -> None:
        """Create a feed. Raises BadValue if a mask hashes and there is no key."""
        check_key(rules, key)
        self.whole = sees_all(rules)
        self._rules = rules
        self._key = key
        self.seen = seen
        self._ids = ids
        rules_and_masks: tuple[RoleRule | Mask, ...] = (*rules.sees, *rules.masks)
        self._by_labels = any(each.labels is not None for each in rules_and_masks)
        self._ways: dict[tuple[object, ...], FieldPlan | None] = {}

    def shown(self, stream: StreamId, commit: Commit) -> Commit | None:
        """Return a commit as the role sees it; None if it sees nothing of it. Every commit must be
        passed, in the order of the log.
        """
        name, run = str(stream), run_of(stream)
        found = RunSeen() if run is None else self._run(run)
        if run is not None and type(stream) is RunStream:
            self._live(found, run, commit)
        label = join(commit.label, parse(found.label)).stored if found.label else commit.label
        members = self.seen.members.get(run or "")
        roles = members.roles if members is not None else {}
        value = facts("", stream, commit.actor.agent, roles, found.labels, label=label)
        versions = found.versions if run is not None else self.seen.lasting
        labels = tuple(sorted(value.labels.items())) if self._by_labels else ()
        if self.whole:
            return self._as_it_is(commit, value, labels)
        kept: list[Recorded] = []
        first = 0
        for version, recorded in enumerate(commit.events, commit.version):
            plan = self._field_plan(value, labels, recorded)
            if plan is None or recorded.enc is not None:
                continue
            self._ids.add(recorded.id, commit.id)
            number = versions.setdefault(name, Versions()).add(version)
            first = first or number
            data = self._data(found, stream, name, version, plan, recorded)
            kept.append(
                Recorded(recorded.type, recorded.id, data, occurred_at=recorded.occurred_at)
            )
        if not kept:
            return None
        self.seen.label = raised(self.seen.label, label)
        cause = commit.causation
        if cause is not None and cause not in self._ids:
            cause = None
        return Commit(
            id=commit.id,
            version=first,
            at=commit.at,
            actor=Actor(value.agent),
            causation=cause,
            label=label,
            events=tuple(kept),
        )

    def _as_it_is(self, commit: Commit, claims: Facts, labels: tuple[object, ...]) -> Commit | None:
        """Return a commit without events that only principals named by a rule may see."""
        kept = [
            (version, recorded)
            for version, recorded in enumerate(commit.events, commit.version)
            if self._field_plan(claims, labels, recorded) is not None
        ]
        if kept:
            self.seen.label = raised(self.seen.label, claims.label)
        if len(kept) == len(commit.events) or not kept:
            return commit if kept else None
        events = tuple(recorded for _, recorded in kept)
        return msgspec.structs.replace(commit, version=kept[0][0], events=events)

    def _field_plan(
        self, claims: Facts, labels: tuple[object, ...], recorded: Recorded
    ) -> FieldPlan | None:
        """Return how an event is shown; None if it is not visible. Aggregates and memory are judged
        by their subject.
        """
        tag, data = recorded.type, bytes(recorded.data)
        about, files = aggregate_of(claims.stream, data), files_of(claims.stream, data)
        known_by = (tag, claims.role, claims.agent, claims.key, about, files, claims.label, labels)
        if known_by not in self._ways:
            if len(self._ways) >= VERDICTS_MAX:
                self._ways.clear()
            whole = msgspec.structs.replace(claims, tag=tag, aggregate=about, paths=files)
            verdict = judge(self._rules, whole)
            self._ways[known_by] = ways(verdict) if verdict.visible else None
        return self._ways[known_by]

    def _data(
        self,
        found: RunSeen,
        stream: StreamId,
        name: str,
        version: int,
        plan: FieldPlan,
        recorded: Recorded,
    ) -> msgspec.Raw:
        value = data_fields(bytes(recorded.data))
        if type(stream) is AgentStream:
            steps = found.steps.setdefault(name, Steps())
            value = renumber(value, steps.numbers, self._ids)
            if len(steps.numbers) > len(steps.since):
                steps.since.append(version)
        data = shown_by_plan(plan, value, self._key)
        try:
            str(data, "utf-8")
        except UnicodeDecodeError:
            data = b"{}"
        return msgspec.Raw(data)

    # ------------------------------------------------------------ facts for verdicts

    def _run(self, run: str) -> RunSeen:
        found = self.seen.runs.get(run)
        if found is None:
            found = self.seen.runs[run] = RunSeen()
        return found

    def _live(self, found: RunSeen, run: str, commit: Commit) -> None:
        """Take in the facts of a life; events of a newer version and damaged ones are ignored."""
        for version, recorded in enumerate(commit.events, commit.version):
            try:
                event = revive(recorded)
            except (UnknownEvent, Corrupt):
                continue
            match event:
                case RunStarted():
                    found.label = raised(found.label, commit.label)
                    found.add(LifeFact(version, labels=dict(event.labels)))
                case RunForked():
                    if not found.life:
                        found = self._take_over(run, event)
                    found.label = raised(found.label, commit.label)
                    found.add(LifeFact(version, labels={**found.labels, **event.labels}))
                case _:
                    continue

    def _take_over(self, run: str, event: RunForked) -> RunSeen:
        """Begin a fork with the state of its parent's streams up to the cut."""
        parent, made = self._run(event.parent), self._run(run)
        made.label = parent.label
        for item in parent.life:
            if item.version <= event.at.get("life", 0):
                made.add(item)
        for name, version in event.at.items():
            if name in parent.versions:
                made.versions[name] = parent.versions[name].cut(version)
            if name in parent.steps:
                made.steps[name] = parent.steps[name].cut(version)
        return made
