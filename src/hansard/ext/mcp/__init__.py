"""Model Context Protocol: a proxy that records the calls between clients and a server.

Uses sessions, and no library that speaks the protocol except for HTTP: frames pass as bytes.
`frames` reads JSON-RPC, `recording` answers steps, `upstream` and `http_server` call servers,
`serving` connects a client at stdin, `http_proxy` clients over HTTP; `install` writes clients'
configurations.
"""
