"""`docs/reference/errors.md`, made from the docstrings of `hansard.errors`.

    python -m tests.errors_page    # writes it again

Each class states in its docstring when it is raised, then `State:` and `Remedy:`. A base class
begins with "Base of", and has neither.
"""

import inspect
import re
from pathlib import Path

from hansard import errors
from tests.names import exported

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "errors.md"
HEAD = """\
# Errors

Made by `python -m tests.errors_page` from the docstrings; a test fails where it is out of date.

Everything that Hansard raises on purpose is a `HansardError`. A message has the fact, the value and
the remedy; the values are attributes, too. Names are in `hansard.errors`, the most common ones also
in `hansard`. *State* is what is on record, and what was done, when the error is raised. Where it is
empty, the call ran nothing and wrote nothing. [The classes](#classes-and-attributes) have each
remedy and the base classes; so has `help(hansard.errors.InDoubt)`.
"""
CLASSES = """
## Classes and attributes

::: hansard.errors
    options:
      inherited_members: false
      members: true
      show_root_heading: false
      show_root_toc_entry: false
"""
GROUPS = {
    "Arguments and the record": ("hansard.domain.errors", "hansard.settings"),
    "An agent at work": ("hansard.agents.errors", "hansard.agents.access"),
    "Shared state, tasks and experiments": ("hansard.domain", "hansard.agents"),
    "The log and the broker": ("hansard.bus", "hansard.broker"),
    "The service": ("hansard.operations",),
    "SQL and the tables": ("hansard.projections",),
    "Browser actions": ("hansard.ext.browser",),
}
"""Each section, and the modules that define its classes; the first that fits counts."""

_PARTS = re.compile(
    r"(?P<when>.+?)\n\nState: (?P<state>.+?)\nRemedy: (?P<remedy>.+?)(?:\n\n.*)?", re.DOTALL
)

NOTHING = re.compile(r"nothing (?:ran|was (?:changed|done|read|run|sent|written))\.", re.IGNORECASE)
"""The state that most errors leave; its cell is empty."""


def parts(kind: type) -> tuple[str, str] | None:
    """Return when a class is raised and the state it leaves; None for a base class.

    Raises:
        ValueError: The docstring lacks one of them.
    """
    text = inspect.getdoc(kind) or ""
    if text.startswith("Base of"):
        return None
    match = _PARTS.fullmatch(text)
    if match is None:
        message = f"{kind.__name__}: write when it is raised, 'State: ...' and 'Remedy: ...'"
        raise ValueError(message)
    when, state = (" ".join(match[name].split()).replace("|", "\\|") for name in ("when", "state"))
    return when, "" if NOTHING.fullmatch(state) else state[0].upper() + state[1:]


def group(kind: type) -> str:
    """Return the section of a class."""
    return next(title for title, homes in GROUPS.items() if kind.__module__.startswith(homes))


def page() -> str:
    """Return the text of the page."""
    kinds = [getattr(errors, name) for name in exported(errors)]
    text = HEAD
    for title in GROUPS:
        text += f"\n## {title}\n\n|Error|When|State|\n|---|---|---|\n"
        for kind in kinds:
            if group(kind) == title and (described := parts(kind)):
                text += f"|`{kind.__name__}`|{'|'.join(described)}|\n"
    return text + CLASSES


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
