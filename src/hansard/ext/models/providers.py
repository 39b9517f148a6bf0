"""Providers of models: the call in an HTTP request, its identity, and the facts of its answer.

Pure: bytes in, values out. A body that cannot be read is no error: the facts say why they are few.
Long because the forms of three APIs are read here, and nowhere else.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import tomllib
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

DECODED_MAX = 256 * 2**20
"""Most bytes of a body after decompression; facts of a longer one are not read."""


class Provider(msgspec.Struct, frozen=True):
    """A provider of models.

    Attributes:
        name: Its name, the first part of the names of its operations.
        dialect: The API that it speaks: `openai`, `anthropic` or `google`.
        variables: Environment variables by which SDKs take its base URL.
        hosts: Its host names; a leading dot means every host below that domain.
        base: Its default base URL.
    """

    name: str
    dialect: str
    variables: tuple[str, ...]
    hosts: tuple[str, ...]
    base: str

    def serves(self, host: str) -> bool:
        """Return whether a host name, without a port, is this provider's."""
        host = host.lower().rstrip(".")
        return any(
            host.endswith(each) if each.startswith(".") else host == each for each in self.hosts
        )


_DATA: dict[str, Any] = tomllib.loads(Path(__file__).with_name("providers.toml").read_text("utf-8"))

PROVIDERS = msgspec.convert(_DATA["providers"], tuple[Provider, ...])
"""Known providers. Of two that a host matches, the first counts."""

BY_NAME: Mapping[str, Provider] = {each.name: each for each in PROVIDERS}
"""The known providers by name."""


def provider_of(host: str) -> Provider | None:
    """Return the provider that a host name, without a port, belongs to."""
    return next((each for each in PROVIDERS if each.serves(host)), None)


class Operation(msgspec.Struct, frozen=True):
    """A kind of model call.

    Attributes:
        provider: The provider's name.
        kind: The operation in its dialect: `chat.completions`, `messages` ...
        model: The model where the path names it; empty where the body does.
        stream: True if the path asks for a stream.
    """

    provider: str
    kind: str
    model: str = ""
    stream: bool = False

    @property
    def name(self) -> str:
        """The name of its tool in the record: `openai.chat.completions`."""
        return f"{self.provider}.{self.kind}"


_PATHS: Mapping[str, Sequence[tuple[re.Pattern[str], str]]] = {
    dialect: [(re.compile(end), kind) for end, kind in paths.items()]
    for dialect, paths in _DATA["paths"].items()
}
"""Ends of the paths of model calls, by dialect."""


def operation_of(provider: str | Provider, method: str, path: str) -> Operation | None:
    """Return the model call that a request is, or None if it is another request.

    Args:
        provider: The provider, or its name.
        method: The HTTP method.
        path: The path; a query is ignored.
    """
    known = provider if isinstance(provider, Provider) else BY_NAME.get(provider)
    if known is None or method.upper() != "POST":
        return None
    path = path.partition("?")[0].rstrip("/")
    for pattern, kind in _PATHS[known.dialect]:
        if match := pattern.search(path):
            named = match.groupdict()
            return Operation(known.name, kind, named.get("model") or "", bool(named.get("stream")))
    return None


# ---------------------------------------------------------------- identity
#
# Two requests are one call if their identities are equal:
#
# 1. Nulls count as absent: SDKs add and drop them in round trips. A null in a list stays.
# 2. Keys by which a provider routes, caches or accounts, and which clients draw at random, are
#    left out (`RANDOM`), and so are the fields of the caller's rules.
# 3. Ids of tool calls and items are replaced by their order of appearance: `id:1`, `id:2` ...
#
# Nothing else is equal that differs: no similarity, no order of lists, no white space.

RANDOM: Mapping[str, Sequence[str]] = _DATA["random"]
"""Fields that are left out of the identity, by dialect."""

_ID_OWNERS = frozenset(
    {
        "tool_use", "server_tool_use", "mcp_tool_use", "function", "custom", "function_call",
        "custom_tool_call", "reasoning", "message", "web_search_call", "file_search_call",
        "computer_call", "code_interpreter_call", "mcp_call", "function_call_output", "tool_call",
        "item_reference",
    }
)  # fmt: skip
"""Values of `type` of parts whose `id` is drawn by a provider or an SDK."""

_ID_FIELDS = frozenset({"tool_call_id", "tool_use_id", "call_id"})
_ID_PARENTS = frozenset({"tool_calls", "functionCall", "functionResponse", "function_call"})
_OPAQUE = frozenset({"input", "args", "arguments", "response", "parameters", "input_schema"})
"""Fields of a part that hold values of a tool: ids in them are the tool's own."""
_PARTS = frozenset({"messages", "input", "contents", "content", "parts", *_ID_PARENTS})
"""Fields that lead from the top of a request to its parts."""


def identity(operation: Operation, body: bytes, volatile: Iterable[str] = ()) -> Any:
    """Return the value from which a request's key is computed.

    Args:
        operation: The operation.
        body: The request's body as sent, without a content encoding.
        volatile: Further fields to leave out, as JSON pointers in which `*` is any item or name:
            `/metadata/*`. `OPERATION/...` is a field of that operation alone.
    """
    try:
        return identity_of(operation, msgspec.json.decode(body), volatile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}


def identity_of(operation: Operation, value: Any, volatile: Iterable[str] = ()) -> Any:
    """As `identity`, from a decoded body."""
    value = _without_nulls(value)
    dialect = BY_NAME[operation.provider].dialect if operation.provider in BY_NAME else "openai"
    for field in (*RANDOM[dialect], *volatile):
        of, slash, rest = field.partition("/")
        if slash and of in ("", operation.name):
            _remove(value, rest.split("/"))
    return _numbered(value, "", {}) if isinstance(value, dict) else value


def _without_nulls(value: Any) -> Any:
    """Return a value without the fields that are null, at any depth."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _remove(value: Any, path: Sequence[str]) -> None:
    """Remove the fields at a path; an object that is empty afterwards goes, too."""
    name, *rest = path
    name = name.replace("~1", "/").replace("~0", "~")
    if isinstance(value, list):
        for index, each in enumerate(value):
            if rest and name in ("*", str(index)):
                _remove(each, rest)
        return
    if not isinstance(value, dict):
        return
    for key in [*value] if name == "*" else [name] if name in value else []:
        if rest:
            _remove(value[key], rest)
        if not rest or value[key] == {}:
            del value[key]


def _numbered(value: Any, parent: str, ids: dict[str, str]) -> Any:
    """Return parts of a request with their ids replaced by the order of appearance."""
    if isinstance(value, list):
        return [_numbered(each, parent, ids) for each in value]
    if not isinstance(value, dict):
        return value
    owns = parent in _ID_PARENTS or _text(value.get("type")) in _ID_OWNERS
    named: dict[str, Any] = {}
    for name, each in value.items():
        if isinstance(each, str) and (name in _ID_FIELDS or (owns and name == "id" and parent)):
            named[name] = ids.setdefault(each, f"id:{len(ids) + 1}")
        elif name in _PARTS and not (parent and name in _OPAQUE):
            named[name] = _numbered(each, name, ids)
        else:
            named[name] = each
    return named


# ---------------------------------------------------------------- bodies

_CODINGS: Mapping[str, int] = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""zlib's window bits by content coding."""

_PACKAGES = {"br": ("brotli", "process"), "zstd": ("zstandard", "decompress")}
"""Further codings: the package that undoes one, which the client's SDK needs for it, too, and the
method of its engine.
"""


def header(headers: Iterable[Sequence[str]], name: str) -> str:
    """Return a header's values, joined by commas; empty if it is missing."""
    return ", ".join(value for key, value in headers if key.lower() == name)


class _Coding:
    """A content coding, undone as its data arrive, up to `DECODED_MAX` and to the first damage."""

    def __init__(self, name: str) -> None:
        known = name in _CODINGS or name in _PACKAGES
        self.problem = "" if known else f"unknown content coding {name!r}"
        self._name = name
        self._engine: Any = None
        self._size = 0

    def plain(self, data: bytes) -> bytes:
        """Return data without the coding."""
        pieces: list[bytes] = []
        try:
            while data and not self.problem:
                if self._engine is None or getattr(self._engine, "eof", False):
                    self._engine = self._begin(data)
                if self._name in _CODINGS:
                    pieces.append(self._engine.decompress(data, DECODED_MAX - self._size))
                else:
                    pieces.append(getattr(self._engine, _PACKAGES[self._name][1])(data))
                self._size += len(pieces[-1])
                if self._size >= DECODED_MAX:
                    self.problem = f"longer than {DECODED_MAX} bytes when decompressed"
                data = getattr(self._engine, "unused_data", b"")
        except ImportError as error:
            self.problem = f"its content coding needs {error.name}: pip install {error.name}"
        except Exception as error:  # noqa: BLE001 -- these packages raise classes of their own
            self.problem = f"damaged {self._name} data: {error}"
        return b"".join(pieces)

    def _begin(self, data: bytes) -> Any:
        if self._name == "br":
            return importlib.import_module("brotli").Decompressor()
        if self._name == "zstd":
            return importlib.import_module("zstandard").ZstdDecompressor().decompressobj()
        is_raw = self._name == "deflate" and data[0] & 0x0F != zlib.DEFLATED  # as some servers do
        return zlib.decompressobj(-15 if is_raw else _CODINGS[self._name])

    def end(self) -> str:
        """Return what is wrong with the data, now that they have ended."""
        if not self.problem and not getattr(self._engine, "eof", True):
            return f"{self._name} data end early"
        return self.problem


class _Events:
    """Server-sent events, read as their lines arrive.

    By the standard's rules (WHATWG HTML, section 9.2): lines end with CR, LF or both, data lines
    are joined, an event without its blank line at the end is dropped.
    """

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self._is_first = True
        self._ends_in_cr = False
        self._name = b""
        self._data: list[bytes] = []

    def read(self, text: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield the names and data of the events that end in a piece of the stream."""
        if self._ends_in_cr and text[:1] == b"\n":
            text = text[1:]
        self._ends_in_cr = text[-1:] == b"\r"
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = text.split(b"\n")
        self._begun.append(lines[0])
        if len(lines) == 1:
            return
        lines[0] = b"".join(self._begun)
        self._begun = [lines.pop()]
        if self._is_first:
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
            self._is_first = False
        for line in lines:
            if not line:
                if self._data:
                    yield self._name.decode("utf-8", "replace"), b"\n".join(self._data)
                self._name, self._data = b"", []
                continue
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif field == b"event":
                self._name = value.removeprefix(b" ")


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# ---------------------------------------------------------------- facts

RECORDED_MAX, TEXT_MAX, CALLS_MAX = 32 * 1024, 2000, 100
"""Most bytes of recorded facts, characters of a text in them, and calls named in longer ones."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of a request or an answer.

    Attributes:
        role: `system`, `user`, `assistant`, `tool` ...
        content: Its text where it is text alone, else its parts in the provider's form.
        fields: Its other fields: `tool_calls`, `tool_call_id`, `name` ...
    """

    role: str
    content: Any = ""
    fields: dict[str, Any] = {}


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that a model asks for.

    Attributes:
        id: The provider's id of it; empty if it has none.
        name: The tool.
        arguments: The arguments; a text if they are not valid JSON.
    """

    id: str
    name: str
    arguments: Any = None


class Facts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Typed facts of a model call; None is unknown.

    Attributes:
        provider: The provider's name.
        operation: The operation's kind.
        model: The model that answered, or the one that was requested.
        status: The HTTP status.
        input_tokens: Tokens of the request, with those read from or written to a cache.
        output_tokens: Tokens of the answer, with those of its reasoning.
        cached_tokens: Tokens of the request that were read from a cache.
        reasoning_tokens: Tokens of the reasoning.
        finish_reason: The reason why the answer ended, in the provider's word; of several answers
            the first.
        response_id: The provider's id of the answer.
        error: The provider's error, or the error in its stream.
        problem: What could not be read, and why.
        tool_calls: The calls that the answer asks for.
        messages_in: The messages of the request, instructions first.
        messages_out: The messages of the answer.
    """

    provider: str
    operation: str
    model: str = ""
    status: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str = ""
    response_id: str = ""
    error: str = ""
    problem: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    messages_in: tuple[Message, ...] = ()
    messages_out: tuple[Message, ...] = ()

    @property
    def usage(self) -> dict[str, int]:
        """The known token counts by name, for `session.usage`."""
        names = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
        counts = {name: getattr(self, name) for name in names}
        return {name: count for name, count in counts.items() if count is not None}

    @property
    def recorded(self) -> dict[str, Any]:
        """The facts as they are recorded at the end of a stream, in at most `RECORDED_MAX` bytes.

        The messages are left out, which the request and the chunks hold.
        """
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for name in ("messages_in", "messages_out"):
            plain.pop(name, None)
        for name in ("error", "problem", "finish_reason", "model"):
            if name in plain:
                plain[name] = plain[name][:TEXT_MAX]
        if len(msgspec.json.encode(plain)) > RECORDED_MAX:
            calls = self.tool_calls[:CALLS_MAX]
            plain["tool_calls"] = [{"id": each.id[:99], "name": each.name[:99]} for each in calls]
        return plain


class Reading:
    """Reads the facts of a model call from its answer, piece by piece; malformed data never raise.

    Args:
        operation: The operation.
        query: The request's body, decoded; anything but an object has no facts.
        status: The HTTP status.
        headers: The response's headers, as pairs.
    """

    def __init__(
        self, operation: Operation, query: Any, status: int, headers: Iterable[Sequence[str]]
    ) -> None:
        headers = [*headers]
        query = _dict(query)
        self._report = Facts(
            provider=operation.provider,
            operation=operation.kind,
            status=status,
            model=operation.model or _text(query.get("model")),
            messages_in=messages_of(query),
        )
        self._form = f"it has another form than {operation.name}"
        names = header(headers, "content-encoding").lower().split(",")
        self._codings = [
            _Coding(each.strip())
            for each in reversed(names)
            if each.strip() not in ("", "identity")
        ]
        is_stream = "event-stream" in header(headers, "content-type").lower()
        self._events = _Events() if is_stream else None
        self._body: list[bytes] = []
        self._bad = 0
        self._reader = _READERS.get(operation.kind, _read_nothing)(self._report)
        next(self._reader)

    def add(self, data: bytes) -> None:
        """Read the next piece of the answer, as transferred."""
        for coding in self._codings:
            data = coding.plain(data)
        if self._events is None:
            self._body.append(data)
            return
        for name, text in self._events.read(data):
            if text.strip() == b"[DONE]":
                continue
            value = _json(text)
            if value is None:
                value = _json(text.decode("utf-8", "replace").encode())
            if isinstance(value, dict):
                self._read({**value, "type": name} if name and "type" not in value else value)
            else:
                self._bad += 1

    def _read(self, value: dict[str, Any] | None) -> None:
        try:
            if value and (error := value.get("error")):
                self._report.error = self._report.error or _error(error)
            self._reader.send(value)
        except StopIteration:
            pass
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._report.problem = f"{self._form}: {error}"
        self._reader = _read_nothing(self._report)
        next(self._reader)

    def facts(self) -> Facts:
        """Return the facts of what there is; the answer has ended."""
        body = b"".join(self._body)
        value = _json(body)
        # A list is Google's stream without `alt=sse`.
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                self._read(each)
        self._read(None)
        problems = [coding.end() for coding in self._codings]
        if self._bad:
            problems.append(f"{self._bad} events are not JSON objects")
        if body and not isinstance(value, dict | list):
            problems.append("the body is not a JSON object")
        problem = next(filter(None, problems), "")
        self._report.problem = self._report.problem or problem
        return self._report


def _error(value: Any) -> str:
    """Return an error's text, from the forms of all dialects."""
    if isinstance(value, dict):
        return _text(value.get("message")) or msgspec.json.encode(value).decode()[:500]
    return _text(value)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any, *path: str) -> int | None:
    """Return the count at a path, or None if there is none."""
    for name in path:
        value = _dict(value).get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _sum(*counts: int | None) -> int | None:
    """Add counts; None if all are unknown."""
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


class _Pieces(list[str]):
    """A text that is being put together: adding to a text would copy it each time."""


def _append(into: dict[str, Any], name: str, piece: str) -> None:
    """Add a piece to a text."""
    known = into.get(name)
    if isinstance(known, _Pieces):
        known.append(piece)
    else:
        into[name] = _Pieces([_text(known), piece])


def _whole(value: Any) -> Any:
    """Return a value with its pieces joined, at any depth."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, list) else value


def _parsed(arguments: Any) -> Any:
    """Return a tool call's arguments; those that are no JSON stay text."""
    if not isinstance(arguments, str):
        return arguments
    value = _json(arguments.encode())
    return arguments if value is None and arguments != "null" else value


def _plain(content: Any) -> Any:
    """Return the text of content whose parts are text alone, else the content as it is."""
    parts = _dicts(content)
    texts = [each["text"] for each in parts if {"text"} <= {*each} <= _TEXT_FIELDS]
    if parts and len(texts) == len(content) and all(isinstance(each, str) for each in texts):
        return "".join(texts)
    return "" if content is None else content


_TEXT_FIELDS = frozenset({"type", "text", "annotations", "logprobs", "cache_control"})


# A request's messages, in each dialect


def messages_of(query: Any) -> tuple[Message, ...]:
    """Return the messages of a request's body, the instructions first; none of a malformed one."""
    try:
        return tuple(_requested(_dict(query)))
    except (TypeError, ValueError, AttributeError, RecursionError):
        return ()


def _requested(query: dict[str, Any]) -> Iterator[Message]:
    for name in ("instructions", "system", "systemInstruction", "system_instruction"):
        if text := query.get(name):
            parts = text.get("parts", text) if isinstance(text, dict) else text
            yield Message("system", _plain(parts))
    for each in _dicts(query.get("messages")):
        yield _message(each, "user")
    asks = query.get("input")
    if isinstance(asks, str) and "messages" not in query:
        yield Message("user", asks)
    for each in _dicts(asks):
        yield _item(each)
    contents = query.get("contents")
    for each in [contents] if isinstance(contents, dict) else _dicts(contents):
        yield _content(each)
    if isinstance(query.get("prompt"), str):
        yield Message("user", query["prompt"])


def _message(value: dict[str, Any], role: str) -> Message:
    """Return a message of chat completions or of Anthropic's messages."""
    rest = {k: v for k, v in value.items() if k not in ("role", "content") and v is not None}
    return Message(_text(value.get("role")) or role, _plain(value.get("content")), rest)


def _item(value: dict[str, Any]) -> Message:
    """Return an item of the Responses API; one that is no message keeps its fields."""
    kind = value.get("type", "message")
    if kind == "message":
        return _message({k: v for k, v in value.items() if k != "type"}, "user")
    role = "tool" if _text(kind).endswith("_output") else "assistant"
    content = value.get("output", "") if role == "tool" else ""
    rest = {k: v for k, v in value.items() if k != "output" and v is not None}
    return Message(role, _plain(content), rest)


def _content(value: dict[str, Any]) -> Message:
    """Return a content of Google's API."""
    parts = value.get("parts")
    role = {"model": "assistant"}.get(_text(value.get("role")), _text(value.get("role")) or "user")
    if any("functionResponse" in each for each in _dicts(parts)):
        role = "tool"
    return Message(role, _plain(parts))


# An answer's facts, in each dialect: a reader gets the answer, or its parts, and at last None

_Reader = Generator[None, dict[str, Any] | None, None]


def _read_nothing(_: Facts) -> _Reader:
    """Read nothing from an operation that has no facts of its own."""
    while (yield) is not None:
        pass


def _read_chat(report: Facts) -> _Reader:
    """Read a chat completion, or the chunks of one."""
    choices: dict[int, dict[str, Any]] = {}
    while (value := (yield)) is not None:
        report.model = _text(value.get("model")) or report.model
        report.response_id = report.response_id or _text(value.get("id"))
        if used := _dict(value.get("usage") or _dict(value.get("x_groq")).get("usage")):
            report.input_tokens = _count(used, "prompt_tokens")
            report.output_tokens = _count(used, "completion_tokens")
            report.cached_tokens = _count(used, "prompt_tokens_details", "cached_tokens")
            report.reasoning_tokens = _count(used, "completion_tokens_details", "reasoning_tokens")
        for choice in _dicts(value.get("choices")):
            state = choices.setdefault(_count(choice, "index") or 0, {"finish": "", "calls": {}})
            state["finish"] = _text(choice.get("finish_reason")) or state["finish"]
            if "text" in choice:  # the legacy completions
                _append(state, "content", _text(choice["text"]))
            is_part = choice.get("delta") is not None
            part = choice["delta"] if is_part else choice.get("message")
            _gather(state, _dict(part), joined=is_part)
    messages, calls = [], []
    for _, gathered in sorted(choices.items()):
        state = _whole(gathered)
        report.finish_reason = report.finish_reason or state.pop("finish")
        asked_for = [state["calls"][key] for key in state["calls"]]
        message = {k: v for k, v in state.items() if k not in ("finish", "calls")}
        if asked_for:
            message["tool_calls"] = asked_for
        messages.append(_message(message, "assistant"))
        for each in asked_for:
            part = _dict(each.get("function")) or _dict(each.get("custom"))
            arguments = part.get("arguments", part.get("input"))
            calls.append(
                ToolCall(_text(each.get("id")), _text(part.get("name")), _parsed(arguments))
            )
    report.messages_out, report.tool_calls = tuple(messages), tuple(calls)


def _gather(state: dict[str, Any], part: dict[str, Any], *, joined: bool) -> None:
    """Add a message of a choice, or a difference to it, to what is known of it."""
    for name, value in part.items():
        if name == "tool_calls":
            for position, each in enumerate(_dicts(value)):
                key = _count(each, "index")
                _add_call(state["calls"], position if key is None else key, each)
        elif value is None:
            continue
        elif joined and name != "role" and isinstance(value, str):
            _append(state, name, value)
        else:
            state[name] = value


def _add_call(calls: dict[int, dict[str, Any]], key: int, part: dict[str, Any]) -> None:
    """Add a piece of a tool call: texts of its function are joined."""
    call = calls.setdefault(key, {})
    for name, value in part.items():
        if name in ("function", "custom") and isinstance(value, dict):
            inner = call.setdefault(name, {})
            for field, piece in value.items():
                if field in ("arguments", "input") and isinstance(piece, str):
                    _append(inner, field, piece)
                else:
                    inner[field] = piece or inner.get(field)
        elif name != "index" and value is not None:
            call[name] = value


def _read_responses(report: Facts) -> _Reader:
    """Read a response, or the events of one; of one cut short, the items that were complete."""
    whole: dict[str, Any] = {}
    items: list[dict[str, Any]] = []
    while (value := (yield)) is not None:
        if isinstance(value.get("response"), dict):
            whole = value["response"]
        elif "output" in value and "type" not in value:
            whole = value
        if value.get("type") == "response.output_item.done":
            items.append(_dict(value.get("item")))
        if value.get("type") == "error":
            report.error = _text(value.get("message")) or _error(value.get("error")) or "error"
    items = _dicts(whole.get("output")) or items
    report.model = _text(whole.get("model")) or report.model
    report.response_id = _text(whole.get("id"))
    used = whole.get("usage")
    report.input_tokens = _count(used, "input_tokens")
    report.output_tokens = _count(used, "output_tokens")
    report.cached_tokens = _count(used, "input_tokens_details", "cached_tokens")
    report.reasoning_tokens = _count(used, "output_tokens_details", "reasoning_tokens")
    why = _text(_dict(whole.get("incomplete_details")).get("reason"))
    report.finish_reason = why or _text(whole.get("status"))
    if whole.get("error"):
        report.error = _error(whole["error"])
    report.messages_out = tuple(_item(each) for each in items)
    report.tool_calls = tuple(
        ToolCall(
            _text(each.get("call_id")) or _text(each.get("id")),
            _text(each.get("name")),
            _parsed(each.get("arguments", each.get("input"))),
        )
        for each in items
        if each.get("type") in ("function_call", "custom_tool_call")
    )


def _read_embeddings(report: Facts) -> _Reader:
    """Read embeddings: their vectors are no messages."""
    while (value := (yield)) is not None:
        report.model = _text(value.get("model")) or report.model
        report.input_tokens = _count(value, "usage", "prompt_tokens")


def _read_messages(report: Facts) -> _Reader:
    """Read a message of Anthropic, or the events of one."""
    message: dict[str, Any] = {}
    used: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    while (value := (yield)) is not None:
        kind, index = value.get("type"), _count(value, "index") or 0
        if kind in ("message", "message_start"):
            message = value if kind == "message" else _dict(value.get("message"))
            used |= _dict(message.get("usage"))
            blocks = dict(enumerate(_dicts(message.get("content"))))
        elif kind == "content_block_start":
            blocks[index] = dict(_dict(value.get("content_block")))
        elif kind == "content_block_delta":
            _add_delta(blocks.setdefault(index, {}), _dict(value.get("delta")))
        elif kind == "message_delta":
            message = {**message, **_dict(value.get("delta"))}
            used |= {k: v for k, v in _dict(value.get("usage")).items() if v is not None}
    blocks = _whole(blocks)
    for block in blocks.values():
        if (text := block.pop("partial_json", None)) is not None:
            block["input"] = _parsed(text or "{}")
    content = [blocks[index] for index in sorted(blocks)]
    report.model = _text(message.get("model")) or report.model
    report.response_id = _text(message.get("id"))
    report.finish_reason = _text(message.get("stop_reason"))
    report.cached_tokens = _count(used, "cache_read_input_tokens")
    written = _count(used, "cache_creation_input_tokens")
    report.input_tokens = _sum(_count(used, "input_tokens"), report.cached_tokens, written)
    report.output_tokens = _count(used, "output_tokens")
    report.tool_calls = tuple(
        ToolCall(_text(each.get("id")), _text(each.get("name")), each.get("input"))
        for each in content
        if each.get("type") == "tool_use"
    )
    report.messages_out = (Message("assistant", _plain(content)),) if content else ()


_DELTAS = {"text": "text", "thinking": "thinking", "signature": "signature"}


def _add_delta(block: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a difference to a block of Anthropic's content."""
    for name in (*_DELTAS, "partial_json"):
        if isinstance(delta.get(name), str):
            _append(block, name, delta[name])
    if isinstance(delta.get("citation"), dict):
        block["citations"] = [*(block.get("citations") or []), delta["citation"]]


def _read_content(report: Facts) -> _Reader:
    """Read a response of Google's API, or the chunks of one."""
    parts: dict[int, list[dict[str, Any]]] = {}
    while (value := (yield)) is not None:
        report.model = _text(value.get("modelVersion")) or report.model
        report.response_id = _text(value.get("responseId")) or report.response_id
        if used := _dict(value.get("usageMetadata")):
            thoughts = _count(used, "thoughtsTokenCount")
            asks = (_count(used, "promptTokenCount"), _count(used, "toolUsePromptTokenCount"))
            report.input_tokens = _sum(*asks)
            report.output_tokens = _sum(_count(used, "candidatesTokenCount"), thoughts)
            report.cached_tokens = _count(used, "cachedContentTokenCount")
            report.reasoning_tokens = thoughts
        if blocked := _text(_dict(value.get("promptFeedback")).get("blockReason")):
            report.finish_reason = blocked
        for choice in _dicts(value.get("candidates")):
            index = _count(choice, "index") or 0
            if index == 0:
                report.finish_reason = _text(choice.get("finishReason")) or report.finish_reason
            for part in _dicts(_dict(choice.get("content")).get("parts")):
                _add_part(parts.setdefault(index, []), part)
    parts = _whole(parts)
    report.messages_out = tuple(
        Message("assistant", _plain(each)) for _, each in sorted(parts.items())
    )
    report.tool_calls = tuple(
        ToolCall(_text(call.get("id")), _text(call.get("name")), call.get("args"))
        for _, each in sorted(parts.items())
        for part in each
        if (call := _dict(part.get("functionCall")))
    )


def _add_part(parts: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Add a part of Google's content; texts of the same kind that follow each other are joined."""
    last = parts[-1] if parts else {}
    same = {*part} == {*last} and part.get("thought") == last.get("thought")
    if "text" in part and same:
        _append(last, "text", _text(part["text"]))
    else:
        parts.append(dict(part))


_READERS: Mapping[str, Callable[[Facts], _Reader]] = {
    "chat.completions": _read_chat,
    "completions": _read_chat,
    "responses": _read_responses,
    "embeddings": _read_embeddings,
    "messages": _read_messages,
    "generate_content": _read_content,
}
"""Readers of answers by the operation's kind."""
