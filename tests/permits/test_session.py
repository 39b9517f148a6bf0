"""A session can do exactly what its role allows: other operations are refused and recorded."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import hansard
from hansard.agents.errors import RoleRefused
from hansard.domain.ids import WorkspaceStream
from hansard.domain.roles.model import KIND as ROLE
from hansard.domain.roles.model import RoleWithdrawn
from tests.agents.twins import TwinRecord, TwinSession
from tests.permits.support import RULES, board_of, events, rules
from tests.team.support import team_of

pytestmark = pytest.mark.fast(cases=99, slow=0)

Deed = Callable[[TwinSession], Any]


async def call_send(session: TwinSession) -> None:
    """Call a tool that the role may not call."""

    @session.tool()
    async def send(to: str) -> str:
        message = f"it ran, to {to}"
        raise AssertionError(message)

    await send("bob")


async def call_model(session: TwinSession) -> None:
    """Call a model, which is a tool of another kind."""

    @session.tool(kind="model", effects="pure")
    async def ask(prompt: str) -> str:
        message = f"it ran: {prompt}"
        raise AssertionError(message)

    await ask("hello")


async def stream_items(session: TwinSession) -> None:
    """Call a tool that gives items."""

    @session.tool(effects="pure")
    async def items() -> Any:
        yield 1

    async for item in items():
        message = f"it gave {item}"
        raise AssertionError(message)


def written(session: TwinSession, *, name: str, key: str, arguments: tuple[Any, ...]) -> Any:
    """Write a key by the method of a name."""
    return getattr(board_of(session), name)(key, *arguments)


async def in_transaction(session: TwinSession) -> None:
    """Write a key in a transaction that may be written, and one that may not."""
    if session.is_async:
        async with session.raw.board.transaction() as tx:
            tx.put("notes/a", 1)
            tx.put("scores", 1)
    else:
        with session.raw.board.transaction() as tx:
            tx.put("notes/a", 1)
            tx.put("scores", 1)


async def read_in_transaction(session: TwinSession) -> None:
    """Read a key in a transaction."""
    if session.is_async:
        async with session.raw.board.transaction() as tx:
            await tx.get("scores")
    else:
        with session.raw.board.transaction() as tx:
            tx.get("scores")


KINDS = {
    "decision.made": lambda s: s.decide("which?", selected="a"),
    "checkpoint.saved": lambda s: s.checkpoint("c"),
    "resource.accessed": lambda s: s.resource("file:x"),
    "agent.handed_off": lambda s: s.hand_off("bob"),
    "task.added": lambda s: team_of(s).add("t"),
    "mail.sent": lambda s: team_of(s).send("hello", role="bob"),
}
READ = 'ask for: [[roles.writer.sees]] with nothing but kinds = ["board.*"], keys = ["scores"]'
REFUSED: dict[str, tuple[Deed, str, str, str]] = {
    **{
        kind: (deed, "kind", f"{kind}.v1", f'ask for: kinds = ["{kind}"] in [roles.writer.may]')
        for kind, deed in KINDS.items()
    },
    "get": (lambda s: board_of(s).get("scores"), "read", "scores", READ),
    "entry": (lambda s: board_of(s).entry("scores"), "read", "scores", READ),
    "get in a transaction": (read_in_transaction, "read", "scores", READ),
    "wait for a key": (
        lambda s: team_of(s).wait_for(key="scores", timeout_s=0),
        "read",
        "scores",
        READ,
    ),
    **{
        f"{name} {key}": (
            partial(written, name=name, key=key, arguments=arguments),
            "key",
            key,
            f'ask for: keys = ["{key}"] in [roles.writer.may]',
        )
        for key in ("scores", "facts")
        for name, arguments in {
            "put": (1,),
            "append": (1,),
            "add": (),
            "include": (1,),
            "discard": (1,),
            "merge": ("max", 1),
            "remove": (),
        }.items()
    },
    "transaction": (in_transaction, "key", "scores", 'keys = ["scores"] in [roles.writer.may]'),
    "claim for another role": (
        lambda s: team_of(s).claim("reviewer"),
        "task",
        "reviewer",
        "ask for: an agent of role 'reviewer'",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
async def test_what_a_role_may_not_do_is_refused_and_on_record(record: TwinRecord, name: str):
    """A refusal names the missing permission and is the only event; the session goes on."""
    deed, what, of, ask_for = REFUSED[name]
    await record.roles.apply("writer", rules())
    async with record.run(run="r") as session:
        before = await events(record, "r")
        with pytest.raises(hansard.Blocked) as refused:
            await deed(session)
        assert (refused.value.rule, refused.value.tool) == ("role writer", of)
        assert ask_for in str(refused.value)
        made = [each for each in (await events(record, "r"))[len(before) :] if not _own(each)]
        [(stream, tag, data)] = made
        assert (stream, tag) == ("agent/writer/ada", "agent.refused.v1")
        assert (data["what"], data["name"], data["rule"]) == (what, of, "role writer")
        assert ask_for in data["because"]
        await session.message("user", "and on")


def _own(event: tuple[str, str, Any]) -> bool:
    """Return whether an event belongs to a transaction's opening or end, or to its permitted
    reads.
    """
    _, tag, data = event
    opened = tag == "step.requested.v1" and data["tool"] in ("board.begin", "board.roll_back")
    return (
        opened or tag == "tool.declared.v1" or (tag == "step.completed.v1" and not data["result"])
    )


@pytest.mark.parametrize("deed", [call_send, call_model, stream_items])
async def test_a_tool_that_a_role_may_not_call_is_a_blocked_step(record: TwinRecord, deed: Deed):
    """The body of a refused tool never runs, and the step has the reason and the missing
    permission.
    """
    await record.roles.apply("writer", rules())
    async with record.run(run="r") as session:
        with pytest.raises(hansard.Blocked, match=r"ask for: tools = \[\"\w+\"\] in \[roles"):
            await deed(session)
    [step] = await record.steps("r")
    assert (step.status, step.rule) == ("blocked", "role writer")
    assert "agent.refused.v1" not in await record.tags("r")


async def test_what_a_role_may_do_it_does(record: TwinRecord):
    """A role can use the tools, messages and keys of its rules, and the rights of any run
    member.
    """
    await record.roles.apply("writer", rules())
    async with record.run(run="r") as session:

        @session.tool(effects="pure")
        async def search_web(word: str) -> str:
            return word

        assert await search_web("x") == "x"
        await session.message("user", "hello")
        assert await board_of(session).put("notes/a", 1) == 1
        assert await board_of(session).get("facts", "none") == "none"
        assert await team_of(session).inbox() == []
        assert await team_of(session).claim() is None
        assert await team_of(session).tasks() == []
    assert "agent.refused.v1" not in await record.tags("r")


async def test_keys_lists_what_may_be_read(record: TwinRecord):
    """Not even the name of a key that is not seen whole is listed."""
    await record.roles.apply("writer", rules())
    async with (
        record.run(run="r", agent="bob", role="boss") as boss,
        record.run(run="r") as session,
    ):
        for key in ("notes/a", "scores", "facts"):
            await board_of(boss).put(key, 1)
        assert await board_of(session).keys() == ["facts", "notes/a"]
        assert await board_of(boss).keys() == ["facts", "notes/a", "scores"]


async def test_a_role_that_was_never_defined_is_a_name(record: TwinRecord):
    """Agents of an undefined role can do everything, as without roles."""
    await record.roles.apply("writer", rules())
    async with record.run(run="r", agent="bob", role="writers") as session:
        for deed in KINDS.values():
            await deed(session)
        await board_of(session).put("scores", 1)
        assert await board_of(session).get("scores") == 1
    assert "agent.refused.v1" not in await record.tags("r", "bob")


async def test_a_restricted_session_needs_a_role_that_is_defined(record: TwinRecord):
    """A role that is not defined may do nothing, as with the service."""
    async with record.run(run="r", role="nobody", restricted=True) as session:
        for deed in (KINDS["decision.made"], lambda s: board_of(s).get("k"), call_send):
            with pytest.raises(hansard.Blocked):
                await deed(session)
    assert (await record.tags("r")).count("agent.refused.v1") == 2


async def test_a_role_that_was_withdrawn_may_do_nothing(record: TwinRecord):
    """A session with a withdrawn role can only begin and leave, and receives the reason."""
    await record.roles.apply("writer", rules())
    await record.io(
        record.raw.workspace.repository.record(
            WorkspaceStream(ROLE, "writer"), "eva", lambda _: [RoleWithdrawn(because="over")]
        )
    )
    async with record.run(run="r") as session:
        for deed in (
            lambda: session.message("user", "x"),
            lambda: board_of(session).get("notes/a"),
            lambda: board_of(session).put("notes/a", 1),
            lambda: team_of(session).claim(),
            lambda: call_send(session),
        ):
            with pytest.raises(hansard.Blocked, match="it has no rules"):
                await deed()
        assert await board_of(session).keys() == []


async def test_rules_hold_from_the_next_session_on(record: TwinRecord):
    """A session goes by the rules of its opening; a refusal is recorded once a session."""
    await record.roles.apply("writer", rules())
    async with record.run(run="r") as session:
        for _ in range(3):
            with pytest.raises(RoleRefused):
                await session.decide("which?", selected="a")
    assert (await record.tags("r")).count("agent.refused.v1") == 1
    async with record.run(run="r") as session:
        with pytest.raises(RoleRefused):
            await session.decide("which?", selected="a")
    assert (await record.tags("r")).count("agent.refused.v1") == 2
    text = RULES.replace('"message.added"', '"message.added", "decision.made"')
    await record.roles.apply("writer", rules(text))
    async with record.run(run="r") as session:
        await session.decide("which?", selected="a")
    assert (await record.tags("r")).count("decision.made.v1") == 1


async def test_a_replay_meets_the_same_refusals(record: TwinRecord):
    """A strict replay raises the recorded refusal under any later rules, and writes nothing."""

    async def story(session: TwinSession) -> list[str]:
        refusals = []
        for deed, *_ in REFUSED.values():
            with pytest.raises(hansard.Blocked) as refused:
                await deed(session)
            refusals.append(str(refused.value))
        with pytest.raises(hansard.Blocked):
            await call_send(session)
        await session.message("user", "and on")
        return refusals

    await record.roles.apply("writer", rules())
    async with record.run(run="r") as session:
        first = await story(session)
    before = await record.commits("r")
    await record.roles.apply("writer", rules("[roles.writer.may]\nquery = true\n"))
    async with record.run(run="r", mode="strict") as session:
        again = await story(session)
    assert [text.partition(":")[0] for text in again] == [text.partition(":")[0] for text in first]
    assert await record.commits("r") == before


async def test_a_fork_goes_by_the_rules_of_now(record: TwinRecord):
    """A parent's result is returned only to a role that may make the call."""

    async def story(session: TwinSession) -> str:
        @session.tool(effects="pure")
        async def search_web(word: str) -> str:
            return word

        answer: str = await search_web("x")
        return answer

    async with record.run(run="r") as session:
        await story(session)
    child = await record.fork("r")
    await record.roles.apply("writer", rules("[roles.writer.may]\nquery = true\n"))
    async with record.run(run=child) as session:
        with pytest.raises(hansard.Blocked, match='ask for: tools = \\["search_web"\\]'):
            await story(session)
    await record.roles.apply("writer", rules())
    async with record.run(run=child) as session:
        assert await story(session) == "x"
