"""deepagents' own middleware loads the exported files as they are."""

import warnings

import pytest

from hansard.ext.memory import harnesses
from hansard.ext.memory.harnesses import Harness
from tests.memory.portable.test_harnesses import SPACE

pytestmark = pytest.mark.slow


@pytest.mark.thorough(
    quick="memory/portable/test_harnesses.py::test_each_harness_finds_what_it_looks_for"
)
@pytest.mark.parametrize("harness", Harness)
def test_deepagents_own_middleware_loads_the_folder(tmp_path, harness):
    """Instructions through the memory middleware, skills through the one for skills."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other people's packages, as they are imported
        from deepagents.backends import FilesystemBackend  # noqa: PLC0415 -- takes a second
        from deepagents.middleware.memory import MemoryMiddleware  # noqa: PLC0415 -- takes a second
        from deepagents.middleware.skills import SkillsMiddleware  # noqa: PLC0415 -- takes a second
    made = harnesses.export(SPACE, harness).tree
    harnesses.write(tmp_path / "agent", made)
    backend = FilesystemBackend(root_dir=tmp_path / "agent", virtual_mode=True)
    name = "/CLAUDE.md" if harness is Harness.CLAUDE_CODE else "/AGENTS.md"
    memory = MemoryMiddleware(backend=backend, sources=[name])
    loaded = memory.before_agent({"messages": []}, None, {})  # type: ignore[arg-type]  # it reads no runtime
    assert loaded == {"memory_contents": {name: "Be brief.\n"}}
    [skill] = [path for path in made if path.endswith("/pay/SKILL.md")]
    source = f"/{skill.removesuffix('/pay/SKILL.md')}"
    skills = SkillsMiddleware(backend=backend, sources=[source])
    update = skills.before_agent({"messages": []}, None, {})  # type: ignore[arg-type]  # it reads no runtime
    assert update is not None
    assert [(each["name"], each["description"]) for each in update["skills_metadata"]] == [
        ("pay", "Pays.")
    ]
    assert not update.get("skills_load_errors")
