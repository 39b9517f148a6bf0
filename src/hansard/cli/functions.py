"""Functions that a command is given by name, `module:function`, from where it is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hansard.domain.errors import BadValue


def named(text: str, option: str = "--with") -> Callable[..., Any]:
    """The function of a module; the folder in which the command is called counts. Raises BadValue.

    What the module raises when it is imported is its own.
    """
    module, colon, name = text.partition(":")
    if not (colon and module and name):
        raise BadValue(option, f"{text!r:.80}", "give MODULE:FUNCTION, such as upkeep:shorter")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise
        remedy = f"call it where {module} can be imported"
        raise BadValue(option, f"there is no module {module!r:.80}", remedy) from error
    except AttributeError as error:
        raise BadValue(option, f"{module} has no {name!r:.80}", "name a function of it") from error
    if not callable(found):
        raise BadValue(option, f"{text!r:.80} is no function", "name a function")
    made: Callable[..., Any] = found
    return made
