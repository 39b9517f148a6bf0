"""Prompts: versions, candidates, optimisation, evidence."""

from hansard.agents.artifacts.prompts import Evolver, Prompt
from hansard.client.optimizing import Optimized, OptimizeOptions, PromptCandidate, PromptSearch
from hansard.domain.prompt import PromptText
from hansard.domain.steps import PromptUse
from hansard.inspect.experiments import (
    PromptEvidence,
    PromptLog,
    PromptMeasure,
    PromptMove,
    PromptReport,
    PromptVersion,
)

__all__ = [
    "Evolver",
    "OptimizeOptions",
    "Optimized",
    "Prompt",
    "PromptCandidate",
    "PromptEvidence",
    "PromptLog",
    "PromptMeasure",
    "PromptMove",
    "PromptReport",
    "PromptSearch",
    "PromptText",
    "PromptUse",
    "PromptVersion",
]
