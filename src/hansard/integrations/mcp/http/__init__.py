"""MCP's streamable HTTP for the proxy.

`server` is a server at a URL, `local` one over stdio, `proxy` serves the clients that
connect to a port.
"""
