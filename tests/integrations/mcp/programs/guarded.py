"""A server over HTTP that requires a token, and its authorization server, at a given socket.

The MCP side is the SDK's: it serves the resource metadata and challenges. The authorization server
represents a foreign one: it registers any client, needs no person, and binds a token to the
requested resource. `GET /resources` lists the resources of requested tokens. With `bare` it has no
metadata, as the revision 2025-03-26 allows.
"""

import secrets
import socket
import sys
from urllib.parse import urlencode

import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.types import ToolAnnotations
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

listening = socket.socket(fileno=int(sys.argv[-1]))
ORIGIN = f"http://127.0.0.1:{listening.getsockname()[1]}"
SERVER = f"{ORIGIN}/mcp"
BARE = "bare" in sys.argv
codes: dict[str, str] = {}
tokens: dict[str, str] = {}
resources: list[str] = []


class Tokens:
    """Knows which tokens were issued."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return a token and the resource that it was issued for."""
        resource = tokens.get(token)
        if resource is None:
            return None
        return AccessToken(token=token, client_id="lab", scopes=["read"], resource=resource)


server = MCPServer(
    "guarded",
    token_verifier=Tokens(),
    auth=AuthSettings(
        issuer_url=ORIGIN,  # type: ignore[arg-type]  # a URL object would end with a slash
        resource_server_url=None if BARE else SERVER,  # type: ignore[arg-type]  # as the line above
        required_scopes=["read"],
        validate_token_resource=False,
    ),
)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


def metadata(_: Request) -> Response:
    """Return the authorization server's metadata (RFC 8414)."""
    return JSONResponse(
        {
            "issuer": ORIGIN,
            "authorization_endpoint": f"{ORIGIN}/authorize",
            "token_endpoint": f"{ORIGIN}/token",
            "registration_endpoint": f"{ORIGIN}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "scopes_supported": ["read"],
        }
    )


async def register(request: Request) -> Response:
    """Take any client."""
    return JSONResponse({**await request.json(), "client_id": "registered"}, 201)


def authorize(request: Request) -> Response:
    """Authorize any client."""
    code = secrets.token_hex(8)
    codes[code] = request.query_params.get("resource", "")
    back = {"code": code, "state": request.query_params["state"]}
    return RedirectResponse(f"{request.query_params['redirect_uri']}?{urlencode(back)}", 302)


async def token(request: Request) -> Response:
    """Issue a token for a code."""
    form = await request.form()
    resource = codes.pop(str(form["code"]))
    issued = secrets.token_hex(16)
    tokens[issued] = resource
    resources.append(resource)
    return JSONResponse({"access_token": issued, "token_type": "Bearer", "scope": "read"})


app = server.streamable_http_app()
app.routes.extend(
    [
        *([] if BARE else [Route("/.well-known/oauth-authorization-server", metadata)]),
        Route("/register", register, methods=["POST"]),
        Route("/authorize", authorize),
        Route("/token", token, methods=["POST"]),
        Route("/resources", lambda _: JSONResponse(resources)),
    ]
)
uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])
