"""The broker, the workspaces and the two clients of the tests of what a role may do."""

from tests.experiments.conftest import call, data_dir, lab, record, workspace

__all__ = ["call", "data_dir", "lab", "record", "workspace"]
