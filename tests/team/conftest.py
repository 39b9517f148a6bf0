"""The broker, the workspaces and the two clients of the agents' tests; programs; the commands."""

from tests.experiments.conftest import call, data_dir, lab, record, server, stage, workspace

__all__ = ["call", "data_dir", "lab", "record", "server", "stage", "workspace"]
