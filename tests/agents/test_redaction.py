"""Redaction: no stored data has a secret; a live call gets it from a provider."""

import base64
import re
from pathlib import Path

import pytest

import hansard
from hansard import Secret
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.fast(cases=99, slow=0)
"""Client-independent tests: a single sync-client case is in the quick run."""

SECRET = "sk-hunter2-hunter2"
PIN = re.compile(r"PIN-\d{4}")


async def _stored(record, run) -> bytes:
    """Return every stored byte of a run: all commits, all blobs, with base64 decoded."""
    bodies = [stored.body for stored in await record.commits(run)]
    head = await record.io(record.raw.workspace.log.head())
    bodies += [(await record.io(record.raw.workspace.log.at(i))).body for i in range(1, head + 1)]
    raw = b"\n".join(bodies)
    for sha256, size in set(re.findall(rb'"sha256":"([0-9a-f]{64})","size":(\d+)', raw)):
        raw += await record.io(record.raw.workspace.blobs.get(sha256.decode(), int(size)))
    for encoded in re.findall(rb'"\$bytes(?:array)?":"([^"]*)"', raw):
        raw += base64.b64decode(encoded)
    return raw


@pytest.mark.slow(cases=1)
async def test_a_secret_is_in_no_stored_byte(lab: Lab):
    """The secret's text is in no argument, result, error, usage, reason, label or blob."""
    options = {"redact": {"key": SECRET, "pin": PIN}}
    async with lab.connect(**options) as record:

        def refuse(request):
            return f"not with {SECRET}" if request.tool == "blocked" else None

        with pytest.raises(TimeoutError):
            labels = {"key": SECRET}
            async with record.run(
                "use", run="r", gate=[refuse], labels=labels, program=f"by {SECRET}"
            ) as session:

                @session.tool(effects="pure")
                async def echo(*values, **named):
                    return [*values, named]

                @session.tool(effects="pure")
                async def fail(text: str) -> None:
                    raise ValueError(text, SECRET, {"pin": "PIN-1234"})

                @session.tool(effects="pure")
                async def long(text: str) -> None:
                    raise ValueError(text)

                @session.tool(effects="pure")
                async def items(text: str):
                    yield SECRET
                    yield f"it is {text}!"

                @session.tool(effects="once")
                async def blocked(text: str) -> None: ...

                @session.tool(effects="once")
                async def lost(text: str) -> None:
                    raise TimeoutError(SECRET)

                assert await echo(SECRET) == [SECRET, {}]
                await echo(f"Bearer {SECRET}", ("PIN-9999",), {"deep": [{SECRET + "!": 1}]})
                await echo(SECRET.encode(), bytearray(f"x{SECRET}".encode()), Path(f"/x/{SECRET}"))
                await echo("y" * 100_000 + SECRET, named=SECRET)
                await echo({SECRET}, frozenset([SECRET]), {1: SECRET})
                with pytest.raises(ValueError, match=SECRET):
                    await fail(SECRET)
                with pytest.raises(ValueError, match="xxx"):  # the stored text ends in the secret
                    await long("x" * 7_990 + SECRET)
                assert [item async for item in items(SECRET)] == [SECRET, f"it is {SECRET}!"]
                with pytest.raises(hansard.Blocked):
                    await blocked("x")
                await session.checkpoint("c", key=SECRET, large="z" * 80_000 + SECRET)
                await session.message("user", f"my key: {SECRET}", fields={"name": SECRET})
                await session.decide(
                    f"use {SECRET}?", selected=SECRET, reason=SECRET, alternatives=[SECRET],
                    inputs=[f"it is {SECRET}!"],
                )  # fmt: skip
                with pytest.raises(hansard.BadValue, match="returned by no call") as refused:
                    await session.decide("which?", selected="x", inputs=[f"not {SECRET}"])
                assert SECRET not in str(refused.value)
                await session.resource(f"https://x/?key={SECRET}", SECRET)
                await session.resource(SECRET, "PIN-0001")
                await session.hand_off("bob", {"key": SECRET}, reason=f"PIN-1111 {SECRET}")
                await lost(SECRET)
        step = next(s for s in await record.steps("r") if s.tool == "lost")
        await record.settle(
            "r", f"{step.number}", "happened", result=SECRET, reason=f"seen {SECRET}"
        )
        await record.fork("r", labels={"note": f"see {SECRET}"})
        raw = await _stored(record, "r")
    assert b"y" * 100_000 in raw  # the blobs were checked, too
    assert SECRET[:8].encode() not in raw
    assert not PIN.search(raw.decode(errors="replace"))
    assert raw.count(b"<secret:key>") > 10
    assert raw.count(b'{"$secret":"key"}') > 5


async def test_a_redacted_call_is_the_same_call(record: TwinRecord):
    """The fingerprint holds the secret's name: a rotated key, or none, replays the old calls."""
    ran = []
    rotated = "sk-rotated-rotated"
    for key, mode in ((SECRET, None), (rotated, None), (rotated, "strict")):
        async with record.run(run="r", redact={"key": key}, mode=mode) as session:

            @session.tool(effects="once")
            async def call(key: str, header: str) -> str:
                ran.append(key)
                return f"{key} is fine"

            await call(key, f"Bearer {key}")
    async with record.run(run="r", mode="offline") as session:

        @session.tool(effects="once")
        async def call(key: object, header: str) -> str:
            raise AssertionError

        assert await call(Secret("key"), "Bearer <secret:key>") == "<secret:key> is fine"
    assert ran == [SECRET]


@pytest.mark.parametrize("provider", [{"key": SECRET}, {"key": SECRET}.get])
async def test_a_provider_gives_a_secret_back(lab: Lab, provider):
    """A tool called with a Secret gets its value at any depth; the record has its name."""
    async with lab.connect(secrets=provider, redact={"key": SECRET}) as record:
        async with record.run(run="r") as session:

            @session.tool(effects="once")
            async def call(key: str, nested: dict) -> str:
                assert nested == {"a": [SECRET, (SECRET,)]}
                return key

            assert await call(Secret("key"), {"a": [Secret("key"), (Secret("key"),)]}) == SECRET

            @session.tool(effects="once")
            async def items(key: str):
                yield key

            assert [item async for item in items(Secret("key"))] == [SECRET]
        async with record.run(run="r", mode="resume") as session:

            @session.tool(effects="once")
            async def call(key: str, nested: dict) -> str:
                assert nested == {"a": [SECRET, (SECRET,)]}
                return key

            back = await call(Secret("key"), {"a": [Secret("key"), (Secret("key"),)]})
            assert back == Secret("key")
        assert SECRET.encode() not in await _stored(record, "r")


@pytest.mark.fast(cases=3, slow=0)
@pytest.mark.parametrize("provider", [None, {}, lambda name: None])
@pytest.mark.parametrize("stream", [False, True])
async def test_without_a_provider_nothing_runs(lab: Lab, provider, stream):
    """A live call whose secret has no provider leaves no intent, effect or budget use."""
    rules = [hansard.budget("one", 1)]
    async with lab.connect(secrets=provider, gate=rules) as record, record.run(run="r") as session:

        @session.tool(effects="once")
        async def call(key: object) -> str:
            assert key == "plain"
            return "done"

        @session.tool(effects="once")
        async def items(key: object):
            assert key is None
            yield key

        with pytest.raises(
            hansard.errors.SecretUnavailable, match="needs the secret 'key'"
        ) as error:
            if stream:
                _ = [item async for item in items(Secret("key"))]
            else:
                await call(Secret("key"))
        assert error.value.name == "key"
        assert session.state.steps == {}
        assert await call("plain") == "done"


def test_a_secret_too_short_to_look_for_is_refused(record):
    """A short text would be found by chance: refused, with the way to pass it."""
    with (
        pytest.raises(hansard.BadValue, match=r"pass hansard\.Secret\('pin'\)") as refusal,
        record.run("w", redact={"pin": "1234"}),
    ):
        raise AssertionError
    assert "1234" not in str(refusal.value)
    assert record.runs() == []


async def test_an_encoded_form_passes(record: TwinRecord):
    """Redaction finds the configured text, as the README says; encoded forms must be added."""
    form = base64.b64encode(SECRET.encode()).decode()
    for run, redact in (("r", {"key": SECRET, "form": form}), ("s", {"key": SECRET})):
        async with record.run(run=run, redact=redact) as session:
            await session.message("user", f"Basic {form}")
        assert (form.encode() in await _stored(record, run)) is (run == "s")
        assert SECRET.encode() not in await _stored(record, run)
