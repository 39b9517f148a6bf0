"""Memory of other programs: their folders and formats, upkeep, and interfaces of other packages.

`harnesses` and `imports` read and write the folders of agents; `compaction`, `upkeep` and
`reflection` propose changes. `anthropic_tool`, `deep_agent` and `langgraph_store` give a session's
memory the interface of the package that each alone imports; each call is a step.
"""
