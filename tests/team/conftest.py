"""The broker, the workspaces and the two clients of the agents' tests; programs to be killed."""

from tests.agents.conftest import data_dir, lab, record, workspace
from tests.experiments.conftest import call, server, stage

__all__ = ["call", "data_dir", "lab", "record", "server", "stage", "workspace"]
