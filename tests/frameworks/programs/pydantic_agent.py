"""An agent of PydanticAI that can be killed: arguments FOLDER WORKSPACE MODES AT CLIENT.

MODES are `run`, `strict` or both. AT is where it kills itself: `model2`, before its second answer,
or `tool`, between a mail and its outcome. Each call of the model and each mail is a line of a file.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

import hansard
from hansard.ext.frameworks.pydantic_ai import HansardDurability

FOLDER, WORKSPACE, MODES, AT, CLIENT = sys.argv[1:6]


def note(file: str, line: str, at: str) -> None:
    """Write a line, and end here if this is the place."""
    with Path(file).open("a") as lines:
        lines.write(line + "\n")
    if at == AT:
        os.kill(os.getpid(), signal.SIGKILL)


def answer(messages, info) -> ModelResponse:
    """Answer by hand: two mails, then a summary of what was returned."""
    returned = [p.content for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
    note("models", str(len(returned)), f"model{len(messages) // 2 + 1}")
    if not returned:
        mails = [ToolCallPart("send", {"to": name}) for name in ("ann", "bob")]
        return ModelResponse(parts=mails)
    return ModelResponse(parts=[TextPart(json.dumps(returned))])


async def send(to: str) -> str:
    """Send a mail."""
    note("mails", to, "tool")
    return f"sent to {to}"


agent = Agent(
    FunctionModel(answer), name="support", tools=[send], capabilities=[HansardDurability()]
)


async def main(mode: str | None) -> None:
    """Run the agent in a run that is resumed."""
    options: Any = {"run": "r", "mode": mode, "workspace": WORKSPACE, "data_dir": FOLDER}
    async with hansard.AsyncSession("w", **options):
        sys.stdout.write((await agent.run("Write to Ann and Bob.")).output)


def main_sync(mode: str | None) -> None:
    """The same with the sync client."""
    options: Any = {"run": "r", "mode": mode, "workspace": WORKSPACE, "data_dir": FOLDER}
    with hansard.Session("w", **options):
        sys.stdout.write(agent.run_sync("Write to Ann and Bob.").output)


for mode in MODES.split(","):
    if CLIENT == "async":
        asyncio.run(main(None if mode == "run" else mode))
    else:
        main_sync(None if mode == "run" else mode)
