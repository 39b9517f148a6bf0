"""The action cache: the actions of a run, as a file that is replayed without a model.

Pure: it may import the rest of `hansard.domain`. It defines (`cache`) the file's form, its versions
and its slots for values that differ from run to run, the ways to find an element again, and the
versions of a cache in the record.
"""
