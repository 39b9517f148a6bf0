"""What docs/migrating.md shows of the steps, made from their files.

    python -m tests.examples_migration.guide    # writes it again

A mark `<!-- whole: FILE -->` is followed by the file, `<!-- diff: FILE FILE -->` by what changes
from one to the next.
"""

import difflib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "migrating.md"
FOLDER = ROOT / "examples" / "migration"
CONTEXT_LINES = 2
MARKED = re.compile(
    r"^<!-- (?P<kind>whole|diff): (?P<files>[\w. ]+) -->\n(?:\n?```\w+\n.*?^```\n)?",
    re.MULTILINE | re.DOTALL,
)


def shown(kind: str, files: list[str]) -> str:
    """A fenced block: a file, or the change from one file to another."""
    texts = [(FOLDER / file).read_text(encoding="utf-8") for file in files]
    if kind == "whole":
        return f"```python\n{texts[0]}```\n"
    before, after = (text.splitlines(keepends=True) for text in texts)
    changes = difflib.unified_diff(before, after, files[0], files[1], n=CONTEXT_LINES)
    return f"```diff\n{''.join(changes)}```\n"


def renewed(text: str) -> str:
    """The guide with every marked block as the files are now."""

    def block(found: re.Match[str]) -> str:
        kind, files = found["kind"], found["files"]
        return f"<!-- {kind}: {files} -->\n\n{shown(kind, files.split())}"

    return MARKED.sub(block, text)


if __name__ == "__main__":
    GUIDE.write_text(renewed(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
