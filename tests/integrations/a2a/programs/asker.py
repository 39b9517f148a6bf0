"""A program that asks an agent, in a run: URL, the run's id, a mode or none, and what to say."""

import asyncio
import json
import sys
import uuid

from a2a.types import GetTaskRequest, Message, Part, Role, SendMessageRequest
from google.protobuf.message import Message as Proto

import hansard
from hansard.ext.a2a import plain, recorded


def show(message: Proto) -> None:
    """Print a message."""
    sys.stdout.write(json.dumps(plain(message), sort_keys=True) + "\n")
    sys.stdout.flush()


async def main(url: str, run: str, mode: str, *texts: str) -> None:
    """Send each text, and print the responses."""
    async with (
        hansard.connect_async() as record,
        record.run("asking", run=run, mode=mode or None) as session,
        await recorded(session, url, "papers") as agent,
    ):
        for text in texts:
            message = Message(
                message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)]
            )
            task = ""
            async for response in agent.send_message(SendMessageRequest(message=message)):
                task = response.task.id or task
                show(response)
            show(await agent.get_task(GetTaskRequest(id=task)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
