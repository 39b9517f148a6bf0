"""Action caches that the record keeps by name: every version, and who looked at them.

Touches their streams in the log; what a replay does to a page is the client's.
Gives saving, reading, healing, reverting and looking (`store`).
"""
