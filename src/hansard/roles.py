"""Roles: rules, role-scoped views, the records and sessions of restricted agents."""

from hansard.agents.access.roles import View
from hansard.client.restricted.record import AsyncRestrictedRecord, RestrictedRecord
from hansard.client.restricted.session import AsyncRestrictedSession, RestrictedSession
from hansard.domain.refusal import AgentRefused, Refusal
from hansard.domain.roles.model import Mask, Masking, May, RoleDefined, RoleRule
from hansard.domain.roles.view import ShownAgent, ShownEvent, ShownKey, ShownState

__all__ = [
    "AgentRefused",
    "AsyncRestrictedRecord",
    "AsyncRestrictedSession",
    "Mask",
    "Masking",
    "May",
    "Refusal",
    "RestrictedRecord",
    "RestrictedSession",
    "RoleDefined",
    "RoleRule",
    "ShownAgent",
    "ShownEvent",
    "ShownKey",
    "ShownState",
    "View",
]
