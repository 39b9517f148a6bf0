"""Roles: what each may see of events and do, judged by its rules alone.

Touches nothing but the rest of the domain: pure.
Gives the events (`model`), the fold (`role`), rules as a file (`file`), what they must be
(`check`), verdicts (`judge`, `authorize`, `assignment`) and what is shown (`view`, `state`).
"""
