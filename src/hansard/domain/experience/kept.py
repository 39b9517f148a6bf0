"""An experience that is kept in the record by name: its versions, replays and permitted use. It
outlives runs.

A version is the files of an experience, with their digest; none ever changes. A version from a
bundle is untrusted until a person confirms that digest, and one that failed `FAILURES_MAX` times in
a row is quarantined until there is another version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import assert_never
from urllib.parse import urlsplit

import msgspec

from hansard.domain import decider, ids
from hansard.domain.actions import cache as caches
from hansard.domain.decider import ArtifactKind, ArtifactState, By
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event, event
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.experience import Experience
from hansard.domain.fingerprint import canonical

KIND = "experience"
"""The kind of its stream; its id is the experience's name."""

FAILURES_MAX = 3
"""Consecutive failed replays of the newest version before it is quarantined."""

DIGEST_CHARACTERS_MIN = 12
"""Least characters of a digest that a person names: 48 bits."""

_BROWSER = {
    caches.ACT: "browser.act",
    caches.GOTO: "browser.goto",
    caches.EXTRACT: "browser.extract",
}


class ExperienceAbout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts by which a version is found.

    Attributes:
        description: Its purpose.
        task: The wording of the task, each slot as `{{name}}`.
        level: 3 for a procedure, 5 with lessons.
        tools: The tools that its actions call.
        hosts: The hosts of their pages.
        checks: The number of check functions that guard it.
        procedure: SHA-256 of its wording and graph, hexadecimal: equal for duplicates.
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
    """An experience distilled from runs is the next version.

    Attributes:
        version: Its number, from 1 in each experience.
        digest: SHA-256 of its content in RFC 8785 form, hexadecimal.
        content: Its files, text by path; a large one by reference (`$blob`).
        about: The facts by which it is found.
        sources: The runs that it was distilled from.
        failed: The runs that only lessons are taken from, no actions.
        parent: The version before it; 0 for none.
        because: The reason.
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
    """A person confirmed the check functions of a version: with them it is the next one.

    Attributes:
        version: Its number.
        digest: Digest of its content.
        content: Its files.
        about: The facts by which it is found.
        parent: The reviewed version.
        because: The result of the review.
    """

    version: int
    digest: str
    content: msgspec.Raw
    about: ExperienceAbout
    parent: int
    because: str = ""


@event("experience.healed.v1")
class ExperienceHealed(Event, frozen=True, kw_only=True):
    """A node's element was found elsewhere, and its action succeeded there: the next version.

    Attributes:
        version: Its number.
        digest: Digest of its content.
        content: Its files.
        about: The facts by which it is found.
        parent: The version that was replayed.
        node: The node.
        run: The run of the replay.
        because: The part that did not match any more.
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
    """The content of a bundle is the next version; it is untrusted until it is confirmed.

    Attributes:
        version: Its number.
        digest: Digest of its content.
        content: Its files.
        about: The facts by which it is found.
        bundle: SHA-256 of the bundle.
        sources: The runs that it was distilled from, as the bundle states: they may be elsewhere.
        key: The public key that signed it; empty for none.
        license: Its license, as the bundle states.
        parent: The version before it; 0 for none.
        because: The reason.
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
    """A task was done by a version, or begun and not completed.

    Attributes:
        version: The version.
        digest: Digest of its content.
        run: The run.
        agent: The agent.
        step: The step of the whole replay.
        success: True if it reached an end of the procedure, and every check passed.
        checks: The number of check functions that guarded it.
        done: The number of actions done.
        level: 2 or 3: the level of the least specific action.
        failed_check: The check function that stopped it; empty for none.
        error: The reason why it was not completed; empty where it was.
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
        version: The version.
        digest: Digest of its content.
        bundle: SHA-256 of the bundle.
        key: The public key that signed it; empty for none.
        license: Its license.
        because: The reason.
    """

    version: int
    bundle: str
    key: str = ""
    license: str = ""
    because: str = ""


@event("experience.retired.v1")
class ExperienceRetired(Event, frozen=True, kw_only=True):
    """The experience is not to be used any more, until a version is confirmed again.

    Attributes:
        version: The newest version at that time.
        because: The reason.
    """

    version: int
    because: str = ""


ExperienceVersion = (
    ExperienceDistilled | ExperienceConfirmed | ExperienceHealed | ExperienceInstalled
)
ExperienceEvent = ExperienceVersion | ExperienceReplayed | ExperiencePublished | ExperienceRetired


class ExperienceStanding(StrEnum):
    """The permitted use of an experience.

    Attributes:
        GUIDES: No check function guards it: it may guide, not act.
        CONFIRMED: It may act, guarded by its check functions.
        UNTRUSTED: It was installed from a bundle, and has not been confirmed.
        QUARANTINED: Its newest version failed too often in a row.
        RETIRED: A person retired it.
    """

    GUIDES = "guides"
    CONFIRMED = "confirmed"
    UNTRUSTED = "untrusted"
    QUARANTINED = "quarantined"
    RETIRED = "retired"


class ExperienceState(ArtifactState[ExperienceVersion]):
    """An experience at a `version` of its stream.

    Attributes:
        untrusted: Versions installed from a bundle, and heals of them.
        failures: Consecutive failed replays of the newest version.
        retired: The reason for retiring it; None where it is in use.
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
        """Return the permitted use of a version."""
        if self.retired is not None:
            return ExperienceStanding.RETIRED
        if version == self.newest and self.failures >= FAILURES_MAX:
            return ExperienceStanding.QUARANTINED
        if version in self.untrusted:
            return ExperienceStanding.UNTRUSTED
        checks = self.versions[version].about.checks if version in self.versions else 0
        return ExperienceStanding.CONFIRMED if checks else ExperienceStanding.GUIDES

    def _evolve(self, event: Event, by: By) -> None:
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
                super()._evolve(event, by)


initial = ExperienceState
fold = decider.fold


def at_digest(state: ExperienceState, digest: str) -> int:
    """Return the newest version whose digest begins with a text.

    Raises BadValue for one that is too short, Refused where there is none.
    """
    if len(digest) < DIGEST_CHARACTERS_MIN:
        fact = f"{digest!r:.80} has fewer than {DIGEST_CHARACTERS_MIN} characters"
        raise BadValue("digest", fact, "give it whole, or its beginning")
    numbers = [each for each, item in state.versions.items() if item.digest.startswith(digest)]
    if not numbers:
        message = f"no version has the digest {digest!r:.80}"
        raise Refused(message)
    return max(numbers)


def demand_usable(state: ExperienceState, name: str, version: int) -> None:
    """Check that a version may be used. Raises Refused with the remedy."""
    confirm = f"review it (`hansard experience show {name}`), and confirm it"
    if state.retired is not None:
        because = f" ({state.retired:.200})" if state.retired else ""
        message = f"it is retired{because}: take another, or {confirm}"
        raise Refused(message)
    if version in state.untrusted:
        digest = state.versions[version].digest
        message = (
            f"version {version} is from a bundle, and nobody has confirmed it: {confirm} with "
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
    """Return the events of a statement; none where it changes nothing. A version gets its number
    here. A heal of an older version is dropped: a later change takes precedence.

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
    """Return whether a version would change nothing, or is outdated."""
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
    """Return the digest of the distilled version under the newest; empty where there is none.

    Its heals and confirmations add no new knowledge.
    """
    each = state.versions.get(state.newest)
    while isinstance(each, ExperienceHealed | ExperienceConfirmed):
        each = state.versions[each.parent]
    return each.digest if isinstance(each, ExperienceDistilled) else ""


def _demand_same_key(state: ExperienceState, event: ExperienceInstalled) -> None:
    """Check that the name is free or has only bundles of the same key. Raises Refused."""
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
    """Return an experience's files as texts by path, without its version, which the record
    counts.
    """
    plain = msgspec.structs.replace(experience, version=0)
    return {path: raw.decode() for path, raw in experiences.files(plain).items()}


def digest_of(content: Mapping[str, str]) -> str:
    """Return the digest of a version: SHA-256, hexadecimal, of its files in RFC 8785 form."""
    return hashlib.sha256(canonical(dict(content))).hexdigest()


def about(experience: Experience) -> ExperienceAbout:
    """Return the facts by which an experience is found."""
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
        task=experience.wording.template,
        level=experience.level,
        tools=tuple(sorted(tools - {""})),
        hosts=tuple(sorted(hosts - {""})),
        checks=len(experience.checks),
        procedure=hashlib.sha256(canonical(msgspec.to_builtins(same))).hexdigest(),
    )
