"""Experiments: plans, metrics, comparison reports."""

from hansard.agents.experiments import Arm as Arm
from hansard.agents.experiments import Evaluated as Evaluated
from hansard.agents.experiments import PlanOptions as PlanOptions
from hansard.agents.experiments import plan as plan
from hansard.domain.experiment import Better as Better
from hansard.domain.experiment import ExperimentRegistered as ExperimentRegistered
from hansard.domain.experiment import ExperimentState as ExperimentState
from hansard.domain.experiment import ExperimentStopped as ExperimentStopped
from hansard.domain.experiment import Metric as Metric
from hansard.domain.experiment import Missing as Missing
from hansard.domain.experiment import PlannedArm as PlannedArm
from hansard.domain.experiment import StopRule as StopRule
from hansard.operations.experiments import Experiments as Experiments
from hansard.operations.reports import CompareOptions as CompareOptions
from hansard.operations.reports import ComparisonReport as ComparisonReport
from hansard.projections.report import Part as Part
from hansard.projections.report import Question as Question
from hansard.projections.report import Report as Report
