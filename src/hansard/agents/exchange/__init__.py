"""Runs out of a workspace and into another, byte for byte.

Touches the log and blobs of an open workspace, and the lines of a file.
Gives the file's form (`format`), writing it (`writer`, `view`) and reading it in (`reader`).
"""
