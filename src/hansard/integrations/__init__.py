"""Integrations: agents and programs of others on the record.

Each package here connects programs of one kind to a session through `hansard.client`, as any other
program would. It may import that and lower layers; no lower layer imports it.
`hansard.ext.mcp` is for clients and servers of the Model Context Protocol,
`hansard.ext.a2a` for agents that speak Agent2Agent.
"""
