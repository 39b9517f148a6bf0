"""A step: one call an agent makes to the world, from resolve to record.

Uses the agent's stream through its ledger, blobs, and the tool's own function. Exports the engine
(`engine`), the checks of a call in order (`gating`), tools (`tools`), scopes, the ledger, the
recorder, doubt and probes (`doubt`), streamed results, steps that write shared state and a role's
view (`atomic`), and the recorded form of values (`payloads`).
"""
