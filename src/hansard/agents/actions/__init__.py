"""Action caches that the record keeps by name, every version and who looked at them, and the
folders of what runs taught (experiences).

Touches their streams in the log, and files; what a replay does to a page is the client's.
Gives saving, reading, healing, reverting and looking (`store`), and `experience_folder`.
"""
