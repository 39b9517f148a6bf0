"""Asks a model twice: each start draws an id for its run, and a date where it is in a text."""

import json
import os
import sys
import time
import urllib.request
import uuid
from typing import Any


def ask(text: str) -> str:
    """Send a request as a program without an SDK does."""
    body: dict[str, Any] = {
        "model": "m",
        "metadata": {"run": str(uuid.uuid4())},
        "messages": [{"role": "user", "content": text}],
    }
    if "TIMED" in os.environ:
        now = {"role": "system", "content": f"It is {time.strftime('%H:%M:%S')}, {time.time_ns()}."}
        body["messages"] = [now, *body["messages"]]
    request = urllib.request.Request(  # noqa: S310 -- the proxy's URL
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 -- the proxy's URL
        return json.load(response)["choices"][0]["message"]["content"]


answer = ask("one")
sys.stdout.write(ask(f"{answer}{os.environ.get('MORE', '')}") + "\n")
