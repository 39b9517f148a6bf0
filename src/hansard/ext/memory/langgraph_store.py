"""Session memory as a store of LangGraph: an item is a JSON file.

    graph = builder.compile(store=SessionStore(session.memory))

The item of namespace `("users", "ann")` and key `tone` is the file `store/users/ann/tone.json`;
capitals and characters that no path may hold are escaped (`%41` for `A`), so that no two items
share a file on any file system. Reading an item is a step, a search one step for each item that it
reads. A query in words ranks nothing, as in LangGraph's own store without an index. For a session
of the sync client.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, assert_never
from urllib.parse import unquote

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from hansard.agents.memory.twins import Memory
from hansard.bus.errors import NotFound
from hansard.domain.errors import BadValue

FOLDER = "store"
SUFFIX = ".json"
_PLAIN = re.compile(r"[a-z0-9_-]|(?<!^)\.")
Namespace = tuple[str, ...]


class SessionStore(BaseStore):
    """Store of items as files of the agent's own memory."""

    __slots__ = ("_memory", "_reason")

    def __init__(self, memory: Memory, *, reason: str = "") -> None:
        self._memory = memory
        self._reason = reason

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in order; of several puts of one item the last one counts."""
        results: list[Result] = []
        puts: dict[tuple[Namespace, str], PutOp] = {}
        for op in ops:
            match op:
                case GetOp():
                    results.append(self._get(op.namespace, op.key))
                case SearchOp():
                    results.append(self._search(op))
                case PutOp():
                    puts[op.namespace, op.key] = op
                    results.append(None)
                case ListNamespacesOp():
                    results.append(self._namespaces(op))
                case _:
                    assert_never(op)
        if puts:
            self._put(puts.values())
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _put(self, puts: Iterable[PutOp]) -> None:
        """Write all items of a batch as one change."""
        puts = list(puts)
        gone = any(op.value is None for op in puts)
        there = set(self._memory.ls(FOLDER)) if gone else set[str]()
        with self._memory.change(self._reason) as change:
            for op in puts:
                path = path_of(op.namespace, op.key)
                if op.value is not None:
                    change.create(path, _text(op.value))
                elif path in there:
                    change.delete(path)

    def _get(self, namespace: Namespace, key: str) -> Item | None:
        return self._item(path_of(namespace, key))

    def _item(self, path: str) -> SearchItem | None:
        try:
            entry = self._memory.entry(path)
        except NotFound:
            return None
        *namespace, key = _names(path)
        return SearchItem(
            namespace=tuple(namespace),
            key=key,
            value=json.loads(entry.text),
            created_at=datetime.fromisoformat(entry.created_at),
            updated_at=datetime.fromisoformat(entry.changed_at),
        )

    def _search(self, op: SearchOp) -> list[SearchItem]:
        items: list[SearchItem] = []
        skipped = 0
        for path in self._memory.ls(_folder(op.namespace_prefix)):
            if not path.endswith(SUFFIX):
                continue
            if op.filter is None and skipped < op.offset:
                skipped += 1
                continue
            item = self._item(path)
            if item is None or not _fits(item, op.filter):
                continue
            if skipped < op.offset:
                skipped += 1
                continue
            items.append(item)
            if len(items) == op.limit:
                break
        return items

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        names = [_names(path) for path in self._memory.ls(FOLDER) if path.endswith(SUFFIX)]
        namespaces: list[Namespace] = _in_memory(
            [PutOp(tuple(namespace), key, {}) for *namespace, key in names], op
        )
        return namespaces


def path_of(namespace: Namespace, key: str) -> str:
    """Return the file of an item."""
    return f"{_folder(namespace)}/{_escaped(key)}{SUFFIX}"


def _folder(namespace: Namespace) -> str:
    return "/".join([FOLDER, *map(_escaped, namespace)])


def _escaped(name: str) -> str:
    if not name:
        raise BadValue(
            "item", "a part of its namespace is empty", "give each part of its namespace a name"
        )
    return "".join(
        letter
        if _PLAIN.fullmatch(letter) and not (at == 0 and letter == ".")
        else "".join(f"%{byte:02x}" for byte in letter.encode())
        for at, letter in enumerate(name)
    )


def _names(path: str) -> list[str]:
    return [unquote(part) for part in path.removesuffix(SUFFIX).split("/")[1:]]


def _text(value: Mapping[str, Any]) -> str:
    try:
        return f"{json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)}\n"
    except (TypeError, ValueError) as error:
        raise BadValue(
            "item", f"its value is not JSON: {error}", "give texts, numbers, lists"
        ) from error


def _fits(item: SearchItem, condition: dict[str, Any] | None) -> bool:
    """Return whether an item fulfils a filter, as LangGraph evaluates it."""
    if not condition:
        return True
    put = PutOp(item.namespace, item.key, item.value)
    return bool(_in_memory([put], SearchOp(item.namespace, condition)))


def _in_memory(puts: list[PutOp], question: Op) -> Any:
    """Return the result of an operation on a store of LangGraph's own with some items."""
    store = InMemoryStore()
    store.batch(puts)
    return store.batch([question])[0]
