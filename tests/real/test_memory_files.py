"""Real skills and agent files: valid as the specification's validator decides."""

import hashlib
import json

import pytest

from hansard.agents.memory import drafts, formats
from hansard.agents.memory.formats import Link
from hansard.ext.memory import harnesses
from hansard.ext.memory.harnesses import Harness
from tests.memory.validation import mutations

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def verdicts(real_data):
    """Return the reference validator's verdict on each real skill."""
    return json.loads((real_data / "agent-skills/dev.expected.json").read_bytes())["files"]


@pytest.fixture(scope="module")
def skills(verdicts, real_data):
    """Return the real skills."""
    contents = {path: (real_data / "agent-skills/dev" / path).read_bytes() for path in verdicts}
    for path, content in contents.items():  # named by git
        named = hashlib.sha1(b"blob %d\0%s" % (len(content), content))  # noqa: S324 -- as git does
        assert named.hexdigest() == verdicts[path]["sha1"]
    return contents


@pytest.fixture(scope="module")
def trees(real_data):
    """Return the real trees of instructions and the real agent projects."""
    trees_by_name: dict[str, dict[str, bytes | Link]] = {}
    for file in json.loads((real_data / "agents-md/dev.manifest.json").read_bytes()):
        path = real_data / "agents-md/dev" / file["repo"] / file["path"]
        content = Link(file["symlink_to"]) if file["symlink_to"] else path.read_bytes()
        trees_by_name.setdefault(file["repo"], {})[file["path"]] = content
    for project in sorted((real_data / "memory/projects").glob("*/*")):
        files = [path for path in project.rglob("*") if path.is_file()]
        trees_by_name[project.name] = {
            str(path.relative_to(project)): path.read_bytes() for path in files
        }
    return trees_by_name


def test_the_reference_validator_and_we_agree_on_each_real_skill(skills, verdicts, evidence):
    """142 files, 26 of them not valid."""
    ours = {problem.path for problem in drafts.problems(skills)}
    assert len(verdicts) == 142
    assert ours == {path for path, verdict in verdicts.items() if not verdict["valid"]}
    evidence.record("memory.skills", files=len(verdicts), refused=len(ours))


def test_every_real_tree_is_valid(trees):
    """67 files of instructions and 9 projects."""
    assert sum(len(files) for name, files in trees.items() if "+" in name) == 67
    assert [problem for files in trees.values() for problem in drafts.problems(files)] == []


def test_every_real_tree_goes_out_and_comes_back(trees, tmp_path, evidence):
    """Through a folder on disk, byte by byte, symbolic links included, in each harness's form."""
    for name, files in trees.items():
        for harness in Harness:
            folder = tmp_path / name / harness
            harnesses.write(folder, harnesses.export(files, harness).tree)
            made = harnesses.read(folder)
            assert harnesses.import_tree(made, harness, files) == files, (name, harness)
            fresh = harnesses.import_tree(made, harness)
            assert harnesses.export(fresh, harness).tree == made, (name, harness)
            if harness in {Harness.AGENTS_MD, Harness.DEEPAGENTS}:
                assert made == fresh == files, (name, harness)
    evidence.record("memory.portable", trees=len(trees), files=sum(map(len, trees.values())))


def test_a_real_projects_payload_comes_of_its_files(trees):
    """The payload of five real projects equals that of the original tool."""
    projects = [files for files in trees.values() if "expected_payload.json" in files]
    assert len(projects) == 5
    for files in projects:
        expected = json.loads(files["expected_payload.json"])
        if "tools" in expected:
            tools = formats.tools_of(files["tools.json"].decode())
            assert [tool.name for tool in tools if tool.interrupt] == ["tavily_web_search"]
            assert [tool.name for tool in tools] == [
                tool["name"] for tool in expected["tools"]["tools"]
            ]
        made = harnesses.export(files, Harness.CLAUDE_CODE).tree
        for agent in expected.get("subagents", []):
            path = f".claude/agents/{agent['name']}.md"
            subagent = harnesses.subagent_in(path, bytes(made[path]))  # type: ignore[arg-type]  # it is no link
            assert subagent is not None
            assert (subagent.name, subagent.description) == (agent["name"], agent["description"])
            assert (subagent.model, subagent.instructions) == (
                agent["model_id"],
                agent["instructions"],
            )


def test_a_change_for_the_worse_is_refused_with_its_line_and_rule(skills, trees, rounds, evidence):
    """200 that break a rule are refused where they break it, 200 that keep all are accepted."""
    valid = {
        path: content for path, content in skills.items() if not drafts.problems({path: content})
    }
    agents = {
        f"{name}/{path}": content
        for name, files in trees.items()
        for path, content in files.items()
        if path.endswith("AGENTS.md") and not isinstance(content, Link)
    }
    subagents = {
        f"subagents/{path.split('/')[-2]}/x/subagents/a.md": content
        for path, content in valid.items()
    }
    files = {
        mutations.SKILL: valid,
        mutations.TOOLS: {
            f"{name}/{path}": content
            for name, project in trees.items()
            for path, content in project.items()
            if path.endswith("tools.json")
        },
        mutations.AGENTS: agents,
        mutations.SUBAGENT: {
            path: content
            for path, content in subagents.items()
            if not drafts.problems({path: content})
        },
    }
    refused = accepted = 0
    for seed in range(rounds(quick=1, full=20)):
        for mutation in mutations.mutations(seed, files, 200):
            problems = drafts.problems({mutation.path: mutation.content})
            places = [(problem.line, problem.rule) for problem in problems]
            if mutation.rule is None:
                assert places == [], mutation.name
                accepted += 1
            else:
                assert (mutation.line, mutation.rule) in places, mutation.name
                refused += 1
    evidence.record("memory.mutations", refused=refused, accepted=accepted)
