"""Pages, each one self-contained file without any request.

Templates are filled in by jinja2: recorded text is never markup, and unprintable characters are
escaped; `safe` marks only our own files and hashes. The content security policy allows the one
style and the one script by their hashes, and no request of any kind. Equal data gives equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

from hansard.bus import subjects
from hansard.inspect.answer import plain_text
from hansard.inspect.audit import DecisionText
from hansard.inspect.page import Page

if TYPE_CHECKING:
    import jinja2

_ESCAPES = (
    (b"<", rb"\u003c"),
    (b">", rb"\u003e"),
    (b"&", rb"\u0026"),
    ("\u2028".encode(), rb"\u2028"),
    ("\u2029".encode(), rb"\u2029"),
)
"""Characters that could end a script element or a line of script; in JSON they occur only in texts.
"""

_DATA = "<!--data-->"
"""Place of the run's data, which is too large for a template; no filled-in value contains this
text.
"""


def run_page(page: Page) -> bytes:
    """Return the page of a run, with its data and script."""
    filled = _page("run.html", built(".css"), built(".js"), run=page.run, data=_DATA)
    before, _, after = filled.partition(_DATA.encode())
    return before + data_of(page) + after


def decision_page(facts: DecisionText, position: int) -> bytes:
    """Return the page of a decision, without a script: long parts are collapsed."""
    return _page("decision.html", asset("why.css"), facts=facts, position=position)


def login_page(view: str, **values: object) -> bytes:
    """Return a page about the login, which has its style in a file of the server."""
    template = _environment().get_template("login.html")
    return template.render(view=view, **values).encode()


def page_name(run: str) -> str:
    """Return the default file name of `hansard run html RUN`."""
    return f"{subjects.token(run)}.html"


def data_of(page: Page) -> bytes:
    """Return a run's data as JSON, escaped so that it contains no markup."""
    made = msgspec.json.encode(page)
    for char, escaped in _ESCAPES:
        made = made.replace(char, escaped)
    return made


def built(suffix: str) -> str:
    """Return the part of the built page that shows the data inside its file (`web/build.mjs`)."""
    folder = resources.files("hansard.web").joinpath("static", "assets")
    names = (each.name for each in folder.iterdir())
    [name] = [name for name in names if name.startswith("core-") and name.endswith(suffix)]
    return asset(f"assets/{name}")


def asset(name: str) -> str:
    """Return a static file."""
    return resources.files("hansard.web").joinpath("static", name).read_text(encoding="utf-8")


def _page(template: str, style: str, script: str = "", **values: Any) -> bytes:
    page_template = _environment().get_template(template)
    policy = _policy(style, script)
    return page_template.render(policy=policy, style=style, script=script, **values).encode()


def _policy(style: str, script: str) -> str:
    """Return the content security policy: the style and the script by their hashes, nothing
    else.
    """
    parts = ["default-src 'none'"]
    parts += [f"script-src '{_hash(script)}'"] if script else []
    parts += [f"style-src '{_hash(style)}'"]
    parts += ["base-uri 'none'", "form-action 'none'"]
    parts += ["require-trusted-types-for 'script'", "trusted-types 'none'"] if script else []
    return "; ".join(parts)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # noqa: PLC0415 -- slow to load, and few commands make a page

    return jinja2.Environment(
        loader=jinja2.PackageLoader("hansard.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        keep_trailing_newline=True,
    )


def _shown(value: Any) -> Any:
    """Escape unprintable characters of recorded text; `safe` values are unchanged."""
    return plain_text(value, lines=True) if type(value) is str else value
