"""`hansard prompt`: output and recorded events of each command."""

import json

import pytest

from hansard.agents.artifacts.prompts import read_source
from hansard.bus.clock import OS_USER
from hansard.bus.errors import Unreachable
from hansard.domain.errors import BadValue
from hansard.operations.prompts import Prompts

TEXT = "Answer {query} in full.\n"


@pytest.mark.slow
def test_an_error_after_an_effect_states_that_it_is_on_record(call, record, monkeypatch):
    """The command succeeded; only its summary is missing."""

    async def lost(*_: object) -> None:
        raise Unreachable("nats://lost", "no route")

    record.prompts.add("rag", TEXT)
    with monkeypatch.context() as broken:
        broken.setattr(Prompts, "get", lost)
        done = call("prompt", "alias", "rag@1", "production")
    assert (done.code, done.out) == (0, "done\n")
    assert done.err.startswith("prompts alias: done and on record; its summary is missing: ")
    assert record.prompts.get("rag@production").version == 1
    record.prompts.add("rag", TEXT + "More.")
    record.prompts.retire("rag@2")
    assert call("prompt", "show", "rag@2", "--json").lines[0]["is_retired"]


@pytest.mark.slow
def test_versions_by_the_command_line(call, record, tmp_path):
    """Added once, shown, compared, moved, judged, retired; an error has its remedy."""
    file = tmp_path / "rag.txt"
    file.write_text(TEXT)
    made = call("prompt", "add", "rag", file, "--model", "m-1", "--reason", "first", "--json")
    made_first = {"kind": "prompt", "name": "rag", "is_new": True, "version": 1}
    assert made.lines == [made_first]
    assert "rag@1 is equal already" in call("prompt", "add", "rag", file, "--model", "m-1").out
    evolved = call("prompt", "evolve", "rag", "too_verbose", "--json")
    assert evolved.lines == [made_first | {"version": 2}]
    assert "is unchanged" in call("prompt", "evolve", "rag@2", "too_verbose").out
    assert call("prompt", "alias", "rag@1", "production").out == "production names rag@1\n"
    call("prompt", "give-feedback", "rag@production", "too long", "--rating", "0.25", "--by", "ada")
    shown = call("prompt", "show", "rag@production")
    assert "too long (0.25)" in shown.out
    assert shown.out.endswith(TEXT)
    diff = call("prompt", "diff", "rag@2", "--json").lines[0]["diff"]
    assert [line for line in diff if line.startswith("-")] == ["--- rag@1"]
    refused = call("prompt", "promote", "rag@2")
    assert refused.code == 2
    assert "say reason= (--reason) why it is moved" in refused.err
    [moved] = call("prompt", "promote", "rag@2", "--reason", "shorter", "--json").lines
    again = call("prompt", "promote", "rag@2", "--experiment", "none").out
    assert again == "production names rag@2 already\n"
    assert moved["summary"] == "production names rag@2"  # no experiment's verdict
    assert "experiment 'e'" in call("prompt", "promote", "rag@1", "--experiment", "e").err
    assert "leave out spaces" in call("prompt", "alias", "rag@1", "bad alias").err
    call("prompt", "alias", "rag@1", "old")
    assert (
        call("prompt", "alias", "rag", "old", "--take-away").out == "old names no version of rag\n"
    )
    assert call("prompt", "retire", "rag@1", "--reason", "old").out == "rag@1 is retired\n"
    [retired] = call("prompt", "retire", "rag@1", "--by", "eva", "--json").lines
    named = {"reference": "rag@1", "by": "eva", "prompt": "rag", "version": 1}
    assert retired == named | {"result": False, "summary": "rag@1 is retired already"}
    assert "prompt 'nope' was not found" in call("prompt", "retire", "nope").err
    [listed] = call("prompt", "list", "--json").lines
    assert (listed["versions"], listed["retired"], listed["aliases"]) == (2, 1, {"production": 2})
    *versions, first, second, _, _ = call("prompt", "log", "rag", "--json").lines
    assert [each["parents"] for each in versions] == [[], [1]]
    assert versions[0]["metrics"] == {"user_satisfaction": 0.25}
    assert (first["before"], second["before"], second["because"]) == (None, 1, "shorter")
    report = call("prompt", "report", "rag")
    assert "user_satisfaction" in report.out
    assert "intervals at 95%" in report.out
    log = tmp_path / "rag.jsonl"
    log.write_text("".join(json.dumps(each) + "\n" for each in (*versions, first)))
    [copied] = call("prompt", "import", log, "--name", "copy", "--json").lines
    assert (copied["versions"], copied["added"], copied["edges"]) == (2, 2, 1)
    assert record.prompts.get("copy@2").text == record.prompts.get("rag@2").text
    findings = call("audit", "--kind", "prompts", "--json").lines
    assert findings[0]["what"] == "without evidence"
    assert f"names version 2, moved by {OS_USER} (shorter)" in findings[0]["fact"]


def test_what_is_left_out_is_demanded_and_a_retired_version_is_marked(call, record):
    """A promotion names its version, feedback a run that is not empty; a reason may be empty."""
    for text in (TEXT, f"{TEXT} again"):
        record.prompts.add("rag", text)
    refused = call("prompt", "promote", "rag", "--reason", "shorter")
    assert (refused.code, "version: none is named; say which: rag@2" in refused.err) == (2, True)
    refused = call("prompt", "give-feedback", "rag@2", "nice", "--run", "")
    assert (refused.code, "--run: it is empty" in refused.err) == (2, True), refused.err
    record.prompts.add("rag", TEXT + "More.")
    record.prompts.retire("rag@2")
    lines = call("prompt", "log", "rag", "--json").lines
    marks = [(each["version"], each["is_retired"], each["retired"]) for each in lines]
    assert marks == [(1, False, None), (2, True, ""), (3, False, None)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.dot", '0 [label="0\\n(1)"];\n0 -> 1;', "1 is no version"),
        ("a.dot", '0 [label="0\\n(x)"];', "a.dot, line 1: score 'x'"),
        ("a.dot", "0 -- 1", "a.dot, line 1: '0 -- 1'"),
        ("a.dot", "", "it has no version"),
        ("a.jsonl", '{"version": 1, "prompt": "a", "parents": [1]}', "is its own ancestor"),
        ("a.jsonl", "{", "line 1: it is no JSON"),
        ("a.jsonl", '{"version": 1}', "missing required field `prompt`"),
        ("a.jsonl", '{"version": 1, "prompt": "a"}\n' * 2, "two versions have one number"),
        ("a.json", "{}", "neither a result of GEPA nor a program that DSPy saved"),
        ("a.json", '{"candidates": [{}], "parents": []}', "missing required field"),
        ("a.json", '[{"p": "a candidates.json has no parents"}]', "give a GEPA run folder"),
        ("a.json", '{"metadata": {}, "p": {"signature": {}}}', "required field `instructions`"),
        ("a.pkl", "", "is a pickle, which can run any code and is never loaded"),
        ("a.txt", "", "is of no known form"),
    ],
)
def test_a_file_that_is_no_lineage_says_where(tmp_path, name, text, message):
    """The error has the line, its content and the valid form; nothing is written."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(BadValue) as error:
        read_source(path)
    assert message in str(error.value)


def test_a_plan_whose_arm_names_no_prompt_is_not_registered(call, record, tmp_path):
    """By the command line neither, at first and in the place of another."""
    file = tmp_path / "plan.toml"

    def register(prompt: str, *more: str):
        arms = f'[[arms]]\nname = "a"\nprompt = "{prompt}"\n'
        file.write_text(f'name = "e"\nmetrics = [{{name = "m"}}]\n{arms}')
        return call("experiment", "register", file, *more)

    assert "prompt 'rag'" in register("rag@1").err
    record.prompts.add("rag", TEXT)
    refused = register("rag@2")
    assert (refused.code, "no version 2" in refused.err) == (2, True)
    assert register("rag@1").code == 0
    replaced = register("rag@3", "--replace")
    assert (replaced.code, "no version 3" in replaced.err) == (2, True)
    assert [arm.prompt for arm in record.experiments.get("e").plan.arms] == ["rag@1"]
