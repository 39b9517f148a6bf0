"""A server over pipes of 2025 that sends more than its client reads.

Given a file, it keeps there its process id, the number of notifications that it has written, and
the numbers of its questions that were answered and refused.

`flood` sends `many` numbered notifications, or endlessly; `ask` sends `many` questions and answers
once all are answered; `later` answers, and then sends a question and a ping; `sound` only answers.
"""

import json
import os
import struct
import sys
import threading

KEPT = struct.Struct("4q")
PAD = "x" * 900
GREETING = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "flood", "version": "1"},
}
NO_SCHEMA: dict = {}
TOOLS = [{"name": name, "inputSchema": NO_SCHEMA} for name in ("flood", "ask", "later", "sound")]

kept = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
counts = [os.getpid(), 0, 0, 0]
writing = threading.Lock()
answers = threading.Semaphore(0)


def keep(which: int) -> None:
    """Count one more."""
    counts[which] += 1
    os.pwrite(kept, KEPT.pack(*counts), 0)


def say(**told: object) -> None:
    """Write a line."""
    line = json.dumps({"jsonrpc": "2.0", **told}).encode() + b"\n"
    with writing:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def flood(many: int | None) -> None:
    """Tell without waiting for anybody."""
    number = 0
    while many is None or number < many:
        params = {"level": "info", "data": {"number": number, "pad": PAD}}
        say(method="notifications/message", params=params)
        number += 1
        keep(1)


def ask(many: int, name: str = "q") -> None:
    """Ask all at once, and wait for the answers."""
    for number in range(many):
        say(id=f"{name}{number}", method="elicitation/create", params={"message": "Sure?"})
    for _ in range(many):
        answers.acquire()


def call(id_: object, name: str, arguments: dict) -> None:
    """Do what a tool does."""
    if name == "flood":
        flood(arguments.get("many"))
    if name == "ask":
        ask(arguments["many"])
    say(id=id_, result={"content": [{"type": "text", "text": name}]})
    if name == "later":
        ask(1, "late")
        say(id="p", method="ping")


def main() -> None:
    """Serve until the client leaves."""
    os.pwrite(kept, KEPT.pack(*counts), 0)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "method" not in request:
            keep(3 if "error" in request else 2)
            answers.release()
        elif request["method"] == "initialize":
            say(id=request["id"], result=GREETING)
        elif request["method"] == "tools/list":
            say(id=request["id"], result={"tools": TOOLS})
        elif request["method"] == "tools/call":
            arguments = (
                request["id"],
                request["params"]["name"],
                request["params"].get("arguments") or {},
            )
            threading.Thread(target=call, args=arguments, daemon=True).start()
        elif "id" in request:
            say(id=request["id"], error={"code": -32601, "message": "Method not found"})


main()
