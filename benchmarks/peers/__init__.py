"""Hansard beside MLflow and Phoenix: the same traces, each through its own documented client."""
