"""Shared texts: repeated text is stored once, in any structure, and reads back in full."""

import random

import msgspec
import pytest

from hansard.agents.steps import payloads
from hansard.bus.log import BLOB_BYTES_MIN
from hansard.domain.ids import AgentStream
from tests.agents.twins import TwinRecord

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=99, slow=0)]

RATIO_MAX = 2.0
"""Largest ratio of stored bytes, events included, to the text."""

EVENT_BYTES_MAX = 1_300
"""Largest size of a call's events without its text (benchmarks/bench_size.py)."""

SYLLABLES = ["ka", "so", "re", "mi", "tun", "del", "ver", "san", "po", "li", "gra", "neth"]


def _text(seed: int, characters: int) -> str:
    """Return a text that is unlike any other."""
    drawn = random.Random(seed)
    words = ("".join(drawn.choices(SYLLABLES, k=drawn.randint(1, 4))) for _ in range(characters))
    made = ""
    for word in words:
        if len(made) >= characters:
            break
        made += word + " "
    return made[:characters]


def _messages(count: int, begin: int = 0, size: int = 1_500) -> list[dict[str, str]]:
    roles = ("user", "assistant", "tool")
    return [
        {"role": roles[i % 3], "content": _text(begin + i, size)}
        for i in range(begin, begin + count)
    ]


HISTORY = _text(7, 60_000)
MESSAGES = _messages(40)
OTHER = _messages(40, 1_000)
RESULT = {"rows": [{"name": _text(i, 40), "value": i} for i in range(200)]}

FORMS = {
    "a list": lambda i: MESSAGES[: i + 1],
    "messages in a dict": lambda i: {"model": "m", "messages": MESSAGES[: i + 1], "top_p": 0.5},
    "messages deeper": lambda i: {"body": {"input": [{"turns": MESSAGES[: i + 1]}, "end"]}},
    "a string that grows": lambda i: HISTORY[: 1_500 * (i + 1)],
    "a template around a history": lambda i: (
        f"{HISTORY[-4_000:-2_000]}\n{HISTORY[: 1_500 * (i + 1)]}\n{HISTORY[-2_000:]}"
    ),
    "a window over messages": lambda i: [MESSAGES[0], *MESSAGES[max(1, i - 8) : i + 1]],
    "a window over a string": lambda i: HISTORY[1_200 * i : 1_200 * i + 12_000],
    "two prompts in turn": lambda i: (MESSAGES if i % 2 else OTHER)[: i // 2 + 1],
    "a tool's result again and again": lambda i: (
        [{"role": "tool", "call": n, "content": RESULT} for n in range(i // 3 + 1)]
        + MESSAGES[: i + 1]
    ),
    "a head that changes": lambda i: f"It is {i} past nine.\n{HISTORY[: 1_500 * (i + 1)]}",
}
CALLS = 32


def _distinct(form: str) -> int:
    """Bytes of the text of a form, each part once."""
    last = FORMS[form](CALLS - 1)
    once = len(msgspec.json.encode(last))
    match form:
        case "a window over messages":
            return len(msgspec.json.encode(MESSAGES[:CALLS]))
        case "a window over a string":
            return 1_200 * (CALLS - 1) + 12_000
        case "two prompts in turn":
            return once * 2
        case "a tool's result again and again":
            return len(msgspec.json.encode(MESSAGES[:CALLS])) + len(msgspec.json.encode(RESULT))
        case _:
            return once


async def arguments_of(record, run: str, number: int):
    """Return a step's arguments in full, as a reader of the record gets them."""
    state = (await record.state(run)).agent("ada")
    fetch = payloads.Reader(lambda: state).arguments(state.steps[number])
    try:
        request = next(fetch)
        while True:
            request = fetch.send(await record.io(record.raw.workspace.blobs.get(*request)))
    except StopIteration as stop:
        return stop.value


async def _stored(record) -> int:
    """Return the bytes of the run's bodies and of their blobs, each counted once."""
    commits = await record.commits("r")
    blobs: dict[str, int] = {}
    for stored in commits:
        for event in msgspec.json.decode(stored.body)["events"]:
            blobs.update(_blobs(event["data"]))
    return sum(len(stored.body) for stored in commits) + sum(blobs.values())


def _blobs(value) -> dict[str, int]:
    sizes: dict[str, int] = {}
    if isinstance(value, dict):
        if value.keys() == {"$blob"}:
            return {value["$blob"]["sha256"]: value["$blob"]["size"]}
        for item in value.values():
            sizes.update(_blobs(item))
    elif isinstance(value, list):
        for item in value:
            sizes.update(_blobs(item))
    return sizes


@pytest.mark.fast(cases=3, slow=0)
@pytest.mark.parametrize("form", FORMS)
async def test_repeated_text_is_not_stored_again(record: TwinRecord, form):
    """Calls with shared prompt text store at most twice the distinct text, after resumes too."""
    for first, last in ((0, CALLS // 2), (0, CALLS)):
        async with record.run(run="r") as session:

            @session.tool(effects="pure", kind="model")
            async def think(prompt, temperature: float = 0.5) -> str:
                return "yes"

            for i in range(first, last):
                assert await think(FORMS[form](i)) == "yes"
    stored = await _stored(record) - CALLS * EVENT_BYTES_MAX
    assert stored <= RATIO_MAX * _distinct(form)
    for i in (0, 1, CALLS // 2, CALLS - 1):
        arguments = await arguments_of(record, "r", i + 1)
        assert arguments == {"prompt": FORMS[form](i), "temperature": 0.5}


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("form", ["a list", "messages in a dict", "a string that grows"])
async def test_results_that_grow_are_not_stored_again(record: TwinRecord, form):
    """A tool that gives a whole history each time: as for arguments; a replay gives them back."""
    for mode in (None, "strict"):
        async with record.run(run="r", mode=mode) as session:

            @session.tool(effects="once")
            async def history(upto: int):
                assert mode is None
                return FORMS[form](upto)

            for i in range(CALLS):
                assert await history(i) == FORMS[form](i)
    stored = await _stored(record) - CALLS * EVENT_BYTES_MAX
    assert stored <= RATIO_MAX * _distinct(form)


async def test_prompts_beyond_what_an_event_holds_are_shared_too(record: TwinRecord):
    """Prompts over 64 KiB, and additions over 64 KiB, are stored once as blobs."""
    large = [{"role": "tool", "content": _text(n, BLOB_BYTES_MIN + 9_000)} for n in range(3)]
    prompts = [
        [*MESSAGES[:4], *large[:n], *MESSAGES[4 : 4 + i]] for n in range(4) for i in range(4)
    ]
    for upto in (6, len(prompts)):
        async with record.run(run="r") as session:

            @session.tool(effects="once", kind="model")
            async def think(prompt) -> int:
                return len(prompt)

            for prompt in prompts[:upto]:
                assert await think(prompt) == len(prompt)
    whole = len(msgspec.json.encode([*large, *MESSAGES[:8]]))
    stored = await _stored(record) - len(prompts) * EVENT_BYTES_MAX
    assert stored <= RATIO_MAX * whole
    for number, prompt in enumerate(prompts, 1):
        assert await arguments_of(record, "r", number) == {"prompt": prompt}


async def test_a_state_at_any_position_has_the_messages_whole(record: TwinRecord):
    """This holds for steps in the chunk that a state begins with and for later ones."""
    prompt = _messages(80, size=150)
    async with record.run(run="r") as session:

        @session.tool(effects="pure", kind="model")
        async def think(messages: list) -> int:
            return len(messages)

        for count in range(1, len(prompt) + 1):
            assert await think(prompt[:count]) == count
    commits = await record.commits("r")
    own = [each.position for each in commits if isinstance(each.stream, AgentStream)]
    for position in own[-1::-17]:
        state = (await record.state("r", position)).agent("ada")
        assert position != own[-1] or len(state.steps) == len(prompt)
        for number, step in state.steps.items():
            assert msgspec.json.decode(step.arguments) == {"messages": prompt[:number]}


async def test_a_reply_that_comes_back_in_the_prompt_is_stored_once(record: TwinRecord):
    """A tool's result that becomes part of a prompt is stored as a reference."""
    async with record.run(run="r") as session:

        @session.tool(effects="pure", kind="model")
        async def think(messages: list) -> str:
            return _text(len(messages), 3_000)

        prompt = [{"role": "user", "content": "Begin."}]
        for _ in range(16):
            prompt.append({"role": "assistant", "content": await think(list(prompt))})
    stored = await _stored(record) - 16 * EVENT_BYTES_MAX
    assert stored <= 1.25 * 16 * 3_000


async def test_a_fork_refers_to_its_parents_texts_before_the_cut(record: TwinRecord):
    """A fork in the middle of a growing prompt keeps sharing; both read back."""

    async def think_all(record, run: str, prompts: list[list]) -> None:
        async with record.run(run=run) as session:

            @session.tool(effects="pure", kind="model")
            async def think(messages: list) -> int:
                return len(messages)

            for prompt in prompts:
                assert await think(prompt) == len(prompt)

    grown = [MESSAGES[: i + 1] for i in range(8)]
    other = [[*MESSAGES[:4], *OTHER[:i]] for i in range(1, 7)]
    await think_all(record, "r", grown)
    [cut] = [
        stored.commit.id
        for stored in await record.commits("r")
        if b'"step":6,"result"' in stored.body
    ]
    fork = await record.fork("r", at=cut)
    await think_all(record, fork, [*grown[:6], *other])
    for run, prompts in (("r", grown), (fork, [*grown[:6], *other])):
        for number, prompt in enumerate(prompts, 1):
            assert await arguments_of(record, run, number) == {"messages": prompt}
    own = [stored.body for stored in await record.commits(fork)]
    assert sum(map(len, own)) < 6 * 1_500 * RATIO_MAX + 10 * EVENT_BYTES_MAX
