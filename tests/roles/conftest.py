"""What the package starts by itself is forked."""

from tests.agents.forked import processes_are_forked

__all__ = ["processes_are_forked"]
