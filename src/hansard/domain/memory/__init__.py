"""Memory: files that outlive runs, as events; one stream a space.

Pure, as all of the domain. It defines `files` (valid paths, the kind of a file, and the events: the
storage format), `space` (a space's files at a version: fold and decide), `lines` (texts, and their
differences).
"""
