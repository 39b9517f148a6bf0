"""Memory as files over the log.

Touches the log of an open workspace. Gives spaces, what is checked before a commit (`validation`),
and the ways in and out of other programs' folders (`portable`).
"""
