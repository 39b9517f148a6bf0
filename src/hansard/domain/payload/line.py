"""An agent's events in order, with values that refer to earlier ones resolved.

For readers that show events, or make rows of them, one after the other: the value that is judged by
a role's rules, masked, searched and queried in SQL is the agent's whole value, as if it were stored
in its event; no reference lets a reader see the content of another event.
"""

from __future__ import annotations

import msgspec

from hansard.domain.errors import Corrupt
from hansard.domain.payload.parts import (
    MARK,
    SHOWN_BYTES_MAX,
    BlobsNeeded,
    Key,
    Parts,
    Text,
    Texts,
    arguments_of,
    named,
    parts_of,
    whole_value,
    without_blobs,
)
from hansard.domain.payload.references import Fetch
from hansard.domain.steps import NULL, StepCompleted, StepRequested, StepSettled

KEPT_CHARACTERS_MAX = 256 * 1024
"""Characters of the latest texts that are kept for one agent: four of the largest."""


class _StepPayload(msgspec.Struct):
    """The values of a step's event: its arguments or its result."""

    step: int
    arguments: dict[str, msgspec.Raw] | None = None
    result: msgspec.Raw = NULL
    items: int | None = None
    verdict: str = "happened"


_payload_decoder = msgspec.json.Decoder(_StepPayload)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TAGS = frozenset({StepRequested.tag, StepCompleted.tag, StepSettled.tag})


class PartsLine:
    """One agent's values by step, as far as its events were read."""

    def __init__(self) -> None:
        self._found: dict[Key, Text] = {}
        self._texts = Texts(self._found.get, KEPT_CHARACTERS_MAX)
        self.bytes = 0
        """Bytes of the kept values."""

    def note(self, tag: str, version: int, data: bytes) -> None:
        """Add an event, in order; one whose data does not match its tag is skipped."""
        if tag not in _TAGS:
            return
        try:
            fields = _payload_decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if tag == StepRequested.tag:
            for name, value in (fields.arguments or {}).items():
                self._keep((fields.step, name), version, value)
        elif fields.items is None and fields.verdict == "happened":
            self._keep((fields.step, None), version, fields.result)

    def _keep(self, key: Key, version: int, value: msgspec.Raw) -> None:
        raw = bytes(value)
        self.bytes += len(raw)
        self._found[key] = Text(version, raw)

    def by_parts(self, tag: str, version: int, data: bytes) -> list[tuple[Parts, Fetch]]:
        """Return the values of an event that are stored as parts, each with a fetch of its whole
        text.

        The event was passed to `note` before. Raises Corrupt.
        """
        if MARK not in data or tag not in _TAGS:
            return []
        try:
            fields = _payload_decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return []
        values: dict[Key, msgspec.Raw] = {
            (fields.step, name): raw for name, raw in (fields.arguments or {}).items()
        }
        values[fields.step, None] = fields.result
        values_by_parts: list[tuple[Parts, Fetch]] = []
        for key, raw in values.items():
            parts = parts_of(bytes(raw), named(key))
            if parts is not None:
                values_by_parts.append((parts, self._texts.text(key, Text(version, bytes(raw)))))
        return values_by_parts

    def whole(self, tag: str, version: int, data: bytes) -> bytes:
        """Return an event's data with its values resolved, up to 64 KiB each; unchanged where a
        value is larger, or needs a blob. The event was passed to `note` before. Raises Corrupt.
        """
        if MARK not in data or tag not in _TAGS:
            return data
        try:
            fields = _fields.decode(data)
            step = msgspec.json.decode(fields["step"], type=int)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
            raise Corrupt("a step's event", f"it is not as Hansard writes it ({error})") from error
        if "arguments" in fields:
            raws = arguments_of(fields["arguments"], f"step {step}")
            values = {name: self._value((step, name), version, raw) for name, raw in raws.items()}
            fields["arguments"] = msgspec.Raw(msgspec.json.encode(values))
        if "result" in fields:
            fields["result"] = self._value((step, None), version, fields["result"])
        return msgspec.json.encode(fields)

    def _value(self, key: Key, version: int, raw: msgspec.Raw) -> msgspec.Raw:
        """Return a resolved value; unchanged where that needs a blob or is too large."""
        text = Text(version, bytes(raw))
        try:
            return msgspec.Raw(without_blobs(whole_value(self._texts, key, text, SHOWN_BYTES_MAX)))
        except BlobsNeeded:
            return raw
