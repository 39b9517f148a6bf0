"""Browser actions and experience: caches, recorded actions, check functions, teaching."""

from hansard.agents.artifacts.experiences import (
    InstalledBundle,
    PublishedBundle,
    VerifiedBundle,
)
from hansard.client.browser.browser import AsyncBrowser, PageAction
from hansard.client.browser.elements import ElementAttempt
from hansard.client.browser.experienced import (
    Experienced,
    ExperiencedAction,
    FreeGuide,
    Teaching,
    teach,
)
from hansard.client.browser.replay import Replayed, ReplayedAction
from hansard.domain.actions.cache import (
    ActionCache,
    ActionChange,
    ActionCheck,
    ActionsEnd,
    CachedAction,
    ElementLocator,
    ElementTargets,
    PageMark,
)
from hansard.domain.experience.bundle import FileFact
from hansard.domain.experience.checks import (
    ArgumentCheck,
    CheckedStep,
    CheckFailure,
    CheckFunction,
    CompleteCheck,
    FlowCheck,
    InvariantCheck,
    PostconditionCheck,
    PreconditionCheck,
    check_function,
)
from hansard.domain.experience.distil import Wording
from hansard.domain.experience.experience import Experience, Lesson
from hansard.domain.experience.kept import ExperienceStanding
from hansard.domain.experience.procedure import Procedure, ProcedureEdge, ProcedureNode
from hansard.inspect.actions import ActionsLog, KeptCache, KeptCaches, KeptVersion
from hansard.inspect.experience import (
    ExperienceChange,
    ExperienceHit,
    ExperienceHits,
    ExperienceLog,
    KeptExperience,
    KeptExperiences,
    LearnedFrom,
    LearnedRun,
    LearnedStep,
)

__all__ = [
    "ActionCache",
    "ActionChange",
    "ActionCheck",
    "ActionsEnd",
    "ActionsLog",
    "ArgumentCheck",
    "AsyncBrowser",
    "CachedAction",
    "CheckFailure",
    "CheckFunction",
    "CheckedStep",
    "CompleteCheck",
    "ElementAttempt",
    "ElementLocator",
    "ElementTargets",
    "Experience",
    "ExperienceChange",
    "ExperienceHit",
    "ExperienceHits",
    "ExperienceLog",
    "ExperienceStanding",
    "Experienced",
    "ExperiencedAction",
    "FileFact",
    "FlowCheck",
    "FreeGuide",
    "InstalledBundle",
    "InvariantCheck",
    "KeptCache",
    "KeptCaches",
    "KeptExperience",
    "KeptExperiences",
    "KeptVersion",
    "LearnedFrom",
    "LearnedRun",
    "LearnedStep",
    "Lesson",
    "PageAction",
    "PageMark",
    "PostconditionCheck",
    "PreconditionCheck",
    "Procedure",
    "ProcedureEdge",
    "ProcedureNode",
    "PublishedBundle",
    "Replayed",
    "ReplayedAction",
    "Teaching",
    "VerifiedBundle",
    "Wording",
    "check_function",
    "teach",
]
