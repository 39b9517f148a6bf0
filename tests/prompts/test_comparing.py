"""`hansard prompt compare`: two texts over a table of cases, as one command."""

import linecache
import shutil
import sys
from collections import Counter

import pytest

pytestmark = pytest.mark.slow

SCORER = """
from pathlib import Path

ASKED = Path(__file__).with_name("asked.txt")


def score(text, case):
    with ASKED.open("a") as file:
        file.write(f"{text.version if hasattr(text, 'version') else text} {case['id']}\\n")
    if case["id"] == "c7" and not Path(__file__).with_name("repaired").exists():
        raise ConnectionError("no route")
    return float(len(text.fill(question=case["question"])) > int(case["least"]))
"""
"""Scores by length, without a model; each evaluation is noted as a line."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder with two texts, a table and a scorer, which is the current one."""
    (tmp_path / "short.txt").write_text("Say {question}\n")
    (tmp_path / "long.txt").write_text("Say {question}, in full, please.\n")
    rows = "".join(f'c{number},"what, {number}?",{number * 2}\n' for number in range(20))
    (tmp_path / "cases.csv").write_bytes(f"\ufeffid,question,least\n{rows}".encode())
    (tmp_path / "scorer.py").write_text(SCORER)
    monkeypatch.delitem(sys.modules, "scorer", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_two_texts_over_a_table_are_one_command(call, record, place):
    """One command compares two texts over a table, and evaluates nothing twice."""
    command = ["prompt", "compare", "short.txt", "long.txt", "--cases", "cases.csv"]
    command += ["--evaluate", "scorer:score", "--name", "ask"]
    with pytest.raises(ConnectionError) as error:
        call(*command)
    assert "run it again to continue" in error.value.__notes__[-1]
    (place / "repaired").touch()
    made = call(*command)
    assert made.err.startswith("short.txt is ask@1, the baseline; long.txt is ask@2\n")
    assert (
        "20 cases of cases.csv, evaluated by scorer:score: 26 trials run, 14 on record" in made.err
    )
    evaluated = Counter((place / "asked.txt").read_text().splitlines())
    assert {case for case, count in evaluated.items() if count > 1} == {"Say {question} c7"}
    [(experiment,)] = record.sql("SELECT DISTINCT experiment FROM runs").rows
    assert f"hansard compare '{experiment}'" in made.err
    assert made.out == call("compare", experiment, "--baseline", "ask@1").out
    [part] = record.experiments.compare(experiment).report.judged
    [row] = [each for each in part.comparisons if each["default"] and not each["slice"]]
    assert (row["arm"], row["baseline"], row["verdict"], row["tasks"]) == (
        "ask@2",
        "ask@1",
        "better",
        20,
    )
    again = call(*command)
    assert "0 trials run, 40 on record" in again.err
    assert again.out == made.out
    versions = call("prompt", "compare", "ask@1", "ask@2", *command[4:-2])
    assert (versions.out, "0 trials run" in versions.err) == (made.out, True)
    assert call(*command, "--json").lines == call("compare", experiment, "--json").lines
    record.prompts.alias("ask@1", "production", reason="the first one")
    assert record.prompts.promote("ask@2", "production").verdict == "better"


@pytest.mark.thorough(quick="test_two_texts_over_a_table_are_one_command")
def test_an_edited_scorer_evaluates_again(call, record, place):
    """Scores of another scorer source are not used for the current one."""
    (place / "repaired").touch()
    command = ["prompt", "compare", "short.txt", "long.txt", "--cases", "cases.csv"]
    command += ["--evaluate", "scorer:score", "--name", "edited"]
    assert "40 trials run, 0 on record" in call(*command).err
    assert "40 on record before, scored by the same source of score" in call(*command).err
    sys.modules.pop("scorer")
    (place / "scorer.py").write_text(SCORER.replace(" > int", " < int"))
    shutil.rmtree(place / "__pycache__", ignore_errors=True)
    linecache.clearcache()
    again = call(*command)
    assert "40 trials run, 0 on record" in again.err
    assert "worse" in again.out


@pytest.mark.thorough(quick="test_two_texts_over_a_table_are_one_command")
def test_a_failed_comparison_does_not_hide_the_one_before(call, record, place):
    """A newer experiment without a score has no verdict: the alias is moved on the older one."""
    (place / "repaired").touch()
    command = ["prompt", "compare", "short.txt", "long.txt", "--cases"]
    rest = ["--evaluate", "scorer:score", "--name", "kept"]
    call(*command, "cases.csv", *rest)
    (place / "bad.csv").write_text("id,question,least\nx,what,NaN!\n")
    with pytest.raises(ValueError, match="NaN!"):
        call(*command, "bad.csv", *rest)
    record.prompts.alias("kept@1", "production", reason="the first one")
    assert call("prompt", "promote", "kept@2").code == 0


def test_a_missing_text_is_called_so(call, place):
    """A reference that is neither a file nor a prompt is refused as both, with the remedy."""
    command = ["prompt", "compare", "short.txt", "gone.txt", "--cases", "cases.csv"]
    refused = call(*command, "--evaluate", "scorer:score")
    assert refused.code == 2
    assert "'gone.txt' is no file in" in refused.err
    assert "give a text file, or NAME@VERSION" in refused.err


@pytest.mark.parametrize(
    ("file", "text", "fact"),
    [
        ("a.csv", "id,q\nc1,a\nc1,b\n", "row 2 is the second case 'c1'"),
        ("a.csv", "id,q\nc1\n", "row 1 has not as many fields as the header"),
        ("a.csv", "id,q\n", "it has no row"),
        ("a.jsonl", '{"id": 1}\n[]\n', "a.jsonl: Expected `object`"),
        ("missing.csv", None, "No such file"),
    ],
)
def test_a_table_that_cannot_be_read_says_where(call, place, file, text, fact):
    """Before anything is evaluated or recorded."""
    if text is not None:
        (place / file).write_text(text)
    refused = call(
        "prompt", "compare", "short.txt", "long.txt", "--cases", file, "--evaluate", "scorer:score"
    )
    assert (refused.code, fact in refused.err) == (2, True), refused.err


def test_a_column_that_is_not_there_is_refused(call, place):
    """`--id` names a column of the table."""
    command = ["prompt", "compare", "short.txt", "long.txt", "--cases", "cases.csv"]
    refused = call(*command, "--evaluate", "scorer:score", "--id", "nowhere")
    assert (refused.code, "has no column 'nowhere'" in refused.err) == (2, True), refused.err


def test_equal_texts_are_refused(call, place):
    """Two files of one text are one version."""
    (place / "long.txt").write_text("Say {question}\n")
    command = ["prompt", "compare", "short.txt", "long.txt", "--cases", "cases.csv"]
    refused = call(*command, "--evaluate", "scorer:score")
    assert (refused.code, "are both short@1" in refused.err) == (2, True), refused.err
