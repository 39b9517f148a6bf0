"""Memory: files that outlive runs, as events; one stream a space.

Touches nothing, as all of the domain.
Gives `events` (the storage format), `space` (a space's files at a version: fold and decide),
`paths` (what a file may be called, and its kind), `lines` (texts, and what changed between
two of them).
"""
