# ruff: noqa: INP001 -- run by `make docs`
"""List each address of the HTTP service at the end of its page, from the OpenAPI document.

Usage: `python docs/http_addresses.py build/pages/docs/http.md`.
"""

import sys
from pathlib import Path

from hansard.service.http.openapi import document
from hansard.service.http.routes import RouteTable


def main(page: Path) -> None:
    """Extend a page in place."""
    lines = ["", "## Addresses", "", "|address|does|", "|---|---|"]
    for path, methods in document(RouteTable.of_modules().routes)["paths"].items():
        lines += [f"|`{name.upper()} {path}`|{each['summary']}|" for name, each in methods.items()]
    with page.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
