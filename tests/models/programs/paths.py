"""Call models by the paths named as arguments, each at once and as a stream; print what it got."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

PROMPT: list[Any] = [{"role": "user", "content": "hi"}]
MAX = {"max_tokens": 64}


def text_of(chunk: Any) -> str:
    """Return the text in a chunk of OpenAI's form."""
    return (chunk.choices[0].delta.content or "") if chunk.choices else ""


def openai_sync(model: str) -> Iterator[str]:
    """Call OpenAI's client."""
    import openai  # noqa: PLC0415 -- slow, and needed by its path alone

    client = openai.OpenAI(max_retries=1)
    whole = client.chat.completions.create(model=model, messages=PROMPT)
    yield whole.choices[0].message.content or ""
    for chunk in client.chat.completions.create(model=model, messages=PROMPT, stream=True):
        yield text_of(chunk)


async def openai_async(model: str, **options: Any) -> AsyncIterator[str]:
    """Call OpenAI's async client."""
    import openai  # noqa: PLC0415 -- slow, and needed by its path alone

    async with openai.AsyncOpenAI(max_retries=1, **options) as client:
        whole = await client.chat.completions.create(model=model, messages=PROMPT)
        yield whole.choices[0].message.content or ""
        chunks = await client.chat.completions.create(model=model, messages=PROMPT, stream=True)
        async for chunk in chunks:
            yield text_of(chunk)


async def openai_aiohttp(model: str) -> AsyncIterator[str]:
    """Call OpenAI's async client over aiohttp."""
    import openai  # noqa: PLC0415 -- slow, and needed by its path alone

    async for text in openai_async(model, http_client=openai.DefaultAioHttpClient()):
        yield text


def anthropic_sync(model: str) -> Iterator[str]:
    """Call Anthropic's client."""
    import anthropic  # noqa: PLC0415 -- slow, and needed by its path alone

    client = anthropic.Anthropic(max_retries=1)
    whole = client.messages.create(model=model, messages=PROMPT, **MAX)
    yield whole.content[0].text
    with client.messages.stream(model=model, messages=PROMPT, **MAX) as stream:
        yield from stream.text_stream


async def anthropic_async(model: str, **options: Any) -> AsyncIterator[str]:
    """Call Anthropic's async client."""
    import anthropic  # noqa: PLC0415 -- slow, and needed by its path alone

    async with anthropic.AsyncAnthropic(max_retries=1, **options) as client:
        whole = await client.messages.create(model=model, messages=PROMPT, **MAX)
        yield whole.content[0].text
        async with client.messages.stream(model=model, messages=PROMPT, **MAX) as stream:
            async for text in stream.text_stream:
                yield text


async def anthropic_aiohttp(model: str) -> AsyncIterator[str]:
    """Call Anthropic's async client over aiohttp."""
    import anthropic  # noqa: PLC0415 -- slow, and needed by its path alone

    async for text in anthropic_async(model, http_client=anthropic.DefaultAioHttpClient()):
        yield text


def google_sync(model: str) -> Iterator[str]:
    """Call Google's client."""
    from google import genai  # noqa: PLC0415 -- slow, and needed by its path alone

    client = genai.Client()
    yield client.models.generate_content(model=model, contents="hi").text or ""
    for chunk in client.models.generate_content_stream(model=model, contents="hi"):
        yield chunk.text or ""


async def google_async(model: str) -> AsyncIterator[str]:
    """Call Google's async client, which takes aiohttp where it is installed."""
    from google import genai  # noqa: PLC0415 -- slow, and needed by its path alone

    client = genai.Client().aio
    yield (await client.models.generate_content(model=model, contents="hi")).text or ""
    async for chunk in await client.models.generate_content_stream(model=model, contents="hi"):
        yield chunk.text or ""


def litellm_sync(model: str) -> Iterator[str]:
    """Call litellm."""
    import litellm  # noqa: PLC0415 -- slow, and needed by its path alone

    options = {"messages": PROMPT, **MAX, "num_retries": 0}
    yield litellm.completion(model=model, **options).choices[0].message.content
    for chunk in litellm.completion(model=model, stream=True, **options):
        yield text_of(chunk)


async def litellm_async(model: str) -> AsyncIterator[str]:
    """Call litellm's async functions, which take aiohttp where it is installed."""
    import litellm  # noqa: PLC0415 -- slow, and needed by its path alone

    options = {"messages": PROMPT, **MAX, "num_retries": 0}
    yield (await litellm.acompletion(model=model, **options)).choices[0].message.content
    async for chunk in await litellm.acompletion(model=model, stream=True, **options):
        yield text_of(chunk)


PATHS: dict[str, Any] = {
    "openai": openai_sync,
    "openai-async": openai_async,
    "openai-aiohttp": openai_aiohttp,
    "anthropic": anthropic_sync,
    "anthropic-async": anthropic_async,
    "anthropic-aiohttp": anthropic_aiohttp,
    "google": google_sync,
    "google-async": google_async,
    "litellm-openai": lambda model: litellm_sync(f"openai/{model}"),
    "litellm-openai-async": lambda model: litellm_async(f"openai/{model}"),
    "litellm-anthropic": lambda model: litellm_sync(f"anthropic/{model}"),
    "litellm-anthropic-async": lambda model: litellm_async(f"anthropic/{model}"),
}


async def main() -> None:
    """Run `PATH:MODEL` of each argument."""
    for each in sys.argv[1:]:
        path, _, model = each.partition(":")
        texts: list[str] = []
        try:
            pieces = PATHS[path](model)
            if hasattr(pieces, "__aiter__"):
                async for text in pieces:
                    texts.append(text)  # noqa: PERF401 -- those before an error count
            else:
                texts.extend(pieces)
        except Exception as error:  # noqa: BLE001 -- an error of the SDK is an answer here
            texts.append(f"{type(error).__name__}: {error}")
        sys.stdout.write(json.dumps([each, texts]) + "\n")


asyncio.run(main())
