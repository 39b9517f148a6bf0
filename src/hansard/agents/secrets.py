"""Secrets: kept out of the record, given back to a live call that needs one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from hansard.agents.errors import SecretUnavailable
from hansard.domain import ids
from hansard.domain.errors import BadValue
from hansard.domain.values import Scrub, Secret

SECRET_LENGTH_MIN = 6
"""Shortest text that is looked for inside other texts: shorter ones would match by chance."""

Provider = Mapping[str, str] | Callable[[str], str | None]


def scrubber(redact: Mapping[str, Any]) -> Scrub | None:
    """What takes secrets out of texts: by name, the secret itself or a pattern of it.

    A text that is the secret becomes `Secret(name)`; inside another text it becomes
    `<secret:name>`. Raises BadValue for a secret too short to be looked for.
    """
    patterns: list[tuple[str, re.Pattern[str]]] = []
    # The longest first: what is left of a secret whose beginning is another would be recorded.
    for name, secret in sorted(redact.items(), key=_longest_first):
        ids.name("secret", name)
        if not isinstance(secret, str | re.Pattern):
            kind = type(secret).__name__
            raise BadValue(f"redact[{name!r}]", f"a {kind}", "give a text or a pattern")
        if isinstance(secret, re.Pattern):
            patterns.append((name, secret))
            continue
        if len(secret) < SECRET_LENGTH_MIN:
            raise BadValue(
                f"redact[{name!r}]",
                f"a secret of {len(secret)} characters",
                f"give at least {SECRET_LENGTH_MIN}, or pass hansard.Secret({name!r}) as argument",
            )
        patterns.append((name, re.compile(re.escape(secret))))
    if not patterns:
        return None

    def scrub(text: str) -> str | Secret:
        for name, pattern in patterns:
            if pattern.fullmatch(text):
                return Secret(name)
            text = pattern.sub(lambda _, name=name: f"<secret:{name}>", text)  # type: ignore[misc] # mypy does not see the default
        return text

    return scrub


def _longest_first(item: tuple[str, str | re.Pattern[str]]) -> int:
    return -len(item[1]) if isinstance(item[1], str) else 0


def reveal(value: Any, provider: Provider | None, tool: str) -> Any:
    """A value with every Secret in it replaced by what a provider gives.

    Raises SecretUnavailable.
    """
    if isinstance(value, Secret):
        found: str | None = None
        if provider is not None:
            found = provider(value.name) if callable(provider) else provider.get(value.name)
        if found is None:
            raise SecretUnavailable(value.name, tool)
        return found
    if type(value) is dict:
        return {key: reveal(item, provider, tool) for key, item in value.items()}
    if type(value) is list:
        return [reveal(item, provider, tool) for item in value]
    if type(value) is tuple:
        return tuple(reveal(item, provider, tool) for item in value)
    return value
