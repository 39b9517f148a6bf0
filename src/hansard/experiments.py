"""Experiments: plans, metrics, comparison reports."""

from hansard.agents.experiments.plans import Arm, PlanOptions, plan
from hansard.agents.experiments.scoring import Evaluated
from hansard.domain.experiment import (
    Better,
    ExperimentRegistered,
    ExperimentState,
    ExperimentStopped,
    Metric,
    Missing,
    PlannedArm,
    StopRule,
)
from hansard.operations.reports import CompareOptions, ComparisonReport
from hansard.projections.report import Part, Question, Report

__all__ = [
    "Arm",
    "Better",
    "CompareOptions",
    "ComparisonReport",
    "Evaluated",
    "ExperimentRegistered",
    "ExperimentState",
    "ExperimentStopped",
    "Metric",
    "Missing",
    "Part",
    "PlanOptions",
    "PlannedArm",
    "Question",
    "Report",
    "StopRule",
    "plan",
]
