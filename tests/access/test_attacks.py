"""Attacks by restricted credentials: the server refuses each, and a trusted login may do it."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.broker import access
from hansard.broker.logins import permissions
from hansard.bus import subjects
from hansard.domain.errors import BadName
from tests.access.support import PLANTED, Lab, credentials, eventually

pytestmark = pytest.mark.later

LOG = "hansard_log-lab"
LIFE = "hansard.lab.run.r1.life.1"
BOB = "_INBOX_" + "b" * 32


class Attack(msgspec.Struct, frozen=True, kw_only=True):
    """A message refused to a restricted login; `answers`, `admin`: to whom else it is not."""

    subject: str
    body: Any = None
    headers: dict[str, str] | None = None
    answers: bool = True
    admin: bool = False

    @property
    def data(self) -> bytes:
        """Data to send."""
        return b"" if self.body is None else json.dumps(self.body).encode()


def _consumer(name: str, **config: Any) -> dict[str, Any]:
    return {"stream_name": LOG, "config": {"name": name, "ack_policy": "none", **config}}


def _stream(name: str, **config: Any) -> dict[str, Any]:
    return {"name": name, "num_replicas": 1, "storage": "memory", **config}


API = "$JS.API"
EXPECT = "Nats-Expected-Last-Subject-Sequence"

ATTACKS = {
    "direct get by subject": Attack(subject=f"{API}.DIRECT.GET.{LOG}.{LIFE}"),
    "direct get by a wildcard": Attack(subject=f"{API}.DIRECT.GET.{LOG}.hansard.lab.>"),
    "direct get by number": Attack(subject=f"{API}.DIRECT.GET.{LOG}", body={"seq": 1}),
    "direct get, last of a subject": Attack(
        subject=f"{API}.DIRECT.GET.{LOG}", body={"last_by_subj": LIFE}
    ),
    "multi get": Attack(
        subject=f"{API}.DIRECT.GET.{LOG}", body={"multi_last": ["hansard.lab.run.>"]}
    ),
    "batch get": Attack(
        subject=f"{API}.DIRECT.GET.{LOG}",
        body={"seq": 1, "batch": 100, "next_by_subj": "hansard.lab.>"},
    ),
    "message get": Attack(subject=f"{API}.STREAM.MSG.GET.{LOG}", body={"seq": 1}),
    "account info": Attack(subject=f"{API}.INFO"),
    "stream info": Attack(subject=f"{API}.STREAM.INFO.{LOG}"),
    "stream info with subjects": Attack(
        subject=f"{API}.STREAM.INFO.{LOG}", body={"subjects_filter": "hansard.lab.>"}
    ),
    "stream list": Attack(subject=f"{API}.STREAM.LIST", body={}),
    "stream names": Attack(subject=f"{API}.STREAM.NAMES", body={"subject": "hansard.lab.>"}),
    "consumer, one filter": Attack(
        subject=f"{API}.CONSUMER.CREATE.{LOG}.c1.hansard.lab.run.r1.>",
        body=_consumer("c1", filter_subject="hansard.lab.run.r1.>"),
    ),
    "consumer, several filters": Attack(
        subject=f"{API}.CONSUMER.CREATE.{LOG}.c2",
        body=_consumer("c2", filter_subjects=["hansard.lab.run.>", "hansard.lab.role.>"]),
    ),
    "consumer, a wildcard": Attack(
        subject=f"{API}.CONSUMER.CREATE.{LOG}.c3.hansard.>",
        body=_consumer("c3", filter_subject="hansard.>"),
    ),
    "consumer, old form": Attack(
        subject=f"{API}.CONSUMER.DURABLE.CREATE.{LOG}.c4",
        body={"stream_name": LOG, "config": {"durable_name": "c4", "ack_policy": "explicit"}},
    ),
    "consumer, pushed to a subject of its own": Attack(
        subject=f"{API}.CONSUMER.CREATE.{LOG}.c5",
        body=_consumer("c5", deliver_subject="svc.lab.writer.ada.loot"),
    ),
    "consumer list": Attack(subject=f"{API}.CONSUMER.LIST.{LOG}", body={}),
    "consumer names": Attack(subject=f"{API}.CONSUMER.NAMES.{LOG}", body={}),
    "consumer info": Attack(subject=f"{API}.CONSUMER.INFO.{LOG}.c"),
    "consumer delete": Attack(subject=f"{API}.CONSUMER.DELETE.{LOG}.c"),
    "pull": Attack(subject=f"{API}.CONSUMER.MSG.NEXT.{LOG}.c", body={"batch": 9}, answers=False),
    "acknowledge for others": Attack(subject=f"$JS.ACK.{LOG}.c.1.1.1.1.0", answers=False),
    "flow control of others": Attack(subject=f"$JS.FC.{LOG}.c.x", answers=False),
    "mirror": Attack(
        subject=f"{API}.STREAM.CREATE.M", body=_stream("M", mirror={"name": LOG}), admin=True
    ),
    "source": Attack(
        subject=f"{API}.STREAM.CREATE.S", body=_stream("S", sources=[{"name": LOG}]), admin=True
    ),
    "republish to its own inbox": Attack(
        subject=f"{API}.STREAM.UPDATE.{LOG}",
        body=_stream(LOG, republish={"src": ">", "dest": "_INBOX_a.>"}),
        admin=True,
    ),
    "delete the stream": Attack(subject=f"{API}.STREAM.DELETE.none", admin=True),
    "purge the stream": Attack(subject=f"{API}.STREAM.PURGE.none", body={}, admin=True),
    "delete a message": Attack(
        subject=f"{API}.STREAM.MSG.DELETE.{LOG}", body={"seq": 1}, admin=True
    ),
    "snapshot": Attack(subject=f"{API}.STREAM.SNAPSHOT.none", body={}, admin=True),
    "key value, make a bucket": Attack(
        subject=f"{API}.STREAM.CREATE.KV_loot",
        body=_stream("KV_loot", subjects=["$KV.loot.>"]),
        admin=True,
    ),
    "key value, put": Attack(subject="$KV.loot.key", body="x", answers=False),
    "object store, put": Attack(subject="$O.loot.C.1", body="x", answers=False),
    "write a commit": Attack(subject="hansard.lab.run.r1.life.99", body={}, headers={EXPECT: "77"}),
    "write another role": Attack(subject="hansard.lab.role.writer.99", headers={EXPECT: "77"}),
    "a condition as an oracle": Attack(
        subject="hansard.lab.run.mine.life.1",
        headers={EXPECT: "1", f"{EXPECT}-Subject": "hansard.lab.run.r1.>"},
    ),
    "the same oracle under its own requests": Attack(
        subject="svc.lab.writer.bob.open",
        headers={EXPECT: "1", f"{EXPECT}-Subject": "hansard.lab.run.r1.>"},
        answers=False,
    ),
    "a batch that another began": Attack(
        subject="hansard.lab.run.mine.life.1",
        headers={"Nats-Batch-Id": "x", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"},
    ),
    "a false wake-up": Attack(subject=f"live.{LIFE}", answers=False),
    "a blob": Attack(subject=f"{API}.DIRECT.GET.hansard_blob-lab", body={"seq": 1}),
    "a snapshot of states": Attack(subject=f"{API}.DIRECT.GET.hansard_snap-lab", body={"seq": 1}),
    "write a blob": Attack(subject="hansard_blob.lab.x.0", answers=False),
    "another workspace's log": Attack(
        subject=f"{API}.DIRECT.GET.hansard_log-lab2", body={"seq": 1}
    ),
    "a look-alike's log": Attack(subject=f"{API}.DIRECT.GET.hansard_log-lab-2", body={"seq": 1}),
    "another workspace's service": Attack(subject="svc.lab2.writer.ada.open", answers=False),
    "a look-alike's service": Attack(subject="svc.lab-2.writer.ada.open", answers=False),
    "another role's requests": Attack(subject="svc.lab.writers.ada.open", answers=False),
    "another principal's requests": Attack(subject="svc.lab.writer.bob.open", answers=False),
    "a principal that begins alike": Attack(subject="svc.lab.writer.ada2.open", answers=False),
    "the service itself": Attack(subject="svc.lab.writer", answers=False),
    "another's inbox": Attack(subject=f"{BOB}.1", answers=False),
    "the runtime's inboxes": Attack(subject="_INBOX.x.1", answers=False),
    "system, servers": Attack(subject="$SYS.REQ.SERVER.PING", answers=False),
    "system, connections": Attack(subject="$SYS.REQ.ACCOUNT.HANSARD.CONNZ", answers=False),
    "system, who am I": Attack(subject="$SYS.REQ.USER.INFO"),
    "system, reload": Attack(subject="$SYS.REQ.SERVER.x.RELOAD", answers=False),
}


@pytest.mark.fast(cases=20)
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_a_message_that_only_a_trusted_login_may_send(lab: Lab, attack: Attack):
    """The server refuses it to the restricted login, which learns nothing else; nothing changes."""
    async with lab.trusted() as runtime:
        before = await runtime.request(f"{API}.STREAM.INFO.{LOG}")
        async with lab.restricted() as caller:
            answer = await caller.request(attack.subject, attack.data, attack.headers)
            assert answer.refused is not None
            assert "publish" in answer.refused
            assert answer.data is None
        after = await runtime.request(f"{API}.STREAM.INFO.{LOG}")
        assert _state(before.data) == _state(after.data)


@pytest.mark.fast(cases=20, slow=0)
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_the_same_message_from_a_trusted_login_goes_through(lab: Lab, attack: Attack):
    """The server accepts each message refused above when a trusted login sends it."""
    async with lab.trusted(admin=attack.admin) as caller:
        answer = await caller.request(attack.subject, attack.data, attack.headers)
        assert answer.refused is None
        assert (answer.data is not None) >= attack.answers
        if "STREAM.CREATE" in attack.subject:
            await caller.request(attack.subject.replace("CREATE", "DELETE"))


def _state(data: bytes | None) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(data or b"{}")["state"]
    return {name: state[name] for name in ("messages", "last_seq", "num_subjects")}


SUBSCRIPTIONS = [
    ">",
    "*.>",
    "hansard.>",
    "hansard.lab.>",
    "live.>",
    f"live.{LIFE}",
    "svc.>",
    "svc.lab.writer.ada.>",
    "svc.lab.writer.ada.open",
    "_INBOX.>",
    "_INBOX_*.>",
    f"{BOB}.>",
    "$JS.>",
    "$JS.EVENT.>",
    "$JS.API.>",
    "$SYS.>",
    "$KV.>",
    "$O.>",
    "hansard_blob.>",
    "_R_.>",
]


@pytest.mark.fast(cases=10, slow=10)
@pytest.mark.parametrize("queue", ["", "q"])
@pytest.mark.parametrize("subject", SUBSCRIPTIONS)
async def test_a_subscription_that_only_a_trusted_login_may_make(lab, subject, queue):
    """The restricted login hears nothing there; a trusted one may listen."""
    async with lab.restricted() as caller, lab.trusted() as trusted:
        heard, refused = await caller.listen(subject, queue)
        assert refused is not None
        assert "subscription" in refused
        _, allowed = await trusted.listen(subject, queue)
        assert allowed is None
        await trusted.client.publish(LIFE.replace("hansard", "live", 1), b"x")
        await trusted.client.publish(f"{BOB}.1", b"x")
        await trusted.flush()
        await asyncio.sleep(0.02)
        assert heard == []


async def test_the_inbox_as_such_and_what_is_beside_it_are_not_its_own(lab: Lab):
    """Only subjects below its inbox are its own."""
    async with lab.restricted() as caller:
        assert (await caller.listen(lab.ada.inbox))[1] is not None
        assert (await caller.listen(f"{lab.ada.inbox}x.>"))[1] is not None
        assert (await caller.listen(f"{lab.bob.inbox}.>"))[1] is not None
        assert (await caller.listen(f"{lab.ada.inbox}.>"))[1] is None


async def test_it_may_ask_the_service_and_hear_its_answer(lab: Lab):
    """A login may send a request under its own name and read the answer in its own inbox."""
    async with lab.trusted() as service, lab.restricted() as caller:

        async def answer(message: Any) -> None:
            await message.respond(b"answer to " + message.subject.encode())

        await service.client.subscribe("svc.lab.>", cb=answer)
        await service.flush()
        reply_message = await caller.request("svc.lab.writer.ada.open", b"x")
        assert reply_message.data == b"answer to svc.lab.writer.ada.open"


REPLIES = [f"live.{LIFE}", f"{BOB}.1", "_INBOX.x.1", "svc.lab.writer.bob.open"]


@pytest.mark.fast(cases=2)
@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("reply", REPLIES)
async def test_a_service_must_not_answer_to_any_reply_subject(lab: Lab, reply: str, checks: bool):
    """With `may_answer` a service sends no answer where the restricted login may not write."""
    async with lab.trusted() as service, lab.trusted() as witness, lab.restricted() as caller:
        done: asyncio.Queue[str] = asyncio.Queue()

        async def answer(message: Any) -> None:
            if not checks or access.may_answer(lab.ada.inbox, message.reply):
                await message.respond(b"{}")
                await service.flush()
            await done.put(message.reply)

        heard, _ = await witness.listen(reply)
        await service.client.subscribe("svc.lab.writer.ada.>", cb=answer)
        await service.flush()
        await caller.request("svc.lab.writer.ada.open", b"x", reply=reply)
        assert await asyncio.wait_for(done.get(), 5) == reply
        await eventually(lambda: checks or heard)
        await witness.flush()
        await asyncio.sleep(0.05)
        assert len(heard) == (0 if checks else 1)
        received = await caller.request("svc.lab.writer.ada.open", b"x")
        assert received.data == b"{}"


async def test_without_a_service_nothing_is_written_to_the_reply_subject(lab: Lab):
    """The server's own no-responders answer does not go to a stream either."""
    async with lab.trusted() as runtime, lab.restricted() as caller:
        before = await runtime.request(f"{API}.STREAM.INFO.{LOG}")
        await caller.request("svc.lab.writer.ada.none", b"x", reply="hansard.lab.run.mine.life.1")
        after = await runtime.request(f"{API}.STREAM.INFO.{LOG}")
        assert _state(before.data) == _state(after.data)


@pytest.mark.parametrize("only", ["0", "1"])
async def test_a_traced_message_writes_nothing_to_the_trace_subject(lab: Lab, only: str):
    """The server does not publish traces for a login that may not publish there itself."""
    traced = {"Nats-Trace-Dest": "hansard.lab.run.traced.life.1", "Nats-Trace-Only": only}
    async with lab.trusted() as runtime, lab.restricted() as caller:
        before = await runtime.request(f"{API}.STREAM.INFO.{LOG}")
        await caller.request("svc.lab.writer.ada.open", b"x", traced)
        await asyncio.sleep(0.05)
        after = await runtime.request(f"{API}.STREAM.INFO.{LOG}")
        assert _state(before.data) == _state(after.data)


async def test_nothing_of_the_record_reaches_it_while_others_work(lab: Lab):
    """Whatever the runtime writes and reads, the restricted connection receives not one message."""
    async with lab.restricted() as caller, lab.trusted() as runtime:
        heard, _ = await caller.listen(f"{lab.ada.inbox}.>")
        got = await runtime.request(
            f"{API}.DIRECT.GET.{LOG}", b'{"multi_last":["hansard.lab.>"],"max_bytes":1000000}'
        )
        assert got.data is not None
        answer = await runtime.request(
            f"{API}.DIRECT.GET.{LOG}", b'{"last_by_subj":"hansard.lab.run.r1.agent.boss.eve.>"}'
        )
        assert answer.data is not None
        assert heard == []
        assert caller.client.stats["in_msgs"] == 0


# ---------------------------------------------------------------- hostile names

HOSTILE = ["*", ">", "ada.>", "a.b", "a=2Eb", " ", "writer.ada", "ädä", "..", "$SYS", 'a"b#{x}']


@pytest.mark.fast(cases=4)
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_name_is_one_token_whatever_it_looks_like(lab: Lab, name: str):
    """A principal called like a wildcard reaches its own subjects and no others."""
    own = await credentials(lab.data_dir, lab.folder, name)
    async with lab.restricted(own) as caller:
        mine = f"svc.lab.writer.{subjects.token(name)}.open"
        assert (await caller.request(mine)).refused is None
        for other in ("svc.lab.writer.ada.open", "svc.lab.writer.x", "hansard.lab.run.r1.life.9"):
            assert (await caller.request(other)).refused is not None
        assert (await caller.listen(f"{lab.ada.inbox}.>"))[1] is not None


def _matches(pattern: str, subject: str) -> bool:
    """Return whether a subject matches a pattern, by NATS's rules."""
    parts, tokens = pattern.split("."), subject.split(".")
    for at, part in enumerate(parts):
        if part == ">":
            return len(tokens) > at
        if at >= len(tokens) or part not in ("*", tokens[at]):
            return False
    return len(parts) == len(tokens)


_names = st.text(st.sampled_from('ab.*>=2E-_ "ä$'), min_size=1, max_size=6)
_workspaces = st.sampled_from(["lab", "lab2", "lab-2", "l", "a"])
_who = st.tuples(_workspaces, _names, _names)


@given(_who, _who)
def test_what_one_may_publish_is_never_what_another_may(one, other):
    """The subjects of two different principals, roles or workspaces do not meet."""
    inbox = subjects.restricted_inbox("a" * 32)
    workspace, role, principal = one
    allowed = permissions(workspace, role, principal, inbox)
    subject = f"{subjects.requests(*other)}.open"
    assert any(_matches(pattern, subject) for pattern in allowed.publish) == (one == other)
    assert not any(_matches(p, subject) for p in allowed.subscribe)
    assert all(pattern.count(">") == 1 and "*" not in pattern for pattern in allowed.publish)


@pytest.mark.slow
@given(st.text(max_size=40), st.sampled_from(["", ".", "x", ".a", ".a.b", ".*", ".>", ". ", "..a"]))
def test_an_answer_goes_below_the_inbox_and_nowhere_else(text, tail):
    """`may_answer` accepts subjects below the inbox, without wildcards."""
    inbox = subjects.restricted_inbox("a" * 32)
    assert not access.may_answer(inbox, text)
    assert access.may_answer(inbox, inbox + tail) == (tail in {".a", ".a.b"})
    assert not access.may_answer("_INBOX", "_INBOX.a")


@pytest.mark.parametrize("inbox", ["_INBOX", "_INBOX.a", ">", "hansard", "_INBOX_" + "A" * 32, ""])
def test_permissions_are_for_restricted_inboxes_only(inbox):
    """No mistake of a caller gives a login the inboxes of others."""
    with pytest.raises(ValueError, match="is not an inbox"):
        permissions("lab", "writer", "ada", inbox)
    with pytest.raises(BadName):
        permissions("lab.>", "writer", "ada", subjects.restricted_inbox("a" * 32))


def test_the_secret_is_in_the_log_files(lab: Lab):
    """The log's files contain the secret that the attacks try to read."""
    files = [path for path in lab.data_dir.rglob("*") if path.is_file() and path.suffix == ".blk"]
    assert any(PLANTED.encode() in path.read_bytes() for path in files)
