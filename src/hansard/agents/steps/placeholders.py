"""Placeholders: a tool receives them for values that it need not know, and its result gets the
values back. This happens only in the process that makes the call; the record has the values.
"""

from __future__ import annotations

import copy
import inspect
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from hansard.agents.errors import SecretUnavailable
from hansard.agents.flow import END, close, following
from hansard.domain import placeholders as texts
from hansard.domain.errors import BadValue
from hansard.domain.values import Secret, fields_of_record, leaves, plain

# Copies of values with some parts replaced; unchanged parts are the same objects.

Path = tuple[Any, ...]
"""Keys, indexes and field names from the outside in; for a dict key itself, None at the end."""

Leaf = Callable[[Any, Path], Any]
"""Maps a value and its path to a replacement; if it returns the value, its parts are mapped."""


def rebuilt(value: Any, leaf: Leaf, path: Path = ()) -> Any:
    """Return a value with `leaf` applied to each part, including text keys of dicts."""
    record = leaf(value, path)
    if record is not value:
        return record
    if type(value) is dict:
        made = {
            leaf(key, (*path, key, None)) if isinstance(key, str) else key: rebuilt(
                item, leaf, (*path, key)
            )
            for key, item in value.items()
        }
        same = all(
            new is old and made[new] is value[old] for new, old in zip(made, value, strict=False)
        )
        return value if same and len(made) == len(value) else made
    if type(value) in (list, tuple, set, frozenset):
        items = [rebuilt(item, leaf, (*path, place)) for place, item in enumerate(value)]
        changed = any(item is not before for item, before in zip(items, value, strict=True))
        return type(value)(items) if changed else value
    return _record(value, leaf, path)


def _record(value: Any, leaf: Leaf, path: Path) -> Any:
    """Return a record with its fields mapped: a copy if one changed."""
    if isinstance(value, msgspec.Struct):
        names: Iterable[str] = value.__struct_fields__
        put = msgspec.structs.force_setattr
    else:
        names, put = fields_of_record(value) or (), object.__setattr__
    made = value
    for name in names:
        before = getattr(value, name)
        after = rebuilt(before, leaf, (*path, name))
        if after is not before:
            made = copy.copy(value) if made is value else made
            put(made, name, after)
    return made


# Secrets for live calls.

SecretProvider = Mapping[str, str] | Callable[[str], str | None]


def reveal(value: Any, provider: SecretProvider | None, tool: str) -> Any:
    """Replace every Secret in a value by its value from a provider.

    Raises SecretUnavailable.
    """

    def reveal_part(part: Any, _: Path) -> Any:
        return _provided(part, provider, tool) if isinstance(part, Secret) else part

    return rebuilt(value, reveal_part)


def _provided(secret: Secret, provider: SecretProvider | None, tool: str) -> Any:
    value: Any = None
    if provider is not None:
        value = provider(secret.name) if callable(provider) else provider.get(secret.name)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        fact = "it returns an awaitable"
        raise BadValue(f"the provider of secret {secret.name!r}", fact, "give a plain function")
    if value is None:
        raise SecretUnavailable(secret.name, tool)
    return value


KEY = "placeholders"
"""Name of the secret that is the key of a session's placeholders."""

KNOWN_MAX = 100_000
"""Values that a session can put back; beyond it, only those of the current call."""

HELD_MAX = 64
"""Largest number of stream items that wait for the rest of a split placeholder."""

USAGE = "replaced"
"""Usage figure: number of replaced values; also by kind, as `replaced_email`."""

_PROCESS_KEY = secrets.token_bytes(32)


class Placeholders(msgspec.Struct, frozen=True):
    """Configuration of a tool's `placeholders=`: the argument values to replace.

    The digests' key is the secret named `placeholders` from the session's `secrets=`; without one,
    the key is this process's own, and after a restart the same value has another placeholder. Each
    run has its own placeholders.

    Attributes:
        kinds: Some of `email`, `phone`, `card`, `iban`, `key`.
        detect: Finds other values: takes a text and returns (begin, end, kind), such as `(0, 12,
            "NAME")`.
    """

    kinds: tuple[str, ...] = tuple(texts.DETECTORS)
    detect: Callable[[str], Iterable[tuple[int, int, str]]] | None = None

    @property
    def detectors(self) -> list[texts.Detector]:
        """The detectors of values, in order. Raises BadValue."""
        unknown = [kind for kind in self.kinds if kind not in texts.DETECTORS]
        if unknown:
            known = ", ".join(texts.DETECTORS)
            raise BadValue("kinds of placeholders", f"{unknown[0]!r:.80}", f"give some of {known}")
        own = [] if self.detect is None else [self.detect]
        return [*own, *(texts.DETECTORS[kind] for kind in self.kinds)]


def declared(value: object, where: str) -> Placeholders | None:
    """Return the configuration given as a tool's `placeholders=`. Raises BadValue."""
    if value is None or value is False:
        return None
    made = Placeholders() if value is True else value
    if not isinstance(made, Placeholders):
        raise BadValue(where, f"{value!r:.80}", "give True, or hansard.Placeholders(...)")
    made.detectors  # noqa: B018 -- raises for a wrong declaration at once
    return made


def key_of(provider: SecretProvider | None, run: str) -> bytes:
    """Return the key of a run's placeholders. Raises BadValue if it is too short."""
    value: Any = None
    if provider is not None:
        value = provider(KEY) if callable(provider) else provider.get(KEY)
    if value is None:
        value = _PROCESS_KEY
    key = value.encode() if isinstance(value, str) else value
    if not isinstance(key, bytes) or len(key) < texts.KEY_BYTES_MIN:
        fact = "it is shorter than a key has to be"
        remedy = f"give at least {texts.KEY_BYTES_MIN} random bytes, as a text or as bytes"
        raise BadValue(f"the secret {KEY!r}", fact, remedy)
    return texts.key_of_run(key, run)


class Masker:
    """Placeholders of one call."""

    def __init__(self, request: Placeholders, key: bytes, known: dict[str, str], tool: str) -> None:
        self._detectors = request.detectors
        self._key = key
        self._tool = tool
        self._session = known
        self.known: dict[str, str] = dict(known)
        """Values by placeholder: the session's so far, and this call's."""
        self.counts: dict[str, float] = {USAGE: 0.0}
        """Counts of replaced values, in total and by kind."""
        self._seen: set[str] = set()

    def hide(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments with placeholders. Raises BadValue for a value inside an object that
        cannot be rebuilt: the call is not made then.
        """
        made = {name: rebuilt(value, self._hidden, (name,)) for name, value in arguments.items()}
        for name, value in made.items():
            for path, text in leaves(plain(value, name)):
                if isinstance(text, str) and text not in self._seen and self._finds(text):
                    where = ".".join((name, *path))[:80]
                    fact = f"{where} holds a value inside a {type(value).__name__}"
                    remedy = "give plain values: texts, lists, dicts, and records of them"
                    raise BadValue(f"the arguments of {self._tool}", fact, remedy)
        if len(self._session) + len(self.known) <= KNOWN_MAX:
            self._session.update(self.known)
        return made

    def _finds(self, text: str) -> bool:
        return bool(texts.spans(text, self._detectors))

    def _hidden(self, part: Any, _: Path) -> Any:
        if type(part) is bytes:
            try:
                fields = part.decode()
            except UnicodeDecodeError:
                return part
            made = self._hidden(fields, ())
            return part if made is fields else made.encode()
        if not isinstance(part, str):
            return part
        made, kinds = texts.hidden(part, self._key, self._detectors, self.known)
        self._seen.add(made)
        for kind in kinds:
            for name in (USAGE, f"{USAGE}_{kind.lower()}"):
                self.counts[name] = self.counts.get(name, 0.0) + 1.0
        return made if kinds else part

    def put_back(self, result: Any) -> Any:
        """Return a result with its placeholders replaced by the values."""
        return rebuilt(result, self._put_back)

    def _put_back(self, part: Any, _: Path) -> Any:
        if isinstance(part, str) and "<" in part:
            made = texts.put_back(part, self.known)
            return part if made == part else made
        if type(part) is bytes and b"<" in part:
            return texts.put_back(part.decode("latin-1"), self._latin).encode("latin-1")
        return part

    @property
    def _latin(self) -> dict[str, str]:
        """The values as UTF-8 bytes, one character for each."""
        return {made: value.encode().decode("latin-1") for made, value in self.known.items()}

    async def items(self, inner: Any) -> AsyncGenerator[Any, None]:
        """Yield a stream's items with the values put back, also for placeholders split across
        items.
        """
        joined = _ItemAssembler(self)
        try:
            while (item := await following(inner)) is not END:
                for ready in joined.take(item):
                    yield ready
            for ready in joined.rest():
                yield ready
        finally:
            await close(inner)


class _PartialPlaceholder(msgspec.Struct):
    """Start of a placeholder at a text's end: its position, and the text that followed so far."""

    first: int
    start: int
    text: str


class _ItemAssembler:
    """Assembles stream items that may be delivered.

    If a text ends with the possible start of a placeholder, its item waits for the next ones: the
    rest of the placeholder is removed from them, and the value replaces its start. If no
    placeholder results, all items are delivered unchanged.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held: list[Any] = []
        self._cuts: dict[Path, _PartialPlaceholder] = {}

    def take(self, item: Any) -> Sequence[Any]:
        """Add an item; return the items that are ready, in order."""
        if not self._masker.known:
            return [item]
        number = len(self._held)
        item = self._masker.put_back(item)
        self._held.append(item)
        texts: list[tuple[Path, str]] = []
        rebuilt(item, lambda part, path: _collect_text(part, path, texts))
        for path, text in texts:
            self._look(number, path, text)
        if self._cuts and len(self._held) <= HELD_MAX:
            return []
        return self.rest()

    def rest(self) -> Sequence[Any]:
        """Return the items that still wait."""
        ready, self._held, self._cuts = self._held, [], {}
        return ready

    def _look(self, number: int, path: Path, text: str) -> None:
        start = 0
        cut = self._cuts.pop(path, None)
        if cut is not None:
            whole = cut.text + text
            hit = texts.PLACEHOLDER.match(whole)
            if hit is not None and hit[0] in self._masker.known:
                self._join(cut, number, path, hit[0], text)
                start = hit.end() - len(cut.text)
                text, start = text[start:], 0
            elif self._begins(whole):
                self._cuts[path] = msgspec.structs.replace(cut, text=whole)
                return
        begin = text.rfind("<", start)
        if begin >= 0 and self._begins(text[begin:]):
            self._cuts[path] = _PartialPlaceholder(number, begin, text[begin:])

    def _begins(self, text: str) -> bool:
        return any(len(text) < len(made) and made.startswith(text) for made in self._masker.known)

    def _join(
        self, cut: _PartialPlaceholder, number: int, path: Path, made: str, text: str
    ) -> None:
        """Insert a value where its placeholder starts, and remove the rest of the placeholder from
        later items.
        """
        value = self._masker.known[made]
        self._set(cut.first, path, lambda before: before[: cut.start] + value)
        for between in range(cut.first + 1, number):
            self._set(between, path, lambda _: "")
        rest = text[len(made) - len(cut.text) :]
        self._set(number, path, lambda _: rest)

    def _set(self, number: int, path: Path, change: Callable[[str], str]) -> None:
        def leaf(part: Any, at: Path) -> Any:
            return change(part) if at == path and isinstance(part, str) else part

        self._held[number] = rebuilt(self._held[number], leaf)


def _collect_text(part: Any, path: Path, texts: list[tuple[Path, str]]) -> Any:
    if isinstance(part, str):
        texts.append((path, part))
    return part
