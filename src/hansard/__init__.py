"""Hansard: the verbatim, replayable record of what a team of AI agents did.

    import hansard

    @hansard.tool(effects="idempotent")
    def search_papers(query: str, limit: int = 10) -> list[dict]: ...

    with hansard.Session() as session:
        papers = search_papers("event sourcing")

Names are imported on first use, so that `import hansard` costs nothing. This module holds what a
program calls or creates. Exceptions are in `hansard.errors`, types for annotations in
`hansard.types`, all else by subject: `hansard.prompts`, `memory`, `roles`, `experiments`,
`actions`, `testing`.
"""

import importlib as _importlib

TYPE_CHECKING = False

if TYPE_CHECKING:
    from hansard import actions as actions
    from hansard import errors as errors
    from hansard import experiments as experiments
    from hansard import memory as memory
    from hansard import prompts as prompts
    from hansard import roles as roles
    from hansard import testing as testing
    from hansard import types as types
    from hansard._version import __version__ as __version__
    from hansard.agents.aggregates import aggregate_type as aggregate_type
    from hansard.agents.edits import replace as replace
    from hansard.agents.errors import Blocked as Blocked
    from hansard.agents.errors import Diverged as Diverged
    from hansard.agents.errors import InDoubt as InDoubt
    from hansard.agents.errors import ToolError as ToolError
    from hansard.agents.policy.gate import AskFirst as AskFirst
    from hansard.agents.policy.gate import Budget as Budget
    from hansard.agents.policy.gate import CallRule as CallRule
    from hansard.agents.policy.gate import Condition as Condition
    from hansard.agents.policy.gate import GateCall as GateCall
    from hansard.agents.policy.gate import allow as allow
    from hansard.agents.policy.gate import ask_first as ask_first
    from hansard.agents.policy.gate import at_least as at_least
    from hansard.agents.policy.gate import at_most as at_most
    from hansard.agents.policy.gate import budget as budget
    from hansard.agents.policy.gate import deny as deny
    from hansard.agents.policy.gate import host_in as host_in
    from hansard.agents.policy.gate import one_of as one_of
    from hansard.agents.policy.gate import path_under as path_under
    from hansard.agents.steps.conversions import value_type as value_type
    from hansard.agents.steps.ledger import Mode as Mode
    from hansard.agents.steps.placeholders import Placeholders as Placeholders
    from hansard.agents.steps.recorder import UnsettledStep as UnsettledStep
    from hansard.agents.steps.scope import log_context as log_context
    from hansard.agents.steps.tools import DID_NOT_HAPPEN as DID_NOT_HAPPEN
    from hansard.agents.steps.tools import NOTHING_HAPPENED as NOTHING_HAPPENED
    from hansard.agents.steps.tools import DidNotHappen as DidNotHappen
    from hansard.agents.steps.tools import Happened as Happened
    from hansard.agents.steps.tools import Tool as Tool
    from hansard.agents.steps.tools import by_label as by_label
    from hansard.agents.steps.tools import reconcile as reconcile
    from hansard.agents.steps.tools import tool as tool
    from hansard.broker.files import Durability as Durability
    from hansard.bus.errors import Conflict as Conflict
    from hansard.bus.errors import NotFound as NotFound
    from hansard.bus.errors import Unreachable as Unreachable
    from hansard.client.connect import connect as connect
    from hansard.client.connect import connect_async as connect_async
    from hansard.client.options import ask_person as ask_person
    from hansard.client.record import AsyncRecord as AsyncRecord
    from hansard.client.record import Record as Record
    from hansard.client.record import current_session as current_session
    from hansard.client.record import sessions as sessions
    from hansard.client.session import AsyncSession as AsyncSession
    from hansard.client.session import Session as Session
    from hansard.domain.board import KeyKind as KeyKind
    from hansard.domain.board import Merge as Merge
    from hansard.domain.errors import BadValue as BadValue
    from hansard.domain.errors import Corrupt as Corrupt
    from hansard.domain.errors import HansardError as HansardError
    from hansard.domain.label import Confidentiality as Confidentiality
    from hansard.domain.label import Label as Label
    from hansard.domain.reuse import Reuse as Reuse
    from hansard.domain.reuse import ReuseScope as ReuseScope
    from hansard.domain.reuse import reuse as reuse
    from hansard.domain.run import ForkEffects as ForkEffects
    from hansard.domain.run import RunStatus as RunStatus
    from hansard.domain.run import Swap as Swap
    from hansard.domain.steps import Effects as Effects
    from hansard.domain.steps import StepStatus as StepStatus
    from hansard.domain.steps import Verdict as Verdict
    from hansard.domain.values import Secret as Secret
    from hansard.ext.models.recorder import record_http as record_http

_SUBMODULES = ("actions", "errors", "experiments", "memory", "prompts", "roles", "types", "testing")

_HOME = {
    "hansard._version": "__version__",
    "hansard.agents.aggregates": "aggregate_type",
    "hansard.agents.errors": "Blocked Diverged InDoubt ToolError",
    "hansard.agents.policy.gate": (
        "AskFirst Budget CallRule Condition GateCall allow ask_first at_least at_most budget deny "
        "host_in one_of path_under"
    ),
    "hansard.agents.edits": "replace",
    "hansard.agents.steps.conversions": "value_type",
    "hansard.agents.steps.ledger": "Mode",
    "hansard.agents.steps.placeholders": "Placeholders",
    "hansard.agents.steps.recorder": "UnsettledStep",
    "hansard.agents.steps.scope": "log_context",
    "hansard.agents.steps.tools": (
        "DID_NOT_HAPPEN DidNotHappen Happened NOTHING_HAPPENED Tool by_label reconcile tool"
    ),
    "hansard.broker.lease": "Durability",
    "hansard.bus.errors": "Conflict NotFound Unreachable",
    "hansard.client.connect": "connect connect_async",
    "hansard.client.options": "ask_person",
    "hansard.client.record": "AsyncRecord Record current_session sessions",
    "hansard.client.session": "AsyncSession Session",
    "hansard.domain.board": "KeyKind Merge",
    "hansard.domain.errors": "BadValue Corrupt HansardError",
    "hansard.domain.label": "Confidentiality Label",
    "hansard.domain.reuse": "Reuse ReuseScope reuse",
    "hansard.domain.run": "ForkEffects RunStatus Swap",
    "hansard.domain.steps": "Effects StepStatus Verdict",
    "hansard.domain.values": "Secret",
    "hansard.ext.models.recorder": "record_http",
}
"""Names by the module that defines them."""

_MODULE = {name: module for module, names in _HOME.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker would take every misspelt name for an Any
    __all__ = list(_MODULE) + list(_SUBMODULES)

    def __getattr__(name: str) -> object:
        if name in _SUBMODULES:
            return _importlib.import_module(f"hansard.{name}")
        module = _MODULE.get(name)
        if module is None:
            raise AttributeError(_absent(name))
        value = getattr(_importlib.import_module(module), name)
        globals()[name] = value
        return value

    def _absent(name: str) -> str:
        message = f"module 'hansard' has no attribute {name!r}"
        from importlib.util import find_spec  # noqa: PLC0415 -- few programs misspell a name

        # `from hansard import settings` looks for an attribute before it imports the module.
        if name[:1] != "_" and find_spec(f"hansard.{name}") is None:
            for each in _SUBMODULES[:-1]:  # all but `testing`, which is for tests
                if hasattr(_importlib.import_module(f"hansard.{each}"), name):
                    return f"{message}: it is in 'hansard.{each}'"
        return message

    def __dir__() -> list[str]:
        return sorted(__all__)


del TYPE_CHECKING
