"""Checks before a call runs: permits, labels, the gate's rules, approvals, budgets.

Reads roles and labels, reads and writes approvals and budgets; runs no tool. Exports the rules
(`gate`), permits and clearances (`permits`), and approvals, budgets and declassification
(`approvals`).
`steps.gating` applies them in order.
"""
