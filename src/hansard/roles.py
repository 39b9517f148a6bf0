"""Roles: rules, role-scoped views, the records and sessions of restricted agents."""

from hansard.agents.access.roles import View as View
from hansard.client.restricted.record import AsyncRestrictedRecord as AsyncRestrictedRecord
from hansard.client.restricted.record import AsyncRestrictedSession as AsyncRestrictedSession
from hansard.client.restricted.record import RestrictedRecord as RestrictedRecord
from hansard.client.restricted.record import RestrictedSession as RestrictedSession
from hansard.domain.agent import AgentRefused as AgentRefused
from hansard.domain.agent import Refusal as Refusal
from hansard.domain.roles.model import Mask as Mask
from hansard.domain.roles.model import Masking as Masking
from hansard.domain.roles.model import May as May
from hansard.domain.roles.model import RoleDefined as RoleDefined
from hansard.domain.roles.model import RoleRule as RoleRule
from hansard.domain.roles.view import ShownAgent as ShownAgent
from hansard.domain.roles.view import ShownEvent as ShownEvent
from hansard.domain.roles.view import ShownKey as ShownKey
from hansard.domain.roles.view import ShownState as ShownState
from hansard.operations.roles import Approvals as Approvals
from hansard.operations.roles import Roles as Roles
