"""Runs out of a workspace and into another, byte for byte."""
