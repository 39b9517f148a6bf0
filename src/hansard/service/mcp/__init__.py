"""The record and the team's shared state as an MCP server's tools.

It may touch `hansard.client` and what answers a hosted session's operations, and alone imports the
`mcp` package (the extra `hansard[mcp]`). `sessions` are the runs that a client is at work in,
`offers` the tools, made of the registry of operations and of few of its own, `server` the server
over stdio, `http` over HTTP.
"""
