"""A page's bytes: template, style, script and data in one file that asks nobody for anything.

The content security policy allows the one script and the one style by their hashes, no request of
any kind, and no text as markup. The data is JSON in an element that is never run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from hansard.bus import subjects
from hansard.commands._page_data import Page
from hansard.commands._whole_file import whole

_HOLE = re.compile(r"\{\{(\w+)\}\}")
"""Where the template takes a part in."""

SCRIPTS = (
    "text.js",
    "model.js",
    "shared.js",
    "value.js",
    "axis.js",
    "timeline.js",
    "trace.js",
    "detail.js",
    "state.js",
    "board.js",
    "chat.js",
)
"""The parts of the page's script, each using those before it; `main.js` comes last."""

_ESCAPES = (
    (b"<", rb"\u003c"),
    (b">", rb"\u003e"),
    (b"&", rb"\u0026"),
    ("\u2028".encode(), rb"\u2028"),
    ("\u2029".encode(), rb"\u2029"),
)
"""What could end a script element or a line of script; in JSON all of it stands inside texts."""


def _asset(name: str) -> str:
    folder = resources.files("hansard.commands") / "_page_assets"
    return (folder / name).read_text(encoding="utf-8")


@cache
def _parts() -> tuple[str, str, str]:
    """The template, the style and the script."""
    script = "\n".join(_asset(name) for name in (*SCRIPTS, "main.js"))
    return _asset("page.html"), _asset("page.css"), f'(() => {{\n"use strict";\n{script}}})();\n'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(page: Page) -> bytes:
    """The data, with nothing in it that markup could see."""
    data = msgspec.json.encode(page)
    for char, escaped in _ESCAPES:
        data = data.replace(char, escaped)
    return data


def render(page: Page) -> bytes:
    """The whole file. Equal data gives equal bytes."""
    template, style, script = _parts()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    filled = {
        "policy": policy.encode(),
        "title": html.escape(page.run).encode(),
        "style": style.encode(),
        "data": _json(page),
        "script": script.encode(),
    }
    parts = _HOLE.split(template)
    return b"".join(
        filled[part] if number % 2 else part.encode() for number, part in enumerate(parts)
    )


def default_path(run: str) -> Path:
    """`RUN.html` in the working directory; what a file's name cannot hold is escaped."""
    return Path(f"{subjects.token(run)}.html")


def write(path: Path, data: bytes) -> None:
    """Write a page, whole or not at all. Raises Unwritable."""
    with whole(path) as file:
        file.write(data)
