"""Reads for people and programs: each returns a struct, and nothing is printed or written.

Touches what agents and projections give. An answer knows its own lines for programs (`answer`).
"""
