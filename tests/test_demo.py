"""The demo, as people start it: a process that tells its facts, claim by claim."""

import contextlib
import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import hansard
from hansard.demo import measures
from hansard.demo.model import BASE_URL, Model, NoAnswer, from_environment
from hansard.demo.process import DELAY_MS_MAX, moment
from hansard.demo.team import BYTES_MIN
from hansard.demo.worker import WORKSPACE
from tests.exchange.support import exported, lines_of
from tests.schemas import check_commit

pytestmark = pytest.mark.slow

DEMO = [sys.executable, "-P", "-m", "hansard.demo"]
DEMO_S = 150
GONE_S = 60.0
SEED = 7
SMALL = """
import runpy, sys, sysconfig

folder, found = sys.argv.pop(1), sysconfig.get_path
sysconfig.get_path = lambda name, *given: folder if name == "stdlib" else found(name, *given)
runpy.run_module("hansard.demo", run_name="__main__", alter_sys=True)
"""
"""The demo over a folder of its own modules: most of what it takes is to read and measure them."""
SMALLEST, LARGE, LARGE_BYTES = 34, 4, 80_000
"""Modules of that folder: the smallest that the demo takes, and some whose text goes to a blob."""
STDLIB = Path(sysconfig.get_path("stdlib"))
KEY = "a-key-that-no-record-may-hold"

Facts = list[dict[str, Any]]


def _environment(**more: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "HANSARD_"))
    }
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


def _told(folder: Path, seed: int, demo: Sequence[str] = DEMO, **environment: str) -> Facts:
    """The facts of a demo that must hold, after which nothing of it may be left running."""
    given = ("--json", "--data-dir", str(folder), "--seed", str(seed))
    ended = _run(*given, demo=demo, **environment)
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
    [found] = [fact for fact in facts if fact["fact"] == name]
    return found


def _claims(facts: Facts) -> list[str]:
    return [claim for fact in facts for claim in fact.get("claims", ())]


def _seed(body: int, bodies: int, delay_ms: float) -> int:
    """A seed whose kill comes so soon after a body's begin."""
    for seed in range(100_000):
        when = moment(seed, bodies)
        if when.body == body and when.delay_ms <= delay_ms:
            return seed
    message = f"no seed kills within {delay_ms} ms of body {body}"
    raise AssertionError(message)


CLAIMS = {
    "every call is on record and ran once",
    "results over 64 KiB came back from blobs",
    "the process died of SIGKILL",
    "what was on record is still there, result by result",
    "0 recorded calls ran again",
    "every recorded call was answered",
    "only what was not on record ran twice",
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
    """The facts agree with each other, and with the files that the agents left behind."""
    assert set(_claims(facts)) >= CLAIMS
    first, killed, resumed = (_fact(facts, name) for name in ("undisturbed", "killed", "resumed"))
    record, twice, fork = (_fact(facts, name) for name in ("on_record", "twice", "fork"))
    assert first["calls"] >= 100
    assert first["blobs"] > 1
    assert killed["returncode"] == -signal.SIGKILL
    assert len({first["run"], killed["run"], fork["run"]}) == 3
    assert resumed["run"] == killed["run"]
    assert resumed["pid"] != killed["pid"]
    assert resumed["again"] == 0
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
    """Where the demo keeps what it records."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def told(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """The facts of a demo about few modules that was killed somewhere on its way."""
    modules = tmp_path_factory.mktemp("modules")
    sizes = measures.modules(STDLIB)
    fit = sorted((sizes[name], name) for name in sizes if sizes[name] >= BYTES_MIN)
    named = [(size, name) for size, name in fit if not name.startswith("_")]
    large = [each for each in named if each[0] > LARGE_BYTES][:LARGE]
    for _, name in (*named[:SMALLEST], *large):
        shutil.copy(STDLIB / f"{name}.py", modules)
    facts = _told(folder, SEED, [sys.executable, "-P", "-c", SMALL, str(modules)])
    _assert_story(facts, folder)
    return facts


@pytest.fixture(scope="module")
def told_whole(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """The facts of the demo as people start it."""
    folder = tmp_path_factory.mktemp("whole")
    facts = _told(folder, SEED)
    _assert_story(facts, folder)
    return facts


@pytest.mark.thorough(quick="tests/test_demo.py::test_the_team_is_shown_as_it_stood_halfway")
def test_a_demo_says_what_its_files_say(told_whole):
    """Each fact agrees with the others and with the world; nothing is left running."""
    assert _fact(told_whole, "end")["claims_held"] == len(_claims(told_whole))


@pytest.mark.slow
def test_the_team_is_shown_as_it_stood_halfway(told):
    """Halfway the researcher is done, the analyzer has measured half, the writer did nothing."""
    agents = {fact["agent"]: fact for fact in told if fact["fact"] == "agent"}
    assert agents["researcher"]["handed_to"] == "analyzer"
    assert agents["researcher"]["resources"] == agents["researcher"]["calls"]
    assert agents["analyzer"]["calls"] == _fact(told, "middle")["measured"] == 18
    assert agents["writer"]["calls"] == 0
    decisions = {fact["agent"]: fact for fact in told if fact["fact"] == "decision"}
    assert decisions["researcher"]["rejected"] > 0
    assert decisions["researcher"]["threshold"] == 20_000
    assert decisions["analyzer"]["selected"] == "by size"


@pytest.mark.slow
def test_every_event_of_its_record_is_what_the_published_schema_says(told, folder):
    """`docs/schema` holds for each commit of each run, the killed, the resumed and the forked one,
    as it is stored: more events than a demo makes calls.
    """
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
    assert checked == types.total() > _fact(told, "undisturbed")["calls"]
    assert {"run.started.v1", "step.completed.v1", "run.forked.v1", "decision.made.v1"} <= {*types}


def test_a_seed_is_a_moment():
    """Equal seeds give equal moments, and every body can be hit."""
    moments = [moment(seed, 10) for seed in range(500)]
    assert moments == [moment(seed, 10) for seed in range(500)]
    assert {when.body for when in moments} == set(range(1, 11))
    assert all(0 <= when.delay_ms <= DELAY_MS_MAX for when in moments)


def _settled(facts: Facts, effect: str) -> list[str | None]:
    """How the doubts of a kill inside an effect were settled; none where the kill came too late."""
    doubts = [fact["call"] for fact in facts if fact["fact"] == "in_doubt" and fact["call"]]
    settled = {fact["call"]: fact["verdict"] for fact in facts if fact["fact"] == "settled"}
    assert list(settled) == doubts
    assert all(name.startswith(effect) for name in doubts)
    return list(settled.values())


@pytest.mark.thorough
def test_a_kill_inside_the_posting_is_settled_by_looking(told_whole, tmp_path):
    """Killed as the line is posted: the ledger is looked at, and has the line once."""
    bodies = _fact(told_whole, "moment")["bodies"]
    facts = _told(tmp_path, _seed(bodies, bodies, 0.1))
    _assert_story(facts, tmp_path)
    assert set(_settled(facts, "post")) <= {"happened", "did_not_happen"}


@pytest.mark.thorough
def test_a_kill_at_the_first_call_leaves_little_to_answer(told_whole, tmp_path):
    """Killed as the first body begins, or soon after where the machine is busy; and told as plain
    text: no colour, every scene, exit 0.
    """
    seed = _seed(1, _fact(told_whole, "moment")["bodies"], 0.1)
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
    """Somebody changes the undisturbed report meanwhile: exit 1, and the broken claim is named."""
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


@contextlib.contextmanager
def _provider(answer: str) -> Iterator[tuple[str, Facts]]:
    """A provider that gives a recorded answer to every question; its address, and what it got."""
    asked: Facts = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append({"path": self.path, "key": self.headers["Authorization"]})
            asked[-1] |= msgspec.json.decode(body)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _recorded(real_data: Path) -> str:
    """A real answer of a real provider, as it came over the wire."""
    folder = real_data / "llm-cassettes" / "dev" / "crewai-multi-role"
    text = (folder / "test_crew_with_delegating_agents.yaml").read_text()
    answer: str = yaml.safe_load(text)["interactions"][-1]["response"]["body"]["string"]
    return answer


@pytest.mark.thorough
@pytest.mark.real
def test_a_model_writes_the_summary_where_one_is_set(told_whole, tmp_path, real_data):
    """With OPENAI_BASE_URL a model is asked once a run, and what it said is in the reports.

    A kill as the report is saved asks it no second time. Its key is nowhere in the record.
    """
    bodies = _fact(told_whole, "moment")["bodies"]
    seed = _seed(bodies - 1, bodies, 0.1)
    answer = _recorded(real_data)
    said = msgspec.json.decode(answer)["choices"][0]["message"]["content"]
    with _provider(answer) as (url, asked):
        facts = _told(tmp_path, seed, OPENAI_BASE_URL=url, OPENAI_API_KEY=KEY)
    _assert_story(facts, tmp_path)
    assert _fact(facts, "equal")["by_model"] is True
    assert " ".join(said.split()) in Path(_fact(facts, "report")["path"]).read_text()
    assert set(_settled(facts, "save_report")) <= {None}  # done again under its key: no verdict
    assert len(asked) == 3  # the undisturbed run, the resumed one, the fork
    assert {(one["path"], one["key"]) for one in asked} == {
        ("/v1/chat/completions", f"Bearer {KEY}")
    }
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_an_answer_that_is_none_says_so():
    """A server that gives no chat completion: the error shows what it gave."""
    with (
        _provider('{"error": "no such model"}') as (url, _),
        pytest.raises(NoAnswer, match="no such model"),
    ):
        Model(url, "m", KEY).ask("m", [{"role": "user", "content": "?"}])


def test_only_the_environment_names_a_model():
    """No setting, no model; a key alone asks the public server, an address needs no key."""
    assert from_environment({}) is None
    by_key = from_environment({"OPENAI_API_KEY": KEY})
    by_url = from_environment({"OPENAI_BASE_URL": "http://here/v1/", "OPENAI_MODEL": "m"})
    assert by_key is not None
    assert by_key.url == BASE_URL
    assert by_url == Model("http://here/v1", "m", "")


SOURCE = '''\
import os.path, sys
from json import loads
from . import near

class Public:
    """Says what it is."""

    def tell(self, one, *rest, last=None):
        if one and rest or last:
            for item in rest:
                print(item)
        def inner():
            return [x for x in rest if x]
        return inner

def _hidden():
    """Not counted."""
'''


def test_a_module_is_measured_as_its_text_says():
    """Branches are counted where they stand, inner functions apart; hidden names need no words."""
    measured = measures.measure("m", SOURCE)
    branches = {function.name: function.branches for function in measured.largest}
    assert branches == {"Public.tell": 4, "Public.tell.inner": 1, "_hidden": 0}
    assert (measured.functions, measured.classes, measured.branches) == (3, 1, 5)
    assert (measured.documented, measured.public) == (1, 2)
    assert measured.imports == ["json", "os", "sys"]
    tell = next(function for function in measured.largest if function.name == "Public.tell")
    anatomy = measures.dissect("m:8 Public.tell", measures.excerpt(SOURCE, tell))
    assert anatomy.kinds == {"BoolOp": 2, "For": 1, "If": 1}
    assert (anatomy.depth, anatomy.parameters) == (2, 4)


@pytest.mark.parametrize("module", ["argparse", "difflib", "inspect", "pydoc", "subprocess"])
def test_a_closer_look_agrees_with_the_measure(module):
    """A function taken out of its module has as many branches as it had inside."""
    text = measures.source(STDLIB, module)
    for function in measures.measure(module, text).largest:
        anatomy = measures.dissect(module, measures.excerpt(text, function))
        assert sum(anatomy.kinds.values()) == function.branches


def test_threads_measure_side_by_side():
    """Many threads that measure at once get what one after another gets."""
    texts = {name: measures.source(STDLIB, name) for name in ("ast", "enum", "locale", "typing")}
    alone = [measures.measure(name, text) for name, text in texts.items()]
    with ThreadPoolExecutor(len(texts)) as pool:
        assert list(pool.map(measures.measure, texts, texts.values())) == alone
