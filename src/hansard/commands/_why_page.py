"""A decision as one HTML file: no script, no request, recorded text never as markup."""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from importlib import resources

from hansard.commands._show import plain_text
from hansard.commands._why_parts import Part, Told


@cache
def _style() -> str:
    folder = resources.files("hansard.commands") / "_page_assets"
    return (folder / "why.css").read_text(encoding="utf-8")


def _policy(style: str) -> str:
    """What the page may do: its one style, by its hash, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _said(text: str) -> str:
    """Recorded text: what does not print is escaped, and nothing of it is markup."""
    return html.escape(plain_text(text, lines=True))


def _section(part: Part) -> str:
    """A part, what is many in it folded: it opens by a click, without a script."""
    shown, rest, word = part.folded()
    tables = [_table(part, shown)]
    if rest:
        fold = f"<details><summary>{_said(word)}</summary>\n{_table(part, rest)}</details>"
        tables.insert(0 if part.fold == "newest" else 1, fold)
    return "\n".join([f"<section><h2>{_said(part.title)}</h2>", *tables]) + "</section>"


def _table(part: Part, shown: list[tuple[str, ...]]) -> str:
    head = "".join(f'<th scope="col">{_said(name)}</th>' for name in part.columns)
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{_said(text)}</td>' for text in row)}</tr>" for row in shown
    )
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"


def render(told: Told, position: int) -> bytes:
    """The whole file. Equal rows give equal bytes."""
    style = _style()
    sentences = "".join(f"<p>{_said(sentence)}</p>" for sentence in told.sentences)
    body = "\n".join(_section(part) for part in told.parts)
    at = told.address.partition(".")[0]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(style)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{_said(told.question)}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{_said(told.question)} <strong>{_said(told.selected)}</strong></h1>
{sentences}</header>
<main>
{body}
</main>
<footer><p>Decision {_said(told.decision)}, as of position {position}. The run as it stood then:
<code>hansard run show {_said(told.run)} --at {at}</code></p></footer>
</body>
</html>
""".encode()
