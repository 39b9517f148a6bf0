"""Startup module of a child: permits connections only to the broker on loopback, none by name."""

import os
import socket

if os.environ.get("ONLY_LOOPBACK"):

    def _check(address):
        local = isinstance(address, str | bytes) or address[0] in {"127.0.0.1", "::1"}
        if not local:
            raise OSError(f"the network is cut: {address!r}")

    def _guarded(connect):
        def guarded(self, address):
            _check(address)
            return connect(self, address)

        return guarded

    for _name in ("connect", "connect_ex"):
        setattr(socket.socket, _name, _guarded(getattr(socket.socket, _name)))
