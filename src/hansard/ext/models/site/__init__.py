"""The `sitecustomize` of programs whose model calls are recorded.

This folder is put on their PYTHONPATH, so that Python runs the file at their start.
It offers nothing to import.
"""
