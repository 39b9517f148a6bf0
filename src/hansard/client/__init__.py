"""The public face: `hansard.connect`, and what it gives.

Touches all that is below it; it alone reads settings and environment.
Gives `connect`, `record`, `session`, and the same for restricted agents (`restricted`, `protocol`).
"""
