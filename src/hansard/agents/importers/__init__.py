"""Recorded runs of other systems, brought into the record."""
