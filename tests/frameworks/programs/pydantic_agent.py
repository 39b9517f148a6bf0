"""An agent of PydanticAI that can be killed: `python pydantic_agent.py FOLDER WORKSPACE MODE AT`.

MODE is `run` or `strict`. AT is where it kills itself: `model2`, before its second answer, or
`tool`, between a mail and its outcome. Each call of the model and each mail is a line of a file.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

import hansard
from hansard.ext.frameworks.pydantic_ai import HansardDurability

FOLDER, WORKSPACE, MODE, AT = sys.argv[1:5]


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


async def main() -> None:
    """Run the agent in a run that is resumed."""
    async with hansard.connect_async(WORKSPACE, data_dir=FOLDER) as record:
        mode = None if MODE == "run" else MODE
        async with record.run("support", run="r", mode=mode):
            result = await agent.run("Write to Ann and Bob.")
            sys.stdout.write(result.output)


def main_sync() -> None:
    """The same with the sync client."""
    with hansard.connect(WORKSPACE, data_dir=FOLDER) as record:
        mode = None if MODE == "run" else MODE
        with record.run("support", run="r", mode=mode):
            sys.stdout.write(agent.run_sync("Write to Ann and Bob.").output)


if sys.argv[5] == "async":
    asyncio.run(main())
else:
    main_sync()
