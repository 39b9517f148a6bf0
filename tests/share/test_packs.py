"""Packs: runs as a role sees them, signed, for other workspaces; what is refused, and kills."""

import base64
import contextlib
import hashlib
import itertools
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import hansard
from hansard.agents.exchange.reader import appended
from hansard.agents.exchange.writer import CommitLine, unseal
from hansard.agents.steps.payloads import INLINE_BYTES_MAX
from hansard.bus.log import Append
from hansard.domain.errors import BadName, BadValue, ExtraMissing, Refused
from hansard.domain.fingerprint import canonical
from hansard.domain.ids import RunStream, WorkspaceStream, run_of
from hansard.domain.payload import blobs_named
from hansard.ext.share import FORMAT
from hansard.ext.share.packs import PackReport, Packs, private_key
from tests.archive.stores import s3_server
from tests.cli.support import environment
from tests.exchange.support import in_workspace, log_of, places, sealed, zoo_of
from tests.faults._warm import run as python_run
from tests.importers.support import stored_beyond

HIDDEN = "zebra-7f31"
"""A text that is in every hidden event; no byte of a pack has it."""

ROLES = """
[roles.reviewer]
clearance = "internal"
[[roles.reviewer.sees]]
name = "the clerks"
roles = ["clerk"]
[[roles.reviewer.masks]]
name = "the password"
kinds = ["step.requested"]
fields = ["arguments.password"]
[[roles.reviewer.masks]]
name = "the address"
kinds = ["message.added"]
fields = ["content"]
how = "hash"

[roles.plain]
[[roles.plain.sees]]
name = "the clerks"
roles = ["clerk"]

[roles.auditor]
clearance = "secret"
[[roles.auditor.sees]]
name = "all"
kinds = ["**"]

[roles.secrets]
clearance = "secret"
[[roles.secrets.sees]]
name = "the spies' messages"
kinds = ["message.added"]
roles = ["zebra-7f31"]
"""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a data directory whose broker stays up."""
    folder = tmp_path_factory.mktemp("share") / "data"
    with hansard.connect(workspace="held", data_dir=folder):
        yield folder


@pytest.fixture
def other() -> str:
    """Return the name of a workspace that nobody has used."""
    return f"other-{next(_numbers)}"


def keys(folder: Path, name: str = "key") -> tuple[str, str]:
    """Return a private and a public key, as files."""
    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    form, no = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, no))
    info = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, info))
    return str(private), str(public)


CALLS: list[int] = []
"""What the tool of `work` really fetched."""


def work(record: hansard.Record, run: str | None = None, **options: Any) -> str:
    """Do a clerk's work in a run; return the run's id."""
    with record.run("greeting", run=run, agent="ada", role="clerk", **options) as session:

        @session.tool(effects="once")
        def fetch(page: int, password: str) -> str:
            CALLS.append(page)
            return f"page {page}: " + "x" * 70_000

        session.message("user", "greet ada@example.org")
        first = fetch(1, "hunter2")
        session.decide("which page?", selected="the first", reason="it is short")
        session.board.put("result", len(first))
        fetch(2, "hunter2")
        session.checkpoint("half", page=2)
        return session.run


def spy(record: hansard.Record, run: str, times: int = 1) -> None:
    """Do in a run what no clerk's reviewer may see."""
    with record.run(run=run, agent=HIDDEN, role=HIDDEN) as session:

        @session.tool(effects="pure", name=HIDDEN)
        def look(number: int) -> str:
            return f"{HIDDEN} {number} " + "y" * 70_000

        for number in range(times):
            look(number)
            session.message("user", f"{HIDDEN} said {number}", label="secret")
            session.board.put(f"{HIDDEN}/{number}", HIDDEN)
            session.team.send(HIDDEN, role=HIDDEN)


class Publisher(msgspec.Struct):
    """A workspace with a run, and the keys of its packs."""

    home: Path
    name: str
    run: str
    key: str
    public: str
    folder: str

    def make(self, **options: Any) -> PackReport:
        """Make a pack of its run, or of others."""
        arguments = {
            "runs": [self.run],
            "name": "greeting",
            "as_": "reviewer",
            "license_": "Apache-2.0",
            "key": self.key,
        }
        with hansard.connect(self.name, data_dir=self.home) as record:
            return record.noun(Packs).make(self.folder, **(arguments | options))


@pytest.fixture
def publisher(home: Path, tmp_path: Path) -> Publisher:
    """Return a workspace with a run of a clerk and a spy."""
    name = f"lab-{next(_numbers)}"
    with hansard.connect(name, data_dir=home) as record:
        (tmp_path / "roles.toml").write_text(ROLES)
        record.roles.apply_file(tmp_path / "roles.toml")
        run = work(record)
        spy(record, run)
    return Publisher(home, name, run, *keys(tmp_path), str(tmp_path / "index"))


def test_a_pack_is_read_replayed_and_forked_elsewhere(home, publisher, other):
    """A copy of a masked view is a run: read in SQL, forked without a call, and read-only."""
    made = publisher.make(as_="plain")
    assert made.state == "made"
    unchanged = msgspec.structs.replace(made, state="unchanged")
    assert publisher.make(as_="plain") == unchanged
    (copy,) = made.manifest.runs
    with hansard.connect(other, data_dir=home) as record:
        packs = record.noun(Packs)
        (found,) = packs.search(publisher.folder, ["GREETING", "plain"])
        assert (found.problem, found.number) == ("", 1)
        assert packs.search(publisher.folder, ["greeting", "nothing"]) == []
        assert packs.verify(found.file, key=publisher.public).state == "valid"
        added = packs.add(found.file, key=publisher.public)
        assert (added.state, added.new) == ("added", made.commits)
        again = packs.add(found.file)
        assert (again.state, again.new) == ("unchanged", 0)
        with record.run("greeting", agent="ada", role="clerk") as session:
            assert list(session.resumable(range(2), every="auto")) == [0, 1]
        saved: Any = record.state(session.run).agents["ada"].facts[-1].fact
        assert msgspec.json.decode(saved.data)["auto"]["sessions"] == 0  # its times are no copy's
        before = places(home, other)
        CALLS.clear()
        for write in (
            lambda: work(record, copy),
            lambda: record.finish(copy, reason="done"),
            lambda: record.cancel(copy),
        ):
            with pytest.raises(Refused, match=f"copy, shared by {publisher.name}/{publisher.run}"):
                write()
        with pytest.raises(BadValue, match="marks copies"):
            work(record, labels={"hansard.shared": "x"})
        assert places(home, other) == before
        work(record, copy, mode="strict")
        fork = record.fork(copy)
        work(record, fork)
        assert CALLS == []
        rows = record.sql(
            "SELECT DISTINCT origin_log FROM events WHERE run = ? ORDER BY 1", copy
        ).rows
        assert rows == [(publisher.name,)]
        assert record.sql("SELECT name, role, workspace FROM packs").rows == [
            ("greeting", "plain", publisher.name)
        ]


def test_nothing_hidden_is_in_a_pack(publisher, home, other):
    """No name, text, count or position of what a role may not see is in any byte of a pack."""
    made = publisher.make()
    raw = Path(made.file).read_bytes()
    lines = [json.loads(line) for line in raw.splitlines()]
    data = b"".join(base64.b64decode(line["data"]) for line in lines if line["kind"] == "blob")
    assert b"page 1: xxx" in data
    for text in (HIDDEN, "hunter2", "ada@example.org", "y" * 100):
        assert text.encode() not in raw + data, text
    with hansard.connect(publisher.name, data_dir=publisher.home) as record:
        spy(record, publisher.run, times=3)
        seen = max(
            number
            for number, _ in record.roles.view(publisher.run, role="reviewer", key=b"k" * 32).events
        )
    assert publisher.make().pack == made.pack
    assert Path(made.file).read_bytes() == raw
    numbers = [line["origin"]["position"] for line in lines if line["kind"] == "commit"]
    assert (min(numbers), max(numbers)) == (1, seen)
    with hansard.connect(other, data_dir=home) as record:
        record.noun(Packs).add(made.file, key=publisher.public)
        kinds = record.sql(
            "SELECT type, data FROM events WHERE data::VARCHAR LIKE '%$secret%'"
        ).rows
        assert [kind for kind, _ in kinds] == ["message.added.v1"]


@pytest.mark.later
def test_what_was_hidden_between_makes_no_difference(publisher, home, tmp_path, monkeypatch):
    """A log with hidden commits between the visible ones, and one without them: equal packs."""
    twin = tmp_path / "twin"
    hidden = 0
    kept: list[Append] = []
    versions: dict[object, int] = {}
    for stored in log_of(home, publisher.name):
        commit, stream = stored.commit, stored.stream
        is_life = isinstance(stream, RunStream)
        if (
            HIDDEN in str(stream)
            or HIDDEN in commit.actor.agent
            or (is_life and HIDDEN.encode() in stored.body)
        ):
            hidden += 1
            continue
        version = versions.get(stream, 0) + 1
        versions[stream] = version + len(commit.events) - 1
        kept.append(Append(stream, msgspec.structs.replace(commit, version=version, tx=None)))
    assert hidden > 5
    in_workspace(twin, publisher.name, lambda opened: opened.log.append_bulk(kept))
    blobs = [(sha256, size) for append in kept for sha256, size in _blobs(append)]

    async def read(opened):
        return [await opened.blobs.get(*each) for each in blobs]

    async def put(opened):
        for each in in_both:
            await opened.blobs.put(each)

    in_both = in_workspace(home, publisher.name, read)
    in_workspace(twin, publisher.name, put)
    one = publisher.make()
    publisher.home, publisher.folder = twin, str(tmp_path / "second")
    two = publisher.make()
    assert msgspec.structs.replace(two, file=one.file) == one
    assert Path(two.file).read_bytes() == Path(one.file).read_bytes()


def _blobs(append: Append) -> Iterator[tuple[str, int]]:
    for event in append.commit.events:
        yield from blobs_named(bytes(event.data))


def test_a_label_goes_along(publisher, home, other, tmp_path):
    """A line of a pack keeps its label, and a role here without the clearance does not see it."""
    made = publisher.make(as_="auditor")
    with hansard.connect(other, data_dir=home) as record:
        record.noun(Packs).add(made.file, key=publisher.public)
        labels = {
            str(each.commit.label) for each in log_of(home, other) if HIDDEN in str(each.body)
        }
        assert "secret" in labels
        record.roles.apply_file(tmp_path / "roles.toml")
        (copy,) = made.manifest.runs
        view = record.roles.view(copy, role="plain")
        assert not any(HIDDEN in str(line) for _, line in view.events)


def test_what_a_copy_adds_has_the_label_of_what_it_is_made_of(publisher, home, other):
    """A role and a run that only secret lines name are secret in a copy, too."""
    made = publisher.make(as_="secrets")
    with hansard.connect(other, data_dir=home) as record:
        record.noun(Packs).add(made.file, key=publisher.public)
    (copy,) = made.manifest.runs
    commits = [each for each in log_of(home, other) if run_of(each.stream) == copy]
    assert len(commits) == made.commits > 3
    assert {str(each.commit.label) for each in commits} == {"secret"}


@pytest.mark.later
def test_prompts_and_memory_go_along_if_the_role_sees_them(publisher, home, other, tmp_path):
    """`also` adds a prompt and a memory space; not for a role that does not see all of them."""
    with hansard.connect(publisher.name, data_dir=home) as record:
        record.prompts.add("greeting", "Say hello to {{name}}.", by="eve")
        record.prompts.add("greeting", "Greet {{name}}.", by="eve")
        record.memory("org").create("skills/a/notes.md", "Be kind.", by="eve", reason="first")
    also = ["prompt/greeting", "memory/org"]
    with pytest.raises(BadValue, match="no prompt/greeting, or the role does not see all of it"):
        publisher.make(also=also)
    (tmp_path / "more.toml").write_text(
        '[roles.auditor]\nclearance = "secret"\n[[roles.auditor.sees]]\nname = "all"\n'
        'kinds = ["**", "memory.*"]\n'
    )
    with hansard.connect(publisher.name, data_dir=home) as record:
        record.roles.apply_file(tmp_path / "more.toml")
    made = publisher.make(as_="auditor", also=also)
    with hansard.connect(other, data_dir=home) as record:
        record.noun(Packs).add(made.file, key=publisher.public)
        assert record.prompts.get("greeting").text == "Greet {{name}}."
        assert "Be kind" in record.memory("org").view("skills/a/notes.md")
        assert record.noun(Packs).add(made.file).new == 0
    forger, forgers = keys(tmp_path, "forger")
    with hansard.connect(publisher.name, data_dir=home) as record:
        record.prompts.add("greeting", "Hail {{name}}.", by="eve")
    newer = publisher.make(as_="auditor", also=also)
    foreign = publisher.make(as_="auditor", also=also, key=forger)

    with hansard.connect(other, data_dir=home) as record:
        before = places(home, other)
        with pytest.raises(BadValue, match="and not of its publisher; add it to another"):
            record.noun(Packs).add(foreign.file, key=forgers)
        assert places(home, other) == before
        assert record.noun(Packs).add(newer.file).new > 0
        assert record.prompts.get("greeting").text == "Hail {{name}}."


def test_a_name_finds_the_newest_pack_that_can_be_added(publisher, home, other, tmp_path):
    """A pack for others hides no older one; a file called like the name is not taken for it."""
    old = publisher.make(to=[other])
    publisher.make(to=["elsewhere"])
    short = publisher.make(name="short", as_="plain")
    named = f"{publisher.folder}/greeting"
    Path(named).write_bytes(Path(short.file).read_bytes())
    with pytest.raises(BadValue, match="leave out '/'"):
        publisher.make(name="a/b")
    with hansard.connect(other, data_dir=home) as record:
        packs = record.noun(Packs)
        assert packs.add(named, key=publisher.public).pack == old.pack
        moved = Path(named).rename(tmp_path / "moved")
        with pytest.raises(BadValue, match="it is a pack 'short', under another name"):
            packs.add(str(moved))


def changed(path: Path, change) -> None:
    """Rewrite a pack: its first line as an object, and its section."""
    head, _, section = path.read_bytes().partition(b"\n")
    first = json.loads(head)
    section = change(first, section)
    path.write_bytes(json.dumps(first, separators=(",", ":")).encode() + b"\n" + section)


def test_forged_cut_changed_and_foreign_packs_are_refused(publisher, home, other, tmp_path):
    """Each is refused with the fact and the remedy, and leaves nothing in the workspace."""
    made = publisher.make(to=["elsewhere"])
    mine = publisher.make(name="mine", to=[other])
    raw = Path(mine.file).read_bytes()
    forger, forgers = keys(tmp_path, "forger")
    forged = publisher.make(name="mine", key=forger)
    with hansard.connect(other, data_dir=home) as record:
        packs = record.noun(Packs)
        before = places(home, other)

        def refused(match: str, file: str, key: str = publisher.public) -> None:
            for call in (packs.verify, packs.add):
                with pytest.raises(BadValue, match=match):
                    call(file, key=key)
            assert places(home, other) == before

        refused(f"it is for elsewhere, not for {other}; request", made.file)
        refused("is not known here; give the publisher's public key", mine.file, "")
        refused("not by .*; give the key that signed it, if you trust", mine.file, forgers)
        refused("not by .*; give the key that signed it, if you trust", forged.file)
        refused("not by .*; give the key", f"{publisher.folder}/greeting", forgers)
        refused("there is no such pack", f"{mine.file}x")
        with pytest.raises(BadValue, match="is no folder; name one"):
            packs.search(str(tmp_path / "nowhere"))
        copy = tmp_path / "copy.pack.jsonl"
        copy.write_bytes(raw)
        refused("under another name", str(copy))
        plain = tmp_path / "plain"
        plain.write_bytes(raw)
        assert packs.verify(str(plain), key=publisher.public).pack == mine.pack
        for at in (1, 40, raw.index(b"\n"), raw.index(b"\n") + 1, len(raw) // 2, len(raw) - 1):
            plain.write_bytes(raw[:at])
            refused("no pack, or damaged|cut or changed", str(plain))
        for at in range(3, len(raw), len(raw) // 40):
            plain.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
            refused("damaged|has not signed it|was cut or changed", str(plain))
        for field, value in (("to", []), ("workspace", other), ("number", 9), ("until", "2099")):
            plain.write_bytes(raw)
            changed(
                plain,
                lambda first, section, each={field: value}: (
                    first["manifest"].update(each) or section
                ),
            )
            refused("has not signed it; it is forged", str(plain))
        plain.write_bytes(raw + b"\n")
        refused("cut or changed", str(plain))


def resigned(publisher: Publisher, path: Path, change) -> str:
    """Return a pack whose publisher itself signed another content."""
    target = path.with_suffix(".signed")
    target.write_bytes(path.read_bytes())

    def sign(first, section):
        section = change(first["manifest"], section)
        first["manifest"] |= {"size": len(section), "sha256": hashlib.sha256(section).hexdigest()}
        signed = f"{FORMAT}\n".encode() + canonical(first["manifest"])
        first["signature"] = private_key(Path(publisher.key)).sign(signed).hex()
        return section

    changed(target, sign)
    return str(target)


@pytest.mark.later
def test_a_publisher_writes_into_no_run_of_the_receiver(publisher, home, other):
    """A pack that its publisher signed holds copies of its runs alone."""
    made = publisher.make(as_="plain")
    with hansard.connect(other, data_dir=home) as record:
        own = work(record)
        before = places(home, other)

        def into(manifest, section, run=own):
            (copy,) = manifest["runs"]
            manifest["runs"] = {run: manifest["runs"][copy]}
            return sealed(section.replace(copy.encode(), run.encode()).splitlines(keepends=True))

        def unmarked(manifest, section):
            return sealed(section.replace(b"hansard.shared", b"hansard.xhared").splitlines(True))

        def another(manifest, section):
            manifest["runs"] |= {"r": {"run": "r", "shown": "s"}}
            return section

        def again(manifest, section):
            lines = [json.loads(line) for line in section.splitlines()]
            joined = next(each for each in lines if "run.agent_joined" in each.get("body", ""))
            body = json.loads(joined["body"])
            body["events"][0] |= {"type": "run.started.v1", "data": {"workflow": "x"}}
            joined["body"] = json.dumps(body)
            return sealed(lines)

        def conversing(manifest, section):
            began = b'\\"workflow\\":'
            return sealed(
                section.replace(began, b'\\"conversation_id\\":\\"x\\",' + began, 1).splitlines(
                    True
                )
            )

        def viewed(manifest, section):
            lines = [json.loads(line) for line in section.splitlines()]
            commit = next(each for each in lines if "key" in each.get("stream", ()))
            commit["stream"]["key"] = "view plain"
            return sealed(lines)

        def elsewhere(manifest, section, kind="prompt"):
            manifest["also"] = [f"{kind}/x"]
            lines = [json.loads(line) for line in section.splitlines()]
            commit = next(each for each in lines if each["kind"] == "commit")
            commit["stream"] = json.loads(msgspec.json.encode(WorkspaceStream(kind, "x")))
            return sealed(lines)

        def unlisted(manifest, section):
            section = elsewhere(manifest, section)
            manifest["also"] = []
            return section

        def of(**fields):
            return lambda manifest, section: manifest.update(fields) or section

        def two(manifest, section):
            return section + section

        for change, match in (
            (into, "is no copy of its publisher's"),
            (unmarked, "is not marked as a copy"),
            (another, "not those of the manifest"),
            (again, "has a run.started.v1 after its start"),
            (conversing, "joins conversation 'x' of yours"),
            (viewed, "states views that were served"),
            (unlisted, "is nothing that the manifest names"),
            (elsewhere, "version 1 of prompt/x is not its publisher's"),
            (two, "does not end where"),
            (of(until="2099"), "give a time with a zone"),
            (of(also=["experiment/x"]), "give prompt/NAME, memory/NAME or experience/NAME"),
            (of(also=["prompt/x"] * 101), "length <= 100"),
            (of(number=2**31), "<= 2147483647"),
            (of(description="x" * 200_000), "was truncated"),
            (of(name="\x1b[2J"), "leave out control characters"),
        ):
            file = resigned(publisher, Path(made.file), change)
            with pytest.raises((BadValue, BadName), match=match):
                record.noun(Packs).add(file, key=publisher.public)
            assert places(home, other) == before


@pytest.mark.later
def test_ended_withdrawn_and_replayed_packs_are_refused(publisher, home, other):
    """After its end, its withdrawal, or a newer pack of its name, a pack is added no more."""
    old = publisher.make()
    ended = publisher.make(name="short", until="2020-01-01T00:00:00Z")
    with hansard.connect(publisher.name, data_dir=home) as record:
        work(record, publisher.run)
        with record.run(run=publisher.run, agent="bob", role="clerk") as session:
            session.message("user", "more")
    new = publisher.make()
    assert (old.manifest.number, new.manifest.number) == (1, 2)
    assert old.pack != new.pack
    with hansard.connect(other, data_dir=home) as record:
        packs = record.noun(Packs)
        packs.add(new.file, key=publisher.public)
        before = places(home, other)
        with pytest.raises(BadValue, match="number 1, and number 2 was added; use the newer"):
            packs.add(old.file)
        with pytest.raises(BadValue, match=r"it ended at 2020.*; request a newer one"):
            packs.add(ended.file)
        assert places(home, other) == before
        with hansard.connect(publisher.name, data_dir=home) as source:
            (Path(publisher.folder) / "empty.pack.jsonl").touch()  # no pack, as after a full disk
            notice = Path(publisher.folder) / f"{new.pack}.withdrawn.sig"
            notice.write_text("not a notice")
            with pytest.raises(BadValue, match="a file with other bytes has this name"):
                source.noun(Packs).withdraw(new.file, key=publisher.key, reason="a mistake")
            notice.unlink()
            states = [
                source.noun(Packs).withdraw(new.file, key=publisher.key, reason="a mistake").state
                for _ in range(2)
            ]
            assert states == ["withdrawn", "unchanged"]
            sql = "SELECT number, withdrawn_at IS NOT NULL FROM packs WHERE name = 'greeting'"
            assert source.sql(f"{sql} ORDER BY 1").rows == [(1, False), (2, True)]
        found = {(each.name, each.number): each.problem for each in packs.search(publisher.folder)}
        assert places(home, other) == before  # a search is a read
        assert "its publisher withdrew" in found["greeting", 2]
        assert "it is number 1" in found["greeting", 1]
        for notice in Path(publisher.folder).glob("*.withdrawn.sig"):
            with pytest.raises(BadValue, match="its publisher withdrew it; use"):
                packs.add(new.file)
            notice.unlink()  # it is on record here by now
        with pytest.raises(BadValue, match="its publisher withdrew it"):
            packs.add(new.file)
        states = [packs.distrust(publisher.public).state for _ in range(2)]
        assert states == ["distrusted", "unchanged"]
        other_name = publisher.make(name="another")
        for key in ("", publisher.public):
            with pytest.raises(BadValue, match="is not trusted here; request a pack by another"):
                packs.add(other_name.file, key=key)
        assert record.sql("SELECT withdrawn_at IS NOT NULL FROM packs").rows == [(True,)]


ADD = """
import sys
import hansard
from hansard.domain.payload import blobs_named
from hansard.ext.share.packs import Packs
with hansard.connect(sys.argv[1]) as record:
    print("begin", flush=True)
    record.noun(Packs).add(sys.argv[2], key=sys.argv[3])
"""


@pytest.mark.later
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_killed_addition_is_completed(publisher, home, rounds):
    """After SIGKILL at any moment, adding the pack again gives what an undisturbed one gave."""
    made = publisher.make(as_="auditor")
    with hansard.connect("undisturbed", data_dir=home) as record:
        record.noun(Packs).add(made.file, key=publisher.public)
    whole = [each[:3] for each in places(home, "undisturbed")]
    copies = [each for each in whole if "pack/" not in str(each[1])]
    for number in range(rounds(2, 40)):
        into = f"killed-{next(_numbers)}"
        child = subprocess.Popen(
            [sys.executable, "-c", ADD, into, made.file, publisher.public],
            env=environment(home),
            stdout=subprocess.PIPE,
        )
        stored_beyond(home, into, number * len(copies) // 40)
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=170)
        with hansard.connect(into, data_dir=home) as record:
            record.noun(Packs).add(made.file, key=publisher.public)
            assert record.noun(Packs).add(made.file).new == 0
        after = [each[:3] for each in places(home, into)]
        assert [each for each in after if "pack/" not in str(each[1])] == copies
        assert len(after) == len(whole)


@pytest.mark.later
def test_the_commands(publisher, home, other):
    """`hansard pack` makes, verifies, finds, adds and withdraws."""

    def call(*arguments: str, workspace: str = other, code: int = 0) -> str:
        argv = ["-m", "hansard", "-w", workspace, "pack", *arguments]
        done = python_run(argv, cwd=home, env=environment(home), timeout=170)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    options = ["--name", "greeting", "--as", "plain", "--license", "MIT", "--key", publisher.key]
    to = ["--to", other, "--to", "another"]
    argv = ["make", publisher.folder, publisher.run, *options, *to, "--json"]
    made = json.loads(call(*argv, workspace=publisher.name))
    assert made["commits"] > 10
    found = call("search", publisher.folder, "mit", "--json", workspace=publisher.name)
    assert made["pack"] in found
    assert f"workspace '{other}' was not found" in call("verify", made["file"], code=2)
    assert re.search(r"state +added\n", call("add", made["file"], "--key", publisher.public))
    assert re.search(r"state +valid\n", call("verify", made["file"]))
    call("withdraw", made["file"], "--key", publisher.key, workspace=publisher.name)
    assert "withdrew it" in call("verify", made["file"], code=2)


def test_a_copy_of_an_approved_call_is_sound(publisher, home, other, tmp_path):
    """A role that sees all gets the approval too; another's copy names one of the original."""
    rules = '[roles.kinds]\n[[roles.kinds.sees]]\nname = "all"\nkinds = ["**"]\n'
    (tmp_path / "kinds.toml").write_text(rules)
    with hansard.connect(publisher.name, data_dir=home) as record:
        record.roles.apply_file(tmp_path / "kinds.toml")
        gate = hansard.ask_first("send", timeout_s=60)
        with record.run("mail", agent="ada", role="clerk", gate=[gate]) as session:

            def grant() -> None:
                while not (pending := record.approvals.list()):
                    time.sleep(0.02)
                record.approvals.grant(pending[0].approval.id, by="eva")

            person = threading.Thread(target=grant)
            person.start()
            send = session.tool(effects="once", name="send")(lambda to: to)
            assert send("ben") == "ben"
            person.join()
    asked = {"approval.requested": 1, "approval.granted": 1}
    for role, left_out in (("kinds", asked), ("auditor", {})):
        made = publisher.make(runs=[session.run], name=role, as_=role)
        assert made.left_out == left_out
        with hansard.connect(other, data_dir=home) as record:
            record.noun(Packs).add(made.file, key=publisher.public)
    argv = ["-m", "hansard", "-w", other, "check"]
    done = python_run(argv, cwd=home, env=environment(home), timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough(quick="test_a_pack_is_read_replayed_and_forked_elsewhere")
@pytest.mark.timeout(600)
def test_every_kind_of_run_can_be_copied(tmp_path):
    """Copies of open, failed, forked, doubtful, retried and shared runs are sound, for any role."""
    home, folder = tmp_path / "data", str(tmp_path / "index")
    private, public = keys(tmp_path)
    rules = ""
    for name, kinds in (
        ("everything", '["**"]'),
        ("calls", '["step.*", "board.*"]'),
        ("facts", '["message.*", "decision.*", "checkpoint.*", "run.*"]'),
    ):
        rules += f'[roles.{name}]\nclearance = "secret"\n'
        rules += f'[[roles.{name}.sees]]\nname = "r"\nkinds = {kinds}\n'
    rules += '[[roles.calls.masks]]\nname = "m"\nkinds = ["step.*"]\n'
    rules += 'fields = ["result"]\nhow = "hash"'
    (tmp_path / "roles.toml").write_text(rules)
    with hansard.connect("held", data_dir=home):
        zoo = zoo_of(home)
        for role in ("everything", "calls", "facts"):
            made: dict[str, PackReport] = {}
            with hansard.connect("zoo", data_dir=home) as record:
                record.roles.apply_file(tmp_path / "roles.toml")
                for kind, run in zoo.runs.items():
                    options: dict[str, Any] = {
                        "name": kind,
                        "as_": role,
                        "license_": "MIT",
                        "key": private,
                    }
                    with contextlib.suppress(BadValue):  # it sees nothing of some
                        made[kind] = record.noun(Packs).make(folder, [run], **options)
            assert len(made) > 10, role
            with hansard.connect(role, data_dir=home) as record:
                for pack in made.values():
                    record.noun(Packs).add(pack.file, key=public)
                    (copy,) = pack.manifest.runs
                    assert record.state(record.fork(copy)).life.forked is not None
            argv = ["-m", "hansard", "-w", role, "check"]
            done = python_run(argv, cwd=tmp_path, env=environment(home), timeout=170)
            assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough(quick="test_a_pack_is_read_replayed_and_forked_elsewhere")
def test_a_streamed_item_of_the_largest_size_is_in_the_copy(publisher, home, other):
    """It is not put into a blob, whose name would stand for all items of its event."""
    with hansard.connect(publisher.name, data_dir=home) as record:
        with record.run("w", agent="ada", role="clerk") as session:

            @session.tool(effects="pure")
            def pieces(size: int) -> Iterator[str]:
                yield "x" * size

            items = list(pieces(INLINE_BYTES_MAX - 2))
        publisher.run = session.run
    made = publisher.make(as_="auditor")
    with hansard.connect(other, data_dir=home) as record:
        record.noun(Packs).add(made.file, key=publisher.public)
        (copy,) = made.manifest.runs
        [step] = record.state(copy).agent("ada").steps.values()
        assert [msgspec.json.decode(each) for each in step.items] == items


def test_the_extra_of_packs_is_named(publisher, tmp_path, monkeypatch):
    """Not that of the archive, whose store reads the folder."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    with (
        hansard.connect(publisher.name, data_dir=publisher.home) as record,
        pytest.raises(ExtraMissing, match=r"packs.*\[share\]"),
    ):
        record.noun(Packs).search(str(tmp_path))


@pytest.mark.thorough(quick="test_a_pack_is_read_replayed_and_forked_elsewhere")
def test_a_bucket_is_an_index(publisher, home, other, tmp_path, monkeypatch):
    """Packs are made in, found in, added from and withdrawn in a bucket of an S3 server."""
    (tmp_path / "s3").mkdir()
    with s3_server(tmp_path / "s3") as server:
        server.lead(monkeypatch)
        publisher.folder = f"{server.url}-packs"
        made = publisher.make(as_="plain")
        assert publisher.make(as_="plain").pack == made.pack
        with hansard.connect(other, data_dir=home) as record:
            packs = record.noun(Packs)
            (found,) = packs.search(publisher.folder, ["greeting"])
            assert (found.file, found.problem) == (made.file, "")
            named = packs.add(f"{publisher.folder}/greeting", key=publisher.public)
            assert (named.file, named.new) == (made.file, made.commits)
            with hansard.connect(publisher.name, data_dir=home) as source:
                source.noun(Packs).withdraw(made.file, key=publisher.key)
            with pytest.raises(BadValue, match="its publisher withdrew it"):
                packs.add(made.file)


@pytest.mark.thorough(quick="test_a_killed_addition_is_completed")
def test_an_addition_that_ended_at_any_commit_is_completed(publisher, home, tmp_path):
    """With the first commits of a pack alone, adding it gives what an undisturbed one gave."""
    made = publisher.make(as_="auditor")
    raw = Path(made.file).read_bytes().partition(b"\n")[2]
    lines = [unseal(line) for line in raw.splitlines(keepends=True)]
    commits = [line for line in lines if isinstance(line, CommitLine)]
    whole: list[Any] = []
    for kept in (len(commits), 1, len(commits) // 2, len(commits) - 1):
        into = f"stopped-{next(_numbers)}"

        async def begin(opened, kept=kept, into=into):
            appends = [appended(into, line) for line in commits[:kept]]
            await opened.log.append_bulk(appends)

        in_workspace(home, into, begin)
        with hansard.connect(into, data_dir=home) as record:
            if kept == len(commits) // 2:  # a role was shown the beginning meanwhile
                record.roles.apply_file(tmp_path / "roles.toml")
                assert record.roles.view(*made.manifest.runs, role="auditor").events
            new = record.noun(Packs).add(made.file, key=publisher.public).new
            assert new == len(commits) - kept
            assert record.noun(Packs).add(made.file).new == 0
        own = r"pack/|role/|view "
        after = [each[1:] for each in places(home, into) if not re.search(own, str(each[1]))]
        whole = whole or after
        assert after == whole
