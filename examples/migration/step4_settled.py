"""Step 4, doubt settles itself, and bounds hold: killed anywhere, it goes on, and sends once.

    python step4_settled.py [TICKET]

The job: which of the standard library's modules that use threads explains itself least?
"""

import argparse
import ast
import json
import re
import sysconfig
from pathlib import Path

import hansard

STDLIB = Path(sysconfig.get_path("stdlib"))
QUESTION = "Which of these modules explains itself least?"
MODULES = 5
OUTBOX = Path("outbox.jsonl")

RULES = (
    hansard.deny("send", unless={"to": hansard.one_of("docs@example.org")}, name="our list only"),
    hansard.budget("questions to the model", limit=3, tool="ask_model"),
)


@hansard.tool(effects="pure")
def search(topic: str) -> list[str]:
    """Return the largest modules that import a topic."""
    imports = re.compile(rf"^\s*(import|from) {topic}\b", re.MULTILINE)
    found = [path for path in STDLIB.glob("*.py") if imports.search(path.read_text("utf-8"))]
    found.sort(key=lambda path: (-path.stat().st_size, path.name))
    return [path.stem for path in found[:MODULES]]


@hansard.tool(effects="pure")
def read(module: str) -> str:
    """Count a module's public functions without a docstring."""
    tree = ast.parse((STDLIB / f"{module}.py").read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    public = [function for function in functions if not function.name.startswith("_")]
    bare = [function for function in public if ast.get_docstring(function) is None]
    return f"{module}: {len(bare)} of {len(public)}"


@hansard.tool(effects="pure", kind="model")
def ask_model(messages: list[dict[str, str]]) -> str:
    """Answer by rule, so that this runs anywhere with the same result."""
    # Replace the next four lines by a call of your model: it gets the same messages.
    notes = [re.split(": | of ", message["content"]) for message in messages[1:]]
    shares = {module: int(bare) / max(1, int(public)) for module, bare, public in notes}
    module = max(shares, key=lambda name: (shares[name], name))
    return f"{module}: {shares[module]:.0%} of its public functions have no docstring"


def sent(to: str, ticket: str, text: str) -> object:
    """Return whether a message was delivered: looked up after a kill, never guessed."""
    # Replace the next two lines by a look at the other side: a mailbox, an order's status.
    lines = OUTBOX.read_text("utf-8").splitlines() if OUTBOX.exists() else []
    found = {"to": to, "ticket": ticket, "text": text} in map(json.loads, lines)
    return hansard.Happened() if found else hansard.DID_NOT_HAPPEN


@hansard.tool(effects=hansard.reconcile(sent))
def send(to: str, ticket: str, text: str) -> None:
    """Deliver a message."""
    # Replace the next two lines by what you do to the world: a mail, a payment, an order.
    with OUTBOX.open("a", encoding="utf-8") as outbox:
        outbox.write(json.dumps({"to": to, "ticket": ticket, "text": text}) + "\n")


def work(session: hansard.Session, ticket: str) -> str:
    """Do the job; its answer."""
    session.message("user", QUESTION)
    for module in search("threading"):
        session.message("user", read(module))
    session.checkpoint("read", messages=len(session.context()))
    answer = ask_model(session.context())
    session.message("assistant", answer)
    send("docs@example.org", ticket, answer)
    return answer


def main(ticket: str) -> None:
    """Do the job and print its answer."""
    with (
        hansard.connect(workspace="migration", gate=RULES) as record,
        record.run("docs-triage", run=f"ticket-{ticket}", agent="reader") as session,
    ):
        print(work(session, ticket))


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("ticket", nargs="?", type=int, default=17, help="a ticket's number")
    main(str(given.parse_args().ticket))
