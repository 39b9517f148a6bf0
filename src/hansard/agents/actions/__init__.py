"""Action caches that the record keeps by name, every version and who looked at them, and the
folders of what runs taught (experiences).

Touches their streams in the log, and files; what a replay does to a page is the client's.
Gives action caches (`store`), experiences and their folders (`kept_experiences`), and bundles.
"""
