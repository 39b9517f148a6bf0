"""What a restricted agent's classes say where they lack what a trusted program's have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NoReturn

from hansard.operations.protocol.errors import NotOffered

TRUSTED = "ask a trusted program, or whoever runs the workspace"


class Lacking:
    """An attribute of `_trusted` that is not there raises NotOffered, with what is to be done
    `_instead`; to a type checker it is not there.
    """

    _called: ClassVar[str]
    _trusted: ClassVar[type]
    _instead: ClassVar[Mapping[str, str]]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in self._instead or (not name.startswith("_") and hasattr(self._trusted, name)):
                raise NotOffered(f"{self._called}.{name}", self._instead.get(name, TRUSTED))
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
