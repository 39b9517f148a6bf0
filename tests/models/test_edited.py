"""Edited responses of providers, as the real SDKs read them in a fork; bodies are hand-written."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.ext.models import edited
from hansard.ext.models.exchange import Request
from hansard.ext.models.proxy import ModelProxy, upstreams
from tests.faults._warm import python
from tests.late import LATE
from tests.models.provider import Provider

if LATE:
    import openai

pytestmark = [
    pytest.mark.later,
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession"),  # google-genai's
]

Asks = Callable[[str], Awaitable[Any]]

CALL = {"name": "refund", "arguments": '{"number": 17}'}
"""The tool call that each edited body has besides its text."""

CHAT = {
    "id": "c9", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": "Zürich",
        "tool_calls": [{"id": "call_1", "type": "function", "function": CALL}]}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}  # fmt: skip
RESPONSE = {
    "id": "resp_9", "object": "response", "created_at": 1, "model": "m", "status": "completed",
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    "output": [
        {"id": "msg_9", "type": "message", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "Zürich", "annotations": []}]},
        {"id": "fc_9", "type": "function_call", "call_id": "call_1", "status": "completed", **CALL},
    ],
}  # fmt: skip
MESSAGE = {
    "id": "msg_9", "type": "message", "role": "assistant", "model": "m",
    "content": [
        {"type": "text", "text": "Zürich"},
        {"type": "tool_use", "id": "toolu_1", "name": "refund", "input": {"number": 17}},
    ],
    "stop_reason": "tool_use", "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 2},
}  # fmt: skip
CONTENT = {
    "candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [
        {"text": "Zürich"}, {"functionCall": {"name": "refund", "args": {"number": 17}}}]}}],
}  # fmt: skip

SAYS = ("Zürich", "refund", {"number": 17})
ASK = [{"role": "user", "content": "Where is order 17?"}]


async def chat(base: str) -> Any:
    """Return the text, the called tool and its arguments of an answer."""
    async with _openai(base) as client:
        made = await client.chat.completions.create(model="m", messages=ASK)
    return _chat_parts(made.choices[0].message)


async def chat_stream(base: str) -> Any:
    """As `chat`, by a stream."""
    async with (
        _openai(base) as client,
        client.chat.completions.stream(model="m", messages=ASK) as stream,
    ):
        await stream.until_done()
        return _chat_parts((await stream.get_final_completion()).choices[0].message)


def _openai(base: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{base}/openai", api_key="x", max_retries=0)


def _chat_parts(message: Any) -> Any:
    [call] = message.tool_calls or [None]
    function = call.function if call else None
    return message.content, function and function.name, function and json.loads(function.arguments)


async def responses(base: str) -> Any:
    """As `chat`, by the Responses API."""
    async with _openai(base) as client:
        return _response_parts(await client.responses.create(model="m", input="Where is it?"))


async def responses_stream(base: str) -> Any:
    """As `responses`, by a stream, whose differences are its final response."""
    texts, calls = "", ""
    async with (
        _openai(base) as client,
        client.responses.stream(model="m", input="Where is it?") as stream,
    ):
        async for event in stream:
            texts += event.delta if event.type == "response.output_text.delta" else ""
            calls += event.delta if event.type == "response.function_call_arguments.delta" else ""
        final = _response_parts(await stream.get_final_response())
    assert (texts, json.loads(calls)) == (final[0], final[2])
    return final


def _response_parts(response: Any) -> Any:
    [call] = [each for each in response.output if each.type == "function_call"]
    return response.output_text, call.name, json.loads(call.arguments)


async def messages(base: str) -> Any:
    """As `chat`, by Anthropic's messages."""
    async with _anthropic(base) as client:
        return _blocks(await client.messages.create(model="m", max_tokens=9, messages=ASK))


async def messages_stream(base: str) -> Any:
    """As `messages`, by a stream."""
    async with (
        _anthropic(base) as client,
        client.messages.stream(model="m", max_tokens=9, messages=ASK) as stream,
    ):
        return _blocks(await stream.get_final_message())


def _anthropic(base: str) -> Any:
    import anthropic  # noqa: PLC0415 -- takes seconds

    return anthropic.AsyncAnthropic(base_url=f"{base}/anthropic", api_key="x", max_retries=0)


def _blocks(message: Any) -> Any:
    text, *calls = message.content
    return text.text, *([calls[0].name, calls[0].input] if calls else [None, None])


async def content(base: str) -> Any:
    """As `chat`, by Google's API."""
    async with _google(base) as client:
        return _candidate([await client.models.generate_content(model="m", contents="Where?")])


async def content_stream(base: str) -> Any:
    """As `content`, by a stream."""
    async with _google(base) as client:
        stream = await client.models.generate_content_stream(model="m", contents="Where?")
        return _candidate([chunk async for chunk in stream])


def _google(base: str) -> Any:
    from google import genai  # noqa: PLC0415 -- takes seconds

    options = genai.types.HttpOptions(base_url=f"{base}/google")
    return genai.Client(api_key="x", http_options=options).aio


def _candidate(chunks: list[Any]) -> Any:
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    calls = [part.function_call for part in parts if part.function_call]
    text = "".join(part.text or "" for part in parts)
    return text, *([calls[0].name, calls[0].args] if calls else [None, None])


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    """Return the local provider, which answers in hand-written bodies."""
    made = Provider(tmp_path_factory.mktemp("provider"))
    yield made
    made.stop()


@contextlib.asynccontextmanager
async def proxied(record: Any, provider: Provider, run: str) -> AsyncGenerator[tuple[Any, str]]:
    """Serve the proxy of a session; provide both."""
    async with record.run("asks", run=run, agent="models") as session:
        proxy = ModelProxy(session, upstreams(provider.environment))
        async with proxy.serving() as url:
            yield proxy, url


@pytest.mark.parametrize(
    ("ask", "body"),
    [
        (chat, CHAT),
        (chat_stream, CHAT),
        (responses, RESPONSE),
        (responses_stream, RESPONSE),
        (messages, MESSAGE),
        (messages_stream, MESSAGE),
        (content, CONTENT),
        (content_stream, CONTENT),
    ],
)
async def test_an_sdk_reads_an_edited_body(
    data_dir, workspace, provider, monkeypatch, ask: Asks, body
):
    """In the fork each client gets the edited text and tool call, and the provider is not called;
    the other request of the run is answered from the record.
    """
    monkeypatch.setenv("SSL_CERT_FILE", provider.environment["SSL_CERT_FILE"])
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with proxied(record, provider, "r") as (_, url):
            with contextlib.suppress(Exception):  # the provider has no answers for Responses
                await ask(url)
            live = await _plain(url)
        before = len(provider.calls)
        child = await record.fork("r", edits=[hansard.replace("models#1", result=body)])
        async with proxied(record, provider, child) as (proxy, url):
            assert await ask(url) == SAYS
            assert await _plain(url) == live
        assert (proxy.report.calls, proxy.report.from_record) == (2, 2)
        assert len(provider.calls) == before
        if ask is chat:
            answer = await record.sql("SELECT run, answered_by FROM model_calls ORDER BY run, step")
            assert sorted(each for run, each in answer.rows if run == child) == ["edit", "record"]
            assert {each for run, each in answer.rows if run == "r"} == {"provider"}


async def _plain(base: str) -> Any:
    async with _openai(base) as client:
        answer = await client.chat.completions.create(model="other", messages=ASK)
    return answer.choices[0].message.content


async def test_a_request_that_depends_on_an_edit_goes_to_the_provider(
    data_dir, workspace, provider, monkeypatch
):
    """The next request has the edited answer in it, so the provider is asked, once."""
    monkeypatch.setenv("SSL_CERT_FILE", provider.environment["SSL_CERT_FILE"])

    async def dialogue(url: str) -> Any:
        async with _openai(url) as client:
            first = await client.chat.completions.create(model="m", messages=ASK)
            text = first.choices[0].message.content
            more: Any = [*ASK, {"role": "assistant", "content": text}, *ASK]
            await client.chat.completions.create(model="m", messages=more)
            return text

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with proxied(record, provider, "r") as (_, url):
            await dialogue(url)
        before = len(provider.calls)
        child = await record.fork("r", edits=[hansard.replace("models#1", result=CHAT)])
        for _ in range(2):  # the second time it is resumed
            async with proxied(record, provider, child) as (_, url):
                assert await dialogue(url) == "Zürich"
        [(_, asked)] = provider.calls[before:]
        assert asked["messages"][1]["content"] == "Zürich"
        shadow = await record.fork(
            "r", effects="shadow", edits=[hansard.replace("models#1", result=CHAT)]
        )
        async with proxied(record, provider, shadow) as (_, url):
            with pytest.raises(openai.APIStatusError, match="effects='models' is enough"):
                await dialogue(url)


async def test_a_request_has_another_message(data_dir, workspace, provider, monkeypatch):
    """The fork begins before the message's request, which has the new one by proxy and by hook."""
    monkeypatch.setenv("SSL_CERT_FILE", provider.environment["SSL_CERT_FILE"])

    async def ask(base: str) -> None:
        async with openai.AsyncOpenAI(base_url=base, api_key="x", max_retries=0) as client:
            await client.chat.completions.create(model="m", messages=ASK)

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with proxied(record, provider, "r") as (_, url):
            await ask(f"{url}/openai")
        statement = (
            "SELECT address_of(position, event_index) FROM events WHERE type = 'message.added.v1' "
            "AND data->>'role' = 'user'"
        )
        [[address]] = (await record.sql(statement)).rows
        edit = hansard.replace(address, result="Where is order 18?")
        child, other = [await record.fork("r", edits=[edit]) for _ in range(2)]
        async with proxied(record, provider, child) as (_, url):
            await ask(f"{url}/openai")
        for name, value in provider.environment.items():
            monkeypatch.setenv(name, value)
        async with record.run("asks", run=other, agent="models"), hansard.record_http():
            await ask(provider.environment["OPENAI_BASE_URL"])
        assert [body["messages"][0]["content"] for _, body in provider.calls[-2:]] == [
            "Where is order 18?"
        ] * 2


def _request(path: str, **body: Any) -> Request:
    return Request(provider="openai", method="POST", path=path, body=json.dumps(body).encode())


async def framed(values: list[Any], request: Request) -> list[dict[str, Any]]:
    """Return values as the items of an exchange."""

    async def items() -> AsyncGenerator[Any, None]:
        for each in values:
            yield each

    return [item async for item in edited.framed(items(), request)]


async def test_a_text_and_items_are_sent_as_they_are():
    """Events written by hand, and items in the recorded form, pass unchanged."""
    request = _request("/v1/chat/completions", stream=True)
    text = 'data: {"x": 1}\n\ndata: [DONE]\n\n'
    head, chunk, end = await framed([text], request)
    assert head["head"]["headers"] == [["content-type", "text/event-stream"]]
    assert (chunk["chunk"]["data"], end["end"]["bytes"]) == (text, len(text))
    items = [{"head": {"status": 429, "headers": []}}, {"end": {"how": "complete"}}]
    assert await framed(items, request) == items


async def test_an_error_body_is_one_event():
    """A body without choices is not split; a request that does not stream gets it with its size."""
    error = {"error": {"message": "no"}}
    streamed = _request("/v1/chat/completions", stream=True)
    data = [item["chunk"]["data"] for item in await framed([error], streamed) if "chunk" in item]
    assert data == ['data: {"error":{"message":"no"}}\n\n', "data: [DONE]\n\n"]
    head, *_ = await framed([error], _request("/v1/chat/completions"))
    assert ["content-length", "26"] in head["head"]["headers"]


@pytest.mark.parametrize("body", [[], [1, 2], None])
async def test_a_body_that_is_no_object_is_sent_whole(body):
    """A list is one body, although a list of items is also how a stream is edited."""
    items = body if isinstance(body, list) else [body]
    parts = await framed(items, _request("/v1/embeddings"))
    chunks = [each for each in parts if "chunk" in each]
    assert [json.loads(each["chunk"]["data"]) for each in chunks] == [body]


PROGRAM = """
import openai

with openai.OpenAI(max_retries=0) as client:
    ask = [{"role": "user", "content": "Where is order 17?"}]
    first = client.chat.completions.create(model="m", messages=ask).choices[0].message.content
    more = [*ask, {"role": "assistant", "content": first}, *ask]
    client.chat.completions.create(model="m", messages=more)
    print(first)
"""


def test_a_recorded_program_goes_on_from_an_edited_answer(
    call, record, provider, monkeypatch, tmp_path: Path
):
    """`hansard record`, `run fork --replace` with the provider's body, `record --run`: the program
    is unchanged, and only its second request is made again.
    """
    for name, value in provider.environment.items():
        monkeypatch.setenv(name, value)
    program, body = tmp_path / "agent.py", tmp_path / "body.json"
    program.write_text(PROGRAM)
    body.write_text(json.dumps(CHAT))
    assert call("record", "--", python("openai"), program).code == 0
    made = call("run", "fork", "last", "--replace", f"models#1={body}")
    fork = made.out.strip()
    assert f"continue with: hansard record --run {fork}" in made.err
    before = len(provider.calls)
    assert call("record", "--run", fork, "--", python("openai"), program).code == 0
    [(_, request)] = provider.calls[before:]
    assert request["messages"][1]["content"] == "Zürich"
    steps = record.state(fork).agent("models").steps
    assert [step.verdict for step in steps.values()] == ["happened", None]


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("way", ["bisect", "resume", "replay"])
def test_a_recorded_program_goes_on_behind_the_proxy_whatever_starts_it(
    call, record, provider, monkeypatch, tmp_path: Path, way
):
    """`bisect`, `run resume` and `run replay` of a run of `hansard record` call no provider beside
    the record, though its program knows nothing of Hansard.
    """
    for name, value in provider.environment.items():
        monkeypatch.setenv(name, value)
    program = tmp_path / "agent.py"
    program.write_text(PROGRAM)
    command = [python("openai"), str(program)]
    assert call("record", "--", *command).code == 0
    run = next(iter(record.runs()))[0]
    before = len(provider.calls)
    if way == "bisect":
        check = (
            f"{python('openai')} -c \"import json, sys; s = json.load(sys.stdin)['agents']; "
            "exit(len(s.get('models', {}).get('steps', {})) > 1)\""
        )
        made = call("bisect", run, "--check", check, "--", *command)
        assert (made.code, "without a session or calling" in made.err) == (1, False), made.err
        assert "fails at the beginning of the run already" in made.out + made.err
        idle = call("bisect", run, "--check", "true", "--", python("openai"), "-c", "")
        assert (idle.code, "without a session or calling a model in fork" in idle.err) == (2, True)
    else:
        assert call("run", way, run, "--", *command).code == 0
    assert len(provider.calls) == before
    assert len(record.state(run).agent("models").steps) == 2


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("text", ["not json", '"a text"', '{"text": "no"}', "[]", "7"])
def test_a_result_that_no_client_can_read_is_refused_at_the_fork(
    call, record, provider, monkeypatch, tmp_path: Path, text
):
    """The fork is not made; the error has the form of the answer."""
    for name, value in provider.environment.items():
        monkeypatch.setenv(name, value)
    program, body = tmp_path / "agent.py", tmp_path / "body.txt"
    program.write_text(PROGRAM)
    body.write_text(text)
    assert call("record", "--", python("openai"), program).code == 0
    before = dict(record.runs())
    made = call("run", "fork", "last", "--replace", f"models#1={body}")
    assert made.code == 2
    assert "give the JSON body of the provider's answer (an object with 'choices')" in made.err
    assert dict(record.runs()).keys() == before.keys()


def test_the_messages_of_an_edited_call_are_compared(
    call, record, provider, monkeypatch, tmp_path: Path
):
    """The fork states the messages of calls that an edit or its parent answered, each once, so that
    a comparison shows the other answer, and not that the question was never asked.
    """
    for name, value in provider.environment.items():
        monkeypatch.setenv(name, value)
    program, body = tmp_path / "agent.py", tmp_path / "body.json"
    program.write_text(PROGRAM)
    message = {"role": "assistant", "content": "Zürich"}
    body.write_text(json.dumps({**CHAT, "choices": [{"index": 0, "message": message}]}))
    assert call("record", "--", python("openai"), program).code == 0
    run = next(iter(record.runs()))[0]
    fork = call("run", "fork", run, "--replace", f"models#1={body}").out.strip()
    for _ in range(2):
        assert call("record", "--run", fork, "--", python("openai"), program).code == 0
        lines = call("run", "diff", run, fork, "--json").lines
        moves = [line for line in lines if line["kind"] == "move"]
        messages = [each for each in moves if "role" in (each["a"] or each["b"])]
        # An answer may be noted before or after the intent of the next call, so not their order.
        kinds = {each["what"] for each in messages if (each["a"] or each["b"])["role"] == "user"}
        assert kinds == {"same"}
        parent, edited = (
            Counter((each[side]["role"], each[side]["content"]) for each in messages if each[side])
            for side in ("a", "b")
        )
        question, answer = ("user", "Where is order 17?"), ("assistant", "Grüße aus Köln.")
        assert parent == {question: 2, answer: 2}
        assert edited == {question: 2, answer: 1, ("assistant", "Zürich"): 1}
