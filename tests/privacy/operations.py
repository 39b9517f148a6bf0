"""Calls of each public operation with a secret in each of its texts, and where it is stored then.

Operations and arguments are found by reflection, so that a new one is tried without an edit here.
An operation that does not succeed without a secret, for want of a sample say, fails the test unless
`SKIPPED` has the reason.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import inspect
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import msgspec

import hansard
from hansard.bus.portal import portal
from hansard.domain import actions as caches
from hansard.domain.actions import ActionCache, ActionsEnd, CachedAction, ElementTargets, PageMark
from hansard.domain.errors import HansardError
from hansard.domain.roles import check as role_file
from hansard.operations.protocol.faults import NotOffered
from tests.conftest import THOROUGH

SECRET = "sk-hunter2-ocelot"
TEXTS = (f"a {SECRET} b", SECRET)
REDACT: dict[str, Any] = {"redact": {"key": SECRET}}

ROLE = '[roles.r9]\nabout = "x"\n[[roles.r9.sees]]\nname = "all"\nkinds = ["**"]\n'

_REASONS = {
    "takes a class of another library": "application noun",
    "tells the environment of another library": "application_env",
    "learns from, or keeps, what runs of a browser taught": (
        "experiences.learn experiences.keep experiences.get experiences.log experiences.confirm "
        "experiences.publish experiences.install experiences.retire"
    ),
    "reads runs of a browser": "actions.of_run",
    "ends the record or the session": "close",
    "is `run` without a block": "open",
    "is what a declared tool does: see `tool`": "call",
    "goes on for as long as the record is open": "follow",
    "writes a folder of its own": "behind",
    "takes functions alone": "thread gather",
    "makes a session the current one": "use",
    "takes a class or values of the program's own": "get save",
}
NOUNS = ("prompts", "actions", "experiences", "experiments", "roles", "approvals")

SKIPPED = {name for names in _REASONS.values() for name in names.split()}
"""Operations that are not called here, and why."""


class Place:
    """A workspace with everything that its operations need. `record` redacts nothing."""

    def __init__(self, record: Any, folder: Path, by: str = "me") -> None:
        self.by = by
        self.record = record
        self.folder = folder
        self.number = 0
        self.session: Any = None
        self.waiting: list[threading.Thread] = []
        self.approved: set[str] = set()
        record.memory("agent/a").set_policy("off", by="me")
        record.memory("agent/ada").set_policy("off", by="me")
        record.memory("org").set_policy("off", by="me")

    def head(self) -> int:
        """Return the newest position of the log."""
        position: int = portal().run(self.record.workspace.log.head())
        return position

    def new(self, kind: str = "n") -> str:
        """Return an unused name."""
        self.number += 1
        return f"{kind}-{self.number}"

    def run(self) -> str:
        """Return a run that is open."""
        with self.record.run("w", agent="bob", role="writer") as session:
            session.message("user", "x")
        return str(session.run)

    def troubled(self) -> str:
        """Return a run with a step in doubt and a task that failed."""
        with contextlib.suppress(RuntimeError):  # noqa: SIM117 -- the run is to be left open
            with self.record.run("w", agent="bob", role="writer") as session:
                number = session.run

                @session.tool(effects="once")
                def lost() -> None:
                    raise TimeoutError

                session.team.add("t", task="t")
                session.team.fail(session.team.claim(), "no")
                with contextlib.suppress(TimeoutError):
                    lost()
                raise RuntimeError
        return str(number)

    def prompt(self) -> str:
        """Return a version of a prompt."""
        name = self.new("prompt")
        self.record.prompts.add(name, "a text")
        return f"{name}@1"

    def experiment(self) -> str:
        """Return an experiment that is registered."""
        name = self.new("experiment")
        self.record.experiments.register(name, _plan())
        return name

    def doubt(self) -> str:
        """Return a run whose step 1 is in doubt."""
        with (
            contextlib.suppress(TimeoutError),
            self.record.run("w", agent="bob", role="writer") as session,
        ):

            @session.tool(effects="once")
            def lost() -> None:
                raise TimeoutError

            lost()
        return str(session.run)

    def failed(self) -> str:
        """Return a task of the session that failed."""
        name = self.session.team.add(self.new("task"))
        self.session.team.fail(self.session.team.claim(), "no")
        return str(name)

    def compared(self) -> str:
        """Return an experiment that has a run."""
        name = self.experiment()
        with self.record.run("w", agent="bob", role="writer", experiment=name, task="t"):
            pass
        return name

    def session_space(self) -> str:
        """Return the space of the session's agent."""
        return f"agent/{self.session.engine.stream.agent}"

    def change(self, space: str) -> str:
        """Return a change of a space that can be undone."""
        version = self.record.memory(space).create(f"{self.new('file')}.md", "x\n", by="me")
        if self.by == "me":
            return f"@{version}"
        history = self.record.memory(space).history()
        return str(history[-1].event)

    def cache(self) -> str:
        """Return an action cache with two versions, kept under a name."""
        name = self.new("cache")
        self.record.actions.keep(name, _cache())
        self.record.actions.keep(name, _cache("another"))
        return name

    def approval(self) -> str:
        """Return an approval that an agent waits for."""
        gate = [hansard.ask_first("ask*", timeout_s=2)]

        def ask() -> None:
            with self.record.run("w", agent="bob", role="writer", gate=gate) as session:

                @session.tool(effects="once")
                def ask_it() -> None: ...

                with contextlib.suppress(HansardError):
                    ask_it()

        waiting = threading.Thread(target=ask)
        waiting.start()
        self.waiting.append(waiting)
        while True:
            for each in self.record.approvals.list():
                if each.standing == "pending" and each.approval.id not in self.approved:
                    self.approved.add(each.approval.id)
                    return str(each.approval.id)

    def labelled(self) -> str:
        """Return a run whose agent was shown a secret."""
        with self.record.run("w", agent="bob", role="writer") as session:
            session.message("user", "x", label="secret")
        return str(session.run)

    def long(self) -> int:
        """Return how many messages to keep of a longer session."""
        for _ in range(4):
            self.session.message("user", "hello")
        return 1

    def decision(self) -> str:
        """Return a decision of a run."""
        with self.record.run("w", agent="bob", role="writer") as session:
            session.decide("which?", selected="a")
        return f"{session.run}"

    def snapshot(self) -> Any:
        """Return a snapshot of a run."""
        with self.record.run("w", agent="bob", role="writer") as session:
            session.message("user", "x")
            return session.snapshot().snapshot_id

    def file(self) -> str:
        """Return a file in all the spaces that are written here."""
        name = f"{self.new('file')}.md"
        for space in ("org", "agent/a", "agent/ada"):
            self.record.memory(space).create(name, "one text\n", by="me")
        return name

    def claimed(self) -> Any:
        """Return a task that the session has claimed."""
        self.session.team.add(self.new("task"))
        return self.session.team.claim()

    def role(self) -> str:
        """Return a role that has rules."""
        name = self.new("role")
        self.record.roles.apply(name, role_file.parse(ROLE)["r9"])
        return name

    def roles(self) -> Path:
        """Return a file of roles."""
        path = self.folder / f"{self.new('roles')}.toml"
        path.write_text(ROLE)
        return path


def _plan(**more: Any) -> Any:
    metrics = [{"name": "m", "better": "higher"}]
    return hansard.experiments.plan(arms=["a", "b"], metrics=metrics, **more)


def _cache(instruction: str = "press it") -> ActionCache:
    action = CachedAction(
        step_index=0,
        instruction=instruction,
        element_id="0-7",
        method="fill",
        arguments=["Ada"],
        frame_index=0,
        xpath="/html[1]/body[1]/input[1]",
        action_type="actElement",
        success=True,
        message="done",
        effects="idempotent",
        action_params={"k": "v"},
        targets=ElementTargets(label="Name"),
        page=PageMark(address="https://x.org/", digest="d"),
    )
    end = ActionsEnd(success=True, duration=0.5)
    return ActionCache(actions=[action], final_state=end, format=caches.FORMAT, run="r")


SAMPLES: dict[str, Callable[[Place], Any]] = {
    "run": Place.run,
    "settle.run": Place.doubt,
    "cancel.run": lambda place: place.troubled(),
    "declassify.agent": lambda _: "bob",
    "declassify.run": Place.labelled,
    "find.task": lambda _: "buy it",
    "give_feedback.text": lambda _: "too long",
    "invalidate.tool": lambda _: "t",
    "promote.reason": lambda _: "better",
    "view.role": lambda _: "writer",
    "session.view.role": lambda _: None,
    "team.hand_off.role": lambda _: "writer",
    "wait_for.key": lambda _: "k",
    "wait_for.timeout_s": lambda _: 0.01,
    "reopen.task": lambda _: "t",
    "team.reopen.task": Place.failed,
    "compact.keep": Place.long,
    "compare.experiment": Place.compared,
    "evolve.feedback": lambda _: "too_verbose",
    "review.version": lambda _: 1,
    "actions.revert.to": lambda _: 1,
    "record.open.workflow": lambda _: "w",
    "record.run.workflow": lambda _: "w",
    "optimize.tasks": lambda _: {f"t{number}": 1 for number in range(8)},
    "space.revert.change": lambda place: place.change("org"),
    "memory.revert.change": lambda place: place.change(place.session_space()),
    "reopen.run": Place.troubled,
    "runs": lambda place: [place.run()],
    "workflow": lambda _: "w",
    "reference": Place.prompt,
    "alias": lambda place: place.new("alias"),
    "name": Place.new,
    "stop.name": Place.experiment,
    "experiments.get.name": Place.experiment,
    "roles.show.name": Place.role,
    "roles.withdraw.name": Place.role,
    "prompts.log.name": lambda place: place.prompt().split("@")[0],
    "conversation.name": lambda place: place.new("conversation"),
    "actions.get.name": Place.cache,
    "actions.log.name": Place.cache,
    "actions.revert.name": Place.cache,
    "actions.review.name": Place.cache,
    "experiment": Place.experiment,
    "text": lambda place: place.new("text"),
    "plan": lambda _: _plan(),
    "rules": lambda _: role_file.parse(ROLE)["r9"],
    "cache": lambda place: _cache(place.new("i")),
    "path": Place.file,
    "apply_file.path": Place.roles,
    "create.path": lambda place: f"{place.new('file')}.md",
    "remember.path": lambda place: f"{place.new('file')}.md",
    "command.path": lambda place: f"{place.new('file')}.md",
    "to": lambda place: f"{place.new('file')}.md",
    "declassify.to": lambda _: "public",
    "hand_off.to": lambda _: "bob",
    "old": lambda _: "one",
    "new": lambda _: "two",
    "line": lambda _: 1,
    "by": lambda place: place.by,
    "approver": lambda _: "me",
    "reason": lambda _: "why",
    "task": lambda _: "t",
    "step": lambda _: "bob#1",
    "verdict": lambda _: "did_not_happen",
    "metrics": lambda _: {"m": 1.0},
    "amounts": lambda _: {"input": 1.0},
    "model": lambda place: place.new("model"),
    "since": lambda _: datetime.now(UTC),
    "feedback": lambda _: "shorter",
    "evolve.using": lambda _: lambda before, _: f"{before.text} more",
    "evaluator": lambda _: lambda _: {"m": 1.0},
    "approval": Place.approval,
    "set_policy.approval": lambda _: "off",
    "question": lambda _: "SELECT 1",
    "decision": Place.decision,
    "snapshot": Place.snapshot,
    "change": lambda _: "@1",
    "pattern": lambda _: "x",
    "key": lambda place: place.new("key"),
    "item": lambda _: 1,
    "value": lambda _: 1,
    "content": lambda _: "hello",
    "selected": lambda _: "a",
    "uri": lambda _: "https://x.org",
    "role": lambda _: "user",
    "send.role": lambda _: "writer",
    "title": lambda _: "do it",
    "complete.task": Place.claimed,
    "extend.task": Place.claimed,
    "fail.task": Place.claimed,
    "release.task": Place.claimed,
    "team.hand_off.task": Place.claimed,
    "merge": lambda _: "max",
    "error": lambda _: "it failed",
    "items": lambda _: [1],
    "summarize": lambda _: lambda _: "short",
    "said": lambda _: "remember: x",
    "before": lambda place: "@1" if place.by == "me" else "2026-01-01T00:00:00Z",
    "tasks": lambda _: {"t": 1},
    "evaluate": lambda _: lambda *_: 1.0,
    "propose": lambda _: lambda *_: "another text",
    "timeout_s": lambda _: 0.01,
}
"""A value for an argument without a default, by its name or the operation's and its own."""


class Operation:
    """One public method of a target."""

    def __init__(self, target: str, name: str, method: Callable[..., Any]) -> None:
        self.target = target
        self.name = name
        function = inspect.unwrap(method)
        self.parameters = dict(inspect.signature(method).parameters)
        self.parameters.pop("self", None)
        self.options: dict[str, str] = {}
        for parameter in list(self.parameters.values()):
            match = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
            if match is not None:
                annotations = function.__globals__[match[1]].__annotations__
                self.options = {key: _annotation(each) for key, each in annotations.items()}
                del self.parameters[parameter.name]

    def __str__(self) -> str:
        return f"{self.target}.{self.name}"

    def sample(self, place: Place, name: str) -> Any:
        """Return a sample value for an argument.

        Raises:
            KeyError: There is none.
        """
        last = self.target.rpartition(".")[2]
        for key in (f"{last}.{self.name}.{name}", f"{self.name}.{name}", name):
            if key in SAMPLES:
                return SAMPLES[key](place)
        raise KeyError(f"a sample of {self}({name})")

    def has_own(self, name: str) -> bool:
        """Return whether there is a sample for this operation's argument alone."""
        last = self.target.rpartition(".")[2]
        return f"{self.name}.{name}" in SAMPLES or f"{last}.{self.name}.{name}" in SAMPLES

    def base(self, place: Place) -> dict[str, Any]:
        """Return the arguments of a call without a secret."""
        return {
            name: self.sample(place, name)
            for name, parameter in self.parameters.items()
            if (parameter.default is inspect.Parameter.empty or self.has_own(name))
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }

    def secrets(self, texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yield each argument that may contain a text, with its value."""
        for name, parameter in self.parameters.items():
            annotation = _annotation(parameter.annotation)
            if parameter.kind is parameter.VAR_KEYWORD:
                yield from ((text, 1.0) for text in texts)
                name = "k"  # noqa: PLW2901 -- some name
            elif parameter.kind is parameter.VAR_POSITIONAL:
                continue
            yield from ((name, each) for each in _with_secret(annotation, texts))
        for name, annotation in self.options.items():
            yield from ((name, each) for each in _with_secret(annotation, texts))

    def call(self, target: Any, arguments: dict[str, Any]) -> None:
        """Call it; enter and leave its context manager, or read its stream to the end."""
        named = dict(arguments)
        first = [
            named.pop(name)
            for name, parameter in self.parameters.items()
            if parameter.kind is parameter.POSITIONAL_ONLY
        ]
        made = getattr(target, self.name)(*first, **named)
        if hasattr(made, "__enter__"):
            with made:
                pass
        elif inspect.isgenerator(made):
            list(made)


def _annotation(annotation: Any) -> str:
    return str(getattr(annotation, "__forward_arg__", annotation))


def _with_secret(annotation: str, texts: Sequence[str]) -> Iterator[Any]:
    """Values of an annotation that hold a secret."""
    if re.search(r"Callable|bytes|\bPath\b|PathLike|Evolver|Sentences|Settle|Provider", annotation):
        return
    for text in texts:
        if annotation.startswith("Mapping[str, float]"):
            yield {text: 1.0}
        elif annotation.startswith("Mapping[str, str]"):
            yield from ({"k": text}, {text: "v"})
        elif annotation.startswith(("Mapping[str, Any]", "Mapping[str, object]")):
            yield from ({"k": text}, {"k": [{"deep": f"{text}!"}]}, {text: 1})
        elif re.search(r"Sequence\[|Iterable\[", annotation):
            yield [text]
        elif annotation in ("Any", "object", "Any | None"):
            yield from (text, {"k": [text]}, text.encode())
        elif annotation in ("ExperimentRegistered", "RoleDefined", "ActionCache"):
            yield annotation, text
        elif re.search(r"\bstr\b", annotation):
            yield text


def _structs(kind: str, text: str) -> Iterator[Any]:
    """Yield structs with a secret in one of their texts, of each variant."""
    made = {
        "ExperimentRegistered": _plan(question="q", because="b", salt="s", unit="u"),
        "RoleDefined": role_file.parse(ROLE)["r9"],
        "ActionCache": _cache(),
    }[kind]
    plain = msgspec.to_builtins(made)
    for path in _texts(plain):
        copy = msgspec.json.decode(msgspec.json.encode(plain))
        inner = copy
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = text
        with contextlib.suppress(msgspec.ValidationError):  # an enum has no such text
            yield msgspec.convert(copy, type(made))


def _texts(plain: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(plain, str):
        yield path
    elif isinstance(plain, dict):
        for key, each in plain.items():
            yield from _texts(each, (*path, key))
    elif isinstance(plain, list):
        for number, each in enumerate(plain):
            yield from _texts(each, (*path, number))


def _operations(target: str, instance: Any) -> list[Operation]:
    names = [name for name in dir(type(instance)) if not name.startswith("_")]
    return [
        Operation(target, name, getattr(type(instance), name))
        for name in names
        if SKIPPED.isdisjoint((name, f"{target}.{name}".removeprefix("record.")))
        and callable(getattr(type(instance), name))
    ]


def tried(place: Place, target: str, reached: Callable[[], Any], half: int) -> list[str]:
    """Call each operation of a target on a fresh one; return the failures.

    In a quick run one argument in two holds a secret: those of a half, 0 or 1.
    """
    wrong: list[str] = []
    with _reached(place, reached) as reachable:
        operations = _operations(target, reachable)
    for number, operation in enumerate(operations):
        try:
            with _reached(place, reached) as reachable:
                arguments = operation.base(place)
                head = place.head()
                operation.call(reachable, arguments)
                writes = place.head() > head
        except NotOffered:
            continue
        except Exception as error:  # noqa: BLE001 -- every error is reported
            wrong.append(f"{operation} without a secret: {type(error).__name__}: {error}"[:300])
            continue
        for turn, (name, value) in enumerate(operation.secrets(TEXTS)):
            if name == "redact" or turn % 2 == (1 if not writes else turn // 2 % 2):
                continue  # one of both texts, in turn
            if not THOROUGH and (number + turn // 2) % 2 != half:
                continue
            pair = isinstance(value, tuple)
            for each in _structs(*value) if pair else [value]:
                try:
                    with _reached(place, reached) as reachable:
                        operation.call(reachable, operation.base(place) | {name: each})
                except HansardError as error:
                    if SECRET in str(error):
                        wrong.append(f"{operation}({name}): the error repeats it: {error}"[:300])
                except (TypeError, ValueError, AttributeError):
                    pass  # a text is none of what this argument takes
    return wrong


@contextlib.contextmanager
def _reached(place: Place, reached: Callable[[], Any]) -> Iterator[Any]:
    made: Any = reached()
    if not isinstance(made, contextlib.ContextDecorator):
        yield made
        return
    block: Any = made
    with contextlib.suppress(_Left), block as (session, target):
        place.session = session
        yield target


class _Left(Exception):
    pass


def targets(record: Any, **who: str) -> dict[str, Callable[[], Any]]:
    """Return the objects with operations, each with a way to reach it."""

    @contextlib.contextmanager
    def within(inner: Callable[[Any], Any], block: bool = False) -> Iterator[Any]:
        with record.run("w", **who) as session:
            if not block:
                yield session, inner(session)
                return
            with inner(session) as opened:
                yield session, opened

    return {
        "record": lambda: record,
        **{f"record.{noun}": partial(getattr, record, noun) for noun in NOUNS},
        "space": lambda: record.memory("org"),
        "session": lambda: within(lambda session: session),
        "memory": lambda: within(lambda session: session.memory),
        "memory.change": lambda: within(lambda session: session.memory.change("why"), block=True),
        "board": lambda: within(lambda session: session.board),
        "board.transaction": lambda: within(
            lambda session: session.board.transaction(), block=True
        ),
        "team": lambda: within(lambda session: session.team),
    }


def stored_secrets(folder: Path) -> list[str]:
    """Return where the secret is stored under a folder: file bytes, table columns, base64."""
    places: list[str] = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # it was replaced meanwhile
            continue
        if SECRET.encode() in data:
            at = data.index(SECRET.encode())
            places.append(f"{path.relative_to(folder)}: {data[max(0, at - 200) : at + 60]!r}")
        for coded in re.findall(rb'"\$bytes(?:array)?":"([^"]*)"', data):
            with contextlib.suppress(binascii.Error):  # it is not base64: the end is another text's
                if SECRET.encode() in base64.b64decode(coded):
                    places += [f"{path.relative_to(folder)}: base64"]
        if path.suffix == ".duckdb":
            places += _in_duckdb(path)
        elif data[:15] == b"SQLite format 3":
            places += _in_sqlite(path)
    return places


def _in_duckdb(path: Path) -> list[str]:
    with duckdb.connect(str(path), read_only=True) as database:
        tables = database.execute(
            "SELECT table_name, list(column_name) FROM duckdb_columns() WHERE NOT internal"
            " AND table_name IN (SELECT table_name FROM duckdb_tables()) GROUP BY ALL"
        ).fetchall()
        places = []
        for table, columns in tables:
            holds = ", ".join(f'bool_or(contains("{each}"::VARCHAR, $1))' for each in columns)
            row = database.execute(f'SELECT {holds} FROM "{table}"', [SECRET]).fetchone() or ()
            holding = [column for column, held in zip(columns, row, strict=True) if held]
            places += [f"{path.name}: {table}.{column}" for column in holding]
        return places


def _in_sqlite(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return [f"{path.name}" for line in database.iterdump() if SECRET in line][:1]
