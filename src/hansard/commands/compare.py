"""`hansard compare`: the arms of an experiment beside each other."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hansard.commands import _show
from hansard.commands._answers import answering
from hansard.commands._compare_blocks import Grid, Heading, Plot, Words, blocks
from hansard.commands._open import Options
from hansard.commands._whole_file import whole
from hansard.projections.report import Question, Report, report

VERDICT_STYLES = {"better": "bold green", "worse": "bold red", "cannot tell": "bold yellow"}


async def compare(
    options: Options, question: Question, form: str, output: Path | None, *, json: bool
) -> int:
    """Print or write the comparison. Raises Unknown, CallerError, Unwritable."""
    async with answering(options) as answers:
        made = await asyncio.to_thread(report, answers, question)
    if json:
        for line in _lines(made):
            _show.emit(line)
        return 0
    if form == "table" and output is None:
        _print(made)
        return 0
    data = _FORMS[form](made)
    if output is not None:
        with whole(output) as file:
            file.write(data)
        _show.hint(f"wrote {output}")
    else:
        sys.stdout.buffer.write(data)
    return 0


def _lines(made: Report) -> list[dict[str, Any]]:
    """The report as lines: first what was asked and as of when, then row by row."""
    asked = msgspec.structs.asdict(made.question)
    head = {
        "kind": "report",
        "position": made.position,
        "digest": made.digest,
        **asked,
        "baseline": made.baseline,
        "plan": made.plan,
    }
    lines = [head]
    for place, parts in (("judged", made.judged), ("beside", made.beside)):
        for part in parts:
            lines += [{"kind": "arm", "part": place, **row} for row in part.arms]
            lines += [{"kind": "comparison", "part": place, **row} for row in part.comparisons]
            lines += [{"kind": "curve", "part": place, **row} for row in part.curves]
    lines += [{"kind": "sample_ratio", **row} for row in made.ratio]
    lines += [{"kind": "accounting", **row} for row in made.accounts]
    lines += [{"kind": "regression", **row} for row in made.regressions]
    lines += [{"kind": "tool", **row} for row in made.tools]
    lines += [{"kind": "sequence", **row} for row in made.sequences]
    return lines


def _print(made: Report) -> None:
    for place, block in enumerate(blocks(made)):
        match block:
            case Heading():
                _show.write(*([""] if place else []), block.text, style="bold")
            case Words():
                gap = [""] if block.verdict else []
                _show.write(*gap, block.text, style=VERDICT_STYLES.get(block.verdict, ""))
            case Grid():
                columns = tuple(
                    _show.Column(name.removeprefix(">"), right=name.startswith(">"), whole=True)
                    for name in block.columns
                )
                _show.write(_show.table(columns, block.rows))
            case Plot():
                pass


def _text(made: Report) -> bytes:
    lines: list[str] = []
    for block in blocks(made):
        match block:
            case Heading() | Words():
                lines.append(_show.plain_text(block.text))
            case Grid():
                columns = tuple(
                    _show.Column(name.removeprefix(">"), right=name.startswith(">"), whole=True)
                    for name in block.columns
                )
                shown = _show.table(columns, block.rows)
                lines += [line.plain.rstrip() for line in shown.lines]
            case Plot():
                pass
    return ("\n".join(lines) + "\n").encode()


def markdown(made: Report) -> bytes:
    """The comparison as Markdown, tables as GitHub writes them."""
    lines: list[str] = []
    level = 1
    for block in blocks(made):
        match block:
            case Heading():
                lines += ["#" * level + " " + _marked(block.text), ""]
                level = 2
            case Words():
                text = _marked(block.text)
                lines += [f"**{text}**" if block.verdict else text, ""]
            case Grid():
                names = [_marked(name.removeprefix(">")) for name in block.columns]
                rules = ["---:" if name.startswith(">") else "---" for name in block.columns]
                rows = [names, rules, *([_marked(each) for each in row] for row in block.rows)]
                lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
            case Plot():
                pass
    return "\n".join(lines).rstrip().encode() + b"\n"


_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>|#~&"})


def _marked(text: str) -> str:
    """A text that Markdown shows as it is."""
    return _show.plain_text(text).translate(_MARKS)


def page(made: Report) -> bytes:
    """The comparison as one HTML file that asks nobody for anything."""
    from hansard.commands._compare_page import render  # noqa: PLC0415 -- loading plots takes 0.5 s

    return render(made)


_FORMS: dict[str, Callable[[Report], bytes]] = {"table": _text, "markdown": markdown, "html": page}
