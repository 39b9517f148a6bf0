"""Hansard: `hansard up` with its strict embedded broker and its projector, and real sessions.

Every call is awaited: when it returns, the broker has it on disk. `session` declares its tool
`pure`, one event a step, which is what a span is; `session, effects` declares `once`, the default
of a tool that says nothing: the intent is on disk before the call, too. `import` is the command,
start-up included.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import hansard
from benchmarks.peers._side import Mode, Questions, Server, Trace, alive, start
from hansard import settings
from hansard.broker.lease import peek
from hansard.bus.jetstream.log import RawWorkspace
from hansard.client import opening
from hansard.projections.runner import wait_for
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles

WORKSPACE = "bench"
PROJECTED_S = 60.0
AWAITED = "the call returned: on disk"

MEANS = """
    SELECT r.arm, favg(o.value)
    FROM runs AS r JOIN outcomes AS o ON o.run = r.run
    WHERE r.labels->>'batch' = $1 AND o.metric = 'score'
    GROUP BY r.arm
"""


class HansardWriter:
    """A session a run."""

    def __init__(self, server: Server, mode: Mode) -> None:
        self._effects = "once" if mode.name == "session, effects" else "pure"
        self._record = hansard.connect(workspace=WORKSPACE, data_dir=server.folder)
        self.ids: dict[str, Any] = {}

    def write(self, trace: Trace) -> None:
        """Record a run with a call a step."""
        results = [step.result for step in trace.steps]
        with self._record.run(
            "bench",
            agent="ada",
            role="researcher",
            experiment="bench",
            arm=trace.arm,
            task=trace.task,
            labels={"name": trace.name, "batch": trace.batch},
        ) as session:

            @session.tool(effects=self._effects)
            def search(query: str, number: int) -> dict[str, Any]:
                del query
                return results[number]

            for step in trace.steps:
                search(**step.arguments)
            self.ids[trace.name] = session.run

    def flush(self) -> None:
        """Nothing waits to be sent."""

    def close(self) -> None:
        """Let go of the broker."""
        self._record.close()


class ImportWriter:
    """`hansard import chat-jsonl`: runs are taken together, and are stored when it ends."""

    def __init__(self, server: Server, mode: Mode) -> None:
        del mode
        self._folder = server.folder
        self._lines: list[bytes] = []
        self.ids: dict[str, Any] = {}

    def write(self, trace: Trace) -> None:
        """Keep it: nothing is acknowledged yet."""
        messages: list[dict[str, Any]] = []
        for number, step in enumerate(trace.steps):
            arguments = msgspec.json.encode(step.arguments).decode()
            call = {"name": step.tool, "arguments": arguments}
            asked = [{"id": f"{number}", "type": "function", "function": call}]
            messages.append({"role": "assistant", "content": None, "tool_calls": asked})
            result = msgspec.json.encode(step.result).decode()
            messages.append({"role": "tool", "tool_call_id": f"{number}", "content": result})
        chat = {
            "run": trace.name,
            "workflow": "bench",
            "experiment": "imported",
            "arm": trace.arm,
            "task": trace.task,
            "labels": {"name": trace.name, "batch": trace.batch},
            "messages": messages,
        }
        self._lines.append(msgspec.json.encode(chat) + b"\n")

    def flush(self) -> None:
        """Import what was kept."""
        file = self._folder / "import.jsonl"
        file.write_bytes(b"".join(self._lines))
        self._lines.clear()
        command = [sys.executable, "-m", "hansard", "--data-dir", str(self._folder)]
        command += ["-w", WORKSPACE, "import", "chat-jsonl", str(file), "--json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def close(self) -> None:
        """Nothing is held."""


class Hansard:
    """The side."""

    modes = (
        Mode("session", AWAITED),
        Mode("session, effects", AWAITED),
        Mode("import", "the command ended: on disk"),
    )
    losses = (
        Mode("session", AWAITED),
        Mode("session, writer lives", AWAITED, survives=True),
        Mode("session, effects", AWAITED),
    )

    def versions(self) -> dict[str, str]:
        """Hansard's; the rest is with the machine's."""
        return {"hansard": hansard.__version__}

    def serve(self, folder: Path, ports: Sequence[int]) -> Server:
        """`hansard up`. Its broker chooses a port, and keeps it."""
        del ports
        command = [sys.executable, "-m", "hansard", "--data-dir", str(folder), "-w", WORKSPACE]
        server = start([*command, "up", "--json"], folder, lambda: _serves(folder), {})
        info = peek(folder)
        assert info is not None
        server.others = [info.supervisor_pid, info.server_pid]
        return server

    def writer(self, server: Server, mode: Mode) -> HansardWriter | ImportWriter:
        """Return a writer by a record, or by the command."""
        return (ImportWriter if mode.name == "import" else HansardWriter)(server, mode)

    def readable(self, server: Server, batch: str) -> dict[str, int]:
        """From the log: the steps that each run has an outcome of."""
        found: dict[str, int] = {}
        with hansard.connect(workspace=WORKSPACE, data_dir=server.folder) as record:
            for run, life in record.runs():
                if life.labels.get("batch") == batch:
                    [agent] = record.state(run).agents.values()
                    done = [each for each in agent.steps.values() if each.status == "completed"]
                    found[life.labels["name"]] = len(done)
        return found

    def settle(self, server: Server) -> None:
        """Until the projector has worked in what is on record now."""
        asyncio.run(_projected(server.folder))

    def score(self, server: Server, ids: Mapping[str, Any], scores: Mapping[str, float]) -> None:
        """Record a judge's score for each run."""
        with hansard.connect(workspace=WORKSPACE, data_dir=server.folder) as record:
            for name, value in scores.items():
                record.experiments.score(ids[name], {"score": value}, by="judge")

    @contextlib.contextmanager
    def questions(self, server: Server, batch: str, ids: Mapping[str, Any]) -> Iterator[Questions]:
        """Yield queries in SQL over the tables of `hansard up`, which is stopped meanwhile.

        DuckDB lets one process write, and then no other read.
        """
        self.settle(server)
        server.stop()
        store = Store(TableFiles.of(server.folder, WORKSPACE).path)

        def trail(name: str) -> int:
            told = store.all("FROM trail($1)", [ids[name]])
            return len([row for row in told if row[3] == "got"])

        def means() -> dict[str, float]:
            return dict(store.all(MEANS, [batch]))

        def compared() -> object:
            return store.all("FROM comparisons('bench', only_metric := 'score')")

        yield Questions(trail, {"SQL": means}, {"paired comparison": compared})
        store.close()
        again = self.serve(server.folder, ())
        server.process, server.others = again.process, again.others


def _serves(folder: Path) -> bool:
    """Return whether a broker is up: a killed one leaves its state behind."""
    info = peek(folder)
    return info is not None and alive(info.server_pid) and alive(info.supervisor_pid)


async def _projected(folder: Path) -> None:
    wanted = settings.load({}, data_dir=folder, workspace=WORKSPACE)
    broker = await opening.find_broker(wanted)
    raw = await RawWorkspace.open(broker.runtime, WORKSPACE)
    head = (await raw.extent()).last
    await raw.close()
    await broker.release()
    await wait_for(TableFiles.of(folder, WORKSPACE), head, PROJECTED_S)


SIDE = Hansard()
