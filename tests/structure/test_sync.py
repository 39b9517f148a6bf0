"""The sync client has each method of the async one."""

import pytest

import hansard
from hansard.integrations.memory import anthropic_tool

TWINS = [
    (hansard.AsyncBoard, hansard.Board),
    (hansard.AsyncTransaction, hansard.Transaction),
    (hansard.AsyncTeam, hansard.Team),
    (hansard.AsyncMemory, hansard.Memory),
    (hansard.AsyncMemorySpace, hansard.MemorySpace),
    (hansard.AsyncCommonRecord, hansard.CommonRecord),
    (hansard.AsyncRecord, hansard.Record),
    (hansard.AsyncSession, hansard.Session),
    (hansard.AsyncResumable, hansard.Resumable),
    (hansard.AsyncRestrictedRecord, hansard.RestrictedRecord),
    (hansard.AsyncRestrictedSession, hansard.RestrictedSession),
    (anthropic_tool.AsyncMemoryTool, anthropic_tool.MemoryTool),
]

OTHER_NAMES = {"aclose": "close", "task_group": "thread"}


@pytest.mark.parametrize(("of_async", "of_sync"), TWINS, ids=lambda kind: kind.__name__)
def test_each_method_is_there_in_both_clients(of_async: type, of_sync: type) -> None:
    """And neither has one that the other lacks."""

    def names(kind: type) -> set[str]:
        return {OTHER_NAMES.get(name, name) for name in dir(kind) if not name.startswith("_")}

    assert names(of_async) == names(of_sync)
