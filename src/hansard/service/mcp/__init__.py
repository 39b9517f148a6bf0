"""The record and the team's shared state as tools of an MCP server.

Uses `hansard.client` and the operations of hosted sessions; the only importer of the `mcp` package
(the extra `hansard[mcp]`). `sessions` holds the runs of a client, `offers` the tools, built from
the registry of operations and a few of their own, `server` the server over stdio and HTTP.
"""
