"""The action cache: what a run did, as a file that is done again without a model.

Pure: it may touch what else is in `hansard.domain`. It gives the file's form and its versions
(`cache`), the ways in which an element is looked for again (`locators`), and slots for values that
differ from run to run (`slots`).
"""
