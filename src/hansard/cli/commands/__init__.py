"""What the command line does, one module a subject. `hansard.cli` only reads the arguments.

Touches whatever is below the command line; what is asked is read in `hansard.inspect`.
Gives a coroutine a command, which prints and returns the exit code.
"""
