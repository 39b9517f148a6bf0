"""A prompt: its versions, the aliases that name them, and feedback. It outlives runs.

A version is a text with its model and parameters. It never changes: a change is a new version with
a parent, a merge has two. An alias (`production`) is moved from version to version, and its history
stays. A retired version can only be read.

A variable is written in the text as `{query}`; `{{query}}` gives the literal `{query}`, and every
other brace is literal, so that a text may show JSON as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self, assert_never

import msgspec

from hansard.domain import decider, ids, values
from hansard.domain.choices import nearest, shortened
from hansard.domain.decider import VERSIONS_MAX, ArtifactKind, ArtifactState, By
from hansard.domain.errors import BadName, BadValue, HansardError, Refused
from hansard.domain.events import Event, event
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.label import Label
from hansard.domain.steps import NULL, PromptUse

KIND = "prompt"
"""The kind of its stream; its id is the prompt's name."""

TEXT_BYTES_MAX = 64 * 1024
"""Largest text, in bytes of its stored JSON: it is stored whole in one event."""

PARENTS_MAX = 2
"""Most parents of a version: a merge has two."""

_VARIABLE = re.compile(r"\{\{[A-Za-z_]\w*\}\}|\{(?P<name>[A-Za-z_]\w*)\}", re.ASCII)


@event("prompt.version_added.v1")
class PromptVersionAdded(Event, frozen=True, kw_only=True):
    """A version of the prompt. `digest` is that of text, model and parameters; an empty `text` is
    unknown: an import had it from a source without texts.

    Attributes:
        version: Its number, from 1 in each prompt.
        text: The text, with its variables.
        digest: See `digest_of`.
        model: The model that it is written for; empty for any.
        parameters: The model's other parameters, as a JSON object.
        parents: The versions that it derives from: none, one, or two for a merge.
        feedback_applied: The feedback on its parents that it answers.
        because: The reason for the version.
        metrics: The figures that its source claims for it, by name.
    """

    version: int
    text: str
    digest: str
    model: str = ""
    parameters: msgspec.Raw = NULL
    parents: tuple[int, ...] = ()
    feedback_applied: tuple[str, ...] = ()
    because: str = ""
    metrics: dict[str, float] = {}


@event("prompt.aliased.v1")
class PromptAliased(Event, frozen=True, kw_only=True):
    """An alias names a version from here on. `experiment` is the one whose verdict moved it.

    Attributes:
        alias: The alias.
        version: The version; None where the alias is removed.
        before: The version it named before; None where it is new.
        because: The reason.
    """

    alias: str
    version: int | None
    before: int | None = None
    because: str = ""
    experiment: str = ""


@event("prompt.feedback_given.v1")
class PromptFeedbackGiven(Event, frozen=True, kw_only=True):
    """Feedback on a version.

    Attributes:
        version: The version.
        text: The feedback: a rule's name (`too_verbose`) or a sentence.
        rating: Satisfaction, from 0 to 1; None where there is no rating.
        run: The run that the feedback is about; empty for none.
    """

    version: int
    text: str = ""
    rating: float | None = None
    run: str = ""


@event("prompt.retired.v1")
class PromptRetired(Event, frozen=True, kw_only=True):
    """A version is not to be used any more.

    Attributes:
        version: The version.
        because: The reason.
    """

    version: int
    because: str = ""


PromptEvent = PromptVersionAdded | PromptAliased | PromptFeedbackGiven | PromptRetired


class PromptConflict(HansardError):
    """Another writer moved an alias in the meantime.

    State: nothing was written.
    Remedy: read the alias again, and decide again.

    Attributes:
        alias: The alias.
        expected: The version that the writer had read; None for none.
        found: The version that it names now; None where it was removed.
        target: The version that it was to be moved to.
    """

    def __init__(
        self, alias: str, expected: int | None, found: int | None, target: int | None
    ) -> None:
        super().__init__(
            f"alias {alias!r} names {_named(found)}, not {_named(expected)} as expected; it "
            f"was to name {_named(target)}: another writer moved it; read it again, then retry"
        )
        self.alias = alias
        self.expected = expected
        self.found = found
        self.target = target


class PromptState(ArtifactState[PromptVersionAdded]):
    """A prompt at a `version` of its stream.

    Attributes:
        aliases: The version that each alias names.
        retired: The reason for retiring, by version.
        moves: The moves of all aliases, the oldest first.
        feedback: The feedback on its versions, the oldest first.
    """

    aliases: dict[str, int] = {}
    retired: dict[int, str] = {}
    moves: list[PromptAliased] = []
    feedback: list[PromptFeedbackGiven] = []

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        match event:
            case PromptVersionAdded():
                self.versions[event.version] = event
            case PromptAliased():
                self.moves.append(event)
                if event.version is None:
                    self.aliases.pop(event.alias, None)
                else:
                    self.aliases[event.alias] = event.version
            case PromptFeedbackGiven():
                self.feedback.append(event)
            case PromptRetired():
                self.retired[event.version] = event.because
            case _:
                super()._evolve(event, by)


initial = PromptState
fold = decider.fold


def decide(state: PromptState, event: PromptEvent) -> Sequence[PromptEvent]:
    """Return the events of a statement; none where it changes nothing. A version gets its number
    and its digest here, and a parent where it has none: the newest version.

    Raises Refused, PromptConflict, BadValue, BadName.
    """
    match event:
        case PromptVersionAdded():
            return _added(state, event)
        case PromptAliased():
            return _aliased(state, event)
        case PromptFeedbackGiven():
            state.demand(event.version)
            values.demand_text(event.text, "feedback")
            rating = event.rating
            if rating is not None and not 0 <= rating <= 1:
                raise BadValue(
                    "rating",
                    f"{rating} is out of range",
                    "give 0 (not at all) to 1 (fully), or none",
                )
            if not event.text and rating is None:
                raise BadValue("feedback", "neither a text nor a rating", "give one of them")
            return (event,)
        case PromptRetired():
            state.demand(event.version)
            named = sorted(a for a, version in state.aliases.items() if version == event.version)
            if named:
                message = (
                    f"alias {named[0]!r} names version {event.version}: move the alias to another "
                    "version, or remove it, before you retire this one"
                )
                raise Refused(message)
            return () if event.version in state.retired else (event,)
        case _:
            assert_never(event)


def equal_version(state: PromptState, event: PromptVersionAdded) -> int | None:
    """Return an existing version that adding one would repeat; None where it is new.

    Without parents, that is any equal version; with parents, an equal parent, or an equal version
    of the same parents.
    """
    parents = event.parents
    digest = digest_of(event.text, event.model, event.parameters)
    for number, each in state.versions.items():
        if each.digest == digest and (not parents or number in parents or each.parents == parents):
            return number
    return None


def version_of(state: PromptState, event: PromptEvent) -> int:
    """Return the version that an event is about, in the state after it; 0 for a removed alias."""
    if isinstance(event, PromptVersionAdded):
        return equal_version(state, event) or state.newest
    return event.version or 0


def _added(state: PromptState, event: PromptVersionAdded) -> Sequence[PromptEvent]:
    _check_version(event)
    for parent in event.parents:
        state.demand(parent)
    if equal_version(state, event) is not None:
        return ()
    return (
        msgspec.structs.replace(
            event,
            version=state.next_number(),
            digest=digest_of(event.text, event.model, event.parameters),
            parents=event.parents or ((state.newest,) if state.versions else ()),
        ),
    )


def _aliased(state: PromptState, event: PromptAliased) -> Sequence[PromptEvent]:
    check_alias(event.alias)
    values.demand_text(event.because, "reason")
    current = state.aliases.get(event.alias)
    if event.version is not None:
        if event.alias.split() != [event.alias]:
            raise BadName("alias", event.alias[:80], "leave out spaces")
        demand_usable(state, event.version)
    if current == event.version:
        return ()
    if current != event.before:
        raise PromptConflict(event.alias, event.before, current, event.version)
    return (event,)


def _check_version(event: PromptVersionAdded) -> None:
    for kind, text in (("text", event.text), ("model", event.model), ("reason", event.because)):
        values.demand_text(text, kind)
    size = len(msgspec.json.encode(event.text))
    if size > TEXT_BYTES_MAX:
        remedy = "pass long parts as a variable, or split it into several prompts"
        raise BadValue("text", f"{size:,} bytes, of at most {TEXT_BYTES_MAX:,}", remedy)
    parameters = msgspec.json.decode(bytes(event.parameters))
    if not isinstance(parameters, dict | None):
        raise BadValue("parameters", f"{parameters!r:.80}", "give them by name")
    if len(event.parameters) > TEXT_BYTES_MAX:
        fact = f"{len(event.parameters):,} bytes, of at most {TEXT_BYTES_MAX:,}"
        raise BadValue("parameters", fact, "give fewer")
    parents = event.parents
    if len(parents) > PARENTS_MAX or len(set(parents)) < len(parents):
        raise BadValue("parents", f"{parents!r:.80}", f"give up to {PARENTS_MAX}, each once")
    for name, value in event.metrics.items():
        ids.name("metric", name)
        if not math.isfinite(value):
            raise BadValue(f"metric {name!r:.80}", f"{value}", "give a finite number")


# ---------------------------------------------------------------- names


def check_name(name: object) -> str:
    """Return a prompt's name, checked: it may not hold `@`, which separates a version. Raises
    BadName.
    """
    checked = ids.name(KIND, name)
    if "@" in checked or checked != checked.strip():
        raise BadName(KIND, checked[:80], "leave out '@' and spaces at its ends")
    return checked


PROMPTS = ArtifactKind(
    kind=KIND,
    noun="prompt",
    remedy="see 'hansard prompt list'",
    initial=PromptState,
    decide=decide,
    check_name=check_name,
    version_of=version_of,
)


def check_alias(alias: object) -> str:
    """Return an alias, checked: a number is not allowed, since it is a version. Raises BadName."""
    checked = ids.name("alias", alias)
    if "@" in checked or checked != checked.strip() or checked.isdecimal():
        raise BadName("alias", checked[:80], "leave out '@' and spaces, and give no number alone")
    return checked


def split(reference: object) -> tuple[str, str]:
    """Split `rag@production` or `rag@3` into the prompt's name and the version or alias, empty for
    the newest. Raises BadName.
    """
    text = ids.name("prompt reference", reference)
    name, at, which = text.partition("@")
    if at and not which:
        raise BadName("prompt reference", text[:80], "give a version or an alias behind '@'")
    check_name(name)
    if which and not _is_number(which):
        check_alias(which)
    return name, which


def looks_up(text: str) -> bool:
    """Return whether a text is a reference with a version or an alias, and no prompt itself."""
    try:
        name, which = split(text)
    except BadName:
        return False
    return bool(which) and not re.search(r"\s", name + which)


def demand_named(state: PromptState, name: str, which: str) -> None:
    """Raise BadValue if a reference names neither a version nor an alias."""
    if not which and state.versions:
        raise BadValue("version", "none is named", f"say which: {name}@{max(state.versions)}")


def resolve(state: PromptState, which: str) -> int:
    """Return the number of the version that a version or an alias names; for an empty text, of the
    newest that is not retired. Raises Refused.
    """
    if not which:
        usable = [number for number in state.versions if number not in state.retired]
        if not usable:
            message = "it has no version" + (
                " that is not retired: name one, to read it" if state.versions else ": add one"
            )
            raise Refused(message)
        return max(usable)
    if _is_number(which):
        state.demand(int(which))
        return int(which)
    if which not in state.aliases:
        known = shortened(sorted(state.aliases)) if state.aliases else "none"
        like = nearest(which, state.aliases)
        message = f"it has no alias {which!r}: {like}its aliases are {known}"
        raise Refused(message)
    return state.aliases[which]


def _is_number(which: str) -> bool:
    return which.isascii() and which.isdecimal() and len(which) <= len(str(VERSIONS_MAX)) + 1


def demand_usable(state: PromptState, version: int) -> PromptVersionAdded:
    """Return a version that is not retired. Raises Refused."""
    usable = state.demand(version)
    if version in state.retired:
        why = f" ({state.retired[version]})" if state.retired[version] else ""
        message = f"version {version} is retired{why}: take another one"
        raise Refused(message)
    return usable


def _named(version: int | None) -> str:
    return f"version {version}" if version is not None else "no version"


# ---------------------------------------------------------------- texts


def digest_of(text: str, model: str, parameters: msgspec.Raw) -> str:
    """Return the digest of a version: of its text, its model and its parameters in RFC 8785
    form.
    """
    canonical_parameters = canonical(msgspec.json.decode(bytes(parameters)) or {})
    return digest(b"prompt", text.encode(), model.encode(), canonical_parameters)


def variables(text: str) -> tuple[str, ...]:
    """Return the variables of a text, in order of first occurrence."""
    names = (each["name"] for each in _VARIABLE.finditer(text))
    return tuple(dict.fromkeys(name for name in names if name))


def filled_in(text: str, values: Mapping[str, Any]) -> str:
    """Return a text with the values of its variables inserted.

    Values are texts and numbers. Raises BadValue for one that is missing, unknown, or of another
    type.
    """
    target = variables(text)
    has = f"its variables are {shortened(target)}" if target else "it has no variables"
    for name in target:
        if name not in values:
            raise BadValue(f"variable {name!r}", "it is not given", f"give {name}=: {has}")
    for name, value in values.items():
        if name not in target:
            remedy = f"{nearest(name, target)}leave it out: {has}"
            raise BadValue(f"variable {name!r:.80}", "the prompt does not have it", remedy)
        if type(value) is bool or not isinstance(value, str | int | float):
            fact = f"a {type(value).__name__}, {value!r:.80}"
            raise BadValue(f"variable {name!r}", fact, "give a text or a number")

    def put_in(match: re.Match[str]) -> str:
        name = match["name"]
        return str(values[name]) if name else match[0][1:-1]

    return _VARIABLE.sub(put_in, text)


USES_MAX = 64
"""Most versions of prompts that are recorded for one call."""


class PromptText(values.RecordedText):
    """A version's text with its variables filled in.

    A call that has it among its arguments, itself or in a list, a mapping or a record, has the
    version on record; a text derived from it does not.

    Attributes:
        use: The version.
        label: The label of its prompt; None for public and trusted.
        variables: The values of its variables.
    """

    __slots__ = ("label", "use", "variables")

    use: PromptUse | None
    label: Label | None
    variables: Mapping[str, Any]

    def __new__(
        cls,
        text: str,
        use: PromptUse | None = None,
        label: Label | None = None,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> Self:
        """Create a text that knows its prompt version."""
        made = super().__new__(cls, text)
        made.use, made.label, made.variables = use, label, variables
        return made

    def fill(self, /, **variables: Any) -> PromptText:
        """Return the text with its variables filled in.

        Raises BadValue for a variable that is missing, unknown, or neither a text nor a number.
        """
        return PromptText(filled_in(self, variables), self.use, self.label, variables)


_TEXTLESS = frozenset({str, bytes, int, float, bool, type(None)})
"""Types of most arguments: checked first, for every call."""


def texts_in(value: object) -> list[PromptText]:
    """Return the prompts' texts among a call's arguments, which are recordable."""
    if type(value) is dict and _TEXTLESS.issuperset(map(type, value.values())):
        return []
    texts: list[PromptText] = []
    waiting: list[Any] = [value]
    while waiting:
        each = waiting.pop()
        if type(each) in _TEXTLESS:
            continue
        match each:
            case PromptText():
                texts.append(each)
            case str() | bytes() | int() | float():
                continue
            case dict():
                waiting.extend(reversed(each.values()))
            case list() | tuple():
                waiting.extend(reversed(each))
            case _:
                waiting.extend((values.fields_of_record(each) or {}).values())
    return texts


def uses(texts: Sequence[PromptText], besides: Sequence[PromptUse] = ()) -> tuple[PromptUse, ...]:
    """Return the versions of some texts, each once."""
    if not (texts or besides):
        return ()
    versions = dict.fromkeys(besides)
    versions.update((each.use, None) for each in texts if each.use is not None)
    return tuple(versions)[:USES_MAX]


def checked(items: Sequence[PromptUse]) -> tuple[PromptUse, ...]:
    """Return the prompt versions that a client reports for a call, checked. Raises BadName,
    BadValue.
    """
    if len(items) > USES_MAX:
        raise BadValue("prompts", f"{len(items):,} of a call", f"give at most {USES_MAX}")
    for each in items:
        check_name(each.prompt)
        if each.alias:
            check_alias(each.alias)
        if each.version < 1:
            raise BadValue("prompts", f"version {each.version}", "versions begin at 1")
    return tuple(items)
