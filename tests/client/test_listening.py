"""HTTP listeners: by which names they answer, and how soon."""

import socket

import pytest

from hansard.client.listening import LOCAL, Address, foreign


def test_an_answer_waits_for_no_acknowledgement():
    """Accepted connections send small answers at once (TCP_NODELAY)."""
    with (
        Address.of("0").bound() as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8931", None, None),
        ("LOCALHOST", "http://localhost:5173", None),
        ("[::1]:80", "https://[::1]", None),
        ("", None, 421),
        ("evil.example:80", None, 421),
        ("127.0.0.1:8931@evil.example", None, 421),
        ("evil.example@127.0.0.1", None, 421),
        ("127.0.0.1.evil.example", None, 421),
        ("127.0.0.1:8931/x", None, 421),
        ("localhost", "http://evil.example", 403),
        ("localhost", "http://localhost:80@evil.example", 403),
        ("localhost", "http://user@localhost", 403),
        ("localhost", "null", 403),
        ("localhost", "", 403),
    ],
)
def test_a_request_names_the_server_and_nothing_else(
    host: str, origin: str | None, status: int | None
):
    """`Host` and `Origin` are one of the server's names, with a port or without."""
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    refused = foreign(headers, LOCAL)
    assert (None if refused is None else refused[0]) == status
