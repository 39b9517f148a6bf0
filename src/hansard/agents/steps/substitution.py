"""Other messages and prompt versions in a fork: put into the arguments of the calls it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hansard.bus.commits import drive_fetch
from hansard.bus.log import Blobs
from hansard.domain import payload, values
from hansard.domain.errors import BadValue
from hansard.domain.label import Label
from hansard.domain.prompt import PromptText, filled_in, texts_in
from hansard.domain.run import EditedResult, EditKind
from hansard.domain.steps import PromptUse

_NAMES = frozenset({"model", "role", "type", "name", "id"})
"""Fields of a request that are never the content of a message."""


class PromptVersion(msgspec.Struct, frozen=True):
    """The version of a prompt that the calls of a fork use.

    Attributes:
        version: Its number.
        text: Its text with variables.
        label: The label of its prompt; None for public and trusted.
    """

    version: int
    text: str
    label: Label | None = None

    def filled(self, old: PromptText, name: str) -> PromptText:
        """Return its text with the variables of another version. Raises BadValue."""
        try:
            text = filled_in(self.text, old.variables)
        except BadValue as error:
            remedy = "fork again with a version that has the variables of the program's"
            where = f"prompt {name}@{self.version}, which the fork uses"
            raise BadValue(where, f"{error.where}: {error.fact}", remedy) from error
        alias = old.use.alias if old.use is not None else ""
        return PromptText(text, PromptUse(name, self.version, alias), self.label, old.variables)


class Substitutes:
    """The messages and prompt versions that a fork has in place of its parent's.

    A message's content is replaced wherever a call of a model has it as a whole, a prompt's text
    in every call that has it.
    """

    def __init__(
        self, messages: Sequence[tuple[Any, Any]], prompts: Mapping[str, PromptVersion]
    ) -> None:
        self._messages = messages
        self._prompts = prompts

    @classmethod
    async def read(cls, edits: Sequence[EditedResult], blobs: Blobs) -> Substitutes | None:
        """Return those of a fork's edits, with large texts read; None if there are none."""

        async def whole(raw: msgspec.Raw) -> Any:
            return await drive_fetch(payload.unpack(raw), blobs.get)

        messages: list[tuple[Any, Any]] = []
        prompts: dict[str, PromptVersion] = {}
        for each in edits:
            if each.kind is EditKind.MESSAGE:
                before, after = await whole(each.before), await whole(each.result)
                messages.append((values.revive(before), values.revive(after)))
            elif each.kind is EditKind.PROMPT:
                prompts[each.call] = msgspec.convert(await whole(each.result), PromptVersion)
        return cls(messages, prompts) if messages or prompts else None

    def arguments(self, arguments: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
        """Return a call's arguments with what is substituted; the same object if nothing is.

        Raises BadValue for a prompt's text in a value that cannot be changed.
        """
        plain = dict(arguments)
        changed: dict[str, Any] = self.value(plain, is_model=kind == "model")
        for text in texts_in(changed) if self._prompts else ():
            use = text.use
            if use is not None and use.version != self._version(use):
                fact = f"the text of {use.prompt}@{use.version} is inside a record"
                remedy = "give it as an argument of its own, in a list or in a dict"
                raise BadValue("arguments", fact, remedy)
        return arguments if changed is plain else changed

    def _version(self, use: PromptUse) -> int:
        version = self._prompts.get(use.prompt)
        return use.version if version is None else version.version

    def value(self, value: Any, *, is_model: bool = True) -> Any:
        """Return a value with what is substituted in it; the same object if nothing is."""
        if isinstance(value, PromptText) and value.use is not None:
            version = self._prompts.get(value.use.prompt)
            if version is not None and version.version != value.use.version:
                return version.filled(value, value.use.prompt)
        if is_model:
            for before, after in self._messages:
                if isinstance(value, str) == isinstance(before, str) and value == before:
                    return after
        items: Any
        if type(value) is dict:
            items = {
                name: each if name in _NAMES else self.value(each, is_model=is_model)
                for name, each in value.items()
            }
            return items if any(items[name] is not value[name] for name in value) else value
        if type(value) in (list, tuple):
            items = [self.value(each, is_model=is_model) for each in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else type(value)(items)
        return value
