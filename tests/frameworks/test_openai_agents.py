"""OpenAI Agents SDK 0.24: model calls and function tools are steps, sessions are on the record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

import hansard
from tests.cli.support import Call
from tests.frameworks.killing import rows
from tests.late import LATE

if LATE:
    from agents import (
        Agent,
        ApplyPatchTool,
        ModelProvider,
        ModelSettings,
        MultiProvider,
        OpenAIProvider,
        Runner,
        ToolOutputText,
        Usage,
        function_tool,
        handoff,
        set_default_openai_api,
        set_tracing_disabled,
    )
    from agents.items import ModelResponse
    from agents.models import _openai_shared
    from agents.models.multi_provider import MultiProviderMap
    from agents.models.openai_responses import OpenAIResponsesModel
    from agents.retry import ModelRetrySettings, retry_policies
    from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
    from openai import APIConnectionError, AsyncOpenAI

    from hansard.ext.frameworks import agents_sessions
    from hansard.ext.frameworks.agents_sessions import AgentsSessions
    from hansard.ext.frameworks.openai_agents import RecordedHooks, RecordedSession, recorded

    set_tracing_disabled(disabled=True)

pytestmark = pytest.mark.later


def calls(*names: str) -> ModelStep:
    """Answer with calls of tools without arguments."""
    return ModelStep(output=[function_call(name, {}, call_id=f"c-{name}") for name in names])


def says(text: str) -> ModelStep:
    """Answer with a text."""
    return ModelStep(output=[assistant_message(text)])


def scripted(*steps: ModelStep) -> ScriptedModel:
    """Return a model that answers by hand; a call beyond the script is an error."""
    return ScriptedModel(steps, default_usage=Usage(requests=1, input_tokens=5, output_tokens=2))


async def played(data_dir, workspace, agent, *modes, run="r", **options):
    """Run an agent once for each mode, in one run; return its outputs."""
    outputs = []
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for mode in modes or (None, "strict"):
            async with record.run("w", run=run, mode=mode):
                outputs.append((await Runner.run(agent, "Go.", **options)).final_output)
    return outputs


async def test_parallel_tools_kinds_and_tokens_are_on_record(data_dir: Path, workspace: str):
    """Effects are those given, else `once`; outputs are the same when they come from the record."""
    ran = []

    @function_tool
    def pay() -> ToolOutputText:
        ran.append("pay")
        return ToolOutputText(text="paid")

    @function_tool
    async def look() -> dict[str, int]:
        ran.append("look")
        await asyncio.sleep(0.01)
        return {"n": 1}

    model = scripted(calls("look", "pay"), says("Done."))
    agent = recorded(Agent("a", model=model, tools=[pay, look]), pure=["look"])
    assert await played(data_dir, workspace, agent) == ["Done."] * 2
    assert sorted(ran) == ["look", "pay"]
    model.assert_complete()
    steps = "SELECT tool, kind, effects, input_tokens FROM steps ORDER BY kind, tool, step"
    assert await rows(data_dir, workspace, steps) == [
        ("agents.ScriptedModel", "model", "idempotent", 5),
        ("agents.ScriptedModel", "model", "idempotent", 5),
        ("look", "tool", "pure", None),
        ("pay", "tool", "once", None),
    ]


async def test_a_streamed_answer_is_replayed_event_by_event(data_dir: Path, workspace: str):
    """The events of a streamed run are the same in a replay, and no model is called."""
    agent = recorded(Agent("a", model=scripted(says("Two words."))))
    seen = []
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for mode in (None, "strict"):
            async with record.run("w", run="r", mode=mode):
                result = Runner.run_streamed(agent, "Go.")
                events = [each async for each in result.stream_events()]
                raw = [each.data for each in events if each.type == "raw_response_event"]
                seen.append((result.final_output, [each.model_dump() for each in raw]))
    assert seen[0] == seen[1]
    assert len(seen[0][1]) > 5
    items = "SELECT count(*) FROM events WHERE type = 'step.yielded.v1'"
    assert await rows(data_dir, workspace, items) == [(len(seen[0][1]),)]
    assert await rows(data_dir, workspace, "SELECT input_tokens FROM steps") == [(5,)]


async def test_errors_are_replayed_as_text_or_as_failures(data_dir: Path, workspace: str):
    """The SDK makes an error a text for the model, unless the tool says otherwise."""
    ran = []

    @function_tool
    def soft() -> str:
        ran.append("soft")
        raise KeyError("broken")

    @function_tool(failure_error_function=None)
    def hard() -> str:
        ran.append("hard")
        raise KeyError("broken")

    model = scripted(calls("soft"), calls("hard"))
    agent = recorded(Agent("a", model=model, tools=[soft, hard]))
    for mode in (None, "strict"):
        with pytest.raises(Exception, match="Error running tool hard: 'broken'"):
            await played(data_dir, workspace, agent, mode)
    assert ran == ["soft", "hard"]
    states = "SELECT tool, status FROM steps WHERE kind = 'tool' ORDER BY step"
    assert await rows(data_dir, workspace, states) == [("soft", "completed"), ("hard", "failed")]


async def test_a_failed_model_call_is_retried_and_both_are_on_record(
    data_dir: Path, workspace: str
):
    """Each attempt of the SDK's retries is a step; a replay makes none."""
    retries = ModelRetrySettings(max_retries=1, policy=retry_policies.network_error())
    cut = APIConnectionError(request=httpx2.Request("POST", "http://localhost"))
    model = scripted(ModelStep(error=cut), says("Done."))
    settings = ModelSettings(retry=retries)
    agent = recorded(Agent("a", model=model, model_settings=settings))
    assert await played(data_dir, workspace, agent) == ["Done."] * 2
    model.assert_complete()
    states = "SELECT status FROM steps ORDER BY step"
    assert await rows(data_dir, workspace, states) == [("failed",), ("completed",)]


async def test_a_handoff_object_leads_to_a_recorded_agent(data_dir: Path, workspace: str):
    """Its agent is recorded, too, and the hand-off and the answer are noted."""
    model = scripted(calls("transfer_to_b"), says("From b."))
    other = Agent("b", model=model)
    agent = recorded(Agent("a", model=model, handoffs=[handoff(other)]))
    assert await played(data_dir, workspace, agent, hooks=RecordedHooks()) == ["From b."] * 2
    model.assert_complete()
    handed = "SELECT data->>'to' FROM events WHERE type = 'agent.handed_off.v1'"
    assert await rows(data_dir, workspace, handed) == [("b",)]


async def test_an_agent_as_a_composite_tool_has_steps(data_dir: Path, workspace: str):
    """The inner agent's calls are steps within the tool's call."""
    inner = recorded(Agent("inner", model=scripted(says("Inner."))))
    tool = inner.as_tool("ask", "Asks.")
    call = ModelStep(output=[function_call("ask", {"input": "What?"}, call_id="c")])
    outer = Agent("outer", model=scripted(call, says("Outer.")), tools=[tool])
    assert await played(data_dir, workspace, recorded(outer, composite=["ask"])) == ["Outer."] * 2
    nested = "SELECT count(*) FROM steps WHERE parent_step IS NOT NULL"
    assert await rows(data_dir, workspace, nested) == [(1,)]


async def test_a_session_outlives_its_run(data_dir: Path, workspace: str):
    """Items of one run are there in the next; a replay of the first has its own items."""
    session = RecordedSession("ann")
    first = recorded(Agent("a", model=scripted(says("One."))))
    assert await played(data_dir, workspace, first, session=session) == ["One."] * 2
    model = scripted(says("Two."))
    second = recorded(Agent("a", model=model))
    assert await played(data_dir, workspace, second, None, run="s", session=session) == ["Two."]
    assert model.last_call is not None
    assert len(model.last_call.input) == 3
    assert await played(data_dir, workspace, first, "strict", session=session) == ["One."]


async def test_the_methods_of_a_session(data_dir: Path, workspace: str):
    """Limits, removal of the newest and of all; a resumed run removes nothing twice."""
    session = RecordedSession("ann")
    items: list = [{"role": "user", "content": str(number)} for number in range(3)]
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for _ in range(2):
            async with record.run("w", run="r"):
                await session.add_items(items[:1])
                await session.add_items(items[1:])
                assert await session.get_items() == items
                assert await session.get_items(limit=2) == items[1:]
                assert await session.get_items(limit=0) == []
                assert await session.pop_item() == items[2]
        assert await record.noun(AgentsSessions).items("ann") == items[:2]
        async with record.run("w", run="s"):
            assert await session.get_items() == items[:2]
            await session.clear_session()
            assert await session.get_items() == []
            assert await session.pop_item() is None
        changes = "SELECT change, count FROM agents_session_changes ORDER BY position"
        assert [tuple(row) for row in (await record.sql(changes)).rows] == [
            ("added", 1),
            ("added", 2),
            ("removed", 1),
            ("removed", 0),
        ]


async def test_a_change_that_is_repeated_after_a_kill_changes_nothing(
    data_dir: Path, workspace: str
):
    """The key of the call is in the change: the repeated call finds it, and its item."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        space = record._workspace
        by = hansard.domain.events.Actor(agent="a")
        for _ in range(2):
            await agents_sessions.add(space, "s", [{"n": 1}, {"n": 2}], "k1", by, None)
        for _ in range(2):
            assert (await agents_sessions.read(space, "s", "k2")).items == [{"n": 1}, {"n": 2}]
            await agents_sessions.remove(space, "s", 1, "k2", by, None)
        assert (await agents_sessions.read(space, "s")).items == [{"n": 1}]


async def test_a_gate_refuses_a_tool_by_its_name(data_dir: Path, workspace: str):
    """Rules of the gate end the run, and the tool does not run."""
    ran = []
    tool = function_tool(lambda: ran.append(1), name_override="pay")
    agent = recorded(Agent("a", model=scripted(calls("pay")), tools=[tool]))
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        with pytest.raises(Exception, match="pay"):
            async with record.run("w", gate=[hansard.deny("pay")]):
                await Runner.run(agent, "Go.")
    assert ran == []


async def test_a_tool_that_no_hook_records_is_refused():
    """An agent with such a tool is refused as a whole, with a remedy."""
    agent = Agent("a", tools=[ApplyPatchTool(editor=None)])
    with pytest.raises(hansard.errors.BadValue, match="function tool"):
        recorded(agent)


async def test_outside_a_session_an_agent_runs_unrecorded():
    """Nothing is recorded, and nothing fails, where no session is current."""
    tool = function_tool(lambda: "x", name_override="pay")
    agent = recorded(Agent("a", model=scripted(calls("pay"), says("Done.")), tools=[tool]))
    assert (await Runner.run(agent, "Go.")).final_output == "Done."


async def test_keys_and_random_ids_are_no_part_of_a_request(data_dir: Path, workspace: str):
    """Headers, which may hold keys, are not stored; a provider's model has its operation's name."""

    class Answering(OpenAIResponsesModel):  # type: ignore[misc]  # see mypy's configuration
        async def get_response(self, *request, **more):
            return ModelResponse([assistant_message("Done.")], Usage(), None)

    Answering.__name__ = "OpenAIResponsesModel"
    model = Answering("gpt-5", AsyncOpenAI(api_key="none"))
    settings = ModelSettings(extra_headers={"authorization": "Bearer sk-secret"})
    agent = recorded(Agent("a", model=model, model_settings=settings))
    assert await played(data_dir, workspace, agent) == ["Done."] * 2
    query = "SELECT tool, arguments->>'model', arguments::VARCHAR FROM steps"
    [(tool, name, arguments)] = await rows(data_dir, workspace, query)
    assert (tool, name) == ("openai.responses", "gpt-5")
    assert "secret" not in arguments
    assert "prompt_cache_key" not in arguments


async def test_a_replay_of_a_model_given_by_name_needs_no_key(data_dir: Path, workspace: str):
    """The provider makes the model for the first call that really runs, and not before."""

    class Provider(ModelProvider):  # type: ignore[misc]  # see mypy's configuration
        def __init__(self) -> None:
            self.made = 0

        def get_model(self, model_name):
            self.made += 1
            return scripted(says(f"I am {model_name}."))

    providers = Provider(), Provider()
    for provider, mode in zip(providers, (None, "strict"), strict=True):
        agent = recorded(Agent("a", model="gpt-5"), provider=provider)
        assert await played(data_dir, workspace, agent, mode) == ["I am gpt-5."]
    assert [each.made for each in providers] == [1, 0]
    query = "SELECT tool, arguments->>'model' FROM steps"
    assert await rows(data_dir, workspace, query) == [("agents.Provider", "gpt-5")]


async def test_a_call_is_named_by_the_interface_that_serves_it(
    data_dir: Path, workspace: str, monkeypatch: pytest.MonkeyPatch
):
    """A model given by name is of the class that its provider makes, as the SDK is configured."""
    monkeypatch.setattr(_openai_shared, "_use_responses_by_default", True)

    def names(provider: ModelProvider | None = None, *models: str | None) -> list[str]:
        agents = [recorded(Agent("a", model=each), provider=provider) for each in models]
        return [each.model._operation for each in agents]

    chat = "openai.chat.completions"
    assert names(None, None, "openai/gpt-5") == ["openai.responses"] * 2
    assert names(OpenAIProvider(use_responses=False), "gpt-5") == [chat]
    routes = MultiProviderMap()
    routes.add_provider("mine", OpenAIProvider(use_responses=False))
    multi = MultiProvider(provider_map=routes)
    expected = [chat, "openai.responses", "agents.LitellmModel"]
    assert names(multi, "mine/m", "gpt-5", "litellm/m") == expected
    set_default_openai_api("chat_completions")
    assert names(None, None, "gpt-5") == [chat] * 2


async def test_large_items_are_kept_by_reference_and_secrets_are_replaced(
    data_dir: Path, workspace: str
):
    """An item of a megabyte comes back whole; a secret is in no stored event."""
    session = RecordedSession("ann")
    large = {"role": "user", "content": "x" * 1_000_000}
    secret = {"role": "user", "content": "My key is sk-very-secret-1."}
    redact = {"key": "sk-very-secret-1"}
    async with hansard.connect_async(workspace, data_dir=data_dir, redact=redact) as record:
        for _ in range(2):
            async with record.run("w", run="r"):
                await session.add_items([large])
                await session.add_items([secret])
                first, second = await session.get_items()
                assert first == large
                assert "sk-very-secret-1" not in str(second)
        async with record.run("w", run="s"):
            assert (await session.pop_item())["role"] == "user"
            assert await session.get_items() == [large]
        stored = "SELECT count(*) FROM events WHERE data::VARCHAR LIKE '%sk-very-secret-1%'"
        assert [tuple(row) for row in (await record.sql(stored)).rows] == [(0,)]


async def test_a_session_is_shown_by_a_command(data_dir: Path, workspace: str, call: Call):
    """`hansard agents-sessions items` has what the next run of the conversation gets."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record, record.run("w"):
        await RecordedSession("ann").add_items([{"role": "user", "content": "Hello."}])
    shown = await asyncio.to_thread(call, "agents-sessions", "items", "ann", "--json")
    assert "Hello." in shown.out
