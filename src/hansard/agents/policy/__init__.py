"""What a call must pass before it runs: permits, labels, the gate's rules, a person, budgets.

Touches roles, approvals, budgets and labels on record; runs no tool.
Gives the rules (`gate`), `permits`, `clearances`, `approvals`, `budgets`, declassification
(`labels`), `refusals`. They are asked in order by `steps.gating`.
"""
