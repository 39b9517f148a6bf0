"""MCP's streamable HTTP, for the proxy: a server at a URL, and clients that come in at a port.

It may touch what of the proxy speaks no transport (`..recording`, `..calls`, `..frames`).
`server` is the server at its URL, `upstream` has it asked by a client of pipes, `proxy` by clients
over HTTP, whom `reply` answers; `serving` lets them in, and brings the parts together.
"""
