"""Facts that an agent states once: checkpoints, messages, decisions, resources, hand-offs.

A fact counts as recorded if one with the same fingerprint is: the same content at the same place in
its scope's chain. Stating it again on resume records nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import msgspec

from hansard.agents.annotations.inputs import Inputs
from hansard.agents.errors import Miss
from hansard.agents.flow import Flow
from hansard.agents.policy.permits import states
from hansard.agents.steps import payloads
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.gating import demand_hand_off
from hansard.agents.steps.scope import Scope, around, back, current, enter, unrecorded_joins
from hansard.bus.commits import record
from hansard.domain import ids, values
from hansard.domain.agent import (
    CheckpointSaved,
    DecisionMade,
    Fact,
    HandedOff,
    MessageAdded,
    Note,
    ResourceAccessed,
    StatedFact,
    alternatives,
    window_of,
)
from hansard.domain.conversation import ContextCompacted
from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import UNORDERED, canonical, digest, fact_base, fact_fingerprint
from hansard.domain.label import parse
from hansard.domain.payload import references
from hansard.domain.redaction import check_names

PROGRESS = "progress:"
"""Prefix of the names of checkpoints that `resumable` records."""


class Annotations:
    """States a session's facts."""

    def __init__(self, engine: StepEngine) -> None:
        self.engine = engine
        self._inputs = Inputs(engine)
        self._stated: set[str] = set()
        """Fingerprints of the facts that this session has stated, or skipped as done."""

    def _plain(self, value: Any, where: str) -> Any:
        return values.plain(value, where, self.engine.settings.scrub)

    def _fields(self, what: str, **given: Any) -> list[Any]:
        """Return a statement's fields as plain values. Raises BadValue, which names the field."""
        return [self._plain(value, f"{what}({name})") for name, value in given.items()]

    def _mark(self, scope: Scope, kind: str, content: Any) -> tuple[str, bool]:
        """Return a fact's fingerprint, and whether it is recorded."""
        ledger = self.engine.ledger
        with ledger.lock:
            base = fact_base(kind, scope.path, canonical(content))
            number = scope.occurrence(base)
            marks = [fact_fingerprint(base, number, head) for head in (scope.head, UNORDERED)]
            known = next((mark for mark in marks if mark in ledger.state.known), None)
            mark = known or marks[1 if scope.overlaps else 0]
            self._stated.add(mark)
            return mark, known is not None

    def _is_known(self, scope: Scope, kind: str, content: Any) -> bool:
        """Return whether a fact is recorded, without stating it."""
        ledger = self.engine.ledger
        with ledger.lock:
            base = fact_base(kind, scope.path, canonical(content))
            number = scope.occurrences.get(base, 0)
            marks = (fact_fingerprint(base, number, head) for head in (scope.head, UNORDERED))
            return any(mark in ledger.state.known for mark in marks)

    def stated(self) -> list[StatedFact]:
        """Return this session's facts, in order; on resume the record may hold more."""
        with self.engine.ledger.lock:
            facts = self.engine.ledger.state.facts
            return [noted for noted in facts if noted.fact.fingerprint in self._stated]

    def plain(self, value: Any, where: str) -> Any:
        """Return a value as it is recorded. Raises BadValue."""
        return self._plain(value, where)

    def compacted(self, fact: ContextCompacted, blobs: list[bytes]) -> Flow[None]:
        """State a summary of messages, at its step's place in the chain."""
        scope = self.engine.scope("compact")
        mark, known = self._mark(scope, "compaction", [fact.role, fact.digest])
        if not known:
            after = scope.after[-1] if scope.after else None
            made = msgspec.structs.replace(fact, fingerprint=mark, step=after)
            yield from self._note(scope, made, blobs)

    def skip_to(self, fact: Fact) -> None:
        """Count all recorded facts up to this one as stated; their statements are skipped."""
        with self.engine.ledger.lock:
            for noted in self.engine.ledger.state.facts:
                self._stated.add(noted.fact.fingerprint)
                if noted.fact is fact:
                    return

    def _note(self, scope: Scope, fact: Fact, blobs: list[bytes]) -> Flow[None]:
        with self.engine.ledger.noting(scope):
            size = len(bytes(record(fact, "").data))
            if size > payloads.EVENT_BYTES_MAX:
                limit = f"{payloads.EVENT_BYTES_MAX:,}"
                raise BadValue(
                    fact.tag, f"{size:,} bytes of texts", f"keep them under {limit} in total"
                )
            yield from self.engine.outcomes.demand(states(fact.tag))
            if self.engine.settings.mode.reads_only:
                mode = self.engine.settings.mode.value
                what = f"{type(fact).tag} {fact.fingerprint}"
                raise Miss(mode, what, "no such fact at this place")
            yield from self.engine.outcomes.put(blobs)
            yield from self.engine.outcomes.record(Note(fact))

    def checkpoint(self, name: str, data: dict[str, Any]) -> Flow[None]:
        """State a checkpoint."""
        ids.name("checkpoint", name)
        name = self._checkpoint_name(name)
        plain = self._plain(data, f"checkpoint {name!r}")
        scope = self.engine.scope("checkpoint")
        mark, known = self._mark(scope, "checkpoint", [name, plain])
        if not known:
            packed = payloads.pack(plain, f"checkpoint {name!r}")
            joins = unrecorded_joins(scope.junction)
            fact = CheckpointSaved(
                name=name,
                data=packed.raw,
                fingerprint=mark,
                scope=scope.path,
                head=scope.head,
                after=scope.after,
                joins=tuple(join for _, join in joins),
            )
            yield from self._note(scope, fact, packed.blobs)
            for junction, _ in joins:
                junction.mark_recorded()

    def _checkpoint_name(self, name: str) -> str:
        return _text(self._plain(name, "checkpoint name"), "checkpoint name")

    def checkpoint_data(self, name: str) -> Flow[dict[str, Any] | None]:
        """Return the data of the newest checkpoint of a name, or None."""
        self.engine.ledger.demand_open()
        saved = self.engine.ledger.state.checkpoints.get(self._checkpoint_name(name))
        if saved is None:
            return None
        plain = yield from self.engine.outcomes.fetch(references.unpack(saved.data))
        data: dict[str, Any] = values.revive(plain)
        return data

    def latest_checkpoint(self) -> Flow[Checkpoint | None]:
        """Return the newest checkpoint of any name, or None."""
        self.engine.ledger.demand_open()
        with self.engine.ledger.lock:
            facts = [noted.fact for noted in self.engine.ledger.state.facts]
        named = (fact for fact in reversed(facts) if isinstance(fact, CheckpointSaved))
        saved = next((fact for fact in named if not fact.name.startswith(PROGRESS)), None)
        if saved is None:
            return None
        plain = yield from self.engine.outcomes.fetch(references.unpack(saved.data))
        return Checkpoint(saved.name, values.revive(plain))

    def decide(
        self,
        question: str,
        selected: str,
        *,
        alternatives: Iterable[object] = (),
        inputs: Iterable[Any] = (),
        threshold: float | None = None,
        confidence: float | None = None,
        reason: str = "",
    ) -> Flow[None]:
        """State a decision.

        Args:
            question: The question that was decided.
            selected: The option that was selected.
            alternatives: Dicts or texts: id, score, reason, rejected_because.
            inputs: As returned by `hansard.agents.annotations.inputs.stated`.
            threshold: A finite number.
            confidence: A finite number.
            reason: The reason.
        """
        sources = list(inputs)
        fields = {
            "question": question,
            "selected": selected,
            "alternatives": [msgspec.to_builtins(a) for a in _alternatives(alternatives)],
            "inputs": [each for each in sources if type(each) is str],
            "threshold": threshold,
            "confidence": confidence,
            "because": reason,
        }
        plain = _plain_text(self._plain(fields, "decision"))
        scope = self.engine.scope("decide")
        # Recorded unchanged, also for decisions of versions that accepted any text.
        is_old = len(plain["inputs"]) == len(sources) and self._is_known(scope, "decision", plain)
        if sources and not is_old:
            plain["inputs"] = yield from self._inputs.resolve(sources, scope)
            is_stated = self._is_known(scope, "decision", plain)
            if not is_stated and not self.engine.settings.mode.reads_only:
                yield from self._inputs.demand(plain["inputs"])
        mark, known = self._mark(scope, "decision", plain)
        if known:
            return
        where = {"fingerprint": mark, "scope": scope.path, "after": scope.after}
        try:
            fact = msgspec.convert({**plain, **where}, DecisionMade)
        except msgspec.ValidationError as error:
            raise BadValue("decision", str(error), "see the fields of Facts.decide") from error
        yield from self._note(scope, fact, [])

    def message(
        self, role: str, content: Any, tokens: int | None, fields: dict[str, Any]
    ) -> Flow[None]:
        """State a message; `label` among its fields is the message's own label. Raises BadValue."""
        label = parse(fields.pop("label", ""), "message label")
        if tokens is not None and (type(tokens) is not int or abs(tokens) > values.SAFE_INT):
            raise BadValue("message tokens", f"{tokens!r:.80}", "give a whole number or None")
        plain = self._fields("message", role=role, content=content, tokens=tokens, fields=fields)
        scope = self.engine.scope("message")
        mark, known = self._mark(scope, "message", plain)
        if known:
            return
        self.engine.ledger.shown(label.stored)
        packed = payloads.pack(plain[1], "message content")
        extra = payloads.pack(plain[3], "message fields")
        fact = MessageAdded(
            role=_text(plain[0], "message role"),
            content=packed.raw,
            fingerprint=mark,
            tokens=tokens,
            fields=extra.raw if fields else values.dump(None),
            step=scope.after[-1] if scope.after else None,
        )
        yield from self._note(scope, fact, packed.blobs + (extra.blobs if fields else []))

    def resource(self, uri: str, operation: str) -> Flow[None]:
        """State the use of a resource."""
        plain = self._fields("resource", uri=uri, operation=operation)
        scope = self._inside("resource")
        mark, known = self._mark(scope, "resource", plain)
        if not known:
            fact = ResourceAccessed(
                uri=_text(plain[0], "resource uri"),
                operation=_text(plain[1], "resource operation"),
                fingerprint=mark,
                step=scope.step,
            )
            yield from self._note(scope, fact, [])

    def _inside(self, what: str) -> Scope:
        """Return the current scope, also inside a tool's body: facts about a call may be stated in
        it.
        """
        self.engine.ledger.demand_open()
        return current(self.engine.ledger) or self.engine.scope(what)

    def hand_off(self, to: str, reason: str, payload: dict[str, Any]) -> Flow[None]:
        """State a hand-off."""
        ids.name("agent or role", to)
        check_names("hand_off", {"to": to}, self.engine.settings.scrub)
        plain = self._fields("hand_off", to=to, reason=reason, payload=payload)
        scope = self.engine.scope("hand_off")
        mark, known = self._mark(scope, "hand_off", plain)
        if not known:
            with self.engine.ledger.noting(scope):
                yield from demand_hand_off(self.engine, to)
            packed = payloads.pack(plain[2], "hand-off payload")
            fact = HandedOff(
                to=_text(plain[0], "hand-off to"),
                fingerprint=mark,
                payload=packed.raw,
                because=_text(plain[1], "hand-off reason"),
                after=scope.after,
            )
            yield from self._note(scope, fact, packed.blobs)

    def context(self) -> Flow[list[dict[str, Any]]]:
        """Return this run's part of the context window, as stated by this session, in the
        provider's form.

        Compacted messages are replaced by their summary. On resume the record holds later messages,
        too; they appear once they are stated again.
        """
        self.engine.ledger.demand_open()
        window = [noted.fact for noted in window_of(self.stated())]
        return (yield from messages_of(window, self.engine))


def _plain_text(plain: Any) -> Any:
    """Return texts without their plain-value wrappers: a secret by its name, lone surrogates
    escaped.
    """
    match plain:
        case {"$secret": str(name)} if len(plain) == 1:
            return f"<secret:{name}>"
        case {"$text": str(escaped)} if len(plain) == 1:
            return escaped
        case dict():
            return {key: _plain_text(item) for key, item in plain.items()}
        case list():
            return [_plain_text(item) for item in plain]
        case _:
            return plain


def _text(plain: Any, where: str) -> str:
    text = _plain_text(plain)
    if type(text) is not str:
        raise BadValue(where, f"{plain!r:.80}", "give a text")
    return text


def _alternatives(options: Iterable[object]) -> Any:
    return alternatives(options)


def messages_of(messages: Iterable[Fact], engine: StepEngine) -> Flow[list[dict[str, Any]]]:
    """Return recorded messages in the provider's form: role, content and other fields; a summary as
    a message.
    """
    out = []
    for message in messages:
        if isinstance(message, ContextCompacted):
            summary = yield from engine.outcomes.fetch(references.unpack(message.summary))
            out.append({"role": message.role, "content": values.revive(summary)})
        if not isinstance(message, MessageAdded):
            continue
        content = yield from engine.outcomes.fetch(references.unpack(message.content))
        fields = yield from engine.outcomes.fetch(references.unpack(message.fields))
        out.append(
            {"role": message.role, "content": values.revive(content), **values.revive(fields or {})}
        )
    return out


class Checkpoint(msgspec.Struct, frozen=True):
    """A named stage, as recorded.

    Attributes:
        name: The stage's name.
        data: The data recorded with it.
    """

    name: str
    data: dict[str, Any]


class Progress:
    """Progress of a loop, recorded as its own checkpoints.

    Each checkpoint has the number of items done, a digest of them, and the results since the
    previous checkpoint. Each item is a scope; skipping items restores the surrounding chain as
    recorded, so that the calls after the skipped items find their records.
    """

    def __init__(self, facts: Annotations, name: str, every: int) -> None:
        if every < 1:
            raise BadValue("resumable", f"every={every}", "give 1 or more")
        check_names("resumable", {"name": name}, facts.engine.settings.scrub)
        self._facts = facts
        self._name = PROGRESS + name
        self._every = every
        self._scope = facts.engine.scope("resumable")
        self._child = self._scope
        self._around = around()
        self._done = 0
        self._skip = 0
        self._running = ""
        self._skipped = ""

    def begin(self) -> Flow[list[Any]]:
        """Find the recorded progress; return its results, in order."""
        engine = self._facts.engine
        saved = engine.ledger.state.checkpoints.get(self._name)
        if saved is None or saved.scope != self._scope.path:
            return []
        if engine.settings.mode.reads_only:  # a replay runs every item
            return []
        results: list[Any] = []
        data: dict[str, Any] = {}
        for each in self._saves():
            data = yield from engine.outcomes.fetch(references.unpack(each.data))
            results += values.revive(data.get("results", []))
        self._skip, self._skipped = data["done"], data["digest"]
        self._scope.go_on(saved.head, saved.after)
        engine.ledger.skip(self._scope, self._name, saved.after)
        self._facts.skip_to(saved)
        return results

    def _saves(self) -> list[CheckpointSaved]:
        """Return the recorded checkpoints of this loop, oldest first."""
        ledger = self._facts.engine.ledger
        with ledger.lock:
            facts = [noted.fact for noted in ledger.state.facts]
        saves = [fact for fact in facts if isinstance(fact, CheckpointSaved)]
        path = self._scope.path
        return [each for each in saves if each.name == self._name and each.scope == path]

    def skips(self, item: object) -> Flow[bool]:
        """Return whether an item was done before; if not, enter the item's own scope.

        Raises BadValue if the items differ from those done before.
        """
        yield from ()  # makes this a generator
        self._facts.engine.ledger.demand_open()
        content = canonical(values.plain(item, "item", self._facts.engine.settings.scrub))
        self._running = digest(self._running.encode(), content)
        self._done += 1
        if self._done == self._skip and self._running != self._skipped:
            self._other_items()
        if self._done <= self._skip:
            return True
        self._child = self._scope.item(f"{self._name}.{self._done}")
        enter(self._child)
        return False

    def _other_items(self) -> NoReturn:
        raise BadValue(
            self._name,
            f"the first {self._skip} items differ from those done before",
            "give the same items in the same order, or another name=",
        )

    def done(self, results: Sequence[Any] = ()) -> Flow[None]:
        """Mark an item as done. `results` are those since the last save, if this item saves."""
        self._scope.join([self._child])
        back(self._around)
        if self._done % self._every == 0:
            yield from self._save(results)

    def leave(self) -> Flow[None]:
        """Leave the loop, for any reason."""
        back(self._around)
        yield from ()  # makes this a generator

    def end(self, results: Sequence[Any] = ()) -> Flow[None]:
        """Complete the loop. Raises BadValue if there were fewer items than before."""
        if self._done < self._skip:
            self._other_items()
        if self._done % self._every and self._done > self._skip:
            yield from self._save(results)

    def _save(self, results: Sequence[Any]) -> Flow[None]:
        data: dict[str, Any] = {"done": self._done, "digest": self._running}
        if results:
            data["results"] = list(results)
        yield from self._facts.checkpoint(self._name, data)
