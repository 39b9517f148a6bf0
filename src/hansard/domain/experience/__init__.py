"""Experience: what runs and people's demonstrations teach the next run, without a model.

Pure: it may touch what else is in `hansard.domain`. It gives what a task's text says (`wording`),
what was shown (`demonstration`), the graph that is distilled from it (`procedure`, `distil`), the
check functions that guard it (`checks`), and all of it as files (`experience`).
"""
