"""An experience that is kept in the record by name: its versions, what was done by it, whether it
may be used. It outlives runs.

A version is the files of an experience, and its digest is theirs; none ever changes. What came out
of a bundle is untrusted until a person confirms that digest, and what failed `FAILURES_MAX` times
in a row is quarantined until there is another version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import assert_never
from urllib.parse import urlsplit

import msgspec

from hansard.domain import artifact, ids
from hansard.domain.actions import cache as caches
from hansard.domain.artifact import ArtifactKind, ArtifactState
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event, event
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.experience import Experience
from hansard.domain.fingerprint import canonical

KIND = "experience"
"""The kind of its stream; its id is the experience's name."""

FAILURES_MAX = 3
"""Replays of the newest version that fail in a row until it is quarantined."""

DIGEST_CHARACTERS_MIN = 12
"""Of a digest that a person names: 48 bits."""

_BROWSER = {
    caches.ACT: "browser.act",
    caches.GOTO: "browser.goto",
    caches.EXTRACT: "browser.extract",
}


class ExperienceAbout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a version says of itself: by what it is found.

    Attributes:
        description: What it is for.
        task: How the task is said, each slot as `{{name}}`.
        level: 3 for a procedure, 5 with lessons.
        tools: What its actions call.
        hosts: Of the pages on which they are done.
        checks: How many check functions guard it.
        procedure: SHA-256 of its wording and graph, hexadecimal: equal for duplicates, whatever
            they are called.
    """

    description: str
    task: str
    level: int
    tools: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    checks: int = 0
    procedure: str = ""


@event("experience.distilled.v1")
class ExperienceDistilled(Event, frozen=True, kw_only=True):
    """What runs taught is the next version.

    Attributes:
        version: Its number, from 1 in each experience.
        digest: SHA-256 of its content in RFC 8785 form, hexadecimal.
        content: Its files, text by path; a large one by reference (`$blob`).
        about: By what it is found.
        sources: The runs that it was distilled from.
        failed: Those of which lessons are taken, and no action.
        parent: The version before it; 0 for none.
        because: Why.
    """

    version: int
    digest: str
    content: msgspec.Raw
    about: ExperienceAbout
    sources: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    parent: int = 0
    because: str = ""


@event("experience.confirmed.v1")
class ExperienceConfirmed(Event, frozen=True, kw_only=True):
    """A person confirms the check functions of a version: with them it is the next one.

    Attributes:
        version: Its number.
        digest: Of its content.
        content: Its files.
        about: By what it is found.
        parent: The version that was looked at.
        because: What was found.
    """

    version: int
    digest: str
    content: msgspec.Raw
    about: ExperienceAbout
    parent: int
    because: str = ""


@event("experience.healed.v1")
class ExperienceHealed(Event, frozen=True, kw_only=True):
    """A node's element was found elsewhere, and the action done to it succeeded: that is the next
    version.

    Attributes:
        version: Its number.
        digest: Of its content.
        content: Its files.
        about: By what it is found.
        parent: The version that was replayed.
        node: Which node.
        run: The run of the replay.
        because: What did not match any more.
    """

    version: int
    digest: str
    content: msgspec.Raw
    about: ExperienceAbout
    parent: int
    node: str
    run: str = ""
    because: str = ""


@event("experience.installed.v1")
class ExperienceInstalled(Event, frozen=True, kw_only=True):
    """What came in a bundle is the next version; it is untrusted until it is confirmed.

    Attributes:
        version: Its number.
        digest: Of its content.
        content: Its files.
        about: By what it is found.
        bundle: SHA-256 of the bundle.
        sources: The runs that it was distilled from, as the bundle says: they may be elsewhere.
        key: The public key that signed it; empty for none.
        license: Under which terms, as the bundle says.
        parent: The version before it; 0 for none.
        because: Why.
    """

    version: int
    digest: str
    content: msgspec.Raw
    about: ExperienceAbout
    bundle: str
    sources: tuple[str, ...] = ()
    key: str = ""
    license: str = ""
    parent: int = 0
    because: str = ""


@event("experience.replayed.v1")
class ExperienceReplayed(Event, frozen=True, kw_only=True):
    """A task was done by a version, or begun and not done to its end.

    Attributes:
        version: Which.
        digest: Of its content.
        run: The run in which.
        agent: Who did it.
        step: The step of the whole replay.
        success: Whether it came to an end of the procedure, every check passed.
        checks: How many check functions guarded it.
        done: How many actions were done.
        level: 2 or 3: of the least specific action.
        failed_check: The check function that stopped it; empty for none.
        error: Why it was not done to its end; empty where it was.
    """

    version: int
    run: str
    agent: str
    step: int
    success: bool
    checks: int
    done: int = 0
    level: int = 0
    failed_check: str = ""
    error: str = ""


@event("experience.published.v1")
class ExperiencePublished(Event, frozen=True, kw_only=True):
    """A version was written as a bundle, for others.

    Attributes:
        version: Which.
        digest: Of its content.
        bundle: SHA-256 of the bundle.
        key: The public key that signed it; empty for none.
        license: Under which terms.
        because: Why.
    """

    version: int
    bundle: str
    key: str = ""
    license: str = ""
    because: str = ""


@event("experience.retired.v1")
class ExperienceRetired(Event, frozen=True, kw_only=True):
    """It is not to be used any more, until a version is confirmed again.

    Attributes:
        version: The newest then.
        because: Why.
    """

    version: int
    because: str = ""


ExperienceVersion = (
    ExperienceDistilled | ExperienceConfirmed | ExperienceHealed | ExperienceInstalled
)
ExperienceEvent = ExperienceVersion | ExperienceReplayed | ExperiencePublished | ExperienceRetired


class ExperienceStanding(StrEnum):
    """What an experience may be used for.

    Attributes:
        GUIDES: No check function guards it: it may guide, not act.
        CONFIRMED: It may act, guarded by its check functions.
        UNTRUSTED: It came in a bundle, and nobody has confirmed it.
        QUARANTINED: Its newest version failed so often in a row.
        RETIRED: Somebody said that it is not to be used.
    """

    GUIDES = "guides"
    CONFIRMED = "confirmed"
    UNTRUSTED = "untrusted"
    QUARANTINED = "quarantined"
    RETIRED = "retired"


class ExperienceState(ArtifactState[ExperienceVersion]):
    """An experience at a `version` of its stream.

    Attributes:
        untrusted: Versions that came in a bundle, and heals of them.
        failures: Replays of the newest version that failed, in a row.
        retired: Why it is not to be used; None where it may be.
        replays: Run, agent and step of each.
        published: Bundles, by digest.
    """

    remedy = "distil one"

    untrusted: set[int] = set()
    failures: int = 0
    retired: str | None = None
    replays: set[tuple[str, str, int]] = set()
    published: set[str] = set()

    def standing_of(self, version: int) -> ExperienceStanding:
        """Return what a version may be used for."""
        if self.retired is not None:
            return ExperienceStanding.RETIRED
        if version == self.newest and self.failures >= FAILURES_MAX:
            return ExperienceStanding.QUARANTINED
        if version in self.untrusted:
            return ExperienceStanding.UNTRUSTED
        checks = self.versions[version].about.checks if version in self.versions else 0
        return ExperienceStanding.CONFIRMED if checks else ExperienceStanding.GUIDES

    def evolve(self, event: Event) -> None:
        """Apply one event in place."""
        match event:
            case (
                ExperienceDistilled()
                | ExperienceConfirmed()
                | ExperienceHealed()
                | ExperienceInstalled()
            ):
                self.versions[event.version] = event
                self.failures = 0
                if isinstance(event, ExperienceConfirmed):
                    self.retired = None
                elif isinstance(event, ExperienceInstalled) or (
                    isinstance(event, ExperienceHealed) and event.parent in self.untrusted
                ):
                    self.untrusted.add(event.version)
            case ExperienceReplayed():
                self.replays.add((event.run, event.agent, event.step))
                if event.version == self.newest:
                    self.failures = 0 if event.success else self.failures + 1
            case ExperiencePublished():
                self.published.add(event.bundle)
            case ExperienceRetired():
                self.retired = event.because
            case _:
                super().evolve(event)


initial = ExperienceState
fold = artifact.fold


def at_digest(state: ExperienceState, digest: str) -> int:
    """The newest version with a digest, or its beginning. Raises BadValue for one that is too short
    to tell, Refused where there is none.
    """
    if len(digest) < DIGEST_CHARACTERS_MIN:
        fact = f"{digest!r:.80} has fewer than {DIGEST_CHARACTERS_MIN} characters"
        raise BadValue("digest", fact, "give it whole, or its beginning")
    found = [each for each, item in state.versions.items() if item.digest.startswith(digest)]
    if not found:
        message = f"no version has the digest {digest!r:.80}"
        raise Refused(message)
    return max(found)


def demand_usable(state: ExperienceState, name: str, version: int) -> None:
    """Raise Refused where nothing may be done by a version: the remedy says what a person does."""
    confirm = f"look at it (`hansard experience show {name}`), and confirm it"
    if state.retired is not None:
        because = f" ({state.retired:.200})" if state.retired else ""
        message = f"it is retired{because}: take another, or {confirm}"
        raise Refused(message)
    if version in state.untrusted:
        digest = state.versions[version].digest
        message = (
            f"version {version} came in a bundle, and nobody has confirmed it: {confirm} with "
            f"--digest {digest[:DIGEST_CHARACTERS_MIN]}"
        )
        raise Refused(message)
    if version == state.newest and state.failures >= FAILURES_MAX:
        message = (
            f"version {version} is quarantined: it failed {state.failures} times in a row; distil "
            f"another, or {confirm}"
        )
        raise Refused(message)


def decide(state: ExperienceState, event: ExperienceEvent) -> Sequence[ExperienceEvent]:
    """Return the events that stating one leads to; none where it is so already. A version gets its
    number here. A heal of a version that is not the newest any more is dropped: a later change
    takes precedence.

    Raises Refused.
    """
    match event:
        case ExperienceDistilled() | ExperienceInstalled():
            number = state.next_number()
            if _has(state, event):
                return ()
            return (msgspec.structs.replace(event, version=number, parent=state.newest),)
        case ExperienceConfirmed() | ExperienceHealed():
            number = state.next_number()
            state.demand(event.parent)
            return () if _has(state, event) else (msgspec.structs.replace(event, version=number),)
        case ExperienceReplayed():
            state.demand(event.version)
            return () if (event.run, event.agent, event.step) in state.replays else (event,)
        case ExperiencePublished():
            state.demand(event.version)
            return () if event.bundle in state.published else (event,)
        case ExperienceRetired():
            state.demand(state.newest)
            if state.retired is not None:
                return ()
            return (msgspec.structs.replace(event, version=state.newest),)
        case _:
            assert_never(event)


def _has(state: ExperienceState, event: ExperienceVersion) -> bool:
    """Return whether a version would change nothing, or comes too late."""
    newest = state.versions.get(state.newest)
    same = newest is not None and newest.digest == event.digest
    match event:
        case ExperienceDistilled():
            return same or _taught(state) == event.digest
        case ExperienceConfirmed():
            confirmed = isinstance(newest, ExperienceConfirmed)
            usable = state.standing_of(state.newest) is ExperienceStanding.CONFIRMED
            return same and confirmed and usable
        case ExperienceHealed():
            return same or event.parent != state.newest
        case ExperienceInstalled():
            if any(each.digest == event.digest for each in state.versions.values()):
                return True
            _demand_same_key(state, event)
            return False
        case _:
            assert_never(event)


def _taught(state: ExperienceState) -> str:
    """The digest of the version that the newest rests on: heals of it, and a person's word on it,
    teach nothing new. Empty where there is none.
    """
    each = state.versions.get(state.newest)
    while isinstance(each, ExperienceHealed | ExperienceConfirmed):
        each = state.versions[each.parent]
    return each.digest if isinstance(each, ExperienceDistilled) else ""


def _demand_same_key(state: ExperienceState, event: ExperienceInstalled) -> None:
    """Raise Refused where the name is taken: a bundle follows on bundles of its own key alone."""
    for each in state.versions.values():
        match each:
            case ExperienceDistilled():
                whose = "what was distilled here"
            case ExperienceInstalled() if not event.key or each.key != event.key:
                whose = "a bundle that another key signed" if each.key else "a bundle without a key"
            case _:
                continue
        message = f"the name is taken by {whose}: install it by another (--name)"
        raise Refused(message)


def check_name(name: object) -> str:
    """Return an experience's name, checked. Raises BadName, BadValue."""
    checked = ids.name("experience", name)
    experiences.demand_name(checked)
    return checked


EXPERIENCES = ArtifactKind(
    kind=KIND,
    noun="experience",
    remedy="`hansard experience list` lists them; `hansard experience distil NAME RUN...` makes "
    "one",
    initial=ExperienceState,
    decide=decide,
    check_name=check_name,
)


def content_of(experience: Experience) -> dict[str, str]:
    """An experience's files as texts by path, without what the record says of it: its version."""
    plain = msgspec.structs.replace(experience, version=0)
    return {path: raw.decode() for path, raw in experiences.files(plain).items()}


def digest_of(content: Mapping[str, str]) -> str:
    """The digest of a version: SHA-256, hexadecimal, of its files in RFC 8785 form."""
    return hashlib.sha256(canonical(dict(content))).hexdigest()


def about(experience: Experience) -> ExperienceAbout:
    """By what an experience is found."""
    actions = [each.action for each in experience.procedure.nodes]
    tools = {
        (each.method or "")
        if each.action_type == caches.TOOL
        else _BROWSER.get(each.action_type, "browser.turn")
        for each in actions
    }
    same = [experience.wording, experience.procedure]
    hosts = {urlsplit(each.page.address).hostname or "" for each in actions if each.page}
    return ExperienceAbout(
        description=experience.description,
        task=experience.wording.said,
        level=experience.level,
        tools=tuple(sorted(tools - {""})),
        hosts=tuple(sorted(hosts - {""})),
        checks=len(experience.checks),
        procedure=hashlib.sha256(canonical(msgspec.to_builtins(same))).hexdigest(),
    )
