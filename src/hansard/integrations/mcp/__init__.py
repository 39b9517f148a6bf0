"""The Model Context Protocol: a proxy that records the calls between clients and a server.

It may use sessions, and no library that speaks the protocol except for HTTP: frames pass as bytes.
`frames` reads JSON-RPC, `recording` answers steps, `upstream` and `bridge` ask servers, `serving`
brings them together over stdio, `http` over HTTP; `install` writes clients' configurations.
"""
