"""Makes changes of which each is valid beside some and not beside others, one after the other.

    python racing.py DATA_DIR WORKSPACE NAME SEED

A line of stdout a change: `made`, `refused` or `lost`. It goes on until it is killed, or nobody
reads what it tells.
"""

import random
import sys

import hansard
from hansard.agents.memory.twins import MemoryChange

SPACE = "org"
SKILL = "---\nname: {name}\ndescription: Pays a bill.\n---\nPay it.\n"

TEXTS = {
    "AGENTS.md": ("Be brief.\n", "@a.md\n", "@b.md\n@a.md\n"),
    "a.md": ("A.\n", "@b.md\n", "@AGENTS.md\n"),
    "b.md": ("B.\n", "@AGENTS.md\n", "@a.md\n"),
    "notes/x.md": ("x\n", "y\n"),
    "Notes/x.md": ("x\n", "y\n"),
    "notes": ("no folder\n",),
    "skills/pay/SKILL.md": (SKILL.format(name="pay"), SKILL.format(name="owe"), "none\n"),
    "skills/owe/SKILL.md": (SKILL.format(name="pay"), SKILL.format(name="owe"), "none\n"),
}
"""Files, and what may be written there: alone, or beside some of the others."""

LINKS = {"CLAUDE.md": ("AGENTS.md", "a.md"), "copy.md": ("CLAUDE.md", "notes/x.md")}
MOVES = (
    ("skills/pay/SKILL.md", "skills/owe/SKILL.md"),
    ("notes/x.md", "Notes/x.md"),
    ("a.md", "b.md"),
)


def main() -> None:
    """Go on until it is killed."""
    data_dir, workspace, name, seed = sys.argv[1:]
    chance = random.Random(seed)
    with (
        hansard.connect(workspace, data_dir=data_dir) as record,
        record.run("w", agent=name, run=f"run-{name}") as session,
    ):
        while True:
            try:
                with session.memory.change("a race", space=SPACE) as change:
                    for _ in range(chance.choice((1, 1, 2))):
                        draw(chance, change)
            except hansard.errors.MemoryInvalid:
                outcome = "refused"
            except (hansard.BadValue, hansard.NotFound, hansard.errors.MemoryConflict):
                outcome = "lost"
                for path in TEXTS:  # view the current texts before the next change
                    see(session, path)
            else:
                outcome = "made"
            sys.stdout.write(f"{outcome}\n")
            sys.stdout.flush()


def see(session: hansard.Session, path: str) -> None:
    """Look at a file, if there is one."""
    try:
        session.memory.view(path, space=SPACE)
    except (hansard.NotFound, hansard.BadValue):
        return


def draw(chance: random.Random, change: MemoryChange) -> None:
    """Add one part of a change."""
    way = chance.random()
    if way < 0.6:
        path = chance.choice(list(TEXTS))
        change.create(path, chance.choice(TEXTS[path]))
    elif way < 0.75:
        path = chance.choice(list(LINKS))
        change.create(path, chance.choice(LINKS[path]), link=True)
    elif way < 0.9:
        change.delete(chance.choice([*TEXTS, *LINKS]))
    else:
        change.rename(*chance.choice(MOVES))


main()
