"""What is wrong with a tree of memory files, found before anything of it is committed.

Pure: takes a tree (path to content) and touches nothing; needs the extra `hansard[memory]`.
Gives `tree.problems`, each with path, line, rule, what stood there and what is allowed.
"""
