"""The record as a server's tools: other people's clients share a run through it alone."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import hansard
from hansard.domain.errors import BadValue
from hansard.domain.steps import StepStatus
from hansard.operations.session import OPERATIONS
from hansard.service.mcp.offers import BLOCKS, GROUPS, IN_RUN, PREFIXED, nouns_of_slices, offers
from tests.cli.support import Call
from tests.faults._warm import python
from tests.integrations.mcp.support import SCENARIO_S, Setup, Wire, text, wire
from tests.late import LATE

if LATE:
    from hansard.service.mcp.resources import PROMPTS, TEMPLATES

from tests.service.support import House

pytestmark = pytest.mark.later

if TYPE_CHECKING:  # see the support's
    from mcp import Client


SERVE = ["mcp", "serve", "--tools", "all"]
SCHEMAS = {each.name: each.gives for each in offers().values()}
"""Output schema of each tool."""


class Team:
    """One of a team, whichever client it has."""

    def __init__(self, client: Client | Wire) -> None:
        self.client = client

    async def ask(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Return a tool's result, as sent over the wire."""
        if isinstance(self.client, Wire):
            return await self.client.call(tool, **arguments)
        result = await self.client.call_tool(tool, arguments)
        answer: dict[str, Any] = json.loads(result.model_dump_json(by_alias=True))
        return answer

    async def get(self, tool: str, /, **arguments: Any) -> Any:
        """Return the tool's value after validation by its schema."""
        answer = await self.ask(tool, **arguments)
        assert not answer.get("isError"), text(answer)
        result = answer["structuredContent"]["result"]
        jsonschema.validate(result, SCHEMAS[tool])
        return result

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        """Why it is refused."""
        answer = await self.ask(tool, **arguments)
        assert answer["isError"] is True, answer
        return text(answer)


def command(agent: str) -> list[str]:
    """Return the server's command for one agent."""
    serve = ["mcp", "serve", "--tools", "all", "--agent", agent, "--role", agent]
    return [python(), "-m", "hansard", *serve]


@asynccontextmanager
async def sdk(
    setup: Setup, agent: str, mode: str, *options: str, **more: Any
) -> AsyncIterator[Team]:
    """Yield the SDK's client; `options` are of the server's command, `more` the client's own."""
    from mcp import Client, StdioServerParameters  # noqa: PLC0415 -- see above
    from mcp.client.stdio import stdio_client  # noqa: PLC0415 -- see above

    errors = sys.__stderr__ or sys.stderr  # a file, which what a test captures is not
    program, *args = [*command(agent), *options]
    parameters = StdioServerParameters(command=program, args=args, env=setup.env)
    async with (
        asyncio.timeout(SCENARIO_S),
        Client(stdio_client(parameters, errlog=errors), mode=mode, **more) as client,
    ):
        yield Team(client)


@asynccontextmanager
async def lines(setup: Setup, agent: str) -> AsyncIterator[Team]:
    """Yield the client that writes lines."""
    async with wire(setup, command(agent)) as client:
        await client.greet()
        yield Team(client)


def test_each_operation_of_a_session_is_a_tool_with_schemas():
    """The tools are in one order with input and output schemas, without blocks and loops."""
    tools = offers()
    assert list(tools) == list(offers())
    in_run = {
        each.called.replace(".", "_")
        for each in OPERATIONS.values()
        if each.group in IN_RUN and each.name not in BLOCKS
    }
    assert in_run <= set(tools)
    for each in tools.values():
        jsonschema.Draft202012Validator.check_schema(each.takes)
        jsonschema.Draft202012Validator.check_schema(each.gives)
        assert each.gives or each.name == "board_merge", each.name  # what it holds is anything
        assert len(each.does) > 20, each.name
        assert set(each.takes.get("required", [])) <= set(each.takes["properties"])
    reads = {name for name, each in tools.items() if each.reads}
    assert {"sql", "why", "board_entry", "team_tasks"} <= reads
    assert not reads & {"decide", "board_put", "team_claim", "leave_run"}


def test_each_parameter_of_each_tool_is_described():
    """Each parameter is described for a model; no sentence is repeated in all descriptions."""
    tools = offers()
    for name, each in tools.items():
        for parameter, schema in each.takes["properties"].items():
            assert schema["description"], f"{name}({parameter})"
    last = Counter(each.does.rpartition(". ")[2] for each in tools.values())
    assert max(last.values()) == 1


def test_a_client_is_offered_the_tools_that_were_chosen():
    """By group and by name; the default is small, and whatever names a run can begin one."""
    everything = set(offers())
    default = offers(["default"])
    assert len(default) <= 20
    assert {"start_run", "leave_run", "decide", "board_put", "team_claim"} <= set(default)
    assert set(offers(["memory"])) - {"start_run", "resume_run", "leave_run"} == {
        each for each in everything if each.startswith("memory_")
    }
    assert list(offers(["sql"])) == ["sql"]
    assert set(offers(["all"], "lab")) == {f"lab_{each}" for each in everything}
    reached = set().union(*(offers([each]) for each in (*GROUPS, *PREFIXED, *nouns_of_slices())))
    assert reached == everything
    with pytest.raises(BadValue, match="did you mean 'memory'"):
        offers(["memroy"])
    with pytest.raises(BadValue, match="prefix"):
        offers(["all"], "No Prefix")


@pytest.mark.slow
async def test_chosen_tools_have_their_prefix_and_errors_name_them(setup: Setup):
    """Only chosen tools can be called; an error names an available tool, no method or command."""
    options = ["--tools", "run,memory", "--prefix", "lab"]
    serve = [python(), "-m", "hansard", "mcp", "serve", *options]
    async with wire(setup, serve) as client:
        instructions = (await client.greet())["result"]["instructions"]
        assert "lab_start_run" in instructions
        assert "board_put" not in instructions
        listed = (await client.ask("tools/list"))["result"]["tools"]
        assert {each["name"].partition("_")[0] for each in listed} == {"lab"}
        run = (await client.call("lab_start_run"))["structuredContent"]["result"]["run_id"]
        missing = text(await client.call("lab_memory_entry", run_id=run, path="none.md"))
        assert "lab_memory_ls" in missing
        assert "ls()" not in missing
        role = {"run_id": run, "role": "wizard", "content": "x"}
        assert "'wizard' is not one of" in text(await client.call("lab_message", **role))
        assert "no tool 'lab_sql'" in text(await client.call("lab_sql", query="SELECT 1"))


@pytest.mark.slow
async def test_our_own_records_match_their_schemas(setup: Setup):
    """`get` compares each with its tool's schema, which for these is made of a record's fields."""
    async with (
        hansard.connect_async(setup.workspace, data_dir=setup.data_dir) as record,
        lines(setup, "ada") as ada,
    ):
        run = {"run_id": (await ada.get("start_run"))["run_id"]}
        assert await ada.get("latest_checkpoint", **run) is None
        await ada.get("checkpoint", **run, name="read", data={"papers": 3})
        assert (await ada.get("latest_checkpoint", **run))["data"] == {"papers": 3}
        memory = record.memory("org")
        await memory.create("whales.md", "Whales are read of.\n", by="alice")
        await memory.edit("whales.md", "read", "heard", by="alice")
        entry = await ada.get("memory_entry", **run, path="whales.md")
        assert entry["text"] == "Whales are heard of.\n"
        results = await ada.get("memory_search", **run, question="whales")
        assert [each["path"] for each in results["hits"]] == ["whales.md"]
        assert len(await ada.get("memory_history", **run, path="whales.md")) == 2
        (line,) = await ada.get("memory_grep", **run, pattern="heard")
        assert line[1:] == [1, "Whales are heard of."]
        assert "Begin" not in await ada.get("memory_prompt", **run)
        await memory.create("AGENTS.md", "Begin with the whales.\n", by="alice")
        assert await ada.get("memory_news", **run)
        await ada.get("team_send", **run, agent="ada", content={"a": 1})
        assert (await ada.get("team_inbox", **run))[0]["content"] == {"a": 1}
        assert await ada.get("team_claim", **run) is None
        assert await ada.get("board_entry", **run, key="none") is None


@pytest.mark.slow
async def test_clients_of_three_kinds_share_a_run(setup: Setup):
    """Tasks, state, messages, decisions are shared; one client is killed, another continues its
    work.
    """
    async with AsyncExitStack() as stack:
        ada = await stack.enter_async_context(sdk(setup, "ada", "auto"))
        ben = await stack.enter_async_context(sdk(setup, "ben", "legacy"))
        begun = await ada.get("start_run", workflow="papers", labels={"topic": "whales"})
        run = begun["run_id"]
        assert begun["agent"] == "ada"
        for title in ("find", "read", "write"):
            await ada.get("team_add", run_id=run, title=title, what={"n": 1})
        async with lines(setup, "cleo") as cleo:
            task = await cleo.get("team_claim", run_id=run, lease_s=1.0)
            await cleo.get("checkpoint", run_id=run, name="half", data={"page": 7})
            await cleo.get(
                "board_put", run_id=run, key="findings/1", value={"title": "\u2603", "n": 1.5}
            )
            assert isinstance(cleo.client, Wire)
            cleo.client.process.kill()
            await cleo.client.process.wait()
        async with lines(setup, "cleo") as cleo:
            resumed = await cleo.get("resume_run", run_id=run)
            assert resumed["checkpoint"]["name"] == "half"
            assert resumed["checkpoint"]["data"] == {"page": 7}
            await asyncio.sleep(1.1)
            again = await ben.get("team_claim", run_id=run)
            assert (again["id"], again["number"]) == (task["id"], 2)
            assert "not of this session" in await cleo.refused(
                "team_complete", run_id=run, task={"id": task["id"], "number": task["number"]}
            )
        await ben.get("team_complete", run_id=run, task=again, result="done")
        entry = await ben.get("board_entry", run_id=run, key="findings/1")
        assert (entry["value"], entry["author"]) == ({"title": "\u2603", "n": 1.5}, "cleo")
        await ben.get("team_send", run_id=run, content="your turn", agent="ada")
        assert [each["content"] for each in await ada.get("team_inbox", run_id=run)] == [
            "your turn"
        ]
        await ada.get("record_step", run_id=run, tool="search", arguments={"q": "x"}, result=[1])
        decided = await ada.ask(
            "decide", run_id=run, question="Which?", selected="a", alternatives=[{"id": "a"}]
        )
        assert decided["_meta"]["hansard/run"] == run
        assert decided["_meta"]["hansard/at"].startswith("ada@")
        explained = await ben.get("why", decision=run)
        assert "Which?" in str(explained)
        rows = await ben.get("sql", query="SELECT agent, tool FROM steps WHERE tool = 'search'")
        assert rows["rows"] == [["ada", "search"]]
        assert not isinstance(ada.client, Wire)
        templates = await ada.client.list_resource_templates()
        assert [each.uri_template for each in templates.resource_templates] == [
            each.uri_template for each in TEMPLATES
        ]
        assert f"run://{run}/trace" in [
            str(each.uri) for each in (await ada.client.list_resources()).resources
        ]
        for uri, fact in (
            (f"run://{run}/trace", '"tool":"search"'),
            (f"run://{run}/state?at=ada@2", '"kind":"agent"'),
            (f"run://{run}/view", '"role":"ada"'),
            (f"run://{run}/view?role=ben", '"role":"ben"'),
            (f"board://{run}/findings/1", '"author":"cleo"'),
            (f"decision://{explained['rows'][0]['decision']}", "Which?"),
        ):
            (content,) = (await ada.client.read_resource(uri)).contents
            assert fact in content.model_dump_json().replace("\\", ""), uri
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 -- see above

        with pytest.raises(MCPError, match="no address of a resource"):
            await ada.client.read_resource(f"run://{run}/nothing")
        fork = await ada.get("fork_run", run_id=run)
        assert fork["run_id"] != run
        assert [each["title"] for each in await ada.get("team_tasks", run_id=run)] == [
            "find",
            "read",
            "write",
        ]
        for each in (ada, ben):
            await each.get("leave_run", run_id=run)


@pytest.mark.slow
async def test_a_client_forks_a_run_from_another_result(setup: Setup):
    """The edit of a step is on record with its author and its reason."""
    async with sdk(setup, "ada", "auto") as ada:
        run = (await ada.get("start_run", workflow="papers"))["run_id"]
        await ada.get("record_step", run_id=run, tool="search", arguments={"q": "x"}, result=[1])
        edit = {"step": "ada#1", "result": [2]}
        fork = await ada.get("fork_run", run_id=run, edits=[edit], reason="what if")
        life = f"SELECT actor, data FROM events WHERE run = '{fork['run_id']}' AND agent IS NULL"
        [[actor, data]] = (await ada.get("sql", query=life))["rows"]
        forked = json.loads(data)
        [made] = forked["edits"]
        assert (actor, forked["effects"], made["result"], made["reason"]) == (
            "ada", "models", [2], "what if",
        )  # fmt: skip


@pytest.mark.thorough(quick="test_a_server_that_ends_leaves_its_runs_open")
async def test_each_result_names_its_point_and_whether_a_replay_gives_it(setup: Setup):
    """Each result names its run, point and whether it replays; refusals do, too."""
    async with sdk(setup, "ada", "auto") as ada:

        async def meta(tool: str, /, **arguments: Any) -> dict[str, Any]:
            fields = (await ada.ask(tool, **arguments))["_meta"]
            return {
                name.removeprefix("hansard/"): value
                for name, value in fields.items()
                if name.startswith("hansard/")
            }

        begun = await meta("start_run", workflow="papers")
        run = begun["run"]
        assert begun["replayable"] is True
        steps = [
            await meta("board_put", run_id=run, key="findings/1", value=1),
            await meta("board_entry", run_id=run, key="findings/1"),
            await meta("team_add", run_id=run, title="read"),
            await meta("record_step", run_id=run, tool="search", result=[1]),
            await meta("view_run", run_id=run),
        ]
        facts = [
            await meta("decide", run_id=run, question="Which?", selected="a"),
            await meta("context", run_id=run),
        ]
        for each in (*steps, *facts):
            assert (each["run"], each["replayable"]) == (run, True)
        metas = {
            "sql": await meta("sql", query="SELECT 1"),
            "why": await meta("why", decision=run),
            "list_runs": await meta("list_runs"),
        }
        (own,) = {each["run"] for each in metas.values()}
        assert own != run
        assert all(each["replayable"] is False for each in metas.values())
        assert "position" not in metas["list_runs"]
        assert (await meta("resume_run", run_id=run))["replayable"] is False
        forked = await meta("fork_run", run_id=run)
        assert forked["run"] not in (run, own)
        assert forked["replayable"] is False
        refused = [
            await meta("board_put", run_id=run, key="", value=1),
            await meta("sql", query="DROP TABLE runs"),
            await meta("board_put", run_id="nobody", key="k", value=1),
            await meta("no_such_tool"),
        ]
        assert [each.get("run") for each in refused] == [run, own, own, own]
        assert not any(each["replayable"] for each in refused)
        assert not isinstance(ada.client, Wire)
        read = {
            path: (await ada.client.read_resource(path)).meta or {}
            for path in (f"run://{run}/trace", f"run://{run}/state", f"board://{run}/findings/1")
        }
        left = await meta("leave_run", run_id=run)
    assert left["run"] == run
    assert [each["hansard/replayable"] for each in read.values()] == [False, False, True]
    assert [each["hansard/run"] for each in read.values()] == [own, own, run]
    async with hansard.connect_async(setup.workspace, data_dir=setup.data_dir) as record:
        points = [record.workspace.points.up_to(run, each["at"]) for each in (*steps, *facts, left)]
        ends = [await record.workspace.states.log.end(await each) for each in points]
        assert ends == sorted(ends)
        tools = [step.tool for step in (await record.state(run)).agents["ada"].steps.values()]
        assert tools == [
            *("board.put", "board.get", "team.add", "search", "view"),
            *("mcp:context", "mcp:resume_run", "mcp:tools/call", "board.get"),
        ]
        mine = (await record.state(own)).agents["ada"].steps.values()
        kinds = [step.tool for step in mine]
        assert kinds == [
            *("mcp:sql", "mcp:why", "mcp:list_runs", "mcp:sql", "mcp:tools/call"),
            *("mcp:tools/call", "mcp:resources/read", "mcp:resources/read"),
        ]
        failed = [step for step in mine if step.status is StepStatus.FAILED]
        assert [step.tool for step in failed] == ["mcp:sql", "mcp:tools/call", "mcp:tools/call"]
        assert "there is no tool 'no_such_tool' among" in str(failed[-1].error)
        head = await record.workspace.log.head()
    for each in (metas["sql"], metas["why"]):
        assert ends[6] <= each["position"] <= head
    for path in (f"run://{run}/trace", f"run://{run}/state"):
        assert ends[6] <= read[path]["hansard/position"] <= head


@pytest.mark.slow
async def test_a_server_that_ends_leaves_its_runs_open(setup: Setup):
    """The next server resumes the runs; results name their run and whether they replay."""
    async with sdk(setup, "ada", "auto") as ada:
        run = (await ada.get("start_run"))["run_id"]
        assert await ada.get("board_add", run_id=run, key="count") == 1
        assert await ada.get("board_add", run_id=run, key="count") == 2
    async with sdk(setup, "ada", "auto") as ada:
        assert await ada.get("board_add", run_id=run, key="count") == 3
        added = (await ada.ask("board_add", run_id=run, key="other"))["_meta"]
        assert (added["hansard/run"], added["hansard/replayable"]) == (run, True)
        read = (await ada.ask("list_runs"))["_meta"]
        assert (read["hansard/run"] != run, read["hansard/replayable"]) == (True, False)
        (listed,) = [
            each for each in await ada.get("list_runs", workflow="mcp") if each["run_id"] == run
        ]
        assert listed["status"] == "open"
        await ada.get("leave_run", run_id=run, error="no more money")
        assert "failed" in {each["status"] for each in await ada.get("list_runs")}


@pytest.mark.slow
async def test_invalid_arguments_are_reported_and_nothing_is_written(setup: Setup):
    """Unknown tools, runs and fields and invalid values are refused with value and remedy."""
    async with sdk(setup, "ada", "auto") as ada:
        run = (await ada.get("start_run"))["run_id"]
        for tool, arguments, fact in (
            ("board_put", {"run_id": run, "value": 1}, "'key' is a required property"),
            ("board_put", {"run_id": run, "key": "", "value": 1}, "non-empty"),
            ("board_put", {"run_id": run, "key": "k", "valu": 1}, "'valu'"),
            ("board_put", {"run_id": "nobody", "key": "k", "value": 1}, "not found"),
            ("board_add", {"run_id": run, "key": "k", "amount": "many"}, "'many'"),
            ("team_complete", {"run_id": run, "task": {"id": "t9", "number": 1}}, "claim it"),
            ("no_such_tool", {}, "there is no tool"),
        ):
            assert fact in await ada.refused(tool, **arguments), tool
        assert await ada.get("board_keys", run_id=run) == []


ROLES = """
[roles.reader]
[[roles.reader.sees]]
name = "findings"
kinds = ["board.*"]
keys = ["findings/**"]
[[roles.reader.sees]]
name = "its own work"
roles = ["reader"]
[roles.reader.may]
tools = ["**"]
kinds = ["board.*", "message.*"]
keys = ["findings/**"]
view = ["clerk"]
[roles.clerk]
[[roles.clerk.sees]]
name = "findings"
kinds = ["board.*"]
keys = ["findings/**"]
"""
SECRET = "the password is swordfish"


VIEWER = """
[roles.viewer]
[[roles.viewer.sees]]
name = "all"
kinds = ["**"]
[roles.viewer.may]
tools = ["mcp:*"]
[roles.blind]
[[roles.blind.sees]]
name = "findings"
kinds = ["board.*"]
keys = ["findings/*"]
[roles.blind.may]
tools = ["mcp:*"]
"""


@pytest.mark.slow
async def test_a_read_does_not_reopen_a_run_that_has_ended(setup: Setup, house: House):
    """It is in the client's own run, of a trusted and of a restricted client; so is a refusal.

    A role that is not shown the run's life reads it in the same way, also while it is open.
    """
    await asyncio.to_thread(house.apply, VIEWER)
    login = await asyncio.to_thread(house.login, "rob", "viewer")
    blind = await asyncio.to_thread(house.login, "bea", "blind")

    def begin() -> str:
        with house.trusted() as record, record.run("papers", agent="ada", role="ada") as ada:
            ada.board.put("findings/1", "whales")
            return str(ada.run)

    run = await asyncio.to_thread(begin)
    program = [python(), "-m", "hansard", "mcp", "serve", "--tools", "all"]
    restricted = Setup(house.data_dir, house.workspace, setup.sent)
    async with AsyncExitStack() as stack:
        where = ["env", f"HANSARD_CREDENTIALS={login}", *program]
        client = await stack.enter_async_context(wire(restricted, where))
        await client.greet()
        cleo = await stack.enter_async_context(sdk(restricted, "cleo", "auto"))
        blind_client = await stack.enter_async_context(
            wire(restricted, ["env", f"HANSARD_CREDENTIALS={blind}", *program])
        )
        await blind_client.greet()
        for each in (Team(client), cleo, Team(blind_client)):
            for tool in ("board_entry", "leave_run"):
                key = {"key": "findings/1"} if tool == "board_entry" else {}
                assert "a read does not reopen it" in await each.refused(tool, run_id=run, **key)
            viewed = await each.ask("view_run", run_id=run)
            assert viewed["_meta"]["hansard/run"] != run
        for reader in (client, blind_client):
            read = await reader.ask("resources/read", uri=f"run://{run}/view")
            assert "findings/1" in json.dumps(read)

    def after() -> tuple[str, list[str], list[str]]:
        with house.trusted() as record:
            state = record.state(run)
            query = "SELECT DISTINCT agent FROM steps WHERE tool = 'mcp:view_run' ORDER BY agent"
            readers = [agent for (agent,) in record.sql(query).rows]
            return state.life.status.value, [*state.agents], readers

    assert await asyncio.to_thread(after) == ("completed", ["ada"], ["bea", "cleo", "rob"])


@pytest.mark.slow
async def test_a_restricted_role_is_shown_what_it_may_see_and_no_more(setup: Setup, house: House):
    """With credentials no hidden data is in any result or error."""
    await asyncio.to_thread(house.apply, ROLES)
    login = await asyncio.to_thread(house.login, "rob", "reader")

    def begin() -> str:
        with house.trusted() as record, record.run("papers", agent="ada", role="ada") as ada:
            ada.board.put("plans/secret", SECRET)
            ada.board.put("findings/1", "whales")
            ada.message("user", SECRET)
            record.memory("org").create("hidden.md", SECRET, by="alice")
            return str(ada.run)

    async with AsyncExitStack() as stack:
        run = await asyncio.to_thread(begin)
        program = [python(), "-m", "hansard", "mcp", "serve", "--tools", "all"]
        restricted = Setup(house.data_dir, house.workspace, setup.sent)
        where = ["env", f"HANSARD_CREDENTIALS={login}", *program]
        client = await stack.enter_async_context(wire(restricted, where))
        await client.greet()
        rob = Team(client)
        names = {each["name"] for each in (await client.ask("tools/list"))["result"]["tools"]}
        assert {"board_put", "board_entry", "view_run", "resume_run"} <= names
        assert not {"sql", "why", "list_runs", "fork_run", "decide", "memory_create"} & names
        heard = [
            await rob.ask("resume_run", run_id=run),
            await rob.ask("board_entry", run_id=run, key="findings/1"),
            await rob.ask("board_keys", run_id=run),
            await rob.ask("board_put", run_id=run, key="findings/2", value="squids"),
            await rob.ask("view_run", run_id=run),
            await rob.ask("memory_ls", run_id=run),
            await rob.ask("memory_grep", run_id=run, pattern="pass"),
            await rob.ask("fetch_context", agent_id="rob"),
        ]
        assert not any(each.get("isError") for each in heard), heard
        refused = [
            await rob.refused("board_entry", run_id=run, key="plans/secret"),
            await rob.refused("board_put", run_id=run, key="plans/secret", value=1),
            await rob.refused("decide", run_id=run, question="?", selected="x"),
            await rob.refused("sql", query="SELECT * FROM messages"),
            await rob.refused("fork_run", run_id=run),
            await rob.refused("list_runs"),
            await rob.refused("memory_create", run_id=run, path="a.md", text="x", space="org"),
            await rob.refused("fetch_context", agent_id="ada"),
        ]
        for path in ("hidden.md", "nothing.md"):
            refused.append(await rob.refused("memory_entry", run_id=run, path=path))
            answer = await client.ask("resources/read", uri=f"memory://{path}")
            refused.append(json.dumps(answer["error"]))
        of_hidden = [each.replace("hidden", "nothing") for each in refused[-4:-2]]
        assert of_hidden == refused[-2:]
        for uri in (
            *(f"run://{run}/trace", f"run://{run}/state", f"run://{run}/view?role=ada"),
            f"board://{run}/plans/secret",
        ):
            refused.append(json.dumps((await client.ask("resources/read", uri=uri))["error"]))
        heard.append(await client.ask("resources/read", uri=f"run://{run}/view"))
        heard.append(await client.ask("resources/list"))
        seen = await client.ask("resources/read", uri=f"run://{run}/view?role=clerk")
    shown = json.loads(seen["result"]["contents"][0]["text"])
    assert shown["role"] == "clerk"
    assert [each["key"] for _, each in shown["events"]] == ["findings/1", "findings/2"]
    everything = json.dumps([heard, refused])
    assert "whales" in everything
    assert "swordfish" not in everything
    assert heard[2]["structuredContent"]["result"] == ["findings/1"]


@pytest.mark.slow
async def test_prompts_name_the_tools_that_answer(setup: Setup):
    """Prompts name existing tools, require their arguments, and hold no record data."""
    async with lines(setup, "ada") as ada:
        assert isinstance(ada.client, Wire)
        listed = (await ada.client.ask("prompts/list"))["result"]["prompts"]
        assert [each["name"] for each in listed] == list(PROMPTS)
        request = {"name": "hand_over", "arguments": {"run_id": "r-1", "to": "ben"}}
        result = (await ada.client.ask("prompts/get", **request))["result"]
        (message,) = result["messages"]
        assert message["role"] == "user"
        assert "Hand run r-1 over to ben" in message["content"]["text"]
        for wrong, fact in (
            ({"name": "hand_ovr"}, "did you mean 'hand_over'?"),
            ({"name": "take_up"}, "'run_id' is missing"),
            (request | {"arguments": {"run_id": "r", "to": "b", "x": "y"}}, "not an argument"),
        ):
            assert fact in (await ada.client.ask("prompts/get", **wrong))["error"]["message"]
    tools = set(offers())
    for prompt in PROMPTS.values():
        named = set(re.findall(r"[a-z]+_[a-z_]+", prompt.text)) - {*prompt.arguments}
        assert named <= tools, prompt.name


@pytest.mark.slow
def test_without_the_package_it_says_what_to_install(call: Call, monkeypatch: pytest.MonkeyPatch):
    """`hansard mcp serve` is an extra."""
    for name in list(sys.modules):
        if name.startswith("hansard.service.mcp"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    result = call("mcp", "serve")
    assert result.code == 2
    assert "pip install '.[mcp]'" in result.err


@pytest.mark.thorough(
    quick="service/test_record_roles.py::test_prompts_are_read_whole_and_changed_by_kind"
)
async def test_prompts_on_record_are_the_clients_as_its_role_says(setup: Setup, house: House):
    """Recorded prompts are listed, filled in and recorded; a role that sees none has ours."""

    def begin() -> None:
        house.apply(ROLES)
        with house.trusted() as record:
            record.prompts.add("rag", "Answer {query}.", reason="the first")
            record.prompts.add("rag", "Answer {query} in {words} words.")
            record.prompts.alias("rag@1", "production")
            record.prompts.add("compare", "Mine: {what}.")

    await asyncio.to_thread(begin)
    login = await asyncio.to_thread(house.login, "rob", "reader")
    there = Setup(house.data_dir, house.workspace, setup.sent)
    async with lines(there, "ada") as ada:
        assert isinstance(ada.client, Wire)
        listed = (await ada.client.ask("prompts/list"))["result"]["prompts"]
        prompts = {each["name"]: [one["name"] for one in each["arguments"]] for each in listed}
        assert prompts["rag"] == ["query", "words"]
        assert (prompts["compare"], prompts["compare@1"]) == (["experiment"], ["what"])
        request = {"name": "rag@production", "arguments": {"query": "why"}}
        result = (await ada.client.ask("prompts/get", **request))["result"]
        assert result["messages"][0]["content"]["text"] == "Answer why."
        assert result["_meta"]["hansard/prompt"] == "rag@1"
        run = result["_meta"]["hansard/run"]
        for wrong, fact in (
            ({"name": "rag", "arguments": {"query": "why"}}, "words"),
            ({"name": "rag@9"}, "9"),
            ({"name": "nothing"}, "no 'nothing'"),
        ):
            assert fact in (await ada.client.ask("prompts/get", **wrong))["error"]["message"]
    async with wire(
        there, ["env", f"HANSARD_CREDENTIALS={login}", python(), "-m", "hansard", *SERVE]
    ) as rob:
        await rob.greet()
        listed = (await rob.ask("prompts/list"))["result"]["prompts"]
        assert [each["name"] for each in listed] == list(PROMPTS)
        refused = [
            (await rob.ask("prompts/get", name=each))["error"]["message"] for each in ("rag", "gar")
        ]
        assert refused[0].replace("rag", "gar") == refused[1]

    def recorded_arguments() -> str:
        statement = "SELECT arguments FROM steps WHERE run = ? AND tool = 'mcp:prompts/get'"
        with house.trusted() as record:
            return str(record.sql(statement, run).rows)

    assert "rag@production" in await asyncio.to_thread(recorded_arguments)


def _one_run(house: House) -> None:
    """A run of which a reader is shown something."""
    house.apply(ROLES)
    with (
        house.trusted() as record,
        record.run("papers", run="open-1", agent="ada", role="ada") as ada,
    ):
        ada.board.put("findings/1", "whales")
        ada.team.add("read", task="reading")
        ada.team.add(SECRET, task="secret", role="ada")


@pytest.mark.slow
async def test_a_hidden_task_reads_as_a_missing_one(setup: Setup, house: House):
    """A restricted client gets one answer for a task that it may not see and for none."""
    await asyncio.to_thread(_one_run, house)
    login = await asyncio.to_thread(house.login, "rob", "reader")
    there = Setup(house.data_dir, house.workspace, setup.sent)
    program = ["env", f"HANSARD_CREDENTIALS={login}", python(), "-m", "hansard"]
    async with wire(there, [*program, *SERVE]) as rob:
        await rob.greet()
        await Team(rob).ask("resume_run", run_id="open-1")  # a read does not reopen it
        shown = (await rob.ask("resources/read", uri="task://open-1/reading"))["result"]
        assert json.loads(shown["contents"][0]["text"])["title"] == "read"
        hidden = await rob.ask("resources/read", uri="task://open-1/secret")
        none = await rob.ask("resources/read", uri="task://open-1/nothing")
        message = hidden["error"]["message"].replace("secret", "nothing")
        assert message == none["error"]["message"]


@pytest.mark.thorough(
    quick="service/mcp/test_context_killed.py::test_a_context_that_is_acknowledged_is_there_once"
)
async def test_a_harness_has_its_memory_over_mcp(setup: Setup):
    """Context is fetched and updated as one change; conflicts and other agents are refused."""

    def unasked() -> None:
        with hansard.connect(setup.workspace, data_dir=setup.data_dir) as record:
            for space in ("agent/ada", "org"):
                record.memory(space).set_policy("off", by="alice", reason="a test")

    def meanwhile(text: str) -> None:
        with hansard.connect(setup.workspace, data_dir=setup.data_dir) as record:
            record.memory("agent/ada").create("notes/a.md", text, by="alice")

    await asyncio.to_thread(unasked)
    async with sdk(setup, "ada", "auto") as ada:
        fetched = await ada.get("fetch_context", agent_id="ada")
        assert (fetched["files"], fetched["user_preferences"]) == ([], [])
        context = {
            "files": {"notes/a.md": "one\n"},
            "user_preferences": ["Use bullets.", "- Short."],
        }
        arguments = {"agent_id": "ada", "context": context, "timestamp": fetched["timestamp"]}
        done = await ada.get("update_context", **arguments)
        assert (done["written"], done["remembered"]) == (
            ["notes/a.md"],
            ["- Use bullets.", "- Short."],
        )
        again = await ada.get("update_context", **arguments | {"timestamp": done["timestamp"]})
        assert (again["written"], again["unchanged"], again["remembered"]) == (
            [],
            ["notes/a.md"],
            [],
        )
        fetched = await ada.get("fetch_context", agent_id="ada")
        texts = {each["path"]: each["text"] for each in fetched["files"]}
        assert texts == {"notes/a.md": "one\n", "AGENTS.md": "- Use bullets.\n- Short.\n"}
        assert [each["path"] for each in fetched["user_preferences"]] == ["AGENTS.md"]
        assert isinstance(ada.client, object)
        client: Any = ada.client
        async with client.listen(resource_subscriptions=["memory://notes/a.md"]) as changes:
            await asyncio.to_thread(meanwhile, "two\n")
            assert (await anext(changes)).uri == "memory://notes/a.md"
        read = await client.read_resource("memory://notes/a.md")
        assert (read.contents[0].text, read.contents[0].mime_type) == ("two\n", "text/markdown")
        listed = {each.uri for each in (await client.list_resources()).resources}
        assert {"memory://notes/a.md", "memory://AGENTS.md"} <= listed
        late = {
            "agent_id": "ada",
            "context": {"files": {"notes/a.md": "mine\n", "notes/b.md": "b\n"}},
        }
        late |= {"timestamp": fetched["timestamp"]}
        assert "changed by 'alice'" in await ada.refused("update_context", **late)
        assert await ada.get("memory_ls", **await in_a_run(ada)) == ["AGENTS.md", "notes/a.md"]
        fresh = await ada.get("fetch_context", agent_id="ada")
        full = {"agent_id": "ada", "context": {"files": {"notes/b.md": "b\n"}}, "sync_type": "full"}
        done = await ada.get("update_context", **full, timestamp=fresh["timestamp"])
        assert (done["written"], done["deleted"]) == (["notes/b.md"], ["AGENTS.md", "notes/a.md"])
        assert len(fresh["past_tasks"]) >= 1
        assert "this client is 'ada'" in await ada.refused("fetch_context", agent_id="ben")
        for wrong in ({"timestamp": "yesterday"}, {"sync_type": "some"}, {"context": {"x": 1}}):
            assert await ada.refused("update_context", **late | wrong)
        shown = await client.get_prompt("remember", {"run_id": "r", "what": "Be brief."})
        assert shown.messages[0].content.text.startswith("/remember Be brief.")


async def in_a_run(client: Team) -> dict[str, Any]:
    """Begin a run and return arguments that name it."""
    return {"run_id": (await client.get("start_run", workflow="w"))["run_id"]}
