"""Model Context Protocol: a proxy that records the calls between clients and a server.

Uses sessions, and no library that speaks the protocol except for HTTP: frames pass as bytes.
`frames` reads JSON-RPC, `recording` answers steps, `upstream` and `bridge` call servers, `serving`
connects them over stdio, `http` over HTTP; `install` writes clients' configurations.
"""
