"""`docs/cli.md`, made from the commands themselves."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
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

Global options stand before the command: `hansard -w support run show last`. Brackets at the end of
a meaning give the default, the environment variable or the range. Under a command stand its own
arguments and options, and the names of the common ones that it takes.
"""

_COMMON = 4
"""An argument or option of so many commands that has one text in them is described once."""

Row = tuple[str, str]


def reference() -> str:
    """Return the page: common arguments and options once, then each command."""
    sections = list(_sections(command(), "hansard"))
    counts = Counter(row for *_, rows in sections for row in rows)
    best = {name: (name, text) for (name, text), _ in reversed(counts.most_common())}
    common = {row for row in best.values() if counts[row] >= _COMMON}
    parts = [_HEAD, "\n## Common arguments and options\n\n", _table(sorted(common))]
    for path, usage, words, rows in sections:
        level = "###" if " " in path.partition(" ")[2] else "##"
        parts.append(f"\n{level} `{path}`\n\n{words}\n{usage}")
        own = [row for row in rows if row not in common]
        if own:
            parts.append("\n" + _table(own))
        shared = [f"`{name}`" for name, text in rows if (name, text) in common and name[0] == "-"]
        if shared:
            parts.append(f"\nCommon: {', '.join(shared)}.\n")
    return "".join(parts)


def _table(rows: Iterable[Row]) -> str:
    body = "".join(f"|`{name}`|{text}|\n" for name, text in rows)
    return f"|Name|Meaning|\n|---|---|\n{body}"


def _sections(
    given: Any, path: str, above: Any = None
) -> Iterator[tuple[str, str, str, list[Row]]]:
    """Give each command's path, usage, help and parameters, a group before its commands."""
    context = given.make_context(path, [], parent=above, resilient_parsing=True)
    found = context.command
    commands = getattr(found, "commands", {})
    arguments = [] if commands else found.collect_usage_pieces(context)[1:]
    usage = f"\n`{' '.join([path, *arguments])}`\n" if arguments else ""
    yield path, usage, _paragraphs(found.help or ""), list(_rows(found, context))
    for name in sorted(commands):
        yield from _sections(commands[name], f"{path} {name}", context)


def _paragraph(text: str) -> str:
    return " ".join(inspect.cleandoc(text).split())


def _paragraphs(text: str) -> str:
    return "\n\n".join(_paragraph(part) for part in inspect.cleandoc(text).split("\n\n"))


def _rows(command: Any, context: Any) -> Iterator[Row]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or "--help" in record[0]:
            continue
        name, text = record
        yield name.strip().replace("|", "\\|"), _paragraph(text).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
