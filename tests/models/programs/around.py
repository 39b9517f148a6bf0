"""Call known providers by addresses of their own, through the libraries that are named; print each
error.
"""

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
import openai

OPENAI, ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com"
GOOGLE = "https://generativelanguage.googleapis.com"
PROMPT: list[Any] = [{"role": "user", "content": "hi"}]


def by_openai() -> Any:
    """Call OpenAI's client at an explicit address."""
    client = openai.OpenAI(base_url=OPENAI)
    return client.chat.completions.create(model="m", messages=PROMPT)


def by_aiohttp_client() -> Any:
    """Call OpenAI's async client over aiohttp at an explicit address."""

    async def call() -> Any:
        http = openai.DefaultAioHttpClient()
        async with openai.AsyncOpenAI(base_url=OPENAI, http_client=http) as client:
            return await client.chat.completions.create(model="m", messages=PROMPT)

    return asyncio.run(call())


def by_anthropic() -> Any:
    """Call Anthropic's client at an explicit address."""
    import anthropic  # noqa: PLC0415 -- takes seconds

    client = anthropic.Anthropic(base_url=ANTHROPIC)
    return client.messages.create(model="m", messages=PROMPT, max_tokens=1)


def by_google() -> Any:
    """Call Google's client at an explicit address."""
    from google import genai  # noqa: PLC0415 -- takes seconds

    client = genai.Client(http_options={"base_url": GOOGLE})
    return client.models.generate_content(model="m", contents="hi")


def by_google_async() -> Any:
    """Call Google's async client, over aiohttp, at an explicit address."""
    from google import genai  # noqa: PLC0415 -- takes seconds

    async def call() -> Any:
        client = genai.Client(http_options={"base_url": GOOGLE}).aio
        return await client.models.generate_content(model="m", contents="hi")

    return asyncio.run(call())


def by_httpx() -> Any:
    """Call a provider by httpx."""
    response = httpx.post(f"{OPENAI}/chat/completions", json={})
    response.raise_for_status()


def by_aiohttp() -> Any:
    """Call a provider by aiohttp."""

    async def call() -> Any:
        async with aiohttp.ClientSession() as client, client.post(OPENAI, json={}):
            pass

    return asyncio.run(call())


def by_urllib() -> Any:
    """Call a provider by the standard library."""
    return urllib.request.urlopen(OPENAI)


CALLS: list[Callable[[], Any]] = [
    *(by_openai, by_aiohttp_client, by_anthropic, by_google, by_google_async),
    *(by_httpx, by_aiohttp, by_urllib),
]
errors: dict[str, str] = {}
for each in [call for call in CALLS if call.__name__ in sys.argv[1:]]:
    try:
        errors[each.__name__] = f"no error: {each()}"
    except Exception as error:  # noqa: BLE001 -- each error is printed
        errors[each.__name__] = f"{type(error).__name__}: {error}"
sys.stdout.write(json.dumps({"errors": errors, "users": os.environ.get("USERS_SITE", "")}))
