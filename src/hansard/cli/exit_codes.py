"""Exit codes of the command line other than success; see the docstring of `hansard.cli`."""

ERROR = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
"""The reader of a pipe closed it or stopped reading."""
