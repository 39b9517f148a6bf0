"""Adapters name the extra that installs their framework."""

import importlib
import sys

import pytest

import hansard

pytestmark = pytest.mark.later

PACKAGES = {
    "pydantic_ai": ("pydantic_ai.agent", "pydantic-ai"),
    "openai_agents": ("agents.models", "openai-agents"),
    "agent_framework": ("agent_framework", "agent-framework"),
}


@pytest.mark.parametrize("adapter", PACKAGES)
def test_a_missing_framework_is_an_error_that_names_the_extra(
    adapter: str, monkeypatch: pytest.MonkeyPatch
):
    """The message has the command that installs it."""
    module, extra = PACKAGES[adapter]
    monkeypatch.delitem(sys.modules, f"hansard.ext.frameworks.{adapter}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(hansard.errors.ExtraMissing, match=rf"pip install '.\[{extra}\]"):
        importlib.import_module(f"hansard.ext.frameworks.{adapter}")
