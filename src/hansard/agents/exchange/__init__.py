"""Export of runs from a workspace and import into another, byte for byte.

Reads and writes the log and blobs of an open workspace, and the lines of a file. `writer`
has the file format and writes it, `reader` reads it.
"""
