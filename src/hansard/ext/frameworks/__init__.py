"""Adapters to agent frameworks: model and tool calls as steps, state on the record.

One module a framework; each needs the package of its framework.
"""
