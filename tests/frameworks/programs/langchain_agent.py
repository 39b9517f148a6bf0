"""A LangChain agent: mails, searches twice at once, answers. Killed at a chosen tool call."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

import hansard
from hansard.ext.frameworks.langchain import recorded

DATA, WORKSPACE, MODE, AT, URL, CLIENT = sys.argv[1:]


def effect(line: str) -> None:
    """Change the world, and die at the chosen call."""
    with Path("world").open("a") as file:
        file.write(f"{line}\n")
    if line == AT:
        os.kill(os.getpid(), signal.SIGKILL)


@tool
def mail(to: str) -> str:
    """Send a mail."""
    effect(f"mail {to}")
    return f"sent to {to}"


@tool
def search(query: str) -> str:
    """Search."""
    effect(f"search {query}")
    return f"about {query}"


def agent(session: Any) -> Any:
    """Return the agent on the record."""
    model = ChatOpenAI(model="gpt-hand", base_url=URL, api_key=SecretStr("by-hand"), max_retries=0)
    return create_agent(model, [mail, search], **recorded(session, pure=[search]))


PLACE: Any = {"workspace": WORKSPACE, "data_dir": DATA}
RUN: Any = {"run": "r", "agent": "ada", "mode": MODE if MODE == "strict" else None}
QUESTION: Any = {"messages": [("user", "Tell ann.")]}
THREAD: Any = {"configurable": {"thread_id": "t1"}}


async def work() -> None:
    """Run the agent with the async client."""
    async with hansard.connect_async(**PLACE) as record, record.run("w", **RUN) as session:
        state = await agent(session).ainvoke(QUESTION, THREAD)
        sys.stdout.write(state["messages"][-1].content)


if CLIENT == "async":
    asyncio.run(work())
else:
    with hansard.connect(**PLACE) as record, record.run("w", **RUN) as session:
        sys.stdout.write(agent(session).invoke(QUESTION, THREAD)["messages"][-1].content)
