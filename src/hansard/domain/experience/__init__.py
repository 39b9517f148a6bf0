"""Experience: knowledge from runs and people's demonstrations for the next run, without a model.

Pure: it may import the rest of `hansard.domain`. It defines the wording of a task and the
graph that is distilled from demonstrations (`distil`), the graph and the check functions that guard
it (`checks`), and all of it as files and in the record (`kept`).
"""
