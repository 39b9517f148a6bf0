"""The Model Context Protocol: a proxy that records what a client asks of a server.

It may touch sessions, and no library that speaks the protocol: what passes is the raw frames.
`frames` reads JSON-RPC, `calls` says which requests are steps, `rules` what a server's tools may
do, `recording` answers steps from the record or the server, `upstream` is the server's process,
`proxy` brings them together over pipes, `http` over HTTP; `serving` is that in a run of a record.
"""
