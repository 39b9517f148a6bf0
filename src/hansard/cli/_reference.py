"""`docs/cli.md`, made from the commands themselves."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from hansard.cli import command

_HEAD = """\
# The command line

Made by `python -m hansard.cli._reference > docs/cli.md`; a test fails where it is out of date.

Tables and answers go to stdout, hints, logs and progress to stderr. Every command that reads takes
`--json` and then writes one JSON object a line. There is no colour in a pipe, nor under `NO_COLOR`.
Exit codes: 0 done; 1 something is wrong (a finding of `check`, a difference in `replay`, no
broker in `status`); 2 an error, in one line with its remedy; 4 there is more than was given (an
answer of `sql`); 130 interrupted; 141 the reader of a pipe left. `hansard run resume` and `replay`
with a command exit with that command's code.
"""


def reference() -> str:
    """The page."""
    return _HEAD + "".join(_sections(command(), "hansard"))


def _sections(given: Any, path: str, above: Any = None) -> Iterator[str]:
    context = given.make_context(path, [], parent=above, resilient_parsing=True)
    found = context.command
    yield f"\n## `{path}`\n\n{_paragraphs(found.help or '')}\n\n"
    yield f"```text\n{_usage(found, context, path)}\n```\n"
    rows = list(_rows(found, context))
    if rows:
        yield "\n| | |\n|---|---|\n" + "".join(f"| {name} | {text} |\n" for name, text in rows)
    for name in sorted(getattr(found, "commands", {})):
        yield from _sections(found.commands[name], f"{path} {name}", context)


def _paragraph(text: str) -> str:
    return " ".join(inspect.cleandoc(text).split())


def _paragraphs(text: str) -> str:
    return "\n\n".join(_paragraph(part) for part in inspect.cleandoc(text).split("\n\n"))


def _usage(command: Any, context: Any, path: str) -> str:
    return " ".join([path, *command.collect_usage_pieces(context)])


def _rows(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            continue
        name, text = record
        yield f"`{name.strip()}`".replace("|", "\\|"), _paragraph(text).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
