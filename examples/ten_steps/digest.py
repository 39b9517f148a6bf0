"""Ten steps of one agent. The tenth fails: mend it, start it again, and nine are not done again.

python digest.py
"""

import re
import sysconfig
from collections import Counter
from pathlib import Path

import hansard

STDLIB = Path(sysconfig.get_path("stdlib"))


@hansard.tool(effects="pure")
def search(topic: str) -> list[str]:
    """Return the library's modules that import a topic."""
    print("  search")
    imports = re.compile(rf"^(import|from) {topic}\b", re.MULTILINE)
    return sorted(
        path.stem for path in STDLIB.glob("*.py") if imports.search(path.read_text("utf-8"))
    )


@hansard.tool(effects="pure")
def fetch(module: str) -> str:
    """Return a module's source."""
    print("  fetch")
    return (STDLIB / f"{module}.py").read_text("utf-8")


@hansard.tool(effects="pure")
def clean(text: str) -> str:
    """Remove the comments."""
    print("  clean")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


@hansard.tool(effects="pure")
def split(text: str) -> list[str]:
    """Split the text into words."""
    print("  split")
    return re.findall(r"[a-z]{4,}", text.lower())


@hansard.tool(effects="pure")
def count(words: list[str]) -> dict[str, int]:
    """Count each word."""
    print("  count")
    return dict(Counter(words).most_common(20))


@hansard.tool(effects="pure")
def rank(counts: dict[str, int]) -> list[str]:
    """Return the most telling words."""
    print("  rank")
    return [word for word in counts if word not in {"self", "return", "none"}][:5]


@hansard.tool(effects="pure", kind="model")
def summarise(module: str, words: list[str]) -> str:
    """Summarise in a sentence; replace the last line by a call of your model."""
    print("  summarise")
    session.usage(input_tokens=1_200, output_tokens=40)  # what its answer says
    return f"{module} is about {', '.join(words)}."


@hansard.tool(effects="pure", kind="model")
def review(summary: str) -> str:
    """Judge the summary, by a model, too."""
    print("  review")
    session.usage(input_tokens=300, output_tokens=10)
    return "good" if summary.count(",") > 2 else "too short"


@hansard.tool(effects="pure")
def page(title: str, text: str, verdict: str) -> str:
    """Return the page."""
    print("  page")
    return f"# {title}\n\n{text}\n\nReviewed: {verdict}.\n"


@hansard.tool
def publish(text: str) -> str:
    """Put it where people look."""
    print("  publish")
    path = Path("reprots/digest.md")
    path.write_text(text, "utf-8")
    return str(path)


Path("reports").mkdir(exist_ok=True)
with hansard.Session(run="digest") as session:
    found = search("threading")[0]
    words = rank(count(split(clean(fetch(found)))))
    summary = summarise(found, words)
    print("published:", publish(page(found, summary, review(summary))))
