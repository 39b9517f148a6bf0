"""Reads for people and programs: what was asked is answered as a struct, and nothing printed.

Touches what agents and projections give; writes nothing.
Gives an answer a noun (`runs`, `team`, `roles`, `approvals`, `experiments`, `principals`,
`status`), which knows its own lines for programs (`answer`); calls derived again (`rederive`,
`chain_verifier`), what was typed as what is meant (`find`), what a write came to
(`acknowledgements`), steps as a tree (`tree`), a decision (`decision_parts`) and a comparison
(`comparison_parts`) as tables.
"""
