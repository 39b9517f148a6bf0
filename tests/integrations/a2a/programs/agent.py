"""An agent on the A2A SDK, whose work leaves a line in a file: by its message it answers at once,
takes long, fails or takes its process down. Run with the file's path, `plain` or `recorded`, and
the number of a socket that listens.
"""

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Part,
    Task,
    TaskState,
    TaskStatus,
)
from a2a.utils.errors import UnsupportedOperationError
from starlette.applications import Starlette

import hansard
from hansard.ext.a2a import RecordedExecutor


@hansard.tool
async def look_up(word: str) -> int:
    """A tool of the agent's own."""
    return len(word)


class Papers(AgentExecutor):
    """Reads papers."""

    def __init__(self, sent: Path, *, recorded: bool) -> None:
        self._sent = sent
        self._recorded = recorded

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Do what the message says."""
        text = context.get_user_input()
        assert context.task_id is not None
        assert context.context_id is not None
        assert context.message is not None
        await event_queue.enqueue_event(
            Task(
                id=context.task_id,
                context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                history=[context.message],
            )
        )
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        with self._sent.open("a") as file:
            file.write(f"{text}\n")
        if text == "die":
            os._exit(3)
        if text == "refuse":
            raise UnsupportedOperationError("not that")
        if text == "slow":
            await asyncio.sleep(20)
        length = await look_up(text) if self._recorded else len(text)
        await updater.add_artifact(parts=[Part(text=f"read {text}: {length}")], name="answer")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Leave it."""
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


def app(url: str, executor: AgentExecutor) -> Starlette:
    """Return the agent's web application."""
    card = AgentCard(
        name="Papers",
        description="Reads papers.",
        version="1",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text"],
        default_output_modes=["text"],
        skills=[AgentSkill(id="read", name="Read", description="Reads.", tags=["papers"])],
        supported_interfaces=[
            AgentInterface(protocol_binding="JSONRPC", protocol_version="1.0", url=f"{url}/a2a")
        ],
    )
    handler = DefaultRequestHandler(
        agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=card
    )
    return Starlette(
        routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/a2a")]
    )


async def main(sent: str, how: str, fd: str) -> None:
    """Serve until it is ended."""
    at = socket.socket(fileno=int(fd))
    url = f"http://127.0.0.1:{at.getsockname()[1]}"
    executor: AgentExecutor = Papers(Path(sent), recorded=how == "recorded")
    async with contextlib.AsyncExitStack() as stack:
        if how == "recorded":
            record = await stack.enter_async_context(hansard.connect_async())
            executor = RecordedExecutor(executor, record, agent="papers")
        config = uvicorn.Config(app(url, executor), log_level="error")
        await uvicorn.Server(config).serve(sockets=[at])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
