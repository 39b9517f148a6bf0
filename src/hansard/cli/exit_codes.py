"""How the command line ends where it does not end as it should; see the head of `hansard.cli`."""

ERROR = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
"""The reader of a pipe left, or has stopped reading."""
