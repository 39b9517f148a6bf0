"""What `hansard up` serves: SQL of a role's own tables, and the status that says so."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

import hansard
from hansard.bus.server.lease import join
from tests.cli.support import ran
from tests.service.support import ALL, House, Served
from tests.service.test_kills import up

pytestmark = pytest.mark.thorough

Status = Callable[[], dict[str, Any]]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A record of its own: `hansard up` projects each workspace that other tests have made."""
    folder = tmp_path_factory.mktemp("broker")
    with join(folder):
        yield folder


@pytest.fixture
def status(
    other: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Status]:
    """What `hansard status --json` says of the workspace."""
    where = ("--data-dir", other.data_dir, "--workspace", other.workspace)

    def told() -> dict[str, Any]:
        lines = ran(capsys, monkeypatch, ["status", "--json", *where]).lines
        return next(line for line in lines if line["kind"] == "workspace")

    yield told
    structlog.reset_defaults()


@pytest.mark.thorough(
    quick="tests/service/test_replays.py::test_a_role_that_may_query_is_told_what_it_saved"
)
@pytest.mark.long
def test_sql(data_dir: Path, tmp_path: Path) -> None:
    """A role that may query asks its own tables, and no others; one that may not is told so."""
    other = Served(data_dir, "sql", tmp_path)
    other.apply(ALL)
    other.apply(ALL.replace("writer", "reader").replace("query = true", ""))
    other.login("bob", "reader")
    other.login("ada")
    with other.trusted() as record, record.run("w", run="hidden", agent="eve") as eve:
        eve.message("user", "planted-4711")
    other.begin()
    try:
        with other.connect() as record:
            with record.run("w", run="r1") as session:
                session.message("user", "seen")
            found = record.sql(
                "SELECT count(*) AS messages FROM messages WHERE message_role = ?", "user"
            )
            assert (found.columns, found.rows) == (["messages"], [(2,)])  # this role sees all
            assert found.position > 0
            with pytest.raises(hansard.HansardError, match="nowhere"):
                record.sql("SELECT * FROM nowhere")
            with pytest.raises(hansard.HansardError):
                record.sql("COPY (SELECT 1) TO '/tmp/planted'")
            with pytest.raises(hansard.BadValue, match="LIMIT"):
                record.sql("SELECT repeat('x', 10000000)")
        with other.connect("bob", "reader") as record, pytest.raises(hansard.Blocked):
            record.sql("SELECT 1")
    finally:
        other.end()


@pytest.mark.thorough(quick="tests/service/test_fairness.py::test_a_service_that_hangs_is_told")
def test_the_status_says_whether_a_service_answers(other: House, status: Status) -> None:
    """One that is there and says nothing is not told as none."""
    with other.trusted():
        assert status()["served"] is False
        with up(other) as process:
            assert status()["served"] is True
            process.send_signal(signal.SIGSTOP)
            assert status()["served"] is None
            process.send_signal(signal.SIGCONT)
            assert status()["served"] is True
        assert status()["served"] is False
