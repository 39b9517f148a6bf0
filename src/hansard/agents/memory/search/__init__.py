"""Search in memory: by path, by pattern, by words and by meaning, over the files a reader may see.

Touches nothing: a tree is a mapping of paths to texts, and what ranks it is passed in.
Gives `paths_matching`, `grep`, `search` with its fusion, the `Embedder` that is asked for vectors,
and `StaticVectors`, one of them.
"""
