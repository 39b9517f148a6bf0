"""Other people's agents on the record.

Each package here brings programs of one kind to a session, as a program of ours would be: through
`hansard.client`. It may touch that and what lies below, and nothing below knows of it.
`hansard.integrations.mcp` is for clients and servers that speak the Model Context Protocol,
`hansard.integrations.a2a` for agents that speak Agent2Agent; `forwarded` is a tool of theirs.
"""
