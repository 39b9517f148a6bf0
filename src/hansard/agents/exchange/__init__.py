"""Export of runs from a workspace and import into another, byte for byte.

Reads and writes the log and blobs of an open workspace, and the lines of a file. Exports the file
format (`format`), the writer (`writer`, `view`) and the reader (`reader`).
"""
