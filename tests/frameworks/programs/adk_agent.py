"""An ADK agent with a scripted model, written by hand: it sends a mail, and dies on request.

    adk_agent.py RUN LOG MODE [KILL]

The log gets a line for each call of the model and each mail. MODE is the session's mode, or `live`.
With KILL the process is killed after the mail was sent, before its result is known.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

import hansard
from hansard.ext.frameworks.adk import HansardPlugin

RUN, LOG, MODE, *KILL = sys.argv[1:]


def note(line: str) -> None:
    """Add a line to the log."""
    with Path(LOG).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


class Scripted(BaseLlm):  # type: ignore[misc]  # ADK has an environment of its own
    """A model that calls both tools at once, then sends the mail, then answers."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the next answer of the script."""
        del stream
        note("model")
        results = [
            part.function_response.name
            for content in llm_request.contents
            for part in content.parts or []
            if part.function_response
        ]
        call = types.Part.from_function_call
        if not results:
            parts = [
                call(name="look_up", args={"name": "ada"}),
                call(name="look_up", args={"name": "bob"}),
            ]
        elif "send_mail" not in results:
            parts = [call(name="send_mail", args={"to": "ada@example.org"})]
        else:
            parts = [types.Part(text="Sent.")]
        used = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=10, candidates_token_count=2
        )
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=used)


async def look_up(name: str, tool_context: Any) -> dict[str, str]:
    """Look up an address, and keep it in the state."""
    note(f"look_up {name}")
    tool_context.state[name] = f"{name}@example.org"
    return {"address": f"{name}@example.org"}


async def send_mail(to: str) -> dict[str, str]:
    """Send a mail."""
    note(f"mail {to}")
    if KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"status": "sent"}


async def main() -> None:
    """Run the agent, and print its answer with the state of its session."""
    agent = LlmAgent(name="clerk", model=Scripted(model="scripted"), tools=[look_up, send_mail])
    plugin = HansardPlugin(effects={"look_up": "pure"})
    runner = InMemoryRunner(agent, app_name="shop", plugins=[plugin])
    session = await runner.session_service.create_session(app_name="shop", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text="Mail ada")])
    options: Any = {} if MODE == "live" else {"mode": MODE}
    texts = []
    async with hansard.AsyncSession("adk", run=RUN, **options):
        async for event in runner.run_async(
            user_id="u", session_id=session.id, new_message=message
        ):
            parts = event.content.parts if event.content else None
            texts += [part.text for part in parts or [] if part.text]
    final = await runner.session_service.get_session(
        app_name="shop", user_id="u", session_id=session.id
    )
    sys.stdout.write(json.dumps({"texts": texts, "state": final.state}) + "\n")


asyncio.run(main())
