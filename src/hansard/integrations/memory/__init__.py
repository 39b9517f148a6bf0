"""A session's memory as other people's packages want to have it: each call is a step of the agent.

Touches `session.memory`, and one package a module, which is imported by nothing else.
Gives `anthropic_tool`, `deepagents_backend` and `langgraph_store`.
"""
