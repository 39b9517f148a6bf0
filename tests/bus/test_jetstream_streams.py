"""Streams of a workspace: made once, checked, and protected from agents."""

from pathlib import Path

import pytest

from hansard.bus import subjects
from hansard.bus.errors import BrokerError, Contradiction
from hansard.bus.jetstream import open_log
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import api
from hansard.bus.jetstream.streams import compare, ensure, log_config
from hansard.bus.marks import ACCEPTED
from hansard.domain.errors import Corrupt
from hansard.domain.ids import KeyStream
from tests.bus.brokers import Nats, append, running

KEY = KeyStream("r1", "plan")


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory):
    """Yield one server for these tests, each of which has a workspace of its own."""
    with running(tmp_path_factory.mktemp("nats")) as server:
        yield server


async def test_made_once(nats: Nats):
    """Opening again changes nothing, also without rights to administer."""
    first = await nats.log("once")
    await first.append(append(KEY))
    second = await open_log(nats.options(), "once", "strict")
    assert len(await second.read(KEY)) == 1
    await first.close()
    await second.close()


async def test_runtime_creates_nothing(nats: Nats):
    """Without rights to administer, a new workspace is refused at once, with the reason."""
    with pytest.raises(BrokerError, match=r"(?i)permissions violation"):
        await open_log(nats.options(), "refused", "strict")


@pytest.mark.parametrize(
    ("setting", "value"),
    [("max_msgs_per_subject", 5), ("allow_atomic", False), ("max_age", 3_600_000_000_000)],
)
async def test_contradiction(nats: Nats, setting: str, value: object):
    """A stream with other settings is not used; every difference is named."""
    workspace = f"other-{setting.replace('_', '-')}"
    config = log_config(workspace)
    admin = await Broker.open(nats.options("admin"))
    changed = config | {setting: value}
    if setting == "max_msgs_per_subject":
        changed |= {"discard_new_per_subject": False}
    await api(admin, f"STREAM.CREATE.{config['name']}", changed)
    with pytest.raises(Contradiction) as contradiction:
        await ensure(admin, workspace)
    assert contradiction.value.differences[setting] == (value, config[setting])
    assert setting in str(contradiction.value)
    await admin.close()


def test_compare_ignores_what_is_the_operators():
    """Replicas, placement and metadata may differ; the server omits disabled settings."""
    config = log_config("lab")
    existing = {key: value for key, value in config.items() if value is not False}
    compare(config, existing | {"num_replicas": 3, "metadata": {"team": "x"}})
    with pytest.raises(Contradiction) as contradiction:
        compare(config, existing | {"mirror": {"name": "elsewhere"}})
    assert "mirror or sources" in contradiction.value.differences


async def test_nobody_deletes(nats: Nats):
    """The runtime user can neither delete, purge nor change; the admin cannot delete a message."""
    log = await nats.log("safe")
    await log.append(append(KEY))
    name = subjects.log_stream("safe")
    runtime = await Broker.open(nats.options())
    admin = await Broker.open(nats.options("admin"))
    config = log_config("safe")
    for call, body in (
        (f"STREAM.DELETE.{name}", None),
        (f"STREAM.PURGE.{name}", {}),
        (f"STREAM.MSG.DELETE.{name}", {"seq": 1}),
        (f"STREAM.UPDATE.{name}", config | {"max_msgs": 1, "discard": "old"}),
    ):
        with pytest.raises(BrokerError, match=r"(?i)permissions violation"):
            await api(runtime, call, body)
    for call, body, code in (
        (f"STREAM.PURGE.{name}", {}, 10110),
        (f"STREAM.MSG.DELETE.{name}", {"seq": 1}, 10057),
        (f"STREAM.UPDATE.{name}", config | {"deny_delete": False}, 10052),
    ):
        with pytest.raises(BrokerError) as refused:
            await api(admin, call, body)
        assert refused.value.code == code
    assert len(await log.read(KEY)) == 1
    for broker in (runtime, admin):
        await broker.close()
    await log.close()


async def test_accepted_commits_are_republished(nats: Nats):
    """Accepted commits are republished as wake-ups; refused ones are not."""
    log = await nats.log("live")
    heard: list[str] = []

    listener = await Broker.open(nats.options())
    await listener.listen("live.>", lambda subject, *_: heard.append(subject))
    await api(listener, "INFO")
    mine = append(KEY)
    await log.append(mine)
    await log.append(mine)
    await api(listener, "INFO")
    assert heard == [subjects.live(subjects.subject("live", KEY, 1))]
    await listener.close()
    await log.close()


async def test_two_workspaces(nats: Nats):
    """Workspaces do not see each other, also where one name begins with the other."""
    one, two = await nats.log("lab"), await nats.log("lab-2")
    await one.append(append(KEY))
    assert await two.read(KEY) == []
    assert await two.runs() == []
    assert (await two.append(append(KEY))).position == 1
    await one.close()
    await two.close()


async def test_small_max_payload(tmp_path: Path):
    """A server that cannot take a blob's chunk is refused at the start."""
    with (
        running(tmp_path, max_payload="256KB") as small,
        pytest.raises(Contradiction, match="max_payload"),
    ):
        await small.log()


@pytest.mark.parametrize("line", ["jetstream {", "  jetstream: enabled"])
async def test_no_jetstream(tmp_path: Path, line: str):
    """A server or account without JetStream is distinguished from a missing server."""
    with running(tmp_path) as nats:
        config = tmp_path / "nats.conf"
        kept = [each for each in config.read_text().splitlines() if not each.startswith(line)]
        nats.kill()
        config.write_text("\n".join(kept))
        nats.start()
        with pytest.raises(BrokerError, match=r"JetStream (is )?not enabled"):
            await nats.log()


async def test_a_log_without_its_head_or_with_a_hole_is_refused(nats: Nats):
    """The log's figures show a loss without a mark; an operator may accept it in metadata."""
    config = log_config("headless") | {"deny_delete": False, "metadata": {"owner": "team a"}}
    admin = await Broker.open(nats.options("admin"))
    await api(admin, f"STREAM.CREATE.{config['name']}", config | {"first_seq": 5})
    with pytest.raises(Corrupt, match=r"4 acknowledged commits are gone \(missing: position 1 to"):
        await nats.log("headless")
    for version in (1, 2, 3):
        await admin.request(f"hansard.headless.run.r.life.{version}", b"{}", None, 5.0)
    await api(admin, f"STREAM.MSG.DELETE.{config['name']}", {"seq": 6})
    with pytest.raises(Corrupt, match=r"5 acknowledged .* 1 to 4, 6\)") as refused:
        await nats.log("headless")
    edit = f"nats stream edit {config['name']} --metadata 'owner=team a' --metadata {ACCEPTED}=5"
    assert edit in str(refused.value)
    accepted = log_config("headless") | {"metadata": {ACCEPTED: "5"}}
    await api(admin, f"STREAM.UPDATE.{config['name']}", accepted)
    log = await nats.log("headless")
    stored = await log.append(append(KEY))
    assert stored.position == 8
    await log.close()
    await admin.close()
