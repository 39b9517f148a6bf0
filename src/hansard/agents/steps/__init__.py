"""A step: one call an agent makes to the world, from resolve to record.

Touches the agent's stream by its ledger, blobs, and the tool's own function.
Gives the engine (`engine`), what a call must pass in order (`gating`, `asking`), tools (`tools`),
scopes, the ledger, the recorder, doubt, streamed results, steps that write what is shared
(`atomic`), a role's view as a step (`view_steps`), and how values are recorded (`payloads`).
"""
