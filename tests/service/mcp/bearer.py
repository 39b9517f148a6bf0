"""Pass HTTP on with a bearer token: URL TOKEN and a listening socket."""

import socket
import sys

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

OWN = ("127.0.0.1", "localhost")
HOP = {"content-length", "transfer-encoding", "connection", "content-encoding"}


def main(url: str, token: str, fd: str) -> None:
    """Serve until it is ended."""
    http = httpx2.AsyncClient(timeout=60)

    async def passed_on(request: Request) -> StreamingResponse:
        headers = {name: value for name, value in request.headers.items() if name not in HOP}
        if headers["host"].startswith(OWN):
            del headers["host"]  # any other host is the subject of the test
        headers["authorization"] = f"Bearer {token}"
        outgoing = http.build_request(
            request.method, url, headers=headers, content=await request.body()
        )
        response = await http.send(outgoing, stream=True)
        response_headers = {
            name: value for name, value in response.headers.items() if name not in HOP
        }
        return StreamingResponse(response.aiter_bytes(), response.status_code, response_headers)

    routes = [Route("/mcp", passed_on, methods=["GET", "POST", "DELETE"])]
    config = uvicorn.Config(Starlette(routes=routes), log_level="error")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(fd))])


if __name__ == "__main__":
    main(*sys.argv[1:])
