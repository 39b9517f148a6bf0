"""`hansard credentials` and `hansard principals`: one private file, whole or not at all."""

import asyncio
import json
import os
import signal
import stat
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard import settings as configuration
from hansard.agents.access import principals as tokens
from hansard.broker import access
from hansard.broker.access import BadCredentials, Credentials
from hansard.bus.errors import NotFound
from hansard.client.credentials import seconds, syncing_broker
from hansard.domain.errors import BadValue
from tests.access.desk import HANSARD, PROGRAM, Desk
from tests.access.programs.killed import POINTS
from tests.access.support import Held, eventually

pytestmark = pytest.mark.later

MAKE = "credentials writer --name ada --output ada.json"


async def test_the_file_lets_its_holder_in_and_is_private(desk: Desk):
    """The file names holder, role and address; broker and gatekeeper admit its holder."""
    made = desk.make()
    assert made["new"]
    credentials = access.load(desk.file)
    assert (credentials.workspace, credentials.role, credentials.principal) == (
        "lab",
        "writer",
        "ada",
    )
    assert (credentials.url, credentials.inbox) == (desk.lease.info.url, f"_INBOX_{made['token']}")
    assert stat.S_IMODE(desk.file.stat().st_mode) == 0o600
    assert desk.opens(credentials)
    assert await desk.admits(credentials)
    assert [path.name for path in desk.folder.glob(".*")] == []


def test_again_changes_nothing(desk: Desk):
    """Valid credentials that exist already stay the same, byte for byte."""
    first = desk.make()
    before = desk.file.read_bytes()
    again = desk.make()
    assert (first["new"], again["new"]) == (True, False)
    assert first["token"] == again["token"]
    assert desk.file.read_bytes() == before
    assert desk.valid() == [first["token"]]


@pytest.mark.slow
async def test_what_is_printed_holds_no_secret(desk: Desk):
    """The output of `principals` and the server's log have none, either."""
    done = desk.run(HANSARD, MAKE)
    credentials = access.load(desk.file)
    output = done.stdout + done.stderr + desk.run(HANSARD, "principals --json").stdout
    output += (desk.data_dir / "server.log").read_text()
    shown = desk.run(HANSARD, "principals").stdout.split()
    assert shown[:2] == ["principal", "kind"]
    assert {"ada", "agent", "writer", "valid"} <= set(shown)
    assert credentials.token not in output
    assert credentials.nkey_seed not in output
    for path in desk.data_dir.rglob("*"):
        if path.is_file():
            raw = path.read_bytes()
            assert credentials.token[-52:].encode() not in raw, path
            assert credentials.nkey_seed.encode() not in raw, path
    hidden = (
        repr(credentials) + str(list(credentials.__rich_repr__())) + repr(credentials.options())
    )
    assert credentials.token not in hidden
    assert credentials.nkey_seed not in hidden


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("which", ["ada", "token"])
async def test_a_revoked_login_is_put_out_and_stays_out(desk: Desk, which: str):
    """A revoked login is disconnected and refused by the broker; other connections stay."""
    made = desk.make()
    desk.make(name="bob")
    ada, bob = access.load(desk.file), access.load(desk.folder / "bob.json")
    name = made["token"] if which == "token" else which
    with Held(ada) as connection, Held(bob) as other:
        assert connection.is_in()
        assert other.is_in()
        (done,) = desk.revoke(name)
        assert done == {"principal": "ada", "token": made["token"], "revoked": True}
        assert not connection.is_in()
        assert other.is_in()
    assert not desk.opens(ada)
    assert not await desk.admits(ada)
    (again,) = desk.revoke(name)
    assert not again["revoked"]
    with pytest.raises(NotFound, match="'nobody'"):
        desk.revoke("nobody")
    listed = {each["principal"]: each for each in desk.listed()}
    assert (listed["ada"]["standing"], listed["ada"]["because"]) == ("revoked", "lost")
    assert listed["bob"]["standing"] == "valid"


async def test_new_ones_take_the_place_of_what_is_no_longer_valid(desk: Desk):
    """After a revocation the same command makes others, in the same file."""
    first = desk.make()
    desk.revoke("ada")
    second = desk.make()
    assert second["new"]
    assert first["token"] != second["token"]
    credentials = access.load(desk.file)
    assert desk.opens(credentials)
    assert await desk.admits(credentials)


async def test_expired_ones_open_nothing_and_are_replaced(desk: Desk):
    """The list shows them as expired; the same command makes new ones."""
    desk.make(expires="1s")
    credentials = access.load(desk.file)
    await asyncio.sleep(1.1)
    (listed,) = desk.listed()
    assert listed["standing"] == "expired"
    assert not await desk.admits(credentials)
    made = desk.make(expires="never")
    assert (made["new"], made["expires"]) == (True, None)
    assert not desk.opens(credentials)


@pytest.mark.slow
async def test_who_has_expired_is_put_out_while_a_service_runs(desk: Desk):
    """The running service makes the broker drop an expired login without an event or command."""
    desk.make(expires="1s")
    desk.make(name="bob")
    ada, bob = access.load(desk.file), access.load(desk.folder / "bob.json")
    settings = configuration.load(workspace="lab", data_dir=desk.data_dir)
    with Held(ada) as connection, Held(bob) as other:
        assert connection.is_in()
        async with (
            hansard.connect_async("lab", data_dir=desk.data_dir) as record,
            syncing_broker(settings, record.workspace, check_s=0.1),
        ):
            await eventually(lambda: not connection.is_in())
            os.kill(desk.lease.info.server_pid, signal.SIGKILL)  # it goes on when that is back
            await asyncio.to_thread(desk.make, "writer", "kim")
            await asyncio.to_thread(desk.revoke, "bob")
        assert not desk.opens(ada)
        assert not desk.opens(bob)
        assert not other.is_in()


KILLS = [f"{when} {point}" for point in POINTS for when in ("before", "after")]


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("kill", KILLS)
async def test_a_kill_leaves_nothing_usable_or_all_of_it_and_again_mends(desk: Desk, kill: str):
    """After a kill no file is half a login, and the same command finishes without a stray token."""
    done = desk.run([str(PROGRAM), kill], MAKE)
    assert done.returncode == -signal.SIGKILL, done.stderr
    if desk.file.exists():
        credentials = access.load(desk.file)
        assert desk.opens(credentials)
        assert await desk.admits(credentials)
    made = desk.make()
    credentials = access.load(desk.file)
    assert tokens.parse(credentials.token) is not None
    assert desk.valid() == [made["token"]]
    assert credentials.inbox == f"_INBOX_{made['token']}"
    assert desk.opens(credentials)
    assert await desk.admits(credentials)
    assert [path.name for path in desk.folder.glob(".*")] == []
    assert len([each for each in desk.listed() if each["principal"] == "ada"]) == 1


@pytest.mark.thorough(
    quick="tests/access/test_reload.py::test_who_waits_for_the_lock_says_so_and_leaves_none_behind"
)
async def test_many_at_once_are_all_let_in(desk: Desk):
    """Processes that add logins at the same time do not lose each other's."""
    names = [f"agent {number}" for number in range(6)]
    lines = [
        f"credentials writer --name '{name}' --output {number}.json"
        for number, name in enumerate(names)
    ]
    await asyncio.gather(*(asyncio.to_thread(desk.call, line) for line in lines))
    files = [access.load(desk.folder / f"{number}.json") for number in range(6)]
    assert [each.principal for each in files] == names
    assert [desk.opens(each) for each in files] == [True] * 6
    assert len({each.inbox for each in files}) == 6


@pytest.mark.thorough(quick="test_the_file_lets_its_holder_in_and_is_private")
async def test_the_same_at_once_is_one_login(desk: Desk):
    """Two processes that make the same file share one login: one waits or finds it there."""
    done = await asyncio.gather(
        *(asyncio.to_thread(desk.run, HANSARD, f"{MAKE} --json") for _ in range(3))
    )
    good = [each for each in done if each.returncode == 0]
    assert good
    assert all("another process is making" in each.stderr for each in done if each not in good)
    assert len(desk.valid()) == 1
    assert {json.loads(each.stdout)["token"] for each in good} == {*desk.valid()}


@pytest.mark.slow
def test_a_role_without_rules_gets_no_credentials(desk: Desk):
    """An invalid role name gets none either; no file is left behind."""
    assert "'ghost' has no rules" in desk.refused("ghost")
    assert "too long for a subject" in desk.refused(name="x" * 200, output="x.json")
    assert "12h, 30d, 8w" in desk.refused(expires="soon")
    desk.work("roles", "withdraw", "writer")
    done = desk.run(HANSARD, MAKE)
    assert done.returncode == 2
    assert "error: role 'writer' has no rules" in done.stderr
    assert desk.listed() == []
    assert sorted(path.name for path in desk.folder.iterdir()) == ["data", "roles.toml"]


def test_existing_files_are_left_alone(desk: Desk):
    """Another principal's file, a file of something else, a folder: nothing is overwritten."""
    desk.make()
    before = desk.file.read_bytes()
    assert "credentials of principal 'ada'" in desk.refused(name="bob", output="ada.json")
    assert "role 'writer'" in desk.refused("writers")
    assert desk.file.read_bytes() == before
    notes = desk.folder / "notes.json"
    notes.write_text('{"mine": true}')
    notes.chmod(0o600)
    assert "not a complete credentials file" in desk.refused(output="notes.json")
    assert notes.read_text() == '{"mine": true}'
    for place in ("data", "none/x.json", os.devnull):
        assert "cannot be written" in desk.refused(output=place)
    assert Path(os.devnull).is_char_device()
    assert [path.name for path in desk.folder.glob(".*")] == []
    assert {each["principal"] for each in desk.listed()} == {"ada"}


def test_a_link_leads_to_the_file_and_stays(desk: Desk):
    """The target of a link is written; a planted hidden link is not followed."""
    (desk.folder / "link.json").symlink_to("real.json")
    desk.make(output="link.json")
    assert (desk.folder / "link.json").is_symlink()
    assert access.load(desk.folder / "real.json").principal == "ada"
    victim = desk.folder / "victim"
    victim.write_text("mine")
    (desk.folder / ".bob.json.part").symlink_to(victim)
    assert "cannot be written" in desk.refused(name="bob")
    os.link(victim, desk.folder / ".eve.json.part")
    assert "was put there by another" in desk.refused(name="eve")
    os.mkfifo(desk.folder / ".kim.json.part")
    assert "was put there by another" in desk.refused(name="kim")
    assert victim.read_text() == "mine"


GOOD = Credentials(
    url="nats://127.0.0.1:4222",
    workspace="lab",
    role="writer",
    principal="ada",
    token=tokens.new_token().token,
    nkey_seed=access.new_seed(),
    inbox="_INBOX_" + "a" * 32,
)


def _file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "c.json"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_file_is_read_as_it_was_written(tmp_path: Path):
    """`load` is the inverse of `encode`."""
    assert access.load(_file(tmp_path, access.encode(GOOD))) == GOOD


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o644])
def test_a_file_that_others_can_read_is_not_used(tmp_path: Path, mode: int):
    """A file that others can read is refused, and the error names the remedy."""
    with pytest.raises(BadCredentials, match=r"others may read or write them.*revoke them"):
        access.load(_file(tmp_path, access.encode(GOOD), mode))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        access.encode(GOOD)[:-9],
        access.encode(msgspec.structs.replace(GOOD, inbox=">")),
        access.encode(msgspec.structs.replace(GOOD, workspace="lab.>")),
        access.encode(msgspec.structs.replace(GOOD, nkey_seed="SUAnonsense")),
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"token":' + b"9" * 70_000,
    ],
)
def test_a_file_that_is_not_whole_is_refused_without_its_words(tmp_path: Path, content: bytes):
    """The error says that the file is unusable and quotes none of its content."""
    with pytest.raises(BadCredentials, match="hansard credentials") as caught:
        access.load(_file(tmp_path, content))
    message = str(caught.value)
    assert GOOD.token not in message
    assert GOOD.nkey_seed not in message
    with pytest.raises(BadCredentials, match="No such file"):
        access.load(tmp_path / "none.json")


def test_lives_are_written_as_people_write_them():
    """A number and a unit, or never."""
    lives = {text: seconds(text) for text in ("90s", "45m", "12h", "30d", "8w", "never")}
    assert lives == {
        "90s": 90.0,
        "45m": 2_700.0,
        "12h": 43_200.0,
        "30d": 2_592_000.0,
        "8w": 4_838_400.0,
        "never": None,
    }
    for text in ("", "0d", "-1d", "1y", "1.5h", "30", "d", "٣d", "9" * 12 + "d"):
        with pytest.raises(BadValue, match="expires"):
            seconds(text)
