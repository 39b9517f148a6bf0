"""Removal of secrets from texts, recorded values and whole events.

A `Redaction` knows the secrets of a program by name. A value that is a secret becomes
`{"$secret": name}`; inside another text a secret becomes `<secret:name>`; a text field of an event
that is a secret becomes `(secret name)`. A replacement is not replaced again.

`hansard.bus.redacted_log` applies it to every commit before it is encoded, for every writer.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from hansard.domain import ids
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.values import Plain, Scrub, Secret

SECRET_LENGTH_MIN = 6
"""Shortest text that is searched for inside other texts: shorter ones would match by chance."""

GENERATED_FIELDS = frozenset(
    {
        *("approval", "bundle", "by_result", "call", "digest", "event", "fingerprint", "key"),
        *("after", "at", "before", "ends", "expires", "full", "head", "id", "joins", "was"),
        *("nkey", "parent", "reflection", "run", "runs", "scope", "seen", "sha256", "token"),
        *("rules", "source", "sources", "stands_for", "statement", "task", "unit", "within"),
    }
)
"""Fields that may hold an id, a digest or a time that Hansard generated. A pattern is not applied
to a text there that has such a form. A secret given as a text is searched for there, too."""

_GENERATED = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # an id
    r"|[0-9a-f]{32}|[0-9a-f]{64}|[A-Za-z0-9_-]{24}|[A-Za-z0-9_-]{43}"  # a digest
    r"|U[A-Z2-7]{55}"  # a public key
    r"|\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d)?"  # a time
)

_SCALARS = frozenset(
    {
        *("$int", "$float", "$decimal", "$uuid", "$secret"),
        *("$date", "$datetime", "$time", "$timedelta"),
        *("$append", "$blob", "$parts"),
    }
)
"""Tags of values that patterns are not applied to: numbers, times, references."""

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


class Redaction:
    """The secrets of a program, by name: texts, and patterns of texts."""

    def __init__(self, secrets: Iterable[tuple[str, str | re.Pattern[str]]]) -> None:
        """Take `secrets` as `Redaction.of` checked them."""
        # Longest first: else the rest of a secret that begins with another one would be recorded.
        self.secrets = sorted(set(secrets), key=_longest_first)
        self._matchers = [(name, secret, _matcher(secret)) for name, secret in self.secrets]
        self._texts = [each for each in self._matchers if isinstance(each[1], str)]
        names = "|".join(sorted({re.escape(name) for name, _ in self.secrets}))
        self._markers = re.compile(rf"<secret:(?:{names})>|\(secret (?:{names})\)")
        self._needles = _needles(secret for _, secret in self.secrets)

    @classmethod
    def of(cls, redact: Mapping[str, Any]) -> Redaction | None:
        """Build the redaction of secrets by name, each a text or a compiled pattern; None for no
        secrets.

        Raises BadName, and BadValue for another type, or a text that is too short to search for.
        """
        for name, secret in redact.items():
            ids.name("secret", name)
            if not isinstance(secret, str | re.Pattern):
                kind = type(secret).__name__
                raise BadValue(f"redact[{name!r}]", f"a {kind}", "give a text or a pattern")
            if isinstance(secret, str) and len(secret) < SECRET_LENGTH_MIN:
                raise BadValue(
                    f"redact[{name!r}]",
                    f"a secret of {counted(len(secret), 'character')}",
                    f"give at least {SECRET_LENGTH_MIN}, or pass hansard.Secret({name!r})"
                    " as argument",
                )
        return cls(redact.items()) if redact else None

    def joined(self, other: Redaction | None) -> Redaction:
        """Return a redaction of the secrets of both."""
        if other is None or set(other.secrets) <= set(self.secrets):
            return self
        return Redaction([*self.secrets, *other.secrets])

    # ---------------------------------------------------------------- texts

    def __call__(self, text: str) -> str | Secret:
        """Return a text without secrets, or the secret that it is."""
        return self._scrubbed(text, self._matchers)

    def text(self, text: str) -> str:
        """Return a text without secrets, for places that hold only a text."""
        return _as_text(self(text))

    def is_clean(self, value: object, field: str = "") -> bool:
        """Return whether no text of a value, a mapping or a sequence holds a secret."""
        if isinstance(value, str):
            return self._in(field, value) == value
        if isinstance(value, Mapping):
            return all(self.is_clean(each, field) for pair in value.items() for each in pair)
        if isinstance(value, list | tuple | set | frozenset):
            return all(self.is_clean(each, field) for each in value)
        return True

    def _scrubbed(
        self, text: str, matchers: list[tuple[str, str | re.Pattern[str], re.Pattern[str]]]
    ) -> str | Secret:
        for name, secret, matcher in matchers:
            if text == secret:
                return Secret(name)
            if not matcher.search(text):
                continue
            if matcher is secret and matcher.fullmatch(text) and not self._markers.fullmatch(text):
                return Secret(name)
            marked = [match.span() for match in self._markers.finditer(text)]

            def marker(match: re.Match[str], name: str = name, marked: Any = marked) -> str:
                inside = any(begin <= match.start() and match.end() <= end for begin, end in marked)
                return match[0] if inside else f"<secret:{name}>"

            text = matcher.sub(marker, text)
        return text

    def _in(self, field: str, text: str) -> str | Secret:
        """Return a text of a field, without secrets."""
        generated = field in GENERATED_FIELDS and _GENERATED.fullmatch(text)
        return self._scrubbed(text, self._texts if generated else self._matchers)

    @contextlib.contextmanager
    def in_errors(self) -> Iterator[None]:
        """Remove the secrets from Hansard's own errors that are raised inside: they repeat
        arguments.
        """
        try:
            yield
        except HansardError as error:
            cut = self._with_cut_ones()
            error.args = cut.fields(error.args)
            for name, value in vars(error).items():
                if isinstance(value, str | tuple | list | dict):
                    setattr(error, name, cut.fields(value))
            raise

    def _with_cut_ones(self) -> Redaction:
        """Return this redaction with the beginnings of its texts, from half of their length on,
        added: an error shows at most the first 40 to 200 characters of a value.
        """
        cut = [
            (name, secret[:length])
            for name, secret in self.secrets
            if isinstance(secret, str)
            for length in range(max(SECRET_LENGTH_MIN, (len(secret) + 1) // 2), len(secret))
        ]
        return Redaction([*self.secrets, *cut])

    # ---------------------------------------------------------------- events

    def may_hold(self, data: bytes) -> bool:
        """Return whether a JSON text has to be searched: cheap, and False for most."""
        return self._needles is None or any(each in data for each in self._needles)

    def fields(self, value: T, field: str = "") -> T:
        """Return an event, or a part of one, without secrets; the same object where there are
        none.
        """
        made: T = self._fields(value, field)
        return made

    def _fields(self, value: Any, field: str) -> Any:
        made = value
        match value:
            case str() if type(value) is str:
                made = _as_text(self._in(field, value))
            case msgspec.Raw():
                made = self.raw(value, field)
            case msgspec.Struct():
                names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
                pairs = [(name, key, getattr(value, name)) for name, key in names]
                news = {name: self.fields(each, key) for name, key, each in pairs}
                if any(news[name] is not each for name, _, each in pairs):
                    made = msgspec.structs.replace(value, **news)
            case tuple() | list():
                items = [self.fields(each, field) for each in value]
                if any(new is not old for new, old in zip(items, value, strict=True)):
                    made = type(value)(items)
            case dict():
                entries = {
                    self._key(key, field): self.fields(each, key if type(key) is str else field)
                    for key, each in value.items()
                }
                if any(key not in value or value[key] is not each for key, each in entries.items()):
                    made = entries
            case _:
                pass
        return made

    def raw(self, raw: msgspec.Raw, field: str = "") -> msgspec.Raw:
        """Return a recorded value's JSON without secrets; the same object where there are none."""
        if not bytes(raw):
            return raw
        plain = msgspec.json.decode(raw)
        clean = self._plain(plain, field)
        return raw if clean == plain else msgspec.Raw(_encoder.encode(clean))

    def _plain(self, value: Plain, field: str) -> Plain:
        if type(value) is str:
            text = self._in(field, value)
            return text if isinstance(text, str) else {"$secret": text.name}
        if type(value) is list:
            return [self._plain(each, field) for each in value]
        if type(value) is not dict:
            return value
        if len(value) == 1:
            [(tag, inner)] = value.items()
            if tag in _SCALARS:
                return {tag: self._scalar(inner)}
            if tag in ("$bytes", "$bytearray"):
                return self._bytes(tag, inner)
        return {self._key(key, field): self._plain(each, key) for key, each in value.items()}

    def _key(self, key: Any, field: str) -> Any:
        if type(key) is not str or key[:1] == "$":
            return key
        matchers = self._texts if field in GENERATED_FIELDS else self._matchers
        return _as_text(self._scrubbed(key, matchers))

    def _scalar(self, inner: Plain) -> Plain:
        if type(inner) is str:
            return _as_text(self._scrubbed(inner, self._texts))
        if type(inner) is list:
            return [self._scalar(each) for each in inner]
        if type(inner) is dict:
            return {key: self._scalar(each) for key, each in inner.items()}
        return inner

    def _bytes(self, tag: str, inner: Plain) -> Plain:
        try:
            text = base64.b64decode(inner).decode(errors="surrogateescape")
        except (TypeError, ValueError, binascii.Error):
            return {tag: self._scalar(inner)}
        clean = self(text)
        if isinstance(clean, Secret):
            return {"$secret": clean.name}
        if clean == text:
            return {tag: inner}
        return {tag: base64.b64encode(clean.encode(errors="surrogateescape")).decode()}

    def holds(self, data: bytes) -> bool:
        """Return whether a blob or a message, JSON or not, holds a secret."""
        return self.place_in(data) is not None

    def place_in(self, data: bytes) -> str | None:
        """Return the field of a JSON text that holds a secret, empty for the whole; None where none
        does.

        Data that is not JSON is searched as one text.
        """
        if not self.may_hold(data):
            return None
        try:
            plain = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None if self.is_clean(data.decode(errors="surrogateescape")) else ""
        return _difference(plain, self._plain(plain, ""))


def check_names(where: str, names: Mapping[str, object], scrub: Scrub | None) -> None:
    """Check that no name holds a secret. Raises BadValue.

    A text that is only read is recorded with the secret replaced. A name is part of an address (a
    subject, a key, an id): a replaced name would be another name, and two could become the same.
    """
    if not isinstance(scrub, Redaction):
        return
    for kind, name in names.items():
        if not scrub.is_clean(name, kind):
            raise holds_secret(f"{where}({kind})")


def holds_secret(where: str) -> BadValue:
    """Return the error for a name with a secret in it. It does not repeat the secret."""
    remedy = "leave the secret out of it: names are kept as they are, never replaced"
    return BadValue(where, "it holds a secret", remedy)


def _difference(plain: Plain, clean: Plain) -> str | None:
    """Return the path of the first difference of two JSON values; None where they are equal."""
    if plain == clean:
        return None
    if type(plain) is dict and type(clean) is dict and plain.keys() == clean.keys():
        for key, each in plain.items():
            inner = _difference(each, clean[key])
            if inner is not None:
                return f"{key}.{inner}" if inner else str(key)
    return ""


def _as_text(text: str | Secret) -> str:
    return text if isinstance(text, str) else f"(secret {text.name})"


def _longest_first(item: tuple[str, str | re.Pattern[str]]) -> tuple[int, str, str]:
    name, secret = item
    return (-len(secret), name, secret) if isinstance(secret, str) else (0, name, secret.pattern)


def _matcher(secret: str | re.Pattern[str]) -> re.Pattern[str]:
    """Return the pattern that finds a secret inside a text, which may itself be JSON."""
    if isinstance(secret, re.Pattern):
        return secret
    forms = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))))


def _needles(secrets: Iterable[str | re.Pattern[str]]) -> list[bytes] | None:
    """Return bytes of which each JSON text with a secret has at least one; None where none are
    known.
    """
    needles: list[bytes] = [b'"$bytes', b"\\u"]
    for secret in secrets:
        if not isinstance(secret, str) or json.dumps(secret)[1:-1] != secret or "/" in secret:
            return None
        needles.append(secret.encode())
    return needles
