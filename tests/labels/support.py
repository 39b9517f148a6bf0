"""Helpers of label tests: roles, and the labels and refusals of a run's commits."""

from typing import Any

from hansard.bus.log import Stored
from hansard.client.record import Record
from hansard.domain.roles import check as role_file

ROLES = """
[roles.researcher]
clearance = "secret"
sees = [{ name = "all", kinds = ["**"] }]
may = { tools = ["**"], kinds = ["**"], keys = ["**"] }
[roles.clerk]
sees = [{ name = "all", kinds = ["**"] }]
may = { tools = ["**"], kinds = ["**"], keys = ["**"] }
[roles.lead]
clearance = "secret"
sees = [{ name = "all", kinds = ["**"] }]
may = { approve = true }
"""
"""A researcher and a lead with full clearance, and a clerk with public clearance."""


def apply_roles(record: Record) -> None:
    """Give the workspace its roles."""
    for name, rules in role_file.parse(ROLES).items():
        record.roles.apply(name, rules)


def history(record: Record, run: str) -> list[Stored]:
    """Return all commits of a run, in the log's order."""
    commits: list[Stored] = record._portal.run(record.workspace.states.history(run))
    return commits


def label_of(record: Record, run: str, tag: str, agent: str = "") -> list[str]:
    """Return the labels of commits with events of a type, by an agent if one is named."""
    return [
        str(stored.commit.label or "")
        for stored in history(record, run)
        if any(each.type == tag for each in stored.commit.events)
        and agent in ("", stored.commit.actor.agent)
    ]


def read_secret(session: Any, text: str = "the plan", **options: Any) -> Any:
    """Have a session read something secret and untrusted."""

    @session.tool(effects="pure", name="read", gives="untrusted secret", **options)
    def read(about: str) -> dict[str, str]:
        return {"about": about, "text": text}

    return read("plans")
