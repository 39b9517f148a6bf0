# ruff: noqa: INP001 -- run by `make docs`
"""Name the entries of the Python API and of SQL in the site's search index by their full names.

    python docs/search_titles.py site/search.json

The search weighs titles most. Under a full name, which is one word to it, `Label.untrusted` does
not come before the page that explains untrusted input.
"""

import json
import re
import sys
from pathlib import Path


def main(index: Path) -> None:
    """Rewrite an index in place."""
    data = json.loads(index.read_text(encoding="utf-8"))
    for item in data["items"]:
        _, _, name = item["location"].partition("#")
        if name.startswith("hansard."):
            item["title"] = name
        elif item["location"].startswith("docs/sql/") and name:
            item["title"] = "sql." + re.sub(r"<[^>]+>", "", item["title"])
        elif item["location"].startswith("docs/reference/"):
            item["path"] = item["path"][:-1]
    index.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
