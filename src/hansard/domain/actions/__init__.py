"""The action cache: what a run did, as a file that is done again without a model.

Pure: it may touch what else is in `hansard.domain`. It gives the file's form, its versions and its
slots for values that differ from run to run (`cache`), the ways in which an element is looked for
again (`locators`), and the versions of a cache in the record (`kept`).
"""
