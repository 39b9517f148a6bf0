"""Results of operations over the wire and back: our own structs, which values cannot hold."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec

from hansard.agents.access.roles import View
from hansard.agents.annotations.statements import Checkpoint
from hansard.agents.artifacts.prompts import Prompt
from hansard.agents.board import BoardEntry
from hansard.agents.experiments.plans import Arm
from hansard.agents.memory.reading import MemoryEntry, MemoryNews, MemoryVersion
from hansard.agents.memory.search import SearchResult
from hansard.agents.memory.store import BlamedLine
from hansard.agents.team.tasks import Mail, Task, TaskEntry
from hansard.bus.clock import Slices
from hansard.domain.actions.cache import ActionCache
from hansard.domain.board import KeyKind
from hansard.domain.errors import BadValue
from hansard.inspect.actions import ActionsLog, KeptCaches
from hansard.inspect.experiments import PromptEvidence, PromptReport
from hansard.inspect.savings import Savings, SavingsAnswer
from hansard.operations.protocol import wire
from hansard.operations.reports import Shown
from hansard.operations.sql_answer import SqlAnswer

LINES_AT_ONCE = 50
"""Lines of a view that are encoded between two checks of the clock."""


def encode_arm(arm: Arm | None) -> msgspec.Raw:
    """Encode a run's arm."""
    return wire.dump(None if arm is None else msgspec.structs.asdict(arm), "arm")


def decode_arm(raw: msgspec.Raw) -> Arm | None:
    """Decode a run's arm."""
    fields = wire.load(raw)
    return None if fields is None else Arm(**fields)


async def encode_result(result: Any) -> msgspec.Raw:
    """Encode the result of an operation; a view, which may be long, in slices.

    An action cache is encoded as in its file: a secret in it is a name, for the program that
    replays it.
    """
    match result:
        case View():
            return await _view(result)
        case ActionCache():
            return msgspec.Raw(wire.encode(result))
        case _:
            return wire.dump(_fields(result))


def decode_result(raw: msgspec.Raw, result: Any) -> Any:
    """Decode the result of an operation to its declared type. Raises BadValue."""
    try:
        if result in (View, ActionCache):
            return msgspec.json.decode(raw, type=result)
        value = wire.load(raw)
        return value if result is Any else msgspec.convert(value, result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("the service's answer", str(error)[:200], wire.ONE_VERSION) from error


def _fields(result: Any) -> Any:
    match result:
        case SqlAnswer():
            return {k: v for k, v in msgspec.structs.asdict(result).items() if k != "ipc"}
        case BoardEntry() | Checkpoint() | Task() | TaskEntry() | Mail() | Savings():
            fields = msgspec.structs.asdict(result)
            return {
                name: value.value if isinstance(value, KeyKind) else value
                for name, value in fields.items()
            }
        case Prompt():
            label = msgspec.to_builtins(result.label)
            return msgspec.structs.asdict(result) | {"label": label}
        case SavingsAnswer():
            return {"position": result.position, "rows": _fields(result.rows)}
        case PromptReport() | PromptEvidence():
            return msgspec.to_builtins(result)
        case MemoryEntry() | MemoryVersion() | MemoryNews() | BlamedLine() | SearchResult():
            return msgspec.to_builtins(result)
        case Shown() | KeptCaches() | ActionsLog():
            return msgspec.to_builtins(result, builtin_types=(bytes, datetime, date, time, Decimal))
        case list():
            return [_fields(each) for each in result]
        case _:
            return result


async def _view(view: View) -> msgspec.Raw:
    """Encode a view in slices, to the same bytes as at once."""
    lines: list[bytes] = []
    async with Slices() as slices:
        for start in range(0, len(view.events), LINES_AT_ONCE):
            lines.append(wire.encode(view.events[start : start + LINES_AT_ONCE])[1:-1])
            if slices.over:
                await slices.pause()
    fields = {name: getattr(view, name) for name in view.__struct_fields__}
    fields["events"] = msgspec.Raw(b"[" + b",".join(lines) + b"]")
    return msgspec.Raw(wire.encode(fields))
