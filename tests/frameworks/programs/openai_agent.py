"""Agents of the OpenAI Agents SDK that can be killed: arguments as of `pydantic_agent.py`.

The first agent hands over to the second, which sends two mails.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agents import Agent, Runner, Usage, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.testing import ScriptedModel, assistant_message, function_call

import hansard
from hansard.ext.frameworks.openai_agents import RecordedHooks, RecordedSession, recorded

FOLDER, WORKSPACE, MODES, AT, CLIENT = sys.argv[1:6]
set_tracing_disabled(disabled=True)


def note(file: str, line: str, at: str) -> None:
    """Write a line, and end here if this is the place."""
    with Path(file).open("a") as lines:
        lines.write(line + "\n")
    if at == AT:
        os.kill(os.getpid(), signal.SIGKILL)


ANSWERS = [
    [function_call("transfer_to_mailer", {}, call_id="c0")],
    [function_call("send", {"to": name}, call_id=name) for name in ("ann", "bob")],
    [assistant_message("Both have mail.")],
]
"""Written by hand."""


class Answers(ScriptedModel):  # type: ignore[misc]  # see mypy's configuration
    """The SDK's scripted model, from the answer that a request is at."""

    async def get_response(self, *request, **more):
        """Answer by the outputs that the request has."""
        at = sum(each.get("type") == "function_call_output" for each in more["input"][1:])
        number = {0: 0, 1: 1, 3: 2}[at]
        note("models", str(number), f"model{number}")
        return ModelResponse(ANSWERS[number], Usage(requests=1, input_tokens=7), None)


@function_tool
async def send(to: str) -> str:
    """Send a mail."""
    note("mails", to, "tool")
    return f"sent to {to}"


model = Answers()
mailer = Agent("mailer", model=model, tools=[send])
agent = recorded(Agent("front", model=model, handoffs=[mailer]))


async def run() -> str:
    """Run the agents with a session."""
    session, hooks = RecordedSession("ann"), RecordedHooks()
    result = await Runner.run(agent, "Write to both.", session=session, hooks=hooks)
    return f"{result.final_output} {len(await session.get_items())}"


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
