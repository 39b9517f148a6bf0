"""Secrets given back to a live call that needs one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from hansard.agents.errors import SecretUnavailable
from hansard.agents.steps.walk import Path, rebuilt
from hansard.domain.errors import BadValue
from hansard.domain.values import Secret

SecretProvider = Mapping[str, str] | Callable[[str], str | None]


def reveal(value: Any, provider: SecretProvider | None, tool: str) -> Any:
    """A value with every Secret in it replaced by what a provider gives.

    Raises SecretUnavailable.
    """

    def given(part: Any, _: Path) -> Any:
        return _provided(part, provider, tool) if isinstance(part, Secret) else part

    return rebuilt(value, given)


def _provided(secret: Secret, provider: SecretProvider | None, tool: str) -> Any:
    found: Any = None
    if provider is not None:
        found = provider(secret.name) if callable(provider) else provider.get(secret.name)
    if inspect.isawaitable(found):
        if inspect.iscoroutine(found):
            found.close()
        fact = "it gives something to await"
        raise BadValue(f"the provider of secret {secret.name!r}", fact, "give a plain function")
    if found is None:
        raise SecretUnavailable(secret.name, tool)
    return found
