"""A comparison as one HTML file: no script, no request, pictures inside."""

from __future__ import annotations

import base64
import hashlib
import html

from hansard.commands._compare_blocks import Grid, Heading, Plot, Words, blocks
from hansard.commands._compare_plots import draw
from hansard.commands._show import plain_text
from hansard.projections.report import Report

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c1c1c; background: #fff; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
table { border-collapse: collapse; margin: .8rem 0; font-size: .9rem; display: block;
  overflow-x: auto; }
th, td { text-align: left; padding: .25rem .7rem; border-bottom: 1px solid #ddd; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; }
p.verdict { font-weight: 600; margin-bottom: .2rem; }
p.better { color: #1b6e2c; } p.worse { color: #a1201b; } p.cannot { color: #7a5600; }
img { max-width: 100%; }
"""

ALTS = {
    "intervals": "differences to the baseline with their intervals; the table has the numbers",
    "pairs": "each task's score under the baseline and under the arms",
    "curves": "pass^k by k, one line an arm; the table has the numbers",
}


def render(report: Report) -> bytes:
    """The file. Equal reports give equal bytes."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    title = html.escape(plain_text(f"Experiment {report.question.experiment}"))
    body = "\n".join(_element(place, block) for place, block in enumerate(blocks(report)))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    ).encode()


def _element(place: int, block: Heading | Words | Grid | Plot) -> str:
    match block:
        case Heading():
            level = 1 if place == 0 else 2
            return f"<h{level}>{_text(block.text)}</h{level}>"
        case Words():
            kind = f' class="verdict {block.verdict.split()[0]}"' if block.verdict else ""
            return f"<p{kind}>{_text(block.text)}</p>"
        case Grid():
            marks = [' class="n"' if name.startswith(">") else "" for name in block.columns]
            head = "".join(
                f"<th{mark}>{_text(name.removeprefix('>'))}</th>"
                for name, mark in zip(block.columns, marks, strict=True)
            )
            rows = "\n".join(
                "<tr>"
                + "".join(
                    f"<td{mark}>{_text(each)}</td>" for each, mark in zip(row, marks, strict=True)
                )
                + "</tr>"
                for row in block.rows
            )
            return f"<table>\n<tr>{head}</tr>\n{rows}\n</table>"
        case Plot():
            drawn = draw(block.kind, block.part)
            if drawn is None:
                return ""
            data = base64.b64encode(drawn).decode()
            return f'<img alt="{ALTS[block.kind]}" src="data:image/svg+xml;base64,{data}">'


def _text(text: str) -> str:
    return html.escape(plain_text(text))
