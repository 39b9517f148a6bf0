"""Packs: signed files of runs as a role sees them, and of prompts, memory and experience.

The first line is the manifest with its Ed25519 signature (RFC 8032), the rest is a section of
`hansard export`: the copies of the runs. The id of a pack is the SHA-256 of its signed manifest,
which names the SHA-256 of the rest; its file is called `<id>.pack.jsonl`. A folder or bucket of
such files is an index that `search` reads.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from hansard.agents.exchange import reader, writer
from hansard.agents.exchange.files import Bad, BadRecord
from hansard.agents.exchange.writer import BlobLine, CommitLine, Damaged, Header
from hansard.bus.archive.store import ObjectStore
from hansard.bus.clock import OS_USER
from hansard.bus.commits import revive_all
from hansard.bus.file_lock import read_bounded
from hansard.bus.log import AtPosition
from hansard.domain import ids, payload
from hansard.domain.access import is_views
from hansard.domain.choices import moment
from hansard.domain.errors import BadName, BadValue, RecordError, import_extra
from hansard.domain.events import Commit
from hansard.domain.experience import experience
from hansard.domain.experience.experience import ExperienceInstalled
from hansard.domain.fingerprint import canonical
from hansard.domain.ids import RunStream, StreamId, WorkspaceStream, run_of
from hansard.domain.label import join
from hansard.domain.payload import blobs_named
from hansard.domain.run import SHARED, RunAssigned, RunForked, RunStarted
from hansard.ext.share import (
    ALSO_MAX,
    FORMAT,
    PACK,
    Manifest,
    PackAdded,
    PackedRun,
    PackMade,
    PackWithdrawn,
    copies,
)
from hansard.extending import C_co, Noun, trusted
from hansard.inspect.answer import find_run

SUFFIX, NOTICE = ".pack.jsonl", ".withdrawn.sig"

PACK_BYTES_MAX = 256 * 1024 * 1024
"""Largest pack; it is held in memory."""

MANIFEST_BYTES_MAX = 192 * 1024
"""Longest first line of a pack: its manifest fits into a commit."""

NOTICE_BYTES = 128
"""Size of a notice: a signature in hexadecimal."""


LICENSE_CHARACTERS_MAX = 1_000

KEY_BYTES_MAX = 64 * 1024
"""Most bytes of a file with a key."""


class _First(msgspec.Struct, frozen=True, tag_field="kind", tag="hansard-pack"):
    """The first line of a pack."""

    manifest: Manifest
    signature: str


class PackReport(msgspec.Struct, frozen=True, kw_only=True):
    """A pack that was made, verified, added or withdrawn.

    Attributes:
        state: `made`, `valid` (it may be added), `added`, `withdrawn`; `unchanged` if a call found
            all of it done.
        pack: Its id.
        file: Its place.
        manifest: Its manifest.
        commits: Its commits.
        new: Those that were not here before.
        left_out: Lines of the view that the copies lack, by kind.
    """

    state: str
    pack: str
    file: str
    manifest: Manifest
    commits: int = 0
    new: int = 0
    left_out: dict[str, int] = {}


class DistrustedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A publisher's key. `state` is `distrusted`; `unchanged` if it was before."""

    state: str
    key: str


class FoundPack(msgspec.Struct, frozen=True, kw_only=True):
    """A pack of an index. `problem` is the reason why it cannot be added here; empty for none."""

    name: str = ""
    number: int = 0
    workspace: str = ""
    role: str = ""
    license: str = ""
    description: str = ""
    key: str = ""
    file: str = ""
    problem: str = ""


class _Strict:
    """Stops an import at the first fault."""

    def read(self, count: int) -> None:
        """Ignore the progress."""

    def bad(self, bad: Bad) -> None:
        """Stop. Raises BadRecord."""
        raise BadRecord(bad)


def _signer(path: str) -> tuple[Any, str, bytes]:
    """Return a private key, its public key in hexadecimal, and the key of its masks."""
    signer = private_key(Path(path))
    masks = hashlib.sha256(f"{FORMAT} masks\n".encode() + signer.private_bytes_raw()).digest()
    return signer, signer.public_key().public_bytes_raw().hex(), masks


class Packs(Noun[C_co], noun="pack"):
    """Signed packs of runs."""

    @trusted
    async def make(  # noqa: PLR0913 -- each is an option of the command
        self,
        folder: str,
        runs: Sequence[str],
        *,
        name: str,
        as_: str,
        license_: str,
        key: str,
        to: Sequence[str] = (),
        until: str = "",
        also: Sequence[str] = (),
        description: str = "",
        by: str = OS_USER,
        reason: str = "",
    ) -> PackReport:
        """Make a signed pack of runs as a role sees them.

        Nothing changes if the role sees what it saw when the newest pack of this name was made.

        Args:
            folder: A folder, or the URL of a bucket: s3://, gs:// or az://.
            runs: The runs: ids, unique prefixes of them, or 'last'.
            name: The pack's name, without '/'.
            as_: The role; it needs rules.
            license_: Its license: an SPDX expression, or words.
            key: File of the private Ed25519 key that signs it (PEM).
            to: A workspace that may add it; without one any may.
            until: The time from which on it is refused, ISO 8601.
            also: What the role sees whole: prompt/greeting, memory/org, or the newest version of
                experience/invite, with its check functions.
            description: Its purpose.
            by: The author on record.
            reason: The reason on record.

        Raises:
            NotFound: There is no such run.
            BadValue: The role has no rules or sees nothing of a run; an argument is malformed; an
                experience holds secret or personal values.
            Refused: An experience may not be used: it is retired, quarantined or not trusted.
            ExtraMissing: The extra `share` is not installed.
        """
        signer, public, masks = _signer(key)
        terms = _license(license_)
        made, more = await self._copies(runs, also, as_, public, masks, terms)
        section, commits = await self._section([*made, *more])
        manifest = Manifest(
            format=FORMAT,
            name=_pack_name(name),
            number=0,
            workspace=self._workspace.log.workspace,
            role=as_,
            runs={each.run: PackedRun(each.of, each.shown) for each in made},
            also=tuple(each.of for each in more),
            to=tuple(sorted(map(ids.workspace_name, to))),
            until=moment("until", until).isoformat() if until else "",
            license=terms,
            description=description,
            size=len(section),
            sha256=hashlib.sha256(section).hexdigest(),
            key=public,
        )
        report = await self._publish(folder, manifest, section, signer, by, reason)
        left_out = dict(sum((each.left_out for each in made), Counter[str]()))
        return msgspec.structs.replace(report, commits=commits, left_out=left_out)

    async def _copies(
        self,
        runs: Sequence[str],
        also: Sequence[str],
        role: str,
        key: str,
        masks: bytes,
        license_: str,
    ) -> tuple[list[copies.Copy], list[copies.Copy]]:
        """Return the copies of runs, and of other streams, as a role sees them at one moment: no
        event is shown by rules that were narrowed before it.
        """
        here = self._workspace
        named = dict.fromkeys([await find_run(here, run) for run in runs])
        end = AtPosition(await here.log.end(None))
        rules = await copies.rules_of(here, role, end)
        made = [await copies.copied(here, run, end, role, rules, key, masks) for run in named]
        if len(other := dict.fromkeys(also)) > ALSO_MAX:
            raise BadValue("also", f"{len(other)} names", f"give at most {ALSO_MAX}")
        return made, [
            await copies.also(here, each, end, rules, key, masks, license_) for each in other
        ]

    async def _publish(
        self, folder: str, manifest: Manifest, section: bytes, signer: Any, by: str, reason: str
    ) -> PackReport:
        """Give a pack its number (of its name's newest pack if it repeats that one, else the next),
        sign, record and store it.
        """
        known = (await self._known(manifest.key))[PackMade]
        named = (each.manifest for each in known.values() if each.manifest.name == manifest.name)
        newest = max((each.number for each in named), default=0)
        repeated = msgspec.structs.replace(manifest, number=newest)
        number = newest if repeated.pack in known else newest + 1
        manifest = msgspec.structs.replace(manifest, number=number)
        first = msgspec.json.encode(_First(manifest, signer.sign(manifest.signed).hex()))
        if len(first) >= MANIFEST_BYTES_MAX or len(section) > PACK_BYTES_MAX:
            raise BadValue("runs", f"{len(section):,} bytes", "make several packs of fewer runs")
        because, name = self._workspace.text(reason), f"{manifest.pack}{SUFFIX}"
        made = PackMade(pack=manifest.pack, manifest=manifest, because=because)
        is_new = await self._record(manifest.key, made, by)
        is_new |= await _store(_index(folder), name, first + b"\n" + section)
        file, state = f"{folder.rstrip('/')}/{name}", "made" if is_new else "unchanged"
        return PackReport(state=state, pack=manifest.pack, file=file, manifest=manifest)

    async def _section(self, made: Sequence[copies.Copy]) -> tuple[bytes, int]:
        """Return the section of copies, and the number of its commits."""
        out = io.BytesIO()
        section = writer.Section(self._workspace.blobs, out.write)
        names = [each.run for each in made if each.shown]
        section.line(Header(0, writer.FORMAT, names, names, []))
        for each in made:
            for blob in each.blobs:
                await self._workspace.blobs.put(blob)
            for line in each.commits:
                await section.named(blobs_named(line.body.encode()))
                section.line(msgspec.structs.replace(line, n=section.number))
        count = sum(len(each.commits) for each in made)
        section.end(count)
        return out.getvalue(), count

    @trusted
    async def verify(self, file: str, *, key: str = "") -> PackReport:
        """Verify that a pack may be added here; add nothing.

        Args:
            file: The pack: its file or URL, or FOLDER/NAME for the newest of a name.
            key: File of the publisher's public key (PEM); needed until a pack of it was added.

        Raises:
            BadValue: It is cut, changed or forged, signed by another or unknown key, for other
                workspaces, expired, withdrawn, or older than a pack of its name that was added.
        """
        report, *_ = await self._verified(file, key)
        return report

    @trusted
    async def add(self, file: str, *, key: str = "", by: str = OS_USER) -> PackReport:
        """Add the runs of a pack: they can be read, replayed and forked. An experience in it is not
        used until a person confirms its digest.

        Adding it again changes nothing; an addition that was killed is completed so.

        Args:
            file: The pack: its file or URL, or FOLDER/NAME for the newest of a name.
            key: File of the publisher's public key (PEM); needed until a pack of it was added.
            by: The author on record.

        Raises:
            BadValue: As `verify`; nothing was added.
        """
        report, importing, take = await self._verified(file, key, by)
        try:
            await take()
        except BadRecord as bad:
            raise BadValue(file, bad.bad.reason, "add it again") from bad
        manifest, new = report.manifest, importing.tally.new
        event = PackAdded(pack=manifest.pack, manifest=manifest)
        is_new = await self._record(manifest.key, event, by) or new > 0
        return msgspec.structs.replace(report, state="added" if is_new else "unchanged", new=new)

    add.begins = True

    @trusted
    async def withdraw(
        self, file: str, *, key: str, by: str = OS_USER, reason: str = ""
    ) -> PackReport:
        """Withdraw a pack, by a signed notice beside it.

        Nobody adds it from then on. Copies that were added before stay: a log is never rewritten.

        Args:
            file: The pack: its file or URL, or FOLDER/NAME for the newest of a name.
            key: File of the private key that signed it (PEM).
            by: The author on record.
            reason: The reason on record.

        Raises:
            BadValue: The pack is damaged, or was signed by another key, or another file has the
                name of the notice.
        """
        signer, public, _ = _signer(key)
        store, file, raw = await self._open(file, public)
        manifest, _ = _read(raw, file)
        if manifest.key != public:
            raise _other_key(file, manifest.key, public)
        because = self._workspace.text(reason)
        event = PackWithdrawn(pack=manifest.pack, because=because)
        is_new = await self._record(public, event, by)
        signature = signer.sign(_end_of(manifest)).hex().encode()
        is_new |= await _store(store, f"{manifest.pack}{NOTICE}", signature)
        state = "withdrawn" if is_new else "unchanged"
        return PackReport(state=state, pack=manifest.pack, file=file, manifest=manifest)

    @trusted
    async def distrust(self, key: str, *, by: str = OS_USER, reason: str = "") -> DistrustedKey:
        """Add no pack of a publisher's key from now on, as after a theft.

        Args:
            key: File of the publisher's public key (PEM).
            by: The author on record.
            reason: The reason on record.
        """
        public = public_key(Path(key))
        because = self._workspace.text(reason)
        is_new = await self._record(public, PackWithdrawn(pack=public, because=because), by)
        return DistrustedKey(state="distrusted" if is_new else "unchanged", key=public)

    @trusted
    async def search(self, folder: str, words: Sequence[str] = ()) -> list[FoundPack]:
        """List packs of a folder or bucket whose manifests hold all words.

        Args:
            folder: A folder, or the URL of a bucket.
            words: Words of a name, description, license, role, workspace or run.
        """
        if not _is_folder(folder):
            raise BadValue("folder", f"{folder!r:.80} is no folder", "name one, or a bucket's URL")
        store = _index(folder)
        packs: list[FoundPack] = []
        for name in await store.names(""):
            is_pack = name.endswith(SUFFIX) and "/" not in name
            head = await _head(store, name, MANIFEST_BYTES_MAX) if is_pack else None
            if not head:
                continue
            found, problem = FoundPack(), ""
            try:
                manifest = _manifest(head.partition(b"\n")[0], name)
                found = msgspec.convert(manifest, FoundPack, from_attributes=True)
                text = canonical(msgspec.to_builtins(manifest)).decode().casefold()
                if not all(word.casefold() in text for word in words):
                    continue
                await self._demand_usable(manifest, store, name)
            except (BadValue, BadName) as error:
                problem = str(error)
            file = f"{folder.rstrip('/')}/{name}"
            packs.append(msgspec.structs.replace(found, file=file, problem=problem))
        return sorted(packs, key=lambda each: (each.name, -each.number))

    async def _known(self, key: str) -> dict[type[Any], dict[str, Any]]:
        """Return what is on record here of a publisher's packs, by type of event and pack."""
        commits = await self._workspace.log.read(WorkspaceStream(PACK, key))
        events: list[Any] = revive_all(each.commit for each in commits)
        kinds = (PackMade, PackAdded, PackWithdrawn)
        return {kind: {e.pack: e for e in events if isinstance(e, kind)} for kind in kinds}

    async def _record(self, key: str, event: PackMade | PackAdded | PackWithdrawn, by: str) -> bool:
        """Record an event of a publisher's pack, once; return False if it is on record."""
        if event.pack in (await self._known(key))[type(event)]:
            return False
        await self._workspace.repository.append(WorkspaceStream(PACK, key), by, event)
        return True

    async def _open(
        self, file: str, key: str, *, usable: bool = False
    ) -> tuple[ObjectStore, str, bytes]:
        """Return the folder or bucket of a pack, its place, and its bytes: of the newest pack of a
        name, by the given key if there is one, or of a file. With `usable` the newest that can be
        added here comes before newer ones. Raises BadValue.
        """
        folder, _, name = file.rpartition("/")
        packs: Any = self
        if name and _is_folder(folder := folder or "."):
            store = _index(folder)
            found = [] if name.endswith(SUFFIX) else await packs.search(folder)
            found = [each for each in found if each.name == name]
            mine = [each for each in found if key in ("", each.key)]
            if len({(each.key, each.workspace) for each in mine}) > 1:
                fact = "several workspaces or publishers have packs of this name"
                raise BadValue(file, fact, "name a file, or the publisher's key: --key FILE")
            if mine:
                mine.sort(key=lambda each: usable and bool(each.problem))
                return await self._open(mine[0].file, key)
            if found:
                raise _other_key(file, found[0].key, key)
            raw = await _head(store, name, PACK_BYTES_MAX + MANIFEST_BYTES_MAX)
            if raw is not None:
                return store, file, raw
        remedy = "name a file, or FOLDER/NAME; 'hansard pack search FOLDER' lists them"
        raise BadValue(file, "there is no such pack", remedy)

    async def _demand_usable(self, manifest: Manifest, store: ObjectStore, file: str) -> None:
        """Raise BadValue for a signed pack that cannot be added here."""
        known, here = await self._known(manifest.key), self._workspace.log.workspace
        if manifest.pack in known[PackWithdrawn] or await _is_withdrawn(manifest, store):
            raise BadValue(file, "its publisher withdrew it", "use a newer one")
        if manifest.key in known[PackWithdrawn]:
            fact = f"its key {manifest.key} is not trusted here"
            raise BadValue(file, fact, "request a pack by another key")
        if manifest.to and here not in manifest.to:
            fact = f"it is for {', '.join(manifest.to)}, not for {here}"
            raise BadValue(file, fact, f"request one for {here}")
        if manifest.until and self._workspace.clock.now() >= datetime.fromisoformat(manifest.until):
            raise BadValue(file, f"it ended at {manifest.until}", "request a newer one")
        added = [each.manifest for each in known[PackAdded].values()]
        of = manifest.workspace, manifest.name  # each workspace of a publisher has its numbers
        last = max((e.number for e in added if (e.workspace, e.name) == of), default=0)
        if manifest.number < last and manifest.pack not in known[PackAdded]:
            fact = f"it is number {manifest.number}, and number {last} was added"
            raise BadValue(file, fact, "use the newer")
        for named in manifest.also:
            stream = copies.stream_of(named)
            for first in await self._workspace.log.read(stream, to=1):
                if not _is_owned(manifest, stream, first.commit):
                    who, at = first.commit.actor.agent, first.position
                    fact = f"{named} is here, by {who!r} (position {at}), and not of its publisher"
                    raise BadValue(file, fact, "add it to another workspace")

    async def _verified(
        self, file: str, key: str, by: str = OS_USER
    ) -> tuple[PackReport, reader.Import, Callable[[], Awaitable[None]]]:
        """Return a pack that may be added, with its import and the call that does it. The notice
        that a known publisher withdrew it is recorded. Raises BadValue.
        """
        expected = public_key(Path(key)) if key else ""
        store, file, raw = await self._open(file, expected, usable=True)
        manifest, content = _read(raw, file)
        if manifest.key != (expected or manifest.key):
            raise _other_key(file, manifest.key, expected)
        if not key and manifest.name != (name := file.rpartition("/")[2]) and SUFFIX not in name:
            fact = f"it is a pack {manifest.name!r:.80}, under another name"
            raise BadValue(file, fact, "give the publisher's public key: --key FILE")
        known = await self._known(manifest.key)
        is_known = bool(known[PackMade] or known[PackAdded])
        if not key and not is_known:
            fact = f"its publisher {manifest.key} is not known here"
            raise BadValue(file, fact, "give the publisher's public key: --key FILE")
        if is_known and await _is_withdrawn(manifest, store):
            await self._record(manifest.key, PackWithdrawn(pack=manifest.pack), by)
        await self._demand_usable(manifest, store, file)
        importing = reader.Import(self._workspace, file, _Strict())
        section = reader.Section(self._workspace, functools.partial(_demand_own, manifest, {}))
        lines = reader.Lines(io.BytesIO(content), lambda _: "")
        begin = lines.tell()
        try:
            fault = None if await importing.check(section, lines) else "it is empty"
            fault = "it does not end where its section does" if lines.next() else fault
        except Damaged as error:
            fault = str(error)
        if fault is not None:
            raise BadValue(file, fault, "get another pack from its publisher")
        commits = section.tally.commits
        report = PackReport(
            state="valid", pack=manifest.pack, file=file, manifest=manifest, commits=commits
        )
        return report, importing, functools.partial(importing.take, section, lines, begin)


def _demand_own(manifest: Manifest, blobs: dict[str, bytes], line: writer.Line) -> None:
    """Raise Damaged for a line of anything but the copies that a manifest names: its publisher
    writes into no other run, prompt, memory space or experience. `blobs` are those before it.
    """
    if isinstance(line, Header) and set(line.carries) != manifest.runs.keys():
        raise Damaged("its runs are not those of the manifest")
    if isinstance(line, BlobLine):
        blobs[line.sha256] = blobs.get(line.sha256, b"") + line.data
    if not isinstance(line, CommitLine):
        return
    run, origin = run_of(line.stream), (manifest.workspace, manifest.role)
    of = manifest.runs.get(run or "")
    if line.origin.log != manifest.workspace:
        raise Damaged(f"a commit is from workspace {line.origin.log}, not {manifest.workspace}")
    if of is None or run is None:
        if str(line.stream) not in manifest.also:
            fact = "which is nothing that the manifest names"
            raise Damaged(f"a commit is of {run or line.stream}, {fact}")
        commit = reader.appended(line.origin.log, line).commit
        if not _is_owned(manifest, line.stream, commit):
            raise Damaged(f"version {line.version} of {line.stream} is not its publisher's")
        if isinstance(line.stream, WorkspaceStream) and line.stream.kind == experience.KIND:
            _demand_untrusted(manifest, line.stream.id, commit, blobs)
        return
    if run != copies.id_of(manifest.key, *origin, of.run, of.shown):
        raise Damaged(f"run {run} is no copy of its publisher's")
    if is_views(line.stream):
        raise Damaged(f"run {run} states views that were served")
    if isinstance(line.stream, RunStream):
        _demand_marked(line, run, copies.origin_of(*origin, of.run))


def _demand_untrusted(
    manifest: Manifest, name: str, commit: Commit, blobs: Mapping[str, bytes]
) -> None:
    """Raise Damaged for a commit that is not the only version of an experience as its files state
    it: a person here decides whether it may act.
    """
    try:
        event, *more = revive_all([commit])
        if (
            not isinstance(event, ExperienceInstalled)
            or more
            or (commit.version, event.version, event.key) != (1, 1, manifest.key)
            or not join(commit.label).untrusted
        ):
            raise Damaged("an experience is more than one untrusted version of its publisher")
        content = payload.run_fetch(payload.unpack(event.content), lambda sha256, _: blobs[sha256])
        plain = msgspec.convert(content, dict[str, str])
        made = experience.of(plain)
        about, event_id = experience.about(made), commit.events[0].id
    except (RecordError, BadValue, LookupError, RecursionError, ValueError) as error:
        raise Damaged(f"an experience cannot be read: {error}") from error
    if (experience.digest_of(plain), about) != (event.digest, event.about):
        raise Damaged("an experience is not what its files are")
    own = copies.name_of(manifest.key, manifest.workspace, made.name, event_id)
    if name != own:
        raise Damaged(f"an experience is called {name!r:.80}, not {own!r}")


def _is_owned(manifest: Manifest, stream: StreamId, commit: Commit) -> bool:
    """Return whether a commit of anything but a run is of a pack's publisher."""
    copy = copies.id_of(manifest.key, manifest.workspace, "", str(stream), "")
    return commit.id == copies.commit_id(copy, stream, commit.version, commit.events[0].id)


def _demand_marked(line: CommitLine, run: str, label: str) -> None:
    """Raise Damaged for a copy whose first event does not mark it as one, or by which it would join
    a conversation, lose the mark, or count in an experiment.
    """
    try:
        events = revive_all([reader.appended(line.origin.log, line).commit])
    except RecordError as error:
        raise Damaged(f"the life of run {run} cannot be read: {error}") from error
    for version, event in enumerate(events, line.version):
        if isinstance(event, RunStarted) and event.conversation_id is not None:
            raise Damaged(f"run {run} joins conversation {event.conversation_id!r:.80} of yours")
        if version > 1 and isinstance(event, RunStarted | RunForked | RunAssigned):
            raise Damaged(f"run {run} has a {event.tag} after its start")
        is_marked = isinstance(event, RunStarted) and event.labels.get(SHARED) == label
        if version == 1 and not is_marked:
            raise Damaged(f"run {run} is not marked as a copy of {label}")


async def _is_withdrawn(manifest: Manifest, store: ObjectStore) -> bool:
    """Return whether a notice beside a pack, signed by its publisher, withdraws it."""
    notice = await _head(store, f"{manifest.pack}{NOTICE}", NOTICE_BYTES) or b""
    return is_signed(manifest.key, notice.decode("ascii", "replace"), _end_of(manifest))


# ------------------------------------------------------------ files


def _end_of(manifest: Manifest) -> bytes:
    """Return what a publisher signs to withdraw a pack."""
    return f"{FORMAT} withdrawn\n{manifest.pack}".encode()


def _index(folder: str) -> ObjectStore:
    """Open a folder or bucket of packs. Raises BadArchive, ExtraMissing."""
    return ObjectStore(folder, "packs", "share")


def _is_folder(folder: str) -> bool:
    return "://" in folder or Path(folder).is_dir()


async def _head(store: ObjectStore, name: str, most: int) -> bytes | None:
    """Return at most so many first bytes of a file; None for one that is empty, as a device is, or
    does not exist.
    """
    size = await store.size(name)
    parts = await store.ranges(name, [(0, min(size, most))]) if size else None
    return parts[0] if parts else None


async def _store(store: ObjectStore, name: str, data: bytes) -> bool:
    """Store a file; return False if it is there. Raises BadValue if another one has its name."""
    is_new = await store.create(name, data)
    if not is_new and await _head(store, name, len(data) + 1) != data:
        raise BadValue(name, "a file with other bytes has this name", "remove it, and repeat this")
    return is_new


def _license(text: str) -> str:
    """Return a license: an SPDX expression, or words. Raises BadValue for none, or a long text."""
    terms = text.strip()
    if not 0 < len(terms) <= LICENSE_CHARACTERS_MAX:
        raise BadValue("license", f"{terms!r:.80}", "give an SPDX expression: Apache-2.0")
    return terms


def _pack_name(name: str) -> str:
    if "/" in name:
        raise BadValue("name", f"{name!r:.80}", "leave out '/': FOLDER/NAME finds the pack")
    return ids.name("pack", name)


def _other_key(file: str, signer: str, key: str) -> BadValue:
    fact = f"it is signed by {signer}, not by {key}"
    return BadValue(file, fact, "give the key that signed it, if you trust it")


def _read(raw: bytes, file: str) -> tuple[Manifest, bytes]:
    """Return the manifest and the section of a pack: signed, and whole. Raises BadValue."""
    head, _, section = raw.partition(b"\n")
    manifest = _manifest(head, file.rpartition("/")[2])
    sha256 = hashlib.sha256(section).hexdigest()
    if (len(section), sha256) != (manifest.size, manifest.sha256):
        fact = f"its content is {len(section):,} bytes with SHA-256 {sha256}, not {manifest.sha256}"
        raise BadValue(file, fact, "it was cut or changed after it was signed: get it again")
    return manifest, section


def _manifest(line: bytes, name: str) -> Manifest:
    """Return the manifest of a pack's first line, signed by the key that it names. Raises
    BadValue, BadName.
    """
    try:
        first = msgspec.json.decode(line[:MANIFEST_BYTES_MAX], type=_First)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fact = f"it is no pack, or damaged ({error})"
        raise BadValue(name, fact, "give a file that 'hansard pack make' wrote") from None
    manifest = first.manifest
    if manifest.format != FORMAT:
        fact = f"its format is {manifest.format!r:.80}, not {FORMAT!r}"
        raise BadValue(name, fact, "read it with the version of Hansard that wrote it")
    signed = is_signed(manifest.key, first.signature, manifest.signed)
    if not signed or msgspec.json.encode(first) != line:
        fact = f"the key {manifest.key:.64} has not signed it"
        raise BadValue(name, fact, "it is forged, or was changed: get it from its publisher")
    if name.endswith(SUFFIX) and name != f"{manifest.pack}{SUFFIX}":
        fact = f"it is pack {manifest.pack}, under another name"
        raise BadValue(name, fact, "get the pack of this name from its publisher")
    if manifest.until:
        moment(f"until of {name}", manifest.until)
    ids.name("pack", manifest.name)
    for named in manifest.also:
        copies.stream_of(named)
    return manifest


# ------------------------------------------------------------ keys


def _bytes(path: Path) -> bytes:
    """Return the bytes of a plain file. Raises BadValue."""
    if not path.is_file():
        fact = "it is not a regular file" if path.exists() else "there is no such file"
        raise BadValue(str(path), fact, "name a file")
    return read_bounded(path, KEY_BYTES_MAX, "name another file")


def _crypto(module: str) -> Any:
    what = "a signature"
    return import_extra(f"cryptography.{module}", what, "cryptography", "share")


def is_signed(key: str, signature: str, data: bytes) -> bool:
    """Return whether a public key, in hexadecimal as the signature, has signed some bytes."""
    ed25519 = _crypto("hazmat.primitives.asymmetric.ed25519")
    try:
        public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), data)
    except (ValueError, _crypto("exceptions").InvalidSignature):
        return False
    return True


def private_key(path: Path) -> Any:
    """Read a private key. Raises BadValue, which reveals nothing of it."""
    fact = "it is not a private Ed25519 key in PEM without a password"
    remedy = "name another file; a new key: openssl genpkey -algorithm ed25519 -out NEW_FILE"
    return _key(path, "Private", {"password": None}, fact, remedy)


def public_key(path: Path) -> str:
    """Read a public key, as hexadecimal. Raises BadValue."""
    remedy = "make one: openssl pkey -in PRIVATE -pubout -out PUBLIC"
    key = _key(path, "Public", {}, "it is not a public Ed25519 key in PEM", remedy)
    text: str = key.public_bytes_raw().hex()
    return text


def _key(path: Path, kind: str, options: dict[str, Any], fact: str, remedy: str) -> Any:
    """Read a key of a kind. Raises BadValue with the fact and the remedy."""
    raw, key = _bytes(path), None
    load = getattr(_crypto("hazmat.primitives.serialization"), f"load_pem_{kind.lower()}_key")
    ed25519 = _crypto("hazmat.primitives.asymmetric.ed25519")
    with contextlib.suppress(ValueError, TypeError, _crypto("exceptions").UnsupportedAlgorithm):
        key = load(raw, **options)
    if not isinstance(key, getattr(ed25519, f"Ed25519{kind}Key")):
        raise BadValue(str(path), fact, remedy)
    return key
