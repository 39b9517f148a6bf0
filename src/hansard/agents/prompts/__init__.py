"""Prompts: versions with parents, aliases, and what was said of them.

Touches the streams of prompts; a call that is given a prompt's text says so itself.
Gives reading, adding and moving (`store`), and what makes a version of feedback (`evolve`).
"""
