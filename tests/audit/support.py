"""Workspaces to audit: queries of their tables, and the findings in them."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hansard import settings as configuration
from hansard.agents.flow import Flow
from hansard.client.opening import reading_raw
from hansard.client.session import _Session
from hansard.domain.agent import DecisionMade
from hansard.inspect.tables import answering
from hansard.projections.table_files import TableFiles
from tests.real.support import CommandOutput, Place


def decided_of_old(session: _Session, inputs: Sequence[str], **fields: Any) -> Flow[None]:
    """State a decision as earlier versions did, which took any text as an input; a flow."""
    facts, scope = session.facts, session.engine.scope("decide")
    plain = {"alternatives": [], "threshold": None, "confidence": None, "because": "", **fields}
    mark, known = facts._mark(scope, "decision", {**plain, "inputs": list(inputs)})
    assert not known
    where = {"fingerprint": mark, "scope": scope.path, "after": scope.after}
    fact = msgspec.convert({**plain, **where, "inputs": list(inputs)}, DecisionMade)
    return facts._note(scope, fact, [])


class Audited(msgspec.Struct, frozen=True):
    """A workspace of a broker that runs."""

    home: Path
    workspace: str

    def call(self, *arguments: str) -> CommandOutput:
        """Run the command line."""
        return Place(self.home).call("--workspace", self.workspace, *arguments)

    def answers(self, *queries: tuple[str, list[object]]) -> list[list[dict[str, Any]]]:
        """Return the tables' answers, up to the head of the log; each query has its parameters."""

        async def work() -> list[list[dict[str, Any]]]:
            settings = configuration.load(workspace=self.workspace, data_dir=self.home)
            messages: list[str] = []
            place = TableFiles.of(self.home, self.workspace)
            async with answering(place, partial(reading_raw, settings), messages.append) as answers:
                return [answers.rows(sql, parameters) for sql, parameters in queries]

        return asyncio.run(work())

    def rows(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        """Return one answer."""
        [answer] = self.answers((sql, list(parameters)))
        return answer

    def value(self, sql: str, *parameters: object) -> Any:
        """Return an answer of one value."""
        [row] = self.rows(sql, *parameters)
        [value] = row.values()
        return value

    def findings(self, flip: float = 0.01) -> dict[str, set[tuple[str, str]]]:
        """Return which views found what, by run."""
        by_run: dict[str, set[tuple[str, str]]] = {}
        for row in self.rows("SELECT * FROM findings($1)", flip):
            by_run.setdefault(row["run"], set()).add((row["view"], row["kind"]))
        return by_run
