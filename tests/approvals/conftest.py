"""The broker, the workspaces, the two clients, the command line and programs for approvals."""

from tests.experiments.conftest import call, data_dir, lab, record, server, stage, workspace

__all__ = ["call", "data_dir", "lab", "record", "server", "stage", "workspace"]
