"""A workspace with a secret, and the law of principals' labels, by the log's order."""

from typing import Any

import msgspec

from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.bus.portal import portal
from hansard.domain.decider import LabelDeclassified
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import LOWEST, Label, join, parse
from hansard.domain.principal import PrincipalShown
from tests.service.support import House

ROLES = """
[roles.cleared]
clearance = "secret"
[[roles.cleared.sees]]
name = "all"
kinds = ["**", "principal.*"]
[roles.cleared.may]
tools = ["**"]
kinds = ["**"]
keys = ["**"]
query = true
approve = true
settle = true

[roles.clerk]
[[roles.clerk.sees]]
name = "all"
kinds = ["**", "access.*", "principal.*", "query.*", "view.*"]
[roles.clerk.may]
tools = ["**"]
kinds = ["**"]
keys = ["**"]
query = true
approve = true
"""
SECRET = "planted-4711"


def furnished(house: House) -> House:
    """Prepare a cleared and an uncleared role, and run `a` with a secret in it."""
    house.apply(ROLES)
    house.login_all(("ada", "cleared"), ("bob", "clerk"))
    with house.trusted() as record, record.run("w", run="a", agent="eve", role="cleared") as eve:
        eve.message("user", "this is public")
        eve.message("user", "the plan is secret", label="secret")
        eve.board.put("plan", SECRET)
        eve.team.send("the plan is ready", agent="ada")
        eve.team.add("keep it", role="cleared", task="keep")
    return house


def log_of(house: House, after: int = 0) -> list[Stored]:
    """Every commit of the workspace after a position, in order."""

    async def read(log: Any) -> list[Stored]:
        head = await log.head()
        if head <= after:
            return []
        return [stored async for stored in log.follow(after, until=head)]

    with house.trusted() as record:
        commits: list[Stored] = portal().run(read(record.workspace.log))
        return commits


class Law:
    """Each write of a principal has, in log order, the label that it carries."""

    def __init__(self) -> None:
        self.carried: dict[str, Label] = {}
        self.position = 0
        self.labelled = 0
        """Number of the principals' commits with a label."""

    def check(self, house: House) -> None:
        """Check the new commits."""
        for stored in log_of(house, self.position):
            self.position = stored.position
            commit, stream = stored.commit, stored.stream
            name = commit.actor.agent
            if isinstance(stream, WorkspaceStream) and stream.kind == "principal":
                self._learn(stream.id, stored)
            elif commit.actor.on_behalf_of[:1] == (name,):
                carries, label = self.carried.get(name, LOWEST), commit.label or LOWEST
                assert label == carries, (stored, str(carries))
                self.labelled += label != LOWEST

    def _learn(self, name: str, stored: Stored) -> None:
        for each in stored.commit.events:
            fields = msgspec.json.decode(each.data)
            if each.type == PrincipalShown.tag:
                self.carried[name] = join(self.carried.get(name, LOWEST), parse(fields["label"]))
                assert stored.commit.label == self.carried[name], stored
            elif each.type == LabelDeclassified.tag:
                self.carried[name] = parse(fields["to"])


def check(house: House) -> int:
    """See that the law holds; how many of the principals' commits had a label."""
    law = Law()
    law.check(house)
    return law.labelled


def shown_to_clerk(house: House, run: str) -> str:
    """Return everything of a run that the role without clearance is shown."""
    with house.connect("bob", "clerk") as record:
        try:
            return msgspec.json.encode(record.roles.view(run)).decode()
        except NotFound:
            return ""
