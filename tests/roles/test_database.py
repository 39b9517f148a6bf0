"""A role's tables depend only on visible events, whatever else the log holds and whenever made."""

import functools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hansard.bus.commits import decode
from hansard.domain import agent, run, steps
from hansard.domain.errors import BadValue, Corrupt
from hansard.domain.events import Recorded
from hansard.domain.ids import AgentStream, KeyStream, RunStream, WorkspaceStream
from hansard.domain.roles.model import Mask, Masking, RoleDefined, RoleRule
from hansard.projections import snapshots as published
from hansard.projections.role_tables import Feed, FeedState, Ids, forget
from hansard.projections.store import Digest, Store
from hansard.projections.table_files import TableFiles, role_place
from tests.conftest import ROUNDS, THOROUGH
from tests.projections.support import selected
from tests.roles.planted import (
    ADA,
    ALL,
    RULES,
    SECRETS,
    UNHASHED,
    WORKSPACE,
    Log,
    bring,
    digests,
    done,
    everything,
    long_log,
    message_added,
    planted,
    raw,
    renumbered,
    requested,
    secret,
    whole_tables,
)

pytestmark = pytest.mark.later

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0


def opened(place: TableFiles) -> Store:
    """Return the published tables of a role."""
    tables = published.newest(place)
    assert tables is not None
    return Store(tables.path, read_only=True)


@pytest.mark.slow
def test_no_byte_tells_of_what_is_not_seen(tmp_path):
    """No file of a role's tables holds a secret that the workspace's tables hold."""
    log = planted()
    whole = whole_tables(log, tmp_path / "whole.duckdb")
    whole.checkpoint()
    whole.close()
    held = (tmp_path / "whole.duckdb").read_bytes()
    assert [name for name in SECRETS if secret(name).encode() not in held] == []
    place = bring(log, tmp_path, RULES)
    files = [path for path in (place.path, *place.published.rglob("*")) if path.is_file()]
    assert {path.name for path in files} >= {place.path.name, "tables.duckdb", "generation.json"}
    files += [path for path in place.path.parent.iterdir() if path.suffix == ".wal"]
    for path in files:
        data = path.read_bytes()
        leaked = [name for name in SECRETS if f"~{name}~".encode() in data]
        assert (path.name, leaked) == (path.name, [])
    store = opened(place)
    assert b"shown title" in str(store.all("SELECT result FROM steps")).encode()
    assert b"kept" in str(store.all("SELECT because FROM decisions")).encode()
    store.close()


@pytest.mark.slow
def test_rows_hold_what_is_known(tmp_path):
    """Numbers are the role's own; an outcome without its intent is a row; nothing is a problem."""
    store = opened(bring(planted(), tmp_path, RULES))
    assert selected(store, "problems") == []
    events = store.all("SELECT position, type, version, agent, actor, epoch, tx FROM events")
    assert [row[0] for row in events] == sorted(row[0] for row in events)
    assert {row[0] for row in events} == set(range(1, 11))
    assert ("step.completed.v1", 1, "bob", "bob") in {row[1:5] for row in events}
    assert {row[5:] for row in events} == {(0, None)}
    steps_of = "SELECT step, tool, status, attempts, result, inherited FROM steps WHERE agent = $1"
    assert store.all(f"{steps_of} ORDER BY step", ["bob"]) == [
        (1, None, "completed", 1, '{"title":"shown title"}', None),
        (2, None, "failed", 1, None, None),
        (3, None, "completed", 1, None, None),
    ]
    assert store.all(f"{steps_of} ORDER BY step", ["ada"]) == [
        (1, "t", "requested", 1, None, False),
        (2, "t", "completed", 1, '{"x":1}', False),
    ]
    [decision] = selected(store, "decisions")
    assert (decision["inputs"], decision["after"]) == (["event 5.0", "commit 7"], [1, 2])
    assert decision["because"] == '{"$cut":"kept"}'
    assert store.all("SELECT causation FROM events WHERE causation IS NOT NULL") == [("event 7.0",)]
    assert store.all("SELECT run, status, labels FROM runs") == [
        ("r1", "completed", '{"team":"x"}')
    ]
    assert store.all("SELECT position, head FROM lag") == [(10, 10)]
    store.close()


@pytest.mark.thorough(quick="roles/test_view.py::test_who_sees_everything_sees_the_record_as_it_is")
def test_who_sees_the_whole_record_has_the_workspace_s_tables(tmp_path):
    """Each table equals the workspace's, including problems and unknown events."""
    log = planted()
    whole = whole_tables(log, tmp_path / "whole.duckdb")
    expected = whole.digests()
    whole.close()
    own = digests(bring(log, tmp_path, ALL, "auditor"))
    assert {name for name in expected if expected[name] != own[name]} == {"progress"}
    assert expected["problems"].rows == 1


# ---------------------------------------------------------------- what is not seen

_step_events = st.sampled_from(
    [
        requested(1, "secret tool"),
        steps.StepBlocked(step=1, rule="r", reason="x"),
        message_added("secret"),
        agent.CheckpointSaved(name="n", data=raw({"secret": 1}), fingerprint="f"),
        Recorded("step.dreamt.v9", "unseen", raw({"a": "b"})),
    ]
)


@st.composite
def unseen(draw: st.DrawFn, number: int) -> list[tuple]:
    """Draw commits that the role may not see: of others, of other kinds, and invalid ones."""
    made = []
    for count in range(draw(st.integers(0, 3))):
        name = f"unseen {number}.{count}"
        events = draw(st.lists(_step_events, min_size=1, max_size=4))
        stream = draw(
            st.sampled_from(
                [
                    AgentStream("r1", "spy", name),
                    AgentStream("r1", "reader", name),
                    AgentStream(f"run {name}", "reader", "bob"),
                    KeyStream("r1", name),
                    WorkspaceStream("conversation", name),
                    None,
                ]
            )
        )
        made.append((stream, events, name))
    return made


def mixed(seen: Log, between: list[list[tuple]]) -> Log:
    """Return a log with others' commits in between; each earlier commit keeps its time."""
    messages = []
    for message, added in zip(seen.all, between, strict=True):
        for stream, events, name in added:
            extra = Log()
            if stream is None:
                extra.raw("hansard.lab.run.x.life.1", name.encode())
            else:
                extra.add(stream, 1, events, name=name)
            messages += extra.all
        messages.append(message)
    return renumbered(messages)


BATCH_MAX = 10_000


def rebuilt(log: Log, home: Path, size: int = BATCH_MAX, *, views: bool = True) -> bytes:
    """Make a role's tables from nothing with the same key; return all that they hold."""
    forget(role_place(home, WORKSPACE, "writer"))
    return everything(bring(log, home, RULES, batch_max=size), views=views)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Callable[[int], bytes]]:
    """Return a place, and a function of the batch size that gives its tables for the planted log
    alone.
    """
    home = tmp_path_factory.mktemp("alone")
    return home, functools.cache(lambda size: rebuilt(planted(), home, size))


QUICKLY: dict[str, Any] = {
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.explicit, Phase.reuse, Phase.generate),
}
"""Each example makes tables, twice or more: a second of work, and a smaller one is no clearer."""


def fed(log: Log) -> bytes:
    """Return every visible commit, with the versions and steps that it continues."""
    feed = Feed(RULES, bytes(32), FeedState(), Ids(list))
    commits = []
    for message in log.all:
        try:
            stream, commit = decode(message.subject, message.body)
        except Corrupt:
            continue
        shown = feed.shown(stream, commit)
        if shown is not None:
            commits.append((message.stamp, str(stream), shown))
    return msgspec.json.encode(commits)


@given(st.data())
@settings(suppress_health_check=list(HealthCheck))
def test_no_commit_depends_on_what_is_not_seen(data):
    """Ids, versions, steps, references and data are equal byte for byte."""
    seen = planted()
    between = [data.draw(unseen(number)) for number in range(len(seen.all))]
    assert fed(mixed(seen, between)) == fed(seen)


@pytest.mark.thorough(quick="test_no_commit_depends_on_what_is_not_seen")
@given(st.data())
@settings(max_examples=max(1, min(ROUNDS // 2, 40)), **QUICKLY)
def test_what_is_not_seen_has_no_influence(alone, data):
    """All bytes of a role's tables are equal, whatever unseen events lie between."""
    home, seen_alone = alone
    seen = planted()
    between = [data.draw(unseen(number)) for number in range(len(seen.all))]
    size = data.draw(st.sampled_from([3, BATCH_MAX]))
    assert rebuilt(mixed(seen, between), home, size) == seen_alone(size)


@pytest.mark.thorough(quick="roles/test_view.py::test_a_dropped_value_has_no_influence")
def test_other_values_where_they_are_hidden_change_nothing(tmp_path):
    """Values dropped by masks and left out by field rules do not influence the tables."""
    log = planted()
    changed = Log()
    changed.all = [
        msgspec.structs.replace(each, body=each.body.replace(b"~PLANTED", b"~CHANGED AND LONGER"))
        for each in log.all
        if b"name-of" not in each.subject.encode() and b"masked-content" not in each.body
    ]
    kept = [each for each in log.all if b"name-of" not in each.subject.encode()]
    kept = [each for each in kept if b"masked-content" not in each.body]
    one, other = (
        rebuilt(renumbered(each), tmp_path, views=THOROUGH) for each in (kept, changed.all)
    )
    assert one == other


@pytest.mark.thorough(quick="test_no_commit_depends_on_what_is_not_seen")
def test_the_same_check_finds_what_is_seen(alone):
    """One more event that the role sees, and every comparison above would fail."""
    home, seen_alone = alone
    log = planted()
    log.add(ADA, 9, [message_added("x")])
    assert rebuilt(log, home) != seen_alone(BATCH_MAX)


# ---------------------------------------------------------------- made in turns


@pytest.mark.thorough
@given(st.lists(st.integers(1, 17), min_size=1, max_size=4), st.sampled_from([2, 5, 10_000]))
@settings(max_examples=max(2, min(ROUNDS // 2, 30)), **QUICKLY)
def test_in_turns_is_as_from_the_beginning(tmp_path_factory, cuts, size):
    """Tables built in turns equal those built at once, for every log end and batch border."""
    home = tmp_path_factory.mktemp("turns")
    log = planted()
    for rules, role in ((RULES, "writer"), (ALL, "auditor")):
        for cut in sorted(cuts):
            part = Log()
            part.all = log.all[:cut]
            bring(part, home, rules, role, batch_max=size)
        by_turns = digests(bring(log, home, rules, role, batch_max=size))
        forget(role_place(home, WORKSPACE, role))
        assert by_turns == digests(bring(log, home, rules, role))


@pytest.mark.slow
def test_nothing_is_written_where_nothing_new_is_seen(tmp_path):
    """No published byte changes, so that repeated queries reveal no activity."""
    log = planted()
    place = bring(log, tmp_path, RULES)
    before = {path: path.read_bytes() for path in place.published.rglob("*") if path.is_file()}
    log.add(AgentStream("r1", "spy", "s"), 1, [message_added("x")])
    bring(log, tmp_path, RULES)
    after = {path: path.read_bytes() for path in place.published.rglob("*") if path.is_file()}
    assert after == before
    log.add(ADA, 9, [message_added("x")])
    bring(log, tmp_path, RULES)
    assert digests(place)["messages"].rows == 2


@pytest.mark.thorough(
    quick="roles/test_view.py::test_a_hashed_value_is_distinguishable_and_no_more"
)
def test_equal_values_have_equal_hashes_and_others_none(tmp_path):
    """The key is the role's own, is kept, and without one nothing is hashed."""
    log = planted()
    log.add(ADA, 9, [message_added(secret("masked-content")), message_added("other")])
    place = bring(log, tmp_path, RULES)
    store = opened(place)
    first, second, third = store.all("SELECT content::VARCHAR FROM messages ORDER BY version")
    store.close()
    assert first == second != third
    before = digests(place)
    bring(log, tmp_path, ALL)
    bring(log, tmp_path, RULES)
    assert digests(place) == before
    assert digests(bring(log, tmp_path / "other", RULES)) != before
    with pytest.raises(BadValue, match="key of hashed values"):
        Feed(RULES, None, FeedState(), Ids(list))


@pytest.mark.fast(cases=1, slow=1)
@pytest.mark.parametrize("fields", ["usage", "usage.cost", "result", "step", "error.type"])
@pytest.mark.parametrize("how", [Masking.HASH, Masking.DROP])
def test_a_masked_value_is_no_error(tmp_path, fields, how):
    """Numbers, maps and texts may be replaced by hashes: rows hold the rest, no event is lost."""
    rules = RoleDefined(
        sees=(RoleRule("own", roles=("writer", "reader")),),
        masks=(Mask("m", ("step.*", "message.*"), (fields,), how),),
    )
    store = opened(bring(planted(), tmp_path, rules))
    assert selected(store, "problems") == []
    assert store.all("SELECT count(*) FROM events WHERE known_as IS NULL") == [(0,)]
    store.close()


@pytest.mark.slow
def test_a_fork_is_judged_by_what_it_took_over(tmp_path):
    """Roster and labels as of the cut; the role's numbers of steps and versions go on."""
    log = Log()
    labels = {"team": "x"}
    joined = run.AgentJoined(agent="ada", role="writer")
    log.add(RunStream("r1"), 1, [run.RunStarted(workflow="w", labels=labels), joined])
    log.add(ADA, 1, [requested(4), done(4, 1), requested(5)])
    log.add(ADA, 4, [done(5, 1)])
    log.add(RunStream("f"), 3, [run.RunForked(parent="r1", at={"life": 2, str(ADA): 3})])
    log.add(AgentStream("f", "writer", "ada"), 4, [done(5, 2), requested(9)])
    rules = RoleDefined(
        sees=(
            RoleRule("own", roles=("writer",), kinds=("step.*",)),
            RoleRule("x", ("run.*",), labels=labels),
        )
    )
    store = opened(bring(log, tmp_path, rules))
    rows = store.all("SELECT run, step, tool, status FROM steps ORDER BY ALL")
    assert rows == [
        ("f", 2, "t", "completed"),
        ("f", 3, "t", "requested"),
        ("r1", 1, "t", "completed"),
        ("r1", 2, "t", "completed"),
    ]
    versions = store.all(
        "SELECT stream, list(version ORDER BY version) FROM events WHERE run = 'f' "
        "GROUP BY 1 ORDER BY 1"
    )
    assert versions == [(str(ADA), [4, 5]), ("life", [3])]
    assert store.all("SELECT parent FROM runs WHERE run = 'f'") == [("r1",)]
    assert store.all("FROM gaps") == []
    store.close()
    for kinds, own in ((("step.*",), 2), (("step.*", "run.forked"), 3)):
        partly = RoleDefined(sees=(RoleRule("some", kinds=kinds),))
        store = opened(bring(log, tmp_path, partly))
        first = "SELECT min(version), count(*) FROM events WHERE run = 'f' GROUP BY stream"
        assert {low for low, _ in store.all(first)} == {1}, "its own numbers begin with 1"
        assert sum(count for _, count in store.all(first)) == own
        assert store.all("FROM gaps") == []
        store.close()


# ---------------------------------------------------------------- killed

KILLED = """
import os, signal, sys
from pathlib import Path

import msgspec

from hansard.projections import role_tables as build
from tests.roles.planted import UNHASHED, bring, planted

build.keep = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
bring(planted(), Path(sys.argv[1]), msgspec.structs.replace(UNHASHED, masks=()))
"""
"""Program that makes tables by rules without masks, and is killed before it stores their state."""


def test_a_kill_after_new_tables_shows_nothing_by_rules_that_hold_no_more(tmp_path):
    """After a kill and the old rules, the role sees what the old rules show."""
    before = digests(bring(planted(), tmp_path, UNHASHED))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
        timeout=WAIT_S,
    )
    assert killed.returncode == -signal.SIGKILL
    assert digests(bring(planted(), tmp_path, UNHASHED)) == before


TURNS = 5
"""How often the killed program resumes building its tables."""


@pytest.mark.thorough(quick="sql_sandbox/test_published.py::test_kills_leave_whole_generations")
@pytest.mark.long
def test_a_kill_leaves_old_or_new_tables(tmp_path, rounds):
    """A kill leaves whole published tables, and the next request continues from the log."""
    chance = random.Random(11)
    known = {}
    newest: dict[str, Digest] = {}
    for turn in range(1, TURNS + 1):
        current = digests(bring(long_log(turn), tmp_path, UNHASHED))
        known[current["progress"].sum] = newest = current
    for number in range(rounds(2, 80) // 2):
        home = tmp_path / f"home {number}"
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.roles.planted", str(home), f"{TURNS}"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        for _ in range(chance.randrange(1, 5)):
            assert child.stdout.readline()
        time.sleep(chance.random() * 0.3)
        child.kill()
        child.wait(WAIT_S)
        child.stdout.close()
        place = role_place(home, WORKSPACE, "writer")
        if published.newest(place) is not None:
            published_digests = digests(place)
            assert published_digests == known[published_digests["progress"].sum]
        bring(long_log(TURNS), home, UNHASHED)
        assert digests(place) == newest
