"""An agent of Microsoft Agent Framework that can be killed: arguments as of `pydantic_agent.py`."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)

import hansard
from hansard.ext.frameworks.agent_framework import recorded

FOLDER, WORKSPACE, MODES, AT, CLIENT = sys.argv[1:6]


def note(file: str, line: str, at: str) -> None:
    """Write a line, and end here if this is the place."""
    with Path(file).open("a") as lines:
        lines.write(line + "\n")
    if at == AT:
        os.kill(os.getpid(), signal.SIGKILL)


class Answers(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A client that answers by hand: two mails, then a summary."""

    async def _inner_get_response(self, *, messages, stream, options, **more):
        results = [c for m in messages for c in m.contents if c.type == "function_result"]
        note("models", str(len(results)), f"model{len(results)}")
        mails = [
            Content.from_function_call(call_id=to, name="send", arguments={"to": to})
            for to in ("ann", "bob")
        ]
        contents = [Content.from_text("Both have mail.")] if results else mails
        return ChatResponse(messages=[Message("assistant", contents)])


async def send(to: str) -> str:
    """Send a mail."""
    note("mails", to, "tool")
    return f"sent to {to}"


agent = Agent(Answers(), tools=[send], middleware=recorded())


async def run() -> str:
    """Run the agent."""
    return (await agent.run("Write to both.")).text


async def main(mode: str | None) -> None:
    """Run in a run that is resumed."""
    options: Any = {"run": "r", "mode": mode, "workspace": WORKSPACE, "data_dir": FOLDER}
    async with hansard.AsyncSession("w", **options):
        sys.stdout.write(await run())


def main_sync(mode: str | None) -> None:
    """The same with the sync client."""
    options: Any = {"run": "r", "mode": mode, "workspace": WORKSPACE, "data_dir": FOLDER}
    with hansard.Session("w", **options):
        sys.stdout.write(asyncio.run(run()))


for mode in MODES.split(","):
    if CLIENT == "async":
        asyncio.run(main(None if mode == "run" else mode))
    else:
        main_sync(None if mode == "run" else mode)
