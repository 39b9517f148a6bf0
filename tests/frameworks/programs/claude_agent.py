"""The Claude Agent SDK with a session store on the record: `claude_agent.py FOLDER`.

It runs the SDK's contracts for stores, then asks one question with the bundled Claude Code, and
prints the types of the entries that the store has then.
"""

import asyncio
import itertools
import json
import sys
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
from claude_agent_sdk.testing import run_session_store_conformance

import hansard
from hansard.ext.frameworks.claude_sessions import SessionStore


async def main(folder: str) -> None:
    """Run the contracts and a question."""
    numbers = itertools.count()
    async with hansard.connect_async() as record:
        await run_session_store_conformance(lambda: SessionStore(record, f"{next(numbers)}/"))
        store, session = SessionStore(record), ""
        options = ClaudeAgentOptions(
            cwd=folder, session_store=store, allowed_tools=["Bash"], setting_sources=["project"]
        )
        async for message in query(prompt="Send the mail", options=options):
            if isinstance(message, ResultMessage):
                session = message.session_id
        answer = await record.sql(
            "SELECT project FROM claude_transcripts WHERE session = $1", session
        )
        key = {"project_key": answer.rows[0][0], "session_id": session}
        entries: list[Any] = await store.load(key) or []
    report: dict[str, Any] = {"session": session, "types": [each["type"] for each in entries]}
    report["stores"] = next(numbers)
    sys.stdout.write(json.dumps(report) + "\n")


asyncio.run(main(sys.argv[1]))
