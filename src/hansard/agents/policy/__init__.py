"""Checks before a call runs: permits, labels, the gate's rules, approvals, budgets.

Reads roles and labels, reads and writes approvals and budgets; runs no tool. Exports the rules
(`gate`), `permits`, `clearances`, `approvals`, `budgets`, declassification (`labels`), `refusals`.
`steps.gating` applies them in order.
"""
