"""A server over pipes of one era (`new` or `old`), for which the proxy translates one request
into two: the first answer is repeated right before the second. It answers the tool `held` only when
`next` is called, before that, and reports which request was cancelled.
"""

import json
import sys

FORM = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
ASKED = {
    "resultType": "input_required",
    "requestState": "state",
    "inputRequests": {
        "sure": {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": "sure?", "requestedSchema": FORM},
        }
    },
}
UNKNOWN = {"code": -32601, "message": "Method not found"}


def say(id_: object, **answer: object) -> None:
    """Write an answer."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id_, **answer}) + "\n")
    sys.stdout.flush()


def main(era: str) -> None:
    """Answer until the client leaves."""
    first: object = None
    held: object = None
    refused = {"result": ASKED} if era == "new" else {"error": UNKNOWN}
    doubled = "tools/call" if era == "new" else "tools/list"
    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "server/discover" if era == "new":
                capabilities = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
                say(request["id"], result={"resultType": "complete", **capabilities})
            case "initialize" if era == "old":
                info = {"name": "doubling", "version": "1"}
                greeting = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
                say(request["id"], result={**greeting, "serverInfo": info})
            case "tools/call" if request["params"]["name"] == "held":
                held = request["id"]
            case "tools/call" if request["params"]["name"] == "next":
                for id_, text in ((held, "of held"), (request["id"], "of next")):
                    content = [{"type": "text", "text": text}]
                    say(id_, result={"resultType": "complete", "content": content})
            case "notifications/cancelled":
                data = "its own" if request["params"]["requestId"] == held else "another"
                notification = {
                    "method": "notifications/message",
                    "params": {"level": "info", "data": data},
                }
                sys.stdout.write(json.dumps({"jsonrpc": "2.0", **notification}) + "\n")
                sys.stdout.flush()
            case method if method == doubled and first is None:
                first = request["id"]
                say(first, **refused)
            case method if method == doubled:
                say(first, **refused)
                content = [{"type": "text", "text": "the answer"}]
                say(
                    request["id"],
                    result={"resultType": "complete", "content": content, "tools": []},
                )
            case "tools/list":
                say(request["id"], result={"resultType": "complete", "tools": []})
            case _:
                if "id" in request:
                    say(request["id"], error=UNKNOWN)


main(sys.argv[1])
