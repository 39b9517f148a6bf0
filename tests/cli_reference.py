"""The pages of the command line in the site, made from the commands."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from hansard.cli import command, of_slice
from hansard.cli.common import SLICES

_HEAD = "\nEvery command takes `--json`, except {silent}.\n"

_COMMON = 3
"""An argument or option of so many commands with equal text is described once, on the main page."""
_SHARED = 2
"""One of so many commands of a group is described once, at the top of the group's page."""

Row = tuple[str, str]
Section = tuple[str, str, str, list[Row]]


def reference() -> dict[str, str]:
    """Return the text of each page by its path in `docs/`; `cli.md` has a head there already."""
    sections = list(_sections(command(), "hansard"))
    for name in SLICES:
        sections += _sections(of_slice(name), f"hansard {name}")
    counts = Counter(row for *_, rows in sections for row in rows)
    best = {name: (name, text) for (name, text), _ in reversed(counts.most_common())}
    common = {row for row in best.values() if counts[row] >= _COMMON}
    groups: dict[str, list[Section]] = {}
    for section in sections:
        groups.setdefault(" ".join(section[0].split()[:2]), []).append(section)
    single = {path for path, members in groups.items() if len(members) == 1}
    silent = [
        f"`{path.removeprefix('hansard ')}`"
        for path, _, _, rows in sections
        if path not in groups.keys() - single and not any(name == "--json" for name, _ in rows)
    ]
    described = {row for row in common if row[0] != "--json"}
    text = _HEAD.format(silent=", ".join(silent))
    text += "\n## Common arguments and options\n\n" + _table(sorted(described))
    index, made = "\n## Groups\n\n", {}
    for path, members in sorted(groups.items()):
        if path not in single:
            name = path.removeprefix("hansard ")
            made[f"cli/{name}.md"] = _page(path, members, common)
            index += f"* [`{path}`](cli/{name}.md): {_line(members[0][2])}\n"
    text += index
    for path in sorted(single):
        text += _section(groups[path][0], common)
    return {"cli.md": text, **made}


def _page(title: str, sections: list[Section], common: set[Row]) -> str:
    counts = Counter(row for *_, rows in sections for row in rows if row not in common)
    shared = {row for row, number in counts.items() if number >= _SHARED}
    text = f"# `{title}`\n\n{sections[0][2]}\n\n[Common options](../cli.md).\n"
    if shared:
        text += "\nOf several commands here:\n\n" + _table(sorted(shared))
    if own := [row for row in sections[0][3] if row not in common | shared]:
        text += f"\nOf `{title}` itself:\n\n" + _table(own)
    return text + "".join(_section(section, common | shared) for section in sections[1:])


def _section(section: Section, shared: set[Row]) -> str:
    path, arguments, words, rows = section
    text = f"\n## `{path}`{arguments}\n\n{words}\n"
    if own := [row for row in rows if row not in shared]:
        text += "\n" + _table(own)
    names = [name for name, meaning in rows if (name, meaning) in shared and name != "--json"]
    if options := [name.split()[0].rstrip(",") for name in names if name[0] == "-"]:
        text += f"\nAlso: {', '.join(f'`{name}`' for name in options)}.\n"
    return text


def _line(words: str) -> str:
    return words.partition("\n\n")[0]


def _table(rows: Iterable[Row]) -> str:
    body = "".join(f"|`{name}`|{text}|\n" for name, text in rows)
    return f"|Name|Meaning|\n|---|---|\n{body}"


def _sections(node: Any, path: str, above: Any = None) -> Iterator[Section]:
    """Give each command's path, arguments, help and parameters, a group before its commands."""
    context = node.make_context(path, [], parent=above, resilient_parsing=True)
    entry = context.command
    commands = getattr(entry, "commands", {})
    pieces = [] if commands else entry.collect_usage_pieces(context)[1:]
    arguments = "".join(f" `{piece}`" for piece in pieces)
    yield path, arguments, _paragraphs(entry.help or ""), list(_rows(entry, context))
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
        name, text = record[0].replace(" range>", ">"), record[1]  # the text ends with the range
        meaning = _paragraph(text.replace("[required]", "")).replace("|", "\\|")
        yield name.strip().replace("|", "\\|"), meaning
