"""Secrets: kept out of the record, given back to a live call that needs one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from hansard.agents.errors import SecretUnavailable
from hansard.agents.steps.walk import Path, rebuilt
from hansard.domain import ids
from hansard.domain.counted import counted
from hansard.domain.errors import BadValue
from hansard.domain.values import Scrub, Secret

SECRET_LENGTH_MIN = 6
"""Shortest text that is looked for inside other texts: shorter ones would match by chance."""

SecretProvider = Mapping[str, str] | Callable[[str], str | None]


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
                f"a secret of {counted(len(secret), 'character')}",
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


def check_names(where: str, names: Mapping[str, object], scrub: Scrub | None) -> None:
    """Raise BadValue for what others go by that holds a secret.

    A text that is only read is recorded with the secret replaced. A name is part of an address (a
    subject, a key, an id): replaced it would be another one, and two could become the same.
    """
    if scrub is None:
        return
    for kind, name in names.items():
        if not _is_clean(name, scrub):
            remedy = "leave the secret out of it: names are kept as they are, never replaced"
            raise BadValue(f"{where}({kind})", "it holds a secret", remedy)


def _is_clean(name: object, scrub: Scrub) -> bool:
    if isinstance(name, str):
        return scrub(name) == name
    if isinstance(name, Mapping):
        return all(_is_clean(each, scrub) for pair in name.items() for each in pair)
    if isinstance(name, list | tuple | set | frozenset):
        return all(_is_clean(each, scrub) for each in name)
    return True


def _longest_first(item: tuple[str, str | re.Pattern[str]]) -> int:
    return -len(item[1]) if isinstance(item[1], str) else 0


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
