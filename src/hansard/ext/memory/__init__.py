"""A session's memory with the interfaces of other packages: each call is a step of the agent.

Uses `session.memory`; each module uses one package, which nothing else imports. Provides
`anthropic_tool`, `deepagents_backend` and `langgraph_store`.
"""
