"""Imports through the command line, and bulk reads of the resulting record."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

import hansard
from hansard import settings as configuration
from hansard.agents.workspace import RunLife, read_lives
from hansard.cli import main
from hansard.client.opening import reading, reading_raw
from hansard.domain.run import RunAssigned
from hansard.settings import Settings
from tests.cli.support import log_of_its_own
from tests.conftest import THOROUGH
from tests.schemas import check_commit

WORKSPACE = "w"


class CommandOutput(msgspec.Struct, frozen=True):
    """Result of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Lines of stdout, parsed as NDJSON."""
        return [json.loads(line) for line in self.out.splitlines()]


class Stored(msgspec.Struct, frozen=True):
    """A commit in the log."""

    position: int
    subject: str
    body: bytes

    @property
    def run(self) -> str:
        """The run it belongs to; imported runs have ids that a subject carries as they are."""
        return self.subject.split(".")[3]

    @property
    def agent(self) -> str:
        """The agent on whose behalf it was written."""
        agent: str = json.loads(self.body)["actor"]["on_behalf_of"][0]
        return agent

    def events(self, type_: str) -> list[dict[str, Any]]:
        """Return its events of one type: data and stated time."""
        return [
            {**event["data"], "occurred_at": event.get("occurred_at")}
            for event in json.loads(self.body)["events"]
            if event["type"] == type_
        ]


class Place(msgspec.Struct, frozen=True):
    """A broker's folder and a workspace in it."""

    home: Path

    @property
    def settings(self) -> Settings:
        """Settings that locate the workspace."""
        return configuration.load(workspace=WORKSPACE, data_dir=self.home)

    def call(self, *arguments: str) -> CommandOutput:
        """Run the command line, in this process: a process each would take half a second."""
        out, err = io.StringIO(), io.StringIO()
        argv = ["hansard", "--data-dir", str(self.home), "--workspace", WORKSPACE, *arguments]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", argv)
            with log_of_its_own(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    main()
                    code = 0
                except SystemExit as left:
                    code = left.code if isinstance(left.code, int) else 0
        structlog.reset_defaults()
        return CommandOutput(code, out.getvalue(), err.getvalue())

    def imported(self, format_: str, file: Path, experiment: str, arm: str = "") -> dict[str, Any]:
        """Import a file without a bad record; return the summary and the unanswered calls."""
        more = ["--arm", arm] if arm else []
        output = self.call(
            "import", format_, str(file), "--experiment", experiment, *more, "--json"
        )
        assert output.code == 0, output.err
        *listed, summary = output.lines
        unanswered = [(each["run"], each["call_id"]) for each in listed]
        assert {each["kind"] for each in listed} <= {"unanswered"}
        assert summary["unanswered"] == len(unanswered)
        return {**summary, "unanswered": unanswered}

    def lives(self) -> list[RunLife]:
        """Every run's life."""

        async def work() -> list[RunLife]:
            async with reading(self.settings) as workspace:
                return await read_lives(workspace.log)

        listed = asyncio.run(work())
        assert not [life.problem for life in listed if life.problem]
        return listed

    def head(self) -> int:
        """Return the newest position of the log."""

        async def work() -> int:
            async with reading_raw(self.settings) as raw:
                return (await raw.extent()).last

        return asyncio.run(work())

    def fetched(self, recorded: Any) -> Any:
        """Return a recorded value, fetched from the blob store if it is there."""
        if not isinstance(recorded, dict) or recorded.keys() != {"$blob"}:
            return recorded

        async def work() -> bytes:
            async with reading_raw(self.settings) as raw:
                named = (recorded["$blob"]["sha256"], recorded["$blob"]["size"])
                return (await raw.blobs([named]))[named[0]]

        return json.loads(asyncio.run(work()))

    def stored(self) -> list[Stored]:
        """All commits of the log, in order, from their bytes."""

        async def work() -> list[Stored]:
            async with reading_raw(self.settings) as raw:
                head = (await raw.extent()).last
                return [
                    Stored(message.position, message.subject, message.body)
                    async for message in raw.follow(until=head)
                ]

        return asyncio.run(work())


def assigned(life: RunLife) -> RunAssigned:
    """Return the assignment of a run; every imported run of these data sets has one."""
    assignment = life.state.assigned
    assert assignment is not None
    return assignment


@contextlib.contextmanager
def opened(home: Path) -> Iterator[Place]:
    """Open an empty workspace; at the end check its record against the published schema."""
    with hansard.connect(WORKSPACE, data_dir=home):
        place = Place(home)
        yield place
        held_against_the_schema(place)


HELD_RUNS = 20
"""Runs that a quick round holds against the schema, in even steps; a full one holds all."""


def held_against_the_schema(place: Place) -> None:
    """Check that the log is valid by the schema that `hansard schema events` publishes."""
    stored = place.stored()
    owners = sorted({each.run for each in stored})
    held = set(owners if THOROUGH else owners[:: max(1, len(owners) // HELD_RUNS)])
    bodies = [each.body for each in stored if each.run in held]
    assert sum(map(check_commit, bodies)) >= len(bodies)


def write(file: Path, runs: Iterable[dict[str, Any]]) -> int:
    """Write runs as chat-jsonl; how many they were."""
    with file.open("w", encoding="utf-8") as out:
        return sum(bool(out.write(json.dumps(run) + "\n")) for run in runs)
