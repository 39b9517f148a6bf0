"""Bundles of experiences: permitted content, detected changes, and hostile bundles."""

import gzip
import io
import json
import os
import random
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import hansard
from hansard.agents.artifacts import experiences as store
from hansard.agents.artifacts import versions
from hansard.agents.artifacts.experiences import verify
from hansard.client.record import Record
from hansard.domain.actions import PageMark
from hansard.domain.errors import BadValue, Refused
from hansard.domain.experience import bundle as bundles
from hansard.domain.experience import distil
from hansard.domain.experience import experience as experiences
from hansard.domain.experience import experience as kept
from hansard.domain.experience.experience import ExperienceStanding
from hansard.domain.fingerprint import canonical
from hansard.domain.label import Confidentiality, Label
from tests.cli.support import Call, environment
from tests.conftest import THOROUGH
from tests.experience import killed
from tests.experience.test_kept import invite
from tests.experience.test_learning import EIGHT
from tests.faults._warm import ROOT, run

pytestmark = pytest.mark.later

WAIT_S = 120
PLANTS = 100 if THOROUGH else 40


def keys(folder: Path, name: str = "key") -> tuple[Path, Path]:
    """Return a private and a public key, as files."""
    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return private, public


def learnt(**changes: Any) -> experiences.Experience:
    """Return an experience with checks."""
    [distilled] = distil.distilled(EIGHT)
    made = experiences.made("invite", distilled, description="Invites a guest").confirmed()
    changed: experiences.Experience = msgspec.structs.replace(made, **changes)
    return changed


def written(
    experience: experiences.Experience, private: Path | None = None, **changes: Any
) -> bytes:
    """Return a bundle as `publish` writes it; `changes` are of its manifest before signing."""
    content = kept.content_of(experience)
    key: Any = None
    if private is not None:
        key = serialization.load_pem_private_key(private.read_bytes(), password=None)
    named = key.public_key().public_bytes_raw().hex() if key else ""
    manifest = bundles.manifest(3, content, "Apache-2.0", named)
    manifest = msgspec.structs.replace(manifest, **changes)
    signature = None
    if key is not None:
        signed = key.sign(bundles.signed(manifest)).hex()
        signature = bundles.Signature(key=named, signature=signed)
    return bundles.write(manifest, content, signature)


def unpacked(raw: bytes) -> dict[str, bytes]:
    """Return the files of a bundle, as tar has them."""
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        members = {each.name: archive.extractfile(each) for each in archive.getmembers()}
        return {name: file.read() for name, file in members.items() if file is not None}


def packed(files: dict[str, bytes]) -> bytes:
    """Files as a bundle's archive."""
    return bundles._archive(files)


def manifest_with(raw: bytes, **changes: Any) -> bytes:
    """Return a bundle with a changed manifest and the former signature."""
    files = unpacked(raw)
    manifest = json.loads(files[bundles.MANIFEST]) | changes
    files[bundles.MANIFEST] = canonical(manifest)
    return packed(files)


def _file(raw: bytes, path: str, change: Callable[[bytes], bytes]) -> bytes:
    files = unpacked(raw)
    files[path] = change(files[path])
    return packed(files)


def _swapped(raw: bytes) -> bytes:
    files = unpacked(raw)
    one, other = "experience/checks.json", "experience/graph.json"
    files[one], files[other] = files[other], files[one]
    return packed(files)


def _without(raw: bytes, path: str) -> bytes:
    return packed({name: each for name, each in unpacked(raw).items() if name != path})


def _with(raw: bytes, path: str, text: bytes) -> bytes:
    return packed({**unpacked(raw), path: text})


def _flipped(raw: bytes) -> bytes:
    files = unpacked(raw)
    document = json.loads(files[bundles.SIGNATURE])
    document["signature"] = document["signature"][:-1] + (
        "0" if document["signature"][-1] != "0" else "1"
    )
    return packed({**files, bundles.SIGNATURE: canonical(document)})


def _mode(raw: bytes) -> bytes:
    header = bytearray(raw[:512])
    header[100:107] = b"0000777"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + raw[512:]


TAMPERINGS: dict[str, Callable[[bytes], bytes]] = {
    "a word of a check": lambda raw: _file(
        raw, "experience/checks.json", lambda text: text.replace(b"flow", b"flaw")
    ),
    "a check taken away": lambda raw: _file(
        raw,
        "experience/checks.json",
        lambda text: json.dumps({**json.loads(text), "checks": []}).encode(),
    ),
    "two files swapped": _swapped,
    "a file taken away": lambda raw: _without(raw, "experience/SKILL.md"),
    "a script put in": lambda raw: _with(raw, "experience/scripts/run.sh", b"id"),
    "another license": lambda raw: manifest_with(raw, license="MIT"),
    "another version": lambda raw: manifest_with(raw, version=4),
    "other sources": lambda raw: manifest_with(raw, sources=["r9"]),
    "the signature taken away": lambda raw: _without(raw, bundles.SIGNATURE),
    "the signature changed": _flipped,
    "bytes behind its end": lambda raw: raw + b"x" * 512,
    "cut": lambda raw: raw[: len(raw) - 2_048],
    "another mode": _mode,
    "one bit": lambda raw: raw[:700] + bytes([raw[700] ^ 1]) + raw[701:],
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_a_changed_bundle_is_refused(what: str, tmp_path: Path):
    """Whatever was changed on its way, it is refused; as it was, it is what was published."""
    private, public = keys(tmp_path)
    raw = written(learnt(), private)
    file = tmp_path / "bundle.tar"
    file.write_bytes(raw)
    assert (verify(file, public).name, verify(file).checks > 0) == ("invite", True)
    changed = TAMPERINGS[what](raw)
    assert changed != raw
    file.write_bytes(changed)
    with pytest.raises(BadValue, match=r"chang|cut|missing|cannot be read|key|no file"):
        verify(file)


def test_a_bundle_that_another_key_signed_is_refused(tmp_path: Path):
    """A bundle signed by another key, or unsigned, is whole but not vouched for."""
    _, public = keys(tmp_path)
    other, _ = keys(tmp_path, "other")
    file = tmp_path / "bundle.tar"
    for raw in (written(learnt(), other), written(learnt())):
        file.write_bytes(raw)
        verify(file)
        with pytest.raises(BadValue, match=r"signed by (the|no) key"):
            verify(file, public)


def plants(dice: random.Random) -> Iterator[tuple[str, experiences.Experience]]:
    """Made-up values for each place in an experience, with right check digits."""
    made = [
        "ada.lovelace@example.org", "+44 20 7946 0958", "4111 1111 1111 1111", "5500005555555559",
        "DE89370400440532013000", "GB29 NWBK 6016 1331 9268 19", "sk-" + "a1B2" * 8,
        "AKIA" + "IOSFODNN7EXAMPLE", "ghp_" + "x9Yz" * 9, "password=hunter2hunter2",
    ]  # fmt: skip
    places = [_described, _worded, _argued, _addressed, _instructed, _named, _advised, _keyed]
    for at in range(PLANTS):
        value = made[at % len(made)]
        yield value, places[dice.randrange(len(places))](value)


def _described(value: str) -> experiences.Experience:
    return learnt(description=f"Writes to {value} each day")


def _worded(value: str) -> experiences.Experience:
    parts = learnt().wording.parts
    wording = msgspec.structs.replace(learnt().wording, parts=(f"{parts[0]} {value} ", *parts[1:]))
    return learnt(wording=wording)


def _action(**changes: Any) -> experiences.Experience:
    base = learnt()
    first, *rest = base.procedure.nodes
    action = msgspec.structs.replace(first.action, **changes)
    nodes = (msgspec.structs.replace(first, action=action), *rest)
    return learnt(procedure=msgspec.structs.replace(base.procedure, nodes=nodes))


def _argued(value: str) -> experiences.Experience:
    base = learnt()
    nodes = tuple(
        msgspec.structs.replace(
            each, action=msgspec.structs.replace(each.action, arguments=[f"to {value}"])
        )
        if each.action.method == "fill"
        else each
        for each in base.procedure.nodes
    )
    return learnt(procedure=msgspec.structs.replace(base.procedure, nodes=nodes))


def _addressed(value: str) -> experiences.Experience:
    return _action(page=PageMark(address=f"https://guests.example/to/{value}"))


def _instructed(value: str) -> experiences.Experience:
    return _action(instruction=f"send it to {value}, please")


def _named(value: str) -> experiences.Experience:
    targets = learnt().procedure.nodes[0].action.targets
    assert targets is not None
    return _action(targets=msgspec.structs.replace(targets, row=f"row of {value}"))


def _advised(value: str) -> experiences.Experience:
    lesson = experiences.Lesson(says=f"Never call {value}", rests_on=(EIGHT[0].source,))
    return learnt(lessons=(lesson,))


def _keyed(value: str) -> experiences.Experience:
    return _action(element_id=f"0-{value}")


@pytest.mark.slow
def test_no_planted_value_is_published():
    """Each of 100 planted secrets (quick: 40) is refused unnamed; without them all is published."""
    bundles.demand_clean(
        bundles.manifest(1, kept.content_of(learnt()), "Apache-2.0", ""), kept.content_of(learnt())
    )
    published = []
    for value, experience in plants(random.Random(19)):
        content = kept.content_of(experience)
        manifest = bundles.manifest(1, content, "Apache-2.0", "")
        try:
            bundles.demand_clean(manifest, content)
        except BadValue as refused:
            published += [value] if value in str(refused) else []
        else:
            published.append(value)
    assert published == []


@pytest.mark.slow
def test_a_version_is_published_verified_and_installed(record: Record, call: Call, tmp_path: Path):
    """One file moves it; unconfirmed, taken, labelled or existing targets are refused."""
    invite(record)
    private, public = keys(tmp_path)
    file = tmp_path / "invite.tar"
    report = call("experience", "publish", "invite", file, "--license", "MIT", "--key", private)
    assert report.code == 0, report.err
    first = file.read_bytes()
    again = record.experiences.publish("invite", file, license="MIT", key=private)
    assert file.read_bytes() == first
    assert again.constants == []
    [verified] = call("experience", "verify", file, "--key", public, "--json").lines
    assert verified["digest"] == again.bundle.digest
    with pytest.raises(BadValue, match="with other content"):
        record.experiences.publish("invite", file, license="Apache-2.0")
    assert record.experiences.install(file).version == 2  # the same files are there
    installed = record.experiences.install(file, name="theirs", key=public)
    assert record.experiences.install(file, name="theirs").version == installed.version == 1
    [row] = [e for e in record.experiences.list().experiences if e.experience == "theirs"]
    assert row.standing is ExperienceStanding.UNTRUSTED
    with pytest.raises(Refused, match=r"nobody has confirmed it.*--digest"):
        record._portal.run(store.usable(record.workspace, "theirs"))
    with pytest.raises(Refused, match="untrusted"):
        record.experiences.publish("theirs", tmp_path / "b.tar", license="MIT")
    assert "name the digest that you reviewed" in call("experience", "confirm", "theirs").err
    with pytest.raises(Refused, match="no version has the digest"):
        record.experiences.confirm("theirs", digest="0" * 64)
    assert record.experiences.confirm("theirs", digest=row.digest) == 2
    assert record._portal.run(store.usable(record.workspace, "theirs")) == 2
    usable = record._portal.run(store.get(record.workspace, "theirs"))
    assert (usable.digest, usable.label) == (row.digest, None)
    other = tmp_path / "other.tar"
    other.write_bytes(written(learnt(description="Another"), keys(tmp_path, "o")[0]))
    for name, message in (("invite", "distilled here"), ("theirs", "another key")):
        with pytest.raises(Refused, match=message):
            record.experiences.install(other, name=name)
    secret = Label(Confidentiality.SECRET)
    named = msgspec.structs.replace(learnt(), name="secret")
    record._portal.run(store.keep(record.workspace, named, by="ada", label=secret))
    with pytest.raises(Refused, match="is labelled secret, so it cannot be published"):
        record.experiences.publish("secret", tmp_path / "s.tar", license="MIT")
    assert not (tmp_path / "s.tar").exists()
    changes = [each.change for each in record.experiences.log("invite").changes]
    assert changes == ["distilled", "confirmed", "published"]


def consistent(content: dict[str, bytes]) -> bytes:
    """Return a bundle whose manifest lists its files, whatever they contain."""
    manifest = json.loads(unpacked(written(learnt()))[bundles.MANIFEST])
    facts = {path: msgspec.to_builtins(bundles._fact(raw)) for path, raw in content.items()}
    texts = {path: raw.decode(errors="replace") for path, raw in content.items()}
    manifest |= {"files": facts, "digest": kept.digest_of(texts)}
    files = {f"{bundles.FOLDER}{path}": raw for path, raw in content.items()}
    return packed({bundles.MANIFEST: canonical(manifest), **files})


LOOPS = b"""{"format": "hansard.checks.v1", "checks": [
    {"type": "python", "name": "loops", "source": "while True: pass"}]}"""


def hostile(folder: Path) -> dict[str, bytes]:
    """Archives that want to do something, by what."""
    good = unpacked(written(learnt()))
    content = {path: text.encode() for path, text in kept.content_of(learnt()).items()}

    def tar(change: Callable[[tarfile.TarInfo], None]) -> bytes:
        info = tarfile.TarInfo("experience/scripts/evil")
        change(info)
        more = info.tobuf(tarfile.USTAR_FORMAT) + bytes(512) * (info.size > 0)
        return packed(good)[:-1_024] + more + bytes(1_024)

    def link(kind: bytes, to: str) -> Callable[[tarfile.TarInfo], None]:
        def change(info: tarfile.TarInfo) -> None:
            info.type, info.linkname = kind, to

        return change

    def named(name: str) -> Callable[[tarfile.TarInfo], None]:
        def change(info: tarfile.TarInfo) -> None:
            info.name, info.size = name, 1

        return change

    script = f"#!/bin/sh\ntouch {folder}/ran\n".encode()
    twin = {**good, "experience/Skill.md": good["experience/SKILL.md"]}
    huge = bytearray(packed(good))
    huge[124:135] = b"77777777777"
    wide = {**good, **{f"experience/scripts/s{n}": b"" for n in range(200)}}
    deep = b'{"format":"hansard.procedure.v1","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    python = f"import os\nos.system('touch {folder}/ran')\n".encode()
    return {
        "a symbolic link": tar(link(tarfile.SYMTYPE, f"{folder}/ran")),
        "a hard link": tar(link(tarfile.LNKTYPE, "/etc/passwd")),
        "a device": tar(link(tarfile.CHRTYPE, "")),
        "a pipe": tar(link(tarfile.FIFOTYPE, "")),
        "upwards": tar(named("experience/../../ran")),
        "absolute": tar(named(f"{folder}/ran"[:99])),
        "a hidden file": tar(named("experience/.git/hooks/post-checkout")),
        "a script beside": packed({**good, "setup.py": python}),
        "Python checks": packed({**good, "experience/checks.py": python}),
        "a script": packed({**good, "experience/scripts/run.sh": script}),
        "a twin but for letters": packed(twin),
        "more files than there may be": packed(wide),
        "a size beyond its end": bytes(huge),
        "compressed": gzip.compress(packed(good)),
        "larger than may be": b"\0" * (bundles.BUNDLE_BYTES_MAX + 1),
        "nested without end": consistent({**content, "graph.json": deep}),
        "cut in a file": consistent({**content, "graph.json": content["graph.json"][:-9]}),
        "no UTF-8": consistent({**content, "SKILL.md": b"\xff"}),
        "checks of another kind": consistent(
            {**content, "checks.json": content["checks.json"].replace(b'"flow"', b'"python"')}
        ),
        "a check that loops": consistent({**content, "checks.json": LOOPS}),
        "nothing": b"",
    }


def seen(folder: Path) -> list[str]:
    """Return the names in a folder."""
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


def children() -> set[str]:
    """Return the living child processes."""
    tasks = Path(f"/proc/{os.getpid()}/task")
    return {pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()}


def test_a_hostile_bundle_does_nothing(record: Record, tmp_path: Path):
    """Links, `..`, absolute paths, scripts, twins and bombs create no file and no process."""
    canary = tmp_path / "canary"
    canary.mkdir()
    for what, raw in hostile(canary).items():
        file = tmp_path / "bundle.tar"
        file.write_bytes(raw)
        before, begun = seen(canary), children()
        started = time.perf_counter()
        with pytest.raises(BadValue):
            record.experiences.install(file, name="evil")
        assert time.perf_counter() - started < 20, what
        assert (seen(canary), children()) == (before, begun), what
    assert record.experiences.list().experiences == []


def test_scripts_of_a_bundle_are_data(record: Record, tmp_path: Path):
    """A script that the manifest names comes along, and is never run or written out."""
    content = {**kept.content_of(learnt()), "scripts/run.sh": f"touch {tmp_path}/ran\n"}
    manifest = bundles.manifest(1, content, "MIT", "")
    file = tmp_path / "bundle.tar"
    file.write_bytes(bundles.write(manifest, content, None))
    before = children()
    assert record.experiences.install(file).version == 1
    assert record.experiences.confirm("invite", digest=manifest.digest) == 2
    assert record.experiences.get("invite").checks
    assert children() == before
    assert seen(tmp_path) == ["bundle.tar"] or "ran" not in seen(tmp_path)


def test_a_wording_that_loops_ends(record: Record, tmp_path: Path):
    """A wording with hundreds of slots is tried in linear time."""
    slots = tuple(f"s{n}" for n in range(300))
    parts = ("a", *(each for slot in slots for each in (slot, "a")))
    base = learnt()
    evil = learnt(
        wording=msgspec.structs.replace(base.wording, parts=parts),
        procedure=msgspec.structs.replace(base.procedure, slots=slots),
        script=msgspec.structs.replace(base.script, slots=list(slots)),
    )
    file = tmp_path / "bundle.tar"
    file.write_bytes(written(evil))
    assert record.experiences.install(file).version == 1
    began = time.process_time()
    [hit] = record.experiences.find("a " * 1_500 + "guest").hits
    assert time.process_time() - began < 10
    assert hit.params is None


KILLS = [
    (what, where)
    for what in ("confirm", "retire", "install", "publish")
    for where in ("before", "after", "file")
    if where != "file" or what == "publish"
]


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(("what", "where"), KILLS)
def test_a_write_that_is_killed_is_there_whole_or_not_at_all(what: str, where: str, tmp_path: Path):
    """SIGKILL around a commit or before the file: done again, all is there once."""
    data, files = tmp_path / "data", tmp_path / "files"
    files.mkdir()
    keys(files)
    (files / "bundle.tar").write_bytes(written(learnt()))

    def done(kill: str) -> int:
        arguments = ["-m", killed.__name__, str(data), "w", what, str(files), kill]
        return run(arguments, env=environment(data), timeout=WAIT_S, cwd=ROOT).returncode

    with hansard.connect("w", data_dir=data) as record:
        [distilled] = distil.distilled(EIGHT)
        record.experiences.keep(experiences.made("invite", distilled))

        def state() -> tuple[list[str], int, bool]:
            name = "theirs" if what == "install" else "invite"
            find = versions.find(record.workspace, kept.EXPERIENCES, name)
            stored = record._portal.run(find).commits
            tags = [event.type for each in stored for event in each.commit.events]
            parts = [each for each in files.iterdir() if each.name.startswith(".hansard")]
            return tags, len(parts), (files / "published.tar").exists()

        before = state()
        assert done(where) == -9
        tags, _, there = state()
        assert len(tags) == len(before[0]) + (where != "before")
        assert not there
        assert done("never") == 0
        assert len(state()[0]) == len(before[0]) + 1
        if what == "publish":
            assert verify(files / "published.tar", files / "key.pub").name == "invite"
