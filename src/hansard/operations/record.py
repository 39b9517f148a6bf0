"""The operations of every record, of trusted programs and restricted agents."""

from __future__ import annotations

from hansard.operations.actions import ActionCaches, Experiences
from hansard.operations.prompts import Prompts
from hansard.operations.queries import Queries
from hansard.operations.runs import Runs


class RecordOperations(Queries, Runs, Prompts, ActionCaches, Experiences):
    """The operations of a record.

    A trusted program's run in its process; a restricted agent's are sent.
    """
