"""A bundle: one file that holds a version of an experience for transfer.

A tar archive (POSIX.1-1988 ustar) of plain files, not compressed: `manifest.json`, `signature.json`
where it is signed, and the experience's files under `experience/`. Equal contents make equal bytes,
and a file that differs in any byte from that form is refused, so that nothing can be hidden between
its files. Files are texts, and none of them is run. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from hansard.domain import placeholders
from hansard.domain.errors import BadValue
from hansard.domain.experience import experience as experiences
from hansard.domain.experience import experience as kept
from hansard.domain.experience.experience import Experience
from hansard.domain.fingerprint import canonical

FORMAT = "hansard.bundle.v1"
MANIFEST, SIGNATURE, FOLDER = "manifest.json", "signature.json", "experience/"

BUNDLE_BYTES_MAX = 32 * 1024 * 1024
"""Largest bundle; it is not compressed, so this is also the size of its content."""

FILES_MAX = 100
"""Most files of a bundle."""

LICENSE_CHARACTERS_MAX = 1_000

PATH_BYTES_MAX = 100
"""Longest path in a bundle: the limit of the archive's header."""

SCRIPTS = "scripts/"
"""Prefix of files that are kept as data, and never run."""

HIDDEN_FINDINGS = 5
"""Most places that a refusal names."""

_BLOCK = 512
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.-]{0,200}")
_ELEMENT, _ELEMENT_ID = "elementId", re.compile(r"(?:\d{1,4}-\d{1,10})?")
_IDENTIFIERS = frozenset(
    {
        "bundle", "digest", "failed", "look", "rests_on", "restsOn", "run", "sha256",
        "sources",
    }
)  # fmt: skip
"""Fields that hold ids and digests: digits in them are no phone number."""


class FileFact(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a bundle.

    Attributes:
        bytes: Its size.
        sha256: Its SHA-256, hexadecimal.
    """

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manifest of a bundle.

    Attributes:
        format: `hansard.bundle.v1`.
        name: The experience's name.
        version: Its number where it was published.
        digest: SHA-256 of its files in RFC 8785 form, hexadecimal.
        files: By path.
        sources: The runs that it was distilled from.
        license: Its license: an SPDX expression, or words.
        key: The public key that signs it, hexadecimal; empty for none.
    """

    format: str
    name: str
    version: int
    digest: str
    files: dict[str, FileFact]
    sources: tuple[str, ...]
    license: str
    key: str


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signature of the manifest, and with it of all files: Ed25519 (RFC 8032) of `signed`.

    Attributes:
        key: The public key, hexadecimal.
        signature: Hexadecimal.
    """

    key: str
    signature: str


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that was read and is complete.

    Attributes:
        manifest: Its manifest.
        content: The experience's files, text by path.
        experience: The experience.
        signature: Of its manifest; None where it names no key. It has not been verified here.
        sha256: SHA-256 of the whole file, hexadecimal.
    """

    manifest: Manifest
    content: dict[str, str]
    experience: Experience
    signature: Signature | None
    sha256: str


def license_terms(text: str) -> str:
    """Return a license: an SPDX expression, or words. Raises BadValue for none, or a long text."""
    terms = text.strip()
    if not 0 < len(terms) <= LICENSE_CHARACTERS_MAX:
        raise BadValue("license", f"{terms!r:.80}", "give an SPDX expression: Apache-2.0")
    return terms


def manifest(version: int, content: Mapping[str, str], license_: str, key: str) -> Manifest:
    """Return the manifest of a version. Raises BadValue for files that are no experience."""
    experience = _read(content)
    return Manifest(
        format=FORMAT,
        name=experience.name,
        version=version,
        digest=kept.digest_of(content),
        files={path: _fact(text.encode()) for path, text in sorted(content.items())},
        sources=experience.sources,
        license=license_,
        key=key,
    )


def signed(manifest: Manifest) -> bytes:
    """Return the signed bytes: the format's name, and the manifest as written in the bundle."""
    return f"{FORMAT}\n".encode() + _encoded(manifest)


def write(manifest: Manifest, content: Mapping[str, str], signature: Signature | None) -> bytes:
    """Return the bundle: equal for equal contents."""
    files = {MANIFEST: _encoded(manifest)}
    if signature is not None:
        files[SIGNATURE] = _encoded(signature)
    files |= {f"{FOLDER}{path}": text.encode() for path, text in sorted(content.items())}
    return _archive(files)


def read(raw: bytes, where: str = "the bundle") -> Bundle:
    """Read a bundle and check all of it: each file is the one of the manifest, and there is no
    other.

    Raises:
        BadValue: It is no bundle, was changed, holds content that may not be published, or is too
            large.
    """
    files = _files(raw, where)
    for name in (MANIFEST, *([SIGNATURE] if SIGNATURE in files else [])):
        if name not in files:
            raise BadValue(where, f"there is no {name}", "ask its publisher for it again")
    value = _decoded(files.pop(MANIFEST), Manifest, f"{where}, {MANIFEST}")
    if value.format != FORMAT:
        fact = f"its format is {value.format!r:.80}, not {FORMAT!r}"
        raise BadValue(where, fact, "read it with the version of Hansard that wrote it")
    raw_signature = files.pop(SIGNATURE, None)
    signature = None
    if raw_signature is not None:
        signature = _decoded(raw_signature, Signature, f"{where}, {SIGNATURE}")
    if (signature.key if signature is not None else "") != value.key:
        fact = f"it names the key {value.key or 'none'!s:.80}, and that key has not signed it"
        raise _changed(where, fact)
    content = _content(files, value, where)
    if kept.digest_of(content) != value.digest:
        raise _changed(where, "its files do not have the digest that it names")
    experience = _read(content, where)
    if (experience.name, experience.sources) != (value.name, value.sources):
        raise _changed(where, "its manifest and its files name different experiences or sources")
    if write(value, content, signature) != raw:
        raise _changed(where, "it is not written as a bundle is: something else is in it")
    sha256 = hashlib.sha256(raw).hexdigest()
    return Bundle(
        manifest=value,
        content=content,
        experience=experience,
        signature=signature,
        sha256=sha256,
    )


def _read(content: Mapping[str, str], where: str = "the experience") -> Experience:
    return experiences.read({path: text.encode() for path, text in content.items()}, where)


def _content(files: Mapping[str, bytes], manifest: Manifest, where: str) -> dict[str, str]:
    """Return the experience's files, each checked against the manifest."""
    content = {}
    for name, raw in files.items():
        path = name.removeprefix(FOLDER)
        if not name.startswith(FOLDER) or not (
            path in experiences.FILES or path.startswith(SCRIPTS)
        ):
            raise BadValue(where, f"{name!r:.120} is no file of a bundle", "do not install it")
        if manifest.files.get(path) != _fact(raw):
            raise _changed(where, f"{path!r:.120} is not the file that the manifest names")
        try:
            content[path] = raw.decode()
        except UnicodeDecodeError as error:
            raise BadValue(where, f"{path!r:.120} is no UTF-8: {error}", "texts travel") from None
    missing = sorted(manifest.files.keys() - content.keys())
    if missing:
        raise _changed(where, f"{missing[0]!r:.120} is missing")
    return content


def _changed(where: str, fact: str) -> BadValue:
    return BadValue(where, fact, "it was changed after publication: ask its publisher for it again")


def _fact(raw: bytes) -> FileFact:
    return FileFact(bytes=len(raw), sha256=hashlib.sha256(raw).hexdigest())


def _encoded(value: Manifest | Signature) -> bytes:
    return canonical(msgspec.to_builtins(value))


def _decoded(raw: bytes, kind: type[Any], where: str) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue(where, f"it cannot be read: {error}", "ask for it again") from None


# ------------------------------------------------------------ the archive


def _archive(files: Mapping[str, bytes]) -> bytes:
    parts = []
    for path, raw in files.items():
        parts += [_header(path, len(raw)), raw, bytes(-len(raw) % _BLOCK)]
    return b"".join([*parts, bytes(2 * _BLOCK)])


def _header(path: str, size: int) -> bytes:
    """Return the header of a plain file without owner or time."""
    fields = (
        path.encode().ljust(100, b"\0"),
        b"0000644\0" + b"0000000\0" * 2,
        b"%011o\0" % size + b"00000000000\0",
        b" " * 8,
        b"0" + bytes(100),
        b"ustar\x0000" + bytes(64) + b"0000000\0" * 2,
    )
    plain = b"".join(fields).ljust(_BLOCK, b"\0")
    return plain[:148] + b"%06o\0 " % sum(plain) + plain[156:]


_KINDS = {
    ord("1"): "a hard link",
    ord("2"): "a symbolic link",
    ord("3"): "a device",
    ord("4"): "a device",
    ord("5"): "a folder",
    ord("6"): "a pipe",
    ord("S"): "a sparse file",
}


def _files(raw: bytes, where: str) -> dict[str, bytes]:
    """Return the files of an archive that holds only plain files with distinct names."""
    if len(raw) > BUNDLE_BYTES_MAX:
        fact = f"{len(raw):,} bytes, more than {BUNDLE_BYTES_MAX:,}"
        raise BadValue(where, fact, "distil the experience again, from fewer runs")
    files: dict[str, bytes] = {}
    known: set[str] = set()
    for path, size, at in _members(raw, where):
        if len(files) == FILES_MAX:
            raise BadValue(where, f"more than {FILES_MAX} files", "do not install it")
        folded = path.casefold()
        if folded in known:
            fact = f"two files are called {path!r:.120}, apart from upper and lower case"
            raise BadValue(where, fact, "do not install it")
        known.add(folded)
        files[path] = raw[at : at + size]
    return files


def _members(raw: bytes, where: str) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and offset of each file. Raises BadValue for anything else."""
    at = 0
    while raw[at : at + _BLOCK] != bytes(_BLOCK):
        header = raw[at : at + _BLOCK]
        if len(header) < _BLOCK or header[257:262] != b"ustar":
            fact = "it is no bundle, or cut"
            raise BadValue(where, fact, "give a file that `hansard experience publish` wrote")
        if header[156] != ord("0"):
            kind = _KINDS.get(header[156], "no plain file")
            name = header[:100].rstrip(b"\0").decode(errors="replace")
            raise BadValue(where, f"{name!r:.120} is {kind}", "do not install it")
        path = header[:100].rstrip(b"\0").decode(errors="replace")
        if not _PATH.fullmatch(path):
            fact = f"{path!r:.120} is no path of a file in a bundle"
            raise BadValue(where, fact, "do not install it")
        digits = header[124:135]
        size = int(digits, 8) if re.fullmatch(rb"[0-7]{11}", digits) else -1
        begin = at + _BLOCK
        if not 0 <= size <= len(raw) - begin or header != _header(path, size):
            raise _changed(where, f"the header of {path!r:.120} is not as a bundle has it")
        yield path, size, begin
        at = begin + size + -size % _BLOCK


# ------------------------------------------------------------ content that may not be published


def demand_clean(manifest: Manifest, content: Mapping[str, str]) -> None:
    """Check that files and manifest hold no secret or personal value. Raises BadValue.

    Those are e-mail addresses, phone and card numbers, IBANs, keys (`hansard.domain.placeholders`).
    """
    findings = [
        f"{kind.lower()} in {path}"
        for path, text in (*content.items(), (MANIFEST, _encoded(manifest).decode()))
        for kind in _findings(path, text)
    ]
    if findings:
        first = "; ".join(dict.fromkeys(findings[: 20 * HIDDEN_FINDINGS]))
        remedy = (
            "distil it from runs in which the value differs, so that it is a slot, or pass it as "
            "a secret; this error never repeats the values"
        )
        raise BadValue("publish", f"it holds secret or personal values: {first:.600}", remedy)


def _findings(path: str, text: str) -> Iterator[str]:
    """Yield the kinds of secrets and personal values in a file, each with its field."""
    if not path.endswith(".json"):
        yield from _kinds(text, placeholders.DETECTORS)
        return
    for field, value in _texts(msgspec.json.decode(text.encode()), ""):
        if field == _ELEMENT:
            if not _ELEMENT_ID.fullmatch(value):
                yield f"no element's id at {field!r}"
            continue
        names: Iterable[str] = placeholders.DETECTORS
        if field in _IDENTIFIERS and _IDENTIFIER.fullmatch(value):
            names = ("email", "key")
        for kind in _kinds(value, names):
            yield f"{kind} at {field!r:.60}" if field else kind


def _kinds(text: str, names: Iterable[str]) -> list[str]:
    detectors = [placeholders.DETECTORS[name] for name in names]
    spans = placeholders.spans(text, detectors)
    return [kind for _, _, kind in spans if kind != placeholders.TEXT]


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """Yield every text and whole number in a JSON value, with the name of its field; also the
    names.
    """
    waiting: list[tuple[str, Any]] = [(field, value)]
    while waiting:
        name, each = waiting.pop()
        match each:
            case str():
                yield name, each
            case bool() | float() | None:
                pass
            case int():
                yield name, str(each)
            case dict():
                for key, item in each.items():
                    yield "", str(key)
                    waiting.append((str(key), item))
            case list():
                waiting += [(name, item) for item in each]
            case _:
                continue


def constants(experience: Experience) -> list[str]:
    """Return the arguments that are the same in every demonstration: they are published, and a
    person must decide whether they may be.
    """
    filled = [
        argument
        for node in experience.procedure.nodes
        for argument in node.action.arguments
        if isinstance(argument, str) and not argument.startswith("{{")
    ]
    return list(dict.fromkeys(filled))
