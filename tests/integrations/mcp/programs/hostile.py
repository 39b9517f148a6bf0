"""A server over pipes that greets, and then answers a call in the given wrong way."""

import json
import sys
import time

GREETING = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "hostile", "version": "1"},
}
MEBIBYTE = 2**20


def say(line: bytes) -> None:
    """Write a line."""
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def answer(id_: object, result: object) -> bytes:
    """Return a result's line."""
    return json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}).encode()


def misbehave(kind: str, id_: int) -> None:
    """Answer a call in the given wrong way."""
    good = {"content": [{"type": "text", "text": "done"}]}
    match kind:
        case "no JSON":
            say(b"{nonsense")
        case "another id":
            say(answer("other", good))
        case "result and error":
            frame = {"jsonrpc": "2.0", "id": id_, "result": good, "error": {"code": 1}}
            say(json.dumps(frame).encode())
        case "nested deeply":
            say(b'{"jsonrpc":"2.0","id":%d,"result":' % id_ + b"[" * 10**5 + b"]" * 10**5 + b"}")
        case "raw":
            say(b'{"result":%s,"jsonrpc":"2.0","id":%d}' % (sys.argv[2].encode(), id_))
        case "huge":
            say(b'{"jsonrpc":"2.0","id":%d,"result":"' % id_ + b"x" * (65 * MEBIBYTE) + b'"}')
        case "without end":
            frame = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}}
            while True:
                say(json.dumps(frame).encode())
                time.sleep(0.001)
        case "no line's end":
            sys.stdout.buffer.write(b'{"jsonrpc":"2.0",')
            sys.stdout.buffer.flush()
        case "against the schema":
            say(answer(id_, {"content": 7, "isError": "perhaps", "structuredContent": [None]}))
        case "twice":
            say(answer(id_, good))
            say(answer(id_, {"content": [{"type": "text", "text": "another"}]}))
        case _:
            raise ValueError(kind)


def main() -> None:
    """Serve until the client leaves."""
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if request.get("method") == "initialize":
            say(answer(request["id"], GREETING))
        elif request.get("method") == "tools/list":
            say(answer(request["id"], {"tools": [{"name": "send", "inputSchema": {}}]}))
        elif request.get("method") == "tools/call" and request["params"]["name"] == "send":
            misbehave(sys.argv[1], request["id"])
        elif request.get("method") == "tools/call":
            say(answer(request["id"], {"content": [{"type": "text", "text": "sound"}]}))


main()
