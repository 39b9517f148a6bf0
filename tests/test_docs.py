"""Documents cannot lie: their code runs, their links lead somewhere.

In README.md, ARCHITECTURE.md and docs/, blocks marked `python` run one after another in one
namespace a file, in a folder of their own. Of blocks marked `console`, the lines that begin with
`$ hansard`, `$ cp` or `$ openssl` run and must succeed: in this process and beside a broker that
stays up, as a process and a broker for each would take most of the time; pages that name no
workspace share one. A block that cannot run has a comment before it that says why:
`<!-- not run: it needs a broker on another machine -->`. Blocks after `<!-- notebook -->` are cells
of a notebook, parted by `# %%`: tests/notebooks runs them in a kernel of the page.

A `python` block after `<!-- file: quickstart.py -->` is saved as that file, and `$ python` lines of
consoles run it. `<!-- exits with 137: it kills itself -->` before a console states the exit code of
its last command.

Pages that take long run in the full tier (`LONG`); in each run their modules and options are looked
up. Code warns of nothing. Each command of README.md has something to show, and prints the lines
that are written below it. A translation of README.md has the same blocks, and is not run again.
"""

import ast
import functools
import itertools
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
import structlog

from hansard.broker.lease import join
from hansard.cli import command as commands_of_hansard
from hansard.cli import hoist_global_options
from tests.agents.forked import python as forked_python
from tests.cli.support import ran
from tests.faults._warm import commands as commands_at
from tests.faults._warm import python as python_at
from tests.projections.query_cache import tables_stay_open

__all__ = ["tables_stay_open"]

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if path.name != "CHANGELOG.md"  # tells of the past, whose commands may be gone
)
TOURS = ("README.md",)
"""Pages whose commands each print something, so that a reader sees their purpose."""
LONG = (
    "docs/actions.md",
    "docs/aggregates.md",
    "docs/bisect.md",
    "docs/experience.md",
    "docs/experiments.md",
    "docs/fairness.md",
    "docs/http.md",
    "docs/mcp.md",
    "docs/memory-files.md",
    "docs/memory-search.md",
    "docs/models.md",
    "docs/otel.md",
    "docs/prompts.md",
    "docs/tiers.md",
    "docs/tutorials/audit.md",
)
"""Pages that take as long as all others; each one's subject has a folder of tests."""
TRANSLATIONS = sorted(ROOT.glob("README.*.md"))
"""Pages with the blocks of README.md."""

RUN_S_MAX = 400
"""A command that takes so many seconds hangs."""
END_S_MAX = 60
"""Seconds until the broker of a program that has ended is gone."""
REASON_LETTERS_MIN = 10
SIGNALLED = 128
"""A shell adds it to the number of the signal that ended a program."""

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>\w*)[^`]*$")
NOTEBOOK = re.compile(r"<!--\s*notebook\s*-->")
CELL = re.compile(r"^# %%.*$", re.MULTILINE)
NAMED = re.compile(r"HANSARD_|workspace|data[-_]dir|\s-w\s|connect(?:_async)?\(\s*[^)\s]")
NOT_RUN = re.compile(r"<!--\s*not run:?\s*(?P<reason>.*?)\s*-->")
FILE = re.compile(r"<!--\s*file: (?P<name>\S+)\s*-->")
EXITS = re.compile(r"<!--\s*exits with (?P<code>\d+): .+-->")
COMMAND = re.compile(r"\$ (?:[A-Z_]+=\S* )*(?:hansard|python|cp|openssl) ")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")
EMPTY = re.compile(
    r"^(?:no|none|nothing)\b|(?:^|[:,] )0 (?:calls|commits|decisions|events|keys|messages|rows|runs"
    r"|steps|tasks)\b",
    re.MULTILINE | re.IGNORECASE,
)
"""Output of a command that found nothing; "nothing is wrong" is an answer."""
DIALECT = re.compile(
    r"\b(?:told|said|asked|came|whoever|anew|stands|wanted|comes to|what it is|by then)\b",
    re.IGNORECASE,
)
PARTS = re.MULTILINE | re.DOTALL
MODULE = re.compile(r"`((?:\w+/)+\w+\.py)`")
HEADING = re.compile(r"^#+\s+(?P<words>.+?)\s*$")


class Block(msgspec.Struct):
    """A fenced block: language, first line, and its directives."""

    language: str
    line: int
    text: str
    reason: str | None
    notebook: bool = False
    file: str | None = None
    exit_code: int = 0


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    parsed: list[Block] = []
    reason: str | None = None
    notebook = False
    file: str | None = None
    exit_code = 0
    opened: tuple[str, str, int] | None = None
    held: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if opened is not None:
            ticks, language, first = opened
            if fence and fence["ticks"] == ticks and not fence["language"]:
                text = "\n".join(held) + "\n"
                block = Block(language, first, text, reason, notebook, file, exit_code)
                parsed.append(block)
                opened, reason, notebook, held = None, None, False, []
                file, exit_code = None, 0
            else:
                held.append(line)
        elif fence:
            opened = (fence["ticks"], fence["language"], number + 1)
        elif marked := NOT_RUN.search(line):
            reason = marked["reason"]
        elif NOTEBOOK.search(line):
            notebook = True
        elif saved := FILE.search(line):
            file = saved["name"]
        elif ends := EXITS.search(line):
            exit_code = int(ends["code"])
        elif line.strip():
            reason, notebook, file, exit_code = None, False, None, 0
    return parsed


def commands(block: Block) -> list[list[str]]:
    """Return the command lines that run, continued lines joined, each split into words."""
    lines = block.text.replace("\\\n", " ").splitlines()
    texts = [line[2:].partition(" # ")[0] for line in lines if COMMAND.match(line)]
    return [shlex.split(line) for line in texts]


def outputs(block: Block) -> list[list[str]]:
    """Return the lines written below each of these commands."""
    written: list[list[str]] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if COMMAND.match(line):
            written.append([])
        elif written:
            written[-1].append(line)
    return written


def runnable(page: Path) -> list[Block]:
    """Return the blocks of a page that are run."""
    parsed = blocks(page.read_text(encoding="utf-8"))
    return [
        block
        for block in parsed
        if block.reason is None
        and (block.language == "python" or (block.language == "console" and commands(block)))
    ]


def notebook(page: Path) -> list[str]:
    """Return the cells of a page's notebook."""
    texts = [block.text for block in runnable(page) if block.notebook]
    return [cell.strip() for text in texts for cell in CELL.split(text) if cell.strip()]


def name_of(page: Path) -> str:
    """Return the path of a page in the repository."""
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory):
    """Return the folder of the browser driver's compile cache, shared by later node processes."""
    return tmp_path_factory.mktemp("node")


@pytest.fixture
def data(page, request, tmp_path, workspace, monkeypatch):
    """Return a page's data directory, shared by pages that name no workspace."""
    if any(NAMED.search(block.text) for block in runnable(page)):
        return tmp_path / "data"
    monkeypatch.setenv("HANSARD_WORKSPACE", workspace)
    return request.getfixturevalue("data_dir")


@pytest.fixture
def hansard(data, node_modules, capfd, monkeypatch):
    """Return a function that runs a command, checks its exit code and returns its output; a broker
    is running.
    """
    monkeypatch.setenv("HANSARD_DATA_DIR", str(data))
    monkeypatch.setenv("NODE_COMPILE_CACHE", str(node_modules))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")  # as at a terminal: a killed program has printed
    monkeypatch.setenv("PATH", commands_at(), prepend=os.pathsep)

    def run(command: list[str], page: Path, exit_code: int = 0) -> str:
        if command[0] != "hansard":
            if command[0] == "cp":
                _await_end(Path(command[2]))
            return _expect(command, page, exit_code)
        done = ran(capfd, monkeypatch, command[1:])
        structlog.reset_defaults()
        output = f"{done.out[-3000:]}\n{done.err[-3000:]}"
        assert done.code == exit_code, f"{name_of(page)}: {shlex.join(command)} failed:\n{output}"
        return output

    with join(data):
        yield run


def _tier(page: Path) -> object:
    if name_of(page) not in LONG:
        return page
    marks = pytest.mark.thorough(quick="test_names_in_the_code_of_a_page_exist")
    return pytest.param(page, marks=marks)


RUN = [
    _tier(page)
    for page in PAGES
    if page not in TRANSLATIONS and any(not block.notebook for block in runnable(page))
]


@pytest.mark.slow
@pytest.mark.timeout(RUN_S_MAX * 2)
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_code_of_a_page_runs(page, tmp_path, hansard, monkeypatch):
    """The code of a page works when a reader copies it in the order of the page."""
    todo = runnable(page)
    work = tmp_path / "reader"
    work.mkdir()
    monkeypatch.chdir(work)
    python = [block for block in todo if block.language == "python" and not block.notebook]
    for block in python:
        if block.file is not None:
            Path(block.file).write_text(block.text, encoding="utf-8")
    if python := [block for block in python if block.file is None]:
        # Blank lines before each block: a traceback then names the line of the page.
        script = ""
        for block in python:
            script += "\n" * (block.line - 1 - script.count("\n")) + block.text
        # What a page starts by itself is forked, too, and so is what Hansard starts for it.
        if not script.lstrip().startswith('"""'):  # which has to come first
            script = f"__import__('sys').executable = {forked_python()!r}" + script
        (work / "page.py").write_text(script, encoding="utf-8")
        # Whatever it warns of is an error, such as ToolChanged: a reader would wonder at it.
        _expect([python_at(), "page.py"], page)
    for block in todo:
        if block.language == "console":
            *before, last = commands(block)
            ends = [(command, 0) for command in before] + [(last, block.exit_code)]
            for (command, exit_code), written in zip(ends, outputs(block), strict=True):
                output = hansard(command, page, exit_code)
                if name_of(page) in TOURS:
                    _assert_shown(command, output, written)


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_names_in_the_code_of_a_page_exist(name):
    """Code is Python that imports from modules there are; each command takes its options."""
    for block in runnable(ROOT / name):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.ImportFrom):
                    assert find_spec(str(node.module)), node.module
            continue
        for words in commands(block):
            if words[0] == "hansard":
                _parse(words[1:])


def _parse(words: list[str]) -> None:
    """Parse a command line; an unknown command, option or choice is an error."""
    context = commands_of_hansard().make_context("hansard", hoist_global_options(words))
    while names := context._protected_args:
        rest = [*names, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)


def _assert_shown(command: list[str], output: str, written: list[str]) -> None:
    """Check that a command prints the lines below it; `...` shortens."""
    assert output.strip() or "python" in command, f"{shlex.join(command)} shows nothing"
    empty = EMPTY.search(output)
    assert empty is None, f"{shlex.join(command)} shows nothing: {output}"
    at = 0
    for line in (each.removesuffix("...") for each in written):
        assert line in output[at:], f"{shlex.join(command)} does not print {line!r}: {output}"
        at = output.index(line, at) + len(line)


def _await_end(folder: Path) -> None:
    """Wait until no broker answers for a folder that is to be copied, as its page requires."""
    until = time.monotonic() + END_S_MAX
    while (folder / "state.json").exists():
        assert time.monotonic() < until, f"the broker of {folder} goes on"
        time.sleep(0.05)


def _expect(command: list[str], page: Path, exit_code: int = 0) -> str:
    """Return the output of a program that ends with this code; a leading `NAME=value` is
    environment.
    """
    named = list(itertools.takewhile(lambda word: "=" in word, command))
    words = command[len(named) :]
    if words[0] == "python" and exit_code:  # no fork, which would not read PYTHONUNBUFFERED
        words[0] = sys.executable
    done = subprocess.run(
        words,
        env=os.environ | dict(word.split("=", 1) for word in named),
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S_MAX,
        stdin=subprocess.DEVNULL,
    )
    output = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    code = SIGNALLED - done.returncode if done.returncode < 0 else done.returncode
    assert code == exit_code, f"{name_of(page)}: {shlex.join(command)} failed:\n{output}"
    return output


def test_a_block_that_is_not_run_says_why():
    """`<!-- not run: reason -->` without a reason is no excuse."""
    for page in PAGES:
        reasons = [match["reason"] for match in NOT_RUN.finditer(page.read_text(encoding="utf-8"))]
        assert all(len(reason) >= REASON_LETTERS_MIN for reason in reasons), (page, reasons)


def anchors(text: str) -> set[str]:
    """Return the anchors that a page's headings get when it is shown on a code host."""
    names: set[str] = set()
    outside = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    for line in outside.splitlines():
        if heading := HEADING.match(line):
            words = re.sub(r"[^\w\- ]", "", heading["words"].lower())
            names.add(words.replace(" ", "-"))
    return names


@functools.cache
def _anchors(page: Path) -> set[str]:
    return anchors(page.read_text(encoding="utf-8"))


def test_every_internal_link_leads_somewhere():
    """A link inside the repository names a file that exists and a heading that is in it."""
    broken = []
    for page in PAGES:
        for link in LINK.finditer(page.read_text(encoding="utf-8")):
            target = link["target"] or link["image"]
            if re.match(r"[a-z]+:", target):
                continue  # another site
            path, _, anchor = target.partition("#")
            where = page.parent / path if path else page
            if not where.exists() or (
                anchor and where.suffix == ".md" and anchor not in _anchors(where)
            ):
                broken.append((name_of(page), target))
    assert not broken


def test_every_named_module_exists():
    """A path such as `agents/flow.py` in a page is a file of the package or the repository."""
    homes = (ROOT / "src" / "hansard", ROOT)
    missing = [
        (name_of(page), path)
        for page in PAGES
        for path in MODULE.findall(page.read_text(encoding="utf-8"))
        if not any((home / path).exists() for home in homes)
    ]
    assert not missing


def test_the_pages_are_in_plain_words():
    """Prose has none of the words that mark a private dialect; code and names in it may."""
    dialect = {}
    for page in (*PAGES, *(ROOT / "examples").rglob("*.md")):
        text = re.sub(r"^ *(`{3,}).*?^ *\1", "", page.read_text(encoding="utf-8"), flags=PARTS)
        if words := DIALECT.findall(re.sub(r"`[^`]*`", "", text)):
            dialect[name_of(page)] = words
    assert not dialect


def test_there_is_a_readme():
    """A stranger starts with README.md."""
    if not (ROOT / "README.md").exists():
        pytest.skip("README.md is not written yet")
    assert runnable(ROOT / "README.md"), "README.md shows no code or command that runs"


@pytest.mark.parametrize("page", TRANSLATIONS, ids=name_of)
def test_a_translation_has_the_blocks_of_the_original(page):
    """Code, commands and output are equal, and each page links to the other."""
    original = ROOT / "README.md"
    texts = [each.read_text(encoding="utf-8") for each in (original, page)]
    there, here = ([(b.language, b.file, b.exit_code, b.text) for b in blocks(t)] for t in texts)
    assert here == there
    for text, other in zip(texts, (page, original), strict=True):
        assert f"({other.name})" in text
    hrefs = [
        [link["target"] or link["image"] for link in LINK.finditer(text)][1:] for text in texts
    ]
    assert hrefs[0] == hrefs[1], "both pages lead to the same pages"


def test_the_readme_names_each_extra():
    """The README lists each extra of pyproject.toml, and no other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for page in (ROOT / "README.md", *TRANSLATIONS):
        text = page.read_text(encoding="utf-8")
        install = text.partition("[arrow,plots]'`")[2].partition("\n\n")[0]
        named = set(re.findall(r"`([\w-]+)`", install))
        assert named == set(project["optional-dependencies"]), page


def test_blocks_are_found_with_their_line_and_reason():
    """The reader of pages understands fences, languages, reasons and continued commands."""
    page = (
        "# Title\n\n```python\nx = 1\n```\n\n<!-- not run: needs a broker -->\n"
        "```console\n$ hansard up\n```\n````text\n```python\n```\n````\n"
        "```console\n$ hansard sql \\\n    --as auditor\nposition 4\n```\n"
    )
    first, second, third, fourth = blocks(page)
    assert (first.language, first.line, first.text) == ("python", 4, "x = 1\n")
    assert (second.reason, third.language, fourth.reason) == ("needs a broker", "text", None)
    assert commands(fourth) == [["hansard", "sql", "--as", "auditor"]]
    assert anchors(page) == {"title"}
    page = (
        "<!-- file: a.py -->\n```python\n```\n<!-- exits with 137: it is killed -->\n"
        "```console\n$ X=1 python a.py\nkilled\n$ hansard runs\n```\n"
    )
    file, console = blocks(page)
    assert (file.file, console.exit_code) == ("a.py", 137)
    assert commands(console) == [["X=1", "python", "a.py"], ["hansard", "runs"]]
    assert outputs(console) == [["killed"], []]


@pytest.mark.parametrize(
    ("output", "empty"),
    [
        ("0 decisions of run a, as of position 53", True),
        ("run a as of position 45\n\nada (researcher): 0 messages", True),
        ("run a as role reviewer sees it: 0 events", True),
        ("question\n\nas of position 10: 0 rows", True),
        ("no call waits for approval", True),
        ("checked 45 commits up to position 45: nothing is wrong", False),
        ("1 run, 4 messages, 1 call: 8 commits, 0 of them new", False),
        ("1 run, 17 commits, 0 blobs", False),
    ],
)
def test_an_empty_answer_is_known(output, empty):
    """An empty result is distinguished from an answer that reports nothing wrong."""
    assert bool(EMPTY.search(output)) is empty
