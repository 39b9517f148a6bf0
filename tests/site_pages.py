"""Write the generated pages of the site: `python -m tests.site_pages build/pages/docs`.

These are the commands, the tables, and the addresses of the HTTP service. They are made from the
code each time, and not stored.
"""

import sys
import tempfile
from pathlib import Path

from hansard.projections.store import Store
from hansard.service.http.openapi import document
from hansard.service.http.routes import RouteTable
from tests.cli_reference import reference
from tests.sql_reference import pages


def addresses() -> str:
    """Return a table of the addresses, from the OpenAPI document."""
    lines = ["", "## Addresses", "", "|address|does|", "|---|---|"]
    for path, methods in document(RouteTable.of_modules().routes)["paths"].items():
        lines += [f"|`{name.upper()} {path}`|{each['summary']}|" for name, each in methods.items()]
    return "\n".join(lines) + "\n"


def main(docs: Path) -> None:
    """Write pages into a copy of docs/; what a page of that name has comes first."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "t.duckdb")
        made = {"http.md": addresses(), **reference(), **pages(store)}
        store.close()
    for name, text in made.items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        with (docs / name).open("a", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
