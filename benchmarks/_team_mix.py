"""Events of teams beside the sample runs: tasks, mail, an approval, a refusal, labels,
principals.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from benchmarks._runs import appended, raw_json
from hansard.bus.log import Append
from hansard.domain import access, approval, principal, team
from hansard.domain.agent import AgentRefused, SessionBegan
from hansard.domain.decider import LabelDeclassified
from hansard.domain.events import Actor
from hansard.domain.ids import AgentStream, KeyStream, RunStream, WorkspaceStream
from hansard.domain.label import parse
from hansard.domain.run import AgentJoined, RunStarted

TOKEN = "0" * 32


def team_run() -> Iterator[Append]:
    """Yield one such run, and its logins, so that each table of a team has rows."""
    life, ada = RunStream("team"), AgentStream("team", "researcher", "ada")
    joined = AgentJoined(agent="ada", role="researcher")
    yield appended(life, 1, RunStarted(workflow="papers"), joined)
    began = SessionBegan(
        epoch=1, agent="ada", role="researcher", server_version="1", protocol_version="1"
    )
    yield appended(ada, 1, began)
    yield from of_agent(ada, 2)
    yield from shared("team")
    yield from logins()


def shared(run: str) -> Iterator[Append]:
    """Yield the shared state of one run's team apart from its keys, by its one agent."""
    tasks = KeyStream(run, team.TASKS_KEY)
    yield appended(tasks, 1, team.TaskAdded(task="t", title="Read", role="researcher"))
    claimed = team.TaskClaimed(task="t", number=1, agent="ada", role="researcher", lease_ms=60_000)
    yield appended(tasks, 2, claimed)
    yield appended(tasks, 3, team.TaskCompleted(task="t", number=1, result=raw_json(3)))
    said = team.MailSent(content=raw_json("please"), sender_role="researcher", role="writer")
    yield appended(KeyStream(run, team.MAIL_KEY), 1, said)
    asked = approval.ApprovalRequested(
        approval="a",
        agent="ada",
        role="researcher",
        step=1,
        tool="search",
        arguments=raw_json({}),
        call="c",
        fingerprint="f",
        rule="ask",
        timeout_ms=1_000,
    )
    yield appended(KeyStream(run, approval.KEY), 1, asked)


def of_agent(stream: AgentStream, version: int) -> Iterator[Append]:
    """Yield events in an agent's own stream: a refusal under a label, and the label's lowering."""
    refused = AgentRefused(what="key", name="k", rule="role researcher", because="none is 'k'")
    told = appended(stream, version, refused)
    label = parse("secret untrusted").stored
    yield msgspec.structs.replace(told, commit=msgspec.structs.replace(told.commit, label=label))
    lowered = LabelDeclassified(
        to="public", approver="eve", because="looked", before="secret untrusted"
    )
    said = appended(stream, version + 1, lowered)
    by_eve = msgspec.structs.replace(said.commit, actor=Actor("eve"))
    yield msgspec.structs.replace(said, commit=by_eve)


def logins() -> Iterator[Append]:
    """Yield a principal, its token, and a query that it made."""
    ada = WorkspaceStream(principal.KIND, "ada")
    yield appended(ada, 1, principal.PrincipalRegistered(kind=principal.PrincipalKind.AGENT))
    yield appended(ada, 2, principal.TokenIssued(token=TOKEN, digest="0" * 64, role="researcher"))
    yield appended(ada, 3, principal.TokenRevoked(token=TOKEN, because="lost"))
    told = access.QueryAnswered(
        role="researcher", at="", rules="", statement="0" * 64, position=1, rows=1
    )
    yield appended(WorkspaceStream(access.QUERY_KIND, "researcher"), 1, told)
