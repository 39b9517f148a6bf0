"""Optimised prompts: shares of right predictions, candidate trees, GEPA killed and resumed."""

import csv
import json
import subprocess
import time
from pathlib import Path

import pytest

import hansard
from hansard.agents.artifacts.prompts import read_source
from tests.faults._warm import python
from tests.real import support

pytestmark = pytest.mark.real

ARMS = ("baseline", "default", "confidence")
PROGRAM = Path(__file__).parents[1] / "prompts" / "programs" / "optimizer.py"


def chats(path: Path, rows: list[dict[str, str]], name: str) -> Path:
    """Write the predictions as recorded runs; return the file."""
    support.write(
        path,
        (
            {
                "messages": [
                    {"role": "user", "content": row["text"]},
                    {"role": "assistant", "content": row[f"{arm}_predicted"]},
                ],
                "experiment": name,
                "arm": arm,
                "task": str(number),
                "trial": 0,
                "outcome": {"correct": row[f"{arm}_correct"] == "True"},
            }
            for number, row in enumerate(rows)
            for arm in ARMS
        ),
    )
    return path


@pytest.mark.slow
def test_the_report_counts_what_was_right(real_data, tmp_path):
    """The report's share of right predictions of each version, over 40 rows, equals the file's."""
    file = real_data / "prompts" / "gepa" / "evaluation" / "emotion_combined.csv"
    with file.open(encoding="utf-8") as opened:
        rows = [row for row, _ in zip(csv.DictReader(opened), range(40), strict=False)]
    with support.opened(tmp_path / "home") as place:
        with hansard.connect(support.WORKSPACE, data_dir=place.home) as record:
            for arm in ARMS:
                record.prompts.add("emotion", f"{arm}: {{text}}")
            arms = [{"name": arm, "prompt": f"emotion@{n}"} for n, arm in enumerate(ARMS, 1)]
            record.experiments.register(
                "emotion", hansard.experiments.plan(arms=arms, metrics=["correct"])
            )
        place.imported("chat-jsonl", chats(tmp_path / "r.jsonl", rows, "emotion"), "emotion")
        with hansard.connect(support.WORKSPACE, data_dir=place.home) as record:
            report_rows = record.prompts.report("emotion").rows
    right = [sum(row[f"{arm}_correct"] == "True" for row in rows) / 40 for arm in ARMS]
    assert [each.value for each in report_rows if each.metric == "correct"] == right


def test_all_trees_are_lineages(real_data):
    """375 candidates of 373 parents, 18 of which are merges; one root each, parents first."""
    files = sorted((real_data / "prompts/trees").glob("*.dot"))
    trees = [read_source(path).prompts[""] for path in files]
    assert len(trees) == 20
    every = [each for tree in trees for each in tree]
    assert (len(every), sum(len(each.parents) for each in every)) == (375, 373)
    assert sum(len(each.parents) == 2 for each in every) == 18
    for tree in trees:
        assert [each.number for each in tree if not each.parents] == [0]
        assert all(parent < each.number for each in tree for parent in each.parents)


@pytest.mark.slow
def test_a_tree_is_imported_once(record, call, real_data):
    """HotpotQA under gpt-4.1-mini: 21 versions, from 40.33 to 68.33, which is candidate 13."""
    file = real_data / "prompts/trees/HotpotQABench_HotpotMultiHop_gpt-41-mini_GEPA.dot"
    [made] = call("prompt", "import", file, "--name", "hotpot", "--json").lines
    assert made["versions"] == made["added"] == 21
    [again] = call("prompt", "import", file, "--name", "hotpot", "--json").lines
    assert (again["versions"], again["added"]) == (21, 0)
    versions = record.prompts.log("hotpot").versions
    scores = [each.claimed["score"] for each in versions]
    assert (scores[0], max(scores)) == (40.33, 68.33)
    assert versions[scores.index(68.33)].parameters["candidate"] == 13
    merge = real_data / "prompts/trees/HotpotQABench_HotpotMultiHop_gpt-41-mini_GEPA-MERGE.dot"
    [made] = call("prompt", "import", merge, "--name", "merged", "--json").lines
    merges = [each for each in record.prompts.log("merged").versions if len(each.parents) == 2]
    assert len(merges) == made["merges"] > 0
    with pytest.raises(hansard.errors.Refused, match="its source did not"):
        record.prompts.get("hotpot@14").format()


@pytest.mark.thorough(
    quick="prompts/test_optimizing.py::test_a_search_asks_nothing_twice_and_keeps_to_its_budget"
)
@pytest.mark.parametrize(("rows", "stops"), [(24, [17]), (80, [25, 60, 40])])
def test_gepa_is_killed_and_gone_on_with(data_dir, workspace, real_data, rows, stops, evidence):
    """GEPA killed and resumed asks nothing twice and reaches the undisturbed result."""
    file = real_data / "prompts" / "gepa" / "evaluation" / "emotion_combined.csv"

    def start(name: str, stop: int) -> subprocess.Popen[bytes]:
        arguments = [data_dir, name, file, rows, stop]
        return subprocess.Popen([python(), PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE)

    def questions(name: str) -> list[str]:
        return (data_dir / f"{name}.asked").read_text().splitlines()

    for stop in stops:
        killed, reached = start(workspace, stop), data_dir / f"{workspace}.reached"
        deadline = time.monotonic() + 120
        while not reached.exists():
            assert killed.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        killed.kill()
        killed.communicate()
        reached.unlink()
    result = json.loads(start(workspace, 0).communicate()[0])
    whole = json.loads(start(f"{workspace}-whole", 0).communicate()[0])
    assert result == whole
    assert result["best"] != "baseline"
    logged = sorted(questions(workspace))
    assert logged == sorted(questions(f"{workspace}-whole"))
    scored = [each for each in logged if '"evaluate"' in each]
    assert len(set(scored)) == len(scored)
    counts = {"asked": len(logged), "evaluated": len(scored), "twice": 0}
    evidence.record(f"prompts.gepa.kills.{rows}", kills=len(stops), **counts)
