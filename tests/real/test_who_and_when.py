"""Who&When: failed runs of several agents, and the agent and step of each mistake."""

import json
from collections import Counter

import msgspec
import pytest

from hansard.agents.workspace import RunLife
from tests.real import support
from tests.real.converters import who_and_when

pytestmark = pytest.mark.real


class Case(msgspec.Struct):
    """A run on record: its life and messages with their authors, in log order."""

    life: RunLife
    messages: list[tuple[str, dict[str, object]]]

    @property
    def blamed(self):
        """Agent that the source blames for the mistake."""
        return self.life.state.labels["mistake_agent"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a workspace of its own for this data set."""
    with support.opened(tmp_path_factory.mktemp("who")) as made:
        yield made


@pytest.fixture(scope="module")
def cases(place, real_data, tmp_path_factory):
    """All runs, imported, by the name of their source file."""
    file = tmp_path_factory.mktemp("chats") / "chats.jsonl"
    support.write(file, who_and_when.convert(real_data / "who-and-when" / "dev"))
    place.imported("chat-jsonl", file, "who-and-when", "as-recorded")
    messages: dict[str, list[tuple[str, dict[str, object]]]] = {}
    for commit in place.stored():
        for message in commit.events("message.added.v1"):
            message["content"] = place.fetched(message["content"])
            messages.setdefault(commit.run, []).append((commit.agent, message))
    return {
        life.state.labels["source_run"]: Case(life, messages[life.run]) for life in place.lives()
    }


@pytest.fixture(scope="module")
def sources(real_data):
    """Return the files, by the same name."""
    folder = real_data / "who-and-when" / "dev"
    files = folder.rglob("*.json")
    return {f"{file.parent.name}/{file.stem}": json.loads(file.read_bytes()) for file in files}


def test_every_message_is_its_agents(cases, sources):
    """61 runs: each message is in its agent's stream, in the source's order."""
    assert cases.keys() == sources.keys()
    assert len(cases) == 61
    for name, case in cases.items():
        history = sources[name]["history"]
        actors = [entry.get("name") or entry["role"].partition(" (")[0] for entry in history]
        expected = [(who, entry["content"]) for who, entry in zip(actors, history, strict=True)]
        assert [(who, message["content"]) for who, message in case.messages] == expected, name
        assert case.life.state.roster.keys() == set(actors), name


def test_what_the_source_says_besides_is_kept(cases, sources):
    """A message of the orchestrator keeps its kind (a thought, an order and its addressee)."""
    kept = Counter(
        message["fields"]["channel"]
        for case in cases.values()
        for _, message in case.messages
        if "channel" in message.get("fields", {})
    )
    roles = [entry["role"] for case in sources.values() for entry in case["history"]]
    expected = Counter(role[:-1].partition(" (")[2] for role in roles if role.endswith(")"))
    assert kept == expected
    assert kept["thought"] == 499


def test_the_mistake_is_on_record(cases, sources):
    """The mistake's step is a metric, its agent a label, its reason the error."""
    for name, case in cases.items():
        source, state = sources[name], case.life.state
        assert state.status.value == "failed"
        assert state.scores["mistake_step"] == int(source["mistake_step"])
        assert case.blamed == source["mistake_agent"]
        assert state.error is not None
        assert state.error.message == source["mistake_reason"]


@pytest.mark.slow
def test_the_actor_at_the_step_is_to_blame_in_all_but_one(cases):
    """The author of the mistaken step is to blame in all but one run."""
    differ = {}
    for name, case in cases.items():
        actor, _ = case.messages[int(case.life.state.scores["mistake_step"])]
        if actor != case.blamed:
            differ[name] = (actor, case.blamed)
    assert differ == {"Algorithm-Generated/15": ("Verification_Expert", "Boggle_Board_Expert")}


def test_nothing_is_wrong_with_the_whole(place, cases):
    """The recheck finds nothing wrong, large contents in blobs included."""
    output = place.call("check", "--json")
    assert output.code == 0, output.out
    assert output.lines[-1]["wrong"] == 0
    assert output.lines[-1]["blobs"] > 0
