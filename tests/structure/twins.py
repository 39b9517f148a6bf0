"""Makes the classes of the sync client from those of the async one.

    python -m tests.structure.twins [--check]

A module of the async client says everything once, docstrings too. The sync twin of a class is its
text with other names: `async` and `await` go, and what was awaited is driven in the calling thread.
What differs by more than that stands in a base class of each. The module that is made says so, and
is never edited; `tests/structure/test_twins.py` fails where one is out of date.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

import msgspec

SRC = Path(__file__).parents[2] / "src"


class Twin(msgspec.Struct, frozen=True, kw_only=True):
    """A module, and the one that is made of it.

    classes: the async class, function or type variable, and its sync twin. names: further names
    that differ. drives: in what an awaited coroutine is put; an awaited call of a function in
    `calls` is one of its twin.
    """

    source: str
    made: str
    about: str
    classes: dict[str, str]
    names: dict[str, str] = {}
    calls: frozenset[str] = frozenset()
    drives: str = "self._portal.run"

    @property
    def module(self) -> str:
        """The source's name."""
        return "hansard." + self.source.removesuffix(".py").replace("/", ".")


FLOWS = frozenset({"self._drive"})
"""Drives a flow, in either client."""

SESSION = {
    "AsyncCommonSession": "CommonSession",
    "AsyncS": "S",
    "AsyncSession": "Session",
    "stay_async": "stay",
    "within_async": "within",
    "AbstractAsyncContextManager": "AbstractContextManager",
    "hansard.client.session": "hansard.client.session_sync",
}

MEMORY_CALLS = ("view", "ls", "create", "edit", "insert", "delete", "rename", "change")
"""What the adapters ask of a session's memory."""

TWINS = (
    Twin(
        source="integrations/memory/anthropic_tool.py",
        made="integrations/memory/anthropic_tool_sync.py",
        about="Anthropic's memory tool for a session of the sync client",
        classes={"AsyncMemoryTool": "MemoryTool"},
        names={
            "BetaAsyncAbstractMemoryTool": "BetaAbstractMemoryTool",
            "AsyncMemory": "Memory",
            "hansard.agents.memory.twins": "hansard.agents.memory.twins_sync",
        },
        calls=frozenset({"super().execute"}) | {f"self._memory.{name}" for name in MEMORY_CALLS},
    ),
    Twin(
        source="agents/board/twins.py",
        made="agents/board/twins_sync.py",
        about="`session.board` of the sync client",
        classes={"AsyncBoard": "Board", "AsyncTransaction": "Transaction"},
        names={"AsyncDrive": "Drive"},
        calls=FLOWS,
    ),
    Twin(
        source="agents/memory/twins.py",
        made="agents/memory/twins_sync.py",
        about="`session.memory` of the sync client",
        classes={"AsyncMemory": "Memory"},
        names={"AsyncDrive": "Drive"},
        calls=FLOWS | {"self._change"},
    ),
    Twin(
        source="agents/memory/space_twins.py",
        made="agents/memory/space_twins_sync.py",
        about="`record.memory(space)` of the sync client",
        classes={"AsyncMemorySpace": "MemorySpace"},
        names={"SpaceOnLoop": "SpaceOnPortal"},
    ),
    Twin(
        source="agents/team/twins.py",
        made="agents/team/twins_sync.py",
        about="`session.team` of the sync client",
        classes={"AsyncTeam": "Team"},
        names={"AsyncDrive": "Drive"},
        calls=FLOWS,
    ),
    Twin(
        source="client/common.py",
        made="client/common_sync.py",
        about="What every record has for the sync client",
        classes={"AsyncCommonRecord": "CommonRecord", "AsyncSessions": "SyncSessions"},
        names=SESSION,
        calls=frozenset(
            {"self._begin", "self._let_go", "self.close", "session.close", "stay_async"}
        ),
    ),
    Twin(
        source="client/record.py",
        made="client/record_sync.py",
        about="The record of the sync client, long because that of the async one is",
        classes={"AsyncRecord": "Record"},
        names=SESSION | {"OnLoop": "OnPortal", "connect_async": "connect"},
        calls=frozenset({"self.fork", "self.snapshot"}),
    ),
    Twin(
        source="client/session.py",
        made="client/session_sync.py",
        about="The session of the sync client",
        classes={
            "AsyncCommonSession": "CommonSession",
            "AsyncS": "S",
            "AsyncSession": "Session",
            "opened_async": "opened",
            "within_async": "within",
            "stay_async": "stay",
        },
        names={
            "AsyncBoard": "Board",
            "AsyncTeam": "Team",
            "OnLoop": "OnPortal",
            "iterate_async": "iterate",
            "hansard.agents.board.twins": "hansard.agents.board.twins_sync",
            "AsyncMemory": "Memory",
            "hansard.agents.memory.twins": "hansard.agents.memory.twins_sync",
            "hansard.agents.team.twins": "hansard.agents.team.twins_sync",
            "AbstractAsyncContextManager": "AbstractContextManager",
            "begun_async": "begun",
            "AsyncResumable": "Resumable",
            "hansard.client.resumable": "hansard.client.resumable_sync",
        },
        calls=FLOWS
        | {"session.close", "old.close", "begun_async", "self._end_streams"}
        | {"self._block.__aenter__", "self._block.__aexit__"},
    ),
    Twin(
        source="client/resumable.py",
        made="client/resumable_sync.py",
        about="A loop that goes on where it stood, of the sync client",
        classes={"AsyncResumable": "Resumable", "remaining_async": "remaining"},
        calls=frozenset({"drive", "self._left.__anext__", "self._left.aclose"}),
    ),
    Twin(
        source="client/restricted/record.py",
        made="client/restricted/record_sync.py",
        about="The record of a restricted agent, for the sync client",
        classes={"AsyncRestrictedRecord": "RestrictedRecord"},
        names=SESSION
        | {
            "AsyncRecord": "Record",
            "AsyncRestrictedSession": "RestrictedSession",
            "AsyncSessions": "SyncSessions",
            "OnLoop": "OnPortal",
            "hansard.client.common": "hansard.client.common_sync",
            "hansard.client.record": "hansard.client.record_sync",
            "hansard.client.restricted.session": "hansard.client.restricted.session_sync",
        },
        calls=frozenset({"self._ask"}),
    ),
    Twin(
        source="client/restricted/session.py",
        made="client/restricted/session_sync.py",
        about="The session of a restricted agent, for the sync client",
        classes={"AsyncRestrictedSession": "RestrictedSession"},
        names=SESSION,
        calls=FLOWS,
    ),
)

WORDS = {
    "async client": "sync client",
    "async def ": "def ",
    "async with ": "with ",
    "async for ": "for ",
    "asynccontextmanager": "contextmanager",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
}
GENERATOR = re.compile(r"AsyncGenerator\[(.+), None\]")


def text(twin: Twin) -> str:
    """The made module."""
    source = (SRC / "hansard" / twin.source).read_text(encoding="utf-8")
    tree = ast.parse(source)
    found = [each for each in tree.body if {*named(each)} & {*twin.classes}]
    own = [name for each in tree.body for name in named(each) if name not in twin.classes]
    imports = [each for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    head = [
        f'"""{twin.about}.',
        "",
        "Made by `python -m tests.structure.twins`: do not edit it, but",
        f"`{twin.module}`, from which it is made.",
        '"""',
        "",
        *(_named(ast.unparse(each), twin) for each in imports),
        *(f"from {twin.module} import {_named(name, twin)}" for name in own),
    ]
    return _formatted("\n".join([*head, *(_class(source, each, twin) for each in found)]))


def named(node: ast.stmt) -> list[str]:
    """What a statement of a module names."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def _class(source: str, node: ast.stmt, twin: Twin) -> str:
    """A class as its twin is."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    edits: list[tuple[int, int, str]] = []
    for each in ast.walk(node):
        if not isinstance(each, ast.Await):
            continue
        begin = starts[each.lineno - 1] + each.col_offset
        inner = starts[each.value.lineno - 1] + each.value.col_offset
        end = starts[(each.end_lineno or 0) - 1] + (each.end_col_offset or 0)
        called = ast.unparse(each.value.func) if isinstance(each.value, ast.Call) else ""
        if called in twin.calls:
            edits.append((begin, inner, ""))
        else:
            edits += [(begin, inner, f"{twin.drives}("), (end, end, ")")]
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)])
    begin, end = starts[first - 1], starts[node.end_lineno or 0]
    data = source.encode()[:end]
    for at, to, new in sorted(edits, reverse=True):
        data = data[:at] + new.encode() + data[to:]
    return _named(data[begin:].decode(), twin)


def _named(told: str, twin: Twin) -> str:
    """A text with the names and words of the twin."""
    for word, other in WORDS.items():
        told = told.replace(word, other)
    told = GENERATOR.sub(r"Generator[\1, None, None]", told)
    told = told.replace("AsyncGenerator", "Generator").replace("AsyncIterator", "Iterator")
    for name, other in {**twin.classes, **twin.names}.items():
        told = re.sub(rf"\b{re.escape(name)}\b", other, told)
    return told


def _formatted(told: str) -> str:
    """As the house formats it, without imports that it does not use."""
    fix = ["check", "--quiet", "--fix", "--exit-zero", "--select"]
    for arguments in ([*fix, "F401,F811", "-"], [*fix, "I", "-"], ["format", "--quiet", "-"]):
        command = [sys.executable, "-m", "ruff", *arguments]
        done = subprocess.run(
            command, input=told, text=True, capture_output=True, check=True, cwd=SRC.parent
        )
        told = done.stdout
    return told


def stale() -> list[str]:
    """The made modules that are not what would be made now."""
    return [
        each.made
        for each in TWINS
        if not (path := SRC / "hansard" / each.made).exists()
        or path.read_text(encoding="utf-8") != text(each)
    ]


def main() -> int:
    """Make them, or with `--check` say which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        old = stale()
        for name in old:
            print(f"{name} is out of date: run python -m tests.structure.twins")  # noqa: T201 -- it is what is asked for
        return len(old)
    for each in TWINS:
        (SRC / "hansard" / each.made).write_text(text(each), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
