"""Memory: files that outlive runs, as events; one stream a space.

Pure, as all of the domain. It defines `events` (the storage format), `space` (a space's files at a
version: fold and decide), `paths` (valid paths, and the kind of a file), `lines` (texts, and their
differences).
"""
