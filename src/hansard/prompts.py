"""Prompts: versions, candidates, optimisation, evidence."""

from hansard.agents.artifacts.prompts import Evolver as Evolver
from hansard.agents.artifacts.prompts import Prompt as Prompt
from hansard.domain.prompt import PromptText as PromptText
from hansard.domain.steps import PromptUse as PromptUse
from hansard.ext.optimize.loop import Optimized as Optimized
from hansard.ext.optimize.loop import OptimizeOptions as OptimizeOptions
from hansard.ext.optimize.loop import PromptCandidate as PromptCandidate
from hansard.ext.optimize.loop import PromptSearch as PromptSearch
from hansard.ext.optimize.loop import optimize as optimize
from hansard.ext.optimize.loop import optimize_async as optimize_async
from hansard.inspect.experiments import PromptEvidence as PromptEvidence
from hansard.inspect.experiments import PromptLog as PromptLog
from hansard.inspect.experiments import PromptMeasure as PromptMeasure
from hansard.inspect.experiments import PromptMove as PromptMove
from hansard.inspect.experiments import PromptReport as PromptReport
from hansard.inspect.experiments import PromptVersion as PromptVersion
from hansard.operations.prompts import Prompts as Prompts
