"""Grants: live reads between workspaces of one record, ended at once, on record on both sides."""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.bus.errors import NotFound
from hansard.domain.errors import BadValue, Refused
from hansard.domain.ids import WorkspaceStream
from hansard.ext.share import SHARE, ShareGranted
from hansard.ext.share.grants import Shares
from tests.cli.support import environment
from tests.exchange.support import in_workspace, log_of
from tests.faults._warm import run as python_run
from tests.share.test_packs import HIDDEN, ROLES, spy, work

_numbers = itertools.count()


class Pair(msgspec.Struct):
    """Two workspaces of one record, the first with a run."""

    home: Path
    giver: str
    receiver: str
    run: str


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a data directory whose broker stays up."""
    folder = tmp_path_factory.mktemp("grants") / "data"
    with hansard.connect(workspace="held", data_dir=folder):
        yield folder


@pytest.fixture
def pair(home: Path, tmp_path: Path) -> Pair:
    """Return two workspaces; in the first a clerk and a spy worked in a run."""
    number = next(_numbers)
    made = Pair(home, f"giver-{number}", f"receiver-{number}", "")
    with hansard.connect(made.giver, data_dir=home) as record:
        (tmp_path / "roles.toml").write_text(ROLES)
        record.roles.apply_file(tmp_path / "roles.toml")
        made.run = work(record)
        spy(record, made.run)
    with hansard.connect(made.receiver, data_dir=home):
        return made


def test_a_grant_is_live_and_ends_at_once(pair):
    """The receiver reads what the role sees now; after the withdrawal nothing; both have it."""
    with (
        hansard.connect(pair.giver, data_dir=pair.home) as giver,
        hansard.connect(pair.receiver, data_dir=pair.home) as receiver,
    ):
        shares, theirs = giver.noun(Shares), receiver.noun(Shares)
        with pytest.raises(NotFound):
            theirs.read("no-such-grant", pair.run)
        made = shares.grant([pair.run], to=pair.receiver, as_="plain")
        with pytest.raises(NotFound, match="granted run needs a pack"):
            receiver.fork(pair.run)
        again = shares.grant(["last"], to=pair.receiver, as_="plain")
        assert (made.is_new, again) == (True, msgspec.structs.replace(made, is_new=False))
        assert shares.list() == [again]
        [received] = theirs.list()  # with the time of its own record
        assert msgspec.structs.replace(received, changed_at=again.changed_at) == again
        seen = theirs.read(made.grant, pair.run)
        assert seen.events == giver.roles.view(pair.run, role="plain").events
        assert HIDDEN not in str(msgspec.json.encode(seen))
        spy(giver, pair.run, times=2)
        assert theirs.read(made.grant, pair.run) == seen
        with giver.run(run=pair.run, agent="bob", role="clerk") as session:
            session.message("user", "more")
        assert len(theirs.read(made.grant, pair.run).events) > len(seen.events)
        other = work(giver)
        with pytest.raises(NotFound, match="hansard share list"):
            theirs.read(made.grant, other)
        with pytest.raises(Refused, match=f"is of workspace {pair.giver}"):
            theirs.withdraw(made.grant)
        ended = shares.withdraw(made.grant, reason="enough")
        again = shares.withdraw(made.grant, reason="enough")
        assert (ended.is_new, again) == (True, msgspec.structs.replace(ended, is_new=False))
        assert ended.changed_at >= made.changed_at != ""
        assert ended.ended == "withdrawn"
        with pytest.raises(Refused, match="not in force: withdrawn; request another"):
            theirs.read(made.grant, pair.run)
        rows = "SELECT granted_to, role, reads, withdrawn_at IS NOT NULL FROM shares"
        assert giver.sql(rows).rows == [(pair.receiver, "plain", 0, True)]
        assert receiver.sql(rows).rows == [(pair.receiver, "plain", 3, True)]
        views = "SELECT count(*) FROM events WHERE type = 'view.served.v1' AND actor = ?"
        assert giver.sql(views, f"workspace {pair.receiver}").rows == [(3,)]
        assert shares.grant([pair.run], to=pair.receiver, as_="plain").ended == ""
        assert theirs.read(made.grant, pair.run).events
        assert receiver.sql(rows).rows == [(pair.receiver, "plain", 4, False)]


def test_what_is_hidden_leaves_no_trace_in_the_receiver(pair):
    """The receiver's log has no byte of what the role does not see, also after reads."""
    with hansard.connect(pair.giver, data_dir=pair.home) as giver:
        made = giver.noun(Shares).grant([pair.run], to=pair.receiver, as_="plain")
    with hansard.connect(pair.receiver, data_dir=pair.home) as receiver:
        receiver.noun(Shares).read(made.grant, pair.run)
    assert all(HIDDEN.encode() not in each.body for each in log_of(pair.home, pair.receiver))


def test_a_grant_has_an_end_and_one_receiver(pair, home):
    """After its end, in another workspace, or with a forged record, nothing is read."""
    with (
        hansard.connect(pair.giver, data_dir=home) as giver,
        hansard.connect(pair.receiver, data_dir=home) as receiver,
        hansard.connect(f"{pair.receiver}-x", data_dir=home) as other,
    ):
        options = {"to": pair.receiver, "as_": "plain"}
        shares = giver.noun(Shares)
        with pytest.raises(NotFound, match="workspace 'nowhere'"):
            shares.grant([pair.run], to="nowhere", as_="plain")
        with pytest.raises(BadValue, match="has no rules"):
            shares.grant([pair.run], to=pair.receiver, as_="nobody")
        with pytest.raises(BadValue, match="key of hashed values"):
            shares.grant([pair.run], to=pair.receiver, as_="reviewer")
        with pytest.raises(BadValue, match="has passed; give a later time"):
            shares.grant([pair.run], until="2020-01-01T00:00:00Z", **options)
        with pytest.raises(BadValue, match="is this workspace; name the workspace"):
            shares.grant([pair.run], to=pair.giver, as_="plain")
        ended = ShareGranted(
            workspace=pair.giver,
            to=pair.receiver,
            role="plain",
            runs=(pair.run,),
            until="2020-01-01T00:00:00+00:00",
        )

        async def end(opened):
            stream = WorkspaceStream(SHARE, "ended")
            await opened.repository.record(stream, "ann", lambda _: [ended])

        in_workspace(home, pair.giver, end)
        in_workspace(home, pair.receiver, end)
        with pytest.raises(Refused, match="not in force: ended at 2020"):
            receiver.noun(Shares).read("ended", pair.run)
        made = shares.grant([pair.run], until="2099-01-01T00:00:00Z", **options)
        assert receiver.noun(Shares).read(made.grant, pair.run).events
        forged = ShareGranted(
            workspace=pair.giver, to=f"{pair.receiver}-x", role="auditor", runs=(pair.run,)
        )
        for grant in (made.grant, "forged"):

            async def forge(opened, grant=grant):
                stream = WorkspaceStream(SHARE, grant)
                await opened.repository.record(stream, "eve", lambda _: [forged])

            in_workspace(home, f"{pair.receiver}-x", forge)
            with pytest.raises(NotFound):
                other.noun(Shares).read(grant, pair.run)


def test_a_grant_that_was_killed_between_both_records_is_completed(pair, home):
    """With the grant, or its withdrawal, in the giver's record alone, a repetition completes it."""
    with hansard.connect(pair.giver, data_dir=home) as giver:
        shares = giver.noun(Shares)
        made = shares.grant([pair.run], to="held", as_="plain")
        held = [each for each in log_of(home, "held") if made.grant in str(each.stream)]
        assert len(held) == 1
        half = ShareGranted(workspace=pair.giver, to=pair.receiver, role="plain", runs=(pair.run,))
        options = {"to": pair.receiver, "as_": "plain"}
        grant = shares.grant([pair.run], **options).grant
        shares.withdraw(grant)

        async def begin(opened):
            await opened.repository.append(WorkspaceStream(SHARE, grant), "ann", half)

        in_workspace(home, pair.giver, begin)
        with hansard.connect(pair.receiver, data_dir=home) as receiver:
            (theirs,) = receiver.noun(Shares).list()
            assert theirs.ended == "withdrawn"
            again = shares.grant([pair.run], **options)
            assert (again.grant, again.is_new) == (grant, True)
            assert not shares.grant([pair.run], **options).is_new
            (theirs,) = receiver.noun(Shares).list()
            assert theirs.ended == ""


@pytest.mark.later
def test_the_commands_of_grants(pair, home):
    """`hansard share` grants, lists, reads and withdraws."""

    def call(workspace: str, *arguments: str, code: int = 0) -> str:
        argv = ["-m", "hansard", "-w", workspace, "share", *arguments]
        done = python_run(argv, cwd=home, env=environment(home), timeout=170)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    argv = ["grant", pair.run, "--to", pair.receiver, "--as", "plain", "--json"]
    grant = json.loads(call(pair.giver, *argv))["grant"]
    assert grant in call(pair.receiver, "list", "--json")
    assert "step.completed.v1" in call(pair.receiver, "read", grant, pair.run, "--json")
    shown = call(pair.receiver, "read", grant, pair.run[:-2])
    assert "step.completed.v1" in shown
    assert "Line(" not in shown
    assert "object at 0x" not in shown
    assert "grant 'x' was not found" in call(pair.receiver, "read", "x", pair.run, code=2)
    assert "workspace 'nowhere' was not found" in call("nowhere", "list", code=2)
    call(pair.giver, "withdraw", grant)
    for workspace in (pair.giver, pair.receiver):
        argv = ["-m", "hansard", "-w", workspace, "check"]
        checked = python_run(argv, cwd=home, env=environment(home), timeout=170)
        assert checked.returncode == 0, checked.stdout
    assert "withdrawn" in call(pair.receiver, "read", grant, pair.run, code=2)


READ = """
import sys
import hansard
from hansard.ext.share.grants import Shares
with hansard.connect() as record:
    print([line.type for _, line in record.noun(Shares).read(sys.argv[1], sys.argv[2]).events])
"""


@pytest.mark.slow
def test_a_restricted_agent_reads_if_its_role_may(tmp_path):
    """The service of the receiver reads for an agent whose role may, and is cleared for it."""
    home = tmp_path / "data"
    roles = '[roles.{}]\nclearance = "{}"\n[roles.{}.may]\nkinds = ["{}"]\n'
    with (
        hansard.connect("lab", data_dir=home) as lab,
        hansard.connect("team", data_dir=home) as team,
    ):
        (tmp_path / "roles.toml").write_text(
            '[roles.all]\nclearance = "secret"\n[[roles.all.sees]]\nname = "all"\nkinds = ["**"]\n'
        )
        lab.roles.apply_file(tmp_path / "roles.toml")
        run = work(lab)
        spy(lab, run)  # under the label secret
        (tmp_path / "team.toml").write_text(
            roles.format("reader", "secret", "reader", "share.read")
            + roles.format("public", "public", "public", "share.read")
            + roles.format("other", "secret", "other", "message.added")
        )
        team.roles.apply_file(tmp_path / "team.toml")
        grant = lab.noun(Shares).grant([run], to="team", as_="all").grant
        variables = environment(home) | {"HANSARD_WORKSPACE": "team"}
        up = [sys.executable, "-m", "hansard", "up", "--json"]
        service = subprocess.Popen(up, env=variables, stdout=subprocess.PIPE, text=True)
        try:
            assert service.stdout is not None
            assert '"kind":"up"' in service.stdout.readline()
            said = {}
            for role in ("reader", "public", "other"):
                login = str(tmp_path / f"{role}.json")
                argv = ["credentials", role, "--name", f"agent-{role}", "-o", login]
                made = python_run(
                    ["-m", "hansard", *argv], cwd=tmp_path, env=variables, timeout=170
                )
                assert made.returncode == 0, made.stderr
                own = variables | {"HANSARD_CREDENTIALS": login}
                done = python_run(["-c", READ, grant, run], cwd=tmp_path, env=own, timeout=170)
                said[role] = done.stdout + done.stderr
        finally:
            service.terminate()
            service.communicate(timeout=60)
        assert "step.completed.v1" in said["reader"], said
        assert "NotFound" in said["public"], said
        assert HIDDEN not in said["public"]
        assert "RoleRefused" in said["other"], said
