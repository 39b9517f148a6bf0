"""The three use cases: killed in every stage, they go on to the same end, with each effect once."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WATCHED = ROOT / "tests" / "examples_migration" / "_watched.py"
PROGRAM_S_MAX = 60


def _orders(folder: Path) -> list[object]:
    book = folder / "order_book.sqlite"
    if not book.exists():
        return []
    with sqlite3.connect(book) as opened:
        tables = opened.execute("SELECT name FROM sqlite_master").fetchall()
        return opened.execute("SELECT * FROM orders").fetchall() if tables else []


def _replies(folder: Path) -> list[object]:
    outbox = folder / "outbox.jsonl"
    return list(map(json.loads, outbox.read_text("utf-8").splitlines())) if outbox.exists() else []


def _papers(folder: Path) -> list[object]:
    return [*sorted(path.name for path in (folder / "papers").glob("*"))]


class UseCase(msgspec.Struct, frozen=True):
    """A program, its tools in the order of its stages, and what it did to the world."""

    program: str
    workspace: str
    arguments: tuple[str, ...]
    tools: tuple[str, ...]
    effects: Callable[[Path], list[object]]
    count: int


USE_CASES = {
    "trading": UseCase(
        "trading/strategy.py",
        "trading",
        ("trade-1",),
        ("daily_prices", "moving_average", "judge", "place_order"),
        _orders,
        1,
    ),
    "support_desk": UseCase(
        "support_desk/desk.py",
        "support",
        ("tickets/1.txt",),
        ("classify", "search_documents", "write_reply", "send_reply"),
        _replies,
        1,
    ),
    "paper_pipeline": UseCase(
        "paper_pipeline/pipeline.py",
        "papers",
        ("effect",),
        ("search", "download", "extract", "analyze", "summarize"),
        _papers,
        4,
    ),
}
STAGES = [
    (name, f"{event} {tool}")
    for name, case in USE_CASES.items()
    for tool in case.tools
    for event in ("call", "return")
]


class Desk:
    """Where one use case runs: a folder of its own, with a record of its own."""

    def __init__(self, folder: Path, case: UseCase) -> None:
        self.folder = folder / "examples" / Path(case.program).parent
        self.case = case
        shutil.copytree(EXAMPLES / Path(case.program).parent, self.folder)
        (folder / "docs").symlink_to(ROOT / "docs")  # where an example looks unless told otherwise
        self.env = {
            **os.environ,
            "HANSARD_DATA_DIR": str(folder / "data"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "NO_COLOR": "1",
        }
        self.begun: list[Counter[str]] = []

    def start(self, kill_at: str = "0") -> subprocess.CompletedProcess[str]:
        """Run the program, killed at a place; counts the bodies that began."""
        places = self.folder / f"places-{len(self.begun)}"
        program = str(self.folder / Path(self.case.program).name)
        done = subprocess.run(
            [sys.executable, str(WATCHED), program, str(places), kill_at, *self.case.arguments],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROGRAM_S_MAX,
        )
        listed = places.read_text("utf-8").splitlines()
        self.begun.append(_bodies(listed, self.case.tools))
        return done

    def command(self, *words: str) -> str:
        """What a command of ours says."""
        done = subprocess.run(
            list(words),
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROGRAM_S_MAX,
        )
        assert done.returncode == 0, f"{words}: {done.stderr[-2000:]}"
        return done.stdout

    def bodies(self) -> Counter[str]:
        """How often each tool's body began, over all processes."""
        return sum(self.begun, Counter())


def _bodies(places: list[str], tools: tuple[str, ...]) -> Counter[str]:
    """Bodies begun, by the first line of each: a coroutine is called again after every wait."""
    begun: Counter[str] = Counter()
    for tool in tools:
        lines = [place for place in places if place.startswith(f"line {tool}:")]
        if lines:
            first = min(lines, key=lambda place: int(place.rpartition(":")[2]))
            begun[tool] = lines.count(first)
    return begun


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What each use case comes to when nobody disturbs it: its output, its bodies."""
    found = {}
    for name, case in USE_CASES.items():
        desk = Desk(tmp_path_factory.mktemp(name), case)
        done = desk.start()
        assert done.returncode == 0, done.stderr
        assert len(case.effects(desk.folder)) == case.count
        found[name] = (done.stdout, desk.bodies())
    return found


@pytest.mark.parametrize(("name", "place"), STAGES, ids=lambda value: value.replace(" ", "-"))
def test_it_goes_on_from_every_stage(undisturbed, tmp_path, name, place):
    """Killed where a tool begins or ends, and started again: the same output, each effect once,
    and no tool of another stage runs a second time.
    """
    case = USE_CASES[name]
    desk = Desk(tmp_path, case)
    killed = desk.start(place)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = desk.start()
    if "in doubt" in done.stderr or "whether its effect happened" in done.stderr:
        verdict = ["--happened", "1"] if case.effects(desk.folder) else ["--did-not-happen"]
        step = ["execution#1", *verdict]
        desk.command("hansard", "-w", case.workspace, "run", "settle", "trade-1", *step)
        done = desk.start()
    assert done.returncode == 0, done.stderr
    output, bodies = undisturbed[name]
    assert done.stdout == output
    assert len(case.effects(desk.folder)) == case.count
    tool = place.partition(" ")[2]
    others = {other: times for other, times in desk.bodies().items() if other != tool}
    assert others == {other: times for other, times in bodies.items() if other != tool}
    assert desk.bodies()[tool] <= 2 * bodies[tool]


def test_an_order_in_doubt_stops_until_it_is_settled(tmp_path):
    """Killed after the order was placed, the program does not go on by itself, whoever starts it
    how often; there is one order, and the message says what to do.
    """
    desk = Desk(tmp_path, USE_CASES["trading"])
    desk.start("return place_order")
    for _ in range(2):
        done = desk.start()
        assert done.returncode == 1
        assert "hansard run settle trade-1 execution#1" in done.stderr
        assert len(_orders(desk.folder)) == 1


def test_a_customer_who_comes_back_is_known(tmp_path):
    """The second ticket's answer knows of the first; the key in a ticket is in no file of ours."""
    desk = Desk(tmp_path, USE_CASES["support_desk"])
    for ticket in ("1", "2", "2"):
        desk.command(sys.executable, "desk.py", f"tickets/{ticket}.txt")
    first, second = _replies(desk.folder)
    assert first["text"].startswith("Thank you for asking.")  # type: ignore[index] # a reply is a dict
    assert second["text"].startswith("Thank you for coming back.")  # type: ignore[index] # a reply is a dict
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"sk-desk-0123456789" in path.read_bytes()]


def test_a_fork_runs_only_what_comes_after(tmp_path):
    """`--again` summarizes anew; nothing before the fork runs, nothing is downloaded again."""
    desk = Desk(tmp_path, USE_CASES["paper_pipeline"])
    first = desk.start()
    shutil.rmtree(desk.folder / "papers")
    desk.case = msgspec.structs.replace(desk.case, arguments=(*desk.case.arguments, "--again"))
    again = desk.start()
    assert again.returncode == 0, again.stderr
    assert first.stdout != again.stdout
    assert desk.begun[-1] == Counter({"summarize": 1})
    assert not _papers(desk.folder)


@pytest.mark.parametrize("name", USE_CASES)
def test_the_commands_of_its_readme_run(tmp_path, name):
    """What a reader copies from an example's README works, in its order."""
    desk = Desk(tmp_path, USE_CASES[name])
    lines = (desk.folder / "README.md").read_text("utf-8").splitlines()
    commands = [shlex.split(line[2:]) for line in lines if line.startswith("$ ")]
    assert commands
    for command in commands:
        assert desk.command(*command)
