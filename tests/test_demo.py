"""The demo as users start it: a process that reports its facts, claim by claim."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.demo.story import DELAY_MS_MAX, WORKSPACE, moment
from hansard.demo.team import BYTES_MIN, functions_of
from tests.agents.forked import python as forked_python
from tests.exchange.support import exported, lines_of
from tests.schemas import check_commit

pytestmark = pytest.mark.slow

DEMO = [sys.executable, "-P", "-m", "hansard", "demo"]
DEMO_S = 150
GONE_S = 60.0
SEED = 7
SMALL = """
import runpy, sys, sysconfig

sys.executable, folder, found = sys.argv.pop(1), sys.argv.pop(1), sysconfig.get_path
sysconfig.get_path = lambda name, *given: folder if name == "stdlib" else found(name, *given)
sys.argv.insert(1, "demo")
runpy.run_module("hansard", run_name="__main__", alter_sys=True)
"""
"""The demo over a folder of its own modules, with forked processes; reading and measuring modules
takes most of its time.
"""
SMALLEST, LARGE, LARGE_BYTES = 34, 4, 80_000
"""Modules of that folder: the least number, and large ones whose text goes to a blob."""
STDLIB = Path(sysconfig.get_path("stdlib"))

Facts = list[dict[str, Any]]


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANSARD_")}
    return kept | more


def _run(
    *arguments: str, demo: Sequence[str] = DEMO, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*demo, *arguments],
        env=_environment(**environment),
        capture_output=True,
        check=False,
        text=True,
        timeout=DEMO_S,
    )


def _demo_facts(folder: Path, seed: int, demo: Sequence[str] = DEMO, **environment: str) -> Facts:
    """Return the facts of a demo after checking them and that none of its processes still run."""
    options = ("--json", "--data-dir", str(folder), "--seed", str(seed))
    ended = _run(*options, demo=demo, **environment)
    assert ended.returncode == 0, ended.stdout[-2_000:] + ended.stderr[-2_000:]
    assert not ended.stderr
    _assert_gone(folder)
    return [msgspec.json.decode(line) for line in ended.stdout.splitlines()]


def _assert_gone(folder: Path) -> None:
    """No process names the folder on its command line any more."""
    until = time.monotonic() + GONE_S
    while (left := _processes(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left


def _processes(folder: Path) -> list[str]:
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "args="], capture_output=True, check=True, text=True
    )
    return [line for line in listed.stdout.splitlines() if str(folder) in line]


def _fact(facts: Facts, name: str) -> dict[str, Any]:
    [match] = [fact for fact in facts if fact["fact"] == name]
    return match


def _claims(facts: Facts) -> list[str]:
    return [claim for fact in facts for claim in fact.get("claims", ())]


def _seed(body: int, bodies: int, delay_ms: float) -> int:
    """Return a seed whose kill follows the begin of a body within this delay."""
    for seed in range(100_000):
        when = moment(seed, bodies)
        if when[0] == body and when[1] <= delay_ms:
            return seed
    message = f"no seed kills within {delay_ms} ms of body {body}"
    raise AssertionError(message)


CLAIMS = {
    "every call is on record and ran once",
    "results over 64 KiB were read back from blobs",
    "the run is not complete",
    "recorded results are unchanged",
    "0 recorded calls ran again",
    "every recorded call was answered",
    "only unrecorded calls ran twice",
    "the report is byte-equal to A",
    "the ledger has one line for it",
    "nothing of it changed later",
    "nothing taken over ran",
    "all else ran once, effects apart",
    "both effects were shadowed",
    "the ledger is as it was",
    "the parent's report is as it was",
    "the reports differ",
}


def _assert_story(facts: Facts, folder: Path) -> None:
    """Check that the facts agree with each other and with the files that the agents wrote."""
    assert set(_claims(facts)) >= CLAIMS
    first, killed, resumed = (_fact(facts, name) for name in ("undisturbed", "killed", "resumed"))
    record, twice, fork = (_fact(facts, name) for name in ("on_record", "twice", "fork"))
    assert first["calls"] >= 100
    assert first["blobs"] > 1
    assert len({first["run"], killed["run"], fork["run"]}) == 3
    assert resumed["run"] == killed["run"]
    assert resumed["pid"] != killed["pid"]
    assert resumed["answered"] >= record["done"]
    assert twice["bodies"] == killed["begun"] + resumed["ran"]
    assert set(twice["twice"]) <= set(record["begun_without_outcome"])
    assert fork["taken_over"] == _fact(facts, "middle")["calls"]

    report, equal = _fact(facts, "report"), _fact(facts, "equal")
    assert report["path"] != equal["path"]
    assert Path(report["path"]).read_bytes() == Path(equal["path"]).read_bytes()
    entries = (folder / "world" / "ledger.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in entries] == [first["run"], killed["run"]]
    assert not (folder / "world" / fork["run"] / "report.md").exists()
    one, other = (fact["text"] for fact in facts if fact["fact"] == "leads")
    assert one != other
    commands = [fact["command"] for fact in facts if fact["fact"] == "try"]
    assert f"hansard run trace {killed['run']}" in commands


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the demo's record."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def small_facts(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Return the facts of a demo about few modules that was killed somewhere on its way."""
    modules = tmp_path_factory.mktemp("modules")
    sizes = sorted((path.stat().st_size, path.stem) for path in STDLIB.glob("[a-z]*.py"))
    named = [each for each in sizes if each[0] >= BYTES_MIN]
    large = [each for each in named if each[0] > LARGE_BYTES][:LARGE]
    for _, name in (*named[:SMALLEST], *large):
        shutil.copy(STDLIB / f"{name}.py", modules)
    facts = _demo_facts(
        folder, SEED, [sys.executable, "-P", "-c", SMALL, forked_python(), str(modules)]
    )
    _assert_story(facts, folder)
    return facts


@pytest.fixture(scope="module")
def whole_facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Return the facts of the demo as people start it."""
    folder = tmp_path_factory.mktemp("whole")
    facts = _demo_facts(folder, SEED)
    _assert_story(facts, folder)
    return facts


@pytest.mark.thorough(quick="test_the_team_is_shown_as_it_stood_halfway")
def test_a_demo_says_what_its_files_say(whole_facts):
    """Each fact agrees with the others and with the world; nothing is left running."""
    assert _fact(whole_facts, "end")["claims_held"] == len(_claims(whole_facts))


@pytest.mark.slow
def test_the_team_is_shown_as_it_stood_halfway(small_facts):
    """Halfway the researcher is done, the analyzer has measured half, the writer did nothing."""
    agents = {fact["agent"]: fact for fact in small_facts if fact["fact"] == "agent"}
    assert agents["researcher"]["resources"] == agents["researcher"]["calls"]
    assert agents["analyzer"]["calls"] == _fact(small_facts, "middle")["measured"] == 18
    assert agents["writer"]["calls"] == 0


@pytest.mark.slow
def test_every_event_of_its_record_is_what_the_published_schema_says(small_facts, folder):
    """Each stored event of the demo is valid by `docs/schema`."""
    types: Counter[str] = Counter()
    with hansard.connect(WORKSPACE, data_dir=folder) as record:
        runs = [run for run, _ in record.runs()]
    bodies = [
        line["body"]
        for line in lines_of(exported(folder, WORKSPACE, *runs))
        if line["kind"] == "commit"
    ]
    checked = sum(map(check_commit, bodies))
    for body in bodies:
        types.update(event["type"] for event in msgspec.json.decode(body)["events"])
    assert checked == types.total() > _fact(small_facts, "undisturbed")["calls"]
    assert {"run.started.v1", "step.completed.v1", "run.forked.v1", "decision.made.v1"} <= {*types}


def test_a_seed_is_a_moment():
    """Equal seeds give equal moments, and every body can be hit."""
    moments = [moment(seed, 10) for seed in range(500)]
    assert moments == [moment(seed, 10) for seed in range(500)]
    assert {body for body, _ in moments} == set(range(1, 11))
    assert all(0 <= delay_ms <= DELAY_MS_MAX for _, delay_ms in moments)


def _settled(facts: Facts, effect: str) -> list[str | None]:
    """Return how the doubts of a kill inside an effect were settled; empty if the kill was too
    late.
    """
    doubts = [fact["call"] for fact in facts if fact["fact"] == "in_doubt" and fact["call"]]
    settled = {fact["call"]: fact["verdict"] for fact in facts if fact["fact"] == "settled"}
    assert list(settled) == doubts
    assert all(name.startswith(effect) for name in doubts)
    return list(settled.values())


@pytest.mark.thorough
def test_a_kill_inside_the_posting_is_settled_by_looking(whole_facts, tmp_path):
    """Killed as the line is posted: the ledger is looked at, and has the line once."""
    bodies = _fact(whole_facts, "moment")["bodies"]
    facts = _demo_facts(tmp_path, _seed(bodies, bodies, 0.1))
    _assert_story(facts, tmp_path)
    assert set(_settled(facts, "post")) <= {"happened", "did_not_happen"}


@pytest.mark.thorough
def test_a_kill_at_the_first_call_leaves_little_to_answer(whole_facts, tmp_path):
    """A kill at the first call leaves all scenes in plain text and exit 0."""
    seed = _seed(1, _fact(whole_facts, "moment")["bodies"], 0.1)
    ended = _run("--data-dir", str(tmp_path), "--seed", str(seed))
    assert ended.returncode == 0, ended.stderr
    assert "\x1b" not in ended.stdout
    assert re.search(r"\b\d+ calls answered from the record", ended.stdout)
    scenes = [line for line in ended.stdout.splitlines() if line[:2] in {f"{n}." for n in range(6)}]
    assert len(scenes) == 5
    assert "claims held in" in ended.stdout.splitlines()[-1]
    _assert_gone(tmp_path)


@pytest.mark.thorough
def test_a_claim_that_does_not_hold_ends_the_demo(tmp_path):
    """If the undisturbed report changes meanwhile, the demo exits with 1 and names the broken
    claim.
    """
    facts: Facts = []
    with subprocess.Popen(
        [*DEMO, "--json", "--data-dir", str(tmp_path), "--seed", str(SEED)],
        env=_environment(),
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            facts.append(msgspec.json.decode(line))
            if facts[-1]["fact"] == "report":
                with Path(facts[-1]["path"]).open("a") as report:
                    report.write("one word more\n")
    assert process.returncode == 1
    assert facts[-1]["fact"] == "failed"
    assert facts[-1]["claim"] == "the report is byte-equal to A"
    assert "equal" not in [fact["fact"] for fact in facts]
    _assert_gone(tmp_path)


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    """A data directory that is a file: exit 1 and one clear line, no traceback."""
    taken = tmp_path / "taken"
    taken.write_text("")
    ended = _run("--data-dir", str(taken))
    assert ended.returncode == 1
    assert str(taken) in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_module_is_measured_as_its_text_says():
    """Each function has its own branches, including those of inner functions."""
    source = """\
class Public:
    def tell(self, rest):
        if rest or self:
            for item in rest:
                print(item)

        def inner():
            return [x for x in rest if x]
"""
    functions = {each.place: (each.lines, each.branches) for each in functions_of("m", source)}
    assert functions == {"m:2 tell": (7, 4), "m:7 inner": (2, 1)}


def test_threads_measure_side_by_side():
    """Many threads that measure at once get the results of sequential ones."""
    texts = {name: (STDLIB / f"{name}.py").read_text() for name in ("ast", "enum", "typing")}
    alone = [functions_of(name, text) for name, text in texts.items()]
    with ThreadPoolExecutor(len(texts)) as pool:
        assert list(pool.map(functions_of, texts, texts.values())) == alone
