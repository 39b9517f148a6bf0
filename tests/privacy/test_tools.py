"""Placeholders and labels at a model's boundary: arguments, results and SQL."""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hansard
from hansard.agents.flow import done
from hansard.agents.steps.placeholders import Masker, Placeholders
from hansard.domain.steps import StepStatus
from hansard.errors import SecretsNotRedacted
from tests.labels.support import read_secret
from tests.privacy.operations import REDACT, SECRET, Place, stored_secrets, targets, tried

MAIL, PHONE = "ada@example.org", "+49 30 1234567"


@dataclass
class Letter:
    """A record of values."""

    to: str
    lines: list[str]


def veil(placeholders: Placeholders | None = None) -> Masker:
    """Return the masker of one call."""
    return Masker(placeholders or Placeholders(), b"0123456789abcdef", {}, "ask")


@pytest.mark.slow
def test_a_model_receives_placeholders_and_the_record_has_the_values(record):
    """Values are restored in the answer; a replay returns it without a call; SQL has the counts."""
    calls = []

    def ask(session):
        @session.tool(effects="pure", kind="model", placeholders=True)
        def model(prompt: dict, letter: Letter) -> dict:
            calls.append((prompt, letter))
            return {"answer": f"I wrote to {prompt['to'][0]}.", "to": letter.to}

        return model({"to": [MAIL], MAIL: 1}, Letter(PHONE, ["hello"]))

    with record.run("w", run="r", agent="ada") as session:
        first = ask(session)
    assert first == {"answer": f"I wrote to {MAIL}.", "to": PHONE}
    [(prompt, letter)] = calls
    assert MAIL not in str(prompt)
    assert PHONE not in str(letter)
    assert letter.lines == ["hello"]
    [step] = record.state("r").agents["ada"].steps.values()
    assert MAIL.encode() in bytes(step.arguments)
    assert step.usage == {"replaced": 3, "replaced_email": 2, "replaced_phone": 1}
    with record.run("w", run="r", agent="ada", mode="offline") as session:
        assert ask(session) == first
    assert len(calls) == 1
    rows = record.sql("SELECT tool, replaced, replaced_kinds, untrusted FROM model_inputs").rows
    assert rows == [("model", 3, '{"email":2,"phone":1}', False)]


def test_async_tools_and_streams_receive_placeholders_too(record):
    """Async tools and streams receive placeholders; one that is split across chunks is restored
    whole.
    """

    def chop(text):
        return [text[at : at + 3] for at in range(0, len(text), 3)]

    with record.run("w", run="r", agent="ada") as session:

        @session.tool(effects="pure", kind="model", placeholders=True)
        def spell(prompt):
            yield from ({"delta": part, "n": 1} for part in chop(f"To {prompt}!"))

        @session.tool(effects="pure", kind="model", placeholders=True)
        async def ask(prompt):
            await asyncio.sleep(0)
            assert MAIL not in prompt
            return prompt

        items = list(spell(f"{MAIL} and <b>"))
        assert "".join(item["delta"] for item in items) == f"To {MAIL} and <b>!"
        assert all(item["n"] == 1 for item in items)
        assert ask(MAIL) == MAIL
        replayed = list(spell(f"{MAIL} and <b>"))
        assert "".join(item["delta"] for item in replayed) == f"To {MAIL} and <b>!"


def test_a_key_of_ones_own_gives_the_same_placeholders_again(record):
    """In one run; another run has others."""
    prompts: list[str] = []
    for run in ("r", "r", "s"):
        secrets = {"placeholders": "0123456789abcdef"}
        with record.run("w", run=run, agent=f"a{len(prompts)}", secrets=secrets) as session:
            session.tool(effects="pure", name="ask", placeholders=True)(prompts.append)(MAIL)
    assert prompts[0] == prompts[1] != prompts[2]


def test_a_secret_is_passed_unmasked(record):
    """A secret is passed to the tool unmasked."""
    calls = []
    key = "sk-" + "a1" * 20
    with record.run("w", run="r", agent="ada", secrets={"openai": key}) as session:

        @session.tool(effects="pure", placeholders=True)
        def ask(key, prompt):
            calls.append((key, prompt))

        ask(hansard.Secret("openai"), f"my key is {key}")
    assert calls[0][0] == key
    assert key not in calls[0][1]


def test_a_value_inside_of_what_cannot_be_taken_apart_stops_the_call(record):
    """Nothing is called with it."""

    class Opaque:
        def __eq__(self, other):
            return isinstance(other, Opaque)

        def __hash__(self):
            return 0

    hansard.value_type(
        Opaque, tag="tests.opaque.v1", encode=lambda _: MAIL, decode=lambda _: Opaque()
    )
    with record.run("w", run="r", agent="ada") as session:
        ask = session.tool(effects="pure", name="ask", placeholders=True)(lambda prompt: prompt)
        with pytest.raises(hansard.BadValue, match="inside a Opaque"):
            ask(Opaque())


def test_names_of_people_take_a_detector(record):
    """The detector runs first, then the patterns of the requested kinds."""
    options = Placeholders(kinds=("email",), detect=lambda text: [(0, 3, "NAME")] * ("Ada" in text))
    made = veil(options).hide({"prompt": f"Ada, {MAIL}, {PHONE}"})
    assert "Ada" not in made["prompt"]
    assert MAIL not in made["prompt"]
    assert PHONE in made["prompt"]


@pytest.mark.parametrize("wrong", ["yes", Placeholders(kinds=("shoe size",))])
def test_what_cannot_be_declared_is_refused(wrong):
    """An invalid declaration is refused where it is made."""
    with pytest.raises(hansard.BadValue, match="placeholders"):
        hansard.tool(placeholders=wrong)(lambda prompt: prompt)


_LEAF = st.one_of(
    st.none(), st.integers(), st.sampled_from([MAIL, PHONE, f"x {MAIL}", "<EMAIL_0123456789ab>"])
)
_VALUE = st.recursive(
    _LEAF,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", MAIL]), inner, max_size=3),
        st.tuples(inner, inner),
    ),
    max_leaves=8,
)


@given(_VALUE)
def test_no_value_is_left_in_nested_arguments_and_all_come_back(value):
    """Any nesting works; a value without matches is returned as the same object."""
    made = veil()
    hidden = made.hide({"value": value})["value"]
    assert MAIL not in str(hidden)
    assert PHONE not in str(hidden)
    assert made.put_back(hidden) == value
    if MAIL not in str(value) and PHONE not in str(value) and "<EMAIL" not in str(value):
        assert hidden is value


@pytest.mark.slow
@settings(max_examples=max(60, settings().max_examples))
@given(
    text=st.lists(st.sampled_from([MAIL, "<", "<EMA", " ok ", PHONE, ">"]), max_size=6).map(
        "".join
    ),
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    deep=st.booleans(),
)
def test_a_stream_comes_back_whole_however_it_is_cut(text, cuts, deep):
    """Text by text, or inside of records; between them items of another form, which stay."""
    made = veil()
    hidden = made.hide({"text": text})["text"]
    parts: list[str] = []
    at = 0
    while at < len(hidden):
        step = cuts[len(parts) % len(cuts)]
        parts.append(hidden[at : at + step])
        at += step
    items: list[object] = [{"choices": [{"text": part}]} if deep else part for part in parts]
    items[1:1] = [7]
    back = done(listed(made.items(iter_of(items))))
    texts = [item["choices"][0]["text"] if deep else item for item in back if item != 7]
    assert "".join(texts) == text
    assert len(back) == len(items)


async def listed(items):
    """Return the items of an async generator."""
    return [item async for item in items]


def iter_of(items):
    """Yield the items, as a streaming tool does."""
    yield from items


def pair(session, **options):
    """Return a local and a cloud model, and the list of which was called."""
    calls = []

    @session.tool(effects="pure", kind="model")
    def llama(prompt: str) -> str:
        calls.append("local")
        return f"local: {prompt}"

    @session.tool(effects="pure", kind="model", takes="internal")
    def gpt(prompt: str) -> str:
        calls.append("cloud")
        return f"cloud: {prompt}"

    return hansard.by_label(local=llama, cloud=gpt, **options), calls


@pytest.mark.slow
def test_what_is_above_the_clouds_clearance_goes_to_the_local_model(record):
    """Once the agent was shown data above the cloud's clearance, calls go to the local model.

    SQL shows which model was called under which label.
    """
    with record.run("w", run="r", agent="ada") as session:
        ask, calls = pair(session, name="ask")
        assert ask("hello") == "cloud: hello"
        read_secret(session)
        assert ask("the plan") == "local: the plan"
        assert ask("hello") == "local: hello"  # one new call, and the first is not repeated
    assert calls == ["cloud", "local", "local"]
    steps = record.state("r").agents["ada"].steps.values()
    assert StepStatus.BLOCKED not in {step.status for step in steps}
    answer = record.sql(
        "SELECT tool, chosen_by, takes, confidentiality, untrusted FROM model_inputs"
    )
    assert answer.rows == [
        ("gpt", "ask", "internal", "public", False),
        ("llama", "ask", None, "secret", True),
        ("llama", "ask", None, "secret", True),
    ]
    with record.run("w", run="r", agent="ada", mode="offline") as session:
        ask, calls = pair(session, name="ask")
        assert ask("hello") == "cloud: hello"
        read_secret(session)
        assert ask("the plan") == "local: the plan"
    assert calls == []


def test_models_that_are_not_called_alike_are_refused(record):
    """And a cloud that takes all: then nothing would ever go to the local one."""
    with record.run("w", run="r", agent="ada") as session:
        one = session.tool(effects="pure", name="one")(lambda prompt: prompt)
        two = session.tool(effects="pure", name="two", takes="internal")(lambda text: text)
        with pytest.raises(hansard.ToolError, match="takes data of any label"):
            hansard.by_label(local=two, cloud=one)
        with pytest.raises(hansard.ToolError, match="have different signatures"):
            hansard.by_label(local=one, cloud=two)


# ------------------------------------------------------------ resumes


KEY = "sk-live-0123456789"


def _start(folder: Path, **options: Any) -> list[str]:
    """Run the program once; return the texts of its warnings."""
    with (
        warnings.catch_warnings(record=True, action="always") as caught,
        hansard.connect(data_dir=folder, **options) as record,
        record.run("w", run="r", agent="ada") as session,
    ):

        @session.tool(effects="pure")
        def fetch(url: str) -> str:
            return f"fetched with {KEY}"

        @session.tool(effects="pure")
        def sign(key: hansard.Secret) -> str:
            return "signed"

        fetch("https://example.org")
        sign(hansard.Secret("other"))
    return [str(each.message) for each in caught if each.category is SecretsNotRedacted]


@pytest.mark.slow
def test_a_resume_without_the_redaction_warns(tmp_path: Path):
    """The warning names the secret and the remedy; there is none with it, or in a run without
    marks.
    """
    secrets = {"other": "value-of-other"}
    assert _start(tmp_path, redact={"api-key": KEY}, secrets=secrets) == []
    assert _start(tmp_path, redact={"api-key": KEY}, secrets=secrets) == []
    [text] = _start(tmp_path, secrets=secrets)
    assert text.startswith("run r has 1 secret redacted on record (api-key)")
    assert "HANSARD_REDACT" in text


# ------------------------------------------------------------ no secret is stored


@pytest.mark.slow
def test_no_operation_of_a_trusted_program_stores_a_secret(tmp_path, capfd):
    """A secret in any text of any operation is in no stored byte, output or error."""
    folder = tmp_path / "data"
    wrong: list[str] = []
    with (
        hansard.connect("lab", data_dir=folder) as plain,
        hansard.connect("lab", data_dir=folder, **REDACT) as record,
    ):
        place = Place(plain, tmp_path)
        for target, reached in targets(record, agent="a", role="r").items():
            wrong += tried(place, target, reached, 1)
        for each in place.waiting:
            each.join()
        record.sql("SELECT count(*) FROM events")
        wrong += stored_secrets(folder)
    wrong += stored_secrets(folder)
    output = "".join(capfd.readouterr())
    assert not wrong, "\n".join(wrong)
    assert SECRET not in output
