"""All operations that every record has, whoever asks."""

from __future__ import annotations

from hansard.operations.actions import ActionCaches, Experiences
from hansard.operations.prompts import Prompts
from hansard.operations.queries import Queries
from hansard.operations.runs import Runs


class RecordOperations(Queries, Runs, Prompts, ActionCaches, Experiences):
    """The operations of a record: a trusted program's run here, a restricted agent's are sent."""
