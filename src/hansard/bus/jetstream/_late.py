"""nats-py without `nats.js`, which is imported when somebody asks for it: nothing of it is used
here, and it takes half of the time that importing nats-py does.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from types import ModuleType
from typing import Any

PACKAGE, PART = "nats", "nats.js"


def _without_the_part() -> None:
    """Import the package, which imports that part and does not look into it, with an empty module
    in its place. Where it does look, `client` imports all of it.
    """
    if PACKAGE in sys.modules or PART in sys.modules:
        return
    sys.modules[PART] = ModuleType(PART)
    try:
        with contextlib.suppress(AttributeError, ImportError):
            vars(importlib.import_module(PACKAGE))["__getattr__"] = _asked
    finally:
        del sys.modules[PART]


def _asked(name: str) -> Any:
    """What the package is asked for that is not there yet."""
    if f"{PACKAGE}.{name}" == PART:
        return importlib.import_module(PART)
    message = f"module {PACKAGE!r} has no attribute {name!r}"
    raise AttributeError(message)


_without_the_part()
