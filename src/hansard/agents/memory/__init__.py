"""Memory as files over the log.

Uses the log of an open workspace. Provides spaces, the checks before a commit (`validation`), and
import from and export to the folders of other programs (`portable`).
"""
