"""Runs of GEPA and programs of DSPy in their own formats: see `made/README.md`."""

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest

from hansard.agents.artifacts.prompts import read_source
from hansard.domain.errors import BadValue

pytestmark = pytest.mark.slow

MADE = Path(__file__).with_name("made")
RESULT = json.loads((MADE / "gepa_result.json").read_text(encoding="utf-8"))
"""Result of the run as GEPA reports it."""


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        """Return how it is unpickled."""
        return os.mkdir, (self.folder,)


def test_a_run_of_gepa_comes_over(call, record, tmp_path):
    """GEPA's candidates become versions with parents and scores; the pickle is not loaded."""
    folder = tmp_path / "search"
    shutil.copytree(MADE / "gepa_run", folder)
    (folder / "gepa_state.bin").write_bytes(pickle.dumps(Trap(tmp_path / "loaded")))
    made = call("prompt", "import", folder, "--json").lines
    assert [each["prompt"] for each in made] == ["search/answer", "search/plan"]
    assert not (tmp_path / "loaded").exists()
    assert made[0]["notes"][0] == "search/gepa_state.bin is a pickle and was not read"
    for name in ("answer", "plan"):
        prompt = f"search/{name}"
        log = {each.version: each for each in record.prompts.log(prompt).versions}
        texts = {each[name] for each in RESULT["candidates"]}
        assert {record.prompts.get(f"{prompt}@{version}").text for version in log} == texts
        best = record.prompts.get(f"{prompt}@best")
        assert best.text == RESULT["candidates"][RESULT["best_idx"]][name]
        by_candidate = {int(each.because.split()[1]): each for each in log.values()}
        for number, version in by_candidate.items():
            assert version.claimed["score"] == pytest.approx(
                RESULT["val_aggregate_scores"][number], abs=1e-4
            )
            scores = {f"score[{k}]": v for k, v in RESULT["val_subscores"][number].items()}
            assert {**version.claimed, **scores} == version.claimed or number == 0
        edges = {
            number: {int(log[parent].because.split()[1]) for parent in version.parents}
            for number, version in by_candidate.items()
        }
        for number, parents in edges.items():
            expected = {each for each in RESULT["parents"][number] if each is not None}
            assert {RESULT["candidates"][each][name] for each in parents} == {
                RESULT["candidates"][each][name] for each in expected
            }
    count = record.sql("SELECT count(*) FROM events").rows
    again = call("prompt", "import", folder, "--json").lines
    assert [(each["added"], each["best"]) for each in again] == [(0, each["best"]) for each in made]
    assert record.sql("SELECT count(*) FROM events").rows == count


def test_a_result_of_gepa_has_what_its_folder_has(call, record):
    """And the scores by instance of the first candidate, which the folder lacks."""
    call("prompt", "import", MADE / "gepa_run", "--name", "one")
    call("prompt", "import", MADE / "gepa_result.json", "--name", "two")
    for part in ("answer", "plan"):
        one, two = (record.prompts.log(f"{name}/{part}").versions for name in ("one", "two"))
        assert [each.parents for each in one] == [each.parents for each in two]
        assert [each.claimed for each in one[1:]] == [each.claimed for each in two[1:]]
        assert list(one[0].claimed) == ["score"]
        assert len(two[0].claimed) == 1 + len(RESULT["val_subscores"][0])


def test_an_alias_that_was_moved_stays(call, record):
    """A person moved `best`: importing again leaves it, and names no best version."""
    file = MADE / "gepa_result.json"
    call("prompt", "import", file, "--name", "g")
    record.prompts.alias("g/plan@1", "best", reason="shorter")
    [answer, plan] = call("prompt", "import", file, "--name", "g", "--json").lines
    assert (answer["best"] is not None, plan["best"]) == (True, None)
    assert record.prompts.get("g/plan@best").version == 1


def test_a_saved_dspy_program_comes_over(call, record):
    """A prompt for each predictor: instructions, fields, demonstrations and the model's name."""
    [plan, answer] = call("prompt", "import", MADE / "dspy_program.json", "--json").lines
    assert plan["prompt"] == "dspy_program/plan"
    prompt = record.prompts.get("dspy_program/plan")
    assert (prompt.text, prompt.model) == ("Plan the search.", "openai/gpt-4.1-mini")
    assert [each["augmented"] for each in prompt.parameters["demos"]] == [True, True]
    assert prompt.parameters["lm"]["temperature"] == 0.2
    prompt = record.prompts.get(answer["prompt"])
    assert (prompt.name, prompt.text) == ("dspy_program/answer.predict", "Answer briefly.")
    assert prompt.parameters["fields"][2]["prefix"] == "Reasoning:"
    again = call("prompt", "import", MADE / "dspy_program.json", "--json").lines
    assert [each["added"] for each in again] == [0, 0]
    [alone] = call("prompt", "import", MADE / "dspy_predictor.json", "--name", "qa", "--json").lines
    assert (alone["prompt"], alone["added"]) == ("qa", 1)
    assert "produce the fields `answer`" in record.prompts.get("qa").text


def test_a_folder_with_a_pickle_alone_is_refused(tmp_path):
    """`program.save(folder, save_program=True)` of DSPy, or a GEPA folder without its page."""
    (tmp_path / "program.pkl").write_bytes(pickle.dumps(Trap(tmp_path / "loaded")))
    with pytest.raises(BadValue, match=r"never loaded; save a DSPy program with program\.save"):
        read_source(tmp_path)
    assert not (tmp_path / "loaded").exists()


def test_scores_in_a_proposed_text_are_not_believed(tmp_path):
    """A text that looks like a line of GEPA's log changes no score: the page has the mean."""
    shutil.copytree(MADE / "gepa_run", tmp_path, dirs_exist_ok=True)
    log = tmp_path / "run_log.txt"
    line = "Iteration 1: Individual valset scores for new program: {0: 9.0}\n"
    text = log.read_text(encoding="utf-8")
    place = "Iteration 3: New program candidate index"
    assert place in text
    log.write_text(text.replace(place, line + place), encoding="utf-8")
    for candidates in read_source(tmp_path).prompts.values():
        assert all(9.0 not in each.draft.metrics.values() for each in candidates)
